use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, ReadBuf};

use crate::limiter::Limiter;

use super::purse::{Purse, SLICE};

pin_project! {
    /// Reader for the [`pace_reads`](super::PaceReadExt::pace_reads) method: so many bytes as the limit lets pass.
    ///
    /// * **Emits** bytes when the limiter lets them pass, in slices of at most 8 KiB, or of what can pass at once if that is
    ///   less.
    /// * **Waits** on the limiter while it holds bytes, leaving the input alone; on the input otherwise.
    /// * **Ends** when the input does, at once.
    /// * **Fails** when the input does.
    /// * **Holds** at most one slice, which [`into_parts`](Self::into_parts) gives back.
    /// * **Cancel safety**: as that of the input; a read that waits has taken nothing from the caller's view.
    ///
    /// **Window bound**: that of the limiter's policy, in bytes handed to the reader.
    #[must_use = "readers do nothing unless read from"]
    pub struct PaceRead<R, L: Limiter> {
        #[pin]
        inner: R,
        purse: Purse<L>,
        // What was read and not handed on begins at `start`.
        held: Vec<u8>,
        start: usize,
    }
}

impl<R, L: Limiter> PaceRead<R, L> {
    pub(super) const fn new(inner: R, limiter: L) -> Self {
        Self {
            inner,
            purse: Purse::new(limiter),
            held: Vec::new(),
            start: 0,
        }
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.purse.be_precise();
        self
    }

    /// The input, and the bytes that were waiting to pass.
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
        this.purse.begin(cx);
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if this.held.len() == *this.start {
            *this.start = 0;
            ready!(poll_fill(this.inner, this.held, cx))?;
        }
        let waiting = &this.held[*this.start..];
        let wanted = waiting.len().min(buf.remaining());
        if wanted > 0 {
            let passed = ready!(this.purse.poll_pay(wanted, cx));
            buf.put_slice(&waiting[..passed]);
            this.purse.spend(passed);
            *this.start += passed;
        }
        Poll::Ready(Ok(()))
    }
}

/// Does not print the bytes held: they may be secret.
impl<R: fmt::Debug, L: Limiter + fmt::Debug> fmt::Debug for PaceRead<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceRead")
            .field("inner", &self.inner)
            .field("purse", &self.purse)
            .field("held", &(self.held.len() - self.start))
            .finish_non_exhaustive()
    }
}

/// Reads anew what there is, up to a slice. Nothing is held at the end, after a failure, and while there is nothing to read.
fn poll_fill<R: AsyncRead>(
    inner: Pin<&mut R>,
    held: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    held.resize(SLICE as usize, 0);
    let mut slice = ReadBuf::new(held);
    let filled = inner.poll_read(cx, &mut slice);
    let length = slice.filled().len();
    held.truncate(if matches!(filled, Poll::Ready(Ok(()))) {
        length
    } else {
        0
    });
    filled
}
