//! `paceline`: lines from standard input to standard output, at a rate.

mod args;
mod bandwidth;
mod items;
mod job;
mod pace;
mod parts;
mod plan;
mod policy;
#[cfg(feature = "redis")]
mod redis;
mod rest;
mod signals;
mod stdio;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::System(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::from(stdio::BROKEN_PIPE)
        }
        Err(error) => {
            stdio::say(format_args!("error: {error}"));
            ExitCode::from(error.status())
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    stdio::check()?;
    match &cli.command {
        None => pace::run(&cli.pace)?,
        Some(Command::Plan { limit, bytes }) => stdio::print(plan::of(limit, *bytes)?.as_bytes())?,
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "paceline", &mut script);
            stdio::print(&script)?;
        }
        Some(Command::Man) => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            stdio::print(&page)?;
        }
    }
    Ok(())
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
