use core::time::Duration;

use crate::policy::Status;
use crate::time::Tick;

/// What holds requests back whatever the policy has: a pause, and how much a provider has left until its reset.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Hold {
    paused_until: Tick,
    /// How many permits may still pass before the reset.
    remaining: u32,
    reset_at: Tick,
    /// Whether the reset is a guess: other numbers may be set before.
    pub(super) is_guess: bool,
    /// How many of them a request takes at most: 1 where the policy counts requests.
    most: u32,
}

impl Hold {
    pub(super) const NONE: Self = Self {
        paused_until: Tick::ZERO,
        remaining: u32::MAX,
        reset_at: Tick::ZERO,
        is_guess: false,
        most: u32::MAX,
    };

    /// Holds every request until then, and can be [lifted](Self::lift).
    pub(super) const fn until_room(at: Tick) -> Self {
        Self {
            remaining: 0,
            reset_at: at,
            ..Self::NONE
        }
    }

    /// What was set besides `other` since.
    pub(super) fn lift(&mut self, other: Self) {
        if (self.remaining, self.reset_at) == (other.remaining, other.reset_at) {
            (self.remaining, self.reset_at) = (Self::NONE.remaining, Self::NONE.reset_at);
        }
    }

    /// Of two pauses the later end counts. Returns how long it lasts.
    pub(super) fn pause_for(&mut self, now: Tick, duration: Duration) -> Duration {
        self.paused_until = self.paused_until.max(now.after(duration));
        self.paused_until.since(now)
    }

    pub(super) const fn set_remaining(&mut self, now: Tick, remaining: u32, reset_in: Duration) {
        self.remaining = remaining;
        self.reset_at = now.after(reset_in);
        self.is_guess = false;
    }

    /// Whether a request takes 1 of what remains, whatever it costs.
    pub(super) const fn count_requests(&mut self, is_per_request: bool) {
        self.most = if is_per_request { 1 } else { u32::MAX };
    }

    /// Until when a request of this cost waits at the least.
    #[inline]
    pub(super) fn until(&self, cost: u32) -> Tick {
        if cost.min(self.most) > self.remaining {
            self.paused_until.max(self.reset_at)
        } else {
            self.paused_until
        }
    }

    /// From when on it holds no request.
    #[inline]
    pub(super) fn ends_at(&self) -> Tick {
        self.paused_until.max(self.reset_at)
    }

    /// Counts a request that has passed. After the reset that changes nothing.
    #[inline]
    pub(super) fn take(&mut self, cost: u32) {
        self.remaining = self.remaining.saturating_sub(cost.min(self.most));
    }

    /// Counts permits that were used without asking. Where requests are counted, they were no request.
    pub(super) fn charge(&mut self, cost: u32) {
        if self.most > 1 {
            self.take(cost);
        }
    }

    /// What it leaves of the policy's `status`.
    pub(super) fn status(&self, mut status: Status, now: Tick) -> Status {
        let reset = (self.remaining, self.reset_at);
        for (remaining, until) in [reset, (0, self.paused_until)] {
            if now < until {
                status = status.at_most(remaining, until.since(now));
            }
        }
        status
    }
}
