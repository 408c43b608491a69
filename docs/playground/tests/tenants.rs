//! The order in which two tenants pass on the page is that of the library, which does not run on the page.

#![expect(clippy::disallowed_methods, reason = "sleeps on the paused clock")]

use std::num::NonZeroU32;
use std::time::Duration;

use paceline::limiter::FairQueue;
use paceline::policy::AnyPolicy;
use playground::answer;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::sleep;

/// Requests of a tenant, all at once.
struct Burst {
    ms: u64,
    tenant: usize,
    requests: u64,
}

/// What the page says.
fn shown(policy: &str, bursts: &[Burst], weights: [u32; 2]) -> Vec<u64> {
    let times = [0, 1].map(|tenant| {
        let bursts = bursts.iter().filter(|burst| burst.tenant == tenant);
        let times = bursts.flat_map(|burst| (0..burst.requests).map(|_| burst.ms * 1_000));
        times.map(|us| us.to_string()).collect::<Vec<_>>().join(",")
    });
    let [first, second] = weights;
    let question = format!("{policy}\n1000\n{}\n{first}:{second}", times.join("\n"));
    let answer: Value = serde_json::from_str(&answer(&question)).unwrap();
    serde_json::from_value(answer["tenants"]["by_turns"].clone()).unwrap()
}

/// What the library does.
async fn passed(policy: &str, bursts: &[Burst], weights: [u32; 2]) -> Vec<u64> {
    let policy: AnyPolicy = policy.parse().unwrap();
    let queue = FairQueue::new(policy)
        .with_weights(move |tenant: &usize| NonZeroU32::new(weights[*tenant]).unwrap());
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut now = 0;
    for burst in bursts {
        sleep(Duration::from_millis(burst.ms - now)).await;
        now = burst.ms;
        for _ in 0..burst.requests {
            let (pass, sender) = (queue.acquire_one(burst.tenant), sender.clone());
            let tenant = burst.tenant as u64;
            tokio::spawn(async move {
                pass.await;
                sender.send(tenant).unwrap();
            });
            yield_now().await;
        }
    }
    drop(sender);
    let mut order = Vec::new();
    while let Some(tenant) = receiver.recv().await {
        order.push(tenant);
    }
    order
}

#[tokio::test(start_paused = true)]
async fn tenants_pass_on_the_page_in_the_order_of_the_library() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let policy = ["every 100ms", "10/s burst 3"][random.usize(..2)];
        let mut hundreds: Vec<u64> = (0..12).map(|_| random.u64(..20)).collect();
        hundreds.sort_unstable();
        // Each burst has milliseconds of its own, so none comes at the instant of a grant.
        let bursts = (0..).zip(hundreds).map(|(number, hundreds)| Burst {
            ms: 100 * hundreds + number,
            tenant: random.usize(..2),
            requests: random.u64(1..6),
        });
        let bursts: Vec<Burst> = bursts.collect();
        let weights = [random.u32(1..5), random.u32(1..5)];
        let shown = shown(policy, &bursts, weights);
        let passed = passed(policy, &bursts, weights).await;
        assert_eq!(shown, passed, "{seed}: {policy}, {weights:?}");
    }
}
