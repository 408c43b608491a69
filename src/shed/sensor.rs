/// How busy something is, for [`WorkerUtilization`](super::WorkerUtilization): 0 is idle, 1 is fully used.
///
/// A closure `FnMut() -> f64` is a sensor.
pub trait Sensor {
    /// The utilization since the last reading, or at present. What is below 0 counts as 0, and what is above 1 as 1. Not a number:
    /// there is no reading.
    ///
    /// It is called in a task, once a period, and should not block.
    fn utilization(&mut self) -> f64;
}

impl<F: FnMut() -> f64> Sensor for F {
    fn utilization(&mut self) -> f64 {
        self()
    }
}
