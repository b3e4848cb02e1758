//! One cell: one process that is armed at one point, its successor, and the judgement.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use overdue_runtime::fault::{self, Point};
use overdue_runtime::sqlx::{self, Connection};
use overdue_runtime::testing::PostgresCluster;
use overdue_workflows::sandbox::{Service, Shop};
use tokio::time::sleep;

use super::Strike;
use super::load::{Load, faults, plain};
use super::ways::{On, Scene};
use crate::harness::city::{City, PATIENCE};
use crate::harness::{Server, Site, order_service, program, run};

/// How long a lease is, where there are leases.
const LEASE: Duration = Duration::from_millis(1000);
/// How long a process stands still at a point.
const PAUSE: Duration = Duration::from_millis(1700);
/// How long after the end of all else a point is still waited for.
const GRACE: Duration = Duration::from_secs(8);
/// The same for a hit that the load may not reach.
const GRACE_OF_MORE: Duration = Duration::from_secs(3);
/// The signal number of an abort.
const SIGABRT: i32 = 6;

pub(super) struct Cell {
    pub(super) on: On,
    pub(super) point: Point,
    pub(super) scene: Scene,
    pub(super) hit: u32,
    /// Whether it must come.
    pub(super) is_first: bool,
    pub(super) strike: Strike,
}

/// How a cell ends that does not fail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Struck,
    /// The point was passed, but not so often.
    Seldom,
}

impl Cell {
    pub(super) fn name(&self) -> String {
        let on = if self.on == On::Sqlite { "sqlite" } else { "postgres" };
        format!("{on}/{}:{} ({:?}, {:?})", self.point.name(), self.hit, self.scene, self.strike)
    }

    /// As the environment of the process has it.
    fn armed(&self) -> String {
        let (name, hit) = (self.point.name(), self.hit);
        let armed = match self.strike {
            Strike::Kill => format!("{name}:{hit}"),
            Strike::Sleep => format!("{name}:{hit}:sleep={}", PAUSE.as_millis()),
        };
        if self.scene == Scene::Unanswered { format!("commit-unanswered:4:error,{armed}") } else { armed }
    }

    /// Arms the processes that are started from now on.
    fn arm(&self, site: &Site) {
        let armed = self.armed();
        let mut environment = vec![(fault::ARMED, armed.as_str())];
        if self.scene == Scene::Retention {
            environment.extend([("OVERDUE_ENGINE__RETAIN", "1s"), ("OVERDUE_ENGINE__TOMBSTONES", "1500ms")]);
        }
        site.in_environment(&environment);
    }

    pub(super) async fn play(&self) -> End {
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::start(folder.path(), faults()).await.unwrap();
        let store = self.store().await;
        let site = self.site(&shop, store.as_deref());
        let server = match self.scene {
            Scene::Again => Server::start(site).await,
            Scene::First if self.strike == Strike::Kill => {
                self.arm(&site);
                Server::start_in_vain(site).await
            }
            _ => {
                self.arm(&site);
                Server::start(site).await
            }
        };
        let heir = match &store {
            Some(store) if self.scene == Scene::Heir => Some(Server::start(self.site(&shop, Some(store))).await),
            _ => None,
        };
        let city = City { shop, server, _folder: folder };
        if self.scene == Scene::Poison {
            self.poison(&city, true).await;
        }
        if heir.is_some() {
            self.spread(&city).await;
        }
        let (load, is_over) = (Load::on(&city), AtomicBool::new(false));
        let all = async {
            if self.scene == Scene::First {
                city.until("it was struck", || city.server.site.faults().contains("struck")).await;
            }
            load.play(self.scene).await;
            is_over.store(true, Ordering::Relaxed);
        };
        let strike = self.struck(&city, heir.as_ref(), &is_over);
        let ((), end) = tokio::join!(all, strike);
        let violations = load.judged(self.scene).await;
        assert!(violations.is_empty(), "{violations:#?}\n{}", city.server.site.log());
        let mut verify = program();
        verify.args(["verify", "--json", "--store", &city.server.site.store(), "--config"]).arg(city.server.site.config_file());
        let verified = run(&mut verify).await;
        assert_eq!(verified.code, Some(0), "{verified:?}\n{}", city.server.site.log());
        assert!(verified.json()["workflows"].as_u64() > Some(0) || self.scene == Scene::Retention, "{verified:?}");
        end
    }

    /// A database of its own; none where the store is a file.
    async fn store(&self) -> Option<String> {
        let cluster = PostgresCluster::shared();
        match (self.on, self.scene) {
            (On::Sqlite, _) => None,
            (On::Postgres, Scene::First) => Some(cluster.url(&cluster.create_database().await)),
            (On::Postgres, _) => Some(order_service::database().await),
        }
    }

    fn site(&self, shop: &Shop, store: Option<&str>) -> Site {
        let site = Site::calling(shop.urls()).with("\"1s\"\n\n", "\"600ms\"\n\n");
        let site = site.with("[engine]\n", &format!("[engine]\nlease = \"{}ms\"\n", LEASE.as_millis()));
        match store {
            Some(store) => site.on(store),
            None => site,
        }
    }

    /// Does what the scene wants beside the load, until the armed process has ended, and starts its successor.
    async fn struck(&self, city: &City, heir: Option<&Server>, is_over: &AtomicBool) -> End {
        let mut second = None;
        match self.scene {
            Scene::Drain => {
                city.until("calls are made", || city.shop.counts().requests > 2).await;
                city.server.terminate().await;
            }
            Scene::Again => {
                city.until("calls are made", || !city.requests(Service::Stock).is_empty()).await;
                city.server.kill().await;
                self.arm(&city.server.site);
                city.server.restart_in_vain().await;
            }
            Scene::Gift => {
                sleep(Duration::from_millis(300)).await;
                second = Some(Server::start(self.site(&city.shop, Some(&city.server.site.store()))).await);
            }
            Scene::Heir => {
                sleep(Duration::from_millis(300)).await;
                heir.expect("there is a second node").kill().await;
            }
            _ => {}
        }
        let ended = self.awaited(city, is_over).await;
        city.server.site.in_environment(&[]);
        if city.server.has_ended().await.is_some() || !self.goes_on() {
            self.succeed(city).await;
        }
        // Kept until the end: it has its share of the orders.
        if let Some(second) = second {
            while !is_over.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(20)).await;
            }
            second.terminate().await;
            second.ended().await;
        }
        ended
    }

    /// Whether the armed process can also end the scene, if it lives.
    fn goes_on(&self) -> bool {
        !self.ends_by_itself() && !matches!(self.scene, Scene::Again | Scene::First | Scene::Poison | Scene::Retention)
    }

    fn ends_by_itself(&self) -> bool {
        self.scene == Scene::Drain || (self.scene == Scene::Unanswered && self.on == On::Sqlite)
    }

    /// Starts the successor, in a world that is as it should be.
    async fn succeed(&self, city: &City) {
        if city.server.has_ended().await.is_none() {
            if self.ends_by_itself() {
                city.server.ended().await;
            } else {
                city.server.kill().await;
            }
        } else if self.point == Point::CommitUnanswered && self.on == On::Postgres && self.hit == 1 {
            self.is_committed_all_the_same(city).await;
        }
        if self.scene == Scene::Poison {
            self.poison(city, false).await;
        }
        city.server.restart().await;
    }

    /// Waits until the point has struck.
    async fn awaited(&self, city: &City, is_over: &AtomicBool) -> End {
        let line = format!("struck {} {}\n", self.point.name(), self.hit);
        // A process that is not ready cannot be waited for by those who ask it.
        let is_asked = !matches!(self.scene, Scene::First | Scene::Again);
        let grace = if self.is_first { GRACE } else { GRACE_OF_MORE };
        let mut until = Instant::now() + if is_asked { PATIENCE } else { grace };
        let mut is_last = false;
        loop {
            let faults = city.server.site.faults();
            if self.strike == Strike::Sleep && faults.contains(&line) {
                sleep(PAUSE).await;
                return End::Struck;
            }
            if let Some(status) = city.server.has_ended().await
                && self.strike == Strike::Kill
            {
                let faults = city.server.site.faults();
                assert_eq!(status.signal(), Some(SIGABRT), "it ended otherwise: {status}\n{faults}\n{}", city.server.site.log());
                assert!(faults.ends_with(&line), "it ended elsewhere:\n{faults}");
                return End::Struck;
            }
            if is_over.load(Ordering::Relaxed) && !is_last {
                (until, is_last) = (Instant::now() + grace, true);
            }
            if Instant::now() > until {
                assert!(!self.is_first && faults.contains(&format!("passed {}\n", self.point.name())), "never hit:\n{faults}");
                return End::Seldom;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The first COMMIT was on its way when the process ended: what it holds is there, though nobody has said so.
    async fn is_committed_all_the_same(&self, city: &City) {
        let mut session = sqlx::PgConnection::connect(&plain(&city.server.site.store())).await.unwrap();
        let until = Instant::now() + GRACE;
        let rows = "SELECT (SELECT count(*) FROM overdue.executions) + (SELECT count(*) FROM overdue.inbox)";
        while sqlx::query_scalar::<_, i64>(rows).fetch_one(&mut session).await.unwrap() == 0 {
            assert!(Instant::now() < until, "the COMMIT was not sent");
            sleep(Duration::from_millis(5)).await;
        }
        let _ = session.close().await;
    }

    /// Makes the database refuse the second transition of some orders, or take it again.
    async fn poison(&self, city: &City, refuse: bool) {
        let store = city.server.site.store();
        if self.on == On::Sqlite {
            let mut session = sqlx::SqliteConnection::connect(&store).await.unwrap();
            let sql = if refuse { SQLITE_POISON } else { "DROP TRIGGER poison" };
            sqlx::raw_sql(sql).execute(&mut session).await.unwrap();
            session.close().await.unwrap();
        } else {
            let mut session = sqlx::PgConnection::connect(&plain(&store)).await.unwrap();
            let sql = if refuse { POSTGRES_POISON } else { "DROP TRIGGER poison ON overdue.history" };
            sqlx::raw_sql(sql).execute(&mut session).await.unwrap();
            session.close().await.unwrap();
        }
    }

    /// Waits until two nodes have the shards.
    async fn spread(&self, city: &City) {
        let mut session = sqlx::PgConnection::connect(&plain(&city.server.site.store())).await.unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let owners = "SELECT count(DISTINCT node_id) FROM overdue.shards";
            let owners: i64 = sqlx::query_scalar(owners).fetch_one(&mut session).await.unwrap();
            if owners == 2 {
                break;
            }
            assert!(Instant::now() < until, "{owners} nodes have shards");
            sleep(Duration::from_millis(20)).await;
        }
        let _ = session.close().await;
    }
}

const SQLITE_POISON: &str = "CREATE TRIGGER poison BEFORE INSERT ON history
     WHEN NEW.first_event > 1
          AND EXISTS (SELECT 1 FROM executions AS e WHERE e.run_id = NEW.run_id AND e.id LIKE 'poison-%')
     BEGIN SELECT RAISE(ABORT, 'poison'); END";

const POSTGRES_POISON: &str = "CREATE FUNCTION overdue.poison() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
         IF NEW.first_event > 1 AND EXISTS (
             SELECT FROM overdue.executions AS e WHERE e.run_id = NEW.run_id AND e.id LIKE 'poison-%')
         THEN
             RAISE EXCEPTION 'poison' USING ERRCODE = '23514';
         END IF;
         RETURN NEW;
     END $$;
     CREATE TRIGGER poison BEFORE INSERT ON overdue.history FOR EACH ROW EXECUTE FUNCTION overdue.poison()";
