//! How much more than the quota asks for the dispatcher leaves between its emissions.
//!
//! The dispatcher paces emissions, the provider judges arrivals. Let request `i` be emitted at `e_i`, arrive at `a_i`,
//! and be answered at `r_i`, and let `late_i` be a bound on how much later than the fastest it can have arrived. Then
//! for every later request `m`
//!
//! ```text
//! a_m − a_i  ≥  (e_m − e_i) − late_i
//! ```
//!
//! so a window of `W` at the provider that begins with `i` holds nothing that was emitted `W + late_i` after it or
//! later. Under an interval of `d` for each unit of cost, what was emitted before that without the last request sums up
//! to less than `(W + late_i) / d`; the last one costs at most `c`. To hold at most `N` it is therefore enough that
//!
//! ```text
//! d  ≥  (W + late_i) / (N − c + 1)
//! ```
//!
//! for as long as such a window lasts. The bound comes from the answer: `a_i` lies between `e_i` and `r_i`, so the
//! request was at most its round trip late, whatever happened on the way; and if the fastest way there and back takes
//! at least `least − SLACK`, it was at most `round trip − least + SLACK` late. The smaller one counts. Where the least
//! round trip is below the slack, as on loopback, that leaves nothing to be assumed at all.
//!
//! A lower quota holds for windows that begin before it was told, too. So the dispatcher emits nothing for one such
//! window after it was told: then no window holds arrivals from both before and after.
//!
//! Two things must be kept for this: nothing is emitted between a request and its answer, so that `d` is always set
//! with the last answer in mind; and `e_i` must not be read later than the limit reads it (`dispatch::stamped`).

use core::time::Duration;
use std::collections::VecDeque;

use paceline::time::{Rate, Tick};

use crate::provider::Quota;

/// By how much the least round trip seen may exceed the fastest way there plus the fastest way back: those two need
/// not have met in one request yet.
const SLACK: Duration = Duration::from_millis(1);

/// What the round trips so far call for.
#[derive(Clone, Debug)]
pub(crate) struct Margin {
    contract: Quota,
    /// The contract's, or a lower one that was told.
    quota: Quota,
    least: Duration,
    /// The lateness of each request that a window still to come may begin with, and until when that is; only those
    /// that nobody after them exceeds.
    recent: VecDeque<(Tick, Duration)>,
    worst: Duration,
}

impl Margin {
    pub(crate) const fn new(contract: Quota) -> Self {
        Self {
            contract,
            quota: contract,
            least: Duration::MAX,
            recent: VecDeque::new(),
            worst: Duration::ZERO,
        }
    }

    /// A request went out at `emitted` and its answer was here at `answered` (or hope for it was given up: what has
    /// not arrived by then is taken not to arrive any more).
    pub(crate) fn answered(&mut self, emitted: Tick, answered: Tick) {
        let round_trip = answered.since(emitted);
        self.least = self.least.min(round_trip);
        let spread = round_trip.saturating_sub(self.least);
        let late = round_trip.min(spread.saturating_add(SLACK));

        self.worst = self.worst.max(late);
        self.recent
            .retain(|&(until, other)| answered < until && late < other);
        let until = emitted.after(self.quota.window.saturating_add(late));
        self.recent.push_back((until, late));
    }

    /// Goes on with the quota that the provider tells, but never above the contract. If it is another one, the answer is
    /// how long nothing may be emitted before it begins.
    pub(crate) fn obey(&mut self, told: Rate) -> Option<Duration> {
        let contract = self.contract;
        let quota = if told < Rate::new(contract.units, contract.window) {
            Quota {
                units: told.permits(),
                window: told.period(),
                ..contract
            }
        } else {
            contract
        };
        if quota == self.quota {
            return None;
        }
        self.quota = quota;
        self.recent.clear();
        Some(quota.window)
    }

    /// The worst lateness that can still matter.
    pub(crate) fn current(&self) -> Duration {
        self.recent
            .front()
            .map_or(Duration::ZERO, |&(_, late)| late)
    }

    /// The worst there ever was.
    pub(crate) const fn worst(&self) -> Duration {
        self.worst
    }

    /// What each unit of cost must take, rounded up to a nanosecond.
    pub(crate) fn interval(&self) -> Duration {
        // What costs more than a whole window can only be alone in it.
        let units = self.quota.units.saturating_sub(self.quota.costliest) + 1;
        let whole = self.quota.window.saturating_add(self.current());
        whole.saturating_add(Duration::from_nanos(u64::from(units) - 1)) / units
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Margin, Quota, Rate, Tick};

    const GAP: Quota = Quota {
        units: 1,
        window: ms(50),
        costliest: 1,
        batch: 1,
        max_segments: 1,
    };
    const WINDOW: Quota = Quota {
        units: 300,
        window: ms(10_000),
        costliest: 4,
        ..GAP
    };

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> Tick {
        Tick::ZERO.after(ms(millis))
    }

    #[test]
    fn nothing_known_is_the_quota_itself() {
        assert_eq!(Margin::new(GAP).interval(), ms(50));
        // 10 s / 297, rounded up.
        assert_eq!(
            Margin::new(WINDOW).interval(),
            Duration::from_nanos(33_670_034)
        );
    }

    #[test]
    fn a_short_way_is_late_by_its_whole_round_trip() {
        let mut margin = Margin::new(GAP);
        margin.answered(Tick::ZERO, Tick::from_nanos(400_000));
        margin.answered(at(60), Tick::from_nanos(60_700_000));

        assert_eq!(margin.current(), Duration::from_micros(700));
        assert_eq!(margin.interval(), Duration::from_micros(50_700));
    }

    #[test]
    fn a_long_way_is_late_by_what_it_took_longer_than_the_least() {
        let mut margin = Margin::new(GAP);
        margin.answered(at(0), at(40));
        assert_eq!(margin.current(), ms(1));

        margin.answered(at(60), at(103));
        assert_eq!(margin.current(), ms(4));
    }

    #[test]
    fn under_a_gap_only_the_last_answer_counts() {
        let mut margin = Margin::new(GAP);
        margin.answered(at(0), at(20));
        assert_eq!(margin.interval(), ms(51));
        margin.answered(at(52), at(99));
        assert_eq!(margin.interval(), ms(78));
        margin.answered(at(130), at(150));

        assert_eq!(margin.interval(), ms(51));
        assert_eq!(margin.worst(), ms(28));
    }

    #[test]
    fn under_a_window_the_worst_counts_until_no_window_can_begin_with_it() {
        let mut margin = Margin::new(WINDOW);
        margin.answered(at(0), at(20));
        margin.answered(at(100), at(419));
        assert_eq!(margin.current(), ms(300));

        // It lasts a window and its own lateness: until 10,400.
        margin.answered(at(10_300), at(10_399));
        assert_eq!(margin.current(), ms(300));
        margin.answered(at(10_390), at(10_400));
        assert_eq!(margin.current(), ms(80));
    }

    #[test]
    fn a_lower_quota_that_is_told_begins_after_one_of_its_windows() {
        let mut margin = Margin::new(GAP);
        margin.answered(at(0), at(20));
        assert_eq!(margin.obey(Rate::per_second(5)), Some(ms(1000)));
        assert_eq!(margin.interval(), ms(200));
        margin.answered(at(1_020), at(1_064));
        assert_eq!(margin.interval(), ms(205));

        assert_eq!(margin.obey(Rate::per_second(5)), None);
        assert_eq!(margin.interval(), ms(205));
    }

    #[test]
    fn a_provider_that_tells_more_than_the_contract_is_not_believed() {
        let mut margin = Margin::new(GAP);
        assert_eq!(margin.obey(Rate::per_second(1_000)), None);
        // As fast as the contract, but not as strict.
        assert_eq!(margin.obey(Rate::per_second(20)), None);
        assert_eq!(margin.interval(), ms(50));

        assert_eq!(margin.obey(Rate::per_minute(60)), Some(ms(60_000)));
        assert_eq!(margin.obey(Rate::per_second(20)), Some(ms(50)));
        assert_eq!(margin.interval(), ms(50));
    }

    #[test]
    fn what_costs_more_than_a_window_is_alone_in_it() {
        let mut margin = Margin::new(WINDOW);
        assert!(margin.obey(Rate::per_second(3)).is_some());
        assert_eq!(margin.interval(), ms(1_000));
    }

    #[test]
    fn arrivals_stay_within_the_quota_however_late_they_are() {
        fastrand::seed(7);
        for quota in [GAP, WINDOW] {
            let mut margin = Margin::new(quota);
            let (mut emitted, mut arrivals) = (Tick::ZERO, Vec::new());
            for _ in 0..2_000 {
                // Mostly quick, sometimes very slow, the answer too.
                let leg = || {
                    Duration::from_micros(if fastrand::u8(..) < 8 {
                        fastrand::u64(..400_000)
                    } else {
                        fastrand::u64(100..400)
                    })
                };
                let cost = fastrand::u32(1..=quota.costliest);
                let arrived = emitted.after(leg());
                let answered = arrived.after(leg());
                arrivals.push((arrived, cost));
                margin.answered(emitted, answered);
                emitted = emitted.after(margin.interval() * cost).max(answered);
            }
            for (first, &(start, _)) in arrivals.iter().enumerate() {
                let inside = arrivals[first..]
                    .iter()
                    .take_while(|(at, _)| at.since(start) < quota.window);
                assert!(inside.map(|(_, cost)| cost).sum::<u32>() <= quota.units);
            }
        }
    }
}
