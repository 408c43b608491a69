//! Dispatches text messages through three providers with strict quotas, each of which counts what reaches it, and through one that
//! slows down without a word.
//!
//! `cargo run --release -p sms_dispatch -- --help`

mod args;
mod client;
mod codes;
mod dispatch;
mod margin;
mod message;
mod naive;
mod paced;
mod progress;
mod provider;
mod report;
mod rows;
mod run;
mod segments;
#[path = "../../strict/mod.rs"]
mod strict;

use core::{fmt, hint, num::NonZeroUsize};
use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
};

use clap::Parser;
use paceline::time::Clock;
use tokio::runtime;

use crate::{
    args::{Args, Naive},
    dispatch::Outcome,
    naive::{Bucket, Throttle},
    paced::Paced,
    provider::{Name, Provider},
    report::{CodesLine, Line, Report},
    rows::Rows,
    run::{Dispatched, Run},
};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(status) => status.into(),
        Err(reason) => {
            say(format_args!("sms_dispatch: {reason}"));
            2.into()
        }
    }
}

fn run(args: &Args) -> Result<u8, String> {
    let mut clock = Clock::new();
    let bytes = rows::load(args.input.as_deref())?;
    let limit = args.limit.map_or(usize::MAX, NonZeroUsize::get);
    let rows = Rows::parse(&bytes, limit, &mut clock)?;
    for bad in &rows.bad {
        say(format_args!("line {}: {}", bad.line, bad.reason));
    }
    let faults = args.faults(rows.of(Name::Bulk).len());
    let providers = provider::start(faults);
    let providers = providers.map_err(|error| format!("no provider: {error}"))?;
    keep_busy(args.load);

    let start = clock.now();
    let run = Run {
        args,
        rows: &rows,
        providers: &providers,
        clock: clock.clone(),
    };
    let Dispatched {
        outcomes,
        codes,
        signal,
    } = dispatch(&run, args.naive)?;
    let took = clock.now().since(start);

    // First of all, since a failure later on must not lose them.
    save_unsent(args, &outcomes);
    let figures = providers.iter().map(Provider::figures);
    let lines = outcomes.iter().zip(figures);
    let lines = lines.map(|(outcome, figures)| Line::new(outcome, figures, start));
    let codes = codes.map(|(outcome, tally)| CodesLine::new(&outcome, tally));
    let report = Report::new(args.mode(), took, &rows, lines.collect(), codes);
    let shown = if args.json {
        report.to_json()
    } else {
        report.to_table()
    };
    writeln!(io::stdout(), "{shown}").map_err(|error| format!("standard output: {error}"))?;
    Ok(if let Some(status) = signal {
        status
    } else if report.has_unsent() {
        3
    } else {
        u8::from(report.bad_rows > 0 && !args.skip_bad)
    })
}

fn dispatch(run: &Run<'_>, naive: Option<Naive>) -> Result<Dispatched, String> {
    // One thread is enough for three connections.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        match naive {
            None => run.all(Paced::new).await,
            Some(Naive::Bucket) => run.all(Bucket::new).await,
            Some(Naive::Throttle) => run.all(Throttle::new).await,
        }
    })
}

fn keep_busy(threads: usize) {
    for _ in 0..threads {
        thread::spawn(|| {
            loop {
                hint::spin_loop();
            }
        });
    }
}

/// Writes the unsent messages to their file. If that fails, it writes them to standard error.
fn save_unsent(args: &Args, outcomes: &[Outcome]) {
    for outcome in outcomes {
        if let Some(reason) = &outcome.down {
            say(format_args!("{} was given up: {reason}", outcome.name));
        }
    }
    let unsent: Vec<_> = outcomes
        .iter()
        .flat_map(|outcome| outcome.unsent.clone())
        .collect();
    if unsent.is_empty() {
        return;
    }
    match rows::save(&args.unsent, &unsent) {
        Ok(file) => say(format_args!(
            "{} messages were not sent, they are in {}",
            unsent.len(),
            file.display()
        )),
        Err(error) => {
            say(format_args!(
                "{}: {error}; the messages that were not sent follow",
                args.unsent.display()
            ));
            let _ = rows::write(io::stderr(), &unsent);
        }
    }
}

/// Writes a line to standard error. If that is closed, the run goes on: it has messages to send or to save.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
