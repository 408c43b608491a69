//! A reverse proxy in front of one replica of a service. Its clients share a capacity fairly.
//!
//! Each core has one thread with a runtime, a listener, connections and a pool of connections to the upstream. Only the
//! limit is shared, behind its short lock.
//!
//! * **hyper parses requests.** A request that a second server could read in another way (two hosts, a target for another host) is
//!   refused before the upstream hears of it.
//! * **The service's connection has no task of its own.** The body of a response reads its socket when the client has room.
//! * **One clock for all timeouts of a thread**, since a timer for each request costs more than the rest of the server. A
//!   timeout is never early, and at most two ticks late.
//! * **A connection goes back to the pool at the end of the body.** Before that, a slow reader would hold up another
//!   request. A request that is idempotent, has no body and found a kept connection ended is sent once more, and counted
//!   once.
//! * **What changes anything is never on the public port**, and needs a caller on the same machine or a token.

mod admin;
mod config;
mod demo;
mod proxy;
mod server;
mod state;

use std::io;
use std::process::ExitCode;

use config::{Config, Task};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
