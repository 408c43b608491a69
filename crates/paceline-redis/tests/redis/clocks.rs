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

/// The variable that names the server for the child process.
const URL: &str = "PACELINE_TEST_URL";

const CALLS: usize = 2_500;

async fn ask(url: &str) -> usize {
    let redis = Redis::open(url, OutagePolicy::closed()).unwrap();
    let redis = redis.with_deadline(PATIENT).unwrap();
    // A burst of 500, and no refill while the test runs.
    let limit = redis
        .limit("a", TokenBucket::new(Rate::per_day(1), 500))
        .unwrap();
    let mut passed = 0;
    for _ in 0..CALLS / 50 {
        let answers = join_all((0..50).map(|_| limit.try_acquire(1))).await;
        passed += answers
            .into_iter()
            .filter(|answer| *answer == Ok(Decision::Pass))
            .count();
        // A refund drops the cached denial, so that every request reaches the server.
        limit.refund(0).await.unwrap();
    }
    assert_eq!(redis.stats().timeouts, 0);
    passed
}

/// Not a test: the code of the child process.
#[tokio::test]
#[ignore = "is run by the test below, in a process with a clock of its own"]
async fn asks_in_another_process() {
    let url = env::var(URL).expect("it is run by the test below");
    println!("passed: {}", ask(&url).await);
}

#[tokio::test]
async fn two_processes_with_different_clocks_pass_a_burst_once() {
    let server = Server::start().await;
    let other = |offset: &str| {
        let mut faketime = Command::new("faketime");
        faketime
            .args(["-f", offset])
            .arg(env::current_exe().unwrap())
            .args([
                "--exact",
                "clocks::asks_in_another_process",
                "--ignored",
                "--nocapture",
            ])
            .env(URL, server.url())
            // Its timers have to run in real time.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .stderr(Stdio::inherit());
        async move {
            let output = faketime
                .output()
                .await
                .expect("faketime is there: scripts/test installs it");
            let stdout = String::from_utf8(output.stdout).unwrap();
            let passed = stdout.lines().find_map(|line| line.split_once("passed: "));
            passed
                .unwrap_or_else(|| panic!("{stdout}"))
                .1
                .parse::<usize>()
                .unwrap()
        }
    };
    let began = server.time_us().await;
    let (ahead, behind) = tokio::join!(other("+1s"), other("-1s"));
    let took = server.time_us().await - began;
    // By the clocks of the processes, each would find the bucket two seconds fuller than the other left it.
    let passed = u64::try_from(ahead + behind).unwrap();
    let most = 500 + took * 100 / 1_000_000;
    assert!(
        (500..=most).contains(&passed),
        "{ahead} and {behind} of {}, at most {most}",
        2 * CALLS
    );
}
