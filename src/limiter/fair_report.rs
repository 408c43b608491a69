use core::time::Duration;

use crate::fair::Accounts;
use crate::policy::{Decision, Quota, Status};
use crate::time::Tick;

/// What one client of a [`Fair`](super::Fair) limit may use and has used in this cycle, in permits.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientShare<K> {
    /// The client. `None` for all those together that are beyond the largest number of clients.
    pub key: Option<K>,
    /// What it may use in this cycle.
    pub size: u32,
    /// What it asked for in the cycle before, or on average, what was refused and what waited included: its size is made of that.
    pub demand: u32,
    /// What has passed in this cycle.
    pub used: u32,
    /// What was refused in this cycle; in [`Mode::Shadow`](super::Mode::Shadow), what would have been.
    pub refused: u64,
    /// What waits now.
    pub waiting: u64,
    /// By how much its size is below its default share.
    pub lent: u32,
    /// By how much its size is above its default share.
    pub borrowed: u32,
    /// How many requests have passed since it is remembered.
    pub requests_passed: u64,
    /// How many requests were refused since it is remembered.
    pub requests_refused: u64,
}

/// The cycle of a [`Fair`](super::Fair) limit that is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FairCycle {
    /// How many cycles were before it, those without a request included.
    pub number: u64,
    /// The permits of a cycle.
    pub capacity: u32,
    /// How many of them are spent.
    pub spent: u32,
    /// How long ago it began.
    pub began_ago: Duration,
    /// When it ends, unless a new client ends it before.
    pub ends_in: Duration,
}

impl<K> ClientShare<K> {
    pub(super) fn of(accounts: &Accounts, slot: u32, key: Option<K>) -> Self {
        let share = accounts.client(slot);
        Self {
            key,
            size: share.size,
            demand: share.demand,
            used: share.used,
            refused: share.refused,
            waiting: share.waiting,
            lent: share.lent,
            borrowed: share.borrowed,
            requests_passed: share.requests_passed,
            requests_refused: share.requests_refused,
        }
    }
}

impl FairCycle {
    pub(super) fn of(accounts: &Accounts, now: Tick) -> Self {
        let cycle = accounts.cycle();
        Self {
            number: cycle.number,
            capacity: cycle.capacity,
            spent: cycle.spent,
            began_ago: now.since(cycle.start),
            ends_in: cycle.end.since(now),
        }
    }
}

/// The quota is the size in this cycle, and the reset its end.
pub(super) fn status_of(accounts: &Accounts, slot: u32, now: Tick) -> Status {
    let quota = Quota {
        permits: accounts.client(slot).size,
        window: accounts.share().cycle(),
    };
    let reset_in = accounts.cycle().end.since(now);
    Status::new(Some(quota), room(accounts, slot, now), reset_in)
}

/// How many requests of cost 1 would pass now.
fn room(accounts: &Accounts, slot: u32, now: Tick) -> u32 {
    let share = accounts.client(slot);
    let default = share.size + share.lent - share.borrowed;
    let is_open = |cost: u32| accounts.peek(slot, cost, now).is_pass();
    if accounts.share().paces() {
        return u32::from(is_open(1));
    }
    // Up to here a request that passes also does so in parts.
    let mut refused = share.size.max(default).saturating_sub(share.used).max(1) + 1;
    let mut passed = 0;
    while passed + 1 < refused {
        let cost = passed + (refused - passed) / 2;
        if is_open(cost) {
            passed = cost;
        } else {
            refused = cost;
        }
    }
    passed
}

/// When a request may pass behind waiters that want so much, at the earliest: a client gets no more than the capacity of each cycle.
pub(super) fn wait_behind(
    accounts: &Accounts,
    slot: u32,
    now: Tick,
    waiting: u64,
    cost: u32,
) -> Decision {
    let cycle = accounts.cycle();
    let unspent = u64::from(cycle.capacity.saturating_sub(cycle.spent));
    let together = waiting.saturating_add(cost.into());
    let cycles = together
        .saturating_sub(unspent)
        .div_ceil(cycle.capacity.into());
    let alone = accounts.peek(slot, cost, now).retry_in();
    let mut open_at = now.after(alone.unwrap_or_default());
    if let Some(more) = cycles.checked_sub(1) {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        open_at = open_at.max(cycle.end.after_times(accounts.share().cycle(), more));
    }
    Decision::Wait {
        retry_in: open_at.since(now).max(Duration::from_nanos(1)),
    }
}
