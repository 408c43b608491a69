use core::convert::Infallible;
use core::task::{Context, Poll, ready};

use crate::limiter::{Gate, Limiter};

/// The most bytes that are paid for at once.
pub(super) const SLICE: u32 = 8 * 1024;

/// After so many smaller slices a whole one is asked for again.
const OFTEN: u32 = 64;

/// Pays for bytes, in slices that the limit lets pass.
#[derive(Debug)]
pub(super) struct Purse<L: Limiter> {
    gate: Gate<L>,
    /// How many bytes are asked for at once: a slice, or less if so many could never pass.
    slice: u32,
    /// How many smaller slices have passed since a whole one was asked for.
    smaller: u32,
    /// Bytes that were paid for and have not been used.
    paid: u32,
}

impl<L: Limiter> Purse<L> {
    pub(super) const fn new(limiter: L) -> Self {
        Self {
            gate: Gate::new(limiter),
            slice: SLICE,
            smaller: 0,
            paid: 0,
        }
    }

    #[cfg(feature = "precise")]
    pub(super) fn be_precise(&mut self) {
        self.gate.be_precise();
    }

    /// `count` bytes that were paid for are used now.
    pub(super) fn spend(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.paid = self.paid.saturating_sub(count);
    }
}

impl<L: Limiter<Error = Infallible>> Purse<L> {
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) {
        self.gate.begin(cx);
    }

    /// How many of `count` bytes, which is not zero, are paid for: at least one.
    pub(super) fn poll_pay(&mut self, count: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        while self.paid == 0 {
            let cost = count.min(self.slice);
            match ready!(self.gate.poll_pass(cost, cx)) {
                Ok(()) => {
                    self.paid = cost;
                    self.ask_for_more();
                }
                // Cost 1 always passes in the end.
                Err(never) => self.slice = never.into_too_costly().capacity().max(1),
            }
        }
        Poll::Ready(self.paid.min(count) as usize)
    }

    /// Once in a while, since the limit may have been retuned.
    fn ask_for_more(&mut self) {
        self.smaller += u32::from(self.slice < SLICE);
        if self.smaller == OFTEN {
            self.smaller = 0;
            self.slice = SLICE;
        }
    }
}
