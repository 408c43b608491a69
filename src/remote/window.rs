use core::time::Duration;

use crate::time::Tick;

/// How many keys may be under way: as many as the server answers well within the deadline.
///
/// The bound grows while it is used up and calls are fast, and halves when a call takes longer than the shortest one by a
/// quarter of what the deadline leaves: additive increase, multiplicative decrease, by the delay as in TCP Vegas (L. Brakmo,
/// S. O'Malley and L. Peterson, *TCP Vegas: new techniques for congestion detection and avoidance*, SIGCOMM 1994).
#[derive(Debug)]
pub(super) struct Window {
    pub(super) per_call: usize,
    limit: usize,
    under_way: usize,
    deadline: Duration,
    /// The shortest call of late. It rises slowly, because the way to the server may have become longer.
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

    pub(super) const fn sent(&mut self, keys: usize) {
        self.under_way += keys;
    }

    /// A call ended that was sent at `sent`. `took` is `None` if it has no reply.
    pub(super) fn ended(&mut self, sent: Tick, now: Tick, keys: usize, took: Option<Duration>) {
        let was_used_up = self.under_way + self.per_call > self.limit;
        self.under_way -= keys;
        let Some(took) = took else { return };
        let risen = self.shortest.saturating_add(self.shortest / 64);
        self.shortest = risen.min(took);
        let tolerated = self.deadline.saturating_sub(self.shortest) / 4;
        if took.saturating_sub(self.shortest) > tolerated {
            self.halve(sent, now);
        } else if was_used_up {
            let most = (self.per_call * MOST_CALLS).max(FEWEST_FIRST * MOST_CALLS / 4);
            self.limit = most.min(self.limit + self.per_call);
        }
    }

    /// Once for all calls that were under way at the same time.
    fn halve(&mut self, sent: Tick, now: Tick) {
        if sent >= self.halved_at {
            self.limit = (self.limit / 2).max(1);
            self.halved_at = now;
        }
    }

    /// Nothing was answered: no call is under way any more.
    pub(super) fn silent(&mut self, now: Tick) {
        self.under_way = 0;
        self.halve(now, now);
    }
}
