//! The socket of a client: its first bytes, and how hyper sees it.
//!
//! hyper-util detects the version without a timer, so a connection that sends nothing stays open for ever. Here the watch of
//! the connection runs from the connect.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use crate::proxy::{FREE_BUFFERS, LARGE, Refuser, SMALL};

use super::heads::Heads;
use super::places::Place;
use super::watchdog::Watch;

/// What HTTP/2 with prior knowledge begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// A client that still sends an upload is never silent for this long.
const SILENCE: Duration = Duration::from_secs(2);

/// Reads until it is known what the client speaks: whether it is HTTP/2, and the bytes read. `None`: the client has
/// closed before, or has sent nothing when the connection ends.
pub(super) async fn first_bytes(
    stream: &mut TcpStream,
    ended: impl Future<Output = ()>,
) -> io::Result<Option<(bool, Bytes)>> {
    let mut first = [0];
    tokio::select! {
        biased;
        // Not `readable`: the runtime assumes that of a new socket.
        peeked = stream.peek(&mut first) => { peeked?; }
        // The kernel may have bytes of which the runtime does not know yet.
        () = ended => match SockRef::from(&*stream).peek(&mut [MaybeUninit::uninit()]) {
            Ok(1..) => {}
            _ => return Ok(None),
        },
    }
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

/// The socket of a client. The watch hears what it reads and writes.
#[derive(Debug)]
pub(super) struct Socket {
    /// Read already.
    replay: Bytes,
    stream: TcpStream,
    /// Two large buffers, for an upload that comes fast: for the part that the service has not taken, and for the next one.
    large: Option<SemaphorePermit<'static>>,
    was_large: bool,
    watch: Arc<Watch>,
    heads: Arc<Mutex<Heads>>,
    /// hyper has refused a head with this status. Its answer has no body and is not sent.
    refused: Option<StatusCode>,
    refuser: Refuser,
    _place: Place,
}

impl Socket {
    pub(super) fn new(
        replay: Bytes,
        stream: TcpStream,
        watch: Arc<Watch>,
        heads: Arc<Mutex<Heads>>,
        refuser: Refuser,
        place: Place,
    ) -> Self {
        Self {
            replay,
            stream,
            large: None,
            was_large: false,
            watch,
            heads,
            refused: None,
            refuser,
            _place: place,
        }
    }

    /// Answers a head that hyper has refused, unless the end of a response is on its way: then hyper has answered without a body.
    pub(super) async fn refuse(&mut self) {
        self.watch.is_over();
        let status = self.refused.unwrap_or(StatusCode::BAD_REQUEST);
        let answer = self.refuser.bytes(status);
        if self.refused.is_some() && self.stream.write_all(&answer).await.is_ok() {
            let _ = self.stream.shutdown().await;
        }
    }

    /// Throws away what the client still sends, until it closes, is silent or is late.
    ///
    /// A socket that is closed before resets the connection, and the client loses the response.
    pub(super) async fn linger(mut self) {
        self.watch.is_over();
        let mut waste = vec![0; 4096];
        while let Ok(Ok(1..)) = timeout(SILENCE, self.stream.read(&mut waste)).await {}
    }

    fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper makes its buffer twice as large when a read fills it, so a read never fills the largest one.
        let most = match &self.large {
            Some(_) => LARGE - 1,
            None => SMALL - 1,
        } as u64;
        let mut limited = (&mut self.stream).take(most);
        ready!(Pin::new(&mut limited).poll_read(cx, buffer))?;
        let is_large = most - limited.limit() >= SMALL as u64 - 1;
        if is_large {
            self.large = self
                .large
                .take()
                .or_else(|| FREE_BUFFERS.try_acquire_many(2).ok());
        } else if !self.was_large {
            self.large = None;
        }
        self.was_large = is_large;
        Poll::Ready(Ok(()))
    }

    /// Without a request, hyper writes only to refuse one.
    fn is_refusal(&mut self, bytes: &[u8]) -> bool {
        let is_refusal = self.watch.awaits_head();
        if is_refusal {
            let status = bytes.get(9..12).map(StatusCode::from_bytes);
            self.refused = status.and_then(Result::ok);
        }
        self.refused.is_some()
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
            let answer = self.refuser.bytes(StatusCode::REQUEST_TIMEOUT);
            let _ = self.stream.try_write(&answer);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.replay.is_empty() {
            let before = buffer.filled().len();
            ready!(this.poll_stream(cx, buffer))?;
            let read = &buffer.filled()[before..];
            let passed = Heads::lock(&this.heads).pass(read);
            if passed < read.len() {
                this.replay = Bytes::copy_from_slice(&read[passed..]);
                buffer.set_filled(before + passed);
            }
        } else {
            let fits = this.replay.len().min(buffer.remaining());
            let passed = Heads::lock(&this.heads).pass(&this.replay[..fits]);
            buffer.put_slice(&this.replay[..passed]);
            this.replay.advance(passed);
            if this.replay.is_empty() {
                this.replay = Bytes::new();
            }
        }
        this.watch.has_read();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
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
        if let [bytes] = slices
            && self.is_refusal(bytes)
        {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes when it has written all that it has.
        if self.watch.has_flushed() {
            cx.waker().wake_by_ref();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refused.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::net::TcpListener;

    use super::*;

    async fn accepted() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn a_silent_connection_ends_at_once_when_it_is_to_end() {
        let (_client, mut stream) = accepted().await;
        assert_eq!(first_bytes(&mut stream, ready(())).await.unwrap(), None);
    }

    #[tokio::test]
    async fn bytes_that_came_before_the_end_are_read() {
        let (mut client, mut stream) = accepted().await;
        // The runtime has seen that there is nothing, and does not know yet of what comes.
        let ended = async { client.write_all(b"GET").await.unwrap() };
        let read = first_bytes(&mut stream, ended).await.unwrap();
        assert_eq!(read, Some((false, Bytes::from("GET"))));
    }
}
