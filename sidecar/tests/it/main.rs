//! The real binary on loopback, with real clients.

mod client;
mod hardening;
mod life;
mod support;
