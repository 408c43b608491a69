//! Processes with different clocks: only the server's clock counts.

use std::env;
use std::process::Stdio;

use futures::future::join_all;
use paceline::policy::{Decision, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};
use tokio::process::Command;

use crate::limits::PATIENT;
use crate::servers::Server;

/// The URL of a server, for a copy of this test in a process with a clock of its own.
const URL: &str = "PACELINE_TEST_URL";

const CALLS: usize = 2_500;

/// How many of its calls pass.
async fn ask(url: &str) -> usize {
    let redis = Redis::open(url, OutagePolicy::closed()).unwrap();
    let redis = redis.with_deadline(PATIENT).unwrap();
    // A burst of 500, and no refill while the test runs.
    let bucket = TokenBucket::new(Rate::per_day(1), 500);
    let limit = redis.limit("a", bucket).unwrap();
    let mut passed = 0;
    for _ in 0..CALLS / 50 {
        let answers = join_all((0..50).map(|_| limit.try_acquire(1))).await;
        let answers = answers.into_iter();
        passed += answers.filter(|it| *it == Ok(Decision::Pass)).count();
        // A refund drops the cached denial, so that every request reaches the server.
        limit.refund(0).await.unwrap();
    }
    assert_eq!(redis.stats().timeouts, 0);
    passed
}

#[tokio::test]
async fn two_processes_with_different_clocks_pass_a_burst_once() {
    if let Ok(url) = env::var(URL) {
        println!("passed: {}", ask(&url).await);
        return;
    }
    let server = Server::start().await;
    let other = async |offset: &str| {
        let this = "clocks::two_processes_with_different_clocks_pass_a_burst_once";
        let mut faketime = Command::new("faketime");
        faketime
            .args(["-f", offset])
            .arg(env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(URL, server.url())
            // Its timers have to run in real time.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .stderr(Stdio::inherit());
        let output = faketime.output().await;
        let stdout = output.expect("scripts/test installs faketime").stdout;
        let stdout = String::from_utf8(stdout).unwrap();
        let passed = stdout.lines().find_map(|line| line.split_once("passed: "));
        passed.expect("it says so").1.parse::<u64>().unwrap()
    };
    let began = server.time_us().await;
    let (ahead, behind) = tokio::join!(other("+1s"), other("-1s"));
    let took = server.time_us().await - began;
    // By the clocks of the processes, each would find the bucket two seconds fuller than the other left it.
    let most = 500 + took * 100 / 1_000_000;
    assert!(
        (500..=most).contains(&(ahead + behind)),
        "{ahead} and {behind} of {}, at most {most}",
        2 * CALLS
    );
}
