//! The store: connections, the scripts and what they keep, and the limits that users make.
//!
//! **One script, one round trip.** A call carries the questions of many keys, each about one limit or several. Arguments,
//! replies and states are packed, and `fast.lua` decides the common case before anything else is defined; `decide.lua` in
//! the same text does the rest. Each policy has a twin in Lua, tested on the same random traces. Time is the server's, in
//! microseconds, and never goes back for one state. A key lives a second longer than its state takes to settle. Lua's
//! numbers are doubles, so parameters with products above 2^52 are refused when a limit is made. A bucket counts in shares
//! of a microsecond *from now on*, so any rational rate is exact. A log has an entry for each instant, named by running
//! sums, so a cost of any size is one entry.
//!
//! **A clock that steps back** leaves states that are ahead of it. If a state is ahead by less than it can count, the time
//! of its limit stands still. If by more, the state counts as lost. A refusal changes nothing, unless a state was lost, did
//! not fill during an outage, or had another rate: then that is written down, or a wait would not be exact.
//!
//! **Two kinds of parameters** may take turns under one key while a fleet is given new ones. A bucket is converted each
//! time, as by `retune`; an interval counts from the last request, and a window from what it finds. A counter keeps times
//! and not bucket numbers, so taking turns moves nothing. A key lives for the longest of their windows.

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
mod reserved;
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
pub use reserved::RedisReserved;
pub use usage::FleetUsage;
