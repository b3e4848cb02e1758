//! What is kept of an execution whose history was removed: how it ended, and a short hash of every signal that it
//! received, so that repeated starts and signals are answered as before.
//!
//! The stored form is a version byte and CBOR. Inputs, attributes and what the signals said are gone.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};

use super::IncomingSignal;
use super::signal::SignalCheck;
use crate::history::{Closing, Event, EventKind, Folded, SeenSignal};
use crate::id::RunId;
use crate::time::Timestamp;
use crate::workflow::ErasedWorkflow;

/// The version of the stored form.
const TOMBSTONE_VERSION: u8 = 1;

/// Why a stored tombstone is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TombstoneError {
    /// A newer program wrote it.
    #[error("its tombstone has version {0}, which this program does not know")]
    UnknownVersion(u8),
    /// It is not what any program wrote.
    #[error("its tombstone cannot be read: {0}")]
    Corrupt(String),
}

/// What is left of an execution.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Tombstone {
    /// When its history was removed.
    #[n(0)]
    pub(crate) retired_at: Timestamp,
    /// Number of its last event.
    #[n(1)]
    pub(crate) last_event: u64,
    /// Its last event, the one that ended it.
    #[n(2)]
    ending: EventKind,
    /// The signals that it received.
    #[n(3)]
    signals: Vec<SignalMark>,
}

/// A signal that was received. Eight bytes of a hash: that two of a thousand signals of one execution share them by chance
/// is less likely than one in 10^13.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
struct SignalMark {
    /// Of its id.
    #[n(0)]
    id: u64,
    /// Of its name and of what makes a second delivery the same.
    #[n(1)]
    says: u64,
    /// Of its name and of what it is about.
    #[n(2)]
    subject: Option<u64>,
}

impl Tombstone {
    /// What is to be left of an execution of this type; `None` when the history does not end.
    pub(crate) fn of(run_id: RunId, events: &[Event], workflow: &dyn ErasedWorkflow, now: Timestamp) -> Option<Self> {
        let last = events.last().filter(|event| event.kind.is_closing())?;
        let signals = Folded::of(events).signals.iter().map(|seen| SignalMark::of(run_id, seen, workflow)).collect();
        Some(Self { retired_at: now, last_event: last.number, ending: last.kind.clone(), signals })
    }

    /// How the execution ended.
    pub(crate) fn closing(&self) -> Option<Closing> {
        let ending = Event { number: self.last_event, at: self.retired_at, kind: self.ending.clone() };
        Folded::of([&ending]).closing.map(|(_, closing)| closing)
    }

    /// Compares a signal with the received ones, as with those of a history.
    pub(crate) fn check(&self, run_id: RunId, signal: &IncomingSignal) -> SignalCheck {
        let id = id_mark(run_id, &signal.signal_id);
        let subject = signal.subject.as_ref().map(|subject| subject_mark(run_id, &signal.name, subject));
        let is_known = |mark: &&SignalMark| mark.id == id || (subject.is_some() && mark.subject == subject);
        match self.signals.iter().find(is_known) {
            None => SignalCheck::New,
            Some(mark) if mark.says == says_mark(run_id, &signal.name, &signal.identity) => SignalCheck::Duplicate,
            Some(_) => SignalCheck::Conflict,
        }
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = vec![TOMBSTONE_VERSION];
        minicbor::encode(self, &mut bytes).expect("writing to memory cannot fail");
        bytes.into()
    }

    /// Reads the stored form.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, TombstoneError> {
        match bytes.split_first() {
            Some((&TOMBSTONE_VERSION, body)) => {
                minicbor::decode(body).map_err(|error| TombstoneError::Corrupt(error.to_string()))
            }
            Some((version, _)) => Err(TombstoneError::UnknownVersion(*version)),
            None => Err(TombstoneError::Corrupt("empty".into())),
        }
    }
}

impl SignalMark {
    fn of(run_id: RunId, seen: &SeenSignal, workflow: &dyn ErasedWorkflow) -> Self {
        let checked = workflow.signal(&seen.name).and_then(|declaration| declaration.check(&seen.payload).ok());
        let subject = checked.as_ref().and_then(|checked| checked.subject.as_ref());
        let subject = subject.map(|subject| subject_mark(run_id, &seen.name, subject));
        let identity = checked.as_ref().map_or_else(|| seen.payload.canonical_hash(), |checked| checked.identity);
        Self { id: id_mark(run_id, &seen.signal_id), says: says_mark(run_id, &seen.name, &identity), subject }
    }
}

fn id_mark(run_id: RunId, signal_id: &str) -> u64 {
    mark(run_id, b"id", &[signal_id.as_bytes()])
}

fn says_mark(run_id: RunId, name: &str, identity: &[u8; 16]) -> u64 {
    mark(run_id, b"says", &[name.as_bytes(), identity])
}

fn subject_mark(run_id: RunId, name: &str, subject: &str) -> u64 {
    mark(run_id, b"subject", &[name.as_bytes(), subject.as_bytes()])
}

/// The first eight bytes of SHA-256 over the run and the parts, each behind its length.
fn mark(run_id: RunId, kind: &[u8], parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new_with_prefix(run_id.as_bytes());
    for part in std::iter::once(&kind).chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("a digest is longer than that"))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::engine::check_against;
    use crate::payload::Payload;
    use crate::workflow::{Signal, SignalDeclaration, Workflow, WorkflowContext, WorkflowError, WorkflowRegistry};

    #[derive(Serialize, Deserialize)]
    struct Paid {
        by: String,
        amount: u32,
        at: u32,
    }

    impl Signal for Paid {
        const NAME: &'static str = "paid";

        fn subject(&self) -> Option<String> {
            Some(self.by.clone())
        }

        fn identity(&self) -> Option<Payload> {
            Payload::of(&(&self.by, self.amount)).ok()
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Note(u32);

    impl Signal for Note {
        const NAME: &'static str = "note";
    }

    struct Takes;

    #[async_trait::async_trait]
    impl Workflow for Takes {
        const TYPE: &'static str = "takes";
        type Input = ();
        type Output = ();

        async fn run(&self, _ctx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
            Ok(())
        }

        fn signals(&self) -> Vec<SignalDeclaration> {
            vec![SignalDeclaration::of::<Paid>(), SignalDeclaration::of::<Note>()]
        }
    }

    fn run_id() -> RunId {
        RunId::new(1_700_000_000_000, [7; 10])
    }

    fn registry() -> WorkflowRegistry {
        let mut registry = WorkflowRegistry::default();
        registry.register(Takes);
        registry
    }

    /// Every signal there is: of both names and of one that is not declared any more, with few ids, subjects and contents.
    fn every_signal() -> Vec<(String, String, Payload)> {
        let mut all = Vec::new();
        for id in ["s-1", "s-2"] {
            for (by, amount, at) in [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("b", 1, 1)] {
                all.push((Paid::NAME.to_owned(), id.to_owned(), Payload::of(&Paid { by: by.into(), amount, at }).unwrap()));
            }
            for says in [1, 2] {
                all.push((Note::NAME.to_owned(), id.to_owned(), Payload::of(&says).unwrap()));
                all.push(("gone".to_owned(), id.to_owned(), Payload::of(&says).unwrap()));
            }
        }
        all
    }

    fn history(signals: &[&(String, String, Payload)]) -> Vec<Event> {
        let mut kinds: Vec<EventKind> = signals
            .iter()
            .map(|(name, signal_id, payload)| EventKind::SignalReceived {
                name: name.clone(),
                signal_id: signal_id.clone(),
                payload: payload.clone(),
            })
            .collect();
        kinds.push(EventKind::WorkflowCompleted { result: Payload::of("done").unwrap() });
        kinds.into_iter().zip(1..).map(|(kind, number)| Event { number, at: Timestamp::from_micros(5), kind }).collect()
    }

    #[test]
    fn whatever_was_received_a_signal_is_judged_by_the_tombstone_as_by_the_history() {
        let (registry, all) = (registry(), every_signal());
        let workflow = registry.get("takes").unwrap().as_ref();
        let mut verdicts = std::collections::BTreeMap::<String, usize>::new();
        for first in &all {
            for second in &all {
                let events = history(&[first, second]);
                let tombstone = Tombstone::of(run_id(), &events, workflow, Timestamp::from_micros(9)).unwrap();
                let tombstone = Tombstone::decode(&tombstone.encode()).unwrap();
                for (name, signal_id, payload) in &all {
                    let Some(checked) = workflow.signal(name).and_then(|declared| declared.check(payload).ok()) else { continue };
                    let signal = IncomingSignal {
                        name: name.clone(),
                        signal_id: signal_id.clone(),
                        payload: payload.clone(),
                        subject: checked.subject,
                        identity: checked.identity,
                    };
                    let expected = check_against(&signal, &Folded::of(&events).signals, Some(workflow));
                    assert_eq!(tombstone.check(run_id(), &signal), expected, "{signal:?} after {first:?} and {second:?}");
                    *verdicts.entry(format!("{expected:?}")).or_default() += 1;
                }
            }
        }
        assert_eq!(verdicts.len(), 3, "{verdicts:?}");
    }

    #[test]
    fn marks_of_one_run_say_nothing_of_another_and_parts_do_not_run_into_each_other() {
        let other = RunId::new(1_700_000_000_000, [8; 10]);
        assert_ne!(id_mark(run_id(), "s-1"), id_mark(other, "s-1"));
        assert_ne!(subject_mark(run_id(), "ab", "c"), subject_mark(run_id(), "a", "bc"));
    }

    #[test]
    fn it_says_how_the_execution_ended_and_a_history_without_an_end_leaves_none() {
        let registry = registry();
        let workflow = registry.get("takes").unwrap().as_ref();
        let all = every_signal();
        let events = history(&[&all[0]]);
        let tombstone = Tombstone::of(run_id(), &events, workflow, Timestamp::from_micros(9)).unwrap();
        assert_eq!(tombstone.closing(), Some(Closing::Completed(Payload::of("done").unwrap())));
        assert_eq!((tombstone.last_event, tombstone.retired_at), (2, Timestamp::from_micros(9)));
        assert_eq!(Tombstone::of(run_id(), &events[..1], workflow, Timestamp::from_micros(9)), None);
        assert_eq!(Tombstone::of(run_id(), &[], workflow, Timestamp::from_micros(9)), None);
    }

    #[test]
    fn tombstones_written_by_version_1_are_still_read() {
        let golden = include_str!("../../golden/tombstone-v1.txt").trim();
        let registry = registry();
        let all = every_signal();
        let events = history(&[&all[0], &all[4]]);
        let tombstone = Tombstone::of(run_id(), &events, registry.get("takes").unwrap().as_ref(), Timestamp::from_micros(9));
        let tombstone = tombstone.unwrap();
        assert_eq!(hex::encode(tombstone.encode()), golden, "they are written the same way today");
        assert_eq!(Tombstone::decode(&hex::decode(golden).unwrap()).unwrap(), tombstone);
    }

    #[test]
    fn a_newer_tombstone_is_named_and_rubbish_is_refused() {
        assert!(matches!(Tombstone::decode(&[9, 1, 2]), Err(TombstoneError::UnknownVersion(9))));
        for rubbish in [&[][..], &[1], &[1, 0xff, 0xff]] {
            assert!(matches!(Tombstone::decode(rubbish), Err(TombstoneError::Corrupt(_))), "{rubbish:?}");
        }
    }
}
