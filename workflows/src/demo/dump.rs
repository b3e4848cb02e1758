//! Leaves the evidence as files, so that anyone can repeat the judgement with other tools.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use super::engine::Down;
use super::evidence::Evidence;
use super::report::Report;

const README: &str = include_str!("README.txt");

/// Writes everything into the folder, replacing what an earlier run left there.
pub(super) fn write(
    folder: &Path,
    evidence: &Evidence,
    report: &Report,
    downs: &[Down],
    engine_log: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (service, records) in &evidence.ledgers {
        lines(folder, &format!("{}.ndjson", service.name()), records)?;
    }
    let stories: Vec<_> = evidence.stories.iter().map(|(id, story)| json!({ "orderId": id, "story": story })).collect();
    lines(folder, "stories.ndjson", &stories)?;
    lines(folder, "executions.ndjson", &evidence.executions)?;
    lines(folder, "histories.ndjson", &history_lines(evidence))?;
    lines(folder, "signals.ndjson", &evidence.signals)?;
    lines(folder, "kills.ndjson", downs)?;
    std::fs::write(folder.join("summary.json"), format!("{:#}\n", report.json())).context("cannot write the summary")?;
    std::fs::write(folder.join("README.txt"), README).context("cannot write README.txt")?;
    std::fs::copy(engine_log, folder.join("engine.log")).context("cannot copy the engine's log")?;
    Ok(())
}

/// One event a line, with the execution it belongs to.
fn history_lines(evidence: &Evidence) -> Vec<Value> {
    let of_execution = |execution: &super::evidence::Execution| {
        let owner = json!({ "type": execution.kind, "id": execution.id, "runId": execution.run_id });
        execution.events.iter().map(move |event| with_owner(&owner, event)).collect::<Vec<_>>()
    };
    evidence.executions.iter().flat_map(of_execution).collect()
}

fn with_owner(owner: &Value, event: &Value) -> Value {
    let mut line = event.clone();
    if let (Some(line), Some(owner)) = (line.as_object_mut(), owner.as_object()) {
        line.extend(owner.clone());
    }
    line
}

fn lines<T: Serialize>(folder: &Path, name: &str, items: &[T]) -> anyhow::Result<()> {
    let path = folder.join(name);
    let failed = || format!("cannot write {}", path.display());
    let mut file = BufWriter::new(File::create(&path).with_context(failed)?);
    for item in items {
        serde_json::to_writer(&mut file, item).with_context(failed)?;
        file.write_all(b"\n").with_context(failed)?;
    }
    file.flush().with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_line_names_its_execution() {
        let owner = json!({ "type": "order-timeout", "id": "o-1", "runId": "r-1" });
        let line = with_owner(&owner, &json!({ "number": 1, "kind": "WorkflowStarted" }));
        assert_eq!((&line["id"], &line["runId"], &line["number"]), (&json!("o-1"), &json!("r-1"), &json!(1)));
    }

    #[test]
    fn the_ledgers_left_behind_are_the_ones_that_were_judged() {
        use crate::sandbox::{Effect, EffectRecord, Record, Service, read_ledger};
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "").unwrap();
        let effect = EffectRecord {
            n: 1,
            service: Service::Stock,
            subject: "cup".into(),
            key: None,
            at: jiff::Timestamp::UNIX_EPOCH,
            effect: Effect::StockAdded { quantity: 3 },
        };
        let mut evidence = Evidence::default();
        evidence.ledgers.insert(Service::Stock, vec![Record::Effect(effect)]);
        let report = Report::new((7, 1), &evidence, &super::super::audit::audit(&evidence), &[], std::time::Duration::ZERO);

        let out = folder.path().join("out");
        write(&out, &evidence, &report, &[], &log).unwrap();

        assert_eq!(read_ledger(&out.join("stock.ndjson")).unwrap(), evidence.ledgers[&Service::Stock]);
        assert!(out.join("README.txt").exists() && out.join("histories.ndjson").exists());
    }
}
