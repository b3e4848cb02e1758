//! Making one attempt of an activity, within its time, and telling the core how it ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;

use super::core::Message;
use super::lease::Lease;
use super::node::Incoming;
use super::{Call, Clock, Registries};
use crate::activity::{ActivityContext, ActivityFailure, ActivityOptions};
use crate::fault::{Point, point};
use crate::payload::Payload;
use crate::time::Timestamp;

/// How often a call that must not be made yet looks again whether the lease was renewed.
const LEASE_LOOK: Duration = Duration::from_millis(50);

/// Makes the attempt. A panic of it is a failure like any other.
pub(super) async fn call_activity(
    call: Call,
    code: Arc<Registries>,
    clock: Arc<dyn Clock>,
    lease: Arc<Lease>,
    core: mpsc::UnboundedSender<Incoming>,
) {
    // That only narrows the window in which two nodes make the same call.
    while !lease.is_valid(clock.monotonic()) {
        if core.is_closed() {
            return;
        }
        clock.sleep(LEASE_LOOK).await;
    }
    let Call { key, number, name, input, options, ctx } = call;
    let sends = Arc::clone(&ctx.sends);
    let outcome = match code.activities.get(&name) {
        None => Err(ActivityFailure::transient("unknown-activity", format!("no activity {name:?} is known to this program"))),
        Some(_) if is_too_late(&ctx, &options, clock.now()) => {
            Err(ActivityFailure::permanent("schedule-to-start", "its first attempt could not begin in time"))
        }
        Some(activity) => {
            let attempt = AssertUnwindSafe(activity.execute(&ctx, input)).catch_unwind();
            tokio::select! {
                biased;
                outcome = attempt => outcome.unwrap_or_else(|_| Err(ActivityFailure::transient("panic", format!("activity {name} panicked")))),
                () = clock.sleep(options.start_to_close) => Err(ActivityFailure::transient(
                    "start-to-close",
                    format!("no outcome within {} ms", options.start_to_close.as_millis()),
                )),
            }
        }
    };
    let outcome = outcome.and_then(|result| within_limit(result, options.result_bytes_max));
    let limit = options.limit.map(|limit| limit.name);
    let sends = sends.load(Ordering::Relaxed);
    point(Point::ResultUntold);
    let _ = core.send(Incoming::Message(Message::CallEnded { key, number, limit, outcome, sends }));
}

fn is_too_late(ctx: &ActivityContext, options: &ActivityOptions, now: Timestamp) -> bool {
    ctx.attempt() <= 1 && options.schedule_to_start.is_some_and(|limit| now > ctx.scheduled_at().saturating_add(limit))
}

fn within_limit(result: Payload, bytes_max: usize) -> Result<Payload, ActivityFailure> {
    if result.len() <= bytes_max {
        return Ok(result);
    }
    let message = format!("the result has {} bytes, the limit is {bytes_max}; the activity is maybe done", result.len());
    Err(ActivityFailure::permanent("result", message))
}
