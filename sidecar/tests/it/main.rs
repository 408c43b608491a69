//! The real binary on loopback, with real clients.

mod admin;
mod client;
mod config;
mod deploy;
mod reload;
mod endurance;
mod hardening;
mod hello;
mod life;
mod scenario;
mod support;
mod upstream;
