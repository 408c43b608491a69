//! The socket of a client: its first bytes, and how hyper sees it.
//!
//! hyper-util detects the version without a timer, so a connection that sends nothing stays open for ever. Here the watch of
//! the connection runs from the connect.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::proxy::{LARGE, Loan, SMALL};
use crate::state::Sidecar;

use super::watchdog::Watch;

/// What HTTP/2 with prior knowledge begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// A client that still sends an upload is never silent for this long.
const SILENCE: Duration = Duration::from_secs(2);

/// To a client that has sent a part of a head. To one that has sent nothing there is nothing to answer.
const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Reads until it is known what the client speaks: whether it is HTTP/2, and the bytes read. `None`: the client has
/// closed before.
pub(super) async fn first_bytes(stream: &mut TcpStream) -> io::Result<Option<(bool, Bytes)>> {
    stream.readable().await?;
    let mut bytes = BytesMut::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
        let known = bytes.len().min(PREFACE.len());
        if bytes[..known] != PREFACE[..known] {
            return Ok(Some((false, bytes.freeze())));
        }
        if known == PREFACE.len() {
            return Ok(Some((true, bytes.freeze())));
        }
    }
}

/// A connection, counted until it is dropped, also as an upgraded one.
#[derive(Debug)]
pub(super) struct Counted(Arc<Sidecar>);

impl Counted {
    /// `None`: there are too many.
    pub(super) fn new(sidecar: &Arc<Sidecar>, most: usize) -> Option<Self> {
        let connections = &sidecar.counts.connections;
        let counted = Self(Arc::clone(sidecar));
        (connections.fetch_add(1, Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Relaxed);
    }
}

/// The socket of a client. The watch hears what it reads and writes.
#[derive(Debug)]
pub(super) struct Socket {
    /// Read already.
    replay: Bytes,
    stream: TokioIo<TcpStream>,
    /// For an upload that comes fast: for the part that the service has not taken, and for the next one.
    loan: Option<(Loan, Loan)>,
    was_large: bool,
    watch: Arc<Watch>,
    _counted: Counted,
}

impl Socket {
    pub(super) fn new(
        replay: Bytes,
        stream: TcpStream,
        watch: Arc<Watch>,
        counted: Counted,
    ) -> Self {
        Self {
            replay,
            stream: TokioIo::new(stream),
            loan: None,
            was_large: false,
            watch,
            _counted: counted,
        }
    }

    /// Throws away what the client still sends, until it closes, is silent or is late.
    ///
    /// A socket that is closed before resets the connection, and the client loses the response.
    pub(super) async fn linger(mut self) {
        self.watch.is_over();
        let mut waste = vec![0; 4096];
        let stream = self.stream.inner_mut();
        while let Ok(Ok(1..)) = timeout(SILENCE, stream.read(&mut waste)).await {}
    }

    fn wrote<T>(&self, polled: Poll<T>) -> Poll<T> {
        if polled.is_pending() {
            self.watch.waits_for_reader();
        } else {
            self.watch.has_written();
        }
        polled
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.watch.has_late_head() {
            let _ = self.stream.inner().try_write(LATE);
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.replay.is_empty() {
            let fits = self.replay.len().min(buffer.remaining());
            buffer.put_slice(&self.replay[..fits]);
            self.replay.advance(fits);
            if self.replay.is_empty() {
                self.replay = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        // hyper makes its buffer twice as large when a read fills it, so a read never fills the largest one.
        let most = match &self.loan {
            Some(_) => LARGE - 1,
            None => SMALL - 1,
        } as u64;
        let mut limited = TokioIo::new(self.stream.inner_mut().take(most));
        let polled = Pin::new(&mut limited).poll_read(cx, buffer);
        let is_large = most - limited.inner().limit() >= SMALL as u64 - 1;
        if is_large {
            self.loan = self.loan.take().or_else(|| Loan::take().zip(Loan::take()));
        } else if polled.is_ready() && !self.was_large {
            self.loan = None;
        }
        if polled.is_ready() {
            self.was_large = is_large;
        }
        if polled.is_ready() {
            self.watch.has_read();
        }
        polled
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
