//! A reverse proxy in front of one replica of a service. Its clients share a capacity fairly.

mod admin;
mod config;
mod proxy;
mod server;
mod state;

fn main() {}
