//! How late the engine acted: from the deadline to the first call that arrived because of it.

use jiff::Timestamp;
use serde::Serialize;

use super::audit::{Case, Outcome};
use super::engine::Down;
use crate::sandbox::Call;

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Lateness {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// What was measured: once as the buyer sees it, once without the times in which no engine ran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) orders: usize,
    pub(super) all: Lateness,
    pub(super) engine_up: Lateness,
}

/// Measures the orders that were cancelled because nobody paid.
pub(super) fn measure(cases: &[Case<'_>], downs: &[Down]) -> Measured {
    let spans: Vec<_> = cases.iter().filter_map(acted).collect();
    let all = spans.iter().map(|(deadline, arrival)| millis(*deadline, *arrival)).collect();
    let engine_up = spans
        .iter()
        .map(|(deadline, arrival)| {
            let down: f64 = downs.iter().map(|down| overlap(down, *deadline, *arrival)).sum();
            (millis(*deadline, *arrival) - down).max(0.0)
        })
        .collect();
    Measured { orders: spans.len(), all: percentiles(all), engine_up: percentiles(engine_up) }
}

/// The deadline, and the arrival of the first call made because of it: the cancel, or the close where that comes first.
fn acted(case: &Case<'_>) -> Option<(Timestamp, Timestamp)> {
    if case.outcome() != Outcome::Cancelled("TIMEOUT") {
        return None;
    }
    let deadline = case.last_deadline()?;
    let started = case.main()?.events.iter().find(|event| event["kind"] == "WorkflowStarted")?;
    let closes_first = started["input"]["closePayment"] == "beforeCancel";
    let arrivals = case.requests.iter().filter(|request| {
        request.at >= deadline && (request.call == Call::CancelOrder || closes_first && request.call == Call::ClosePayment)
    });
    Some((deadline, arrivals.map(|request| request.at).min()?))
}

fn overlap(down: &Down, from: Timestamp, until: Timestamp) -> f64 {
    millis(down.from.max(from), down.until.min(until)).max(0.0)
}

fn millis(from: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(from).as_secs_f64() * 1000.0
}

/// Nearest rank: the smallest value that at least this share of all values does not exceed.
fn percentiles(mut values: Vec<f64>) -> Lateness {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * values.len() as f64).ceil() as usize;
        let value = values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0);
        (value * 10.0).round() / 10.0
    };
    Lateness { p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_by_nearest_rank() {
        let lateness = percentiles((1..=100).rev().map(f64::from).collect());
        assert_eq!(lateness, Lateness { p50: 50.0, p99: 99.0, max: 100.0 });
        assert_eq!(percentiles(vec![3.0]), Lateness { p50: 3.0, p99: 3.0, max: 3.0 });
        assert_eq!(percentiles(Vec::new()), Lateness::default());
    }

    #[test]
    fn only_the_time_without_an_engine_is_taken_off() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let down = Down { from: at(100), until: at(400), by_sigkill: true };
        assert_eq!(overlap(&down, at(0), at(1000)), 300.0);
        assert_eq!(overlap(&down, at(200), at(300)), 100.0);
        assert_eq!(overlap(&down, at(500), at(900)), 0.0);
    }
}
