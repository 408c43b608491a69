use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use paceline::feedback::LimitHeaders;
use paceline::limiter::{Fair, Status};
use paceline::policy::{Decision, Quota};

use super::problem::Problem;
use crate::config::{Config, Mode, Terms};

/// The share of each client, for all threads.
pub(crate) struct Limit {
    fair: Fair<String>,
    /// What is special for a client, as of the last reload.
    terms: Arc<RwLock<BTreeMap<String, Terms>>>,
    headers: LimitHeaders,
}

/// What one thread has written of the headers last. The policy is the same for most clients.
#[derive(Debug, Default)]
pub(super) struct Written {
    text: String,
    policy: Option<(Quota, HeaderValue)>,
}

/// The decision on a request.
pub(super) enum Verdict {
    /// It passes, and counts unless nothing is enforced. The status is for the headers of the response.
    Pass {
        status: Option<Status>,
        is_counted: bool,
    },
    /// It does not, and the client should come back after this.
    Refuse(Duration, Option<Status>),
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
            known
                .get(client)
                .copied()
                .map_or_else(Default::default, Into::into)
        };
        Self {
            fair: Fair::new(config.fair_share()).with_terms(terms_of),
            terms,
            headers: LimitHeaders::try_new(NAME).expect("a valid name"),
        }
    }

    /// Goes on with another configuration. What is spent stays spent.
    pub(crate) fn retune(&self, config: &Config) {
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        let are_new = *terms != config.terms;
        terms.clone_from(&config.terms);
        drop(terms);
        let share = config.fair_share();
        if are_new || self.fair.share() != share {
            self.fair.retune(share);
        }
    }

    /// The clients and their shares, to be read.
    pub(crate) const fn fair(&self) -> &Fair<String> {
        &self.fair
    }

    /// Counts a request of this client, and decides on it.
    pub(super) fn decide(&self, client: &str, config: &Config) -> Verdict {
        if config.mode == Mode::Off {
            return Verdict::UNASKED;
        }
        let decision = self.fair.try_acquire(client, 1);
        let is_enforced = config.mode == Mode::Enforce && config.enforced.includes(client);
        let is_refused = is_enforced && !decision.is_pass();
        let status = (is_refused || config.headers_on_success).then(|| self.fair.status(client));
        let status = status.flatten();
        if !is_refused {
            let is_counted = decision.is_pass();
            return Verdict::Pass { status, is_counted };
        }
        // Until the end of the cycle: with pacing a request could pass sooner, and would have taken it from another one.
        let known = match decision {
            Decision::Wait { retry_in } => retry_in,
            _ => Duration::ZERO,
        };
        let wait = status.map_or(known, |status| status.reset_in.max(known));
        Verdict::Refuse(wait, status)
    }

    /// Takes back a request that passed and does not reach the upstream.
    pub(super) fn refund(&self, client: &str) {
        self.fair.at(client.to_owned()).refund(1);
    }

    /// 429, with when to come back.
    pub(super) fn refusal(
        &self,
        wait: Duration,
        status: Option<Status>,
        written: &mut Written,
    ) -> Problem {
        let mut headers = HeaderMap::with_capacity(4);
        if let Some(mut status) = status {
            status.reset_in = wait;
            self.describe(&mut headers, &status, written);
        }
        let seconds = whole_seconds(wait);
        headers.insert(RETRY_AFTER, seconds.into());
        let quota = status.and_then(|status| status.quota);
        let quota = quota.map(|quota| format!(" ({} per {:?})", quota.permits, quota.window));
        let quota = quota.unwrap_or_default();
        let detail = format!("the share of this client is used up{quota}, retry in {seconds} s");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
            .of_kind("quota-exceeded", Some(NAME))
            .with_headers(headers)
    }

    /// Adds the headers of the limit. Those of the upstream stay.
    pub(super) fn describe(&self, headers: &mut HeaderMap, status: &Status, written: &mut Written) {
        let Written { text, policy } = written;
        if policy.as_ref().map(|(quota, _)| *quota) != status.quota {
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
            .field("share", &self.fair.share())
            .finish_non_exhaustive()
    }
}

/// Rounded up, and at least 1.
fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}
