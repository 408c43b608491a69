//! Limits whose state is in Redis or Valkey: one for a whole fleet (feature `redis`, and `redis-cluster` for a cluster).

mod breaker;
mod client;
mod denial;
mod desk;
mod driver;
mod error;
mod keeper;
mod key;
mod keyed;
mod limit;
mod link;
mod plan;
mod remote;
mod reply;
mod script;
mod sight;
mod spare;
mod stats;
mod twin;
mod waiting;
mod when_down;

pub use client::Redis;
pub use error::{AcquireError, CallError, ServerError, Unfit};
pub use keyed::Keyed;
pub use remote::Remote;
pub use stats::Stats;
pub use twin::InRedis;
pub use when_down::WhenDown;
