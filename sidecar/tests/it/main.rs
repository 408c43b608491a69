//! The real binary on loopback, with real clients.

mod deploy;
mod support;
