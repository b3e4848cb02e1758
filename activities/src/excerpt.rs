//! Peer text as it may be quoted: short, one line, printable, without our own secret.

/// The longest quotation, in bytes.
pub(crate) const EXCERPT_BYTES_MAX: usize = 200;
/// How much of a body is looked at for it, in bytes.
const LOOKED_AT_BYTES_MAX: usize = 4096;
const REPLACEMENT: &str = "\u{fffd}";

/// The beginning of `bytes`, at most [`EXCERPT_BYTES_MAX`] bytes. What no store, terminal or page can show (NUL, control
/// characters, invalid UTF-8, also JSON escapes of NUL and of lone surrogates) becomes U+FFFD; `secret` becomes `***`.
pub(crate) fn excerpt(bytes: &[u8], secret: Option<&str>) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT_BYTES_MAX)]);
    let text = match secret {
        Some(secret) => text.replace(secret, "***"),
        None => text.into_owned(),
    };
    let mut shown = String::new();
    let mut rest = text.trim();
    while let Some(c) = rest.chars().next() {
        let (taken, showable) = match c {
            '\\' => escape(rest),
            _ => (c.len_utf8(), !c.is_control() || c.is_whitespace()),
        };
        let (piece, tail) = rest.split_at(taken);
        let piece = match showable {
            false => REPLACEMENT,
            true if c.is_whitespace() => " ",
            true => piece,
        };
        if shown.len() + piece.len() > EXCERPT_BYTES_MAX - '…'.len_utf8() {
            shown.push('…');
            break;
        }
        shown.push_str(piece);
        rest = tail;
    }
    shown
}

/// The length of the JSON escape that `text` begins with, a pair of surrogates being one, and whether what it stands
/// for can be shown: not NUL, and not a surrogate without its pair.
fn escape(text: &str) -> (usize, bool) {
    const LENGTH: usize = 6;
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    match unit(text) {
        Some(0 | 0xdc00..=0xdfff) => (LENGTH, false),
        Some(0xd800..=0xdbff) => match unit(&text[LENGTH..]) {
            Some(0xdc00..=0xdfff) => (2 * LENGTH, true),
            _ => (LENGTH, false),
        },
        Some(_) => (LENGTH, true),
        // An escaped backslash does not begin the next escape: both of its characters go together.
        None if text[1..].starts_with('\\') => (2, true),
        None => (1, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_lone_surrogates_and_invalid_utf8_become_visible_replacements() {
        assert_eq!(excerpt(b"a\0b\xffc", None), "a\u{fffd}b\u{fffd}c");
        assert_eq!(excerpt(br#"{"t":"a\u0000b\ud800c\uDC00"}"#, None), "{\"t\":\"a\u{fffd}b\u{fffd}c\u{fffd}\"}");
    }

    #[test]
    fn a_pair_of_surrogates_is_a_character_and_stays() {
        assert_eq!(excerpt(br"\ud83d\ude00\ude00", None), "\\ud83d\\ude00\u{fffd}");
    }

    #[test]
    fn an_escaped_backslash_begins_no_escape() {
        assert_eq!(excerpt(br"\\u0000", None), r"\\u0000");
    }

    #[test]
    fn a_quotation_is_cut_at_a_character_and_stays_on_one_line() {
        let long = excerpt("é".repeat(5000).as_bytes(), None);
        assert!(long.len() <= EXCERPT_BYTES_MAX && long.ends_with("é…"), "{long}");
        assert_eq!(excerpt(b" two\r\nlines\t", None), "two  lines");
        assert_eq!(excerpt(b"", None), "");
    }

    #[test]
    fn our_own_secret_is_not_quoted_back() {
        assert_eq!(excerpt(b"bad token S3CRET-1!", Some("S3CRET-1")), "bad token ***!");
    }
}
