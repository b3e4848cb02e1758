//! How many sends there are: in a time, and at once.

use std::time::Duration;

use futures::FutureExt;

use super::{Act, MS, bench, settle};
use crate::config::RateConfig;

#[tokio::test]
async fn sends_keep_the_rate_retries_included() {
    let bench = bench(
        |config| config.rate = Some(RateConfig { per_second: 10.0, burst: 1 }),
        // Every second of the first hundred fails; the breaker never sees five in a row.
        |number| if number < 100 && number % 2 == 0 { Act::Status(503) } else { Act::Release },
    );
    let orders: Vec<_> = (0..100).map(|_| bench.order()).collect();
    bench.pass(Duration::from_secs(60), MS * 5).await;
    for order in orders {
        order.await.unwrap();
    }
    let sends = bench.double.sends();
    assert_eq!(sends.len(), 150);
    for pair in sends.windows(2) {
        assert!(pair[1] - pair[0] >= MS * 100, "{pair:?}");
    }
    let took = sends[149] - sends[0];
    assert!(took >= MS * 14_900 && took <= MS * 18_000, "{took:?}");
}

#[tokio::test]
async fn a_node_keeps_to_its_share_of_the_rate_and_takes_more_when_others_leave() {
    let bench = bench(|config| config.rate = Some(RateConfig { per_second: 100.0, burst: 8 }), |_| Act::Release);
    bench.breakers.set_share(0.25);
    let mine: Vec<_> = (0..27).map(|_| bench.order()).collect();
    bench.pass(Duration::from_secs(2), MS * 5).await;
    let sends = bench.double.sends();
    assert_eq!(sends.len(), 27);
    assert!(sends[1] == sends[0] && sends[2] - sends[0] >= MS * 40, "a quarter of the burst is two: {sends:?}");
    for pair in sends[1..].windows(2) {
        assert!(pair[1] - pair[0] >= MS * 40, "25 a second are its share: {pair:?}");
    }
    futures::future::join_all(mine).await;

    bench.breakers.set_share(1.0);
    let all: Vec<_> = (0..58).map(|_| bench.order()).collect();
    bench.pass(Duration::from_secs(2), MS * 5).await;
    let sends = bench.double.sends().split_off(27);
    let took = sends[57] - sends[0];
    assert!(took >= MS * 490 && took <= MS * 600, "eight at once, then 100 a second: {took:?}");
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn those_who_wait_for_the_rate_come_back_one_by_one() {
    let bench = bench(|config| config.rate = Some(RateConfig { per_second: 1.0, burst: 1 }), |_| Act::Release);
    bench.send().await.unwrap();
    // The next slot is waited for in place; those behind it are told apart.
    let in_place = bench.order();
    settle().await;
    let mut waits = Vec::new();
    for _ in 0..3 {
        let parked = bench.send().now_or_never().expect("a turn far away is not waited for").unwrap_err();
        assert_eq!(parked.parked_by.as_deref(), Some("rate limit of stock"));
        waits.push(parked.retry_after.unwrap().as_secs());
    }
    assert_eq!(waits, [2, 3, 4]);
    bench.pass(Duration::from_secs(1), MS * 100).await;
    assert_eq!(in_place.await.unwrap(), 1);
}

#[tokio::test]
async fn no_more_sends_are_under_way_than_the_limit_says() {
    let bench = bench(|config| config.concurrency = 3, |_| Act::Release);
    let orders: Vec<_> = (0..20).map(|_| bench.order()).collect();
    for order in orders {
        order.await.unwrap();
    }
    assert_eq!(bench.double.under_way.lock().unwrap().1, 3);
}
