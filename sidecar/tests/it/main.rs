//! The real binary on loopback, with real clients.

mod admin;
mod client;
mod config;
mod deploy;
mod page;
mod support;
