//! Clients of one provider, event by event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;
use paceline::limiter::{CallOutcome, RateRule};
use paceline::time::Tick;

use super::SECOND;
use super::provider::Provider;

/// What is in the headers of each answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Headers {
    Nothing,
    /// In whole seconds, of a refusal.
    RetryAfter,
    Quota,
}

/// A client with calls enough for any rate, unless `most` bounds them.
pub(crate) struct Client {
    rule: Box<dyn RateRule>,
    /// The most calls a second at this time.
    most: fn(Tick) -> f64,
    next_at: Tick,
    last_at: Option<Tick>,
    /// In a time of one call at a time: the number of that call, or 0 if there is none.
    alone: Option<u64>,
    /// What the provider answered, by second.
    pub(crate) seconds: Vec<Answered>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    pub(crate) accepted: u32,
    pub(crate) refused: u32,
}

impl Client {
    pub(crate) fn new(rule: Box<dyn RateRule>, start: Duration) -> Self {
        Self {
            rule,
            most: |_| f64::INFINITY,
            next_at: Tick::ZERO + start,
            last_at: None,
            alone: None,
            seconds: Vec::new(),
        }
    }

    pub(crate) fn with_most(self, most: fn(Tick) -> f64) -> Self {
        Self { most, ..self }
    }

    /// All that was answered in these seconds.
    pub(crate) fn answered(&self, from: usize, to: usize) -> Answered {
        let seconds = &self.seconds[from..to];
        Answered {
            accepted: seconds.iter().map(|second| second.accepted).sum(),
            refused: seconds.iter().map(|second| second.refused).sum(),
        }
    }

    /// When the next call begins.
    fn plan(&mut self, now: Tick) {
        let rate = self.rule.rate(now).min((self.most)(now));
        let gap = Duration::from_secs_f64(1.0 / rate);
        let mut next_at = self.last_at.map_or(self.next_at, |last_at| last_at + gap);
        match self.rule.one_at_a_time() {
            Some(from) => {
                let is_under_way = *self.alone.get_or_insert(0) > 0;
                next_at = if is_under_way {
                    Tick::MAX
                } else {
                    next_at.max(from)
                };
            }
            None => self.alone = None,
        }
        self.next_at = next_at.max(now);
    }

    fn count(&mut self, now: Tick, is_accepted: bool) {
        let second = usize::try_from((now - Tick::ZERO).as_secs()).unwrap();
        self.seconds
            .resize_with(self.seconds.len().max(second + 1), Answered::default);
        self.seconds[second].accepted += u32::from(is_accepted);
        self.seconds[second].refused += u32::from(!is_accepted);
    }
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Arrives {
    AtProvider,
    /// `None`: accepted. Else the wait until a call could be accepted.
    AtClient(Option<Duration>),
}

#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
struct Event {
    at: Tick,
    number: u64,
    client: usize,
    sent_at: Tick,
    arrives: Arrives,
    /// From the provider to the client.
    back: Duration,
}

/// Runs the clients until `end`. A call takes between these times, half of it on its way to the provider.
pub(crate) fn simulate(
    provider: &mut Provider,
    headers: Headers,
    clients: &mut [Client],
    latency: RangeInclusive<u64>,
    end: Duration,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let mut events = BinaryHeap::new();
    let (mut sent, end) = (0, Tick::ZERO + end);
    for client in &mut *clients {
        client.plan(Tick::ZERO);
    }
    loop {
        let next = (0..clients.len()).min_by_key(|client| clients[*client].next_at);
        let next = next.expect("there is a client");
        let due = events
            .peek()
            .map(|Reverse(event): &Reverse<Event>| event.at);
        let begins_at = clients[next].next_at;
        if due.unwrap_or(Tick::MAX).min(begins_at) >= end {
            break;
        }
        if due.is_some_and(|due| due <= begins_at) {
            let Reverse(event) = events.pop().expect("it was there");
            let client = &mut clients[event.client];
            if let Arrives::AtClient(refused) = event.arrives {
                if headers == Headers::Quota {
                    client
                        .rule
                        .observe_quota(event.at, provider.quota(event.at));
                }
                let outcome = outcome(refused, headers);
                client.rule.observe(event.at, event.sent_at, outcome);
                if client.alone == Some(event.number) {
                    client.alone = Some(0);
                }
                client.plan(event.at);
            } else {
                let refused = provider.refuses(event.at);
                client.count(event.at, refused.is_none());
                events.push(Reverse(Event {
                    at: event.at + event.back,
                    arrives: Arrives::AtClient(refused),
                    ..event
                }));
            }
        } else {
            let client = &mut clients[next];
            sent += 1;
            client.last_at = Some(begins_at);
            client.alone = client.alone.map(|_| sent);
            let takes = Duration::from_micros(rng.u64(latency.clone()) * 1_000 + rng.u64(..1_000));
            events.push(Reverse(Event {
                at: begins_at + takes / 2,
                number: sent,
                client: next,
                sent_at: begins_at,
                arrives: Arrives::AtProvider,
                back: takes / 2,
            }));
            client.plan(begins_at);
        }
    }
    let seconds = usize::try_from((end - Tick::ZERO).as_secs()).unwrap();
    for client in clients {
        client.seconds.resize_with(seconds, Answered::default);
    }
}

fn outcome(refused: Option<Duration>, headers: Headers) -> CallOutcome {
    let Some(wait) = refused else {
        return CallOutcome::Accepted;
    };
    let whole = Duration::from_secs(wait.as_millis().div_ceil(1_000).max(1).try_into().unwrap());
    let retry_after = (headers == Headers::RetryAfter).then_some(whole);
    CallOutcome::Refused { retry_after }
}

/// A time before the first window or the first call of a client, by chance.
pub(crate) fn chance(rng: &mut Rng, most: Duration) -> Duration {
    SECOND.mul_f64(rng.f64() * most.as_secs_f64())
}
