//! The stack around a double, on a clock that only moves when it is told to.

mod limits;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use overdue_runtime::activity::ActivityContext;
use overdue_runtime::engine::Clock;
use overdue_runtime::engine::breaker::{BreakerPosition, BreakerView, Breakers};
use overdue_runtime::testing::{ManualClock, manual_environment};
use overdue_runtime::{Timestamp, WorkflowKey};
use serde_json::{Map, json};
use tower::Service;

use super::*;
use crate::call::Call;
use crate::config::{CallConfig, DownstreamConfig};
use crate::stock::RELEASE_STOCK;

const MS: Duration = Duration::from_millis(1);

/// What the double does with one send.
#[derive(Clone, Copy)]
enum Act {
    Release,
    Status(u16),
    Conflict,
    Hang,
}

/// A downstream that notes when each send came and does what its script says.
#[derive(Clone)]
struct Double {
    clock: ManualClock,
    sends: Arc<Mutex<Vec<Duration>>>,
    under_way: Arc<Mutex<(usize, usize)>>,
    script: Arc<dyn Fn(usize) -> Act + Send + Sync>,
}

impl Double {
    fn sends(&self) -> Vec<Duration> {
        self.sends.lock().unwrap().clone()
    }
}

impl Service<Request> for Double {
    type Response = Answer;
    type Error = ActivityFailure;
    type Future = BoxFuture<'static, Reply>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ActivityFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        request.ctx.record_send();
        let number = {
            let mut sends = self.sends.lock().unwrap();
            sends.push(self.clock.monotonic());
            sends.len() - 1
        };
        let act = (self.script)(number);
        let under_way = self.under_way.clone();
        Box::pin(async move {
            {
                let mut counts = under_way.lock().unwrap();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            tokio::task::yield_now().await;
            under_way.lock().unwrap().0 -= 1;
            let answer = |status| {
                let outcome = Map::from_iter([("outcome".to_owned(), json!("RELEASED"))]);
                Ok(Answer { status: StatusCode::from_u16(status).unwrap(), outcome })
            };
            match act {
                Act::Release => answer(200),
                Act::Conflict => answer(409),
                Act::Status(429) => Err(ActivityFailure::neutral("throttled", "", None)),
                Act::Status(status) if status >= 500 => Err(ActivityFailure::transient(format!("http-{status}"), "")),
                Act::Status(status) => Err(ActivityFailure::permanent(format!("http-{status}"), "")),
                Act::Hang => std::future::pending().await,
            }
        })
    }
}

struct Bench {
    stack: Stack,
    call: Arc<Call>,
    breakers: Breakers,
    double: Double,
    clock: ManualClock,
}

fn bench(configure: impl FnOnce(&mut DownstreamConfig), script: impl Fn(usize) -> Act + Send + Sync + 'static) -> Bench {
    let mut config = DownstreamConfig::at("http://stock.test");
    configure(&mut config);
    let settings = Settings::check("stock", &config).unwrap();
    let (environment, clock) = manual_environment(Timestamp::from_micros(1_700_000_000_000_000), 1);
    let double = Double { clock: clock.clone(), sends: Arc::default(), under_way: Arc::default(), script: Arc::new(script) };
    let breakers = Breakers::new(environment.clock.clone());
    let breaker = breakers.add("stock", breaker_policy(&settings));
    let stack = Stack::new(&settings, &environment, &breaker, double.clone());
    let call = Arc::new(Call::new(&RELEASE_STOCK, &settings, &CallConfig::default()).unwrap());
    Bench { stack, call, breakers, double, clock }
}

impl Bench {
    fn request(&self) -> Request {
        let ctx = ActivityContext::detached(WorkflowKey::new("order-timeout", "o-1"), "k");
        self.call.request(&ctx, &json!({ "stockToken": "t", "orderId": "o-1" }), None).unwrap()
    }

    async fn send(&self) -> Reply {
        self.stack.send(self.request()).await
    }

    /// Sends like an engine: what is transient again after a second, what is neutral after its wait.
    #[allow(clippy::disallowed_methods, reason = "the test's own tasks")]
    fn order(&self) -> tokio::task::JoinHandle<u32> {
        let (stack, request, clock) = (self.stack.clone(), self.request(), self.clock.clone());
        tokio::spawn(async move {
            let mut attempts = 0;
            loop {
                match stack.send(request.clone()).await {
                    Ok(_) => return attempts + 1,
                    Err(failure) if failure.parked_by.is_some() => clock.sleep(failure.retry_after.unwrap()).await,
                    Err(_) => {
                        attempts += 1;
                        clock.sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        })
    }

    /// Lets time pass in steps, everybody doing in each what there is to do.
    async fn pass(&self, duration: Duration, step: Duration) {
        settle().await;
        let mut left = duration;
        while !left.is_zero() {
            self.clock.advance(step.min(left));
            left = left.saturating_sub(step);
            settle().await;
        }
    }

    /// Sees an attempt through, time passing whenever it waits.
    async fn drive(&self, attempt: impl Future<Output = Reply>) -> Reply {
        let mut attempt = Box::pin(attempt);
        loop {
            if let Poll::Ready(reply) = futures::poll!(&mut attempt) {
                return reply;
            }
            self.clock.advance(MS * 50);
        }
    }

    fn state(&self) -> BreakerView {
        self.breakers.views().remove(0)
    }

    /// Whether it is closed, having counted so many failures.
    fn is_closed(&self, failures: u32) -> bool {
        let view = self.state();
        view.position == BreakerPosition::Closed && view.failures == failures
    }
}

async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

fn class_of(reply: &Reply) -> String {
    reply.as_ref().err().map(|failure| failure.failure.error_type.clone()).unwrap_or_default()
}

#[tokio::test]
async fn an_open_breaker_lets_one_probe_through_and_all_orders_finish_in_the_end() {
    // Five failures open it; the sixth send, the first probe, hangs; then all is well.
    let bench = bench(
        |config| config.timeout = "1s".parse().unwrap(),
        |number| match number {
            0..5 => Act::Status(503),
            5 => Act::Hang,
            _ => Act::Release,
        },
    );
    for _ in 0..5 {
        assert_eq!(class_of(&bench.send().await), "http-503");
    }
    let opened = bench.clock.monotonic();
    let orders: Vec<_> = (0..50).map(|_| bench.order()).collect();
    bench.pass(MS * 1999, MS).await;
    assert_eq!(bench.double.sends().len(), 5, "something was sent while it was open");
    bench.pass(MS * 1001, MS).await;
    assert_eq!(bench.double.sends().len(), 6, "exactly one probe goes");
    assert_eq!(bench.double.sends()[5] - opened, Duration::from_secs(2));
    bench.pass(MS * 1999, MS).await;
    assert_eq!(bench.double.sends().len(), 6, "the hang counts as a failure and opens it again");
    bench.pass(Duration::from_secs(10), MS).await;
    for order in orders {
        order.await.unwrap();
    }
    let sends = bench.double.sends();
    assert_eq!(sends[6] - opened, Duration::from_secs(5), "2 s open, 1 s of hanging, 2 s open");
    assert_eq!(sends.len(), 5 + 1 + 50);
    assert!(bench.is_closed(0), "{:?}", bench.state());
}

#[tokio::test]
async fn refusals_do_not_open_the_breaker_of_a_healthy_service() {
    let bench = bench(|_| {}, |number| if number < 10 { Act::Status(422) } else { Act::Release });
    for _ in 0..10 {
        assert_eq!(class_of(&bench.send().await), "http-422");
    }
    assert!(bench.is_closed(0), "{:?}", bench.state());
    bench.send().await.unwrap();
}

#[tokio::test]
async fn an_answer_of_4xx_neither_trips_nor_heals() {
    let acts = [Act::Status(503), Act::Status(429), Act::Status(422), Act::Conflict, Act::Status(503), Act::Release];
    let bench = bench(|_| {}, move |number| acts[number]);
    let mut failures = Vec::new();
    for _ in acts {
        let _ = bench.send().await;
        assert_eq!(bench.state().position, BreakerPosition::Closed);
        failures.push(bench.state().failures);
    }
    assert_eq!(failures, [1, 1, 1, 1, 2, 0]);
}

#[tokio::test]
async fn a_probe_that_is_dropped_gives_its_place_back() {
    let bench = bench(
        |_| {},
        |number| {
            if number < 5 {
                Act::Status(503)
            } else if number == 5 {
                Act::Hang
            } else {
                Act::Release
            }
        },
    );
    for _ in 0..5 {
        let _ = bench.send().await;
    }
    bench.clock.advance(Duration::from_secs(2));
    let mut probe = Box::pin(bench.send());
    assert!(futures::poll!(&mut probe).is_pending());
    assert_eq!(bench.send().await.unwrap_err().parked_by.as_deref(), Some("breaker of stock"));
    drop(probe);
    bench.send().await.unwrap();
    assert!(bench.is_closed(0), "{:?}", bench.state());
}

#[tokio::test]
async fn a_parked_call_is_told_how_long_the_breaker_stays_open() {
    let bench = bench(|_| {}, |_| Act::Status(503));
    for _ in 0..5 {
        let _ = bench.send().await;
    }
    bench.clock.advance(MS * 500);
    let parked = bench.send().await.unwrap_err();
    assert_eq!((parked.retry_after, bench.double.sends().len()), (Some(MS * 1500), 5));
}

#[tokio::test]
async fn only_transient_failures_are_tried_again_within_an_attempt() {
    for (act, expected) in [(Act::Status(503), 3), (Act::Status(422), 1), (Act::Status(429), 1), (Act::Release, 1)] {
        let bench = bench(|config| config.tries = 3, move |_| act);
        let request = bench.request();
        let ctx = request.ctx.clone();
        let _ = bench.drive(bench.stack.send(request)).await;
        assert_eq!((bench.double.sends().len(), ctx.sends()), (expected, expected as u32));
    }
}

#[tokio::test]
async fn an_attempt_that_was_sent_and_then_held_back_counts_as_sent() {
    let bench = bench(
        |config| {
            config.tries = 3;
            config.breaker.failures = 1;
        },
        |_| Act::Status(503),
    );
    assert_eq!(class_of(&bench.drive(bench.send()).await), "http-503");
    assert_eq!(bench.double.sends().len(), 1);
    assert_eq!(bench.state().position, BreakerPosition::Open);
}

#[tokio::test]
async fn a_send_without_an_answer_is_given_up_at_its_timeout() {
    let bench = bench(|_| {}, |_| Act::Hang);
    let mut attempt = Box::pin(bench.send());
    assert!(futures::poll!(&mut attempt).is_pending());
    bench.clock.advance(MS * 4999);
    assert!(futures::poll!(&mut attempt).is_pending());
    bench.clock.advance(MS);
    assert_eq!(class_of(&attempt.now_or_never().expect("given up by now")), "timeout");
    assert!(bench.is_closed(1), "{:?}", bench.state());
}

#[tokio::test]
async fn an_attempt_for_which_nothing_was_sent_costs_nothing() {
    let bench = bench(
        |config| {
            config.concurrency = 1;
            config.timeout = "10s".parse().unwrap();
        },
        |_| Act::Hang,
    );
    let (mut first, mut second) = (Box::pin(bench.send()), Box::pin(bench.send()));
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    bench.clock.advance(Duration::from_secs(12));
    let parked = second.now_or_never().expect("given up by now").unwrap_err();
    assert_eq!(parked.parked_by.as_deref(), Some("concurrency limit of stock"));
}

#[tokio::test]
async fn the_engine_waits_longer_than_an_attempt_may_take() {
    let mut config = DownstreamConfig::at("http://stock.test");
    config.tries = 5;
    let settings = Settings::check("stock", &config).unwrap();
    assert!(start_to_close(&settings) > deadline(&settings));
    assert!(deadline(&settings) >= settings.timeout * 5);
}
