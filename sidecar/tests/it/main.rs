//! The real binary on loopback, with real clients.

mod client;
mod endurance;
mod scenario;
mod support;
mod upstream;
