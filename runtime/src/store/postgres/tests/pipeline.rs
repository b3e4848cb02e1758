//! A client that is stopped between two pipelined statements: to the server it is `active` and waits for input, which no
//! timeout of a session ends. Spoken in the server's own protocol, message by message.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use sqlx::Row;

use super::{cluster, database, opened, session};
use crate::store::conformance::fixtures::Node;
use crate::testing::eventually;

/// A session whose messages are sent as they are.
struct Raw(TcpStream);

impl Raw {
    /// Opens a session and waits until the server is ready for queries.
    fn open(database: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", cluster().port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut startup = 196_608i32.to_be_bytes().to_vec();
        startup.extend(format!("user\0postgres\0database\0{database}\0\0").into_bytes());
        let length = i32::try_from(startup.len() + 4).unwrap();
        stream.write_all(&[&length.to_be_bytes()[..], &startup[..]].concat()).unwrap();
        let mut raw = Self(stream);
        raw.until_ready();
        raw
    }

    fn until_ready(&mut self) {
        loop {
            let mut header = [0; 5];
            self.0.read_exact(&mut header).unwrap();
            let length = i32::from_be_bytes(header[1..].try_into().unwrap());
            let mut body = vec![0; usize::try_from(length).unwrap() - 4];
            self.0.read_exact(&mut body).unwrap();
            assert_ne!(header[0], b'E', "{}", String::from_utf8_lossy(&body));
            if header[0] == b'Z' {
                return;
            }
        }
    }

    fn send(&mut self, kind: u8, body: &[u8]) {
        let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.0.write_all(&[&[kind][..], &length, body].concat()).unwrap();
    }

    /// Runs a statement by the simple protocol.
    fn query(&mut self, sql: &str) {
        self.send(b'Q', format!("{sql}\0").as_bytes());
        self.until_ready();
    }

    /// Sends a statement as one of a pipeline: parse, bind, execute, and no synchronization behind it.
    fn pipeline(&mut self, sql: &str) {
        self.send(b'P', format!("\0{sql}\0\0\0").as_bytes());
        self.send(b'B', b"\0\0\0\0\0\0\0\0");
        self.send(b'E', b"\0\0\0\0\0");
    }
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "what is promised is real time")]
async fn a_client_that_is_stopped_between_two_pipelined_statements_cannot_keep_its_successor_waiting() {
    let url = database().await;
    let stopped = Node::on(opened(&url).await).await;
    let heir = Node::beside(opened(&url).await).await;
    let mut beside = session(&url).await;
    let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&mut beside).await.unwrap();
    let (node_id, epoch) = (&stopped.fence.node_id, stopped.fence.epoch);

    let mut raw = Raw::open(&name);
    raw.query(&format!(
        "UPDATE overdue.lanes SET pid = pg_backend_pid(),
             backend_start = (SELECT a.backend_start FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid())
         WHERE node_id = '{node_id}'"
    ));
    raw.pipeline("BEGIN");
    raw.pipeline(&format!("SELECT overdue.fence('{node_id}', 0::smallint, {epoch})"));
    // Let the server see what there is; the next statement never comes.
    raw.send(b'H', b"");
    let held = "SELECT a.state, a.wait_event FROM overdue.lanes AS l JOIN pg_stat_activity AS a USING (pid, backend_start)
                WHERE l.node_id = $1 AND a.xact_start IS NOT NULL AND a.wait_event = 'ClientRead'";
    let seen = eventually("the server waits for the next statement", async || {
        sqlx::query(held).bind(node_id).fetch_optional(&mut session(&url).await).await.unwrap()
    });
    let seen = seen.await;
    assert_eq!((seen.get::<&str, _>(0), seen.get::<&str, _>(1)), ("active", "ClientRead"));

    let began = std::time::Instant::now();
    assert!(heir.store.take_over(node_id, Duration::ZERO).await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(heir.claim(usize::MAX).await.len(), 64);
}
