//! Limits in Redis, against real servers that the tests start and stop.
#![cfg(unix)]

mod attacks;
mod clocks;
mod cluster;
mod config;
mod events;
mod failing;
#[path = "../it/shed/fleet_cases.rs"]
mod fleet_cases;
mod harness;
mod limits;
mod permits;
#[path = "../it/limiter/recorded.rs"]
mod recorded;
mod sentinel;
mod servers;
mod tls;
mod twins;
mod usage;
#[cfg(feature = "tracing")]
#[path = "../it/written.rs"]
mod written;
