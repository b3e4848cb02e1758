//! A TCP proxy before a database that fails where it hurts: around a COMMIT.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A COMMIT by the simple protocol, as the writing session sends it.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What happens to the next COMMIT that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// It reaches the server; the connection is cut before the answer comes back.
    LoseTheAnswer = 1,
    /// It does not reach the server: the connection is cut in front of it.
    LoseTheCommit = 2,
    /// Half of it reaches the server, and then nothing moves until [`Proxy::thaw`], as with a client that is stopped in
    /// the middle of a message.
    Freeze = 3,
}

/// A proxy before a server on this machine. Its connections end with the runtime that it was started on.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    fault: AtomicU8,
    struck: AtomicUsize,
    frozen: watch::Sender<bool>,
}

impl Proxy {
    /// Starts one before the server on `server_port`.
    ///
    /// # Errors
    /// When no port can be listened on.
    #[allow(clippy::disallowed_methods, reason = "a test's own server")]
    pub async fn before(server_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let state = State { fault: AtomicU8::new(0), struck: AtomicUsize::new(0), frozen: watch::Sender::new(false) };
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await {
                        state.relay(client, server).await;
                    }
                });
            }
        });
        Ok(Self { port, state })
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets the next COMMIT fail in this way.
    pub fn fail_next_commit(&self, fault: CommitFault) {
        self.state.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// How many commits failed.
    pub fn struck(&self) -> usize {
        self.state.struck.load(Ordering::SeqCst)
    }

    /// Lets a frozen connection go on.
    pub fn thaw(&self) {
        self.state.frozen.send_replace(false);
    }
}

impl State {
    async fn relay(&self, client: TcpStream, server: TcpStream) {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // Whichever direction ends first ends both.
        tokio::select! {
            _ = self.forward(from_client, to_server) => {}
            _ = copy(from_server, to_client) => {}
        }
    }

    async fn forward(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let bytes = &buffer[..count];
            // The session waits for the answer to what came before, so that a COMMIT comes in one piece.
            let fault = if bytes.ends_with(COMMIT) { self.fault.swap(0, Ordering::SeqCst) } else { 0 };
            if fault == CommitFault::LoseTheAnswer as u8 {
                to.write_all(bytes).await?;
                self.struck.fetch_add(1, Ordering::SeqCst);
                // The server answers, and nobody reads it: it closes its end when it sees that ours is closed.
                to.shutdown().await?;
                return Ok(());
            }
            if fault == CommitFault::LoseTheCommit as u8 {
                self.struck.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            if fault == CommitFault::Freeze as u8 {
                let (half, rest) = bytes.split_at(count - COMMIT.len() / 2);
                to.write_all(half).await?;
                self.frozen.send_replace(true);
                self.struck.fetch_add(1, Ordering::SeqCst);
                let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
                to.write_all(rest).await?;
                continue;
            }
            to.write_all(bytes).await?;
        }
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<u64> {
    tokio::io::copy(&mut from, &mut to).await
}
