//! The margin: the time that the dispatcher adds to the interval of the quota.
//!
//! The dispatcher paces emissions, the provider judges arrivals. Let request `i` be emitted at `e_i`, arrive at `a_i`,
//! and be answered at `r_i`, and let `late_i` be a bound on how much later than the fastest it can have arrived. Then
//! for every later request `m`
//!
//! ```text
//! a_m − a_i  ≥  (e_m − e_i) − late_i
//! ```
//!
//! so a window of length `W` at the provider that begins with `i` contains no request that was emitted `W + late_i` after it
//! or later. Under an interval of `d` for each unit of cost, the requests before that, without the last one, cost less than
//! `(W + late_i) / d`. The last one costs at most `c`. The window therefore contains at most `N` if
//!
//! ```text
//! d  ≥  (W + late_i) / (N − c + 1)
//! ```
//!
//! for as long as such a window lasts. The bound comes from the answer: `a_i` lies between `e_i` and `r_i`, so the request
//! was late by at most its round trip. If the fastest request and the fastest answer together take at least `least − SLACK`,
//! it was late by at most `round trip − least + SLACK`. The smaller bound counts. If the least round trip is shorter than
//! the slack, as on loopback, the result rests on no assumption.
//!
//! A lower quota applies to windows that begin before its announcement too. The dispatcher therefore emits nothing for one
//! such window after the announcement. Then no window contains arrivals from before and after.
//!
//! This needs two conditions. There is one request in flight, so that `d` takes the last answer into account. And `e_i` is
//! not read later than the limit reads it (`dispatch::stamped`).

use core::time::Duration;
use std::collections::VecDeque;

use paceline::time::{Rate, Tick};

use crate::provider::Quota;

/// The most by which the least measured round trip exceeds the fastest request plus the fastest answer, which may belong to
/// different round trips.
const SLACK: Duration = Duration::from_millis(1);

/// The margin that the round trips so far require.
#[derive(Clone, Debug)]
pub(crate) struct Margin {
    contract: Quota,
    /// The quota of the contract, or a lower one that was announced.
    quota: Quota,
    least: Duration,
    /// For each request with which a future window may begin: until when that is possible, and the lateness. It leaves out
    /// requests that a later one exceeds.
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

    /// A request left at `emitted`, and its answer came at `answered`, or the client stopped to wait for it. Such a request is
    /// assumed not to arrive later.
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

    /// Applies a quota that the provider announces, but no higher one than the contract's. If the quota changes, it returns
    /// the time without emissions that has to come first.
    pub(crate) fn obey(&mut self, announced: Rate) -> Option<Duration> {
        let contract = self.contract;
        let quota = if announced < Rate::new(contract.units, contract.window) {
            Quota {
                units: announced.permits(),
                window: announced.period(),
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

    /// The greatest lateness that still counts.
    pub(crate) fn current(&self) -> Duration {
        self.recent
            .front()
            .map_or(Duration::ZERO, |&(_, late)| late)
    }

    /// The greatest lateness of all requests.
    pub(crate) const fn worst(&self) -> Duration {
        self.worst
    }

    /// The interval for each unit of cost, rounded up to a nanosecond.
    pub(crate) fn interval(&self) -> Duration {
        // A request that costs more than the quota can only be alone in its window.
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
    fn without_round_trips_the_interval_is_that_of_the_quota() {
        assert_eq!(Margin::new(GAP).interval(), ms(50));
        // 10 s / 297, rounded up.
        assert_eq!(
            Margin::new(WINDOW).interval(),
            Duration::from_nanos(33_670_034)
        );
    }

    #[test]
    fn a_short_round_trip_counts_as_late_as_a_whole() {
        let mut margin = Margin::new(GAP);
        margin.answered(Tick::ZERO, Tick::from_nanos(400_000));
        margin.answered(at(60), Tick::from_nanos(60_700_000));

        assert_eq!(margin.current(), Duration::from_micros(700));
        assert_eq!(margin.interval(), Duration::from_micros(50_700));
    }

    #[test]
    fn a_long_round_trip_is_late_by_its_difference_to_the_least() {
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
    fn an_announced_lower_quota_begins_after_one_of_its_windows() {
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
    fn an_announced_quota_above_the_contract_is_ignored() {
        let mut margin = Margin::new(GAP);
        assert_eq!(margin.obey(Rate::per_second(1_000)), None);
        // The rate of the contract, with a longer window.
        assert_eq!(margin.obey(Rate::per_second(20)), None);
        assert_eq!(margin.interval(), ms(50));

        assert_eq!(margin.obey(Rate::per_minute(60)), Some(ms(60_000)));
        assert_eq!(margin.obey(Rate::per_second(20)), Some(ms(50)));
        assert_eq!(margin.interval(), ms(50));
    }

    #[test]
    fn a_request_that_costs_more_than_the_quota_is_alone_in_its_window() {
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
                // Mostly short, sometimes very long, for requests and answers.
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
