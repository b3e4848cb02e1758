//! Values that become one segment of a request's path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The longest value that is put into a path, in bytes.
pub const PATH_SEGMENT_BYTES_MAX: usize = 1000;

/// Why a value cannot be a path segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPathSegment {
    /// Would name a folder, not a thing.
    #[error("must not be '.' or '..'")]
    Dots,
    /// Nothing at all, or too much.
    #[error("must have 1 to {PATH_SEGMENT_BYTES_MAX} bytes")]
    Length,
    /// NUL, line breaks and their like.
    #[error("must not contain control characters")]
    Control,
}

/// Checks a token or id that is to be sent as a path segment: percent-encoding makes every other value safe, but
/// `.` and `..` would be resolved away by clients, proxies and servers alike.
///
/// # Errors
/// [`InvalidPathSegment`], worded so that it can follow the field's name.
pub fn check_path_segment(value: &str) -> Result<(), InvalidPathSegment> {
    match value {
        "." | ".." => Err(InvalidPathSegment::Dots),
        _ if value.is_empty() || value.len() > PATH_SEGMENT_BYTES_MAX => Err(InvalidPathSegment::Length),
        _ if value.chars().any(char::is_control) => Err(InvalidPathSegment::Control),
        _ => Ok(()),
    }
}

/// A checked value, percent-encoded.
pub(crate) fn encode_path_segment(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_unreserved_characters_is_encoded() {
        assert_eq!(encode_path_segment("a-b_c.d~e"), "a-b_c.d~e");
        assert_eq!(encode_path_segment("../x?y=1#z%2e é"), "..%2Fx%3Fy%3D1%23z%252e%20%C3%A9");
    }

    #[test]
    fn a_value_of_dots_only_or_of_no_use_as_a_segment_is_refused() {
        assert_eq!(check_path_segment("."), Err(InvalidPathSegment::Dots));
        assert_eq!(check_path_segment(".."), Err(InvalidPathSegment::Dots));
        assert_eq!(check_path_segment(""), Err(InvalidPathSegment::Length));
        assert_eq!(check_path_segment("a\0"), Err(InvalidPathSegment::Control));
        for fine in ["...", "a..b", "..a", "a/b", "%2e%2e"] {
            assert_eq!(check_path_segment(fine), Ok(()), "{fine}");
        }
    }
}
