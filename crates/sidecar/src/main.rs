//! A reverse proxy in front of one replica of a service. Its clients share a capacity fairly.

mod admin;
mod config;
mod demo;
mod proxy;
mod server;
mod state;

use std::io;
use std::process::ExitCode;

use config::{Config, Task};

fn main() -> ExitCode {
    match config::task() {
        Task::Done(code) => code,
        Task::Demo(demo) => demo::run(&demo),
        Task::Serve {
            config,
            source,
            warnings,
        } => {
            log(&config);
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            server::run(*config, source)
        }
    }
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
