use core::future::poll_fn;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::time::{Clock, Resolution, Tick, Timer};

use super::{Sensor, lock};

/// How late tokio polls a task that is ready: the delay of its run queue.
///
/// A probe, which is a small task, wants to run every 10 ms. The reading is the **mean** delay since the last reading: 0 up to a mean of
/// 1 ms, 1 from 100 ms on, and linear between. An idle runtime is up to about 1 ms late, since that is the grid of tokio's timers.
///
/// The mean is the wait of a request that arrives at any time. One long poll makes few requests wait, and to shed others does not
/// make it shorter. The largest delay would be as high as in a runtime that is always that late. A probe that ran late also stands for
/// those that would have been due meanwhile, each with its own wait. So if the runtime was blocked for half of a second, the mean of that
/// second is 125 ms, and not 10 ms, as of one late probe among 49 others.
///
/// A probe that has not run yet counts with its delay so far, so a runtime that is blocked is seen by a reading from another thread. A
/// delay counts in each reading before its end, and whole in the first one after.
///
/// **Runtime**: that of the first reading, in which the probe is started; that reading is NaN. A reading outside of a runtime is NaN until
/// the probe is started. If the runtime ends, the next reading in another one starts another probe.
///
/// **Several threads**: the probe is one task that any thread may run. The reading rises when no thread is free. A thread that is blocked
/// while another is idle is seen if it holds up the timers of the whole runtime, as it often does, and else goes unnoticed. In a
/// runtime of one thread every blocking call is seen.
///
/// **Ends**: the probe ends with the sensor.
///
/// ```
/// use paceline::shed::{QueueDelay, Sensor};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut sensor = QueueDelay::new().with_range(Duration::ZERO, Duration::from_millis(100));
/// assert!(sensor.utilization().is_nan());
///
/// tokio::time::sleep(Duration::from_millis(1_005)).await;
/// assert_eq!(sensor.utilization(), 0.0);
///
/// // No task runs for 105 ms. Probes are due after 5, 15 … 105 ms, and wait for 100, 90 … 0 ms.
/// tokio::time::advance(Duration::from_millis(105)).await;
/// assert_eq!(sensor.utilization(), 0.5);
/// # }
/// ```
///
/// # Panics
///
/// [`utilization`](Sensor::utilization) does, in a runtime built without `enable_time`.
#[derive(Debug)]
pub struct QueueDelay {
    lo: Duration,
    hi: Duration,
    delays: Arc<Mutex<Delays>>,
    probe: Option<JoinHandle<()>>,
}

/// How long a probe waits before it wants to run again.
const EVERY: Duration = Duration::from_millis(10);

impl QueueDelay {
    /// A sensor whose probe is not started yet. It can be built outside a runtime.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lo: Duration::from_millis(1),
            hi: Duration::from_millis(100),
            delays: Arc::default(),
            probe: None,
        }
    }

    /// A mean delay up to `lo` is read as 0, and one from `hi` on as 1. By default 1 ms and 100 ms.
    ///
    /// # Panics
    ///
    /// If `lo` is not below `hi`.
    #[must_use]
    #[track_caller]
    pub fn with_range(mut self, lo: Duration, hi: Duration) -> Self {
        assert!(
            lo < hi,
            "a range of delays needs a `lo` below its `hi`, got {lo:?} and {hi:?}"
        );
        (self.lo, self.hi) = (lo, hi);
        self
    }

    fn start(&mut self, runtime: &Handle) {
        let mut delays = Delays::default();
        delays.schedule();
        self.delays = Arc::new(Mutex::new(delays));
        let timer = Timer::of_this_runtime().with_resolution(Resolution::Millis);
        self.probe = Some(runtime.spawn(run(Arc::clone(&self.delays), timer)));
    }
}

impl Default for QueueDelay {
    fn default() -> Self {
        Self::new()
    }
}

impl Sensor for QueueDelay {
    fn utilization(&mut self) -> f64 {
        // A runtime that ends ends its tasks.
        let is_probed = self
            .probe
            .as_ref()
            .is_some_and(|probe| !probe.is_finished());
        if !is_probed {
            if let Ok(runtime) = Handle::try_current() {
                self.start(&runtime);
            }
            return f64::NAN;
        }
        let mean = lock(&self.delays).take_mean();
        let (lo, hi) = (nanos(self.lo), nanos(self.hi));
        ((mean - lo) / (hi - lo)).clamp(0.0, 1.0)
    }
}

impl Drop for QueueDelay {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            probe.abort();
        }
    }
}

/// The probe.
async fn run(delays: Arc<Mutex<Delays>>, mut timer: Timer) {
    loop {
        let wait = lock(&delays).wait();
        timer.arm(wait);
        poll_fn(|cx| timer.poll_elapsed(cx)).await;
        lock(&delays).has_run();
    }
}

/// The delays since the last reading.
#[derive(Debug, Default)]
struct Delays {
    clock: Clock,
    /// When the probe wants to run next.
    due: Tick,
    /// In nanoseconds.
    sum: f64,
    count: f64,
}

impl Delays {
    fn schedule(&mut self) {
        self.due = self.clock.now().after(EVERY);
    }

    fn wait(&mut self) -> Duration {
        self.due.since(self.clock.now())
    }

    fn has_run(&mut self) {
        let (sum, count) = self.so_far();
        self.sum += sum;
        self.count += count;
        self.schedule();
    }

    /// In nanoseconds. NaN if no probe was due.
    fn take_mean(&mut self) -> f64 {
        let (sum, count) = self.so_far();
        let mean = (self.sum + sum) / (self.count + count);
        (self.sum, self.count) = (0.0, 0.0);
        mean
    }

    /// The delays of the probe that is due and of the missed ones: their sum and their number.
    fn so_far(&mut self) -> (f64, f64) {
        let now = self.clock.now();
        if now < self.due {
            return (0.0, 0.0);
        }
        let late = nanos(now.since(self.due));
        let more = (late / nanos(EVERY)).floor();
        let count = more + 1.0;
        (count * (late - nanos(EVERY) * more / 2.0), count)
    }
}

fn nanos(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}
