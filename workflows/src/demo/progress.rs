//! What a person sees while the demo runs: a bar on a terminal, plain lines elsewhere, both on stderr.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::sandbox::{FaultKind, Shop};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);
/// How many ticks lie between two plain lines.
const TICKS_PER_LINE: u32 = 10;

/// The live progress of a run.
#[derive(Clone)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    orders: u64,
}

/// Watching ends when this is dropped.
pub(super) struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Progress {
    pub(super) fn new(orders: u32) -> Progress {
        let orders = u64::from(orders);
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("[{elapsed}] {bar:30} {pos}/{len} decided  {msg}")
                .expect("the template is a constant");
            ProgressBar::new(orders).with_style(style)
        });
        Progress { bar, orders }
    }

    /// Says something that stays on the screen.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// Follows the shop's counts from now on.
    pub(super) fn watch(&self, shop: Arc<Shop>) -> Watching {
        let progress = self.clone();
        Watching(tokio::spawn(async move {
            for tick in 0u32.. {
                progress.show(&shop, tick % TICKS_PER_LINE == 0);
                tokio::time::sleep(TICK).await;
            }
        }))
    }

    fn show(&self, shop: &Shop, line_is_due: bool) {
        let decided = shop.decided();
        let counts = shop.counts();
        let text = format!(
            "{} paid, {} cancelled; {} calls, {} timeouts, {} times 503, {} times 429",
            decided.paid,
            decided.cancelled,
            counts.requests,
            counts.faults(FaultKind::TimeoutAfterEffect),
            counts.faults(FaultKind::Unavailable),
            counts.faults(FaultKind::Throttled),
        );
        let position = decided.paid + decided.cancelled;
        match &self.bar {
            Some(bar) => {
                bar.set_position(position);
                bar.set_message(text);
            }
            None if line_is_due => eprintln!("{position}/{} decided: {text}", self.orders),
            None => {}
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
