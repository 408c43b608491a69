//! Limits in Redis, against real servers that the tests start and stop.
#![cfg(unix)]

mod harness;
mod limits;
mod servers;
mod twins;
mod unfit;
