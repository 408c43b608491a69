use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;

use pin_project_lite::pin_project;
use tokio::io::AsyncWrite;

use crate::limiter::Limiter;

use super::purse::Purse;

pin_project! {
    /// Writer for the [`pace_writes`](super::PaceWriteExt::pace_writes) method: so many bytes as the limit lets pass.
    ///
    /// * **Accepts** bytes when the limiter lets them pass, in slices of at most 8 KiB, or of what can pass at once if that
    ///   is less.
    /// * **Waits** on the limiter, then on the inner writer.
    /// * **Flushes** and **closes** without waiting for the limit.
    /// * **Fails** when the inner writer does. Bytes that were paid for and not written are not paid for again.
    /// * **Holds** nothing.
    /// * **Cancel safety**: as that of the inner writer; a write that waits has written nothing.
    ///
    /// **Window bound**: that of the limiter's policy, in bytes; and one slice more, if the inner writer made a slice wait
    /// that was paid for.
    #[derive(Debug)]
    #[must_use = "writers do nothing unless written to"]
    pub struct PaceWrite<W, L: Limiter> {
        #[pin]
        inner: W,
        purse: Purse<L>,
    }
}

impl<W, L: Limiter> PaceWrite<W, L> {
    pub(super) const fn new(inner: W, limiter: L) -> Self {
        Self {
            inner,
            purse: Purse::new(limiter),
        }
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.purse.be_precise();
        self
    }

    /// The inner writer.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W, L> AsyncWrite for PaceWrite<W, L>
where
    W: AsyncWrite,
    L: Limiter<Error = Infallible>,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        this.purse.begin(cx);
        if buf.is_empty() {
            return this.inner.poll_write(cx, buf);
        }
        let passed = ready!(this.purse.poll_pay(buf.len(), cx));
        let written = ready!(this.inner.poll_write(cx, &buf[..passed]))?;
        this.purse.spend(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }
}
