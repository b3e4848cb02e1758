//! What the test runner passes on to a target that has no harness and reads its own command line.

use clap::Args;

#[derive(Args)]
pub(crate) struct Runner {
    /// Names of tests: the target's own, or none of it.
    #[arg(hide = true)]
    filter: Vec<String>,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    #[arg(long, hide = true)]
    list: bool,
    #[arg(long, hide = true)]
    ignored: bool,
}

impl Runner {
    /// Whether the runner asks for something else than the target of this name.
    pub(crate) fn is_elsewhere(&self, target: &str) -> bool {
        let is_named = self.filter.is_empty() || self.filter.iter().any(|name| target.contains(name.as_str()));
        self.list || self.ignored || !is_named
    }
}
