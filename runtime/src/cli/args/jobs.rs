//! The arguments of `attention` and `jobs`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::duration::parse_duration;

#[derive(Args)]
pub(in crate::cli) struct AttentionArgs {
    #[command(flatten)]
    pub(in crate::cli) steps: StepFilter,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(in crate::cli) limit: usize,
}

/// Which steps that wait for a person.
#[derive(Args)]
pub(in crate::cli) struct StepFilter {
    /// Only this workflow type
    #[arg(long = "type", value_name = "TYPE")]
    pub(in crate::cli) workflow_type: Option<String>,
    /// Only steps of this name, such as release-stock
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) activity: Option<String>,
    /// Only steps with a last failure of this kind, such as http-422, or by-hand
    #[arg(long, value_name = "KIND")]
    pub(in crate::cli) failure: Option<String>,
    /// Only with this search attribute, NAME=VALUE; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub(in crate::cli) attributes: Vec<String>,
}

#[derive(Args)]
pub(in crate::cli) struct JobsArgs {
    #[command(subcommand)]
    pub(in crate::cli) task: JobsTask,
}

#[derive(Subcommand)]
pub(in crate::cli) enum JobsTask {
    /// Do one thing with many: with steps that wait for a person, or with deadlines
    Start(Box<JobStartArgs>),
    /// List the jobs
    List(JobListArgs),
    /// Show what a job was asked for and how far it is
    Show {
        /// The job's id
        id: String,
    },
    /// List a job's items, and what became of each
    Items {
        /// The job's id
        id: String,
    },
    /// Ask a job to stop; what it did stays done
    Cancel {
        /// The job's id
        id: String,
        /// Why: recorded with who
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(in crate::cli) enum JobWord {
    /// Try steps again now
    Retry,
    /// Give steps a result by hand (--result)
    Resolve,
    /// Decide that steps are not to be done
    Skip,
    /// Set deadlines to one time (--to)
    SetDeadline,
    /// Move deadlines by a duration (--later or --earlier)
    MoveDeadline,
}

#[derive(Args)]
pub(in crate::cli) struct JobStartArgs {
    /// What to do with each item
    #[arg(value_name = "ACTION")]
    pub(in crate::cli) action: JobWord,
    #[command(flatten)]
    pub(in crate::cli) steps: StepFilter,
    /// Only deadlines at this time (RFC 3339) or later
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) due_after: Option<String>,
    /// Only deadlines before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) due_before: Option<String>,
    /// The result that steps get: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(in crate::cli) result: Option<String>,
    /// When workflows are to be due (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) to: Option<String>,
    /// By how much deadlines come later
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "earlier")]
    pub(in crate::cli) later: Option<Duration>,
    /// By how much deadlines come earlier
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(in crate::cli) earlier: Option<Duration>,
    /// How many items a second at most
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(in crate::cli) per_second: u32,
    /// Only select the items, and change nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// The job's id: the same command again is then the same job; a new one, if left out
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) id: Option<String>,
    /// Why: recorded with who, with each item
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) reason: String,
}

#[derive(Args)]
pub(in crate::cli) struct JobListArgs {
    /// Only jobs about this workflow type
    #[arg(long = "type", value_name = "TYPE")]
    pub(in crate::cli) workflow_type: Option<String>,
    /// Only this status: running, completed, failed, cancelled, terminated or blocked
    #[arg(long)]
    pub(in crate::cli) status: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(in crate::cli) limit: usize,
}
