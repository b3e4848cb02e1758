//! Kills the engine while it works, as often as planned.

use std::time::{Duration, Instant};

use super::fleet::Fleet;
use super::progress::Progress;
use super::sleep_until;
use crate::sandbox::Shop;

/// A kill waits so long for a call to be under way; then nothing is due and the kill comes anyway.
const WORK_LIMIT: Duration = Duration::from_millis(1500);
/// How closely the shop is watched for a call.
const GLANCE: Duration = Duration::from_millis(2);

/// Kills and restarts at each of these times, in order.
pub(super) async fn run(fleet: &mut Fleet, shop: &Shop, times: &[Instant], progress: &Progress) -> anyhow::Result<()> {
    for time in times {
        sleep_until(*time).await;
        wait_for_a_call(shop).await;
        let down = fleet.kill_and_restart().await?;
        let down_ms = down.until.duration_since(down.from).as_millis();
        let which = if fleet.nodes() == 1 { "the engine" } else { "a node" };
        progress.say(&format!("{which} was killed with SIGKILL and is back after {down_ms} ms"));
    }
    Ok(())
}

/// Returns just after the shop got a request: the engine then waits for its answer or is about to record it.
async fn wait_for_a_call(shop: &Shop) {
    let (begun, seen) = (Instant::now(), shop.counts().requests);
    while shop.counts().requests == seen && begun.elapsed() < WORK_LIMIT {
        tokio::time::sleep(GLANCE).await;
    }
}
