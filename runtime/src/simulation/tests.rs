//! The simulation itself: the same seed is the same run, another seed another, and processes are struck in the middle
//! of what they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::activity::{Activity, ActivityContext, ActivityFailure};
use crate::client::StartRequest;
use crate::engine::{EngineConfig, Registries};
use crate::payload::Payload;
use crate::store::{ModelStore, Sharing, Status};
use crate::workflow::{Workflow, WorkflowContext, WorkflowError};

const STEPS_MAX: u64 = 2_000_000;
const ROUNDS: u64 = 20;

struct Naps;

#[async_trait]
impl Workflow for Naps {
    const TYPE: &'static str = "naps";
    type Input = ();
    type Output = String;

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        ctx.sleep(Duration::from_secs(30)).await?;
        Ok(ctx.activity::<Echo>(&"woke".to_owned()).await?)
    }
}

struct Echo;

#[async_trait]
impl Activity for Echo {
    const NAME: &'static str = "echo";
    type Input = String;
    type Output = String;

    async fn execute(&self, _: &ActivityContext, input: String) -> Result<String, ActivityFailure> {
        Ok(input)
    }
}

struct Ran {
    trace: u64,
    findings: Findings,
    completed: usize,
}

/// What befalls the database besides.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    Nothing,
    /// A failover to a standby that was some seconds behind.
    Tail,
}

/// Twenty naps on three nodes, one of which is killed again and again; then everything behaves.
fn run(seed: u64) -> Ran {
    run_with(seed, Loss::Nothing)
}

fn run_with(seed: u64, loss: Loss) -> Ran {
    let simulation = Simulation::new(seed);
    let judge = Arc::new(Judge::new(Sharing::Shared, 6));
    let time = simulation.clone();
    let model = Arc::new(ModelStore::shared(6, Some(Arc::new(move || time.time()))));
    let database = Database::new(&simulation, Backing::Model(Arc::clone(&model)), Arc::clone(&judge));
    let latency = Duration::from_millis(2);
    database.set_faults(StoreFaults {
        latency,
        request_lost: 0.02,
        answer_lost: 0.02,
        limbo: 0.02,
        limbo_length: Duration::from_secs(20),
        ..StoreFaults::default()
    });
    let config = EngineConfig { lease: Duration::from_secs(8), scan: Duration::from_secs(2), ..EngineConfig::default() };
    let plans = (0..3).map(|n| NodePlan { config: config.clone(), drift_ppm: n * 100, ahead: n * 1_000_000 }).collect();
    let cluster = Cluster::new(&database, plans, |_| {
        let mut code = Registries::default();
        code.workflows.register(Naps);
        code.activities.register(Echo);
        code
    });
    cluster.set_links(LinkFaults { latency, lost: 0.05 });
    let scenario = {
        let (cluster, simulation, model) = (Arc::clone(&cluster), simulation.clone(), Arc::clone(&model));
        async move {
            (0..3).for_each(|place| cluster.start(place));
            let dice = simulation.dice();
            for round in 0..ROUNDS {
                let place = usize::try_from(round % 3).unwrap();
                cluster.strike_after(2, u32::try_from(dice.below(40)).unwrap(), Strike::Kill);
                let request = start(&format!("nap-{round}"));
                cluster.ask(place, Duration::from_secs(5), |client| Box::pin(async move { client.start(request).await })).await;
                if cluster.is_dead(2) {
                    cluster.start(2);
                }
            }
            let image = (loss == Loss::Tail).then(|| model.image());
            simulation.sleep(Duration::from_secs(20)).await;
            if let Some(image) = image {
                model.lose_tail(image);
            }
            cluster.database().set_faults(StoreFaults { latency, ..StoreFaults::default() });
            simulation.sleep(Duration::from_secs(120)).await;
        }
    };
    let ended = simulation.run(STEPS_MAX, scenario);
    assert!(ended.is_some(), "seed {seed}: not over after {STEPS_MAX} steps");
    let rows = database.backing().inline(database.backing().store().list(&Default::default(), None, 100)).unwrap().rows;
    let completed = rows.iter().filter(|row| row.execution.status == Status::Completed).count();
    assert!(loss == Loss::Tail || completed == rows.len(), "seed {seed}: every nap that was begun ends");
    simulation.end();
    Ran { trace: simulation.trace(), findings: judge.findings(), completed }
}

fn start(id: &str) -> StartRequest {
    StartRequest {
        workflow_type: "naps".into(),
        id: id.into(),
        input: Payload::of(&()).unwrap(),
        start_at: None,
        attributes: BTreeMap::new(),
        traceparent: None,
    }
}

#[test]
fn naps_end_on_nodes_that_are_killed_and_nothing_is_broken() {
    let mut reached = BTreeMap::new();
    for seed in 0..10 {
        let ran = run(seed);
        assert_eq!(ran.findings.broken, [], "seed {seed}");
        assert!(ran.completed > 0, "seed {seed}");
        reached.extend(ran.findings.reached);
    }
    assert!(reached.contains_key("node taken over"), "{reached:?}");
}

#[test]
fn a_failover_that_lost_a_tail_is_noticed() {
    let noticed = (0..6).filter(|seed| !run_with(*seed, Loss::Tail).findings.broken.is_empty()).count();
    assert_eq!(noticed, 6, "in every run something acknowledged was lost");
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_step() {
    assert_eq!(run(7).trace, run(7).trace);
    assert_ne!(run(7).trace, run(8).trace);
}
