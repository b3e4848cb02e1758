//! A disk that is full, under a store of each kind: what is refused is refused with 503, what was acknowledged stays, and when
//! there is room again it goes on by itself.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_runtime::testing::{Fsync, PostgresCluster};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::node::Node;
use crate::world::{World, http};

const SQLITE: &str = "SQLite";
const POSTGRES: &str = "PostgreSQL";
/// How large the disks are: the database itself and little more.
const SQLITE_BYTES: u64 = 4 << 20;
const POSTGRES_BYTES: u64 = 160 << 20;
/// So many starts are acknowledged before.
const BEFORE: usize = 5;
/// A full disk is noticed by then.
const NOTICED_MAX: Duration = Duration::from_secs(20);
/// When there is room, everything is taken again by then.
const BACK_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// A small disk in memory. Dropping it takes it away.
struct Disk(TempDir);

impl Disk {
    /// One of this size; none where mounting is not allowed.
    fn of(bytes: u64) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("overdue-disk-").tempdir().unwrap();
        let options = format!("size={bytes},mode=0777");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).stderr(Stdio::null());
        let mounted = mount.status().is_ok_and(|status| status.success());
        mounted.then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills it to the last byte.
    fn fill(&self) -> PathBuf {
        let filler = self.path().join("filler");
        let mut file = File::create(&filler).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
    }
}

/// Plays both; which were played.
pub(crate) async fn play(world: &World) -> Vec<(&'static str, u64)> {
    let (Some(small), Some(large)) = (Disk::of(SQLITE_BYTES), Disk::of(POSTGRES_BYTES)) else {
        eprintln!("SKIPPED: disk full, because nothing can be mounted here");
        return Vec::new();
    };
    let url = format!("sqlite:{}", small.path().join("overdue.db").display());
    full(world, SQLITE, url, &small, None).await;
    let settings = [("max_connections", "40"), ("max_wal_size", "32MB"), ("min_wal_size", "32MB")];
    let folder = large.path().to_owned();
    let cluster = tokio::task::spawn_blocking(move || PostgresCluster::in_folder(&folder, Fsync::On, &settings));
    let cluster = Arc::new(cluster.await.unwrap());
    full(world, POSTGRES, cluster.url("postgres"), &large, Some(&cluster)).await;
    vec![(SQLITE, 1), (POSTGRES, 1)]
}

/// One start; its status, and none without an answer.
async fn start(http: &reqwest::Client, node: &Node, id: &str) -> Option<u16> {
    let deadline = Timestamp::now() + Duration::from_secs(86_400);
    let body = json!({
        "input": { "orderId": id, "payDeadline": format!("{deadline:.3}"), "amount": "10.00", "currency": "USD" },
    });
    let sent = http.post(format!("{}/v1/workflows/order-timeout/{id}", node.url())).json(&body).send().await;
    sent.ok().map(|answer| answer.status().as_u16())
}

async fn full(world: &World, on: &str, store: String, disk: &Disk, cluster: Option<&Arc<PostgresCluster>>) {
    let (node, http) = (Node::new(&world.folder, &format!("disk-full-{on}"), store, None), http());
    if !node.start(0).await {
        return world.log.violated(format!("{on}: the node on the small disk does not start"));
    }
    let mut acknowledged = Vec::new();
    let mut take = |id: String, status: Option<u16>| {
        let is_taken = matches!(status, Some(200 | 201));
        if is_taken {
            acknowledged.push(id);
        }
        is_taken
    };
    for n in 0..BEFORE {
        let id = format!("before-{n}");
        let status = start(&http, &node, &id).await;
        if !take(id, status) {
            world.log.violated(format!("{on}: before its disk is full a start is answered {status:?}"));
        }
    }
    let filler = disk.fill();
    let (begun, mut statuses) = (Instant::now(), Vec::new());
    for n in 0.. {
        let id = format!("full-{n}");
        let status = start(&http, &node, &id).await;
        take(id, status);
        statuses.push(status);
        if statuses.iter().filter(|status| **status == Some(503)).count() >= 3 {
            break;
        }
        if begun.elapsed() > NOTICED_MAX {
            world.log.violated(format!("{on}: a full disk is never answered 503 by any of {} starts", statuses.len()));
            break;
        }
    }
    if let Some(wrong) = statuses.iter().flatten().find(|status| !matches!(status, 200 | 201 | 503)) {
        world.log.violated(format!("{on}: with a full disk a start is answered {wrong}"));
    }
    std::fs::remove_file(filler).unwrap();
    if let Some(cluster) = cluster.filter(|cluster| cluster.pid().is_none()) {
        let cluster = Arc::clone(cluster);
        tokio::task::spawn_blocking(move || cluster.start()).await.unwrap();
    }
    let freed = Instant::now();
    for n in 0..BEFORE {
        let id = format!("after-{n}");
        loop {
            let status = start(&http, &node, &id).await;
            if take(id.clone(), status) {
                break;
            }
            if freed.elapsed() > BACK_MAX {
                world.log.violated(format!("{on}: {BACK_MAX:?} after there is room again a start is answered {status:?}"));
                break;
            }
            sleep(PAUSE).await;
        }
    }
    for id in &acknowledged {
        let found = http.get(format!("{}/v1/workflows/order-timeout/{id}", node.url())).send().await;
        if !found.as_ref().is_ok_and(|answer| answer.status().is_success()) {
            world.log.violated(format!("{on}: {id} was acknowledged around a full disk, and then: {found:?}"));
        }
    }
    if node.has_ended().await {
        world.log.violated(format!("{on}: the node has ended because its disk was full"));
    }
    node.kill().await;
}
