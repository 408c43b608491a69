//! Three processes share one limit in Redis. One of them is killed, and then Redis is. What does the provider count?
//!
//! `cargo run --release -p redis_fleet -- --help`

mod args;
mod fleet;
mod plan;
mod policy;
mod provider;
mod report;
mod scenario;
#[expect(
    dead_code,
    unused_imports,
    reason = "the tests of the limits ask more of their servers"
)]
#[path = "../../../crates/paceline-redis/tests/redis/servers/mod.rs"]
mod servers;
#[path = "../../strict/mod.rs"]
mod strict;
mod worker;

use std::{
    io::{self, ErrorKind, Write},
    process::{Command, ExitCode, Stdio},
};

use clap::Parser;
use futures::future::try_join_all;
use paceline::time::Clock;
use tokio::{runtime, select, signal};

use crate::{
    args::{Args, Role},
    report::Report,
    scenario::Scenario,
};

/// The exit status that shells use for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(status) => status.into(),
        Err(reason) => {
            eprintln!("redis_fleet: {reason}");
            2.into()
        }
    }
}

fn run(args: &Args) -> Result<u8, String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    if let Some(Role::Worker(task)) = &args.role {
        return runtime.block_on(worker::run(task)).map(|()| 0);
    }
    let policies = args.policies()?;
    let plan = args.plan()?;
    check_for_a_server()?;
    let mut clock = Clock::new();
    let start = clock.now();

    fastrand::seed(plan.seed);
    let scenarios = policies
        .iter()
        .map(|policy| Scenario::new(*policy, plan.clone()));
    let all = try_join_all(scenarios.map(Scenario::run));
    let outcomes = runtime.block_on(async {
        select! {
            outcomes = all => outcomes.map(Some),
            asked = signal::ctrl_c() => asked.map(|()| None).map_err(|error| format!("Ctrl-C: {error}")),
        }
    })?;
    let Some(outcomes) = outcomes else {
        // Dropping the scenarios has ended all processes they started.
        return Ok(INTERRUPTED);
    };

    let took = clock.now().since(start);
    let report = Report::new(&plan, took, &outcomes);
    let shown = if args.json {
        report.to_json()
    } else {
        report.to_table()
    };
    writeln!(io::stdout(), "{shown}").map_err(|error| format!("standard output: {error}"))?;
    Ok(u8::from(!report.kept))
}

fn check_for_a_server() -> Result<(), String> {
    let program = servers::process::program();
    let name = program.display();
    let asked = Command::new(&program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("\"{name}\" --version: {status}")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!(
            "there is no program \"{name}\" here. Get it with `apt-get install redis-server` or `brew install redis`, or see \
             https://redis.io/docs/latest/operate/oss_and_stack/install/. Another one, such as valkey-server, may be named in \
             the variable REDIS_SERVER."
        )),
        Err(error) => Err(format!("cannot start \"{name}\": {error}")),
    }
}
