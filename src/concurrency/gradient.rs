use core::time::Duration;

use crate::time::{OutOfRange, Tick};

use super::aimd::{check_range, is_used, whole};
use super::{Controller, Outcome};

/// Follows the latency: if the present latency rises above the long-term latency, a queue is growing somewhere, and the
/// limit shrinks by their ratio.
///
/// The algorithm is that of `Gradient2Limit` in Netflix's
/// [concurrency-limits](https://github.com/Netflix/concurrency-limits). The limit changes at the end of each window, which
/// takes one second and at least ten calls. `short` is the mean latency in the window, and `long` is its exponential mean
/// over about 600 windows:
///
/// ```text
/// gradient = long / short, at least 0.5 and at most 1
/// aim      = limit · gradient + queue
/// limit    = limit · 0.8 + aim · 0.2, within floor and ceiling
/// ```
///
/// The `queue` (4, or [another](Self::with_queue)) is the number of calls that may queue at the server without harm. It
/// also makes the limit grow while the latency is steady. A window in which less than half of the limit was ever in use changes
/// nothing. If the long-term latency is more than twice the present one, it falls by a tenth a window, so that a bad time is
/// forgotten soon.
///
/// One thing differs from the original. There, a dropped call changes nothing, so that fast refusals look like a low
/// latency. Here, a window with a dropped call counts as a window with twice the latency and a `queue` of 0, however much of
/// the limit was in use.
///
/// ```
/// use paceline::concurrency::{Gradient, Outcome};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// let mut controller = Gradient::new(10, 1_000);
/// let mut now = Tick::ZERO;
/// let mut second = |controller: &mut Gradient, millis| {
///     for _ in 0..20 {
///         now = now.after(Duration::from_millis(50));
///         let latency = Duration::from_millis(millis);
///         controller.observe(now, controller.limit(), Outcome::Success { latency });
///     }
///     controller.limit()
/// };
///
/// let quick = (0..60).map(|_| second(&mut controller, 20)).last();
/// assert_eq!(quick, Some(55)); // a steady latency: the limit grows
/// let slow = (0..20).map(|_| second(&mut controller, 60)).last();
/// assert_eq!(slow, Some(14)); // three times the latency: it shrinks
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    floor: u32,
    ceiling: u32,
    queue: u32,
    window_length: Duration,
    limit: f64,
    window: Window,
    /// The number of windows with a latency.
    windows: u32,
    /// The long-term latency in seconds: the plain mean of the first windows, and an exponential mean afterwards.
    long: f64,
}

/// The share of the aim in the new limit.
const SMOOTHING: f64 = 0.2;

/// A window with fewer calls goes on.
const FEWEST: u32 = 10;

/// The number of windows of the plain mean.
const WARM_UP: u32 = 10;

/// The weight of a window in the exponential mean.
const WEIGHT: f64 = 2.0 / 601.0;

impl Gradient {
    /// A limit that starts at `floor` and stays between `floor` and `ceiling`.
    ///
    /// # Panics
    ///
    /// If the floor is zero, or above the ceiling; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(floor: u32, ceiling: u32) -> Self {
        OutOfRange::or_panic(Self::try_new(floor, ceiling))
    }

    /// [`new`](Self::new), for numbers from a configuration.
    ///
    /// # Errors
    ///
    /// If the floor is zero, or above the ceiling.
    pub fn try_new(floor: u32, ceiling: u32) -> Result<Self, OutOfRange> {
        check_range(floor, ceiling)?;
        Ok(Self {
            floor,
            ceiling,
            queue: 4,
            window_length: Duration::from_secs(1),
            limit: f64::from(floor),
            window: Window::default(),
            windows: 0,
            long: 0.0,
        })
    }

    /// Starts at `limit` instead of the floor.
    ///
    /// ```
    /// use paceline::concurrency::Gradient;
    ///
    /// assert_eq!(Gradient::new(10, 100).limit(), 10);
    /// assert_eq!(Gradient::new(10, 100).with_start(20).limit(), 20);
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is below the floor or above the ceiling.
    #[must_use]
    #[track_caller]
    pub fn with_start(self, limit: u32) -> Self {
        let Self { floor, ceiling, .. } = self;
        assert!(
            floor <= limit && limit <= ceiling,
            "the start must lie between {floor} and {ceiling}, got {limit}"
        );
        let limit = f64::from(limit);
        Self { limit, ..self }
    }

    /// The number of calls that may queue at the server without harm; 4 by default. With 0 the limit never grows.
    ///
    /// ```
    /// use paceline::concurrency::Gradient;
    ///
    /// let eager = Gradient::new(10, 1_000).with_queue(20);
    /// # let _ = eager;
    /// ```
    #[must_use]
    pub const fn with_queue(self, queue: u32) -> Self {
        Self { queue, ..self }
    }

    /// The shortest time between two changes of the limit; one second by default.
    ///
    /// ```
    /// use paceline::concurrency::Gradient;
    /// use std::time::Duration;
    ///
    /// let quick = Gradient::new(10, 1_000).with_window(Duration::from_millis(100));
    /// # let _ = quick;
    /// ```
    ///
    /// # Panics
    ///
    /// If `window` is zero.
    #[must_use]
    #[track_caller]
    pub const fn with_window(self, window: Duration) -> Self {
        assert!(!window.is_zero(), "a window must not be empty, got 0 ns");
        Self {
            window_length: window,
            ..self
        }
    }

    /// Takes in the outcome of a call that ended `now`, when `in_use` calls were under way, including this one.
    pub fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome) {
        if outcome == Outcome::Ignored {
            return;
        }
        let since = *self.window.since.get_or_insert(now);
        self.window.add(in_use, outcome);
        if self.window.calls >= FEWEST && now.since(since) >= self.window_length {
            let window = core::mem::take(&mut self.window);
            self.learn(&window);
        }
    }

    /// The number of calls that may be under way at once.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        whole(self.limit)
    }

    fn learn(&mut self, window: &Window) {
        let ratio = window.mean().map(|short| self.ratio(short));
        let is_used = is_used(self.limit(), window.most_in_use);
        let (gradient, queue) = match ratio {
            _ if window.has_drop => (0.5, 0),
            Some(ratio) if is_used => (ratio.clamp(0.5, 1.0), self.queue),
            _ => return,
        };
        let aim = self.limit * gradient + f64::from(queue);
        let limit = self.limit * (1.0 - SMOOTHING) + aim * SMOOTHING;
        self.limit = limit.clamp(f64::from(self.floor), f64::from(self.ceiling));
    }

    /// Adds the mean latency of a window to the long-term latency, and returns long / short.
    fn ratio(&mut self, short: f64) -> f64 {
        self.windows = self.windows.saturating_add(1);
        let weight = if self.windows <= WARM_UP {
            1.0 / f64::from(self.windows)
        } else {
            WEIGHT
        };
        self.long += (short - self.long) * weight;
        let long = self.long;
        if long > short * 2.0 {
            self.long *= 0.9;
        }
        if short > 0.0 { long / short } else { 1.0 }
    }
}

impl Controller for Gradient {
    fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome) {
        self.observe(now, in_use, outcome);
    }

    fn limit(&self) -> u32 {
        self.limit()
    }
}

/// The calls since the last change of the limit.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Tick>,
    calls: u32,
    successes: u32,
    latency: Duration,
    most_in_use: u32,
    has_drop: bool,
}

impl Window {
    fn add(&mut self, in_use: u32, outcome: Outcome) {
        match outcome {
            Outcome::Success { latency } => {
                self.successes = self.successes.saturating_add(1);
                self.latency = self.latency.saturating_add(latency);
            }
            Outcome::Ignored => {}
            Outcome::Dropped => self.has_drop = true,
        }
        self.calls = self.calls.saturating_add(1);
        self.most_in_use = self.most_in_use.max(in_use);
    }

    /// The mean latency in seconds; `None` without a success.
    fn mean(&self) -> Option<f64> {
        let seconds = self.latency.as_secs_f64();
        (self.successes > 0).then(|| seconds / f64::from(self.successes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of ten calls.
    fn window(controller: &mut Gradient, now: &mut Tick, millis: u64, in_use: u32) -> u32 {
        let latency = Duration::from_millis(millis);
        for _ in 0..10 {
            controller.observe(*now, in_use, Outcome::Success { latency });
            *now = now.after(Duration::from_millis(200));
        }
        controller.limit()
    }

    #[test]
    fn grows_by_a_fifth_of_the_queue_while_the_latency_is_steady() {
        let (mut controller, mut now) = (Gradient::new(10, 14), Tick::ZERO);
        let limits: Vec<_> = (0..7)
            .map(|_| window(&mut controller, &mut now, 20, 14))
            .collect();
        assert_eq!(limits, [10, 11, 12, 13, 14, 14, 14]);
    }

    #[test]
    fn shrinks_by_a_tenth_at_most() {
        let mut controller = Gradient::new(1, 1_000).with_start(100).with_queue(0);
        let mut now = Tick::ZERO;
        assert_eq!(window(&mut controller, &mut now, 20, 100), 100);
        assert_eq!(window(&mut controller, &mut now, 2_000, 100), 90);
    }

    #[test]
    fn a_limit_that_is_not_used_stays() {
        let mut controller = Gradient::new(1, 1_000).with_start(100);
        let mut now = Tick::ZERO;
        for millis in [20, 20, 200, 2_000] {
            assert_eq!(window(&mut controller, &mut now, millis, 49), 100);
        }
        assert_eq!(window(&mut controller, &mut now, 1, 50), 100);
        assert_eq!(window(&mut controller, &mut now, 1, 50), 101);
    }

    #[test]
    fn quick_refusals_are_not_good_times() {
        let mut controller = Gradient::new(1, 1_000).with_start(100);
        let mut now = Tick::ZERO;
        for _ in 0..10 {
            controller.observe(now, 1, Outcome::Dropped);
            now = now.after(Duration::from_millis(200));
        }
        assert_eq!(controller.limit(), 90);
    }

    #[test]
    fn a_window_is_long_enough_and_has_calls_enough() {
        let latency = Duration::from_millis(1);
        let mut controller = Gradient::new(10, 1_000);
        for _ in 0..1_000 {
            controller.observe(Tick::ZERO, 10, Outcome::Success { latency });
        }
        let late = Tick::from_nanos(1_000_000_000);
        controller.observe(late, 10, Outcome::Ignored);
        assert_eq!(controller.window.calls, 1_000);
        controller.observe(late, 10, Outcome::Success { latency });
        assert_eq!(controller.window.calls, 0);

        for _ in 0..9 {
            controller.observe(late, 10, Outcome::Success { latency });
        }
        let much_later = late.after(Duration::from_secs(3600));
        controller.observe(much_later, 10, Outcome::Ignored);
        assert_eq!(controller.window.calls, 9);
    }

    #[test]
    fn no_latency_at_all_is_a_steady_one() {
        let (mut controller, mut now) = (Gradient::new(10, 1_000), Tick::ZERO);
        for _ in 0..100 {
            assert!(window(&mut controller, &mut now, 0, 1_000) >= 10);
        }
        assert_eq!(controller.limit(), 90);
    }

    #[test]
    fn a_bad_memory_fades() {
        let (mut controller, mut now) = (Gradient::new(10, 1_000), Tick::ZERO);
        for _ in 0..20 {
            window(&mut controller, &mut now, 1_000, 1_000);
        }
        for _ in 0..40 {
            window(&mut controller, &mut now, 10, 1_000);
        }
        assert!(controller.long < 0.021, "{}", controller.long);
    }
}
