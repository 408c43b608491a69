//! The real binary on loopback, with real clients.

mod client;
mod failing;
mod forwarding;
mod raw;
mod support;
mod upstream;
