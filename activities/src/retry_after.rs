//! `Retry-After` (RFC 9110, section 10.2.3): a header of a peer, not to be trusted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use overdue_runtime::Timestamp;

/// How long the peer asks us to wait, cut to `max`.
///
/// Whole seconds or an HTTP date. A date is compared with the answer's own `Date` where it has one, so that a skewed
/// clock does no harm, else with `now`. Anything else (negative, fractional, empty, a word), zero, and a date that is
/// past say nothing.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp, max: Duration) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than the number type holds mean more than any limit.
        text.parse().map_or(max, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(text).ok()?;
        until.duration_since(answered_at(headers, now)).ok()?
    };
    (!wait.is_zero()).then_some(wait.min(max))
}

fn answered_at(headers: &HeaderMap, now: Timestamp) -> SystemTime {
    let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let micros = u64::try_from(now.as_micros()).unwrap_or(0);
    date.unwrap_or_else(|| UNIX_EPOCH + Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(3600);

    fn read(value: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        retry_after(&headers, "2026-11-30T18:00:00Z".parse().unwrap(), MAX)
    }

    #[test]
    fn seconds_and_dates_are_waits() {
        assert_eq!(read("3", None), Some(Duration::from_secs(3)));
        assert_eq!(read("Mon, 30 Nov 2026 18:00:03 GMT", None), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_date_is_compared_with_the_date_of_the_answer() {
        let skewed = Some("Mon, 30 Nov 2026 12:00:00 GMT");
        assert_eq!(read("Mon, 30 Nov 2026 12:00:03 GMT", skewed), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_long_wait_is_cut() {
        for long in ["3601", "86400", "99999999999999999999999", "Mon, 30 Nov 2099 18:00:03 GMT"] {
            assert_eq!(read(long, None), Some(MAX), "{long}");
        }
    }

    #[test]
    fn what_is_negative_fractional_past_or_no_wait_at_all_is_ignored() {
        for nothing in ["-5", "1.5", "abc", "", "0", "+3", "0x3", "Mon, 30 Nov 2026 17:59:57 GMT"] {
            assert_eq!(read(nothing, None), None, "{nothing}");
        }
    }
}
