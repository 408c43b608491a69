//! The real binary on loopback, with real clients.

mod admin;
mod client;
mod config;
mod deploy;
mod endurance;
mod hardening;
mod hello;
mod life;
mod reload;
mod scenario;
mod support;
