//! The courier: brings what executions emitted to one sink, from the shards that this node owns.
//!
//! What is still to be delivered is in the store; the courier remembers only what it has under way. Of one execution the store
//! shows it the first event alone, so that the next one is sent when that one is gone; executions do not wait for each
//! other, nor sinks. An event counts as delivered when the store says so, in the node's own lane: whatever ends in between is
//! sent again, under the same id. A node that lost its lane may send once more; it can mark nothing.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{mpsc, oneshot, watch};

use super::Environment;
use super::committer::{CommitFailure, CommitRequest, LaneRequest, ReplyTo};
use super::lease::Lease;
use crate::activity::RetryPolicy;
use crate::history::FailureClass;
use crate::outbox::{DeliveryFailure, Envelope, Sink, SinkOptions, event_id};
use crate::store::{Dispatch, OutboxChange, OutboxKey, OutboxRow, Outcome, Store, StoreError, Write};
use crate::time::Timestamp;

/// After the store could not be read or written, it is tried this much later.
const WAIT: Duration = Duration::from_secs(1);
/// The longest that an attempt is put off because a receiver asks for it, whatever the sink believes.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Courier {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) environment: Environment,
    pub(crate) lease: Arc<Lease>,
    /// The shards to deliver from, as they change.
    pub(crate) owned: watch::Receiver<Arc<[u16]>>,
    /// How often the store is looked into without news: for what is due again, and what others left.
    pub(crate) period: Duration,
    /// How long attempts under way may take to end when the node stops.
    pub(crate) drain: Duration,
    pub(crate) lane: mpsc::UnboundedSender<LaneRequest>,
    /// Something may be due.
    pub(crate) news: watch::Receiver<()>,
    /// The node is to stop.
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// An attempt that ended.
struct Ended {
    row: OutboxRow,
    outcome: Result<(), DeliveryFailure>,
}

/// What the courier has in hand.
struct Hands {
    options: SinkOptions,
    /// Sent, and not settled in the store.
    under_way: BTreeSet<OutboxKey>,
    /// Ended, and not settled in the store.
    unsettled: Vec<Ended>,
    /// Attempts that run.
    running: usize,
    ended: mpsc::UnboundedReceiver<Ended>,
    tell: mpsc::UnboundedSender<Ended>,
}

/// Why the courier cannot go on now.
enum Halt {
    Stop,
    Later,
}

impl Courier {
    /// Delivers until told to stop; then waits for what is under way.
    pub(crate) async fn run(mut self) {
        let (tell, ended) = mpsc::unbounded_channel();
        let options = self.sink.options();
        let mut hands = Hands { options, under_way: BTreeSet::new(), unsettled: Vec::new(), running: 0, ended, tell };
        while !self.is_over() {
            let pause = match self.turn(&mut hands).await {
                Ok(pause) => pause,
                Err(Halt::Later) => WAIT,
                Err(Halt::Stop) => return,
            };
            let clock = Arc::clone(&self.environment.clock);
            tokio::select! {
                biased;
                stopped = self.stop.changed() => {
                    if stopped.is_err() {
                        return;
                    }
                }
                Ok(()) = self.draining.changed() => {}
                Some(ended) = hands.ended.recv() => hands.take(ended),
                Ok(()) = self.news.changed() => {}
                Ok(()) = self.owned.changed() => {}
                () = clock.sleep(pause) => {}
            }
        }
        self.finish(&mut hands).await;
    }

    fn is_over(&self) -> bool {
        *self.stop.borrow() || *self.draining.borrow()
    }

    /// Settles what ended and sends what is due. How long nothing is to be done then, without news.
    async fn turn(&mut self, hands: &mut Hands) -> Result<Duration, Halt> {
        while let Ok(ended) = hands.ended.try_recv() {
            hands.take(ended);
        }
        self.settle(hands).await?;
        self.news.mark_unchanged();
        let is_certain = self.lease.is_valid(self.environment.clock.monotonic());
        if hands.under_way.len() >= hands.options.concurrency || !is_certain {
            return Ok(self.period);
        }
        let shards = Arc::clone(&self.owned.borrow_and_update());
        if shards.is_empty() {
            return Ok(self.period);
        }
        let now = self.environment.clock.now();
        // What is under way is still due in the store, and there is less of it than that.
        let due = self.store.outbox_due(self.sink.name(), &shards, now, hands.options.concurrency).await;
        let due = due.map_err(|error| match error {
            StoreError::Closed => Halt::Stop,
            error => {
                tracing::error!(sink = self.sink.name(), error = %error, "outbox not read; it is tried again");
                Halt::Later
            }
        })?;
        for row in due {
            if hands.under_way.len() < hands.options.concurrency && hands.under_way.insert(row.place.clone()) {
                hands.running += 1;
                self.send(row, hands);
            }
        }
        Ok(self.period)
    }

    /// Begins an attempt.
    fn send(&self, row: OutboxRow, hands: &Hands) {
        let (sink, clock, tell) = (Arc::clone(&self.sink), Arc::clone(&self.environment.clock), hands.tell.clone());
        let timeout = hands.options.timeout;
        let attempt = async move {
            let envelope = envelope(&row);
            let delivery = AssertUnwindSafe(sink.deliver(&envelope)).catch_unwind();
            let outcome = tokio::select! {
                biased;
                outcome = delivery => outcome.unwrap_or_else(|_| {
                    Err(DeliveryFailure::transient("panic", format!("sink {} panicked", sink.name())))
                }),
                () = clock.sleep(timeout) => {
                    Err(DeliveryFailure::transient("timeout", format!("no answer within {} ms", timeout.as_millis())))
                }
            };
            let _ = tell.send(Ended { row, outcome });
        };
        self.environment.spawner.spawn(attempt.boxed());
    }

    /// Has the store know how attempts ended. What it could not take is kept, so that nothing is sent again for it.
    async fn settle(&self, hands: &mut Hands) -> Result<(), Halt> {
        let mut asked = Vec::with_capacity(hands.unsettled.len());
        for ended in std::mem::take(&mut hands.unsettled) {
            let change = self.change(&ended, &hands.options.retry);
            let Ended { row, .. } = &ended;
            let dispatch = Dispatch { key: row.key.clone(), place: row.place.clone(), attempts: row.attempts, change };
            let (reply, outcome) = oneshot::channel();
            let request = CommitRequest { write: Write::Dispatch(dispatch), reply_to: ReplyTo::Request(reply) };
            self.lane.send(LaneRequest::Write(Box::new(request))).map_err(|_| Halt::Stop)?;
            asked.push((ended, outcome));
        }
        let mut result = Ok(());
        for (ended, outcome) in asked {
            match outcome.await {
                // Stale: a person was faster. Not owned: the next owner sends it again.
                Ok(Ok(Outcome::Dispatched | Outcome::Stale | Outcome::NotOwned)) => {
                    hands.under_way.remove(&ended.row.place);
                }
                Ok(Ok(_) | Err(CommitFailure::Rejected(_))) => {
                    tracing::error!(
                        sink = self.sink.name(),
                        event.id = event_id_of(&ended.row),
                        "what became of an event cannot be stored"
                    );
                    hands.under_way.remove(&ended.row.place);
                }
                Ok(Err(CommitFailure::NotApplied)) => {
                    hands.unsettled.push(ended);
                    result = Err(Halt::Later);
                }
                Err(_) => return Err(Halt::Stop),
            }
        }
        result
    }

    fn change(&self, ended: &Ended, policy: &RetryPolicy) -> OutboxChange {
        let now = self.environment.clock.now();
        let Err(failure) = &ended.outcome else { return OutboxChange::Remove { now } };
        let change = after_failure(&ended.row, failure, policy, now, self.environment.random.next_u64());
        let row = &ended.row;
        if matches!(change, OutboxChange::Update { parked: true, .. }) {
            tracing::error!(
                sink = self.sink.name(), event.id = event_id_of(row), event.name = row.name, workflow.type = row.key.workflow_type(),
                workflow.id = row.key.id(), error = %failure, "an event cannot be delivered and waits for a person"
            );
        } else {
            tracing::warn!(
                sink = self.sink.name(), event.id = event_id_of(row), event.name = row.name, workflow.type = row.key.workflow_type(),
                workflow.id = row.key.id(), error = %failure, "an event was not delivered; it is tried again"
            );
        }
        change
    }

    /// Waits for the attempts under way, as long as the drain allows, so that what a receiver has is not sent again.
    async fn finish(&self, hands: &mut Hands) {
        let clock = Arc::clone(&self.environment.clock);
        let until = clock.monotonic().saturating_add(self.drain);
        loop {
            if self.settle(hands).await.is_err_and(|halt| matches!(halt, Halt::Stop)) || hands.under_way.is_empty() {
                return;
            }
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return;
            }
            let pause = if hands.running == 0 { WAIT.min(left) } else { left };
            tokio::select! {
                biased;
                Some(ended) = hands.ended.recv() => hands.take(ended),
                () = clock.sleep(pause) => {}
            }
        }
    }
}

impl Hands {
    fn take(&mut self, ended: Ended) {
        self.running -= 1;
        self.unsettled.push(ended);
    }
}

fn event_id_of(row: &OutboxRow) -> String {
    event_id(row.place.run_id, row.place.event)
}

fn envelope(row: &OutboxRow) -> Envelope {
    Envelope {
        id: event_id_of(row),
        key: row.key.clone(),
        run_id: row.place.run_id,
        number: row.place.event,
        name: row.name.clone(),
        data: row.data.clone(),
        emitted_at: row.emitted_at,
        attempt: row.attempts.saturating_add(1),
    }
}

/// What becomes of an event whose attempt failed. Pure.
fn after_failure(row: &OutboxRow, failed: &DeliveryFailure, policy: &RetryPolicy, now: Timestamp, random: u64) -> OutboxChange {
    let costs = failed.failure.class != FailureClass::Neutral;
    let attempts = row.attempts.saturating_add(u32::from(costs));
    let failing_since = if costs { row.failing_since.or(Some(now)) } else { row.failing_since };
    let failing_for = failing_since.map_or(Duration::ZERO, |since| now.since(since));
    let parked = failed.failure.class == FailureClass::Permanent || (costs && !policy.allows_another(attempts, failing_for));
    let asked_for = failed.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
    let wait = policy.delay(attempts.max(1), random).max(asked_for);
    OutboxChange::Update {
        next_at: (!parked).then(|| now.saturating_add(wait)),
        attempts,
        failing_since,
        parked,
        failure: Some(failed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RunId, WorkflowKey};
    use crate::payload::Payload;

    fn row(attempts: u32, failing_since: Option<i64>) -> OutboxRow {
        let place = OutboxKey { shard: 0, sink: "s".into(), run_id: RunId::new(1, [1; 10]), event: 4 };
        OutboxRow {
            place,
            key: WorkflowKey::new("t", "1"),
            name: "a.b".into(),
            data: Payload::null(),
            emitted_at: second(0),
            next_at: Some(second(0)),
            attempts,
            failing_since: failing_since.map(second),
            parked: false,
            failure: None,
        }
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn policy() -> RetryPolicy {
        RetryPolicy { jitter: false, ..SinkOptions::default().retry }
    }

    /// When it is tried next, attempts, and whether a person is asked.
    fn after(row: &OutboxRow, failure: &DeliveryFailure, now: i64) -> (Option<Timestamp>, u32, bool) {
        let change = after_failure(row, failure, &policy(), second(now), 0);
        let OutboxChange::Update { next_at, attempts, parked, .. } = change else { panic!("it stays") };
        (next_at, attempts, parked)
    }

    #[test]
    fn gaps_double_up_to_the_cap_and_after_the_time_of_the_policy_a_person_is_asked() {
        let failure = DeliveryFailure::transient("http-503", "down");
        assert_eq!(after(&row(0, None), &failure, 100), (Some(second(105)), 1, false));
        assert_eq!(after(&row(3, Some(100)), &failure, 200), (Some(second(240)), 4, false));
        assert_eq!(after(&row(30, Some(100)), &failure, 200), (Some(second(3_800)), 31, false));
        assert_eq!(after(&row(30, Some(100)), &failure, 100 + 72 * 3600), (None, 31, true));
    }

    #[test]
    fn a_receiver_that_asks_to_wait_is_waited_for_within_a_day_and_it_costs_no_attempt() {
        let wait = |seconds| DeliveryFailure::neutral("http-429", "slow").after(Some(Duration::from_secs(seconds)));
        assert_eq!(after(&row(0, None), &wait(60), 0), (Some(second(60)), 0, false));
        assert_eq!(after(&row(0, None), &wait(1), 0), (Some(second(5)), 0, false));
        assert_eq!(after(&row(2, Some(0)), &wait(1_000_000), 72 * 3600), (Some(second(96 * 3600)), 2, false));
    }

    #[test]
    fn what_is_of_no_use_to_be_repeated_waits_for_a_person_at_once() {
        let gone = DeliveryFailure::permanent("http-410", "gone");
        assert_eq!(after(&row(0, None), &gone, 7), (None, 1, true));
    }
}
