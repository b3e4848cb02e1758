//! `replay`: runs this program's workflows over stored histories, as a check before it is deployed.

use std::process::ExitCode;

use serde::Serialize;

use super::args::{Connection, ReplayArgs};
use super::config::{Config, EngineSection};
use super::program::{Failure, Program};
use super::store;
use crate::engine::{Environment, Registries};
use crate::history::decode;
use crate::id::WorkflowKey;
use crate::replay::Machine;
use crate::store::{Filter, Loaded, Store};

/// How many histories are read at once.
const PAGE: usize = 500;

#[derive(Default, Serialize)]
struct Report {
    workflows: u64,
    /// Of these, how many have no history any more.
    retired: u64,
    events: u64,
    faults: Vec<Fault>,
}

#[derive(Serialize)]
struct Fault {
    r#type: String,
    id: String,
    error_type: &'static str,
    message: String,
}

pub(super) async fn run(program: &Program, connection: &Connection, args: ReplayArgs) -> Result<ExitCode, Failure> {
    let config = Config::read(args.config.as_deref(), program.sections())?;
    let shards = config.engine().unwrap_or_else(|_| EngineSection::default()).shards;
    let (code, _) = program.code(&config, &Environment::system())?;
    store::check_exists(&args.store).await?;
    let store = store::open(&args.store, shards).await?;
    let report = replay_all(store.as_ref(), &code, args.workflow_type).await;
    store.close().await;
    let report = report?;
    if connection.json {
        anstream::println!("{}", serde_json::to_string(&report)?);
    } else {
        for fault in &report.faults {
            anstream::println!("{} {}: {}", fault.r#type, fault.id, fault.message);
        }
        anstream::println!("{} workflows, {} events, {} faults", report.workflows, report.events, report.faults.len());
    }
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn replay_all(store: &dyn Store, code: &Registries, workflow_type: Option<String>) -> Result<Report, Failure> {
    let filter = Filter { workflow_type, ..Filter::default() };
    let mut report = Report::default();
    let mut after = None;
    loop {
        let page = store.list(&filter, after.as_ref(), PAGE).await?;
        let keys: Vec<WorkflowKey> = page.rows.into_iter().map(|listed| listed.execution.key).collect();
        for loaded in store.load(&keys).await?.into_iter().flatten() {
            replay_one(code, &loaded, &mut report);
        }
        after = page.next;
        if after.is_none() {
            return Ok(report);
        }
    }
}

fn replay_one(code: &Registries, loaded: &Loaded, report: &mut Report) {
    let (key, run_id) = (&loaded.execution.key, loaded.execution.run_id);
    report.workflows += 1;
    if loaded.execution.retired {
        report.retired += 1;
        return;
    }
    let fault =
        |error_type, message| Fault { r#type: key.workflow_type().to_owned(), id: key.id().to_owned(), error_type, message };
    match decode(run_id, &loaded.records) {
        Ok((events, _)) => {
            report.events += events.len() as u64;
            if let Err(found) = Machine::replay(&code.workflows, key, run_id, &events) {
                report.faults.push(fault(found.error_type(), found.to_string()));
            }
        }
        Err(error) => report.faults.push(fault("history", error.to_string())),
    }
}
