//! The real binary on loopback, with real clients.

mod client;
mod deploy;
mod support;
