//! Starts that callers asked for inside the store, in transactions of their own: checked and made here, by the owner.
//!
//! The caller is gone when a fault is found, so that the request is kept with the reason, for whoever asks about the id.

use super::{Awaited, Core, Effect};
use crate::engine::{Active, CommitFailure, CommitRequest, ReplyTo, Start, StartRefused, StartRequest};
use crate::id::WorkflowKey;
use crate::store::{Outcome, Refuse, RequestedStart, Write};

impl Core {
    pub(super) fn requested(&mut self, requested: RequestedStart) {
        if self.draining || !self.shards.owns(&requested.key) || !self.starting.insert(requested.key.clone()) {
            return;
        }
        let key = requested.key.clone();
        let shards = self.shards.number();
        let checked = StartRequest::of(&requested)
            .and_then(|request| request.check_is_open(&self.code.workflows).map(|()| request))
            .and_then(|request| Start::checked(&self.code, shards, request, self.now, &mut *self.random));
        match checked {
            Ok(start) => match Active::start(&self.code, start) {
                Ok((mut new, active)) => {
                    new.requested = true;
                    if active.has_calls() {
                        self.expect(key.clone());
                    }
                    let awaited = Awaited::RequestedStart { key, active: Some(Box::new(active)) };
                    self.write(Write::Start(new), awaited);
                }
                Err(fault) => {
                    // As with a start over HTTP, nothing of it is stored; another build may do better.
                    tracing::error!(workflow.type = key.workflow_type(), workflow.id = key.id(), error = %fault, "workflow cannot start");
                    self.starting.remove(&key);
                }
            },
            // Another node may know it.
            Err(StartRefused::UnknownType(_)) => {
                self.starting.remove(&key);
            }
            Err(refused) => self.refuse_request(key, requested.shard, &refused),
        }
    }

    fn refuse_request(&mut self, key: WorkflowKey, shard: u16, refused: &StartRefused) {
        tracing::error!(
            workflow.type = key.workflow_type(), workflow.id = key.id(), error = %refused,
            "start asked for inside the store refused; the request is kept"
        );
        let refuse = Refuse { key: key.clone(), shard, signal_id: None, reason: refused.to_string() };
        self.write(Write::Refuse(refuse), Awaited::RequestedStart { key, active: None });
    }

    fn write(&mut self, write: Write, awaited: Awaited) {
        let reply_to = ReplyTo::Core(self.ticket(awaited));
        self.effects.push(Effect::Commit(Box::new(CommitRequest { write, reply_to })));
    }

    pub(super) fn request_settled(&mut self, key: &WorkflowKey, active: Option<Active>, outcome: Result<Outcome, CommitFailure>) {
        self.starting.remove(key);
        let expected = active.as_ref().is_some_and(Active::has_calls);
        match (outcome, active) {
            (Ok(Outcome::Started { inbox }), Some(active)) => {
                self.effects.push(Effect::Changed(key.clone()));
                if expected {
                    self.adopt_expected(active);
                } else if let Some(wake_at) = active.next_due() {
                    self.hint(wake_at, key);
                }
                if inbox {
                    self.unread(key.clone());
                }
                return;
            }
            (Ok(Outcome::Exists(existing)), Some(active)) if existing.request_hash != active.row.request_hash => {
                tracing::error!(
                    workflow.type = key.workflow_type(), workflow.id = key.id(), run.id = %existing.run_id,
                    "start asked for inside the store contradicts the one that was made; the request is kept"
                );
            }
            (Err(CommitFailure::Rejected(reason)), Some(active)) => {
                let refused = StartRefused::Unstorable(reason);
                self.starting.insert(key.clone());
                self.refuse_request(key.clone(), active.row.shard, &refused);
            }
            // What was not applied is found again by the next scan.
            _ => {}
        }
        if expected {
            self.unexpect(key.clone());
        }
    }
}
