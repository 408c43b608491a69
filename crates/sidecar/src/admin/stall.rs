//! A connection that ends when its peer stops reading.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use paceline::time::{Resolution, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection on which a write that makes no progress for some time fails. hyper has no such timeout: a peer that does not read
/// `/events` would keep its connection for ever.
#[derive(Debug)]
pub(super) struct Stall {
    stream: TcpStream,
    patience: Duration,
    timer: Timer,
    is_armed: bool,
}

impl Stall {
    pub(super) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            timer: Timer::new().with_resolution(Resolution::Millis),
            is_armed: false,
        }
    }

    /// Passes a finished write on, and ends a write that has waited too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.is_armed = false;
            self.timer.disarm();
            return written;
        }
        if !self.is_armed {
            self.is_armed = true;
            self.timer.arm(self.patience);
        }
        ready!(self.timer.poll_elapsed(cx));
        Poll::Ready(Err(Error::new(
            ErrorKind::TimedOut,
            "the peer does not read",
        )))
    }
}

impl AsyncRead for Stall {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stall {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.bounded(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    async fn pair() -> (Stall, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (Stall::new(accepted.unwrap().0, PATIENCE), peer.unwrap())
    }

    /// Writes until the peer's buffers are full.
    async fn fill(stall: &mut Stall) {
        let block = vec![0; 64 * 1024];
        let soon = Duration::from_secs(1);
        while timeout(soon, stall.write(&block)).await.is_ok() {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_makes_no_progress_fails() {
        let (mut stall, _peer) = pair().await;
        fill(&mut stall).await;
        let error = stall.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_at_last_is_not_cut() {
        let (mut stall, mut peer) = pair().await;
        fill(&mut stall).await;
        let mut buffer = vec![0; 1024 * 1024];
        for _ in 0..4 {
            // Of the 10 s, 1 s is over.
            while timeout(Duration::from_secs(1), peer.read(&mut buffer))
                .await
                .is_ok()
            {}
            fill(&mut stall).await;
        }
        let error = stall.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
