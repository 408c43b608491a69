//! The real binary on loopback, with real clients.

mod client;
mod config;
mod deploy;
mod reload;
mod support;
mod upstream;
