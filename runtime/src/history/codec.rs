//! The binary form of a history row: the events of one transition.
//!
//! `[version: 1 byte][CBOR array: recorded time, event kinds…][chain: 8 bytes]`. The chain is the beginning of
//! `sha256(chain of the row before ‖ everything of this row before its own chain)`; the first row's predecessor is
//! the run id. So no row can be lost, changed or swapped unnoticed.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};

use super::event::{Event, EventKind};
use crate::id::RunId;
use crate::time::Timestamp;

/// The version that [`encode`] writes.
pub const CODEC_VERSION: u8 = 1;

const CHAIN_BYTES: usize = 8;

/// The running hash of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain(Vec<u8>);

impl Chain {
    /// The chain before the first row.
    pub fn beginning(run_id: RunId) -> Self {
        Self(run_id.as_bytes().to_vec())
    }

    fn link(&self, body: &[u8]) -> Self {
        let digest = Sha256::new().chain_update(&self.0).chain_update(body).finalize();
        Self(digest[..CHAIN_BYTES].to_vec())
    }
}

/// A stored history row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of its first event.
    pub first_event: u64,
    /// Its events, as [`encode`] wrote them.
    pub bytes: Bytes,
}

/// Why a history cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Written by a newer program.
    #[error("event {first_event}: codec version {found} is newer than this program's {CODEC_VERSION}")]
    UnknownVersion {
        /// Where.
        first_event: u64,
        /// The version found.
        found: u8,
    },
    /// Not what was written.
    #[error("event {first_event}: unreadable: {reason}")]
    Corrupt {
        /// Where.
        first_event: u64,
        /// What is wrong.
        reason: String,
    },
    /// An event is missing, or there twice.
    #[error("event {expected} is missing: the next row begins at {found}")]
    Gap {
        /// The number that should come next.
        expected: u64,
        /// The number that comes.
        found: u64,
    },
    /// The row does not follow from the rows before it.
    #[error("event {first_event}: the hash chain is broken")]
    BrokenChain {
        /// Where.
        first_event: u64,
    },
}

#[derive(Encode)]
struct BodyRef<'a> {
    #[n(0)]
    at: Timestamp,
    #[n(1)]
    kinds: &'a [EventKind],
}

#[derive(Decode)]
struct Body {
    #[n(0)]
    at: Timestamp,
    #[n(1)]
    kinds: Vec<EventKind>,
}

/// Writes the events of one transition and moves `chain` on.
pub fn encode(at: Timestamp, kinds: &[EventKind], chain: &mut Chain) -> Bytes {
    let mut bytes = vec![CODEC_VERSION];
    minicbor::encode(BodyRef { at, kinds }, &mut bytes).expect("writing to memory cannot fail");
    *chain = chain.link(&bytes);
    bytes.extend_from_slice(&chain.0);
    bytes.into()
}

/// Reads a whole history from its first row on, checking numbers and chain.
///
/// # Errors
/// [`CodecError`], which names the first event that cannot be read.
pub fn decode(run_id: RunId, records: &[Record]) -> Result<(Vec<Event>, Chain), CodecError> {
    let mut chain = Chain::beginning(run_id);
    let mut events = Vec::with_capacity(records.len() * 3);
    for record in records {
        let expected = events.len() as u64 + 1;
        if record.first_event != expected {
            return Err(CodecError::Gap { expected, found: record.first_event });
        }
        let body = decode_row(record, &mut chain)?;
        events.extend(body.kinds.into_iter().zip(expected..).map(|(kind, number)| Event { number, at: body.at, kind }));
    }
    Ok((events, chain))
}

fn decode_row(record: &Record, chain: &mut Chain) -> Result<Body, CodecError> {
    let first_event = record.first_event;
    let corrupt = |reason: String| CodecError::Corrupt { first_event, reason };
    match record.bytes.first() {
        Some(&CODEC_VERSION) => {}
        Some(&found) => return Err(CodecError::UnknownVersion { first_event, found }),
        None => return Err(corrupt("empty".into())),
    }
    let Some(end) = record.bytes.len().checked_sub(CHAIN_BYTES).filter(|end| *end >= 1) else {
        return Err(corrupt("shorter than its chain".into()));
    };
    let (written, stored_chain) = record.bytes.split_at(end);
    let next = chain.link(written);
    if next.0 != stored_chain {
        return Err(CodecError::BrokenChain { first_event });
    }
    *chain = next;
    let body: Body = minicbor::decode(&written[1..]).map_err(|error| corrupt(error.to_string()))?;
    if body.kinds.is_empty() {
        return Err(corrupt("a row without events".into()));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;

    fn run_id() -> RunId {
        RunId::new(1_700_000_000_000, [7; 10])
    }

    fn rows() -> Vec<Record> {
        let mut chain = Chain::beginning(run_id());
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        let started = EventKind::WorkflowStarted {
            input: Payload::from_json(r#"{"amount":"19.99"}"#).unwrap(),
            start_at: None,
            attributes: Default::default(),
            traceparent: None,
        };
        let timer = EventKind::TimerStarted { name: Some("payDeadline".into()), fire_at: at };
        let first = encode(at, &[started, timer], &mut chain);
        let second = encode(at, &[EventKind::TimerFired { timer: 2 }], &mut chain);
        vec![Record { first_event: 1, bytes: first }, Record { first_event: 3, bytes: second }]
    }

    #[test]
    fn a_history_reads_back_as_written() {
        let (events, _) = decode(run_id(), &rows()).unwrap();
        assert_eq!(
            events.iter().map(|e| (e.number, e.kind.name())).collect::<Vec<_>>(),
            [(1, "WorkflowStarted"), (2, "TimerStarted"), (3, "TimerFired")]
        );
    }

    #[test]
    fn a_missing_row_is_noticed() {
        let rows = rows();
        assert_eq!(decode(run_id(), &rows[1..]), Err(CodecError::Gap { expected: 1, found: 3 }));
    }

    #[test]
    fn a_changed_byte_is_noticed_wherever_it_is() {
        for row in 0..2 {
            for byte in 1..rows()[row].bytes.len() {
                let mut rows = rows();
                let mut bytes = rows[row].bytes.to_vec();
                bytes[byte] ^= 1;
                rows[row].bytes = bytes.into();
                assert!(matches!(decode(run_id(), &rows), Err(CodecError::BrokenChain { .. })), "row {row} byte {byte}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = decode(run_id(), &[Record { first_event: 1, bytes: bytes.into() }]);
        }
    }

    #[test]
    fn a_newer_codec_is_named_and_not_guessed_at() {
        let mut rows = rows();
        rows[0].bytes = Bytes::from_static(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(run_id(), &rows), Err(CodecError::UnknownVersion { first_event: 1, found: 9 }));
    }

    #[test]
    fn histories_written_by_version_1_are_still_read() {
        let golden = include_str!("../../golden/history-v1.txt");
        let rows: Vec<Record> = golden
            .lines()
            .map(|line| {
                let (first, bytes) = line.split_once(' ').unwrap();
                Record { first_event: first.parse().unwrap(), bytes: hex::decode(bytes).unwrap().into() }
            })
            .collect();
        let (events, _) = decode(run_id(), &rows).unwrap();
        let kinds: std::collections::BTreeSet<_> = events.iter().map(|e| e.kind.name()).collect();
        let expected: Vec<_> = first_kinds().into_iter().chain(later_kinds()).collect();
        assert_eq!(kinds.len(), expected.len(), "the golden file holds every kind of event");
        let mut chain = Chain::beginning(run_id());
        let at = Timestamp::from_micros(1_700_000_000_000_000);
        assert_eq!(events.iter().map(|e| e.kind.clone()).collect::<Vec<_>>(), expected);
        assert_eq!(encode(at, &first_kinds(), &mut chain), rows[0].bytes, "and is written the same way today");
        assert_eq!(encode(at, &later_kinds(), &mut chain), rows[1].bytes, "and what came later, too");
    }

    /// In a row of their own: what was written before stays as it is.
    fn later_kinds() -> Vec<EventKind> {
        let data = Payload::from_json(r#"{"n":9007199254740993}"#).unwrap();
        vec![EventKind::EventEmitted { name: "shipment.sent".into(), data }]
    }

    fn first_kinds() -> Vec<EventKind> {
        let payload = || Payload::from_json(r#"{"n":9007199254740993}"#).unwrap();
        let at = Timestamp::from_micros(1_700_000_060_000_000);
        let failure = || crate::history::Failure::new(crate::history::FailureClass::Permanent, "http-422", "refused");
        let (reason, actor) = (|| "ticket 4711".to_owned(), || "on-call".to_owned());
        vec![
            EventKind::WorkflowStarted {
                input: payload(),
                start_at: Some(at),
                attributes: [("sku".to_owned(), payload())].into(),
                traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            },
            EventKind::TimerStarted { name: None, fire_at: at },
            EventKind::TimerFired { timer: 2 },
            EventKind::TimerCancelled { timer: 2 },
            EventKind::ActivityScheduled {
                name: "cancel-order".into(),
                input: payload(),
                idempotency_key: "k".into(),
                by_hand: Some("why".into()),
            },
            EventKind::ActivityCompleted { activity: 5, result: payload(), attempts: 1, sends: 2 },
            EventKind::ActivityFailed { activity: 5, failure: failure(), attempts: 1, sends: 1 },
            EventKind::ActivityCancelled { activity: 5 },
            EventKind::AttentionRequested { activity: 5, failure: failure(), attempts: 3, sends: 3 },
            EventKind::ActivityRetried { activity: 5, reason: reason(), actor: actor() },
            EventKind::ActivityResolved { activity: 5, result: payload(), reason: reason(), actor: actor() },
            EventKind::ActivitySkipped { activity: 5, reason: reason(), actor: actor() },
            EventKind::SignalReceived { name: "payment-succeeded".into(), signal_id: "txn-1".into(), payload: payload() },
            EventKind::CancelRequested { reason: reason(), actor: actor() },
            EventKind::SideEffectRecorded { value: payload() },
            EventKind::VersionMarked { change: "c".into(), version: 2 },
            EventKind::WorkflowCompleted { result: payload() },
            EventKind::WorkflowFailed { failure: failure() },
            EventKind::WorkflowCancelled { reason: reason() },
            EventKind::WorkflowTerminated { reason: reason(), actor: actor() },
        ]
    }
}
