//! What the model holds, and how a batch changes it: one write after another.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::nodes::Nodes;
use crate::fault::{Bug, planted};
use crate::history::Record;
use crate::id::{RunId, WorkflowKey};
use crate::store::{
    Advance, AttributeValue, CommitError, Control, Deposit, Dispatch, Due, Execution, Fence, Forget, INBOX_ROWS_MAX,
    INBOX_ROWS_PER_KEY_MAX, InboxRow, Loaded, NewExecution, OutboxKey, OutboxRow, Outcome, Parked, Refuse, RequestedStart,
    Retire, RowChange, STARTED_BY_ANOTHER, Status, Token, Write,
};
use crate::time::Timestamp;

#[derive(Clone)]
pub(super) struct State {
    pub(super) nodes: Nodes,
    pub(super) executions: BTreeMap<WorkflowKey, Execution>,
    pub(super) tombstones: BTreeMap<WorkflowKey, Bytes>,
    pub(super) parked: BTreeMap<WorkflowKey, Parked>,
    pub(super) records: BTreeMap<(RunId, u64), Bytes>,
    pub(super) attributes: BTreeMap<WorkflowKey, BTreeMap<String, AttributeValue>>,
    pub(super) inbox: BTreeMap<(WorkflowKey, String), Stored>,
    pub(super) tokens: BTreeMap<String, Token>,
    pub(super) controls: BTreeMap<String, Control>,
    pub(super) requests: BTreeMap<WorkflowKey, RequestedStart>,
    pub(super) outbox: BTreeMap<OutboxKey, OutboxRow>,
}

#[derive(Clone)]
pub(super) struct Stored {
    pub(super) row: InboxRow,
    pub(super) held: bool,
}

impl State {
    pub(super) fn new(nodes: Nodes) -> Self {
        Self {
            nodes,
            executions: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            parked: BTreeMap::new(),
            records: BTreeMap::new(),
            attributes: BTreeMap::new(),
            inbox: BTreeMap::new(),
            tokens: BTreeMap::new(),
            controls: BTreeMap::new(),
            requests: BTreeMap::new(),
            outbox: BTreeMap::new(),
        }
    }

    pub(super) fn commit(&mut self, fence: &Fence, writes: &[Write]) -> Result<Vec<Outcome>, CommitError> {
        if !self.nodes.holds(fence) && !is_unfenced() {
            return Err(CommitError::FenceLost { expected: fence.epoch });
        }
        // Such a write is taken amiss only where it would be applied; then all that came before it is taken back.
        let before = writes.iter().any(|write| unstorable(write).is_some()).then(|| self.clone());
        let outcomes: Result<Vec<Outcome>, String> = writes.iter().map(|write| self.apply(fence, write)).collect();
        outcomes.map_err(|reason| {
            if let Some(before) = before {
                *self = before;
            }
            CommitError::Rejected(reason)
        })
    }

    fn apply(&mut self, fence: &Fence, write: &Write) -> Result<Outcome, String> {
        match write {
            Write::Start(new) => self.start(new),
            Write::Advance(Advance { shard, .. })
            | Write::Refuse(Refuse { shard, .. })
            | Write::Retire(Retire { shard, .. })
            | Write::Forget(Forget { shard, .. })
            | Write::Dispatch(Dispatch { place: OutboxKey { shard, .. }, .. })
                if !self.nodes.owns(fence, *shard) && !is_unfenced() =>
            {
                Ok(Outcome::NotOwned)
            }
            Write::Advance(advance) => self.advance(advance),
            Write::Deposit(deposit) => self.deposit(deposit),
            Write::Refuse(refuse) => Ok(self.refuse(refuse)),
            Write::Retire(retire) => self.retire(retire),
            Write::Forget(forget) => Ok(self.forget(forget)),
            Write::Dispatch(dispatch) => Ok(self.dispatch(dispatch)),
        }
    }

    fn start(&mut self, new: &NewExecution) -> Result<Outcome, String> {
        for taken_up in &new.consume {
            self.inbox.remove(taken_up);
        }
        if let Some(execution) = self.executions.get(&new.key) {
            let existing = execution.clone();
            if new.requested {
                self.settle_request(&new.key, existing.request_hash == new.request_hash);
            }
            return Ok(Outcome::Exists(Box::new(existing)));
        }
        refuse(unstorable_new(new))?;
        if new.requested {
            self.requests.remove(&new.key);
        }
        let execution = Execution {
            key: new.key.clone(),
            shard: new.shard,
            run_id: new.run_id,
            status: new.row.status,
            wake_at: new.row.wake_at,
            closed_at: new.row.closed_at,
            rev: 0,
            request_hash: new.request_hash,
            needs_attention: new.row.needs_attention,
            attempts: new.row.attempts.clone(),
            retired: false,
        };
        self.executions.insert(new.key.clone(), execution);
        self.records.insert((new.run_id, new.record.first_event), new.record.bytes.clone());
        if !new.attributes.is_empty() {
            self.attributes.insert(new.key.clone(), new.attributes.iter().cloned().collect());
        }
        self.emit(&new.emit);
        Ok(Outcome::Started { inbox: self.unread_rows(&new.key).next().is_some() })
    }

    /// What becomes of a request whose key exists already.
    fn settle_request(&mut self, key: &WorkflowKey, is_the_same: bool) {
        if is_the_same {
            self.requests.remove(key);
        } else if let Some(request) = self.requests.get_mut(key) {
            request.refused = Some(STARTED_BY_ANOTHER.to_owned());
        }
    }

    fn refuse(&mut self, refuse: &Refuse) -> Outcome {
        match &refuse.signal_id {
            Some(signal_id) => {
                if let Some(stored) = self.inbox.get_mut(&(refuse.key.clone(), signal_id.clone())) {
                    stored.held = true;
                }
            }
            None => {
                if let Some(request) = self.requests.get_mut(&refuse.key) {
                    request.refused = Some(refuse.reason.clone());
                }
            }
        }
        Outcome::Refused
    }

    pub(super) fn requested(&self, shards: &[u16], types: &[String], limit: usize) -> Vec<RequestedStart> {
        let wanted = |request: &&RequestedStart| {
            request.refused.is_none()
                && shards.contains(&request.shard)
                && types.iter().any(|known| known == request.key.workflow_type())
        };
        self.requests.values().filter(wanted).take(limit).cloned().collect()
    }

    fn advance(&mut self, advance: &Advance) -> Result<Outcome, String> {
        let Some(execution) = self.executions.get(&advance.key) else { return Ok(Outcome::Stale) };
        let moved_on = advance.row.is_some() && execution.rev != advance.rev;
        let taken =
            advance.record.as_ref().is_some_and(|record| self.records.contains_key(&(advance.run_id, record.first_event)));
        let is_gone = execution.retired && (advance.row.is_some() || advance.record.is_some());
        if execution.run_id != advance.run_id || moved_on || taken || is_gone {
            return Ok(Outcome::Stale);
        }
        let known = |row: &InboxRow| advance.consume.contains(&row.signal_id) || advance.hold.contains(&row.signal_id);
        if advance.guard_inbox && self.unread_rows(&advance.key).any(|row| !known(row)) {
            return Ok(Outcome::UnreadInbox);
        }
        refuse(unstorable_advance(advance))?;
        if let Some(record) = &advance.record {
            self.records.insert((advance.run_id, record.first_event), record.bytes.clone());
        }
        if let (Some(row), Some(execution)) = (&advance.row, self.executions.get_mut(&advance.key)) {
            execution.rev += 1;
            execution.status = row.status;
            execution.wake_at = row.wake_at;
            execution.closed_at = row.closed_at;
            execution.needs_attention = row.needs_attention;
            execution.attempts = row.attempts.clone();
            self.parked.remove(&advance.key);
            self.parked.extend(row.parked.clone().map(|parked| (advance.key.clone(), parked)));
        }
        for signal_id in &advance.consume {
            self.inbox.remove(&(advance.key.clone(), signal_id.clone()));
        }
        for signal_id in &advance.hold {
            if let Some(stored) = self.inbox.get_mut(&(advance.key.clone(), signal_id.clone())) {
                stored.held = true;
            }
        }
        self.emit(&advance.emit);
        for new in &advance.spawn {
            self.start(new)?;
        }
        Ok(Outcome::Advanced)
    }

    pub(super) fn deposit(&mut self, deposit: &Deposit) -> Result<Outcome, String> {
        let row = &deposit.row;
        let place = (row.key.clone(), row.signal_id.clone());
        match self.inbox.get(&place) {
            Some(stored) if stored.row.identity == row.identity => return Ok(Outcome::Duplicate),
            Some(_) => return Ok(Outcome::Conflict),
            None => {}
        }
        if self.inbox.len() >= INBOX_ROWS_MAX || self.inbox_of(&row.key).count() >= INBOX_ROWS_PER_KEY_MAX {
            return Ok(Outcome::InboxFull);
        }
        refuse(unstorable_deposit(deposit))?;
        self.inbox.insert(place, Stored { row: row.clone(), held: false });
        Ok(Outcome::Deposited)
    }

    pub(super) fn inbox_of<'a>(&'a self, key: &'a WorkflowKey) -> impl Iterator<Item = &'a Stored> {
        self.inbox.range((key.clone(), String::new())..).take_while(move |((of, _), _)| of == key).map(|(_, stored)| stored)
    }

    fn unread_rows<'a>(&'a self, key: &'a WorkflowKey) -> impl Iterator<Item = &'a InboxRow> {
        self.inbox_of(key).filter(|stored| !stored.held).map(|stored| &stored.row)
    }

    pub(super) fn load(&self, key: &WorkflowKey) -> Option<Loaded> {
        let execution = self.executions.get(key)?.clone();
        let run_id = execution.run_id;
        let records = self
            .records
            .range((run_id, 0)..=(run_id, u64::MAX))
            .map(|((_, first_event), bytes)| Record { first_event: *first_event, bytes: bytes.clone() })
            .collect();
        let mut inbox: Vec<InboxRow> = self.unread_rows(key).cloned().collect();
        inbox.sort_by(|a, b| (a.received_at, &a.signal_id).cmp(&(b.received_at, &b.signal_id)));
        Some(Loaded { execution, records, inbox, tombstone: self.tombstones.get(key).cloned().unwrap_or_default() })
    }

    pub(super) fn upcoming(&self, shards: &[u16], after: Timestamp, until: Timestamp, limit_per_shard: usize) -> Vec<Due> {
        let mut shards = shards.to_vec();
        shards.sort_unstable();
        let mut due = Vec::new();
        for shard in shards {
            let mut of_shard: Vec<Due> = self
                .executions
                .values()
                .filter(|execution| execution.shard == shard)
                .filter_map(|execution| Some(Due { key: execution.key.clone(), wake_at: execution.wake_at? }))
                .filter(|due| after < due.wake_at && due.wake_at <= until)
                .collect();
            of_shard.sort_by(|a, b| (a.wake_at, &a.key).cmp(&(b.wake_at, &b.key)));
            of_shard.truncate(limit_per_shard);
            due.append(&mut of_shard);
        }
        due
    }

    pub(super) fn unread(&self, shards: &[u16], limit: usize) -> Vec<WorkflowKey> {
        let mut found: Vec<(u16, WorkflowKey)> = self
            .inbox
            .values()
            .filter(|stored| !stored.held && shards.contains(&stored.row.shard))
            .filter(|stored| self.executions.get(&stored.row.key).is_some_and(|execution| execution.status != Status::Blocked))
            .map(|stored| (stored.row.shard, stored.row.key.clone()))
            .collect();
        found.sort();
        found.dedup();
        found.into_iter().map(|(_, key)| key).take(limit).collect()
    }

    pub(super) fn unclaimed(&self, shards: &[u16], before: Timestamp, limit: usize) -> Vec<InboxRow> {
        let mut found: Vec<InboxRow> = self
            .inbox
            .values()
            .filter(|stored| !stored.held)
            .map(|stored| &stored.row)
            .filter(|row| row.received_at < before && shards.contains(&row.shard))
            .filter(|row| !self.executions.contains_key(&row.key))
            .cloned()
            .collect();
        found.sort_by(|a, b| (a.received_at, &a.key, &a.signal_id).cmp(&(b.received_at, &b.key, &b.signal_id)));
        found.truncate(limit);
        found
    }

    pub(super) fn attributes_of(&self, key: &WorkflowKey) -> Vec<(String, AttributeValue)> {
        self.attributes.get(key).map(|all| all.clone().into_iter().collect()).unwrap_or_default()
    }
}

/// A mistake of some: a commit is not fenced, or its fence is checked too early to count.
fn is_unfenced() -> bool {
    planted(Bug::NoEpochCheck) || planted(Bug::WeakLock)
}

pub(super) fn refuse(reason: Option<String>) -> Result<(), String> {
    reason.map_or(Ok(()), Err)
}

/// Why the databases' constraints may refuse a write.
fn unstorable(write: &Write) -> Option<String> {
    match write {
        Write::Start(new) => unstorable_new(new),
        Write::Advance(advance) => unstorable_advance(advance).or_else(|| advance.spawn.iter().find_map(unstorable_new)),
        Write::Deposit(deposit) => unstorable_deposit(deposit),
        Write::Refuse(_) => None,
        Write::Retire(retire) => super::retention::unstorable(retire),
        Write::Forget(_) | Write::Dispatch(_) => None,
    }
}

fn unstorable_advance(advance: &Advance) -> Option<String> {
    let record = advance.record.as_ref().and_then(unstorable_record);
    record.or_else(|| advance.row.as_ref().and_then(unstorable_row))
}

fn unstorable_deposit(Deposit { row }: &Deposit) -> Option<String> {
    let empty = row.key.id().is_empty() || row.signal_id.is_empty() || row.name.is_empty();
    empty.then(|| "a signal without an id or a name".to_owned())
}

fn unstorable_new(new: &NewExecution) -> Option<String> {
    if new.key.id().is_empty() || new.key.workflow_type().is_empty() {
        return Some("an execution without an id or a type".into());
    }
    unstorable_record(&new.record).or_else(|| unstorable_row(&new.row))
}

fn unstorable_record(record: &Record) -> Option<String> {
    let fits = (1..=i64::MAX.unsigned_abs()).contains(&record.first_event) && !record.bytes.is_empty();
    (!fits).then(|| format!("a record at event {} of {} bytes", record.first_event, record.bytes.len()))
}

fn unstorable_row(row: &RowChange) -> Option<String> {
    let fits = row.status.is_open() == row.closed_at.is_none() && (row.status.is_open() || row.wake_at.is_none());
    (!fits).then(|| "a row that is both open and closed".into())
}
