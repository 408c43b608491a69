//! The real binary on loopback, with real clients.

mod admin;
mod client;
mod config;
mod deploy;
mod endurance;
mod hardening;
mod hello;
mod life;
mod scenario;
mod forwarding;
mod support;
mod upstream;
