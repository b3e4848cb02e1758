//! `serve`: a node with its HTTP API, from start to drain.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::args::ServeArgs;
use super::config::Config;
use super::program::{Failure, Program};
use super::store;
use crate::client::Client;
use crate::engine::{Engine, EngineConfig, Environment};
use crate::http::{Listener, Server};
use crate::store::Sharing;

/// Runs until SIGTERM or Ctrl-C, then drains.
pub(super) async fn run(program: &Program, args: ServeArgs) -> Result<ExitCode, Failure> {
    log();
    let config = Config::read(args.config.as_deref(), program.sections())?;
    let url = args.store.map_or_else(|| config.store(), Ok)?;
    let listen = args.listen.map_or_else(|| config.listen(), Ok)?;
    let mut section = config.engine()?;
    section.retain = args.retain.or(section.retain);
    section.check()?;
    let environment = Environment::system();
    let (code, jobs) = program.code(&config, &environment)?;
    for check in &code.start_checks {
        check.check().await?;
    }
    if args.migrate {
        store::migrate_if_there(&url).await?;
    }
    let mut stop = Stop::listen()?;
    let store = store::open(&url, section.shards).await?;
    tracing::info!(version = program.version(), database = store.facts().database, "starting");
    let listener = Listener::bind(&listen).await?;
    let advertised = args.advertise.map_or_else(|| config.advertise(), |url| Ok(Some(url)))?;
    if let Some(url) = advertised.as_ref().filter(|url| !url.starts_with("http://")) {
        return Err(format!("--advertise {url:?}: write where other nodes reach this one, such as http://10.0.0.5:7070").into());
    }
    let url = advertised.map(|url| url.trim_end_matches('/').to_owned()).or_else(|| listener.url());
    if url.is_none() && store.facts().sharing == Sharing::Shared {
        tracing::warn!("other nodes cannot forward requests to this one: say where it is reached with --advertise");
    }
    let engine = Engine::start(store, code, environment, EngineConfig { url, ..section.engine() }).await?;
    let client = Client::new(engine.clone());
    jobs.attach(&client);
    let server = match Server::on(client, listener).await {
        Ok(server) => server,
        Err(error) => {
            engine.drain().await;
            return Err(error.into());
        }
    };
    writeln!(std::io::stdout(), "{} is ready at {}", program.name(), server.url())?;
    server.run(stop.asked()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Logs go to standard error: readable on a terminal, JSON elsewhere; `RUST_LOG` says how much.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second initialization is a program that has its own subscriber.
    let _ = if std::io::stderr().is_terminal() { builder.try_init() } else { builder.json().flatten_event(true).try_init() };
}

struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::info!("asked to stop; draining");
    }
}
