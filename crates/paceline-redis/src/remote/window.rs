use core::time::Duration;

use paceline::time::Tick;

/// How many keys may be under way: as many as the server answers well within the deadline.
///
/// The bound grows while it is used up and calls are fast, and halves when a call takes longer than the shortest one by a
/// quarter of what the deadline leaves: additive increase, multiplicative decrease, by the delay as in TCP Vegas (L. Brakmo,
/// S. O'Malley and L. Peterson, *TCP Vegas: new techniques for congestion detection and avoidance*, SIGCOMM 1994).
///
/// When the route to the server becomes slower, the bound falls until each call is sent alone. The time of such calls is the new
/// shortest.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) per_call: usize,
    limit: usize,
    under_way: usize,
    pub(super) deadline: Duration,
    /// The shortest time of recent calls. It rises only with calls that were sent alone: other calls may wait at the server for
    /// each other.
    shortest: Duration,
    halved_at: Tick,
}

/// The first bound, in full calls, and the largest.
const FIRST_CALLS: usize = 4;
const MOST_CALLS: usize = 64;

/// A server where each key is a call of its own is asked for at least this many.
const FEWEST_FIRST: usize = 64;

impl Window {
    pub(super) fn new(deadline: Duration, per_call: usize) -> Self {
        Self {
            per_call,
            limit: FEWEST_FIRST.max(per_call * FIRST_CALLS),
            under_way: 0,
            deadline,
            shortest: Duration::MAX,
            halved_at: Tick::ZERO,
        }
    }

    pub(super) const fn room(&self) -> usize {
        self.limit.saturating_sub(self.under_way)
    }

    /// Returns whether the call is alone.
    pub(super) const fn sent(&mut self, keys: usize) -> bool {
        self.under_way += keys;
        self.under_way == keys
    }

    /// A call ended that was sent at `sent`. `took` is `None` if it has no reply.
    pub(super) fn ended(
        &mut self,
        (sent, was_alone): (Tick, bool),
        now: Tick,
        keys: usize,
        took: Option<Duration>,
    ) {
        let was_used_up = self.under_way + self.per_call > self.limit;
        self.under_way -= keys;
        let Some(took) = took else { return };
        if took < self.shortest {
            self.shortest = took;
        } else if was_alone {
            // Halfway, because one call may be late by chance.
            self.shortest += took.saturating_sub(self.shortest) / 2;
        }
        let tolerated = self.deadline.saturating_sub(self.shortest) / 4;
        if took.saturating_sub(self.shortest) > tolerated {
            self.halve(sent, now);
        } else if was_used_up {
            let most = (self.per_call * MOST_CALLS).max(FEWEST_FIRST * MOST_CALLS / 4);
            let step = (self.limit / 8).clamp(1, self.per_call);
            self.limit = most.min(self.limit + step);
        }
    }

    /// Once for all calls that were under way at the same time.
    fn halve(&mut self, sent: Tick, now: Tick) {
        if sent >= self.halved_at {
            self.limit = (self.limit / 2).max(1);
            self.halved_at = now;
        }
    }

    /// Nothing was answered. The calls under way end without a reply.
    pub(super) fn silent(&mut self, now: Tick) {
        self.halve(now, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_calls_that_use_the_bound_up_raise_it_to_64_full_calls_or_1024_keys() {
        for (per_call, most) in [(1, 1_024), (64, 4_096)] {
            let mut window = Window::new(Duration::from_secs(1), per_call);
            for _ in 0..2_000 {
                let keys = window.room();
                let sent = (Tick::ZERO, window.sent(keys));
                window.ended(sent, Tick::ZERO, keys, Some(Duration::from_millis(1)));
            }
            assert_eq!(window.room(), most);
        }
    }
}
