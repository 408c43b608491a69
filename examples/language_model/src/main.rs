//! Keeps the requests and tokens a minute of a language model, against a provider that counts both.
//!
//! `cargo run --release -p language_model`

mod books;
mod client;
mod naive;
mod paced;
mod prompts;
mod provider;
mod report;
mod run;
#[path = "../../strict/site.rs"]
mod site;

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use clap::{Parser, value_parser};
use tokio::try_join;

use crate::{
    paced::Plan,
    prompts::prompts,
    report::Report,
    run::{naive, paced},
};

/// Another process exhausts the budget of the account just before these requests.
const OTHERS_AT: &[u32] = &[20, 60];

/// Calls a language model whose provider limits requests and tokens, with a limit and without.
///
/// The providers are HTTP servers on loopback that this program starts itself, one for each run. Each allows 60 requests and
/// 16,000 tokens in any 2 s, and counts with code of its own. All runs are at the same time:
///
///   upper bound      reserves the most that a call can cost
///   from the answer  the same, and its cost counts from the answer on
///   typical          reserves what a call costs on average, and keeps a margin
///   shared account   another process exhausts the same budget twice, so that calls are refused
///   no limit         sends at once, and tries three times
#[derive(Debug, Parser)]
#[command(name = "language_model", verbatim_doc_comment)]
struct Args {
    /// The number of calls of each run; half as many on the shared account.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u32).range(..=10_000))]
    calls: u32,

    /// The number of tasks of each run with a limit.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=32))]
    tasks: u32,

    /// Other prompts for another seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "language_model: {reason}");
            ExitCode::from(2)
        }
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let all: Arc<[_]> = prompts(args.calls, args.seed).into();
    let half: Arc<[_]> = prompts(args.calls / 2, args.seed).into();
    let tasks = args.tasks;
    let (upper_bound, from_answer, typical, shared, unlimited) = try_join!(
        paced("upper bound", all.clone(), tasks, Plan::UpperBound, &[]),
        paced("from the answer", all.clone(), tasks, Plan::FromAnswer, &[]),
        paced("typical", all.clone(), tasks, Plan::Typical, &[]),
        paced("shared account", half, tasks, Plan::UpperBound, OTHERS_AT),
        naive("no limit", all),
    )?;
    let report = Report {
        runs: vec![upper_bound, from_answer, typical, shared, unlimited],
    };
    let shown = if args.json {
        serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?
    } else {
        report.to_string()
    };
    writeln!(io::stdout(), "{shown}").map_err(|error| format!("standard output: {error}"))
}
