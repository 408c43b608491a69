use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use paceline::fair::{ClientTerms, GuaranteedShare, Rule};
use paceline::feedback::LimitHeaders;
use paceline::limiter::{ClientShare, Fair, Status};
use paceline::policy::{Decision, Quota};
use tokio::time::Instant;

use super::problem::Problem;
use crate::config::{Config, Mode, Sharing};

/// The share of each client, for all threads.
///
/// There is one limit for each rule, so that a reload can choose another one. The one that is not in use costs next to nothing.
pub(crate) struct Limit {
    by_demand: Fair<String>,
    guaranteed: Fair<String, GuaranteedShare>,
    began: Instant,
    /// What is special for a client, as of the last reload.
    terms: Arc<RwLock<BTreeMap<String, ClientTerms>>>,
    headers: LimitHeaders,
    sums: Mutex<Sums>,
}

/// The cycle under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cycle {
    /// How many were before it.
    pub(crate) number: u64,
    pub(crate) began_ago: Duration,
    pub(crate) ends_in: Duration,
}

/// The sums of the cycle under way, counted at level DEBUG: what clients lend and borrow at its start, and what was decided.
#[derive(Default)]
struct Sums {
    cycle: u64,
    clients: usize,
    lent: u64,
    borrowed: u64,
    passed: u64,
    refused: u64,
}

/// What one thread has written of the headers last. The policy is the same for most clients.
#[derive(Debug, Default)]
pub(super) struct Written {
    text: String,
    policy: Option<(Quota, HeaderValue)>,
    /// The same for the texts of refusals.
    quota: String,
}

/// The decision on a request.
pub(super) enum Verdict {
    /// It passes, and counts unless nothing is enforced. The status is for the headers of the response.
    Pass {
        status: Option<Status>,
        is_counted: bool,
    },
    /// It does not, and the client should come back after this.
    Refuse(Duration, Status),
}

/// The name of the policy in the headers.
const NAME: &str = "share";

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

impl Verdict {
    /// The limit has nothing to do with it.
    pub(super) const UNASKED: Self = Self::Pass {
        status: None,
        is_counted: false,
    };
}

impl Limit {
    pub(crate) fn new(config: &Config) -> Self {
        let terms = Arc::new(RwLock::new(config.terms.clone()));
        let known = Arc::clone(&terms);
        let terms_of = move |client: &String| {
            let known = known.read().unwrap_or_else(PoisonError::into_inner);
            known.get(client).copied().unwrap_or_default()
        };
        let guaranteed = Fair::new(config.guaranteed_share()).with_terms(terms_of.clone());
        guaranteed.remember(config.terms.keys().cloned());
        Self {
            by_demand: Fair::new(config.fair_share()).with_terms(terms_of),
            guaranteed,
            began: super::now(),
            terms,
            headers: LimitHeaders::try_new(NAME).expect("a valid name"),
            sums: Mutex::default(),
        }
    }

    /// The weight of a client, as of the last reload.
    pub(super) fn weights(&self) -> impl Fn(&Option<String>) -> NonZeroU32 + use<> {
        let terms = Arc::clone(&self.terms);
        move |client| {
            let known = terms.read().unwrap_or_else(PoisonError::into_inner);
            let terms = client.as_ref().and_then(|client| known.get(client));
            let weight = terms.and_then(|terms| NonZeroU32::new(terms.weight()));
            weight.unwrap_or(NonZeroU32::MIN)
        }
    }

    /// Goes on with another configuration. What is spent stays spent.
    pub(crate) fn retune(&self, config: &Config) {
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        let are_new = *terms != config.terms;
        terms.clone_from(&config.terms);
        drop(terms);
        retune(&self.by_demand, config.fair_share(), are_new);
        retune(&self.guaranteed, config.guaranteed_share(), are_new);
        self.guaranteed.remember(config.terms.keys().cloned());
    }

    /// The clients and their shares.
    pub(crate) fn shares(&self, config: &Config) -> Vec<ClientShare<String>> {
        if config.fair.sharing == Sharing::Guaranteed {
            return self.guaranteed.shares();
        }
        self.by_demand.shares()
    }

    /// The cycle under way. Without the rule of demand a cycle is only a unit of time, since the start.
    pub(crate) fn cycle(&self, config: &Config) -> Cycle {
        if config.fair.sharing != Sharing::Guaranteed {
            let cycle = self.by_demand.cycle();
            return Cycle {
                number: cycle.number,
                began_ago: cycle.began_ago,
                ends_in: cycle.ends_in,
            };
        }
        let since = super::now().duration_since(self.began).as_nanos();
        let length = self.guaranteed.share().cycle().as_nanos();
        let nanos = |nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Cycle {
            number: u64::try_from(since / length).unwrap_or(u64::MAX),
            began_ago: nanos(since % length),
            ends_in: nanos(length - since % length),
        }
    }

    /// Counts a request by the rule of its configuration, and says what the client has left.
    pub(crate) fn try_acquire(&self, client: &str, config: &Config) -> (Decision, Status) {
        if config.fair.sharing == Sharing::Guaranteed {
            return self.guaranteed.try_acquire_with_status(client, 1);
        }
        self.by_demand.try_acquire_with_status(client, 1)
    }

    /// Counts a request of this client, and decides on it.
    pub(super) fn decide(&self, client: &str, config: &Config) -> Verdict {
        if config.mode == Mode::Off {
            return Verdict::UNASKED;
        }
        let (decision, status) = self.ask(client, config);
        if decision.is_pass() || !config.enforces(client) {
            return Verdict::Pass {
                status: config.headers_on_success.then_some(status),
                is_counted: decision.is_pass(),
            };
        }
        Verdict::Refuse(decision.retry_in().unwrap_or_default(), status)
    }

    /// Asks the share. At level DEBUG the first request of a cycle logs the sums of the one before.
    fn ask(&self, client: &str, config: &Config) -> (Decision, Status) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return self.try_acquire(client, config);
        }
        // Locked before it is asked, so that the request counts in its own cycle.
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = self.try_acquire(client, config);
        let cycle = self.cycle(config).number;
        if cycle != sums.cycle {
            tracing::debug!(
                cycle = sums.cycle,
                clients = sums.clients,
                lent = sums.lent,
                borrowed = sums.borrowed,
                passed = sums.passed,
                refused = sums.refused,
                "a cycle ended"
            );
            let clients = self.shares(config);
            *sums = Sums {
                cycle,
                clients: clients.len(),
                lent: clients.iter().map(|client| u64::from(client.lent)).sum(),
                borrowed: clients
                    .iter()
                    .map(|client| u64::from(client.borrowed))
                    .sum(),
                ..Sums::default()
            };
        }
        if asked.0.is_pass() {
            sums.passed += 1;
        } else {
            sums.refused += 1;
        }
        asked
    }

    /// Takes back a request that passed by the rule of its configuration, and does not reach the upstream.
    pub(super) fn refund(&self, client: &str, config: &Config) {
        if config.fair.sharing == Sharing::Guaranteed {
            return self.guaranteed.at(client.to_owned()).refund(1);
        }
        self.by_demand.at(client.to_owned()).refund(1);
    }

    /// 429, with when to come back.
    pub(super) fn refusal(
        &self,
        wait: Duration,
        mut status: Status,
        written: &mut Written,
    ) -> Problem {
        let mut headers = HeaderMap::new();
        status.reset_in = wait;
        self.describe(&mut headers, &status, written);
        // With room for what is added: to let it grow takes longer than to write it.
        let mut detail = String::with_capacity(96);
        detail.push_str("the share of this client is used up");
        detail.push_str(&written.quota);
        let mut problem = paceline_tower::Problem::quota_exceeded(NAME, detail);
        *problem.headers_mut() = headers;
        problem.with_wait(wait).into()
    }

    /// Adds the headers of the limit. Those of the upstream stay.
    pub(super) fn describe(&self, headers: &mut HeaderMap, status: &Status, written: &mut Written) {
        let Written {
            text,
            policy,
            quota,
        } = written;
        if policy.as_ref().map(|(quota, _)| *quota) != status.quota {
            quota.clear();
            if let Some(Quota { permits, window }) = status.quota {
                *quota = format!(" ({permits} per {window:?})");
            }
            text.clear();
            self.headers.write_policy(text, status);
            let value = HeaderValue::from_str(text).ok();
            *policy = status.quota.zip(value);
        }
        if let Some((_, value)) = policy {
            headers.append(POLICY, value.clone());
        }
        text.clear();
        self.headers.write_state(text, status);
        if let Some(value) = HeaderValue::from_str(text).ok().filter(|it| !it.is_empty()) {
            headers.append(STATE, value);
        }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("by_demand", &self.by_demand.share())
            .field("guaranteed", &self.guaranteed.share())
            .finish_non_exhaustive()
    }
}

/// Goes on with other parameters, if they or the terms are new.
fn retune<R: Rule>(fair: &Fair<String, R>, share: R, are_new: bool) {
    if are_new || fair.share() != share {
        fair.retune(share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_given_back_to_the_rule_that_counted_it() {
        let [mut before, mut after] = [(); 2].map(|()| Config::defaults());
        (before.fair.capacity, after.fair.capacity) = (4, 4);
        after.fair.sharing = Sharing::Guaranteed;
        let limit = Limit::new(&before);
        let passed = |config: &Config| {
            (0..20)
                .filter(|_| limit.try_acquire("a", config).0.is_pass())
                .count()
        };
        assert_eq!(passed(&before), 4);
        limit.retune(&after);
        assert_eq!(passed(&after), 8);
        limit.refund("a", &before);
        assert_eq!((passed(&after), passed(&before)), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_the_file_keeps_its_guaranteed_share() {
        let mut config = Config::defaults();
        config.fair.capacity = 40;
        config.fair.sharing = Sharing::Guaranteed;
        let limit = Limit::new(&config);
        let passed = |client, config: &Config| {
            (0..100)
                .filter(|_| limit.try_acquire(client, config).0.is_pass())
                .count()
        };
        assert_eq!(passed("flood", &config), 50);
        let shop = ClientTerms::new().with_own_share(true);
        config.terms.insert("shop".to_owned(), shop);
        limit.retune(&config);
        for _ in 0..300 {
            tokio::time::advance(config.fair.cycle / 7).await;
            passed("flood", &config);
        }
        assert_eq!(passed("shop", &config), 20);
    }
}
