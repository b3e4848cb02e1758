//! The commands and their arguments.

mod deadlines;
mod jobs;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub(super) use self::deadlines::{DeadlinesArgs, DeadlinesTask, ForecastArgs, SetArgs};
pub(super) use self::jobs::{AttentionArgs, JobListArgs, JobStartArgs, JobsArgs, JobsTask, StepFilter};
use crate::duration::parse_duration;

#[derive(Parser)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) task: Task,
}

/// How a command reaches a server, and how it writes.
#[derive(Args, Clone, Debug)]
pub(super) struct Connection {
    /// The server's URL
    #[arg(long, global = true, env = "OVERDUE_URL", default_value = "http://127.0.0.1:7070")]
    pub(super) url: String,
    /// The token to show to the server
    #[arg(long, global = true, env = "OVERDUE_TOKEN", hide_env_values = true)]
    pub(super) token: Option<String>,
    /// Write JSON, for scripts
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Subcommand)]
pub(super) enum Task {
    /// Run a node with its HTTP API
    Serve(ServeArgs),
    /// Start a workflow
    Start(StartArgs),
    /// Send a signal to a workflow, started or not
    Signal(SignalArgs),
    /// Show where a workflow stands
    Describe(Target),
    /// Say in one paragraph why a workflow stands where it stands, and what can be done
    Explain(Target),
    /// Show a workflow's history
    History(HistoryArgs),
    /// List workflows
    List(ListArgs),
    /// Ask a workflow to stop
    Cancel(EndArgs),
    /// End a workflow at once, without asking it
    Terminate(EndArgs),
    /// Try an activity again now
    Retry(DecideArgs),
    /// Give an activity's result by hand
    Resolve(ResolveArgs),
    /// Decide that an activity is not to be done
    Skip(DecideArgs),
    /// List the steps that wait for a person
    Attention(AttentionArgs),
    /// Do one thing with many workflows: durable, at a rate, with a dry run and a result for each
    Jobs(JobsArgs),
    /// List what is due when, count it ahead, and move deadlines
    Deadlines(DeadlinesArgs),
    /// List circuit breakers, and open or close them by hand
    Breaker(BreakerArgs),
    /// List events that those outside do not have yet; have them sent, or not
    Outbox(OutboxArgs),
    /// Make, list and revoke the tokens of the HTTP API
    Token(TokenArgs),
    /// Replay stored histories with this program, as a check before it is deployed
    Replay(ReplayArgs),
    /// Check everything that a store holds, beside servers that use it or off line; nothing is changed
    Verify(VerifyArgs),
    /// Bring a store that an older program wrote to this program's schema
    Migrate(MigrateArgs),
    /// Move a store into another one, with its workflows in flight; neither may be served meanwhile
    Copy(CopyArgs),
    /// Print the HTTP API's OpenAPI description
    Openapi,
}

#[derive(Args)]
pub(super) struct ServeArgs {
    /// The store: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    pub(super) store: Option<String>,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// Where other nodes reach this one, if not at the address that it listens on
    #[arg(long, value_name = "URL")]
    pub(super) advertise: Option<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Bring an older store to this program's schema first
    #[arg(long)]
    pub(super) migrate: bool,
    /// Remove the history of a workflow this long after its end, such as 30d; its id stays taken
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(super) retain: Option<Duration>,
}

/// Names a workflow.
#[derive(Args, Clone, Debug)]
pub(super) struct Target {
    /// Workflow type
    #[arg(value_name = "TYPE")]
    pub(super) workflow_type: String,
    /// Workflow id
    pub(super) id: String,
}

#[derive(Args)]
pub(super) struct StartArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// The input: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(super) input: String,
    /// When to begin (RFC 3339), if not at once
    #[arg(long, value_name = "TIME")]
    pub(super) start_at: Option<String>,
    /// A search attribute, NAME=VALUE; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub(super) attributes: Vec<String>,
    /// Wait until the workflow has ended: exit code 0 when it completed, 1 when it did not, 3 when it still runs
    #[arg(long)]
    pub(super) wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration, requires = "wait")]
    pub(super) timeout: Duration,
}

#[derive(Args)]
pub(super) struct SignalArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Name of the signal
    pub(super) name: String,
    /// The payload: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(super) payload: String,
    /// Identifies the delivery; a second one with the same id is a duplicate
    #[arg(long, value_name = "ID")]
    pub(super) signal_id: Option<String>,
}

#[derive(Args)]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Begin behind this event
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(super) after: u64,
    /// Go on with events as they happen, to the end
    #[arg(long)]
    pub(super) follow: bool,
}

#[derive(Args)]
pub(super) struct ListArgs {
    /// Only this workflow type
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) workflow_type: Option<String>,
    /// Only this status: running, completed, failed, cancelled, terminated or blocked
    #[arg(long)]
    pub(super) status: Option<String>,
    /// Only workflows with a step that waits for a person
    #[arg(long)]
    pub(super) needs_attention: bool,
    /// Only open workflows that are due at this time (RFC 3339) or later
    #[arg(long, value_name = "TIME")]
    pub(super) due_after: Option<String>,
    /// Only open workflows that are due before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(super) due_before: Option<String>,
    /// Only with this search attribute, NAME=VALUE; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub(super) attributes: Vec<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(super) limit: usize,
}

#[derive(Args)]
pub(super) struct EndArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Why: recorded with who
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
}

#[derive(Args)]
pub(super) struct DecideArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Number of the activity, as describe and explain show it
    pub(super) number: u64,
    /// Why: recorded with who
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
}

#[derive(Args)]
pub(super) struct ResolveArgs {
    #[command(flatten)]
    pub(super) decision: DecideArgs,
    /// The activity's result: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(super) result: String,
}

#[derive(Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    pub(super) task: TokenTask,
    /// Open this store instead of asking a server: for the first token
    #[arg(long, global = true, value_name = "URL")]
    pub(super) store: Option<String>,
}

#[derive(Subcommand)]
pub(super) enum TokenTask {
    /// Make a token; its secret is shown only now
    Create {
        /// Its name: who acts
        name: String,
        /// Any of start, signal, read, operate, admin
        #[arg(long, value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// The workflow types that it may touch; all, if left out
        #[arg(long, value_delimiter = ',')]
        types: Vec<String>,
        /// From when on it is refused, from now
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        expires: Option<Duration>,
    },
    /// List the tokens
    List,
    /// Revoke a token
    Revoke {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
pub(super) struct BreakerArgs {
    #[command(subcommand)]
    pub(super) task: BreakerTask,
}

#[derive(Subcommand)]
pub(super) enum BreakerTask {
    /// List the breakers
    List,
    /// Open a breaker until it is closed by hand
    Open {
        /// What it protects, such as payments
        downstream: String,
        /// The part of it, such as a payment channel; all of it, if left out
        #[arg(long)]
        key: Option<String>,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Let everything through until it is closed by hand, whatever comes of it
    ForceClose {
        /// What it protects, such as payments
        downstream: String,
        /// The part of it, such as a payment channel; all of it, if left out
        #[arg(long)]
        key: Option<String>,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Close a breaker, whatever opened or forced it, and leave it to itself
    Close {
        /// What it protects, such as payments
        downstream: String,
        /// The part of it, such as a payment channel; all of it, if left out
        #[arg(long)]
        key: Option<String>,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Args)]
pub(super) struct OutboxArgs {
    #[command(subcommand)]
    pub(super) task: OutboxTask,
}

#[derive(Subcommand)]
pub(super) enum OutboxTask {
    /// List them, one for each sink
    List(OutboxListArgs),
    /// Send one now; attempts and time count from the beginning
    Retry {
        /// Its id, as list shows it
        id: String,
        /// Why: logged with who
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Decide that a sink is not to have one; the next one of the same workflow follows
    Skip {
        /// Its id, as list shows it
        id: String,
        /// Why: logged with who
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Args)]
pub(super) struct OutboxListArgs {
    /// Only for this sink
    #[arg(long)]
    pub(super) sink: Option<String>,
    /// Only this state: waiting, failing or needs-attention
    #[arg(long)]
    pub(super) state: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(super) limit: usize,
}

#[derive(Args)]
pub(super) struct ReplayArgs {
    /// The store: sqlite:PATH, which no server holds (a copy, for example), or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    pub(super) store: String,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Only this workflow type
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) workflow_type: Option<String>,
}

#[derive(Args)]
pub(super) struct VerifyArgs {
    /// The store: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE; servers may be using it
    #[arg(long, value_name = "URL")]
    pub(super) store: String,
    /// The configuration file that the servers have: workflows may depend on it, and how long a server takes to look
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Only this workflow type; what belongs to no workflow is then not looked for
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) workflow_type: Option<String>,
}

#[derive(Args)]
pub(super) struct MigrateArgs {
    /// The store: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL", default_value = "sqlite:overdue.db")]
    pub(super) store: String,
    /// Let this PostgreSQL role call overdue.start_workflow and overdue.signal_workflow, and nothing else
    #[arg(long, value_name = "ROLE")]
    pub(super) allow: Option<String>,
    /// Distribute the tables by shard over the workers of Citus, which is installed in the database; no server may run
    #[arg(long)]
    pub(super) distribute: bool,
}

#[derive(Args)]
pub(super) struct CopyArgs {
    /// The store to be moved: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    pub(super) from: String,
    /// Where to: a store that does not exist yet or is empty, or the one that this was moved from. Interrupted, run it again
    #[arg(long, value_name = "URL")]
    pub(super) to: String,
}
