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
    /// * **Holds** at most one slice, and only what was asked for; [`into_parts`](Self::into_parts) gives it back.
    /// * **Cancel safety**: as that of the input; a read that waits has taken nothing from the caller's view. The part of a
    ///   buffer that is not filled may have been written to.
    ///
    /// **Window bound**: that of the limiter's policy, in bytes handed to the reader.
    ///
    /// **Cost**: a question to the limiter for each slice. What passes at once was read into the caller's buffer; what waits is
    /// copied once to where it is held, and once from there. Where many small reads are dear, put a buffered reader around
    /// this one or inside.
    #[must_use = "readers do nothing unless read from"]
    pub struct PaceRead<R, L: Limiter> {
        #[pin]
        inner: R,
        purse: Purse<L>,
        // What was read and has not passed begins at `start`.
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
        let waiting = &this.held[*this.start..];
        if waiting.is_empty() {
            this.held.clear();
            *this.start = 0;
            let read = ready!(poll_fill(this.inner, buf, cx))?;
            return poll_pass(this.purse, Unpaid::new(buf, read, this.held), cx).map(Ok);
        }
        let wanted = waiting.len().min(buf.remaining());
        let passed = ready!(this.purse.poll_pay(wanted, cx));
        buf.put_slice(&waiting[..passed]);
        this.purse.spend(passed);
        *this.start += passed;
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

/// Reads what there is, up to a slice, into the part of the buffer that is not filled, and does not fill it yet.
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

/// Hands on what the limit lets pass of it, if there is anything.
fn poll_pass<L: Limiter<Error = Infallible>>(
    purse: &mut Purse<L>,
    mut unpaid: Unpaid<'_, '_>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if unpaid.count > 0 {
        let passed = ready!(purse.poll_pay(unpaid.count, cx));
        unpaid.hand_on(passed);
        purse.spend(passed);
    }
    Poll::Ready(())
}

/// Bytes that are in the caller's buffer and not the caller's yet. Those that do not become so are held, also if the limit
/// panics.
struct Unpaid<'a, 'b> {
    buf: &'a mut ReadBuf<'b>,
    count: usize,
    held: &'a mut Vec<u8>,
}

impl<'a, 'b> Unpaid<'a, 'b> {
    const fn new(buf: &'a mut ReadBuf<'b>, count: usize, held: &'a mut Vec<u8>) -> Self {
        Self { buf, count, held }
    }

    fn hand_on(&mut self, count: usize) {
        self.buf.advance(count);
        self.count -= count;
    }
}

impl Drop for Unpaid<'_, '_> {
    fn drop(&mut self) {
        if self.count > 0 {
            let from = self.buf.filled().len();
            let rest = &self.buf.initialized()[from..from + self.count];
            self.held.extend_from_slice(rest);
        }
    }
}
