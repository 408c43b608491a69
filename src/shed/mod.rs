//! Load shedding.

mod sensor;
mod sensor_cgroup;
mod sensor_delay;

pub use sensor::{BusyPermits, Sensor};
pub use sensor_cgroup::{CgroupCpu, CgroupError, CgroupPressure};
pub use sensor_delay::QueueDelay;
