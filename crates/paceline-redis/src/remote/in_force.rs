//! What is in force for a key: what its limit was made with, and overrides.

use core::time::Duration;
use std::sync::Arc;

use paceline::policy::Status;
use paceline::time::Tick;

use super::outage_policy::Fallback;
use super::queue::RequestQueue;
use super::{LimitConfig, RemotePolicy, Store};

impl<P: RemotePolicy, S: Store> RequestQueue<P, S> {
    /// Takes over overrides that have changed. `config` and `limit` are what the limit was made with.
    pub(crate) fn refresh(
        &mut self,
        config: &Arc<LimitConfig<P, S>>,
        limit: &S::Limit,
        now: impl FnOnce() -> Tick,
    ) {
        if !self.overrides.has_changed().unwrap_or(false) {
            return;
        }
        let known = self.overrides.borrow_and_update();
        self.read_at = known.read_at;
        let found = known.of(|| S::override_name(limit), S::params(limit));
        drop(known);
        let params = found
            .params
            .as_ref()
            .map_or(S::params(limit), |[_, new]| new);
        let in_force = S::params(&self.limit);
        let retuned = (params != in_force).then(|| {
            let (mut new, mut of) = (LimitConfig::clone(config), limit.clone());
            match (config.retune)(&mut new, &mut of, params) {
                Some(()) => (Arc::new(new), of),
                None => (Arc::clone(config), limit.clone()),
            }
        });
        let retuned = retuned.filter(|(_, limit)| S::params(limit) != in_force);
        if self.paused_until == found.paused_until && retuned.is_none() {
            return;
        }
        self.paused_until = found.paused_until;
        // During a pause it may be as long as the pause.
        self.denial.take_if(|denial| denial.is_of_outage());
        if let Some((config, limit)) = retuned {
            (self.config, self.limit) = (config, limit);
            self.retuned_at = self.next_id;
            // They were for other parameters.
            self.denial = None;
            self.known.scarcest = None;
            self.spend_insurance(now());
        }
        let waiting = self.requests.values();
        self.wakes
            .extend(waiting.map(|request| request.waker.clone()));
        self.is_changed = true;
    }

    /// Spends all of an insurance, which was made for other parameters.
    pub(crate) fn spend_insurance(&mut self, now: Tick) {
        self.insurance = match (&self.config.fallback, self.insurance.take()) {
            (Fallback::Insured(policy), Some((since, _))) => {
                Some((since, (self.config.spent)(policy, now)))
            }
            _ => None,
        };
    }

    /// Counts permits that were used already in the insurance, if the key has one.
    pub(crate) fn charge_insurance(&mut self, now: Tick, cost: u32) {
        if let (Fallback::Insured(policy), Some((_, state))) =
            (&self.config.fallback, &mut self.insurance)
        {
            policy.charge(state, now, cost);
        }
    }

    /// What the insurance of the outage that began then has left, if the key has one.
    pub(crate) fn insured_status(&self, now: Tick, since: Tick) -> Option<Status> {
        let (_, state) = self.insurance.as_ref().filter(|(of, _)| *of == since)?;
        match &self.config.fallback {
            Fallback::Insured(policy) => Some(policy.status(state, now)),
            Fallback::Open | Fallback::Closed => None,
        }
    }

    /// How long the limit is still paused.
    pub(crate) fn pause(&self, now: Tick) -> Option<Duration> {
        (now < self.paused_until).then(|| self.paused_until.since(now))
    }
}
