//! Power cuts on SQLite: the real program runs over a recorder of everything that it does to its files and promises to its
//! callers, and then the recording is played up to any moment, without what was not synchronized, with all of it, or with
//! parts of it. Whatever the moment: the store opens, it is whole, and what was acknowledged before is in it.
//!
//! `OVERDUE_CUTS=long` looks at every moment instead of a sample, with more tears of each.

mod disk;
mod judge;
mod recording;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use overdue_workflows::sandbox::{FaultPlan, OrderStatus, Shop};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::harness::city::City;
use crate::harness::{Server, Site};
use disk::{Disk, Loss};
use judge::{Promise, judge};
use recording::{Event, read};

/// The most moments that are looked at, unless all are to be.
const MOMENTS_MAX: usize = 180;
/// How many tears of what was not synchronized are tried at each.
const TEARS: u64 = 2;
const TEARS_LONG: u64 = 12;
/// How many stores are judged at once.
const AT_ONCE: usize = 2;
const ORDERS: usize = 12;

/// The recorder, compiled.
async fn recorder() -> &'static Path {
    static RECORDER: OnceCell<PathBuf> = OnceCell::const_new();
    let compiled = RECORDER.get_or_init(|| async {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/power_loss/recorder.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recorder-{}.so", std::process::id()));
        let cc = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        assert!(cc.unwrap().success(), "a C compiler builds SQLite, and this too");
        library
    });
    compiled.await
}

/// Plays orders over the recorder until the power is cut for good; what was recorded.
async fn recorded(environment: &[(&str, &str)]) -> Vec<Event> {
    let folder = tempfile::tempdir().unwrap();
    let shop = Shop::start(folder.path(), FaultPlan::none()).await.unwrap();
    let site = Site::calling(shop.urls());
    let database = site.path("orders.db");
    let database = database.parent().unwrap().canonicalize().unwrap().join("orders.db");
    let recording = folder.path().join("recording");
    let mut environment = environment.to_vec();
    environment.extend([
        ("LD_PRELOAD", recorder().await.to_str().unwrap()),
        ("OVERDUE_RECORDED", database.to_str().unwrap()),
        ("OVERDUE_RECORDING", recording.to_str().unwrap()),
    ]);
    site.in_environment(&environment);
    let server = Server::start(site).await;
    let city = City { shop, server, _folder: folder };
    let left = (0..ORDERS).map(|n| leaves(&city, format!("left-{n}")));
    let paid = (0..ORDERS).map(|n| pays(&city, format!("paid-{n}")));
    tokio::join!(futures::future::join_all(left), futures::future::join_all(paid));
    let is_decided = |id: &str| !matches!(city.shop.order(id).unwrap().status, OrderStatus::WaitPay);
    let all = || (0..ORDERS).all(|n| is_decided(&format!("left-{n}")) && is_decided(&format!("paid-{n}")));
    city.until("all are decided", all).await;
    sleep(Duration::from_millis(300)).await;
    city.server.kill().await;
    read(&recording)
}

async fn leaves(city: &City, id: String) {
    city.place(&id, Timestamp::now() + Duration::from_millis(600)).await;
}

/// So long before its deadline that the payment is in its own history.
async fn pays(city: &City, id: String) {
    city.place(&id, Timestamp::now() + Duration::from_secs(3600)).await;
    let transaction = format!("{}{id}", Promise::SIGNAL);
    let payload = json!({
        "transactionId": transaction, "amount": "10.00", "currency": "USD", "paidAt": format!("{:.3}", Timestamp::now()),
    });
    let capture = overdue_workflows::sandbox::Capture::now(&transaction, "10.00", "USD");
    city.shop.capture(&format!("{id}-pay"), &capture).await.unwrap();
    let answer = city.server.signal(&id, "payment-succeeded", &payload).await;
    assert!(answer.status.is_success(), "{id}: {answer:?}");
}

/// What was seen of the cuts of a recording.
#[derive(Debug, Default)]
struct Cuts {
    moments: usize,
    cuts: usize,
    promises: usize,
    synchronized: usize,
    losses: Vec<String>,
}

/// Cuts the power at the moments of a recording.
async fn cut(events: &[Event], seed: u64) -> Cuts {
    let is_long = std::env::var("OVERDUE_CUTS").is_ok_and(|set| set == "long");
    let is_moment = |event: &Event| matches!(event, Event::Synchronized(_) | Event::Promised(_));
    let moments = events.iter().filter(|event| is_moment(event)).count();
    let step = if is_long { 1 } else { moments.div_ceil(MOMENTS_MAX).max(1) };
    let tears = if is_long { TEARS_LONG } else { TEARS };

    let (mut disk, mut promises, mut number) = (Disk::default(), Vec::new(), 0);
    let mut stores = Vec::new();
    let mut cuts = Cuts::default();
    for event in events {
        cuts.synchronized += usize::from(matches!(event, Event::Synchronized(_)));
        if let Event::Promised(text) = event {
            promises.extend(Promise::in_answer(text));
        }
        if is_moment(event) {
            number += 1;
            // The moments before a synchronization has come back, and after a promise was made.
            if number % step == 0 {
                cuts.moments += 1;
                let torn = (0..tears).map(|tear| Loss::Torn(seed.wrapping_add(number as u64 * 100 + tear)));
                for loss in [Loss::All, Loss::None].into_iter().chain(torn) {
                    stores.push((number, loss, disk.after(loss), promises.len()));
                }
            }
        }
        disk.take(event);
    }
    cuts.cuts = stores.len();
    cuts.promises = promises.len();
    let judged = stores.into_iter().map(|(number, loss, files, made)| {
        let promises = &promises[..made];
        async move {
            let judged = judge(&files, promises).await;
            judged.err().map(|loss_found| format!("at moment {number}, {loss:?} of what was not synchronized lost: {loss_found}"))
        }
    });
    let judged: Vec<_> = futures::stream::iter(judged).buffer_unordered(AT_ONCE).collect().await;
    cuts.losses = judged.into_iter().flatten().collect();
    cuts
}

fn report(what: &str, cuts: &Cuts, begun: Instant) {
    let line = format!(
        "power loss, {what}: {} cuts at {} moments, {} synchronizations, {} promises, {} losses, {:.0} s\n",
        cuts.cuts,
        cuts.moments,
        cuts.synchronized,
        cuts.promises,
        cuts.losses.len(),
        begun.elapsed().as_secs_f64()
    );
    // Past the capture of output: a page may quote it.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

async fn loses_nothing(what: &str, environment: &[(&str, &str)]) {
    let begun = Instant::now();
    let cuts = cut(&recorded(environment).await, 7).await;
    report(what, &cuts, begun);
    assert!(cuts.promises >= 3 * ORDERS && cuts.synchronized > ORDERS, "the recording is of a whole story: {cuts:?}");
    assert!(cuts.losses.is_empty(), "{:#?}", &cuts.losses[..cuts.losses.len().min(20)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged() {
    loses_nothing("log as it grows", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_while_the_log_is_copied_back_and_cut_loses_nothing_that_was_acknowledged() {
    // Waited for, so that the log is cut after every commit, and never reached.
    loses_nothing("log cut after every commit", &[(overdue_runtime::fault::ARMED, "log-cut:1000000")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_spares_its_synchronizations_is_seen_to_lose_what_was_acknowledged() {
    let begun = Instant::now();
    let cuts = cut(&recorded(&[(overdue_runtime::fault::LAX, "1")]).await, 7).await;
    report("synchronous = normal, which must lose", &cuts, begun);
    assert!(cuts.losses.len() > ORDERS, "the power cuts have no teeth: {cuts:?}");
}
