//! The real binary on loopback, with real clients.

mod admin;
mod client;
mod config;
mod deploy;
mod endurance;
mod forwarding;
mod hardening;
mod hello;
mod life;
mod page;
mod scenario;
mod support;
mod upstream;
