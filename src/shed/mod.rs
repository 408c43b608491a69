//! Load shedders: they refuse some work at once, so that the rest is done well.
//!
//! A limiter says how often work may begin. A shedder says what is given up when there is more work than capacity: the least
//! important first. It refuses at once and has no queue, so a request that is shed costs almost nothing.
//!
//! | | sheds by | state | classes |
//! |---|---|---|---|
//! | [`FleetUsage`] | how many requests are under way, with a reserve for critical work | in this process | critical or not |
//! | `FleetUsage` of `paceline-redis` | the same, in a whole fleet | in Redis | critical or not |
//! | [`WorkerUtilization`] | how busy this worker has been, slowly | in this process | as many as it [has](WorkerUtilization::with_classes) |
//!
//! The first bounds what a dependency behind the fleet has to bear. The last protects a worker whatever its requests cost.
//! [`Permits`](crate::concurrency::Permits) bound the requests under way too, and let the others wait.
//!
//! The repository's `docs/performance`, section *Overload*, has the curves of an hour of overload: with a [`WorkerUtilization`], with a
//! threshold that flaps, and without a shedder.
//!
//! Each is an [`Admit`](crate::concurrency::Admit), so it goes into `paceline_tower::ShedLayer`. A [`WorkerUtilization`] also goes into
//! [`shed_by`](crate::stream::PaceStreamExt::shed_by). A [`FleetUsage`] does not: its permit has to be held until the work is done, so
//! it is asked by hand, [for a stream](crate::stream::ShedBy#shedders-with-a-guard-to-hold) too:
//!
//! ```
//! use paceline::shed::{Class, FleetUsage};
//!
//! let usage = FleetUsage::new(3, 1);
//! let batch: Vec<_> = (0..3).map(|_| usage.admit(Class::Sheddable(0))).collect();
//! assert!(batch[1].is_some() && batch[2].is_none());
//! assert!(usage.admit(Class::Critical).is_some());
//! ```
//! Which one, where in a stack, and with which numbers: the guide `docs/shedding.md` of the repository.
//!
//! # Kill switch, shadow mode and an enforced share
//!
//! A [`Switched`](crate::limiter::Switched) around a shedder is one too. It is off, sheds for a share of the requests, or only counts
//! what it would shed:
//!
//! ```
//! use futures::{StreamExt, stream};
//! use paceline::limiter::{Mode, Share, Switch, Switched};
//! use paceline::prelude::*;
//! use paceline::shed::{Class, WorkerUtilization};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let overloaded = || 1.0;
//! let shedder = WorkerUtilization::new(overloaded);
//! assert!(shedder.amount() < 0.0, "at rest");
//! tokio::time::sleep(Duration::from_secs(149)).await;
//!
//! let switch = Switch::new().with_mode(Mode::Shadow);
//! let shedder = Switched::new(shedder, switch.clone());
//! let passed = async || {
//!     let events = stream::iter(0..100).shed_by(shedder.clone(), |_| Class::Sheddable(0));
//!     events.count().await
//! };
//! assert_eq!(passed().await, 100);
//! assert_eq!(switch.stats().held_back, 100);
//!
//! switch.set(Mode::Active, Share::percent(10));
//! assert_eq!(passed().await, 90);
//! switch.set_share(Share::FULL);
//! assert_eq!(passed().await, 0);
//!
//! // The kill switch.
//! switch.set_mode(Mode::Off);
//! assert_eq!(passed().await, 100);
//! # }
//! ```

mod curve;
mod fleet_usage;
mod gauge;
#[cfg(feature = "metrics")]
mod metrics;
mod sensor;
mod sensor_cgroup;
mod sensor_delay;
mod utilization;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use fleet_usage::{FleetUsage, UsagePermit};
pub use sensor::{BusyPermits, Sensor};
pub use sensor_cgroup::{CgroupCpu, CgroupError, CgroupPressure};
pub use sensor_delay::QueueDelay;
pub use utilization::{ClassStats, WorkerUtilization};

/// How important a request is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a request may be shed, in some order, or not"
)]
pub enum Class {
    /// Never shed.
    Critical,
    /// May be shed. For a [`FleetUsage`] all numbers are equal. For a [`WorkerUtilization`] 0 goes first, as the least important, and a
    /// number beyond the [number of classes](WorkerUtilization::with_classes) is the most important sheddable class.
    Sheddable(u8),
}

/// How many requests are under way, of a [`FleetUsage`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct InUse {
    /// Critical requests.
    pub critical: u32,
    /// All others.
    pub sheddable: u32,
}

impl InUse {
    /// So many requests of each kind.
    #[must_use]
    pub const fn new(critical: u32, sheddable: u32) -> Self {
        Self {
            critical,
            sheddable,
        }
    }
}

/// What is behind the locks of this module is whole whenever foreign code runs, which is that of a sensor only.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
