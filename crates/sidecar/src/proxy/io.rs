use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection to the upstream.
///
/// It notes whether anything was received, since a request may be repeated only if nothing was. A write that fails does not end it: an
/// upstream that answers early and closes is still read to its end, where a failed write would hide its answer.
#[derive(Debug)]
pub(super) struct Io {
    stream: TcpStream,
    has_received: Arc<AtomicBool>,
    /// Why a write failed. It is returned when reading is over, too.
    broken: Option<io::ErrorKind>,
    is_read_over: bool,
}

impl Io {
    pub(super) fn new(stream: TcpStream, has_received: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            has_received,
            broken: None,
            is_read_over: false,
        }
    }

    /// The end of a write. Reading wakes the task, since a reset ends both directions.
    fn written(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Err(error)) if !self.is_read_over => {
                self.broken = Some(error.kind());
                Poll::Pending
            }
            result => result,
        }
    }

    fn poll_broken(&self) -> Option<Poll<io::Result<usize>>> {
        let kind = self.broken?;
        Some(if self.is_read_over {
            Poll::Ready(Err(kind.into()))
        } else {
            Poll::Pending
        })
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.has_received.store(true, Ordering::Relaxed);
        } else if read.is_ready() {
            self.is_read_over = true;
            if self.broken.is_some() {
                cx.waker().wake_by_ref();
            }
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.poll_broken() {
            return broken;
        }
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(broken) = self.poll_broken() {
            return broken;
        }
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(result)
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
