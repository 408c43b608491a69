//! The real binary on loopback, with real clients.

#![expect(
    clippy::disallowed_types,
    reason = "a test waits for a process in real time"
)]

mod admin;
mod capacity;
mod client;
mod config;
mod demo;
mod deploy;
mod endurance;
mod failing;
mod forwarding;
mod frames;
mod framing;
mod gate;
mod hardening;
mod life;
mod limits;
mod outcomes;
mod page;
mod places;
mod raw;
mod refused;
mod reload;
mod slow;
mod smuggling;
mod support;
mod upgrade;
mod upstream;
