#[cfg(not(loom))]
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// No task takes samples.
const IDLE: i64 = i64::MIN;

/// The amount of shedding, written by one task and read by every request. Times are in nanoseconds.
pub(super) struct Gauge {
    /// Or [`IDLE`].
    amount: AtomicI64,
    /// The last utilization, as bits.
    utilization: AtomicU64,
    /// Until when the two above hold. It is written after them with `Release`, and read before them with `Acquire`: a reader that
    /// finds a time that is not over sees the sample of that time, or a later one.
    until: AtomicU64,
}

impl Gauge {
    pub(super) fn new() -> Self {
        Self {
            amount: AtomicI64::new(IDLE),
            utilization: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Whether the caller has to start the task. The amount is that of rest then.
    pub(super) fn begin(&self, rest: i64) -> bool {
        let begun = (Ordering::Acquire, Ordering::Relaxed);
        let amount = self.amount.compare_exchange(IDLE, rest, begun.0, begun.1);
        amount.is_ok()
    }

    /// The task has ended.
    pub(super) fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
        self.amount.store(IDLE, Ordering::Release);
    }

    /// The task has taken a sample, which holds until then.
    pub(super) fn record(&self, amount: i64, utilization: f64, until: u64) {
        self.amount.store(amount, Ordering::Relaxed);
        self.utilization
            .store(utilization.to_bits(), Ordering::Relaxed);
        self.until.store(until, Ordering::Release);
    }

    /// The last amount, which may be out of date. `None`: no task runs.
    #[inline]
    pub(super) fn last_amount(&self) -> Option<i64> {
        Some(self.amount.load(Ordering::Relaxed)).filter(|amount| *amount != IDLE)
    }

    /// The amount, if the last sample still holds.
    pub(super) fn amount_at(&self, now: u64) -> Option<i64> {
        let holds = now < self.until.load(Ordering::Acquire);
        holds.then(|| self.last_amount()).flatten()
    }

    /// The utilization, if the last sample still holds.
    pub(super) fn utilization_at(&self, now: u64) -> Option<f64> {
        let holds = now < self.until.load(Ordering::Acquire);
        holds.then(|| f64::from_bits(self.utilization.load(Ordering::Relaxed)))
    }
}

/// Numbers by chance: splitmix64 (Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*, 2014), whose state is a count.
pub(super) struct Chance {
    state: AtomicU64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    pub(super) fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.state.fetch_add(STEP, Ordering::Relaxed);
        let mut mixed = state.wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// How many requests of a class were admitted and shed. They are only ever added to.
#[derive(Default)]
pub(super) struct Tally {
    admitted: AtomicU64,
    shed: AtomicU64,
}

impl Tally {
    #[inline]
    pub(super) fn count(&self, is_shed: bool) {
        let count = if is_shed { &self.shed } else { &self.admitted };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Admitted, and shed.
    pub(super) fn counts(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.admitted), count(&self.shed))
    }
}

// A package of its own runs them: see `crates/models/`.
#[cfg(all(test, loom))]
mod tests {
    use loom::model;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    const REST: i64 = -28;

    #[test]
    fn in_every_order_a_reader_never_takes_an_old_amount_for_a_new_one() {
        model(|| {
            let gauge = Arc::new(Gauge::new());
            assert!(gauge.begin(REST));
            gauge.record(100, 1.0, 3);
            // That sample is over at 3. The next one comes late, at 9.
            let task = Arc::clone(&gauge);
            let task = thread::spawn(move || task.record(-5, 0.25, 12));

            assert!(matches!(gauge.amount_at(9), None | Some(-5)));
            let utilization = gauge.utilization_at(9);
            assert!(
                utilization.is_none_or(|utilization| utilization.to_bits() == 0.25_f64.to_bits())
            );
            task.join().unwrap();
            assert_eq!(gauge.amount_at(9), Some(-5));
            assert_eq!(gauge.amount_at(12), None);
        });
    }

    #[test]
    fn in_every_order_one_of_two_callers_starts_the_task() {
        model(|| {
            let gauge = Arc::new(Gauge::new());
            let other = Arc::clone(&gauge);
            let other = thread::spawn(move || other.begin(REST));
            let begun = [gauge.begin(REST), other.join().unwrap()];
            assert_eq!(begun.iter().filter(|begun| **begun).count(), 1);
            assert_eq!(gauge.last_amount(), Some(REST));
        });
    }

    #[test]
    fn in_every_order_the_samples_of_the_next_task_outlive_the_end_of_the_one_before() {
        model(|| {
            let gauge = Arc::new(Gauge::new());
            assert!(gauge.begin(REST));
            gauge.record(100, 1.0, 3);
            let task = Arc::clone(&gauge);
            let task = thread::spawn(move || task.end());

            let restarted = gauge.begin(REST);
            if restarted {
                gauge.record(-7, 0.5, 12);
            }
            task.join().unwrap();
            assert_eq!(gauge.amount_at(9), restarted.then_some(-7));
        });
    }

    #[test]
    fn in_every_order_no_two_requests_draw_the_same_and_none_is_lost() {
        model(|| {
            let shared = Arc::new((Chance::new(7), Tally::default()));
            let other = Arc::clone(&shared);
            let other = thread::spawn(move || {
                other.1.count(true);
                other.0.draw()
            });
            shared.1.count(false);
            let mut drawn = [shared.0.draw(), other.join().unwrap()];
            drawn.sort_unstable();
            let in_order = Chance::new(7);
            let mut expected = [in_order.draw(), in_order.draw()];
            expected.sort_unstable();
            assert_eq!(drawn, expected);
            assert_eq!(shared.1.counts(), (1, 1));
        });
    }
}
