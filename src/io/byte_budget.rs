use core::convert::Infallible;
use core::task::{Context, Poll, ready};

use crate::limiter::{Gate, Limiter};

/// The most bytes that one request to the limiter covers.
pub(super) const SLICE: u32 = 8 * 1024;

/// After this many smaller slices a whole slice is tried again.
const RETRY_AFTER: u32 = 64;

/// Bytes that the limiter has granted, acquired in slices.
#[derive(Debug)]
pub(super) struct ByteBudget<L: Limiter> {
    gate: Gate<L>,
    /// How many bytes one request covers: a whole slice, or less if the limiter can never grant a whole one.
    slice: u32,
    /// How many smaller slices were granted since a whole one was tried.
    smaller: u32,
    /// Bytes that were granted and not used yet.
    granted: u32,
}

impl<L: Limiter> ByteBudget<L> {
    pub(super) const fn new(limiter: L) -> Self {
        Self {
            gate: Gate::new(limiter),
            slice: SLICE,
            smaller: 0,
            granted: 0,
        }
    }

    /// Uses `count` of the bytes granted.
    pub(super) fn spend(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.granted = self.granted.saturating_sub(count);
    }
}

impl<L: Limiter<Error = Infallible>> ByteBudget<L> {
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) {
        self.gate.begin(cx);
    }

    /// How many of `count` bytes are granted: at least one. `count` is not zero.
    pub(super) fn poll_grant(&mut self, count: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        while self.granted == 0 {
            let cost = count.min(self.slice);
            match ready!(self.gate.poll_pass(cost, cx)) {
                Ok(()) => {
                    self.granted = cost;
                    self.try_whole_slice();
                }
                Err(never) => {
                    let never = never.into_too_costly();
                    assert!(
                        cost > 1,
                        "a limiter must let cost 1 pass in the end, but: {never}"
                    );
                    self.slice = never.capacity().clamp(1, cost - 1);
                }
            }
        }
        Poll::Ready(self.granted.min(count) as usize)
    }

    /// Tries a whole slice again once in a while, because the limit may have been retuned.
    fn try_whole_slice(&mut self) {
        self.smaller += u32::from(self.slice < SLICE);
        if self.smaller == RETRY_AFTER {
            self.smaller = 0;
            self.slice = SLICE;
        }
    }
}
