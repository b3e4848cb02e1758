//! The HTTP API of a node in this process.

use std::time::Duration;

use overdue_runtime::http::{Listener, Reach, Server, router};
use reqwest::Method;
use serde_json::Value;

use super::node::Node;
use super::server::Answer;

/// A listening API.
pub(crate) struct Api {
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    token: Option<String>,
}

impl Node {
    /// Opens the node's API on a free port of loopback.
    pub(crate) async fn listen(&self) -> Api {
        let server = Server::on(self.client.clone(), Listener::bind("127.0.0.1:0").await.unwrap()).await.unwrap();
        let url = server.url();
        tokio::spawn(server.run(std::future::pending()));
        Api::at(url)
    }

    /// The same API as a listener that can be reached from elsewhere offers it.
    pub(crate) async fn listen_beyond_loopback(&self) -> Api {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, router(self.client.clone(), Reach::Network)).into_future());
        Api::at(url)
    }
}

impl Api {
    fn at(url: String) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        Self { url, http, token: None }
    }

    /// The same API, asked with a token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { url: self.url.clone(), http: self.http.clone(), token: Some(token.to_owned()) }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Answer { status, headers, text: response.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Posts a body as it is.
    pub(crate) async fn post_text(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.send(self.request(Method::POST, path).body(body)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, body.to_string()).await
    }
}
