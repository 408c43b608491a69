//! Limits in Redis, against real servers that the tests start and stop.
#![cfg(unix)]

mod attacks;
mod cluster;
mod config;
mod events;
mod failing;
#[path = "../../../../tests/it/shed/fleet_cases.rs"]
mod fleet_cases;
mod harness;
mod layers;
mod limits;
mod names;
mod permits;
#[path = "../../../../tests/it/limiter/recorded.rs"]
mod recorded;
mod sentinel;
mod servers;
mod tls;
mod twins;
mod usage;
mod verbs;
#[path = "../../../../tests/it/written.rs"]
mod written;
