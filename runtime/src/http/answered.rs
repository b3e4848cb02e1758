//! A listener whose connections tell when a 2xx was written: the last commit point, for tests only.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use crate::fault::{Point, point};

/// How an answer begins that a caller takes for a promise.
const PROMISE: &[u8] = b"HTTP/1.1 20";

pub(super) struct Answered(pub(super) TcpListener);

impl Listener for Answered {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (Connection(stream), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

pub(super) struct Connection(TcpStream);

fn told(begins: &[u8], written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    if begins.starts_with(PROMISE) && matches!(written, Poll::Ready(Ok(_))) {
        point(Point::AnswerWritten);
    }
    written
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        told(bytes, Pin::new(&mut self.0).poll_write(cx, bytes))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let begins = parts.first().map_or(&[][..], |part| part);
        told(begins, Pin::new(&mut self.0).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
