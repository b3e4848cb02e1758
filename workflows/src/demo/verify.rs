//! The last look: at what the store holds, beside the engines that run on it.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context;
use serde::Deserialize;
use tokio::process::Command;

use super::audit::Violation;

/// The report of `verify`, as far as it is of use here.
#[derive(Deserialize)]
struct Report {
    violations: Vec<Found>,
    violations_left_out: u64,
}

#[derive(Deserialize)]
struct Found {
    invariant: String,
    id: Option<String>,
    message: String,
}

/// Runs `verify` on the store; what it finds.
pub(super) async fn look(store: &str, config: &Path) -> anyhow::Result<Vec<Violation>> {
    let binary = std::env::current_exe().context("this program does not know its own file")?;
    let mut command = Command::new(&binary);
    command.args(["verify", "--json", "--store", store, "--config"]).arg(config).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("cannot start {}", binary.display()))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let report: Report = serde_json::from_str(stdout.lines().last().unwrap_or_default())
        .with_context(|| format!("the store cannot be verified: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let mut violations: Vec<Violation> = report.violations.into_iter().map(of).collect();
    if report.violations_left_out > 0 {
        violations.push(Violation::of_store(format!("verify found {} more", report.violations_left_out)));
    }
    Ok(violations)
}

fn of(found: Found) -> Violation {
    let Found { invariant, id, message } = found;
    let order_id = id.as_deref().and_then(|id| id.split('~').next()).unwrap_or("*").to_owned();
    Violation { order_id, ..Violation::of_store(format!("{invariant}: {message}")) }
}
