//! What a job does while its node cannot act.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::client::StartRequest;
use crate::engine::{EngineConfig, Environment};
use crate::history::EventKind;
use crate::payload::Payload;
use crate::store::{CommitFailure, ModelStore, Status, Store};
use crate::testing::{ManualClock, eventually, manual_environment};
use crate::time::Timestamp;
use crate::workflow::{ByHandOutcome, ByHandStep, Workflow, WorkflowContext, WorkflowError};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const IDS: [&str; 3] = ["a", "b", "c"];

/// Leaves one step to a person.
struct Asks;

#[async_trait]
impl Workflow for Asks {
    const TYPE: &'static str = "asks";
    type Input = ();
    type Output = &'static str;

    async fn run(&self, ctx: WorkflowContext, (): ()) -> Result<&'static str, WorkflowError> {
        let said: ByHandOutcome<()> = ctx.by_hand("review", &(), "look at it").await?;
        Ok(if matches!(said, ByHandOutcome::Skipped { .. }) { "skipped" } else { "reviewed" })
    }

    fn by_hand_steps(&self) -> Vec<ByHandStep> {
        vec![ByHandStep::of::<()>("review")]
    }
}

struct Node {
    store: Arc<ModelStore>,
    clock: ManualClock,
    client: Client,
    jobs: Jobs,
}

impl Node {
    /// A node with three workflows that ask, whose jobs have no client yet.
    async fn start() -> Self {
        let (environment, clock): (Environment, _) = manual_environment(START, 7);
        let store = Arc::new(ModelStore::new(4));
        let mut code = Registries::default();
        code.workflows.register(Asks);
        let jobs = Jobs::register(&mut code);
        let engine = Engine::start(store.clone() as Arc<dyn Store>, code, environment, EngineConfig::default()).await.unwrap();
        let client = Client::new(engine);
        for id in IDS {
            let (workflow_type, input) = ("asks".to_owned(), Payload::null());
            let (start_at, attributes, traceparent) = (None, Default::default(), None);
            let request = StartRequest { workflow_type, id: id.into(), input, start_at, attributes, traceparent };
            client.start(request).await.unwrap();
        }
        Self { store, clock, client, jobs }
    }

    async fn skip_all(&self, id: &str) {
        let request = JobRequest::new(JobAction::Skip, JobFilter::default(), "a drill", "dana");
        self.client.start_job(Some(id.into()), &JobRequest { per_second: 1, ..request }).await.unwrap();
    }

    /// How often somebody decided about the step of this workflow.
    async fn decisions(&self, id: &str) -> usize {
        let events = self.client.history("asks", id, 0, 100).await.unwrap().events;
        events.iter().filter(|event| matches!(event.kind, EventKind::ActivitySkipped { .. })).count()
    }

    async fn until_decided(&self, id: &str) {
        eventually("somebody decides", || async { (self.decisions(id).await > 0).then_some(()) }).await;
    }

    async fn ended(&self, id: &str) -> JobView {
        let look = || async {
            let view = self.client.job(id).await.unwrap();
            self.clock.advance(Duration::from_millis(100));
            view.closed_at.is_some().then_some(view)
        };
        eventually("the job ends", look).await
    }
}

#[tokio::test]
async fn an_item_that_nobody_can_take_now_is_tried_again_and_the_others_are_done_meanwhile_and_once() {
    let node = Node::start().await;
    node.jobs.attach(&node.client);
    node.skip_all("j").await;
    node.until_decided("a").await;

    // Between two items nothing else is written.
    node.store.fail_next_commit(CommitFailure::Unavailable);
    let others = || async {
        node.clock.advance(Duration::from_millis(100));
        (node.decisions("c").await == 1).then_some(())
    };
    eventually("the last item is done", others).await;
    assert_eq!(node.decisions("b").await, 0, "it is not its turn yet");
    let view = node.ended("j").await;

    assert_eq!((view.status, &view.progress.outcomes), (Status::Completed, &[(OutcomeOfItem::Applied, 3)].into()));
    for id in IDS {
        assert_eq!(node.decisions(id).await, 1, "{id}");
    }
}

#[tokio::test]
async fn a_job_waits_for_the_client_of_its_node_and_costs_no_attempt_until_then() {
    let node = Node::start().await;
    node.skip_all("j").await;
    let waits = || async {
        let pending = node.client.describe(JOB_TYPE, "j").await.unwrap().pending_activities;
        pending.first().filter(|step| step.last_failure.is_some()).map(|step| step.attempt)
    };
    assert_eq!(eventually("the first call has failed", waits).await, 0);

    node.jobs.attach(&node.client);
    assert_eq!(node.ended("j").await.progress.outcomes, [(OutcomeOfItem::Applied, 3)].into());
}
