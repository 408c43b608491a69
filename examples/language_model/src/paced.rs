//! The client with a limit: requests and tokens in one decision, an estimate before each call and its cost afterwards.

use core::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use paceline::{
    limiter::{Reservation, Shared},
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

/// What a call reserves, and from when on its cost counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plan {
    /// Reserves the most that a call can cost. Nothing is settled above it, so the limit can be that of the provider.
    UpperBound,
    /// The same, but the cost counts from the answer on. The provider has counted it before, so tokens need no margin.
    FromAnswer,
    /// Reserves what a call costs on average. Each call under way may cost more, and the limit has a margin of that much.
    Typical,
}

impl Plan {
    fn limit(self, budget: Budget, tasks: u32) -> Limit {
        let window = budget.window + MARGIN;
        let token_window = match self {
            Self::UpperBound | Self::Typical => window,
            Self::FromAnswer => budget.window,
        };
        let tokens = budget.tokens - tasks * self.excess();
        let requests = PerRequest::new(SlidingLog::new(budget.requests, window));
        All::new((requests, SlidingLog::new(tokens, token_window))).shared()
    }

    fn estimate(self, prompt: &Prompt) -> u32 {
        prompt.tokens() + prompt.max_tokens - self.excess()
    }

    /// The most that a call can cost above its estimate.
    const fn excess(self) -> u32 {
        match self {
            Self::UpperBound | Self::FromAnswer => 0,
            Self::Typical => LONGEST - TYPICAL,
        }
    }

    fn settle(self, limit: &Limit, reserved: Reservation<Limit>, cost: u32) {
        match self {
            Self::UpperBound | Self::Typical => reserved.settle(cost),
            // First the charge, so that the tokens are counted at every instant.
            Self::FromAnswer => {
                limit.charge(cost);
                reserved.settle(0);
            }
        }
    }
}

/// A client that keeps the budget.
#[derive(Debug)]
pub(crate) struct Paced {
    http: Http,
    /// The provider's.
    window: Duration,
    plan: Plan,
    limit: Limit,
    /// The sum of the estimates that are not settled.
    reserved: AtomicU32,
    /// The latest refusal.
    refusal: AtomicU32,
}

impl Paced {
    pub(crate) fn new(http: Http, budget: Budget, plan: Plan, tasks: u32) -> Self {
        Self {
            http,
            window: budget.window,
            plan,
            limit: plan.limit(budget, tasks),
            reserved: AtomicU32::new(0),
            refusal: AtomicU32::new(0),
        }
    }

    /// Obeys the headers of an answer, once its call is settled.
    fn obey(&self, reply: &Reply) {
        let mut feedback = reply.feedback.clone();
        if reply.tokens.is_none() {
            feedback = feedback.or_pause(self.window);
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
        let (estimate, mut clock) = (self.plan.estimate(prompt), Clock::new());
        loop {
            let reserved = self.limit.reserve(estimate).await;
            let reserved = reserved.map_err(|error| error.to_string())?;
            let sent_at = clock.now();
            self.reserved.fetch_add(estimate, Relaxed);

            // If this fails, the call may have been made: what is reserved stays spent.
            let reply = self.http.send(prompt, self.refusal.load(Relaxed)).await?;
            self.reserved.fetch_sub(estimate, Relaxed);
            let cost = reply.tokens.unwrap_or(0);
            self.plan.settle(&self.limit, reserved, cost);
            self.obey(&reply);

            if clock.now().since(sent_at) > SLOW {
                self.limit.pause_for(self.window);
            }
            if reply.tokens.is_some() {
                return Ok(true);
            }
        }
    }
}
