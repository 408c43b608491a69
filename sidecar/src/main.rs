//! A reverse proxy in front of one replica of a service. Its clients share a capacity fairly.

mod admin;
mod config;
mod proxy;
mod server;
mod state;

use std::process::ExitCode;

use config::Task;

fn main() -> ExitCode {
    match config::task() {
        Task::Done(code) => code,
        Task::Demo | Task::Serve { .. } => ExitCode::FAILURE,
    }
}
