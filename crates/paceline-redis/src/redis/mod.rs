//! The store: connections, the scripts and what they keep, and the limits that users make.

mod client;
mod config;
mod connector;
mod fail_fast;
mod keyed;
mod limiter;
mod overrides;
mod permits;
mod policy;
mod reservation;
mod script_params;
mod scripts;
mod store;
mod transport;
mod usage;

pub use crate::remote::{CallError, Lease, OutagePolicy, ServerError, ServerStats as RedisStats};
pub use config::Redis;
#[cfg(feature = "tls")]
pub use connector::Tls;
pub use fail_fast::FailFast;
pub use keyed::RedisKeyed;
pub use limiter::RedisLimiter;
pub use permits::{RedisKeyedPermits, RedisPermits};
pub use policy::RedisPolicy;
pub use reservation::RedisReservation;
pub use usage::FleetUsage;
