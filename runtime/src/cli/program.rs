//! A program: its workflows, its own commands, and how its command line is run.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use futures::future::LocalBoxFuture;

use super::args::{Cli, Task};
use super::config::Config;
use super::{
    actions, attention, breakers, copy, deadlines, follow, jobs, outbox, replay, serve, show, start, store, tokens, verify,
};
use crate::client::Jobs;
use crate::engine::{Environment, Registries};

/// Why a command failed, for a person.
pub(super) type Failure = Box<dyn Error + Send + Sync>;
/// What a command of the program's own runs as.
pub type CommandFuture = LocalBoxFuture<'static, Result<ExitCode, Box<dyn Error + Send + Sync>>>;

type Register = Box<dyn Fn(&Config, &Environment, &mut Registries) -> Result<(), Failure> + Send + Sync>;
type Run = Box<dyn Fn(ArgMatches) -> CommandFuture + Send + Sync>;

/// A program around workflows.
pub struct Program {
    name: &'static str,
    version: &'static str,
    about: &'static str,
    sections: Vec<&'static str>,
    register: Register,
    commands: BTreeMap<String, (Command, Run)>,
}

impl Program {
    /// A program without workflows yet.
    pub fn new(name: &'static str, version: &'static str, about: &'static str) -> Self {
        let register: Register = Box::new(|_, _, _| Ok(()));
        Self { name, version, about, sections: Vec::new(), register, commands: BTreeMap::new() }
    }

    /// Says which workflows and activities the program has. Called with the configuration, whose own sections are named
    /// here; any other section is refused.
    #[must_use]
    pub fn registering<E: Into<Failure>>(
        mut self,
        sections: &[&'static str],
        register: impl Fn(&Config, &Environment, &mut Registries) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.sections = sections.to_vec();
        self.register = Box::new(move |config, environment, code| register(config, environment, code).map_err(Into::into));
        self
    }

    /// Adds a command of the program's own.
    #[must_use]
    pub fn command(mut self, command: Command, run: impl Fn(ArgMatches) -> CommandFuture + Send + Sync + 'static) -> Self {
        self.commands.insert(command.get_name().to_owned(), (command, Box::new(run)));
        self
    }

    /// Runs the command that the process was started with. Errors are printed; the exit code is 0 only on success.
    pub async fn run(self) -> ExitCode {
        let mut command = Cli::command().name(self.name).version(self.version).about(self.about);
        for (own, _) in self.commands.values() {
            command = command.subcommand(own.clone());
        }
        let matches = command.get_matches();
        match self.dispatch(&matches).await {
            Ok(code) => code,
            Err(error) => {
                anstream::eprintln!("error: {}", chain(error.as_ref()));
                ExitCode::FAILURE
            }
        }
    }

    async fn dispatch(&self, matches: &ArgMatches) -> Result<ExitCode, Failure> {
        if let Some((name, own)) = matches.subcommand()
            && let Some((_, run)) = self.commands.get(name)
        {
            return run(own.clone()).await;
        }
        let Cli { connection, task } = Cli::from_arg_matches(matches)?;
        match task {
            Task::Serve(args) => serve::run(self, args).await,
            Task::Start(args) => start::run(&connection, args).await,
            Task::Signal(args) => actions::signal(&connection, args).await,
            Task::Describe(target) => show::describe(&connection, &target).await,
            Task::Explain(target) => show::explain(&connection, &target).await,
            Task::History(args) => follow::run(&connection, args).await,
            Task::List(args) => show::list(&connection, "/v1/workflows", args).await,
            Task::Cancel(args) => actions::end(&connection, "cancel", args).await,
            Task::Terminate(args) => actions::end(&connection, "terminate", args).await,
            Task::Retry(args) => actions::decide(&connection, "retry", args, None).await,
            Task::Resolve(args) => {
                let result = args.result;
                actions::decide(&connection, "resolve", args.decision, Some(result)).await
            }
            Task::Skip(args) => actions::decide(&connection, "skip", args, None).await,
            Task::Attention(args) => attention::run(&connection, args).await,
            Task::Jobs(args) => jobs::run(&connection, args).await,
            Task::Deadlines(args) => deadlines::run(&connection, args).await,
            Task::Breaker(args) => breakers::run(&connection, args).await,
            Task::Outbox(args) => outbox::run(&connection, args).await,
            Task::Token(args) => tokens::run(&connection, args).await,
            Task::Replay(args) => replay::run(self, &connection, args).await,
            Task::Verify(args) => verify::run(self, &connection, args).await,
            Task::Migrate(args) => store::migrate(&args).await,
            Task::Copy(args) => copy::run(&connection, &args).await,
            Task::Openapi => {
                anstream::println!("{}", crate::http::openapi());
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    pub(super) fn sections(&self) -> &[&'static str] {
        &self.sections
    }

    pub(super) fn version(&self) -> &'static str {
        self.version
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The program's code, and what carries out bulk jobs once a client is attached.
    pub(super) fn code(&self, config: &Config, environment: &Environment) -> Result<(Registries, Jobs), Failure> {
        let mut code = Registries::default();
        let jobs = Jobs::register(&mut code);
        (self.register)(config, environment, &mut code)?;
        Ok((code, jobs))
    }

    /// As much of it as can be had without a configuration: enough to read histories with, not to call anybody.
    pub(super) fn code_to_read(&self, config: &Config, environment: &Environment) -> Registries {
        let mut code = Registries::default();
        Jobs::register(&mut code);
        // What is missing is only what the calls need; a type that did not get so far counts as unknown.
        let _ = (self.register)(config, environment, &mut code);
        code
    }
}

/// An error with what led to it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
