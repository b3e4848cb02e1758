//! The arguments of `deadlines`.

use clap::{Args, Subcommand};

use super::{ListArgs, Target};

#[derive(Args)]
pub(in crate::cli) struct DeadlinesArgs {
    #[command(subcommand)]
    pub(in crate::cli) task: DeadlinesTask,
}

#[derive(Subcommand)]
pub(in crate::cli) enum DeadlinesTask {
    /// List open workflows by the time they are due, the earliest first
    List(ListArgs),
    /// Count how many workflows become due in each minute
    Forecast(ForecastArgs),
    /// Move a workflow's deadline, later or earlier
    Set(SetArgs),
}

#[derive(Args)]
pub(in crate::cli) struct ForecastArgs {
    /// Where the first minute begins (RFC 3339); where the present one began, if left out
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) from: Option<String>,
    /// How many minutes, 1 to 1440
    #[arg(long, default_value_t = 60)]
    pub(in crate::cli) minutes: usize,
    /// Only this workflow type
    #[arg(long = "type", value_name = "TYPE")]
    pub(in crate::cli) workflow_type: Option<String>,
}

#[derive(Args)]
pub(in crate::cli) struct SetArgs {
    #[command(flatten)]
    pub(in crate::cli) target: Target,
    /// When it is to be due (RFC 3339); an instant in the past is due at once
    #[arg(value_name = "TIME")]
    pub(in crate::cli) deadline: String,
    /// Why: recorded with who
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) reason: String,
}
