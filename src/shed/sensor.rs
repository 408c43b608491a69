use crate::concurrency::Permits;

/// How busy something is.
///
/// A closure `FnMut() -> f64` is a sensor.
///
/// | sensor | reads |
/// |---|---|
/// | [`BusyPermits`] | permits in use, of all |
/// | [`QueueDelay`](super::QueueDelay) | how late the runtime polls a task that is ready |
/// | [`CgroupCpu`](super::CgroupCpu) | processor time used, of what the container may use |
/// | [`CgroupPressure`](super::CgroupPressure) | the share of the time in which a task of the container waited for a processor |
///
/// Of several sensors the busiest counts. `f64::max` ignores a sensor without a reading:
///
/// ```
/// use paceline::concurrency::Permits;
/// use paceline::shed::{BusyPermits, QueueDelay, Sensor};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let permits = Permits::new(4);
/// let mut busy = BusyPermits::new(permits.clone());
/// let mut delay = QueueDelay::new();
/// let mut both = move || busy.utilization().max(delay.utilization());
///
/// let permit = permits.acquire().await;
/// assert_eq!(both.utilization(), 0.25);
/// # drop(permit);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sensor",
    note = "a closure `FnMut() -> f64` is one"
)]
pub trait Sensor {
    /// How busy it is now, or was since the last call: 0 is idle, 1 is fully used.
    ///
    /// Values above 1 count as 1, and values below 0 as 0. NaN is no reading.
    ///
    /// It is called once in a sampling period, by a task on tokio. So it must not block for long; reading a small file is fine.
    fn utilization(&mut self) -> f64;
}

impl<F: FnMut() -> f64> Sensor for F {
    fn utilization(&mut self) -> f64 {
        self()
    }
}

/// The permits in use, as a share of all.
///
/// It is the number at the instant of the reading, and no mean. A share above 1 is possible after a
/// [`resize`](Permits::resize). Permits that cool down are not in use.
///
/// Permits with a limit of 0 are paused. That says nothing of the load, so there is no reading, and a pause sheds no request.
///
/// ```
/// use paceline::concurrency::Permits;
/// use paceline::shed::{BusyPermits, Sensor};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let permits = Permits::new(4);
/// let mut sensor = BusyPermits::new(permits.clone());
/// assert_eq!(sensor.utilization(), 0.0);
///
/// let held = permits.acquire_many(3).await.unwrap();
/// assert_eq!(sensor.utilization(), 0.75);
///
/// permits.resize(0);
/// assert!(sensor.utilization().is_nan());
/// # drop(held);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BusyPermits {
    permits: Permits,
}

impl BusyPermits {
    /// A sensor of these permits.
    #[must_use]
    pub const fn new(permits: Permits) -> Self {
        Self { permits }
    }
}

impl Sensor for BusyPermits {
    fn utilization(&mut self) -> f64 {
        match self.permits.limit() {
            0 => f64::NAN,
            limit => f64::from(self.permits.in_use()) / f64::from(limit),
        }
    }
}
