//! What can happen. Each fault heals itself before it returns, but for what is restarted by [`World::heal`].

use std::time::{Duration, Instant};

use overdue_runtime::testing::{CommitFault, Cut, PostgresCluster, Weather};
use tokio::time::sleep;

use crate::standstill::{stop, stopped_backend, stopped_in_commit};
use crate::world::{NODES, SESSIONS_MAX, World};

/// How long a fault of the network or the database lasts.
const LASTS: Duration = Duration::from_millis(2500);
const SHORT: Duration = Duration::from_millis(500);
/// A fault of a commit waits for one no longer than this.
const COMMIT_MAX: Duration = Duration::from_secs(4);
const LATENCY: Duration = Duration::from_millis(60);
const BYTES_PER_SECOND: u32 = 20_000;
/// How wrong a clock is.
const WRONG_BY_SECONDS: i64 = 600;
const STORMS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    StopHalfALease,
    StopOneAndAHalf,
    StopFiveLeases,
    Drain,
    ClockAhead,
    ClockBehind,
    Reset,
    HalfOpen,
    Deaf,
    Mute,
    Latency,
    Bandwidth,
    AnswerLost,
    CommitLost,
    /// The node stands still in the middle of its COMMIT's bytes.
    StoppedInCommit,
    /// The server's process that holds the lane's lock stands still, and so does its client.
    StoppedBackend,
    Storm,
    BackendEnded,
    DatabaseDown,
    /// The database ends while a COMMIT is on its way.
    DatabaseDownInCommit,
    /// Nodes and database end; the database ends again while the nodes come back.
    DatabaseDownInRecovery,
    SessionsExhausted,
    ShopClosed,
}

impl Fault {
    pub(crate) const ALL: [Self; 24] = [
        Self::AnswerLost,
        Self::Kill,
        Self::StopHalfALease,
        Self::Reset,
        Self::Deaf,
        Self::StopOneAndAHalf,
        Self::CommitLost,
        Self::Drain,
        Self::Mute,
        Self::StopFiveLeases,
        Self::HalfOpen,
        Self::ShopClosed,
        Self::DatabaseDown,
        Self::Latency,
        Self::ClockAhead,
        Self::BackendEnded,
        Self::ClockBehind,
        Self::Storm,
        Self::StoppedInCommit,
        Self::Bandwidth,
        Self::DatabaseDownInCommit,
        Self::SessionsExhausted,
        Self::StoppedBackend,
        Self::DatabaseDownInRecovery,
    ];

    /// Whether two may happen at once: the database can only be ended by one of them.
    pub(crate) fn goes_with(self, other: Self) -> bool {
        let of_all = [
            Self::DatabaseDown,
            Self::DatabaseDownInCommit,
            Self::DatabaseDownInRecovery,
            Self::SessionsExhausted,
            Self::StoppedBackend,
            Self::Storm,
        ];
        let is_crowded = of_all.contains(&self) && of_all.contains(&other);
        !(self == other || is_crowded || self.is_total() || other.is_total())
    }

    /// Whether it takes every node.
    fn is_total(self) -> bool {
        self == Self::DatabaseDownInRecovery
    }

    /// Lets it happen, to this node where it is a node's, beside another fault or `alone`; whether it did.
    pub(crate) async fn strike(self, world: &World, n: usize, alone: bool) -> bool {
        let (node, proxy) = (&world.nodes[n], world.proxy(n));
        match self {
            Self::Kill => {
                node.kill().await;
                sleep(SHORT).await;
                node.start(0).await
            }
            Self::StopHalfALease => stop(world, n, 0.5).await,
            Self::StopOneAndAHalf => stop(world, n, 1.5).await,
            Self::StopFiveLeases => stop(world, n, 5.0).await,
            Self::Drain => {
                if !node.drain().await {
                    // With its database out of reach it may be in no position to.
                    eprintln!("{} did not drain in good order", node.name);
                }
                node.start(0).await
            }
            Self::ClockAhead => restart_wrong(world, n, WRONG_BY_SECONDS).await,
            Self::ClockBehind => restart_wrong(world, n, -WRONG_BY_SECONDS).await,
            Self::Reset => cut(world, n, Cut::Reset).await,
            Self::HalfOpen => cut(world, n, Cut::HalfOpen).await,
            Self::Deaf => weather(world, n, Weather { deaf: true, ..Weather::default() }).await,
            Self::Mute => weather(world, n, Weather { mute: true, ..Weather::default() }).await,
            Self::Latency => weather(world, n, Weather { latency: LATENCY, ..Weather::default() }).await,
            Self::Bandwidth => {
                weather(world, n, Weather { bytes_per_second: Some(BYTES_PER_SECOND), ..Weather::default() }).await
            }
            Self::AnswerLost => commit(world, n, CommitFault::LoseTheAnswer).await,
            Self::CommitLost => commit(world, n, CommitFault::LoseTheCommit).await,
            Self::StoppedInCommit => stopped_in_commit(world, n, alone).await,
            Self::StoppedBackend => stopped_backend(world, n).await,
            Self::Storm => {
                for _ in 0..STORMS {
                    (0..NODES).for_each(|n| world.proxy(n).cut(Cut::Reset));
                    sleep(SHORT / 2).await;
                }
                true
            }
            Self::BackendEnded => {
                let end = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
                           WHERE application_name LIKE 'overdue%' ORDER BY random() LIMIT 1) AS one";
                let Ok(mut session) = world.session().await else { return false };
                sqlx::query_scalar::<_, i64>(end).fetch_one(&mut session).await.is_ok_and(|ended| ended == 1)
            }
            Self::DatabaseDown => {
                restart_database(world).await;
                true
            }
            Self::DatabaseDownInCommit => {
                let struck = commit(world, n, CommitFault::Freeze).await;
                restart_database(world).await;
                proxy.thaw();
                struck
            }
            Self::DatabaseDownInRecovery => down_in_recovery(world).await,
            Self::SessionsExhausted => exhaust(world).await,
            Self::ShopClosed => {
                world.close_shop();
                sleep(LASTS).await;
                world.open_shop();
                true
            }
        }
    }
}

async fn restart_wrong(world: &World, n: usize, ahead_seconds: i64) -> bool {
    world.nodes[n].kill().await;
    world.nodes[n].start(ahead_seconds).await
}

async fn cut(world: &World, n: usize, cut: Cut) -> bool {
    world.proxy(n).cut(cut);
    sleep(LASTS).await;
    world.proxy(n).heal();
    true
}

async fn weather(world: &World, n: usize, weather: Weather) -> bool {
    world.proxy(n).set_weather(weather);
    sleep(LASTS).await;
    world.proxy(n).set_weather(Weather::default());
    true
}

/// Lets the next commit of a node fail, and waits until one has.
pub(crate) async fn commit(world: &World, n: usize, fault: CommitFault) -> bool {
    let (proxy, begun) = (world.proxy(n), Instant::now());
    let before = proxy.struck();
    proxy.fail_next_commit(fault);
    while proxy.struck() == before && begun.elapsed() < COMMIT_MAX {
        sleep(Duration::from_millis(5)).await;
    }
    proxy.struck() > before
}

/// Ends the database as a crash would and starts it again.
async fn restart_database(world: &World) {
    world.on_database(PostgresCluster::stop_immediate).await;
    sleep(SHORT).await;
    world.on_database(PostgresCluster::start).await;
}

async fn down_in_recovery(world: &World) -> bool {
    for node in &world.nodes {
        node.kill().await;
    }
    restart_database(world).await;
    let back = futures::future::join_all(world.nodes.iter().map(|node| node.start(0)));
    let again = async {
        sleep(SHORT).await;
        restart_database(world).await;
    };
    let (back, ()) = tokio::join!(back, again);
    back.into_iter().all(|is_ready| is_ready)
}

/// Takes every session that the server has left, and makes the nodes need new ones.
async fn exhaust(world: &World) -> bool {
    let mut sessions = Vec::new();
    for round in 0..2 {
        while let Ok(session) = world.session().await {
            sessions.push(session);
            if sessions.len() > SESSIONS_MAX {
                break;
            }
        }
        if round == 0 {
            (0..NODES).for_each(|n| world.proxy(n).cut(Cut::Reset));
        }
    }
    sleep(LASTS).await;
    !sessions.is_empty()
}
