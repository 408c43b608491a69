//! The expected answers of a wait queue, and the comparison with the real ones.

use std::time::Duration;

use paceline::limiter::Mode;
use paceline::policy::Decision;

use super::Line;
use crate::dice::Tunable;
use crate::expected::{Expected, is_never, is_wait};
use crate::switch_mirror::Way;
use crate::virtual_time::in_millis;

impl<P: Tunable> Line<P> {
    /// The limit's answer to a waiter with this ticket now. For a request that is not queued, the wait is the estimate.
    pub(super) fn expected(&mut self, ticket: u64, cost: u32) -> Expected {
        // Even a request of cost 0 starts the clock.
        let now = self.mirror.now();
        if cost == 0 {
            return Expected::Sure(Decision::Pass);
        }
        let alone = self.mirror.look(now, cost);
        let mut ahead = self
            .waiters
            .iter()
            .filter(|one| one.is_before(ticket))
            .peekable();
        if is_never(alone) || ahead.peek().is_none() {
            return Expected::Sure(alone);
        }
        if ahead.all(|one| one.may_be_overdue(now)) {
            return Expected::Unsure;
        }
        let retry_in = self.wait_for(cost).unwrap_or_default();
        Expected::Sure(Decision::Wait { retry_in })
    }

    /// The wait of one more request, if it does not depend on overdue waiters.
    pub(super) fn wait_for(&mut self, cost: u32) -> Option<Duration> {
        let now = self.mirror.now();
        if is_never(self.mirror.look(now, cost)) {
            return Some(Duration::ZERO);
        }
        if self.waiters.iter().any(|one| one.may_be_overdue(now)) {
            return None;
        }
        let mut ahead: Vec<_> = self
            .waiters
            .iter()
            .filter_map(|one| Some((one.place?.ticket, one.cost)))
            .collect();
        ahead.sort_unstable();
        let costs: Vec<_> = ahead.into_iter().map(|(_, cost)| cost).collect();
        let wait = self.mirror.wait_behind(&costs, cost);
        // A request behind others always waits.
        let is_behind = !costs.is_empty();
        Some(wait.max(Duration::from_nanos(is_behind.into())))
    }

    /// Counts a request that the limit let pass.
    pub(super) fn has_passed(&mut self, cost: u32) {
        if cost > 0 {
            let now = self.mirror.now();
            self.mirror.pay(cost);
            self.passed.push((now, cost));
        }
    }

    /// Asks while the switch limits nothing. The request passes, and in shadow mode it is charged if the limit lets it pass at once.
    pub(super) fn pass_unlimited(
        &mut self,
        ticket: u64,
        cost: u32,
        ask: impl FnOnce(&mut Self) -> bool,
    ) {
        let is_shadowed = self.switch.mode_of(Way::Switched) == Mode::Shadow;
        // While it is off, not even the clock starts.
        let expected = is_shadowed.then(|| self.expected(ticket, cost));
        let passed = self.limit.stats().passed;
        assert!(ask(self), "{cost} was held back, {expected:?}");
        let is_charged = self.limit.stats().passed > passed;
        let Some(expected) = expected.filter(|_| cost > 0) else {
            assert!(!is_charged, "{cost} was charged");
            return;
        };
        assert!(
            expected.allows(|decision| decision.is_pass() == is_charged),
            "{cost} is charged: {is_charged}, {expected:?}"
        );
        self.switch.count(is_charged);
        if is_charged {
            self.has_passed(cost);
        } else {
            self.mirror.refused += 1;
        }
    }

    pub(super) fn bound_holds(&mut self) {
        self.mirror.policy().assert_bound(&self.passed);
        self.passed.clear();
    }

    pub(super) fn counts_are_right(&self) {
        self.switch.counts_are_right();
        let stats = self.limit.stats();
        let waiting = self
            .waiters
            .iter()
            .filter(|one| one.place.is_some())
            .count();
        let mirror = &self.mirror;
        assert_eq!(
            (stats.passed, stats.refused, stats.held_back, stats.waiting),
            (mirror.passed, mirror.refused, mirror.held_back, waiting)
        );
    }

    /// Checks the head of the queue, if it is certain which waiter that is. Timers count in whole milliseconds.
    pub(super) fn a_waiter_that_can_pass_was_woken(&mut self) {
        if self.switch.mode_of(Way::Switched) != Mode::Active {
            self.switched_waiters_were_woken();
        }
        let Some(first) = self.first() else { return };
        let now = self.mirror.now();
        let elapsed = self.since_start.elapsed();
        let off_grid = elapsed.saturating_sub(in_millis(elapsed, u128::div_euclid));
        let first = &self.waiters[first];
        let decision = self.mirror.look(now.before(off_grid), first.cost);
        assert!(
            is_wait(decision) || first.future.is_woken(),
            "asleep at {now:?}"
        );
    }

    pub(super) fn switched_waiters_were_woken(&self) {
        let mut switched = self
            .waiters
            .iter()
            .filter(|one| one.place.is_some() && one.way == Way::Switched);
        assert!(
            switched.all(|one| one.future.is_woken()),
            "not woken by the switch"
        );
    }

    pub(super) fn first(&self) -> Option<usize> {
        let waiting = (0..self.waiters.len()).filter(|&n| self.waiters[n].place.is_some());
        waiting.min_by_key(|&n| self.waiters[n].place.map(|place| place.ticket))
    }
}
