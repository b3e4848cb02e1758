//! Talking to the other nodes: one hop, and never for long. What does not get through is found in the store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::outbox::OutboxDecision;
use crate::engine::{Answer, Ask};
use crate::id::WorkflowKey;
use crate::store::Member;

/// How long an owner may take to answer before the store is used instead.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// The scheme under which a node shows another one's secret.
pub(crate) const SCHEME: &str = "Node";

/// A request that is forwarded.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Forwarded {
    pub(crate) r#type: String,
    pub(crate) id: String,
    pub(crate) ask: Ask,
}

/// An execution that was written to by another node than its owner.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nudge {
    pub(crate) r#type: String,
    pub(crate) id: String,
}

/// The way to other nodes.
#[async_trait]
pub(crate) trait Peers: Send + Sync {
    /// The owner's answer; `None` when it gave none in time.
    async fn ask(&self, peer: &Member, key: &WorkflowKey, ask: Ask) -> Option<Answer>;

    /// Has the owner look at an execution now instead of at its next scan.
    async fn nudge(&self, peer: &Member, key: &WorkflowKey);

    /// The owner's answer to what a person decides about an event; `None` when it gave none in time.
    async fn decide(&self, peer: &Member, decision: &OutboxDecision) -> Option<Answer>;

    /// Has another node look at once who is there and who owns what.
    async fn poke(&self, peer: &Member);
}

/// Connections to other nodes.
pub(super) struct HttpPeers {
    http: reqwest::Client,
}

impl HttpPeers {
    /// # Errors
    /// When the system gives no sockets.
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // Nodes speak plain HTTP; the provider is only what the client needs to be built.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
        let mut builder = reqwest::Client::builder();
        if let Ok(tls) = tls {
            builder = builder.tls_backend_preconfigured(tls);
        }
        let http = builder
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .timeout(ANSWER_MAX)
            .build()?;
        Ok(Self { http })
    }

    async fn post(&self, peer: &Member, path: &str, body: &impl Serialize) -> Option<reqwest::Response> {
        let url = peer.url.as_ref()?;
        let request =
            self.http.post(format!("{url}{path}")).header("authorization", format!("{SCHEME} {}", peer.secret)).json(body);
        match request.send().await.and_then(reqwest::Response::error_for_status) {
            Ok(response) => Some(response),
            Err(error) => {
                tracing::warn!(node.id = peer.node_id, error = %error.without_url(), "another node did not answer");
                None
            }
        }
    }
}

#[async_trait]
impl Peers for HttpPeers {
    async fn ask(&self, peer: &Member, key: &WorkflowKey, ask: Ask) -> Option<Answer> {
        let body = Forwarded { r#type: key.workflow_type().to_owned(), id: key.id().to_owned(), ask };
        answer(peer, self.post(peer, "/v1/peer/asks", &body).await?).await
    }

    async fn decide(&self, peer: &Member, decision: &OutboxDecision) -> Option<Answer> {
        answer(peer, self.post(peer, "/v1/peer/outbox", decision).await?).await
    }

    async fn nudge(&self, peer: &Member, key: &WorkflowKey) {
        let body = Nudge { r#type: key.workflow_type().to_owned(), id: key.id().to_owned() };
        let _ = self.post(peer, "/v1/peer/nudges", &body).await;
    }

    async fn poke(&self, peer: &Member) {
        let _ = self.post(peer, "/v1/peer/membership", &()).await;
    }
}

async fn answer(peer: &Member, response: reqwest::Response) -> Option<Answer> {
    match response.json().await {
        Ok(answer) => Some(answer),
        Err(error) => {
            tracing::warn!(node.id = peer.node_id, error = %error, "answer of another node not read");
            None
        }
    }
}
