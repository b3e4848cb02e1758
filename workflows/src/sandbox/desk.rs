//! Where requests arrive: fault, idempotency, decision, ledger, answer, in this order.
//!
//! Invariant: nobody is answered before the request and its effects are durable, and the memory is changed in the
//! ledger's order because both happen under one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::book::{Ask, Book, Decision};
use super::ledger::{Ledger, Receipt};
use super::time::Clock;
use super::{Call, Effect, EffectRecord, Error, Fault, FaultKind, FaultPlan, Record, RequestRecord, Service};

/// What a service has counted since its ledger began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that arrived, repeats and faults included.
    pub requests: u64,
    /// Requests that asked, under another key, for an effect that was already applied.
    pub duplicate_effects: u64,
    /// Requests that used a key of another request.
    pub reused_keys: u64,
    /// Faults injected, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

impl Counts {
    /// How many faults of this kind were injected.
    pub fn faults(&self, kind: FaultKind) -> u64 {
        self.faults.get(&kind).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.duplicate_effects += other.duplicate_effects;
        self.reused_keys += other.reused_keys;
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
    }

    fn note(&mut self, request: &RequestRecord) {
        self.requests += 1;
        self.duplicate_effects += u64::from(request.duplicate_effect);
        self.reused_keys += u64::from(request.key_reused);
        if let Some(kind) = request.fault {
            *self.faults.entry(kind).or_default() += 1;
        }
    }
}

/// A request as HTTP delivered it.
pub(super) struct Arrival {
    pub(super) call: Call,
    pub(super) subject: String,
    pub(super) key: Option<String>,
    /// None when the body was no JSON.
    pub(super) body: Option<Value>,
    pub(super) digest: String,
}

impl Arrival {
    pub(super) fn digest(call: Call, subject: &str, bytes: &[u8]) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("{call:?} {subject}\n"));
        hash.update(bytes);
        hex::encode(hash.finalize())
    }
}

/// The answer to an arrival, once its ledger lines are durable.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) answer: Value,
    pub(super) fault: Option<Fault>,
    pub(super) receipt: Receipt,
}

struct Stored {
    digest: String,
    status: u16,
    answer: Value,
}

#[derive(Default)]
struct State<B> {
    book: B,
    written: u64,
    arrivals: HashMap<String, u64>,
    stored: HashMap<String, Stored>,
    /// Who first caused each once-only effect; none when it was the shop itself.
    causes: HashMap<String, Option<String>>,
    counts: Counts,
}

impl<B: Book> State<B> {
    /// Folds one ledger line in; live and on replay the same.
    fn fold(&mut self, record: &Record) {
        self.written += 1;
        match record {
            Record::Effect(effect) => {
                self.book.apply(&effect.subject, &effect.effect, effect.at);
                if let Some(once) = effect.effect.once(&effect.subject) {
                    self.causes.entry(once).or_insert_with(|| effect.key.clone());
                }
            }
            Record::Request(request) => {
                *self.arrivals.entry(request.subject.clone()).or_default() += 1;
                self.counts.note(request);
            }
        }
    }

    fn store(&mut self, request: &RequestRecord) {
        if let Some(key) = &request.key {
            let stored = Stored { digest: request.digest.clone(), status: request.status, answer: request.answer.clone() };
            self.stored.entry(key.clone()).or_insert(stored);
        }
    }
}

/// One service's desk.
pub(super) struct Desk<B> {
    state: Mutex<State<B>>,
    ledger: Ledger,
    faults: Arc<RwLock<Arc<FaultPlan>>>,
    clock: Clock,
}

impl<B: Book> Desk<B> {
    pub(super) fn open(path: &std::path::Path, faults: Arc<RwLock<Arc<FaultPlan>>>, clock: Clock) -> Result<Desk<B>, Error> {
        let (ledger, records) = Ledger::open(path)?;
        let mut state = State::<B>::default();
        for record in &records {
            state.fold(record);
            if let Record::Request(request) = record
                && request.kept
            {
                state.store(request);
            }
        }
        Ok(Desk { state: Mutex::new(state), ledger, faults, clock })
    }

    /// A desk whose ledger is in memory.
    pub(super) fn in_memory(faults: Arc<RwLock<Arc<FaultPlan>>>, clock: Clock) -> Desk<B> {
        Desk { state: Mutex::default(), ledger: Ledger::Memory(Mutex::default()), faults, clock }
    }

    /// What the ledger holds, if it is in memory.
    pub(super) fn records(&self) -> Option<Vec<Record>> {
        self.ledger.in_memory()
    }

    /// Decides at once, without awaiting: a caller that hangs up cannot leave half an effect behind.
    pub(super) fn arrive(&self, arrival: Arrival) -> Answered {
        let mut state = self.lock();
        let now = (self.clock)();
        let nth = state.arrivals.get(&arrival.subject).copied().unwrap_or(0) + 1;
        let overall = state.counts.requests + 1;
        let fault = self.plan().decide(B::SERVICE, &arrival.subject, nth, overall);
        let judged = judge(&state, &arrival, fault, now);

        let mut request = RequestRecord {
            n: state.written + 1,
            service: B::SERVICE,
            call: arrival.call,
            subject: arrival.subject,
            key: arrival.key,
            at: now,
            body: arrival.body.unwrap_or(Value::Null),
            digest: arrival.digest,
            status: judged.decision.status,
            answer: judged.decision.answer.clone(),
            fault: fault.map(Fault::kind),
            repeated: judged.repeated,
            kept: judged.decision.kept && !arrival.call.reads(),
            duplicate_effect: false,
            key_reused: judged.key_reused,
        };
        request.duplicate_effect = judged
            .decision
            .asked_again
            .as_ref()
            .is_some_and(|once| matches!(state.causes.get(once), Some(Some(cause)) if Some(cause) != request.key.as_ref()));
        if request.kept {
            state.store(&request);
        }
        let (subject, key) = (request.subject.clone(), request.key.clone());
        let mut records = vec![Record::Request(request)];
        state.fold(&records[0]);
        records.extend(record(&mut state, &subject, key, now, judged.decision.effects));
        let receipt = self.ledger.append(records);
        Answered { status: judged.decision.status, answer: judged.decision.answer, fault, receipt }
    }

    /// The shop's own change of one subject: what `plan` allows is applied, and durable on return.
    pub(super) async fn change<P>(&self, subject: &str, plan: P) -> Result<(), Error>
    where
        P: FnOnce(&B) -> Result<Vec<Effect>, &'static str>,
    {
        let of_subject = |effect| (subject.to_owned(), effect);
        self.change_several(subject, |book| Ok(plan(book)?.into_iter().map(of_subject).collect())).await
    }

    /// The shop's own change of several subjects at once; `subject` is named in a refusal.
    pub(super) async fn change_several<P>(&self, subject: &str, plan: P) -> Result<(), Error>
    where
        P: FnOnce(&B) -> Result<Vec<(String, Effect)>, &'static str>,
    {
        let receipt = {
            let mut state = self.lock();
            let effects = plan(&state.book).map_err(|reason| Error::Refused {
                service: B::SERVICE,
                subject: subject.to_owned(),
                reason,
            })?;
            let now = (self.clock)();
            let records =
                effects.into_iter().flat_map(|(subject, effect)| record(&mut state, &subject, None, now, vec![effect])).collect();
            self.ledger.append(records)
        };
        receipt.durable().await
    }

    /// Looks at the book.
    pub(super) fn read<T>(&self, look: impl FnOnce(&B) -> T) -> T {
        look(&self.lock().book)
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    pub(super) fn plan(&self) -> Arc<FaultPlan> {
        self.faults.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies the effects and returns their ledger lines.
fn record<B: Book>(state: &mut State<B>, subject: &str, key: Option<String>, at: Timestamp, effects: Vec<Effect>) -> Vec<Record> {
    let mut records = Vec::with_capacity(effects.len());
    for effect in effects {
        let (n, service) = (state.written + 1, B::SERVICE);
        let line = Record::Effect(EffectRecord { n, service, subject: subject.to_owned(), key: key.clone(), at, effect });
        state.fold(&line);
        records.push(line);
    }
    records
}

struct Judged {
    decision: Decision,
    repeated: bool,
    key_reused: bool,
}

fn judge<B: Book>(state: &State<B>, arrival: &Arrival, fault: Option<Fault>, now: Timestamp) -> Judged {
    let fresh = |decision| Judged { decision, repeated: false, key_reused: false };
    if let Some(refusal) = fault.and_then(refusal_before_effect) {
        return fresh(refusal);
    }
    let Some(body) = &arrival.body else {
        let answer = json!({ "title": "the body is not JSON" });
        return fresh(Decision { status: 400, ..Decision::done(answer).not_kept() });
    };
    if !arrival.call.reads() {
        let Some(key) = &arrival.key else {
            let answer = json!({ "title": "Idempotency-Key is missing" });
            return fresh(Decision { status: 400, ..Decision::done(answer).not_kept() });
        };
        if let Some(stored) = state.stored.get(key) {
            return if stored.digest == arrival.digest {
                let decision = Decision { status: stored.status, ..Decision::done(stored.answer.clone()) };
                Judged { decision, repeated: true, key_reused: false }
            } else {
                let refusal = Decision::invalid("this Idempotency-Key belongs to another request".to_owned());
                Judged { decision: refusal, repeated: false, key_reused: true }
            };
        }
    }
    fresh(state.book.decide(&Ask { call: arrival.call, subject: &arrival.subject, body, now }))
}

/// The answer of a fault that strikes before anything is done.
fn refusal_before_effect(fault: Fault) -> Option<Decision> {
    let refuse = |status, title| Decision { status, ..Decision::done(json!({ "title": title })).not_kept() };
    match fault {
        Fault::Unavailable => Some(refuse(503, "unavailable")),
        Fault::Throttled { .. } => Some(refuse(429, "too many requests")),
        Fault::ServerError => Some(refuse(500, "internal error")),
        Fault::TimeoutAfterEffect | Fault::ConnectionClosed => None,
    }
}

/// The file of a service's ledger inside the shop's folder.
pub fn ledger_file(folder: &std::path::Path, service: Service) -> std::path::PathBuf {
    folder.join(format!("{}.ndjson", service.name()))
}
