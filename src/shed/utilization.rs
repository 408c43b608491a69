use core::convert::Infallible;
use core::fmt;
use core::future::{pending, poll_fn};
use core::panic::AssertUnwindSafe;
use core::task::{Context, Poll};
use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, OnceLock, Weak};

#[cfg(feature = "metrics")]
use metrics::SharedString;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::concurrency::{Admit, Admitted};
use crate::time::{Clock, OutOfRange, Resolution, Tick, Timer, or_panic};

use super::curve::Curve;
use super::gauge::{Chance, Gauge, Tally};
#[cfg(feature = "metrics")]
use super::metrics::Published;
use super::{Class, Sensor, lock};

/// How many periods a sample holds.
const SAMPLE_HOLDS: u32 = 3;

/// Sheds load while a worker is too busy: slowly, and the least important requests first. Clones are the same shedder.
///
/// A [`Sensor`] says how busy the worker is. The shedder adds up for how long that was too much, and sheds a share of the requests
/// that grows with it. So a peak of some seconds sheds nothing, and an overload that lasts sheds as much as it takes.
///
/// ```
/// use paceline::shed::{Class, WorkerUtilization};
/// use std::time::Duration;
/// use tokio::time::sleep;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let overloaded = || 1.0;
/// let shedder = WorkerUtilization::new(overloaded).with_classes(3);
/// assert!(shedder.admits(Class::Sheddable(0)));
///
/// sleep(Duration::from_millis(68_001)).await;
/// assert!(!shedder.admits(Class::Sheddable(0)), "all of it is shed");
/// assert!(shedder.admits(Class::Sheddable(1)));
///
/// sleep(Duration::from_secs(80)).await;
/// assert!(!shedder.admits(Class::Sheddable(2)));
/// assert!(shedder.admits(Class::Critical), "never shed");
/// # }
/// ```
///
/// # How much is shed
///
/// Below the *good* utilization (0.7) the amount falls, from the *bad* one (0.8) on it grows, and between the two it stays:
///
/// * below good: by (u / good − 1) / ramp a second,
/// * from bad on: by (u − bad) / (1 − bad) / ramp a second.
///
/// It lies between −delay / ramp, which is *rest*, and 1. A fresh process is at rest and sheds nothing. Of k sheddable classes, of
/// which i are less important, the share of k · amount − i is shed, at least none and at most all. Critical requests are never shed.
///
/// With a delay of 28 s and a ramp of 120 s:
///
/// | utilization | shedding begins after | all sheddable requests are shed after |
/// |---|---|---|
/// | 1 | 28 s | 148 s |
/// | 0.9 | 56 s | 296 s |
/// | 0.85 | 112 s | 592 s |
///
/// After all was shed, none is after 120 s of utilization 0. Of three classes at a utilization of 1, the first is gone after 68 s, the
/// second after 108 s and the third after 148 s. Nanoseconds are added up as whole numbers, so these times are exact.
///
/// # Samples
///
/// One task takes a sample each period (1 s). The first request or reading in a tokio runtime starts it. It ends with the last clone,
/// or with its runtime; then the shedder is at rest, and the next use starts another. A sample counts for the time since the one
/// before, but for no longer than the delay.
///
/// **Without a sample** for three periods the shedder is at rest, and the next sample is like that of a fresh process. So it is if the
/// sensor has no reading or panics, if the task is blocked, and in a runtime that was built without `enable_time`. Outside a runtime
/// nothing is shed until a runtime has used the shedder.
///
/// # Cost
///
/// While nothing of its class is shed, a request costs an atomic read and an atomic addition for the statistics. Else it reads the
/// clock too, and draws a number unless all of its class are shed.
#[derive(Clone)]
#[doc(alias("load shedding", "overload", "brownout"))]
pub struct WorkerUtilization {
    state: Arc<State>,
}

struct State {
    curve: Curve,
    period: Duration,
    gauge: Gauge,
    chance: Chance,
    /// By the position of a class.
    tallies: Box<[Tally]>,
    clock: OnceLock<Clock>,
    sensor: Mutex<Box<dyn Sensor + Send>>,
    task: Mutex<Option<AbortHandle>>,
    #[cfg(feature = "metrics")]
    published: Mutex<Option<Published>>,
}

impl WorkerUtilization {
    /// A shedder at rest, with one sheddable class. It can be built outside a runtime.
    ///
    /// Its options are to be set before it is cloned or used. They panic else.
    #[must_use]
    pub fn new(sensor: impl Sensor + Send + 'static) -> Self {
        let state = State {
            curve: Curve::DEFAULT,
            period: Duration::from_secs(1),
            gauge: Gauge::new(),
            chance: Chance::new(RandomState::new().hash_one(())),
            tallies: tallies(&Curve::DEFAULT),
            clock: OnceLock::new(),
            sensor: Mutex::new(Box::new(sensor)),
            task: Mutex::default(),
            #[cfg(feature = "metrics")]
            published: Mutex::default(),
        };
        Self {
            state: Arc::new(state),
        }
    }

    /// The utilization below which the amount falls, and that from which on it grows; 0.7 and 0.8 by default.
    ///
    /// # Errors
    ///
    /// Unless 0 < good < bad < 1.
    #[track_caller]
    pub fn try_with_thresholds(self, good: f64, bad: f64) -> Result<Self, OutOfRange> {
        self.with_curve(|curve| curve.with_thresholds(good, bad))
    }

    /// How long a utilization of 1 lasts before shedding begins, from rest; 28 s by default. A single sample counts for no longer than
    /// this.
    ///
    /// # Errors
    ///
    /// If it is zero.
    #[track_caller]
    pub fn try_with_delay(self, delay: Duration) -> Result<Self, OutOfRange> {
        self.with_curve(|curve| curve.with_delay(delay))
    }

    /// How long a utilization of 1 lasts from where shedding begins until all sheddable requests are shed; 120 s by default.
    ///
    /// # Errors
    ///
    /// If it is zero.
    #[track_caller]
    pub fn try_with_ramp(self, ramp: Duration) -> Result<Self, OutOfRange> {
        self.with_curve(|curve| curve.with_ramp(ramp))
    }

    /// How often the sensor is asked; each second by default. tokio rounds it up to whole milliseconds, and less than 1 ms
    /// counts as 1 ms.
    ///
    /// # Errors
    ///
    /// If it is zero.
    #[track_caller]
    pub fn try_with_period(mut self, period: Duration) -> Result<Self, OutOfRange> {
        if period.is_zero() {
            let message = "the period must be at least 1 ns, got 0";
            return Err(OutOfRange::new("period", message));
        }
        // So short a sample would be over before the timer brings the next one.
        self.unused().period = period.max(Duration::from_millis(1));
        Ok(self)
    }

    /// How many sheddable classes there are; 1 by default. [`Class::Sheddable`] 0 is shed first, and k − 1 last.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn with_classes(self, k: u8) -> Self {
        or_panic(self.with_curve(|curve| curve.with_classes(k)))
    }

    /// The seed of the numbers that are drawn, for tests: the same seed sheds the same requests. By default each shedder has another.
    #[must_use]
    #[track_caller]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.unused().chance = Chance::new(seed);
        self
    }

    /// Publishes the statistics of each class and the amount in the `metrics` facade, under this name. Feature `metrics`.
    ///
    /// The task does that with each sample, so that a request costs no more. [`Metrics`](crate::limiter::Metrics) lists the names. The
    /// recorder has to be installed before the shedder is used.
    #[cfg(feature = "metrics")]
    #[must_use]
    #[track_caller]
    pub fn with_metrics(mut self, limit: impl Into<SharedString>) -> Self {
        self.unused().published = Mutex::new(Some(Published::new(limit.into())));
        self
    }

    /// Whether a request of this class is admitted. It is counted: ask once for each request.
    #[must_use]
    pub fn admits(&self, class: Class) -> bool {
        let is_shed = self.sheds(class);
        self.state.tally(class).count(is_shed);
        !is_shed
    }

    /// How much is shed: 1 is all that is sheddable, and nothing is shed up to 0. At rest it is −delay / ramp.
    #[must_use]
    pub fn amount(&self) -> f64 {
        self.start();
        self.state.curve.relative(self.state.amount())
    }

    /// The share of the requests of this class that is shed at present, from 0 to 1.
    #[must_use]
    pub fn share_shed(&self, class: Class) -> f64 {
        self.start();
        self.state.curve.share(self.state.amount(), class)
    }

    /// What the sensor said last; `None` if it has said nothing for three periods.
    #[must_use]
    pub fn utilization(&self) -> Option<f64> {
        self.start();
        let now = self.state.now().as_nanos();
        self.state.gauge.utilization_at(now)
    }

    /// What was admitted and shed so far: the least important class first, and the critical one last.
    #[must_use]
    pub fn stats(&self) -> Vec<ClassStats> {
        let sheddable = (0..self.state.curve.classes()).map(Class::Sheddable);
        let classes = sheddable.chain([Class::Critical]);
        let stats = classes.map(|class| {
            let (admitted, shed) = self.state.tally(class).counts();
            ClassStats {
                class,
                admitted,
                shed,
            }
        });
        stats.collect()
    }

    fn sheds(&self, class: Class) -> bool {
        let State { curve, chance, .. } = &*self.state;
        match self.state.gauge.last_amount() {
            Some(amount) if curve.admits_all(amount, class) => false,
            Some(_) => curve.sheds(self.state.amount(), class, || chance.draw()),
            None => {
                self.start();
                false
            }
        }
    }

    /// Starts the task, if none runs and this is in a runtime.
    fn start(&self) {
        if self.state.gauge.last_amount().is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut task = lock(&self.state.task);
        if self.state.gauge.begin(self.state.curve.rest()) {
            let running = Running {
                state: Arc::downgrade(&self.state),
            };
            *task = Some(runtime.spawn(running.sample()).abort_handle());
        }
    }

    #[track_caller]
    fn with_curve(
        mut self,
        change: impl FnOnce(Curve) -> Result<Curve, OutOfRange>,
    ) -> Result<Self, OutOfRange> {
        let state = self.unused();
        state.curve = change(state.curve)?;
        state.tallies = tallies(&state.curve);
        Ok(self)
    }

    /// The state of a shedder that has no clone and no task.
    #[track_caller]
    fn unused(&mut self) -> &mut State {
        let state = Arc::get_mut(&mut self.state);
        state.expect("the options of a shedder are set before it is cloned or used")
    }
}

/// There is no queue: `None` is a request to be shed. There is nothing to hold.
impl Admit<Class> for WorkerUtilization {
    type Guard = ();
    type Error = Infallible;

    fn poll_admit(&mut self, class: Class, _: &mut Context<'_>) -> Admitted<()> {
        Poll::Ready(Ok(self.admits(class).then_some(())))
    }

    fn give_up(&mut self) {}
}

/// Starts no task.
impl fmt::Debug for WorkerUtilization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { curve, period, .. } = &*self.state;
        f.debug_struct("WorkerUtilization")
            .field("curve", curve)
            .field("period", period)
            .field("amount", &curve.relative(self.state.amount()))
            .finish_non_exhaustive()
    }
}

/// What became of the requests of one class, by [`WorkerUtilization::stats`].
///
/// It counts what the shedder decided. Behind a [`Switch`](crate::limiter::Switch) in shadow mode `shed` is what would have been shed;
/// in [`Mode::Off`](crate::limiter::Mode::Off) the shedder is not asked, and nothing is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClassStats {
    /// The class.
    pub class: Class,
    /// How many were admitted.
    pub admitted: u64,
    /// How many were shed.
    pub shed: u64,
}

impl State {
    /// The amount at present: that of rest if the last sample is too old.
    fn amount(&self) -> i64 {
        let amount = self.gauge.amount_at(self.now().as_nanos());
        amount.unwrap_or(self.curve.rest())
    }

    /// Asks the sensor. `last` is when it last had a reading.
    fn sample(&self, last: &mut Option<Tick>) {
        let reading = catch_unwind(AssertUnwindSafe(|| lock(&self.sensor).utilization()));
        let utilization = reading.unwrap_or(f64::NAN);
        let now = self.now();
        if !utilization.is_nan() {
            let holds = self.period.saturating_mul(SAMPLE_HOLDS);
            let before = last.filter(|before| now < before.after(holds));
            let elapsed = before.map_or(Duration::ZERO, |before| now.since(before));
            let amount = self.curve.step(self.amount(), utilization, elapsed);
            let until = now.after(holds).as_nanos();
            self.gauge.record(amount, utilization, until);
            *last = Some(now);
        }
        #[cfg(feature = "metrics")]
        self.publish();
    }

    #[cfg(feature = "metrics")]
    fn publish(&self) {
        if let Some(published) = &mut *lock(&self.published) {
            published.update(self.curve.relative(self.amount()), &self.tallies);
        }
    }

    #[inline]
    fn tally(&self, class: Class) -> &Tally {
        &self.tallies[self.curve.position(class)]
    }

    fn now(&self) -> Tick {
        let started = self.clock.get_or_init(|| {
            let mut clock = Clock::new();
            clock.now();
            clock
        });
        started.clone().now()
    }
}

/// The last clone is gone.
impl Drop for State {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        self.publish();
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// The task, from its start to its end.
struct Running {
    state: Weak<State>,
}

impl Running {
    async fn sample(self) {
        // It panics where there are no timers. Then there are no samples as long as this runtime lives.
        let Ok(timer) = catch_unwind(Timer::of_this_runtime) else {
            return pending().await;
        };
        let mut timer = timer.with_resolution(Resolution::Millis);
        let mut last = None;
        while let Some(state) = self.state.upgrade() {
            state.sample(&mut last);
            timer.arm(state.period);
            drop(state);
            poll_fn(|cx| timer.poll_elapsed(cx)).await;
        }
    }
}

/// The next use starts another task, if there is one.
impl Drop for Running {
    fn drop(&mut self) {
        if let Some(state) = self.state.upgrade() {
            state.gauge.end();
        }
    }
}

fn tallies(curve: &Curve) -> Box<[Tally]> {
    let classes = 0..=curve.classes();
    classes.map(|_| Tally::default()).collect()
}
