//! Which request meets which fault: a pure function of (seed, service, subject, n-th request of that subject).
//!
//! | fault | effect applied? | what the caller sees |
//! |---|---|---|
//! | timeout after effect | yes | nothing, for longer than it waits |
//! | connection closed | yes | a broken answer |
//! | unavailable | no | 503, for a burst of requests |
//! | throttled | no | 429 with `Retry-After` |
//! | server error | no | 500 |
//!
//! Drawn faults stop after the first requests of a subject, so that no subject is starved.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{FaultKind, Service};

/// Requests of one subject that may meet a drawn fault; later ones only meet planted ones.
const DRAWN_REQUESTS_MAX: u64 = 6;
/// The longest burst of 503 that one subject meets.
const BURST_REQUESTS_MAX: u64 = 3;
/// Seconds that a throttled caller is told to wait: the header knows no fractions.
const RETRY_AFTER_SECONDS: u64 = 1;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The effect is applied, the answer withheld.
    TimeoutAfterEffect,
    /// 503 before the effect.
    Unavailable,
    /// 429 before the effect.
    Throttled {
        /// The value of `Retry-After`, in seconds.
        retry_after: u64,
    },
    /// 500 before the effect.
    ServerError,
    /// The effect is applied, the connection broken.
    ConnectionClosed,
}

impl Fault {
    /// The name under which it is counted.
    pub fn kind(self) -> FaultKind {
        match self {
            Fault::TimeoutAfterEffect => FaultKind::TimeoutAfterEffect,
            Fault::Unavailable => FaultKind::Unavailable,
            Fault::Throttled { .. } => FaultKind::Throttled,
            Fault::ServerError => FaultKind::ServerError,
            Fault::ConnectionClosed => FaultKind::ConnectionClosed,
        }
    }
}

/// How often each fault is drawn, as a share of requests (of subjects for bursts) between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// Share of requests whose answer is withheld.
    pub timeout_after_effect: f64,
    /// Share of subjects that meet a burst of 503 first.
    pub unavailable: f64,
    /// Share of requests answered 429.
    pub throttled: f64,
    /// Share of requests answered 500.
    pub server_error: f64,
    /// Share of requests whose connection is broken.
    pub connection_closed: f64,
}

/// A fault for certain, and which requests of its subject meet it.
type Planted = (RangeInclusive<u64>, Fault);

/// The misbehaviour of a whole shop.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    seed: u64,
    rates: FaultRates,
    withhold: Duration,
    planted: HashMap<(Service, String), Vec<Planted>>,
    outages: Vec<(Service, RangeInclusive<u64>)>,
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        FaultPlan::none()
    }
}

impl FaultPlan {
    /// A shop that behaves.
    pub fn none() -> FaultPlan {
        FaultPlan::drawn(0, FaultRates::default())
    }

    /// A shop that misbehaves by chance; the same seed misbehaves in the same way.
    pub fn drawn(seed: u64, rates: FaultRates) -> FaultPlan {
        FaultPlan { seed, rates, withhold: Duration::from_secs(1), planted: HashMap::new(), outages: Vec::new() }
    }

    /// How long a withheld answer is held back; longer than the caller's timeout.
    #[must_use]
    pub fn withholding(mut self, withhold: Duration) -> FaultPlan {
        self.withhold = withhold;
        self
    }

    /// The n-th requests (from 1) of this subject meet this fault for certain; the first match wins.
    #[must_use]
    pub fn plant(mut self, service: Service, subject: &str, nth: RangeInclusive<u64>, fault: Fault) -> FaultPlan {
        self.planted.entry((service, subject.to_owned())).or_default().push((nth, fault));
        self
    }

    /// The requests with these numbers at this service (from 1, of any subject) are answered 503.
    #[must_use]
    pub fn outage(mut self, service: Service, requests: RangeInclusive<u64>) -> FaultPlan {
        self.outages.push((service, requests));
        self
    }

    /// How long a withheld answer is held back.
    pub fn withhold(&self) -> Duration {
        self.withhold
    }

    /// What the `nth` request of the subject meets, being the `overall`-th of its service.
    pub fn decide(&self, service: Service, subject: &str, nth: u64, overall: u64) -> Option<Fault> {
        let planted = self
            .planted
            .get(&(service, subject.to_owned()))
            .and_then(|faults| faults.iter().find(|(range, _)| range.contains(&nth)));
        if let Some((_, fault)) = planted {
            return Some(*fault);
        }
        if self.outages.iter().any(|(down, requests)| *down == service && requests.contains(&overall)) {
            return Some(Fault::Unavailable);
        }
        (nth <= DRAWN_REQUESTS_MAX).then(|| self.draw(service, subject, nth)).flatten()
    }

    fn draw(&self, service: Service, subject: &str, nth: u64) -> Option<Fault> {
        let burst = share(self.seed, service, subject, 0);
        if burst < self.rates.unavailable {
            // The place inside the hit share is itself evenly spread: it gives the burst its length.
            let length = 1 + (burst / self.rates.unavailable * BURST_REQUESTS_MAX as f64) as u64;
            if nth <= length {
                return Some(Fault::Unavailable);
            }
        }
        let choices = [
            (self.rates.timeout_after_effect, Fault::TimeoutAfterEffect),
            (self.rates.throttled, Fault::Throttled { retry_after: RETRY_AFTER_SECONDS }),
            (self.rates.server_error, Fault::ServerError),
            (self.rates.connection_closed, Fault::ConnectionClosed),
        ];
        let mut left = share(self.seed, service, subject, nth);
        for (rate, fault) in choices {
            if left < rate {
                return Some(fault);
            }
            left -= rate;
        }
        None
    }
}

/// An evenly spread number in [0, 1), from SHA-256 so that it never changes with a library.
fn share(seed: u64, service: Service, subject: &str, nth: u64) -> f64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(service.name());
    hash.update([0]);
    hash.update(subject);
    hash.update([0]);
    hash.update(nth.to_be_bytes());
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    (u64::from_be_bytes(first) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: FaultRates =
        FaultRates { timeout_after_effect: 0.05, unavailable: 0.1, throttled: 0.05, server_error: 0.05, connection_closed: 0.05 };

    fn all(plan: &FaultPlan) -> Vec<Option<Fault>> {
        let mut faults = Vec::new();
        for subject in 0..500 {
            for nth in 1..=8 {
                faults.push(plan.decide(Service::Stock, &format!("r-{subject}"), nth, 1));
            }
        }
        faults
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
        assert_eq!(all(&FaultPlan::drawn(7, RATES)), all(&FaultPlan::drawn(7, RATES)));
        assert_ne!(all(&FaultPlan::drawn(7, RATES)), all(&FaultPlan::drawn(8, RATES)));
    }

    #[test]
    fn every_kind_is_drawn_at_about_its_rate() {
        let faults = all(&FaultPlan::drawn(7, RATES));
        for kind in [FaultKind::TimeoutAfterEffect, FaultKind::Throttled, FaultKind::ServerError] {
            let count = faults.iter().flatten().filter(|fault| fault.kind() == kind).count();
            assert!((90..=200).contains(&count), "{kind:?} {count}");
        }
        assert!(faults.contains(&Some(Fault::Unavailable)));
    }

    #[test]
    fn no_subject_is_starved() {
        let always = FaultRates { throttled: 1.0, unavailable: 1.0, ..FaultRates::default() };
        let plan = FaultPlan::drawn(1, always);
        assert_eq!(plan.decide(Service::Orders, "o", DRAWN_REQUESTS_MAX + 1, 1), None);
    }

    #[test]
    fn a_planted_fault_comes_for_certain_and_only_there() {
        let plan = FaultPlan::none().plant(Service::Coupons, "c-1", 2..=3, Fault::ServerError);
        assert_eq!(plan.decide(Service::Coupons, "c-1", 1, 1), None);
        assert_eq!(plan.decide(Service::Coupons, "c-1", 2, 1), Some(Fault::ServerError));
        assert_eq!(plan.decide(Service::Coupons, "c-1", 3, 1), Some(Fault::ServerError));
        assert_eq!(plan.decide(Service::Coupons, "c-2", 2, 1), None);
    }

    #[test]
    fn an_outage_hits_a_service_by_its_request_numbers() {
        let plan = FaultPlan::none().outage(Service::Stock, 10..=11);
        assert_eq!(plan.decide(Service::Stock, "r-1", 1, 9), None);
        assert_eq!(plan.decide(Service::Stock, "r-2", 1, 10), Some(Fault::Unavailable));
        assert_eq!(plan.decide(Service::Orders, "o-2", 1, 10), None);
    }
}
