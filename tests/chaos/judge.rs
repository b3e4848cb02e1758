//! The judgement of a round, when everything has healed; and the look at the store in the middle of it.

use std::time::{Duration, Instant};

use overdue_workflows::demo;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::figures::Figures;
use crate::node::program;
use crate::plan::Plan;
use crate::world::World;

/// So long after all faults every order of the round has ended.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
const VERIFY_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// What still moves: executions that are open, starts that nobody has taken up, signals that nobody has read.
const UNSETTLED: &str = "SELECT 'open ' || id FROM overdue.executions WHERE closed_at IS NULL AND id LIKE $1
    UNION ALL SELECT 'start ' || id FROM overdue.starts WHERE refused IS NULL AND id LIKE $1
    UNION ALL SELECT 'unread signal of ' || id FROM overdue.inbox WHERE NOT held AND id LIKE $1";

/// Waits until all orders of the round have ended. They could have from `healed` on.
pub(crate) async fn settled(world: &World, plan: &Plan, healed: Instant, figures: &mut Figures) {
    let like = format!("{}%", plan.prefix);
    loop {
        let unsettled = match world.session().await {
            Ok(mut session) => sqlx::query_scalar::<_, String>(UNSETTLED).bind(&like).fetch_all(&mut session).await,
            Err(error) => Err(error),
        };
        if unsettled.as_ref().is_ok_and(Vec::is_empty) {
            return figures.recoveries.push(healed.elapsed());
        }
        if healed.elapsed() > RECOVERY_MAX {
            world.log.violated(format!("these have not ended {:?} after the last fault: {unsettled:?}", healed.elapsed()));
            return figures.recoveries.push(healed.elapsed());
        }
        sleep(POLL).await;
    }
}

/// Applies the rules of the audit to the round.
pub(crate) async fn judge(world: &World, plan: &Plan) {
    let orders: Vec<String> = plan.orders.iter().map(|order| order.id.clone()).collect();
    match demo::judge(&world.any_url(), &world.shop, &orders, &world.log.signals(&orders)).await {
        Ok(violations) => violations.into_iter().for_each(|violation| world.log.violated(violation)),
        Err(error) => world.log.violated(format!("the round cannot be judged: {error:#}")),
    }
    for order in &orders {
        let runs = world.log.runs(order);
        if runs.len() > 1 {
            world.log.violated(format!("{order} was acknowledged as several runs: {runs:?}"));
        }
    }
    let violations = world.log.violations();
    for order in orders.iter().filter(|order| violations.iter().any(|violation| violation.contains(order.as_str()))) {
        keep(world, order).await;
    }
}

/// Keeps the story of an order that something is wrong with.
async fn keep(world: &World, order: &str) {
    let path = format!("{}/v1/workflows/order-timeout/{order}", world.any_url());
    for (what, path) in [("described", path.clone()), ("history", format!("{path}/history?limit=1000"))] {
        if let Ok(answer) = world.http.get(path).send().await {
            let _ = std::fs::write(world.folder.join(format!("{order}.{what}.json")), answer.text().await.unwrap_or_default());
        }
    }
}

/// Looks at everything in a store, beside whatever happens to it.
pub(crate) async fn verify(world: &World, store: &str, must_answer: bool, figures: &mut Figures) {
    let mut command = program(&["verify", "--json", "--store", store, "--config"]);
    command.arg(world.folder.join("overdue.toml"));
    let output = match timeout(VERIFY_MAX, command.output()).await {
        Ok(output) => output.unwrap(),
        Err(_) => return world.log.violated(format!("verify takes longer than {VERIFY_MAX:?}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Option<Value> = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let Some(report) = report.filter(|report| report["checks"].is_object()) else {
        figures.unanswered += 1;
        if must_answer {
            let said = String::from_utf8_lossy(&output.stderr);
            world.log.violated(format!("verify fails on a database that is well: {}", said.trim()));
        }
        return;
    };
    figures.verifications += 1;
    figures.checks += report["checks"].as_object().map_or(0, |checks| checks.values().filter_map(Value::as_u64).sum());
    let violations = report["violations"].as_array().map_or(&[][..], Vec::as_slice);
    for violation in violations {
        world.log.violated(format!("verify: {violation}"));
    }
    if !violations.is_empty() {
        std::fs::write(world.folder.join("verify.json"), report.to_string()).unwrap();
    }
}
