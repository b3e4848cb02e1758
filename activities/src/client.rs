//! The innermost service of every stack: one request on the wire, its answer read within bounds.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use overdue_runtime::activity::ActivityFailure;
use overdue_runtime::engine::Environment;
use overdue_runtime::fault::{Point, point};
use tower::Service;

use crate::answer::{self, ANSWER_BYTES_MAX, Answer, Body};
use crate::call::Request;
use crate::error::ConfigError;
use crate::excerpt::excerpt;
use crate::retry_after::retry_after;
use crate::trace;
use crate::wire::{Incoming, NoAnswer, Outgoing, Wire};

/// How long an idle connection is kept: shorter than servers usually do, so that few are found closed.
const POOL_IDLE: Duration = Duration::from_secs(15);
/// How long a connection may take to come about; the timeout of a send holds besides.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("overdue/", env!("CARGO_PKG_VERSION"));

/// Makes TLS ready to be used, for the whole process; more than one call does no harm.
pub fn init_crypto() {
    // An error only says that a provider is installed already, and then that one is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Sends requests; clones share their connections. One serves all downstreams: what it does is the same for each.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: reqwest::Client,
    environment: Environment,
}

impl HttpClient {
    pub(crate) fn new(environment: &Environment) -> Result<Self, ConfigError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(ConfigError::CryptoMissing);
        }
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            // A redirect would send the order's data, and our secret, to an address that nobody configured.
            .redirect(reqwest::redirect::Policy::none())
            // Every send is one that the history counts.
            .retry(reqwest::retry::never())
            // The environment's proxy settings are meant for other programs.
            .no_proxy()
            // A small answer must not become a large one.
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE)
            .build()
            .map_err(|error| ConfigError::Client { reason: root_cause(error) })?;
        Ok(Self { client, environment: environment.clone() })
    }

    async fn send(self, request: Request) -> Result<Answer, ActivityFailure> {
        let mut headers = request.headers;
        trace::inject(request.ctx.traceparent(), self.environment.random.as_ref(), &mut headers);
        let outgoing = self.client.request(request.call.method.clone(), request.url).headers(headers).body(request.body);
        let (name, downstream) = (request.call.definition.name, request.call.downstream);
        // Before the send: a future that is dropped in the middle has sent, too.
        request.ctx.record_send();
        point(Point::RequestUnsent);
        let response = outgoing.send().await;
        point(Point::RequestSent);
        let response = response.map_err(|error| no_answer(name, downstream, error))?;
        let status = response.status();
        let wait = retry_after(response.headers(), self.environment.clock.now(), request.call.reading.retry_after_max);
        let body = receive(response).await;
        answer::read(&request.call, status, wait, &body)
    }
}

impl Service<Request> for HttpClient {
    type Response = Answer;
    type Error = ActivityFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, ActivityFailure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ActivityFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// One request as it stands, for whom a status and what comes with it are enough.
#[async_trait]
impl Wire for HttpClient {
    async fn send(&self, request: Outgoing) -> Result<Incoming, NoAnswer> {
        let outgoing = self.client.request(request.method, request.url).headers(request.headers).body(request.body);
        let response =
            outgoing.send().await.map_err(|error| if error.is_connect() { NoAnswer::Connect } else { NoAnswer::Broken })?;
        let (status, headers) = (response.status(), response.headers().clone());
        // The status has come: a body that breaks off, or is too large, takes nothing from it.
        let body = match receive(response).await {
            Body::Whole(bytes) | Body::TooLarge(bytes) | Body::Broken(bytes, _) => bytes,
        };
        Ok(Incoming { status, headers, body: Some(body) })
    }
}

async fn receive(response: reqwest::Response) -> Body {
    let mut received = BytesMut::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) if received.len() + chunk.len() > ANSWER_BYTES_MAX => {
                received.extend_from_slice(&chunk[..ANSWER_BYTES_MAX - received.len()]);
                return Body::TooLarge(received.freeze());
            }
            Ok(chunk) => received.extend_from_slice(&chunk),
            Err(error) => return Body::Broken(received.freeze(), root_cause(error)),
        }
    }
    Body::Whole(Bytes::from(received))
}

fn no_answer(name: &str, downstream: &str, error: reqwest::Error) -> ActivityFailure {
    let (error_type, what) = match () {
        () if error.is_builder() => {
            return ActivityFailure::permanent("input", format!("{name} of {downstream}: the request cannot be written"));
        }
        () if error.is_connect() => ("connect", "no connection"),
        () if error.is_timeout() => ("timeout", "no answer in time"),
        () => ("broken", "the connection broke before the answer"),
    };
    ActivityFailure::transient(error_type, format!("{name} of {downstream}: {what} ({})", root_cause(error)))
}

/// The innermost cause alone: the outer ones name the URL.
fn root_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    excerpt(cause.to_string().as_bytes(), None)
}
