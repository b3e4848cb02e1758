//! Which calls may be made now: a bound per limit, the others wait unstarted in the order of their arrival.

use std::collections::{HashMap, VecDeque};

use super::Call;

/// Calls under way and waiting, by the name of their limit.
#[derive(Default)]
pub(crate) struct Dispatch {
    limits: HashMap<String, Limit>,
    under_way: usize,
}

#[derive(Default)]
struct Limit {
    under_way: usize,
    waiting: VecDeque<Call>,
}

impl Dispatch {
    /// Takes a call: gives it back if it may be made now, else keeps it.
    pub(crate) fn admit(&mut self, call: Call) -> Option<Call> {
        if let Some(bound) = &call.options.limit {
            let limit = self.limits.entry(bound.name.clone()).or_default();
            if limit.under_way >= bound.concurrency {
                limit.waiting.push_back(call);
                return None;
            }
            limit.under_way += 1;
        }
        self.under_way += 1;
        Some(call)
    }

    /// Notes that a call ended and gives the next one that may be made in its place.
    pub(crate) fn ended(&mut self, limit: Option<&str>) -> Option<Call> {
        self.under_way = self.under_way.saturating_sub(1);
        let limit = self.limits.get_mut(limit?)?;
        limit.under_way = limit.under_way.saturating_sub(1);
        let next = limit.waiting.pop_front()?;
        limit.under_way += 1;
        self.under_way += 1;
        Some(next)
    }

    /// Calls that were made and have not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Drops those of the calls that were not made yet that `drop` names, and gives them back.
    pub(crate) fn forget_waiting_if(&mut self, drop: impl Fn(&Call) -> bool) -> Vec<Call> {
        let mut dropped = Vec::new();
        for limit in self.limits.values_mut() {
            let (out, kept): (VecDeque<Call>, VecDeque<Call>) = limit.waiting.drain(..).partition(&drop);
            limit.waiting = kept;
            dropped.extend(out);
        }
        dropped
    }

    /// Drops the calls that were not made yet: they are found again by whoever owns their executions next.
    pub(crate) fn forget_waiting(&mut self) {
        for limit in self.limits.values_mut() {
            limit.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityContext, ActivityOptions, DispatchLimit};
    use crate::id::WorkflowKey;
    use crate::payload::Payload;

    fn call(id: &str, limit: &str) -> Call {
        let key = WorkflowKey::new("t", id);
        Call {
            ctx: ActivityContext::detached(key.clone(), "k"),
            key,
            number: 1,
            name: "a".into(),
            input: Payload::null(),
            options: ActivityOptions {
                limit: Some(DispatchLimit { name: limit.into(), concurrency: 2 }),
                ..ActivityOptions::default()
            },
        }
    }

    #[test]
    fn a_full_limit_holds_back_its_own_calls_and_no_others() {
        let mut dispatch = Dispatch::default();
        assert!(dispatch.admit(call("1", "stock")).is_some());
        assert!(dispatch.admit(call("2", "stock")).is_some());
        assert!(dispatch.admit(call("3", "stock")).is_none());
        assert!(dispatch.admit(call("4", "stock")).is_none());
        assert!(dispatch.admit(call("5", "orders")).is_some());
        assert_eq!(dispatch.ended(Some("stock")).unwrap().key.id(), "3");
        assert_eq!(dispatch.ended(Some("stock")).unwrap().key.id(), "4");
        assert!(dispatch.ended(Some("stock")).is_none());
        assert_eq!(dispatch.under_way(), 2);
    }
}
