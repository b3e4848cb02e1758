//! A TCP proxy before a database that fails where it hurts: around a COMMIT, or as networks do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
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

/// How the bytes of all connections travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// What the client says goes nowhere until the weather is better.
    pub deaf: bool,
    /// What the server says goes nowhere until the weather is better.
    pub mute: bool,
    /// Each piece takes so much longer, either way.
    pub latency: Duration,
    /// So many bytes pass in a second, either way; as many as there are where nothing is said.
    pub bytes_per_second: Option<u32>,
}

/// What becomes of the connections that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends are told at once, in the middle of whatever they say.
    Reset,
    /// The server is told and the client is not: it waits for an answer until the next cut.
    HalfOpen,
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
    weather: watch::Sender<Weather>,
    /// The last cut, and how many there were.
    cut: watch::Sender<(u64, Cut)>,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
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
        let state = State {
            fault: AtomicU8::new(0),
            struck: AtomicUsize::new(0),
            frozen: watch::Sender::new(false),
            weather: watch::Sender::default(),
            cut: watch::Sender::new((0, Cut::Reset)),
        };
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

    /// From now on bytes travel like this, on old and on new connections.
    pub fn set_weather(&self, weather: Weather) {
        self.state.weather.send_replace(weather);
    }

    /// Ends all connections that there are; new ones are taken.
    pub fn cut(&self, cut: Cut) {
        self.state.cut.send_modify(|(times, last)| {
            *times += 1;
            *last = cut;
        });
    }

    /// No fault is waiting or lasting any more; what was half open is closed.
    pub fn heal(&self) {
        self.state.fault.store(0, Ordering::SeqCst);
        self.set_weather(Weather::default());
        self.thaw();
        self.state.cut.send_modify(|(_, last)| *last = Cut::Reset);
    }
}

impl State {
    async fn relay(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut cuts = self.cut.subscribe();
        let times = cuts.borrow_and_update().0;
        let is_cut = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            // Whichever direction ends first ends both.
            tokio::select! {
                _ = self.forward(from_client, to_server) => false,
                _ = self.answer(from_server, to_client) => false,
                _ = cuts.wait_for(|cut| cut.0 > times) => true,
            }
        };
        if !is_cut {
            return;
        }
        let _ = server.set_zero_linger();
        drop(server);
        let _ = cuts.wait_for(|(_, last)| *last == Cut::Reset).await;
        let _ = client.set_zero_linger();
    }

    /// Waits for as long as so many bytes take.
    #[allow(clippy::disallowed_methods, reason = "a test's own server")]
    async fn travel(&self, way: Way, count: usize) {
        let mut weather = self.weather.subscribe();
        let holds = |weather: &Weather| if way == Way::ToServer { weather.deaf } else { weather.mute };
        let Ok(weather) = weather.wait_for(|weather| !holds(weather)).await.map(|weather| *weather) else { return };
        let share = |bytes: u32| Duration::from_secs(1).mul_f64(count as f64 / f64::from(bytes.max(1)));
        let takes = weather.latency + weather.bytes_per_second.map_or(Duration::ZERO, share);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
    }

    async fn answer(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            self.travel(Way::ToClient, count).await;
            to.write_all(&buffer[..count]).await?;
        }
    }

    async fn forward(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            self.travel(Way::ToServer, count).await;
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
