//! An adversary that knows the policy: the worst window of all short sequences of requests is the one in the docs.

mod search;

use paceline::policy::{FixedWindow, Interval, Ramp, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use search::{Search, most};

use super::trace::nanos;

const WINDOWS: [u64; 4] = [4, 5, 7, 12];
const LIMITS: [u32; 4] = [1, 2, 3, 4];

#[test]
fn an_interval_passes_at_most_m_requests_in_m_intervals() {
    for (interval, m) in [(1, 1), (1, 4), (2, 3), (3, 1), (3, 3), (5, 2)] {
        let policy = Interval::every(nanos(interval));
        let search = Search::of(interval * m, 5).gaps_around(&[interval]);
        assert_eq!(most(&policy, &search), m.into(), "{policy:?}");
    }
}

/// The area under the rate, rounded up, and never more.
#[test]
fn a_ramp_passes_at_most_the_area_under_the_faster_rate() {
    for (from, to, period, within, window) in [
        (1, 2, 2, 6, 3),
        (1, 3, 4, 8, 5),
        (2, 1, 3, 5, 7),
        (1, 1, 3, 4, 9),
    ] {
        let rate = |permits| Rate::new(permits, nanos(period));
        let policy = Ramp::new(rate(from), rate(to), nanos(within));
        let search = Search::of(window, 6).gaps_around(&[period, within]);
        let area = window * u64::from(from.max(to));
        let bound = u128::from(area.div_ceil(period));
        assert!(most(&policy, &search) <= bound, "{policy:?} in {window}");
        let again = policy.with_restart_after(nanos(1));
        assert!(most(&again, &search) <= bound, "{again:?} in {window}");
    }
}

/// Only whole tokens that arrive within the window count. A token that arrives at its end is outside.
#[test]
fn a_bucket_passes_at_most_its_burst_and_the_arriving_tokens() {
    for (permits, period, burst, window) in [
        (1, 3, 1, 7),
        (1, 3, 2, 12),
        (2, 5, 2, 5),
        (2, 5, 2, 12),
        (3, 4, 2, 4),
        (3, 4, 3, 7),
        (1, 12, 3, 12),
    ] {
        let policy = TokenBucket::new(Rate::new(permits, nanos(period)), burst);
        let search = Search::of(window, 5).costs(&[1, burst]);
        let search = search.gaps_around(&[period]);
        let come = (window - 1) * u64::from(permits) / period;
        let bound = u128::from(burst) + u128::from(come);
        assert_eq!(most(&policy, &search), bound, "{policy:?} in {window}");
    }
}

#[test]
fn a_log_passes_at_most_its_limit_in_a_window() {
    for window in WINDOWS {
        for limit in LIMITS {
            let policy = SlidingLog::new(limit, nanos(window));
            let search = Search::of(window, 5).costs(&[1, 2, limit]);
            assert_eq!(most(&policy, &search), limit.into(), "{policy:?}");
        }
    }
}

#[test]
fn a_strict_counter_passes_at_most_its_limit_in_a_window() {
    for window in WINDOWS {
        for (limit, buckets) in [
            (1, 1),
            (1, 3),
            (2, 2),
            (3, 1),
            (3, 3),
            (2, 5),
            (4, 2),
            (3, 60),
        ] {
            let policy = SlidingCounter::strict(limit, nanos(window), buckets);
            let bucket = window.div_ceil(buckets.into());
            let search = Search::of(window, 5).costs(&[1, limit]);
            let search = search.gaps_around(&[bucket, bucket * u64::from(buckets)]);
            assert_eq!(most(&policy, &search), limit.into(), "{policy:?}");
        }
    }
}

/// A linear decay does not bound the count by the limit: a burst at the end of a window counts as if it were spread evenly
/// over that window. It decays while the sliding window around it has hardly begun.
///
/// The window begins with a request, so that one permit is spent there and not at the end. In the next window the share of
/// the burst is above zero until the end. A late refund moves that one permit to the end.
#[test]
fn a_smooth_counter_passes_at_most_twice_its_limit_less_one() {
    for (limit, window) in [(1, 4), (1, 7), (2, 5), (2, 12), (3, 7), (3, 12), (4, 12)] {
        let policy = SlidingCounter::smooth(limit, nanos(window));
        let search = Search::of(window, 5).costs(&[1, limit - 1, limit]);
        let twice = 2 * u128::from(limit);
        assert_eq!(most(&policy, &search), (twice - 2).max(1), "{policy:?}");
        if limit > 1 {
            let late = search.with_one_refund();
            assert_eq!(most(&policy, &late), twice - 1, "{policy:?}");
        }
    }
}

/// As the docs warn. (One less without a refund, since one request begins the window.)
#[test]
fn a_fixed_window_passes_twice_its_limit() {
    for (limit, window) in [(2, 4), (2, 12), (3, 7), (4, 5), (4, 12)] {
        let policy = FixedWindow::new(limit, nanos(window));
        let search = Search::of(window, 5).costs(&[1, limit - 1, limit]);
        let twice = 2 * u128::from(limit);
        assert_eq!(most(&policy, &search), twice - 1, "{policy:?}");
        let late = search.with_one_refund();
        assert_eq!(most(&policy, &late), twice, "{policy:?}");
        // Even in a window of 2 ns.
        let short = Search::of(2, 4).costs(&[1, limit - 1, limit]);
        let short = short.gaps_around(&[window]);
        assert_eq!(most(&policy, &short), twice - 1, "{policy:?}");
    }
}
