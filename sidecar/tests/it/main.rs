//! The real binary on loopback, with real clients.

mod client;
mod forwarding;
mod support;
mod upstream;
