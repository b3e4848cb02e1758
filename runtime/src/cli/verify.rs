//! `verify`: checks everything that a store holds, beside the servers that use it or off line.

use std::process::ExitCode;
use std::time::Duration;

use super::args::{Connection, VerifyArgs};
use super::config::{Config, EngineSection};
use super::program::{Failure, Program};
use super::show::printable;
use super::store;
use crate::engine::Environment;
use crate::verify::{Options, Report, Violation, everything};

/// What seems wrong is left alone for so many scans before it is looked at again.
const SCANS_OF_PATIENCE: u32 = 3;
/// And for this long at least: a busy server is late with its scans.
const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// The most violations that a person is shown one by one; JSON has all.
const VIOLATIONS_SHOWN_MAX: usize = 100;

pub(super) async fn run(program: &Program, connection: &Connection, args: VerifyArgs) -> Result<ExitCode, Failure> {
    let config = Config::read(args.config.as_deref(), program.sections())?;
    let scan = config.engine().unwrap_or_else(|_| EngineSection::default()).scan;
    let environment = Environment::system();
    let code = match args.config {
        Some(_) => program.code(&config, &environment)?.0,
        None => program.code_to_read(&config, &environment),
    };
    let store = store::open_to_look(&args.store).await?;
    let patience = (scan * SCANS_OF_PATIENCE).max(PATIENCE_MIN);
    let options = Options { workflow_type: args.workflow_type, patience };
    let report = everything(store.as_ref(), &code, environment.clock.as_ref(), &options).await;
    store.close().await;
    let report = report?;
    if connection.json {
        anstream::println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Report) {
    for violation in report.violations.iter().take(VIOLATIONS_SHOWN_MAX) {
        anstream::println!("{}", line(violation));
    }
    let found = report.violations.len() as u64 + report.violations_left_out;
    let shown = report.violations.len().min(VIOLATIONS_SHOWN_MAX) as u64;
    if found > shown {
        anstream::println!("and {} more; --json names them", found - shown);
    }
    for (workflow_type, count) in &report.unknown_types {
        anstream::println!("{count} of type {workflow_type}, which this program does not know: their replay was not checked");
    }
    if report.not_replayed > 0 {
        anstream::println!("{} are blocked, or were ended when they were: their replay was not checked", report.not_replayed);
    }
    let checks: Vec<String> = report.checks.iter().map(|(invariant, count)| format!("{} {count}", invariant.id())).collect();
    anstream::println!("checked: {}", checks.join(", "));
    anstream::println!("{} workflows, {} events, {found} violations", report.workflows, report.events);
}

/// One line of printable text: ids are peer text.
fn line(violation: &Violation) -> String {
    let Violation { invariant, r#type, id, run_id, message } = violation;
    let run = run_id.map(|run_id| format!(" (run {run_id})")).unwrap_or_default();
    let of = match (r#type, id) {
        (Some(r#type), Some(id)) => format!(" {} {}", printable(r#type), printable(id)),
        _ => String::new(),
    };
    format!("{}{of}{run}: {}", invariant.id(), printable(message))
}
