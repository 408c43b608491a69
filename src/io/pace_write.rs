use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;

use pin_project_lite::pin_project;
use tokio::io::AsyncWrite;

use crate::limiter::{Limiter, Unfailing};

use super::byte_budget::ByteBudget;

/// Bandwidth limits for every writer.
pub trait PaceWriteExt: AsyncWrite {
    /// Writes as many bytes as `limiter` grants.
    ///
    /// See [`PaceWrite`] for exactly when.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    /// use tokio::io::AsyncWriteExt;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> std::io::Result<()> {
    /// let start = tokio::time::Instant::now();
    /// // One limit for two uploads: they share the bandwidth.
    /// let limit = TokenBucket::new(Rate::per_second(1_000), 500).shared();
    /// let mut first = Vec::new().pace_writes(limit.clone());
    /// let mut second = Vec::new().pace_writes(limit);
    ///
    /// tokio::try_join!(first.write_all(&[1; 1_250]), second.write_all(&[2; 1_250]))?;
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # Ok(())
    /// # }
    /// ```
    fn pace_writes<L: Unfailing>(self, limiter: L) -> PaceWrite<Self, L>
    where
        Self: Sized,
    {
        PaceWrite {
            inner: self,
            budget: ByteBudget::new(limiter),
        }
    }
}

impl<W: AsyncWrite + ?Sized> PaceWriteExt for W {}

pin_project! {
    /// Writer for the [`pace_writes`](PaceWriteExt::pace_writes) method: writes as many bytes as the limit grants.
    ///
    /// * **Accepts** bytes when the limiter grants them, in slices of at most 8 KiB, or of the most that the limiter can ever
    ///   grant if that is less.
    /// * **Waits** on the limiter, then on the inner writer.
    /// * **Flushes** and **closes** without waiting for the limit.
    /// * **Fails** when the inner writer does. Bytes that were granted and not written need no second grant.
    /// * **Holds** nothing.
    /// * **Cancel safety**: that of the inner writer; a write that waits has written nothing.
    ///
    /// **Window bound**: that of the limiter's policy, in bytes; one slice more if the inner writer was not ready for a slice
    /// that was granted.
    #[derive(Debug)]
    #[must_use = "writers do nothing unless written to"]
    pub struct PaceWrite<W, L: Limiter> {
        #[pin]
        inner: W,
        budget: ByteBudget<L>,
    }
}

impl<W, L: Limiter> PaceWrite<W, L> {
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
        this.budget.begin(cx);
        if buf.is_empty() {
            return this.inner.poll_write(cx, buf);
        }
        let granted = ready!(this.budget.poll_grant(buf.len(), cx));
        let written = ready!(this.inner.poll_write(cx, &buf[..granted]))?;
        this.budget.spend(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }
}
