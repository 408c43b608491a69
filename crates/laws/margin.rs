//! With a margin no arrival exceeds what a provider counts, and with less some does: all short sequences of emissions, and all
//! delays of each.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use paceline::policy::{
    AlignedWindow, Alignment, All, AnyPolicy, FixedWindow, Interval, PerRequest, Policy, Ramp,
    SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use paceline::time::{Rate, Tick};

use super::subject::Aligned;
use super::trace::nanos;

/// It judges arrivals, which come in order of time.
trait Provider: Clone {
    fn accepts(&mut self, at: u64) -> bool;
}

/// At most this number in any window.
#[derive(Clone)]
struct AnyWindow {
    most: u32,
    window: u64,
    arrivals: Vec<u64>,
}

fn any_window(most: u32, window: u64) -> AnyWindow {
    AnyWindow {
        most,
        window,
        arrivals: Vec::new(),
    }
}

impl Provider for AnyWindow {
    fn accepts(&mut self, at: u64) -> bool {
        let inside = self.arrivals.iter().rev();
        let inside = inside.take_while(|arrival| at - *arrival < self.window);
        let is_free = inside.count() < self.most as usize;
        self.arrivals.push(at);
        is_free
    }
}

/// At most this number in a window that begins with the first arrival after the last window.
#[derive(Clone)]
struct FromFirst {
    most: u32,
    window: u64,
    ends_at: u64,
    count: u32,
}

fn from_first(most: u32, window: u64) -> FromFirst {
    FromFirst {
        most,
        window,
        ends_at: 0,
        count: 0,
    }
}

impl Provider for FromFirst {
    fn accepts(&mut self, at: u64) -> bool {
        if self.ends_at <= at {
            (self.ends_at, self.count) = (at + self.window, 0);
        }
        self.count += 1;
        self.count <= self.most
    }
}

/// At most this number in each window of its clock.
#[derive(Clone)]
struct ByClock(FromFirst);

impl Provider for ByClock {
    fn accepts(&mut self, at: u64) -> bool {
        if self.0.ends_at <= at {
            let begins = at / self.0.window * self.0.window;
            (self.0.ends_at, self.0.count) = (begins + self.0.window, 0);
        }
        self.0.accepts(at)
    }
}

/// A bucket that counts in parts of a token.
#[derive(Clone)]
struct Bucket {
    rate: Rate,
    burst: u32,
    missing: u128,
    last: u64,
}

const fn bucket(rate: Rate, burst: u32) -> Bucket {
    Bucket {
        rate,
        burst,
        missing: 0,
        last: 0,
    }
}

impl Provider for Bucket {
    fn accepts(&mut self, at: u64) -> bool {
        let token = self.rate.period().as_nanos();
        let came = u128::from(at - self.last) * u128::from(self.rate.permits());
        self.missing = self.missing.saturating_sub(came) + token;
        self.last = at;
        self.missing <= u128::from(self.burst) * token
    }
}

/// Two providers that count the same arrivals.
impl<A: Provider, B: Provider> Provider for (A, B) {
    fn accepts(&mut self, at: u64) -> bool {
        self.0.accepts(at) & self.1.accepts(at)
    }
}

/// All sequences of emissions with gaps up to this, and all delays of each.
struct Search<'a, P, V> {
    policy: &'a P,
    provider: &'a V,
    delays: RangeInclusive<u64>,
    longest_gap: u64,
    arrivals: Vec<u64>,
}

impl<P: Policy, V: Provider> Search<'_, P, V> {
    fn finds_an_excess(&mut self, state: &P::State, now: u64, requests: u32) -> bool {
        if requests == 0 {
            return false;
        }
        for gap in 0..=self.longest_gap {
            let (mut state, now) = (state.clone(), now + gap);
            if !self
                .policy
                .decide(&mut state, Tick::from_nanos(now), 1)
                .is_pass()
            {
                continue;
            }
            for delay in self.delays.clone() {
                self.arrivals.push(now + delay);
                if self.is_excess() || self.finds_an_excess(&state, now, requests - 1) {
                    return true;
                }
                self.arrivals.pop();
            }
        }
        false
    }

    fn is_excess(&self) -> bool {
        let (mut arrivals, mut provider) = (self.arrivals.clone(), self.provider.clone());
        arrivals.sort_unstable();
        arrivals.into_iter().any(|at| !provider.accepts(at))
    }
}

/// Whether some arrivals of this number of requests exceed what the provider counts.
fn exceeds<P: Policy>(
    policy: &P,
    provider: &impl Provider,
    delays: RangeInclusive<u64>,
    (requests, longest_gap): (u32, u64),
) -> bool {
    let mut search = Search {
        policy,
        provider,
        delays,
        longest_gap,
        arrivals: Vec::new(),
    };
    let start = 1_000;
    search.finds_an_excess(&policy.fresh(Tick::from_nanos(start)), start, requests)
}

/// A limit, a window, the shortest and the longest delay.
const CASES: [(u32, u64, [u64; 2]); 7] = [
    (1, 3, [0, 1]),
    (1, 4, [2, 7]),
    (2, 3, [0, 4]),
    (2, 4, [1, 3]),
    (2, 5, [3, 4]),
    (3, 4, [0, 2]),
    (3, 5, [2, 3]),
];

/// No delays exceed what the provider counts. If it is made for delays up to this much shorter, some do.
fn is_tight<P: Policy + Debug>(
    margin: impl Fn(RangeInclusive<Duration>) -> P,
    provider: &impl Provider,
    [shortest, longest]: [u64; 2],
    (size, less): ((u32, u64), u64),
) {
    let policy = margin(nanos(shortest)..=nanos(longest));
    let delays = shortest..=longest;
    let is_over = exceeds(&policy, provider, delays.clone(), size);
    assert!(!is_over, "{policy:?} for {delays:?}");
    let looser = margin(nanos(shortest)..=nanos(longest - less));
    assert!(
        exceeds(&looser, provider, delays.clone(), size),
        "{looser:?} for {delays:?}"
    );
}

/// One request more than the limit, and gaps of a window and the margin.
const fn size(limit: u32, window: u64, [shortest, longest]: [u64; 2]) -> (u32, u64) {
    (limit + 1, window + longest - shortest + 1)
}

#[test]
fn a_log_keeps_to_any_window() {
    for (limit, window, delays) in CASES {
        let log = SlidingLog::new(limit, nanos(window));
        let provider = any_window(limit, window);
        let size = size(limit, window, delays);
        is_tight(|delay| log.with_margin(delay), &provider, delays, (size, 1));
    }
}

/// It counts for 1 ns longer than its window at least, if its buckets divide that.
#[test]
fn a_strict_counter_keeps_to_any_window() {
    for (limit, window, delays, buckets) in [
        (2, 3, [0, 3], 1),
        (2, 4, [1, 3], 2),
        (2, 5, [2, 5], 3),
        (2, 3, [0, 5], 3),
    ] {
        let counter = SlidingCounter::strict(limit, nanos(window), buckets);
        let provider = any_window(limit, window);
        let (_, gap) = size(limit, window, delays);
        let margin = |delay| counter.with_margin(delay);
        is_tight(margin, &provider, delays, ((2 * limit, gap), 2));
    }
}

/// It passes 2 · limit − 2 without a refund.
#[test]
fn a_smooth_counter_keeps_to_its_bound() {
    for (limit, window, delays) in [(2, 3, [0, 3]), (2, 4, [1, 3]), (2, 5, [2, 4])] {
        let counter = SlidingCounter::smooth(limit, nanos(window));
        let provider = any_window(2 * limit - 2, window);
        let (_, gap) = size(limit, window, delays);
        let margin = |delay| counter.with_margin(delay);
        is_tight(margin, &provider, delays, ((2 * limit, gap), 2));
    }
}

#[test]
fn an_interval_from_a_rate_keeps_to_any_window_of_the_rate() {
    for (limit, window, delays) in CASES {
        let provider = any_window(limit, window);
        let size = size(limit, window, delays);
        let rate = Interval::from_rate(Rate::new(limit, nanos(window)));
        let [shortest, longest] = delays;
        let policy = rate.with_margin(nanos(shortest)..=nanos(longest));
        let is_over = |policy| exceeds(&policy, &provider, shortest..=longest, size);
        assert!(!is_over(policy), "{policy:?}");
        let closer = Interval::every(policy.interval().saturating_sub(nanos(1)));
        assert!(is_over(closer), "{closer:?}");
    }
}

#[test]
fn an_interval_keeps_two_arrivals_apart() {
    for (_, interval, delays) in CASES {
        let every = Interval::every(nanos(interval)).with_delayed_start();
        let provider = any_window(1, interval);
        let size = size(1, interval, delays);
        is_tight(
            |delay| every.with_margin(delay),
            &provider,
            delays,
            (size, 1),
        );
    }
    let none = Interval::every(Duration::ZERO);
    assert_eq!(none.with_margin(nanos(0)..=nanos(9)), none);
}

/// With a token more, or 1 ns closer, some exceed it.
#[test]
fn a_bucket_keeps_to_the_bucket_of_a_provider() {
    for (permits, period, burst, [shortest, longest]) in [
        (1, 3, 2, [0, 2]),
        (1, 3, 3, [0, 4]),
        (1, 2, 3, [1, 3]),
        (2, 3, 3, [0, 2]),
        (2, 5, 3, [2, 4]),
        (1, 4, 2, [1, 4]),
        (1, 3, 2, [0, 5]),
        (1, 3, 1, [0, 2]),
        (2, 5, 2, [0, 6]),
        (3, 4, 2, [1, 4]),
    ] {
        let rate = Rate::new(permits, nanos(period));
        let provider = bucket(rate, burst);
        let policy = TokenBucket::new(rate, burst).with_margin(nanos(shortest)..=nanos(longest));
        let looser = if policy.rate() == rate {
            TokenBucket::new(rate, policy.burst() + 1)
        } else {
            TokenBucket::new(
                Rate::new(1, policy.rate().period().saturating_sub(nanos(1))),
                1,
            )
        };
        let size = (burst + 2, period + longest - shortest + 1);
        let is_over = |policy| exceeds(&policy, &provider, shortest..=longest, size);
        assert!(!is_over(policy), "{policy:?}");
        assert!(is_over(looser), "{looser:?}");
    }
}

/// A longer fixed window is not enough.
#[test]
fn a_log_keeps_to_windows_from_the_first_arrival() {
    for (limit, window, delays) in CASES {
        let fixed = FixedWindow::new(limit, nanos(window));
        let provider = from_first(limit, window);
        let size = size(limit, window, delays);
        is_tight(
            |delay| fixed.with_margin(delay),
            &provider,
            delays,
            (size, 1),
        );
    }
    let longer = FixedWindow::new(2, nanos(4 + 2));
    assert!(exceeds(&longer, &from_first(2, 4), 0..=2, (4, 7)));
}

#[test]
fn an_aligned_window_keeps_to_the_windows_of_a_clock() {
    for (limit, window, delays) in [
        (1, 3, [0, 1]),
        (1, 5, [4, 7]),
        (2, 4, [1, 3]),
        (2, 5, [13, 14]),
        (2, 4, [0, 3]),
    ] {
        let aligned = AlignedWindow::new(limit, Alignment::Every(nanos(window)));
        let provider = ByClock(from_first(limit, window));
        let size = (limit + 2, window + 1);
        let margin = |delay| Aligned::new(aligned.clone().with_margin(delay));
        is_tight(margin, &provider, delays, (size, 1));
        let [shortest, longest] = delays;
        let late = margin(nanos(shortest + 1)..=nanos(longest));
        assert!(exceeds(&late, &provider, shortest..=longest, size));
    }
}

#[test]
fn a_ramp_keeps_to_any_window_of_its_rates() {
    for (from, to, period, within, delays) in [
        (1, 2, 4, 6, [0, 1]),
        (1, 3, 5, 4, [1, 3]),
        (2, 2, 4, 3, [0, 3]),
    ] {
        let rate = |permits| Rate::new(permits, nanos(period));
        let ramp = Ramp::new(rate(from), rate(to), nanos(within));
        let provider = any_window(to, period);
        let (requests, gap) = size(to, period, delays);
        let margin = |delay| ramp.with_margin(delay);
        is_tight(margin, &provider, delays, ((requests + 2, gap), 1));
        let falling = Ramp::new(rate(to), rate(from), nanos(within));
        let [shortest, longest] = delays;
        let falling = falling.with_restart_after(nanos(1));
        let falling = falling.with_margin(nanos(shortest)..=nanos(longest));
        assert_eq!(falling.restart_after(), Some(nanos(1)));
        let size = (requests, gap);
        assert!(!exceeds(&falling, &provider, shortest..=longest, size));
    }
}

#[test]
fn several_limits_keep_to_several_providers() {
    for (limit, window, delays) in CASES {
        let fixed = FixedWindow::new(limit, nanos(window));
        let all = All::new((fixed, Interval::every(nanos(2))));
        let provider = (from_first(limit, window), any_window(1, 2));
        let margin = |delay| all.with_margin(delay);
        is_tight(margin, &provider, delays, (size(limit, window, delays), 1));
    }
}

#[test]
fn a_limit_of_requests_keeps_to_windows_from_the_first_arrival() {
    for (limit, window, delays) in CASES {
        let fixed = PerRequest::new(FixedWindow::new(limit, nanos(window)));
        let provider = from_first(limit, window);
        let margin = |delay| fixed.with_margin(delay);
        is_tight(margin, &provider, delays, (size(limit, window, delays), 1));
    }
}

/// Also where one `All` is inside another, or inside a limit of requests.
#[test]
fn each_of_several_limits_has_the_margin_that_it_has_alone() {
    let delay = || nanos(2)..=nanos(5);
    let aligned = AlignedWindow::new(3, Alignment::Every(nanos(7)));
    let ramp = Ramp::new(Rate::new(1, nanos(4)), Rate::new(3, nanos(4)), nanos(6));
    let (fixed, smooth) = (
        FixedWindow::new(4, nanos(9)),
        SlidingCounter::smooth(5, nanos(8)),
    );
    let bucket = TokenBucket::new(Rate::new(2, nanos(3)), 6).with_start(5);
    let every = Interval::every(nanos(3)).with_delayed_start();
    let any: AnyPolicy = "7/9ns and 2/5ns per request".parse().unwrap();

    let inner = All::new((PerRequest::new(All::new((fixed, ramp))), smooth));
    let all = All::new((
        bucket,
        Unlimited,
        inner,
        aligned.clone(),
        any.clone(),
        every,
    ));
    let inner = All::new((
        PerRequest::new(All::new((
            fixed.with_margin(delay()),
            ramp.with_margin(delay()),
        ))),
        smooth.with_margin(delay()),
    ));
    let each = All::new((
        bucket.with_margin(delay()),
        Unlimited,
        inner,
        aligned.with_margin(delay()),
        any.try_with_margin(delay()).unwrap(),
        every.with_margin(delay()),
    ));
    assert_eq!(all.with_margin(delay()), each.into());
}

#[test]
#[should_panic(expected = "a token bucket with debt has no margin")]
fn several_limits_have_no_margin_if_one_of_them_has_none() {
    let owes = TokenBucket::new(Rate::per_second(1), 1).with_debt();
    let all = All::new((Interval::every(nanos(3)), PerRequest::new(owes)));
    let _ = all.with_margin(nanos(2)..=nanos(5));
}

/// A client that never rests, from requests that are late to requests that are early.
#[test]
fn rates_of_real_providers_are_kept_to() {
    for (permits, burst, millis) in [
        (10, 5, 80),
        (37, 20, 83),
        (37, 20, 900),
        (3, 2, 1_333),
        (1_000, 1, 7),
        (7_919, 1_000, 61),
    ] {
        let (rate, second) = (Rate::per_second(permits), 1_000_000_000);
        let longest = 5_000_000 + millis * 1_000_000;
        let delay = || Duration::from_millis(5)..=Duration::from_nanos(longest);
        let log = SlidingLog::from_rate(rate).with_margin(delay());
        keeps(&log, &any_window(permits, second), longest);
        let evenly = Interval::from_rate(rate).with_margin(delay());
        keeps(&evenly, &any_window(permits, second), longest);
        let policy = TokenBucket::new(rate, burst).with_margin(delay());
        keeps(&policy, &bucket(rate, burst), longest);
    }
}

fn keeps<P: Policy + Debug>(policy: &P, provider: &impl Provider, longest: u64) {
    let (mut state, mut now) = (policy.fresh(Tick::ZERO), Tick::ZERO);
    let mut emissions = Vec::new();
    while emissions.len() < 100 {
        match policy.decide(&mut state, now, 1).retry_in() {
            Some(wait) => now = now.after(wait),
            None => emissions.push(now.as_nanos()),
        }
    }
    for early in 0..emissions.len() {
        let delay = |index| if index < early { longest } else { 5_000_000 };
        let arrivals = emissions.iter().enumerate();
        let mut arrivals: Vec<u64> = arrivals.map(|(index, at)| at + delay(index)).collect();
        arrivals.sort_unstable();
        let mut provider = provider.clone();
        let refused = arrivals.iter().position(|at| !provider.accepts(*at));
        assert_eq!(refused, None, "{policy:?}, early from {early}");
    }
}
