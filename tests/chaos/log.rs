//! What the callers know: what they asked for, what was acknowledged, and what they never heard of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use jiff::Timestamp;
use overdue_workflows::demo::Acknowledged;
use serde_json::{Value, json};

/// How one attempt of an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Acknowledged,
    /// No answer, or one that does not say whether it happened.
    Unknown,
    /// Too busy: it is tried again, and surely did not happen.
    Refused,
}

#[derive(Default)]
struct Known {
    signals: Vec<Acknowledged>,
    runs: BTreeMap<String, BTreeSet<String>>,
    acknowledged: BTreeMap<String, u64>,
    unknown: u64,
    refused: u64,
    resolved: u64,
    violations: Vec<String>,
}

/// The callers' log, a line for each thing that they learn.
pub(crate) struct Log {
    known: Mutex<Known>,
    file: Mutex<File>,
}

/// How much of everything there was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) acknowledged: BTreeMap<String, u64>,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) resolved: u64,
}

impl Log {
    pub(crate) fn new(file: &Path) -> Self {
        Self { known: Mutex::default(), file: Mutex::new(File::create(file).unwrap()) }
    }

    fn write(&self, line: &Value) {
        writeln!(self.file.lock().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn invoked(&self, operation: &str, id: &str) {
        self.write(&json!({ "at": Timestamp::now(), "did": "invoked", "operation": operation, "id": id }));
    }

    pub(crate) fn heard(&self, operation: &str, id: &str, heard: Heard, text: &str) {
        self.write(&json!({
            "at": Timestamp::now(), "did": format!("{heard:?}"), "operation": operation, "id": id, "answer": text,
        }));
        let mut known = self.known.lock().unwrap();
        match heard {
            Heard::Acknowledged => *known.acknowledged.entry(operation.to_owned()).or_default() += 1,
            Heard::Unknown => known.unknown += 1,
            Heard::Refused => known.refused += 1,
        }
    }

    /// An operation that had no clear answer at first has one now.
    pub(crate) fn resolved(&self) {
        self.known.lock().unwrap().resolved += 1;
    }

    /// A start was answered with this run.
    pub(crate) fn started(&self, order: &str, run: &str) {
        self.known.lock().unwrap().runs.entry(order.to_owned()).or_default().insert(run.to_owned());
    }

    pub(crate) fn signalled(&self, signal: Acknowledged) {
        self.known.lock().unwrap().signals.push(signal);
    }

    /// Something that must not be.
    pub(crate) fn violated(&self, violation: String) {
        self.write(&json!({ "at": Timestamp::now(), "did": "violated", "answer": violation }));
        eprintln!("VIOLATION {violation}");
        self.known.lock().unwrap().violations.push(violation);
    }

    /// The signals to an order that were acknowledged.
    pub(crate) fn signals(&self, orders: &[String]) -> Vec<Acknowledged> {
        let known = self.known.lock().unwrap();
        known.signals.iter().filter(|signal| orders.contains(&signal.order_id)).cloned().collect()
    }

    /// The runs that the starts of an order were answered with.
    pub(crate) fn runs(&self, order: &str) -> BTreeSet<String> {
        self.known.lock().unwrap().runs.get(order).cloned().unwrap_or_default()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.known.lock().unwrap().violations.clone()
    }

    pub(crate) fn sums(&self) -> Sums {
        let known = self.known.lock().unwrap();
        let acknowledged = known.acknowledged.clone();
        Sums { acknowledged, unknown: known.unknown, refused: known.refused, resolved: known.resolved }
    }

    /// What was judged need not be known any longer.
    pub(crate) fn forget(&self) {
        let mut known = self.known.lock().unwrap();
        known.signals.clear();
        known.runs.clear();
    }
}
