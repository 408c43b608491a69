//! Many keys with a limit of 1/s each, and a waiter for each of them: what passes, of what is allowed.

use std::env;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_redis::OutagePolicy;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::figures::Notes;
use crate::measure::{Extent, with_commas};

use super::super::pacing::Flavour;
use super::servers::Server;
use super::{connected, run};

const PASSED: &str = "permits in 3.5 s";
const SHARE: &str = "share of the allowed permits";
const OUTAGES: &str = "outages of a server that works";

/// Not a whole number of seconds, so that the last permits have half a second to pass.
const SECONDS: f64 = 3.5;

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    let keys = extent.pick(&[10_u32, 1_000, 10_000][..], &[10, 100][..]);
    let seconds = extent.pick(SECONDS, 0.1);
    let cases: Vec<_> = keys
        .iter()
        .map(|&keys| {
            let name = format!("{} keys", with_commas(&keys.to_string()));
            // A permit at once, and one after each second.
            let allowed = f64::from(keys) * (1.0 + seconds.floor());
            (name, keys, allowed)
        })
        .collect();
    for policy in ["closed", "open"] {
        let contender = format!("paceline, {policy}");
        for (case, keys, allowed) in &cases {
            let passed = in_a_process(*keys, seconds, policy);
            let of = |of: fn(&Passed) -> f64| passed.as_ref().map(of).map_err(Clone::clone);
            let at = (case.as_str(), f64::from(*keys));
            notes.add_at(PASSED, &contender, at, of(|passed| passed.permits));
            let share = of(|passed| passed.permits).map(|permits| permits / allowed);
            notes.add(SHARE, &contender, case, share);
            notes.add(OUTAGES, &contender, case, of(|passed| passed.outages));
        }
    }
    // Last, so that its line is drawn over the others.
    for (case, keys, allowed) in &cases {
        notes.add_at(PASSED, "allowed", (case, f64::from(*keys)), *allowed);
    }
}

struct Passed {
    permits: f64,
    outages: f64,
}

/// With a server of its own, and the client in another process.
fn in_a_process(keys: u32, seconds: f64, policy: &str) -> Result<Passed, String> {
    let output = run(Flavour::OneThread, async {
        let server = Server::start().await;
        let mut client = Command::new(env::current_exe()?);
        client
            .args(["alone-herd", &server.url(), &keys.to_string()])
            .args([&seconds.to_string(), policy])
            .stderr(Stdio::piped());
        client.output()
    })?;
    let output = output.map_err(|error: io::Error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse);
    if let (Some(Ok(permits)), Some(Ok(outages))) = (numbers.next(), numbers.next()) {
        return Ok(Passed { permits, outages });
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "fails: {}",
        said.lines().last().unwrap_or_default()
    ))
}

/// What such a process does. It prints how many permits passed, and how many outages were counted.
pub(crate) fn alone(url: &str, keys: u32, seconds: f64, policy: &str) -> io::Result<()> {
    let outage_policy = match policy {
        "open" => OutagePolicy::open(),
        _ => OutagePolicy::closed(),
    };
    let (permits, outages) = run(Flavour::OneThread, async {
        let redis = connected(url, outage_policy).await;
        let bucket = TokenBucket::new(Rate::per_second(1), 1);
        let limits = redis.keyed("measured", bucket).expect("it fits");
        let permits = Arc::new(AtomicU64::new(0));
        let mut waiters = JoinSet::new();
        for key in 0..keys {
            let limit = limits.at(&key.to_string()).expect("it is a key");
            let permits = Arc::clone(&permits);
            waiters.spawn(async move {
                while limit.acquire(1).await.is_ok() {
                    permits.fetch_add(1, Ordering::Relaxed);
                    // While all pass without Redis, nothing else would run.
                    yield_now().await;
                }
            });
        }
        sleep(Duration::from_secs_f64(seconds)).await;
        (permits.load(Ordering::Relaxed), redis.stats().outages)
    })
    .map_err(io::Error::other)?;
    println!("{permits} {outages}");
    Ok(())
}
