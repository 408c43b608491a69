//! So many at once, counted in Redis: leases that are renewed while they live, and what is built on them.

mod errand;
mod holds;
mod lease;
mod permits;
mod pool;
mod roll;
mod service;
mod usage;

pub use lease::Lease;
pub use permits::RedisPermits;
pub use usage::{FleetUsage, Importance, InUse};
