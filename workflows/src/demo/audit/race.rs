//! D1 and D4: one winner, on whom everybody agrees, and nobody too early.

use super::Findings;
use super::case::{Case, Outcome, result};
use crate::sandbox::Call;

pub(super) fn judge(case: &Case<'_>, found: &mut Findings<'_>) {
    one_winner(case, found);
    nobody_too_early(case, found);
}

fn one_winner(case: &Case<'_>, found: &mut Findings<'_>) {
    let expected = match case.outcome() {
        Outcome::Torn => return found.add("D1", "the order service decided more than once"),
        Outcome::Undecided => return found.add("D1", "the order is neither paid nor cancelled"),
        Outcome::Paid(_) => "paid",
        Outcome::Cancelled(_) => "cancelled",
    };
    let Some(execution) = case.main() else {
        return found.add("D1", "the order has no execution");
    };
    match result(execution).map(|result| result["decision"].as_str().unwrap_or("none")) {
        Some(decision) if decision != expected => {
            found.add("D1", format!("the order is {expected}, the workflow decided {decision}"));
        }
        None if !case.waits_for_review() => {
            found.add("D1", format!("the workflow has not completed, its status is {}", execution.status));
        }
        _ => {}
    }
}

fn nobody_too_early(case: &Case<'_>, found: &mut Findings<'_>) {
    let Some(deadline) = case.first_deadline() else { return };
    for request in case.requests.iter().filter(|request| request.call == Call::CancelOrder) {
        match request.body["reason"].as_str() {
            Some("TIMEOUT") if request.at < deadline => {
                let early_ms = deadline.duration_since(request.at).as_millis();
                found.add("D4", format!("cancelled for a timeout {early_ms} ms before its deadline"));
            }
            Some("USER") if !signalled(case, "cancel-order") => {
                found.add("D4", "cancelled by a user who never asked for it");
            }
            Some("PAYMENT_FAILED") if !signalled(case, "payment-failed") => {
                found.add("D4", "cancelled for a failed payment that nobody reported");
            }
            Some("TIMEOUT" | "USER" | "PAYMENT_FAILED") => {}
            other => found.add("D4", format!("cancelled for an unknown reason {other:?}")),
        }
    }
}

fn signalled(case: &Case<'_>, name: &str) -> bool {
    case.signals.iter().any(|signal| signal.name == name)
}
