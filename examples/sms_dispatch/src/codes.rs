//! Sends one-time passwords and news to a provider that slows down without a word. Passwords go first, a call that fails is made again,
//! and the messages to a number arrive in order.

#![expect(clippy::disallowed_methods, reason = "a deadline is an instant")]

use core::time::Duration;

use futures::{StreamExt, stream};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use paceline::{
    concurrency::Permits,
    limiter::{AdaptiveRate, HoldAndProbe, PolicyExt, Share},
    policy::Interval,
    retry::{Failure, Retry, RetryBudget},
    stream::PaceStreamExt,
    time::Rate,
};
use reqwest::StatusCode;
use tokio::{select, sync::watch, time::Instant};

use crate::{
    provider::{CONTRACT, Codes, Wire},
    strict,
};

/// How many messages come, and how soon one after the other.
pub(crate) const MESSAGES: u32 = 400;
const ONE_EACH: Duration = Duration::from_millis(50);
/// A password is worth nothing later than that, and news can wait.
const PASSWORD_WITHIN: Duration = Duration::from_secs(5);
const NEWS_WITHIN: Duration = Duration::from_secs(60);
/// How many messages wait at most, or are under way.
const HELD: u32 = 1_000;

#[derive(Clone, Copy)]
struct Message {
    number: u32,
    came_at: Instant,
}

/// What became of the messages.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: u32,
    pub(crate) too_late: u32,
    pub(crate) given_up: u32,
    /// The run was stopped before, or while they were under way.
    pub(crate) unsent: u32,
    /// The calls that were not the first of their message.
    pub(crate) retries: u32,
    /// From the arrival of a message to the answer, in microseconds.
    pub(crate) passwords: Histogram<u64>,
    pub(crate) news: Histogram<u64>,
}

/// Why a call did not deliver its message.
enum Failed {
    TooLate,
    Refused,
    Otherwise,
}

/// Sends this number of messages, unless it is stopped.
pub(crate) async fn dispatch(
    provider: &Codes,
    messages: u32,
    mut stop: watch::Receiver<bool>,
    progress: &ProgressBar,
) -> Result<Outcome, String> {
    let http = strict::client()?;
    let url = format!("http://{}/", provider.address);
    // A tenth below the contract, since arrivals may be closer to each other than emissions.
    let most = Rate::per_second(CONTRACT * 9 / 10);
    let limit = Interval::from_rate(most).shared().by_deadline(NEWS_WITHIN);
    let rule = HoldAndProbe::new(Rate::per_second(1), most).with_start(most);
    let rate = AdaptiveRate::around(limit, rule, Interval::from_rate);

    let send = |message: Message| {
        let (rate, request) = (rate.clone(), http.post(&url).json(&message.wire()));
        async move {
            let passed = rate.limit().acquire_by(1, message.deadline()).await;
            passed.map_err(|_| Failed::TooLate)?;
            let call = rate.begin();
            let answer = request.send().await.map_err(|_| Failed::Otherwise)?;
            match answer.status() {
                StatusCode::TOO_MANY_REQUESTS => {
                    call.refused(None);
                    Err(Failed::Refused)
                }
                status => {
                    call.accepted();
                    let is_sent = status.is_success();
                    is_sent.then(Instant::now).ok_or(Failed::Otherwise)
                }
            }
        }
    };
    let failure_of = |failed: &Failed| match failed {
        Failed::TooLate => Failure::Final,
        Failed::Refused => Failure::Refused { retry_after: None },
        Failed::Otherwise => Failure::Transient,
    };
    let retry = Retry::new(RetryBudget::new(100, Share::percent(20))).with_attempts(5);
    let mut tried = stream::iter(0..messages)
        .pace(Interval::every(ONE_EACH).owned())
        .map(Message::new)
        .concurrent(Permits::new(HELD), send)
        .retry(retry, failure_of, HELD as usize)
        .ordered_by_key(|message| message.to());

    let mut outcome = Outcome::new();
    loop {
        let next = select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            next = tried.next() => next,
        };
        let Some(message) = next else {
            break;
        };
        outcome.retries += message.attempts.calls.saturating_sub(1);
        match message.outcome {
            Ok(answered_at) => outcome.count(message.item, answered_at),
            Err(Failed::TooLate) => outcome.too_late += 1,
            Err(_) => outcome.given_up += 1,
        }
        progress.inc(1);
    }
    outcome.unsent = messages - outcome.sent - outcome.too_late - outcome.given_up;
    Ok(outcome)
}

impl Message {
    fn new(number: u32) -> Self {
        let came_at = Instant::now();
        Self { number, came_at }
    }

    /// One in four. It goes to a number of its own, and news go to one of fifty.
    const fn is_password(self) -> bool {
        self.number % 4 == 0
    }

    const fn to(self) -> u32 {
        if self.is_password() {
            1_000 + self.number
        } else {
            self.number % 50
        }
    }

    fn deadline(self) -> Instant {
        let within = if self.is_password() {
            PASSWORD_WITHIN
        } else {
            NEWS_WITHIN
        };
        self.came_at + within
    }

    const fn wire(self) -> Wire {
        Wire {
            number: self.number,
            to: self.to(),
        }
    }
}

impl Outcome {
    fn new() -> Self {
        let waits = || Histogram::new(3).expect("three digits are fewer than five");
        Self {
            sent: 0,
            too_late: 0,
            given_up: 0,
            unsent: 0,
            retries: 0,
            passwords: waits(),
            news: waits(),
        }
    }

    fn count(&mut self, message: Message, answered_at: Instant) {
        self.sent += 1;
        let waits = if message.is_password() {
            &mut self.passwords
        } else {
            &mut self.news
        };
        let wait = answered_at.saturating_duration_since(message.came_at);
        let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        waits.record(wait).expect("it grows as it must");
    }
}
