//! A service whose connections break, hang and are closed at the wrong moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use overdue_runtime::engine::Clock;
use overdue_runtime::history::FailureClass::Transient;
use overdue_runtime::testing::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Calls, context, release};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 22\r\n\r\n{\"outcome\":\"RELEASED\"}";

/// What is done with the request of this number, from 0.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Answer,
    AnswerThenClose,
    CloseBeforeReading,
    CloseAfterReading,
    CutOff,
    Hang,
}

/// A service on bare TCP that counts the requests it has read in full.
struct Double {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Double {
    #[allow(clippy::disallowed_methods, reason = "the double is no part of the engine")]
    async fn start(acts: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (requests, next, acts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(acts));
        let counted = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (counted, next, acts) = (counted.clone(), next.clone(), acts.clone());
                tokio::spawn(async move { converse(stream, &counted, &next, acts.as_ref()).await });
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn converse(mut stream: TcpStream, counted: &AtomicUsize, next: &AtomicUsize, acts: &(dyn Fn(usize) -> Act + Send + Sync)) {
    loop {
        let mut first = [0];
        if !matches!(stream.peek(&mut first).await, Ok(1)) {
            return;
        }
        let act = acts(next.fetch_add(1, Ordering::SeqCst));
        if act == Act::CloseBeforeReading || !read_request(&mut stream).await {
            return;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        match act {
            Act::Answer => stream.write_all(ANSWER.as_bytes()).await.unwrap(),
            Act::AnswerThenClose => return stream.write_all(ANSWER.as_bytes()).await.unwrap(),
            Act::CutOff => return stream.write_all(&ANSWER.as_bytes()[..ANSWER.len() - 5]).await.unwrap(),
            Act::CloseBeforeReading | Act::CloseAfterReading => return,
            Act::Hang => std::future::pending().await,
        }
    }
}

/// Reads the head and the body that its content-length announces.
async fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if body.len() >= length {
                return true;
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
            _ => return false,
        }
    }
}

#[tokio::test]
async fn a_connection_closed_around_the_request_causes_no_hidden_resend() {
    // Each act lets the next request meet a connection that is kept, closed, or about to be.
    let acts = [
        Act::Answer,
        Act::CloseAfterReading,
        Act::Answer,
        Act::AnswerThenClose,
        Act::Answer,
        Act::CloseBeforeReading,
        Act::Answer,
        Act::CutOff,
    ];
    let shop = Double::start(move |number| acts[number % acts.len()]).await;
    let calls = Calls::to(&shop.url, |config| config.breaker.failures = 1000);
    let mut sends = 0;
    for _ in 0..200 {
        let before = shop.requests();
        let ctx = context();
        let reply = calls.attempt(&ctx, "release-stock", release()).await;
        assert_eq!(ctx.sends(), 1);
        assert!(shop.requests() - before <= 1, "one attempt came as {} requests", shop.requests() - before);
        assert!(reply.is_ok() || reply.as_ref().unwrap_err().failure.class == Transient, "{reply:?}");
        sends += ctx.sends() as usize;
    }
    assert!(shop.requests() <= sends);
    assert!(shop.requests() > sends / 2, "the double answered hardly anything");
}

#[tokio::test]
async fn a_request_that_was_read_and_not_answered_is_broken_and_counted_once() {
    let shop = Double::start(|number| if number == 1 { Act::CloseAfterReading } else { Act::Answer }).await;
    let calls = Calls::to(&shop.url, |_| {});
    calls.call("release-stock", release()).await.unwrap();
    assert_eq!(calls.failure().await.1, "broken");
    assert_eq!(shop.requests(), 2);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_broken() {
    let shop = Double::start(|_| Act::CutOff).await;
    let (class, error_type, _) = Calls::to(&shop.url, |_| {}).failure().await;
    assert_eq!((class, error_type.as_str()), (Transient, "broken"));
}

#[tokio::test]
async fn a_service_that_hangs_is_given_up_at_the_timeout_of_one_send() {
    let shop = Double::start(|_| Act::Hang).await;
    let calls = Calls::to(&shop.url, |config| config.timeout = "5s".parse().unwrap());
    let mut attempt = Box::pin(calls.failure());
    eventually("the request to arrive", || {
        assert!((&mut attempt).now_or_never().is_none());
        let arrived = (shop.requests() == 1).then_some(());
        async move { arrived }
    })
    .await;
    calls.clock.advance(Duration::from_millis(4999));
    assert!((&mut attempt).now_or_never().is_none());
    calls.clock.advance(Duration::from_millis(1));
    assert_eq!(attempt.now_or_never().expect("given up by now").1, "timeout");
    assert_eq!(calls.clock.monotonic(), Duration::from_secs(5));
}

#[tokio::test]
async fn each_try_is_a_send_of_its_own_in_the_same_trace() {
    let shop = crate::harness::service(wiremock::ResponseTemplate::new(503)).await;
    let calls = Calls::to(&shop.uri(), |config| config.tries = 3);
    let ctx = context().with_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let mut attempt = Box::pin(calls.attempt(&ctx, "release-stock", release()));
    eventually("the attempt to end", || {
        calls.clock.advance(Duration::from_millis(20));
        let ended = (&mut attempt).now_or_never();
        async move { ended }
    })
    .await
    .unwrap_err();
    let requests = crate::harness::received(&shop).await;
    assert_eq!((requests.len(), ctx.sends()), (3, 3));
    let of = |name| requests.iter().map(|request| crate::harness::header(request, name).to_owned()).collect::<Vec<_>>();
    assert!(of("idempotency-key").windows(2).all(|pair| pair[0] == pair[1]));
    assert!(of("traceparent").windows(2).all(|pair| pair[0][..36] == pair[1][..36] && pair[0] != pair[1]));
    assert!(requests.windows(2).all(|pair| pair[0].body == pair[1].body));
}
