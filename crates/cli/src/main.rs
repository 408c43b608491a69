//! `paceline`: lines from standard input to standard output, at a rate.

mod args;
mod job;
mod lines;
mod pace;
mod plan;
mod policy;
#[cfg(feature = "redis")]
mod redis;
mod signals;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Command::Plan(plan)) => plan::print(plan),
        None => pace::run(&cli.pace),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Why the command does not begin.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// What is wrong with an argument.
    #[error("{0}")]
    Argument(String),
    /// What the system refuses.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl Failure {
    const fn status(&self) -> u8 {
        match self {
            Self::Argument(_) => 2,
            Self::System(_) => 1,
        }
    }
}
