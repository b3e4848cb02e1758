//! What two stores that hold the same have in common: counts, and one hash over everything in the order of the keys.

use sha2::{Digest as _, Sha256};

use super::{CarriedExecution, CarriedSignal, Counts, Parcel};
use crate::history::decode;
use crate::store::{Control, OutboxRow, RequestedStart, Token};
use crate::time::Timestamp;

/// The sum of a store, built parcel by parcel.
#[derive(Clone, Default)]
pub(super) struct Digest {
    pub(super) counts: Counts,
    /// Events in all histories that can be read.
    pub(super) events: u64,
    hash: Sha256,
}

impl Digest {
    pub(super) fn add(&mut self, parcel: &Parcel) {
        match parcel {
            Parcel::Executions(executions) => executions.iter().for_each(|carried| self.execution(carried)),
            Parcel::Signals(signals) => signals.iter().for_each(|carried| self.signal(carried)),
            Parcel::Requests(requests) => requests.iter().for_each(|request| self.request(request)),
            Parcel::Outbox(rows) => rows.iter().for_each(|row| self.outbox_row(row)),
            Parcel::Tokens(tokens) => tokens.iter().for_each(|token| self.token(token)),
            Parcel::Controls(controls) => controls.iter().for_each(|control| self.control(control)),
        }
    }

    /// The hash so far, in hexadecimal.
    pub(super) fn hash(&self) -> String {
        hex::encode(self.hash.clone().finalize())
    }

    fn execution(&mut self, carried: &CarriedExecution) {
        let row = &carried.execution;
        self.counts.executions += 1;
        self.counts.history_rows += carried.records.len() as u64;
        self.counts.attributes += carried.attributes.len() as u64;
        self.events += decode(row.run_id, &carried.records).map_or(0, |(events, _)| events.len() as u64);
        self.text("execution");
        self.text(row.key.workflow_type());
        self.text(row.key.id());
        self.number(u64::from(row.shard));
        self.bytes(row.run_id.as_bytes());
        self.text(row.status.as_str());
        self.instant(row.wake_at);
        self.instant(row.closed_at);
        self.number(row.rev);
        self.bytes(&row.request_hash);
        self.number(u64::from(row.needs_attention));
        self.bytes(&row.attempts);
        self.bytes(&carried.tombstone);
        self.optional(carried.parked.as_ref().map(|parked| parked.gate.as_str()));
        self.instant(carried.parked.as_ref().map(|parked| parked.since));
        self.number(carried.records.len() as u64);
        for record in &carried.records {
            self.number(record.first_event);
            self.bytes(&record.bytes);
        }
        self.number(carried.attributes.len() as u64);
        for (name, value) in &carried.attributes {
            self.text(name);
            self.text(&value.stored());
        }
    }

    fn signal(&mut self, carried: &CarriedSignal) {
        let row = &carried.row;
        self.counts.inbox_rows += 1;
        self.text("signal");
        self.text(row.key.workflow_type());
        self.text(row.key.id());
        self.text(&row.signal_id);
        self.number(u64::from(row.shard));
        self.text(&row.name);
        self.text(row.payload.as_str());
        self.bytes(&row.identity);
        self.instant(Some(row.received_at));
        self.number(u64::from(carried.held));
        self.number(u64::from(row.unchecked));
    }

    fn request(&mut self, request: &RequestedStart) {
        self.counts.requested_starts += 1;
        self.text("request");
        self.text(request.key.workflow_type());
        self.text(request.key.id());
        self.number(u64::from(request.shard));
        self.text(&request.input);
        self.optional(request.attributes.as_deref());
        self.instant(request.start_at);
        self.optional(request.refused.as_deref());
    }

    fn control(&mut self, control: &Control) {
        self.counts.controls += 1;
        self.text("control");
        self.text(&control.name);
        self.number(control.rev);
        self.bytes(&control.value);
    }

    fn outbox_row(&mut self, row: &OutboxRow) {
        self.counts.outbox_rows += 1;
        self.text("event");
        self.number(u64::from(row.place.shard));
        self.text(&row.place.sink);
        self.bytes(row.place.run_id.as_bytes());
        self.number(row.place.event);
        self.text(row.key.workflow_type());
        self.text(row.key.id());
        self.text(&row.name);
        self.text(row.data.as_str());
        self.instant(Some(row.emitted_at));
        self.instant(row.next_at);
        self.number(u64::from(row.attempts));
        self.instant(row.failing_since);
        self.number(u64::from(row.parked));
        self.optional(row.failure.as_deref());
    }

    fn token(&mut self, token: &Token) {
        self.counts.tokens += 1;
        self.text("token");
        self.text(&token.name);
        self.bytes(&token.secret_hash);
        self.text(&token.scopes);
        self.text(&token.types);
        self.instant(Some(token.created_at));
        self.instant(token.expires_at);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    /// Each value behind its length, so that two neighbours cannot share their bytes in another way.
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hash.update(bytes);
    }

    fn number(&mut self, number: u64) {
        self.hash.update(number.to_be_bytes());
    }

    fn instant(&mut self, instant: Option<Timestamp>) {
        self.hash.update([u8::from(instant.is_some())]);
        self.hash.update(instant.map_or(0, Timestamp::as_micros).to_be_bytes());
    }
}
