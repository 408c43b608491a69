use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, ReadBuf};

use crate::limiter::{Limiter, Unfailing};

use super::byte_budget::{ByteBudget, SLICE};

/// Bandwidth limits for every reader.
pub trait PaceReadExt: AsyncRead {
    /// Reads as many bytes as `limiter` grants.
    ///
    /// See [`PaceRead`] for exactly when.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    /// use tokio::io::AsyncReadExt;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> std::io::Result<()> {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(1_000), 500).owned();
    ///
    /// let mut text = Vec::new();
    /// let file = &[7_u8; 2_500][..];
    /// file.pace_reads(limit).read_to_end(&mut text).await?;
    /// assert_eq!(text.len(), 2_500);
    /// assert_eq!(start.elapsed(), Duration::from_secs(2)); // 500 bytes at once, then 1,000 a second
    /// # Ok(())
    /// # }
    /// ```
    fn pace_reads<L: Unfailing>(self, limiter: L) -> PaceRead<Self, L>
    where
        Self: Sized,
    {
        PaceRead {
            inner: self,
            budget: ByteBudget::new(limiter),
            held: Vec::new(),
            start: 0,
        }
    }
}

impl<R: AsyncRead + ?Sized> PaceReadExt for R {}

pin_project! {
    /// Reader for the [`pace_reads`](PaceReadExt::pace_reads) method: reads as many bytes as the limit grants.
    ///
    /// * **Emits** bytes when the limiter grants them, in slices of at most 8 KiB, or of the most that the limiter can ever grant
    ///   if that is less.
    /// * **Waits** on the input; while it holds bytes, on the limiter only.
    /// * **Ends** with the input, at once.
    /// * **Fails** when the input does.
    /// * **Holds** at most one slice, and no more than the caller asked for; [`into_parts`](Self::into_parts) returns it.
    /// * **Cancel safety**: that of the input; a read that waits has put no bytes into the buffer as the caller sees it. The
    ///   part of the buffer that is not filled may have been written to.
    ///
    /// **Window bound**: that of the limiter's policy, in bytes that the caller has read.
    ///
    /// **Cost**: one request to the limiter for each slice. Bytes that need not wait are read into the caller's buffer. Bytes
    /// that wait are copied once to where they are held, and once from there. If many small reads are expensive, put a buffered
    /// reader around this one or inside it.
    #[must_use = "readers do nothing unless read from"]
    pub struct PaceRead<R, L: Limiter> {
        #[pin]
        inner: R,
        budget: ByteBudget<L>,
        // Bytes that were read and not granted yet begin at `start`.
        held: Vec<u8>,
        start: usize,
    }
}

impl<R, L: Limiter> PaceRead<R, L> {
    /// The input, and the bytes that were waiting for the limiter.
    pub fn into_parts(mut self) -> (R, Vec<u8>) {
        self.held.drain(..self.start);
        (self.inner, self.held)
    }
}

impl<R, L> AsyncRead for PaceRead<R, L>
where
    R: AsyncRead,
    L: Limiter<Error = Infallible>,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        this.budget.begin(cx);
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let waiting = &this.held[*this.start..];
        if waiting.is_empty() {
            this.held.clear();
            *this.start = 0;
            let read = ready!(poll_fill(this.inner, buf, cx))?;
            let ungranted = Ungranted {
                buf,
                count: read,
                held: this.held,
            };
            return ungranted.poll_grant(this.budget, cx).map(Ok);
        }
        let wanted = waiting.len().min(buf.remaining());
        let passed = ready!(this.budget.poll_grant(wanted, cx));
        buf.put_slice(&waiting[..passed]);
        this.budget.spend(passed);
        *this.start += passed;
        Poll::Ready(Ok(()))
    }
}

/// Does not print the bytes held: they may be secret.
impl<R: fmt::Debug, L: Limiter + fmt::Debug> fmt::Debug for PaceRead<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceRead")
            .field("inner", &self.inner)
            .field("budget", &self.budget)
            .field("held", &(self.held.len() - self.start))
            .finish_non_exhaustive()
    }
}

/// Reads up to a slice into the unfilled part of the buffer, without advancing the buffer. Returns the number of bytes.
fn poll_fill<R: AsyncRead>(
    inner: Pin<&mut R>,
    buf: &mut ReadBuf<'_>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if buf.remaining() > SLICE as usize {
        let mut slice = ReadBuf::new(buf.initialize_unfilled_to(SLICE as usize));
        let filled = inner.poll_read(cx, &mut slice);
        return filled.map_ok(|()| slice.filled().len());
    }
    let before = buf.filled().len();
    let filled = inner.poll_read(cx, buf);
    let read = buf.filled().len() - before;
    buf.set_filled(before);
    filled.map_ok(|()| read)
}

/// Bytes in the unfilled part of the caller's buffer. When this is dropped, also by a panic of the limiter, the bytes that were
/// not granted move to `held`.
struct Ungranted<'a, 'b> {
    buf: &'a mut ReadBuf<'b>,
    count: usize,
    held: &'a mut Vec<u8>,
}

impl Ungranted<'_, '_> {
    /// Advances the buffer by as many of the bytes as the limit grants. Ready at once if there are none.
    fn poll_grant<L: Limiter<Error = Infallible>>(
        mut self,
        budget: &mut ByteBudget<L>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.count > 0 {
            let passed = ready!(budget.poll_grant(self.count, cx));
            self.buf.advance(passed);
            self.count -= passed;
            budget.spend(passed);
        }
        Poll::Ready(())
    }
}

impl Drop for Ungranted<'_, '_> {
    fn drop(&mut self) {
        if self.count > 0 {
            let from = self.buf.filled().len();
            let rest = &self.buf.initialized()[from..from + self.count];
            self.held.extend_from_slice(rest);
        }
    }
}
