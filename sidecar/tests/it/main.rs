//! The real binary on loopback, with real clients.

mod client;
mod config;
mod deploy;
mod endurance;
mod hello;
mod scenario;
mod support;
