//! A reverse proxy in front of one replica of a service. Its clients share a capacity fairly.

mod admin;
mod config;
mod proxy;
mod server;
mod state;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::config::{Config, Upstream};

/// Stands in for the command line of `config`.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    #[arg(long, default_value = "127.0.0.1:9102")]
    admin: SocketAddr,
    #[arg(long)]
    upstream: String,
    #[arg(long, default_value_t = 40)]
    capacity: u32,
    #[arg(long, default_value = "10s", value_parser = duration)]
    cycle: Duration,
    #[arg(long, default_value_t = 1)]
    cores: usize,
}

fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(format!("unit {unit:?}, and not ms or s")),
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let (scheme, authority) = flags
        .upstream
        .split_once("://")
        .expect("an upstream with a scheme");
    let upstream = Upstream {
        authority: authority.parse().expect("an upstream with host and port"),
        is_h2c: scheme == "h2c",
    };
    let mut config = Config::new(flags.listen, upstream, flags.capacity, flags.cycle);
    config.admin = flags.admin;
    config.cores = flags.cores;

    log(&config);
    server::run(config)
}

/// Logs to standard error. Standard output has only the line that says that the sidecar is ready.
fn log(config: &Config) {
    let log = tracing_subscriber::fmt()
        .with_max_level(config.log)
        .with_writer(io::stderr);
    if config.log_json {
        log.json().init();
    } else {
        log.with_ansi(false).init();
    }
}
