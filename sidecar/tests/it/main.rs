//! The real binary on loopback, with real clients.

mod admin;
mod client;
mod config;
mod deploy;
mod forwarding;
mod page;
mod support;
mod upstream;
