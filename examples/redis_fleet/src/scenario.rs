//! The run of one policy, from the first request to the last.

#![expect(
    clippy::disallowed_methods,
    reason = "processes and servers know nothing of a paused clock"
)]

use core::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{
    fleet::{WORKERS, Worker},
    plan::Plan,
    policy::Policy,
    provider::{Figures, Phase, Provider},
    servers::Server,
    worker::{Account, Task},
};

/// How long workers may take to start, on a busy machine too.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A policy, and the random choices.
#[derive(Debug)]
pub(crate) struct Scenario {
    policy: Policy,
    plan: Plan,
    /// Which worker is killed.
    victim: u32,
    /// How long it runs before it is measured.
    lead: Duration,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) policy: Policy,
    pub(crate) victim: u32,
    pub(crate) figures: Figures,
    /// The reports of the workers that were not killed.
    pub(crate) accounts: Vec<Account>,
}

impl Scenario {
    pub(crate) fn new(policy: Policy, plan: Plan) -> Self {
        Self {
            policy,
            victim: fastrand::u32(1..=WORKERS),
            lead: plan.limit_window().mul_f64(fastrand::f64()),
            plan,
        }
    }

    /// Runs the scenario. Dropping the future leaves no process and no file behind.
    pub(crate) async fn run(self) -> Result<Outcome, String> {
        let lengths = self.plan.lengths;
        let mut server = Server::start().await;
        let provider = Provider::start(&self.plan)?;
        let mut workers = self.workers(&server, &provider)?;
        all_are_ready(&provider).await?;
        workers.iter_mut().try_for_each(Worker::go)?;
        sleep(self.lead).await;

        provider.turn(Phase::Before);
        sleep(lengths.before).await;

        let (victims, workers): (Vec<_>, Vec<_>) = workers
            .into_iter()
            .partition(|worker| worker.number() == self.victim);
        victims.into_iter().try_for_each(Worker::kill)?;
        provider.turn(Phase::WorkerKilled);
        sleep(lengths.worker_killed).await;

        server.kill();
        provider.turn(Phase::RedisDown);
        sleep(lengths.redis_down).await;

        server.start_again().await;
        provider.turn(Phase::Back);
        sleep(lengths.back).await;

        provider.close();
        let mut accounts = Vec::new();
        for worker in workers {
            accounts.push(self.account(worker, &provider).await?);
        }
        Ok(Outcome {
            policy: self.policy,
            victim: self.victim,
            figures: provider.figures(self.plan.silence()),
            accounts,
        })
    }

    fn workers(&self, server: &Server, provider: &Provider) -> Result<Vec<Worker>, String> {
        let window = self.plan.limit_window().as_nanos().div_ceil(1_000);
        let task = |number| Task {
            policy: self.policy,
            redis: server.url(),
            provider: provider.address.to_string(),
            number,
            requests: self.plan.requests,
            window: u64::try_from(window).unwrap_or(u64::MAX),
        };
        (1..=WORKERS)
            .map(|number| Worker::start(&task(number)))
            .collect()
    }

    /// The worker's report, if the provider's count agrees.
    async fn account(&self, worker: Worker, provider: &Provider) -> Result<Account, String> {
        let number = worker.number();
        let account = worker.stop().await?;
        let arrived = provider.arrivals_of(number);
        if account.unanswered == 0 && arrived != account.sent {
            return Err(format!(
                "worker {number} sent {}, and {arrived} arrived",
                account.sent
            ));
        }
        Ok(account)
    }
}

async fn all_are_ready(provider: &Provider) -> Result<(), String> {
    let all = async {
        while provider.ready() < WORKERS {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(START_WITHIN, all)
        .await
        .map_err(|_| format!("not all workers were ready within {START_WITHIN:?}"))
}
