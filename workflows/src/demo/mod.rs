//! The demo: a thousand orders, a misbehaving shop, an engine killed in the middle, and an audit of what is left.
//!
//! The engine is a child process and is used as anybody would use it, over HTTP; the shop is the [sandbox](crate::sandbox)
//! in this process. What the audit judges is the shop's ledgers against the engine's histories, never what the demo
//! believes to have done.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the demo is outside the engine and reads its own clock")]

mod audit;
mod client;
mod config;
mod drive;
mod dump;
mod engine;
mod evidence;
mod fleet;
mod judge;
mod kill;
mod lateness;
mod plan;
mod progress;
mod report;
mod settle;
mod story;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::sandbox::Shop;
use client::Client;
use drive::Driver;
use evidence::Evidence;
use fleet::Fleet;
pub use judge::{Acknowledged, judge};
use plan::Plan;
use progress::Progress;
use report::Report;

/// Runs a sandbox shop and a real engine against each other, kills the engine, and audits the result.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How many orders are placed.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub orders: u32,
    /// What the orders do and how the shop misbehaves follows from this number; random unless given. Who wins a race is still
    /// decided by the clock.
    #[arg(long)]
    pub seed: Option<u64>,
    /// How many engines share the store, which must then be a PostgreSQL database.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub nodes: u32,
    /// How often an engine is killed with SIGKILL and started again.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub kills: u32,
    /// Print the summary as one JSON object on the last line of stdout.
    #[arg(long)]
    pub json: bool,
    /// Leave the shop's ledgers and all histories in this folder, as NDJSON.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Leave the engine and the shop running after the audit, until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
    /// The engine's store; a SQLite file in a temporary folder unless given.
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
}

/// Runs the demo; the exit code is 0 only without violations and duplicate effects.
///
/// # Errors
/// When the demo itself cannot be played: no engine, no ports, no disk.
pub async fn run(options: Options) -> anyhow::Result<ExitCode> {
    // The HTTP client insists on a TLS provider even for plain loopback; another part of the program may have set it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Without this an interrupted demo would leave its engine behind.
    let played = tokio::select! {
        played = play(&options) => played?,
        interrupted = interrupted() => interrupted.and_then(|()| bail!("interrupted"))?,
    };
    if options.keep {
        keep(&played, options.json).await?;
    }
    played.fleet.stop().await;
    Ok(if played.is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is still running when the audit is done.
struct Played {
    fleet: Fleet,
    shop: Arc<Shop>,
    is_clean: bool,
    _folder: tempfile::TempDir,
}

async fn play(options: &Options) -> anyhow::Result<Played> {
    let begun = Instant::now();
    if options.nodes > 1 && !options.store.as_deref().is_some_and(|store| store.starts_with("postgres")) {
        bail!("--nodes {} needs a store that nodes can share: --store postgres://USER:PASSWORD@HOST/DATABASE", options.nodes);
    }
    if let Some(out) = &options.out {
        // Found out now rather than when there is something to write.
        std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    }
    let seed = options.seed.unwrap_or_else(rand::random);
    let folder = tempfile::Builder::new().prefix("overdue-demo-").tempdir().context("no temporary folder")?;
    let progress = Progress::new(options.orders);
    progress.say(&format!("demo of {} orders, --seed {seed}", options.orders));

    let prefix = id_prefix(options, seed);
    let plan = Plan::new(options.orders, seed, &prefix);
    let shop = Arc::new(start_shop(folder.path(), plan.faults()).await?);
    let mut fleet = start_fleet(options, folder.path(), &shop).await?;
    let client = Client::new(fleet.urls())?;
    let ready = if fleet.nodes() == 1 { "the engine is".to_owned() } else { format!("{} nodes are", fleet.nodes()) };
    progress.say(&format!("{ready} ready at {}, the order service at {}", client.url(), shop.urls().orders));

    let driver = Driver::start(plan.clone(), shop.clone(), client.clone());
    let placing_began = driver.begin();
    let kill_times: Vec<_> = plan.kill_times(options.kills).iter().map(|after| placing_began + *after).collect();
    let watching = progress.watch(shop.clone());
    kill::run(&mut fleet, &shop, &kill_times, &progress).await?;
    let acts = driver.finish().await?;
    let unsettled = settle::wait(&client, &prefix, plan.settle_after(placing_began.elapsed())).await?;
    drop(watching);
    match unsettled.len() {
        0 => progress.say("everything has settled; auditing"),
        stuck => progress.say(&format!("{stuck} executions are still moving; auditing all the same")),
    }

    sell_what_was_paid(&shop, &plan).await?;
    let evidence = Evidence::gather(&client, &shop, &plan, acts, unsettled).await?;
    let mut audit = audit::audit(&evidence);
    let (store, config) = place(options, folder.path());
    audit.violations.extend(verify::look(&store, &config).await?);
    let report = Report::new((seed, fleet.nodes()), &evidence, &audit, &fleet.downs(), begun.elapsed());
    progress.finish();
    publish(options, &evidence, &report, &fleet)?;
    Ok(Played { fleet, shop, is_clean: report.is_clean(), _folder: folder })
}

fn publish(options: &Options, evidence: &Evidence, report: &Report, fleet: &Fleet) -> anyhow::Result<()> {
    if let Some(out) = &options.out {
        dump::write(out, evidence, report, &fleet.downs(), &fleet.log_file())?;
        eprintln!("ledgers and histories are in {}", out.display());
    }
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

/// Order ids follow from the seed alone; only a store that may hold an earlier demo needs more.
fn id_prefix(options: &Options, seed: u64) -> String {
    match options.store {
        None => format!("d{seed}"),
        Some(_) => format!("d{seed}-{}", jiff::Timestamp::now().as_millisecond()),
    }
}

async fn start_shop(folder: &Path, faults: crate::sandbox::FaultPlan) -> anyhow::Result<Shop> {
    let ledgers = folder.join("shop");
    std::fs::create_dir_all(&ledgers).with_context(|| format!("cannot create {}", ledgers.display()))?;
    Shop::start(&ledgers, faults).await.context("the sandbox shop cannot start")
}

/// The engines' store and their configuration file.
fn place(options: &Options, folder: &Path) -> (String, PathBuf) {
    let store = options.store.clone().unwrap_or_else(|| format!("sqlite:{}", folder.join("overdue.db").display()));
    (store, folder.join("overdue.toml"))
}

async fn start_fleet(options: &Options, folder: &Path, shop: &Shop) -> anyhow::Result<Fleet> {
    let (store, file) = place(options, folder);
    std::fs::write(&file, config::toml(shop.urls())).with_context(|| format!("cannot write {}", file.display()))?;
    Fleet::start(options.nodes as usize, &store, &file, &folder.join("engine.log")).await
}

/// The shop delivers paid orders, so that the stock ledger ends with nothing but sold and available units.
async fn sell_what_was_paid(shop: &Shop, plan: &Plan) -> anyhow::Result<()> {
    let paid = plan.orders.iter().filter(|planned| {
        let status = shop.order(&planned.order.order_id).map(|order| order.status);
        matches!(status, Some(crate::sandbox::OrderStatus::Paid { .. }))
    });
    let sales = paid.map(|planned| {
        let token = planned.order.reservation.as_ref().map(|reservation| reservation.token.as_str());
        shop.fulfil(token, planned.order.coupon_id.as_deref())
    });
    futures::future::try_join_all(sales).await.context("paid orders cannot be delivered")?;
    Ok(())
}

/// Says where everything is and waits; stdout belongs to the JSON object if there is one.
async fn keep(played: &Played, json: bool) -> anyhow::Result<()> {
    let urls: Vec<String> = played.fleet.urls().iter().map(|url| url.borrow().clone()).collect();
    let (engine, orders) = (urls.join(", "), &played.shop.urls().orders);
    let text = format!("the engine stays at {engine}, the order service at {orders}; Ctrl-C ends both");
    if json {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
    interrupted().await
}

/// Resolves when somebody wants this process to end.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.context("cannot listen for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}

/// Waits until an instant that may be past.
async fn sleep_until(instant: Instant) {
    tokio::time::sleep(instant.saturating_duration_since(Instant::now())).await;
}

/// How often something that is awaited is looked at.
const POLL: Duration = Duration::from_millis(250);
