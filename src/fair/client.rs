use core::time::Duration;

use crate::time::{Tick, saturating_duration};

use super::divide::Want;
use super::{ClientTerms, FairShare};

/// One permit of a debt.
pub(super) const PERMIT: u64 = 1 << 32;

/// One permit of a carried fraction.
pub(super) const TURN: i64 = 1 << 32;

/// What a client has lost long ago does not give it every turn for ever.
const MOST_CARRIED: i64 = 8 * TURN;

/// One permit of an averaged demand.
const AVERAGED: u64 = 1 << 16;

/// What the accounts know of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub(super) terms: ClientTerms,
    /// Whether a slot has this client. Of a free slot nothing else counts.
    pub(super) is_known: bool,
    /// It has no complete cycle behind it, so its demand is unknown.
    pub(super) is_new: bool,
    /// What it asked for in the last cycle, or on average.
    pub(super) demand: u32,
    average: u64,
    /// Its share of the capacity by weight, rounded down.
    pub(super) default: u32,
    /// What it may use in this cycle. At least what it used.
    pub(super) size: u32,
    /// The permits that passed or were charged, and the part of `overdrawn` that it pays.
    pub(super) used: u32,
    pub(super) refused: u64,
    pub(super) waiting: u64,
    /// The part of `size` that it took for one large request.
    pub(super) loan: u32,
    /// What it has to do without in later cycles, in parts of [`PERMIT`].
    pub(super) owed: u64,
    /// What it used when the cycle had nothing left, in parts of [`PERMIT`]. It is spent in later cycles, as their sizes allow.
    pub(super) overdrawn: u64,
    /// What it does without in this cycle.
    pub(super) paying: u32,
    /// What rounding and the turns of others took from it, in parts of [`TURN`].
    pub(super) carried: i64,
    /// 1 if its share by weight has a fraction that is carried: in some cycles its turn comes for one permit more than `default`.
    pub(super) turn: u32,
    pub(super) idle_cycles: u64,
    /// The last request that passed, and its cost.
    last: Option<(Tick, u32)>,
    pub(super) passed: u64,
    pub(super) turned_away: u64,
}

impl Client {
    pub(super) fn new(terms: ClientTerms) -> Self {
        Self {
            terms,
            is_known: true,
            is_new: true,
            ..Self::default()
        }
    }

    /// What others can take back: borrowed and not spent.
    pub(super) fn unspent_loan(&self) -> u32 {
        self.size.saturating_sub(self.default.max(self.used))
    }

    pub(super) fn unspent(&self) -> u32 {
        self.size.saturating_sub(self.used)
    }

    pub(super) fn is_in_debt(&self) -> bool {
        self.owed > 0 || self.paying > 0
    }

    /// Whether its loan in this cycle is no more than a turn: it gives up a later one for it, and owes nothing.
    pub(super) fn has_turn_of_another(&self) -> bool {
        (1..=self.turn).contains(&self.loan)
    }

    /// Whether it has had more turns than its fractions add up to, and `needed` permits would be one more.
    pub(super) fn has_had_its_turn(&self, needed: u32) -> bool {
        self.carried < 0 && needed <= self.default.saturating_add(self.turn)
    }

    /// What it may have of its default share: all but what it repays.
    pub(super) fn own_default(&self) -> u32 {
        self.default.saturating_sub(self.paying)
    }

    pub(super) fn want(&self) -> Want {
        ((!self.is_new).then_some(self.demand), self.terms)
    }

    /// What it wants of permits that debtors repay. That is no borrowing.
    pub(super) fn want_of_repaid(&self) -> Want {
        let lacks = self.demand.saturating_sub(self.size);
        let terms = self.terms.without_bounds();
        ((!self.is_new).then_some(lacks), terms)
    }

    /// Counts permits, of which the cycle had `covered`. Pacing spaces those that come too early.
    pub(super) fn spend(&mut self, cost: u32, covered: u32, now: Tick, share: &FairShare) {
        self.used = self.used.saturating_add(covered);
        let parts = u64::from(cost - covered) * PERMIT;
        self.overdrawn = self.overdrawn.saturating_add(parts);
        let is_early =
            share.paces() && now < self.next_at(self.size.max(self.default), share.cycle());
        self.last = match self.last {
            Some((last, before)) if is_early => Some((last, before.saturating_add(cost))),
            _ => Some((now, cost)),
        };
    }

    /// When its next permit comes, if `size` permits are spread evenly over a cycle.
    pub(super) fn next_at(&self, size: u32, cycle: Duration) -> Tick {
        let Some((last, cost)) = self.last else {
            return Tick::ZERO;
        };
        let spacing = (cycle.as_nanos().saturating_mul(cost.into())).div_ceil(size.max(1).into());
        last.after(saturating_duration(spacing))
    }

    /// What becomes of the fraction of its exact size, in parts of [`PERMIT`], that rounding took or made a whole permit.
    pub(super) fn round(&mut self, fraction: i64, is_up: bool, carries: bool) {
        if carries {
            self.carry(fraction - if is_up { TURN } else { 0 });
        } else if self.size == 0 {
            // A debtor with less than one permit in a cycle pays with what it does not get anyway.
            self.pay(u64::try_from(fraction).unwrap_or(0));
        }
    }

    /// Counts for a later turn what it lost, or had too much if below 0, in parts of [`PERMIT`].
    pub(super) fn carry(&mut self, parts: i64) {
        let carried = self.carried.saturating_add(parts);
        self.carried = carried.clamp(-MOST_CARRIED, MOST_CARRIED);
    }

    /// Pays parts of [`PERMIT`]: first what others get.
    fn pay(&mut self, parts: u64) {
        let rest = parts.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(parts);
        self.overdrawn = self.overdrawn.saturating_sub(rest);
    }

    /// Takes what it owes from its size, and says how much.
    pub(super) fn repay(&mut self) -> u32 {
        self.owed = self.owed.saturating_add(u64::from(self.paying) * PERMIT);
        self.paying = whole(self.owed).min(self.size);
        self.owed = self.owed.saturating_sub(u64::from(self.paying) * PERMIT);
        self.size -= self.paying;
        self.paying
    }

    /// Spends in a new cycle what it has overdrawn, as far as its size allows, and says how much.
    pub(super) fn spend_overdrawn(&mut self) -> u32 {
        self.used = whole(self.overdrawn).min(self.size);
        self.overdrawn = self.overdrawn.saturating_sub(u64::from(self.used) * PERMIT);
        self.used
    }

    /// Enlarges its size to what it `needs`, and says by how much. It owes what is above its `own` part.
    pub(super) fn borrow(&mut self, needs: u32, own: u32) -> u32 {
        let more = needs.saturating_sub(self.size);
        self.loan += needs.saturating_sub(self.size.max(own));
        self.size += more;
        more
    }

    /// Takes permits back, which may be of this cycle: how many are, and how many of these were a loan.
    pub(super) fn refund(&mut self, permits: u32, may_be_of_this_cycle: bool) -> (u32, u32) {
        let overdrawn = permits.min(whole(self.overdrawn));
        self.overdrawn = self.overdrawn.saturating_sub(u64::from(overdrawn) * PERMIT);
        let permits = permits - overdrawn;
        let used = if may_be_of_this_cycle { self.used } else { 0 };
        let unused = permits.min(used);
        let repaid = unused.min(self.loan);
        self.used -= unused;
        self.loan -= repaid;
        self.size -= repaid;
        let earlier = u64::from(permits - unused) * PERMIT;
        self.owed = self.owed.saturating_sub(earlier);
        (unused, repaid)
    }

    /// Forgets what it owes.
    pub(super) fn forgive(&mut self) {
        self.size += self.paying;
        (self.paying, self.owed) = (0, 0);
    }

    /// Ends its cycle, after which `empty` cycles passed in which at most the requests in its queue waited.
    pub(super) fn end_cycle(&mut self, empty: u64, smoothing: u32) {
        let attempted = self.end_counts();
        let paid = empty.saturating_mul(u64::from(self.default)).min(PERMIT);
        self.pay(paid.saturating_mul(PERMIT));
        let waiting = self.waiting_or_overdrawn();
        let empty_idle = if waiting > 0 { 0 } else { empty };
        let idle = self.idle_cycles + 1;
        let idle = if attempted > 0 { 0 } else { idle };
        self.idle_cycles = idle.saturating_add(empty_idle);
        self.average_in(attempted, if self.is_new { 1 } else { smoothing });
        self.is_new = false;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        for _ in 0..empty {
            let before = self.average;
            self.average_in(waiting, smoothing);
            if self.average == before {
                break;
            }
        }
        let rounded = self.average.saturating_add(AVERAGED / 2) / AVERAGED;
        self.demand = u32::try_from(rounded).unwrap_or(u32::MAX);
    }

    /// Ends its cycle before its time. A part of a cycle says only that the demand is at least what was asked for in it.
    pub(super) fn end_cycle_early(&mut self) {
        let attempted = self.end_counts();
        self.demand = self.demand.max(attempted);
        self.average = self.average.max(u64::from(attempted) * AVERAGED);
    }

    fn end_counts(&mut self) -> u32 {
        let attempted = u64::from(self.used)
            .saturating_add(self.refused)
            .saturating_add(self.waiting_or_overdrawn());
        if self.has_turn_of_another() {
            self.carry(-TURN);
        } else if self.loan > 0 {
            self.owed = self.owed.saturating_add(u64::from(self.loan) * PERMIT);
        }
        if self.carried < 0 && self.unspent() > 0 {
            // A client that leaves permits unused has had no turn too many.
            self.carried = 0;
        }
        (self.used, self.refused, self.loan, self.paying) = (0, 0, 0, 0);
        u32::try_from(attempted).unwrap_or(u32::MAX)
    }

    /// What is overdrawn waits for a cycle that has it, as a request in the queue does.
    fn waiting_or_overdrawn(&self) -> u64 {
        self.waiting.saturating_add(whole(self.overdrawn).into())
    }

    fn average_in(&mut self, attempted: u32, smoothing: u32) {
        let others = u64::from(smoothing.saturating_sub(1));
        let sum = self.average * others + u64::from(attempted) * AVERAGED;
        self.average = sum / (others + 1);
    }
}

/// Whole permits, rounded up.
fn whole(parts: u64) -> u32 {
    u32::try_from(parts.div_ceil(PERMIT)).unwrap_or(u32::MAX)
}
