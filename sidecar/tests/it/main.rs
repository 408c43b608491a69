//! The real binary on loopback, with real clients.

#![expect(
    clippy::disallowed_types,
    reason = "a test waits for a process in real time"
)]

mod admin;
mod client;
mod config;
mod deploy;
mod endurance;
mod forwarding;
mod hardening;
mod hello;
mod life;
mod page;
mod reload;
mod scenario;
mod support;
mod upstream;
