//! One client and a provider of its own.

use core::{
    future::Future,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};
use std::sync::Arc;

use paceline::time::Clock;
use tokio::task::JoinSet;

use crate::{
    books::Budget,
    client::Http,
    naive::Naive,
    paced::{Paced, Plan},
    provider::{Prompt, Provider},
    report::Line,
};

/// A minute is shortened to two seconds.
const BUDGET: Budget = Budget {
    requests: 60,
    tokens: 16_000,
    window: Duration::from_secs(2),
};

/// More than the requests of a window.
const NAIVE_TASKS: u32 = 64;

/// A client.
pub(crate) trait Caller: Send + Sync + 'static {
    /// Makes a call, and returns whether it was answered.
    fn call(&self, prompt: &Prompt) -> impl Future<Output = Result<bool, String>> + Send;
}

/// A run with a limit. Another process of the account exhausts the budget, just before the arrivals `others_at`.
pub(crate) async fn paced(
    name: &'static str,
    prompts: Arc<[Prompt]>,
    tasks: u32,
    plan: Plan,
    others_at: &'static [u32],
) -> Result<Line, String> {
    let provider = start(others_at)?;
    let http = Http::new(provider.address)?;
    let client = Paced::new(http, BUDGET, plan, tasks);
    run(name, provider, client, prompts, tasks).await
}

/// A run without a limit.
pub(crate) async fn naive(name: &'static str, prompts: Arc<[Prompt]>) -> Result<Line, String> {
    let provider = start(&[])?;
    let http = Http::new(provider.address)?;
    run(name, provider, Naive { http }, prompts, NAIVE_TASKS).await
}

fn start(others_at: &'static [u32]) -> Result<Provider, String> {
    Provider::start(BUDGET, others_at).map_err(|error| format!("no provider: {error}"))
}

async fn run<C: Caller>(
    name: &'static str,
    provider: Provider,
    client: C,
    prompts: Arc<[Prompt]>,
    tasks: u32,
) -> Result<Line, String> {
    let calls = prompts.len();
    let (mut clock, next) = (Clock::new(), Arc::new(AtomicUsize::new(0)));
    let started_at = clock.now();
    let client = Arc::new(client);
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (client, prompts, next) = (client.clone(), prompts.clone(), next.clone());
        running.spawn(async move {
            let mut answered = 0;
            while let Some(prompt) = prompts.get(next.fetch_add(1, Relaxed)) {
                answered += u32::from(client.call(prompt).await?);
            }
            Ok::<_, String>(answered)
        });
    }
    let mut answered = 0;
    while let Some(task) = running.join_next().await {
        answered += task.map_err(|error| error.to_string())??;
    }
    let took = clock.now().since(started_at);
    Ok(Line::new(name, calls, answered, took, provider.tally()))
}
