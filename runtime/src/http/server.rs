//! A listening server: binds, says where, and ends with its node.

use std::future::Future;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::{Reach, router};
use crate::client::Client;
use crate::engine::EngineError;

/// Why a server cannot begin, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anybody who can reach the address could move money.
    #[error(
        "refusing to listen on {address}, beyond loopback, without a token: make one first \
         (overdue token create NAME --scopes admin --store URL) or listen on 127.0.0.1"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The listener failed.
    #[error("the listener failed: {0}")]
    Listener(std::io::Error),
    /// The node.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// An address that is listened on; whoever connects waits until a server runs on it.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `listen`, such as `127.0.0.1:7070`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind(listen: &str) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address: listen.to_owned(), source };
        let listener = TcpListener::bind(listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { listener, address })
    }

    /// Where others reach it; `None` when it listens on every address of the machine, which names none.
    pub fn url(&self) -> Option<String> {
        (!self.address.ip().is_unspecified()).then(|| format!("http://{}", self.address))
    }
}

/// A server that is bound to its address.
pub struct Server {
    client: Client,
    listener: Listener,
}

impl Server {
    /// A server of `client`'s node on `listener`.
    ///
    /// # Errors
    /// [`ServeError::Open`] when the address is reachable from elsewhere and the store has no token.
    pub async fn on(client: Client, listener: Listener) -> Result<Self, ServeError> {
        let tokens = client.engine().store().tokens().await.map_err(EngineError::from)?;
        if tokens.is_empty() && !listener.address.ip().is_loopback() {
            return Err(ServeError::Open { address: listener.address });
        }
        Ok(Self { client, listener })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.listener.address)
    }

    /// Answers requests until `stop` is ready, then drains the node while it still answers.
    ///
    /// # Errors
    /// [`ServeError`] when the node or the listener fails.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let (engine, client) = (self.client.engine().clone(), self.client.clone());
        let reach = if self.listener.address.ip().is_loopback() { Reach::Loopback } else { Reach::Network };
        let listener = self.listener.listener;
        #[cfg(feature = "fault-injection")]
        let listener = super::answered::Answered(listener);
        let serve = async { axum::serve(listener, router(self.client, reach)).await };
        let until = async {
            tokio::select! {
                biased;
                failed = engine.failed() => Err(ServeError::from(failed)),
                () = stop => {
                    engine.drain().await;
                    client.say_goodbye().await;
                    Ok(())
                }
            }
        };
        tokio::select! {
            biased;
            ended = until => ended,
            listener = serve => Err(ServeError::Listener(listener.err().unwrap_or_else(|| std::io::Error::other("it ended")))),
        }
    }
}
