//! The client with a limit: requests and tokens in one decision, an estimate before each call and its cost afterwards.

use core::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use paceline::{
    limiter::Shared,
    policy::{All, PerRequest},
    prelude::*,
    time::Clock,
};

use crate::{
    books::Budget,
    client::{Http, Reply},
    prompts::{LONGEST, TYPICAL},
    provider::Prompt,
    run::Caller,
};

/// What the windows of the limit are longer than those of the provider. The limit counts a call when it is sent, and the provider
/// counts the completion when it is done. So this is a bound on the time of a call.
const MARGIN: Duration = Duration::from_secs(1);

/// A call that has taken longer may be counted later than the margin covers. It is half of the margin, because the time of a call is
/// measured from just after the limit has counted it.
const SLOW: Duration = Duration::from_millis(500);

type Limit = Shared<All<(PerRequest<SlidingLog>, SlidingLog)>>;

/// What is reserved for the completion of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Estimate {
    /// The most that it can be. Nothing is settled above it, so the limit can be that of the provider.
    Longest,
    /// What it is on average. Each call under way may take more, and the limit has a margin of that much.
    Typical,
}

impl Estimate {
    /// What a call may cost above its estimate.
    const fn excess(self) -> u32 {
        match self {
            Self::Longest => 0,
            Self::Typical => LONGEST - TYPICAL,
        }
    }

    fn of(self, prompt: &Prompt) -> u32 {
        prompt.tokens() + prompt.max_tokens - self.excess()
    }

    /// The limit of the provider, less what `tasks` calls at once may cost above their estimates.
    fn tokens(self, budget: Budget, tasks: u32) -> u32 {
        budget.tokens - tasks * self.excess()
    }
}

/// A client that keeps the budget.
#[derive(Debug)]
pub(crate) struct Paced {
    http: Http,
    budget: Budget,
    estimate: Estimate,
    limit: Limit,
    /// The sum of the estimates that are not settled.
    reserved: AtomicU32,
    /// The latest refusal.
    refusal: AtomicU32,
}

impl Paced {
    pub(crate) fn new(http: Http, budget: Budget, estimate: Estimate, tasks: u32) -> Self {
        let window = budget.window + MARGIN;
        let requests = PerRequest::new(SlidingLog::new(budget.requests, window));
        let tokens = SlidingLog::new(estimate.tokens(budget, tasks), window);
        Self {
            http,
            budget,
            estimate,
            limit: All::new((requests, tokens)).shared(),
            reserved: AtomicU32::new(0),
            refusal: AtomicU32::new(0),
        }
    }

    /// Obeys the headers of an answer, once its call is settled.
    fn obey(&self, reply: &Reply) {
        let mut feedback = reply.feedback.clone();
        if reply.tokens.is_none() {
            feedback = feedback.or_pause(self.budget.window);
            self.refusal.fetch_max(reply.refusal, Relaxed);
        }
        self.limit.apply_feedback(&feedback);

        // The provider does not know yet what the calls under way will cost.
        let tokens = &reply.token_feedback;
        if let (Some(left), Some(reset_in)) = (tokens.remaining(), tokens.reset_in()) {
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let left = left.saturating_sub(self.reserved.load(Relaxed));
            self.limit.set_remaining(left, reset_in);
        }
    }
}

impl Caller for Paced {
    /// Calls until the provider answers. A refusal makes all calls wait.
    async fn call(&self, prompt: &Prompt) -> Result<bool, String> {
        let (estimate, mut clock) = (self.estimate.of(prompt), Clock::new());
        loop {
            let reserved = self.limit.reserve(estimate).await;
            let reserved = reserved.map_err(|error| error.to_string())?;
            let sent_at = clock.now();
            self.reserved.fetch_add(estimate, Relaxed);

            // If this fails, the call may have been made: what is reserved stays spent.
            let reply = self.http.send(prompt, self.refusal.load(Relaxed)).await?;
            self.reserved.fetch_sub(estimate, Relaxed);
            reserved.settle(reply.tokens.unwrap_or(0));
            self.obey(&reply);

            if clock.now().since(sent_at) > SLOW {
                self.limit.pause_for(self.budget.window);
            }
            if reply.tokens.is_some() {
                return Ok(true);
            }
        }
    }
}
