//! A deadline workflow of your own: a group buy that needs three members before its deadline.
//!
//! The whole product comes with it: `cargo run --example group_buy -- serve --store sqlite:group-buy.db`, then
//!
//! ```text
//! overdue start group-buy g1 --input '{"deadline":"2030-01-01T00:00:00Z"}'
//! overdue signal group-buy g1 joined --payload '{"member":"ann"}'      (three of them)
//! overdue describe group-buy g1
//! ```
//!
//! shows `completed` and the result `{"members":["ann","bob","eve"],"formed":true}`.

use std::process::ExitCode;

use async_trait::async_trait;
use overdue_runtime::Timestamp;
use overdue_runtime::activity::{Activity, ActivityContext, ActivityFailure};
use overdue_runtime::cli::Program;
use overdue_runtime::workflow::{Either, Signal, SignalDeclaration, Workflow, WorkflowContext, WorkflowError, race};
use serde::{Deserialize, Serialize};

const MEMBERS_NEEDED: usize = 3;

#[derive(Serialize, Deserialize)]
struct Group {
    deadline: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Joined {
    member: String,
}

impl Signal for Joined {
    const NAME: &'static str = "joined";

    fn subject(&self) -> Option<String> {
        Some(self.member.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct Outcome {
    members: Vec<String>,
    formed: bool,
}

struct GroupBuy;

#[async_trait]
impl Workflow for GroupBuy {
    const TYPE: &'static str = "group-buy";
    type Input = Group;
    type Output = Outcome;

    async fn run(&self, ctx: WorkflowContext, group: Group) -> Result<Outcome, WorkflowError> {
        let mut members = Vec::new();
        let mut deadline = ctx.sleep_until(group.deadline).named("deadline");
        while members.len() < MEMBERS_NEEDED {
            match race(ctx.signal::<Joined>(), &mut deadline).await {
                Either::Left(joined) => members.push(joined?.into_value().member),
                Either::Right(fired) => {
                    fired?;
                    ctx.activity::<Dissolve>(&members).await?;
                    return Ok(Outcome { members, formed: false });
                }
            }
        }
        Ok(Outcome { members, formed: true })
    }

    fn signals(&self) -> Vec<SignalDeclaration> {
        vec![SignalDeclaration::of::<Joined>()]
    }
}

struct Dissolve;

#[async_trait]
impl Activity for Dissolve {
    const NAME: &'static str = "dissolve-group";
    type Input = Vec<String>;
    type Output = usize;

    async fn execute(&self, ctx: &ActivityContext, members: Vec<String>) -> Result<usize, ActivityFailure> {
        println!("{}: tell {} that the group did not form", ctx.idempotency_key(), members.join(", "));
        Ok(members.len())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::new("group-buy", "1.0.0", "Group buys that form, or dissolve at their deadline");
    let program = program.registering(&[], |_, _, code| {
        code.workflows.register(GroupBuy);
        code.activities.register(Dissolve);
        Ok::<(), std::io::Error>(())
    });
    program.run().await
}
