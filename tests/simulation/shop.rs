//! The way to the shop's services: what is lost on it, comes late, or comes twice. The services themselves are the
//! sandbox's, with their ledgers in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::pending;
use http::{HeaderMap, HeaderValue, StatusCode};
use overdue_activities::{Incoming, NoAnswer, Outgoing, Wire};
use overdue_runtime::engine::breaker::{BreakerPosition, Breakers};
use overdue_runtime::simulation::{Dice, Judge, Process, Simulation};
use overdue_workflows::sandbox::{Shop, Told};
use tokio::sync::oneshot;

use crate::receiver::Ledger;
use crate::swarm::ShopFaults;

/// How long after a request its repetition by the network arrives at most.
const TWICE_WITHIN: Duration = Duration::from_secs(20);
/// How often breakers are looked at.
const BREAKERS_LOOK: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct Street {
    simulation: Simulation,
    dice: Dice,
    pub(crate) judge: Arc<Judge>,
    pub(crate) shop: Arc<Shop>,
    faults: Mutex<ShopFaults>,
    /// Until when a service is gone.
    gone: Mutex<BTreeMap<String, Duration>>,
    /// The bytes that each key came with first.
    keys: Mutex<BTreeMap<String, (String, Bytes)>>,
    /// The breakers of every process.
    breakers: Mutex<Vec<Breakers>>,
    /// What the receiver of events has.
    pub(crate) ledger: Ledger,
}

impl Street {
    pub(crate) fn new(simulation: &Simulation, judge: &Arc<Judge>, shop: Arc<Shop>) -> Arc<Self> {
        Arc::new(Self {
            simulation: simulation.clone(),
            dice: simulation.dice(),
            judge: Arc::clone(judge),
            shop,
            faults: Mutex::default(),
            gone: Mutex::default(),
            keys: Mutex::default(),
            breakers: Mutex::default(),
            ledger: Ledger::default(),
        })
    }

    pub(crate) fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    pub(crate) fn dice(&self) -> &Dice {
        &self.dice
    }

    pub(crate) fn faults(&self) -> ShopFaults {
        *self.faults.lock().unwrap()
    }

    pub(crate) fn set_faults(&self, faults: ShopFaults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// A service answers nobody for so long.
    pub(crate) fn close_service(&self, service: &str, for_so_long: Duration) {
        let until = self.simulation.now() + for_so_long;
        self.gone.lock().unwrap().insert(format!("http://{service}/"), until);
    }

    /// A process has these breakers.
    pub(crate) fn watch(&self, breakers: &Breakers) {
        self.breakers.lock().unwrap().push(breakers.clone());
    }

    /// Looks at every breaker, for ever: each that opens, and each that closes again.
    pub(crate) async fn watch_breakers(self: Arc<Self>) {
        let mut were_open = BTreeSet::new();
        loop {
            self.simulation.sleep(BREAKERS_LOOK).await;
            for (process, breakers) in self.breakers.lock().unwrap().iter().enumerate() {
                for view in breakers.views() {
                    let name = (process, view.downstream.clone(), view.key.clone());
                    if view.position == BreakerPosition::Closed {
                        if were_open.remove(&name) {
                            self.judge.reach("breaker recovered");
                        }
                    } else if were_open.insert(name) {
                        self.judge.reach("breaker opened");
                    }
                }
            }
        }
    }

    pub(crate) fn is_gone(&self, url: &str) -> bool {
        let now = self.simulation.now();
        self.gone.lock().unwrap().iter().any(|(base, until)| url.starts_with(base) && now < *until)
    }

    /// The request is there: what must hold then, and what the service makes of it.
    fn arrive(&self, request: &Outgoing) -> Told {
        let key = request.headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
        if let Some(key) = &key {
            let is_scheduled = self.judge.is_scheduled(key);
            self.judge.expect("I32", is_scheduled, || format!("{} came with the key {key}, which no history has", request.url));
            let mut keys = self.keys.lock().unwrap();
            let first = keys.entry(key.clone()).or_insert_with(|| (request.url.clone(), request.body.clone()));
            let is_same = *first == (request.url.clone(), request.body.clone());
            self.judge.expect("I36", is_same, || format!("the key {key} came with {:?}, and before with {first:?}", request.url));
        }
        let told = self.shop.ask(&request.url, key, &request.body).unwrap();
        if request.url.ends_with("/close") && told.answer["outcome"] == "ALREADY_PAID" {
            self.judge.reach("close-payment answered that it was already paid");
        }
        told
    }

    async fn deliver(self: Arc<Self>, request: Outgoing) -> Result<Incoming, NoAnswer> {
        let faults = *self.faults.lock().unwrap();
        let dice = &self.dice;
        self.simulation.sleep(dice.up_to(faults.latency)).await;
        if self.is_gone(&request.url) {
            return Err(NoAnswer::Connect);
        }
        if dice.chance(faults.refused) {
            let status = if dice.chance(0.5) { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
            let mut headers = HeaderMap::new();
            if status == StatusCode::TOO_MANY_REQUESTS {
                headers.insert("retry-after", HeaderValue::from_static("2"));
            }
            return Ok(Incoming { status, headers, body: Some(Bytes::from_static(b"{}")) });
        }
        if dice.chance(faults.request_lost) {
            return pending().await;
        }
        if dice.chance(faults.late) {
            self.simulation.sleep(dice.up_to(faults.late_by)).await;
        }
        let told = self.arrive(&request);
        if dice.chance(faults.twice) {
            let (street, again, after) = (Arc::clone(&self), request.clone(), dice.up_to(TWICE_WITHIN));
            self.simulation.spawn(Process::WORLD, async move {
                street.simulation.sleep(after).await;
                street.arrive(&again);
            });
        }
        self.simulation.sleep(dice.up_to(faults.latency)).await;
        if dice.chance(faults.answer_lost) {
            return pending().await;
        }
        let body = (!dice.chance(faults.cut)).then(|| Bytes::from(told.answer.to_string()));
        Ok(Incoming { status: StatusCode::from_u16(told.status).unwrap(), headers: HeaderMap::new(), body })
    }
}

/// One process's connections to the services.
pub(crate) struct Connections(pub(crate) Arc<Street>);

#[async_trait]
impl Wire for Connections {
    async fn send(&self, request: Outgoing) -> Result<Incoming, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let street = Arc::clone(&self.0);
        let key = request.headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned()).unwrap_or_default();
        street.judge.call_begins(&key, street.simulation.time());
        let under_way = UnderWay(Arc::clone(&street.judge), key);
        // On its way whatever becomes of its sender.
        self.0.simulation.spawn(Process::WORLD, async move {
            let _ = answer.send(street.deliver(request).await);
        });
        let answer = answered.await;
        drop(under_way);
        answer.unwrap_or(Err(NoAnswer::Broken))
    }
}

/// A call that its process waits for.
struct UnderWay(Arc<Judge>, String);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.call_ends(&self.1);
    }
}
