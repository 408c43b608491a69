//! The dispatcher's pacing against the providers on a paused clock, where instants are exact and the tests choose the latency
//! of each request.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a provider has a clock of its own; the sleeps stand for the way to it"
)]

use core::{net::SocketAddr, time::Duration};
use std::time::Instant;

use axum::http::StatusCode;
use futures::StreamExt;
use paceline::{
    feedback::Feedback,
    time::{Clock, Tick},
};
use tokio::time::{self, sleep};

use super::{Faults, Name, Provider, judge::Tally};
use crate::{dispatch::Pacing, message::Message, naive::Throttle, paced::Paced, strict::Arrival};

const NOWHERE: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST), 0);

/// A provider, its messages, and the arrivals of requests.
struct Trial {
    name: Name,
    provider: Provider,
    messages: Vec<Message>,
    start: Instant,
    arrivals: Vec<u128>,
}

fn now() -> Instant {
    time::Instant::now().into_std()
}

impl Trial {
    fn new(name: Name, messages: usize, lower_after: Option<usize>) -> Self {
        let faults = Faults {
            lower_after,
            ..Faults::default()
        };
        let costliest = name.quota().costliest as usize;
        let message = |id| {
            let text = "x".repeat(if id % 3 == 0 { 150 * costliest } else { 100 });
            let columns = [&format!("{id}"), name.as_str(), "+4915112345678", &text];
            Message::check(columns, Tick::ZERO).unwrap()
        };
        Self {
            name,
            provider: Provider::new(name, NOWHERE, faults, now()),
            messages: (0..messages).map(message).collect(),
            start: now(),
            arrivals: Vec::new(),
        }
    }

    /// Sends all messages and returns the violations. `leg` has the latency of each request and of each answer.
    async fn run(&mut self, mut pacing: impl Pacing, mut leg: impl FnMut() -> Duration) -> Tally {
        let mut clock = Clock::new();
        // The dispatcher's pings, since a margin needs the shortest round trip.
        for _ in 0..40 {
            let emitted = clock.now();
            sleep(leg() + leg()).await;
            pacing.answered(emitted, clock.now());
        }
        self.start = now();
        let messages = self.messages.clone();
        let mut turns = pacing.turns(&messages);
        while let Some((request, mut pass)) = turns.next().await {
            loop {
                let emitted = clock.now();
                sleep(leg()).await;
                let (was_accepted, feedback) = self.answer(&request);
                sleep(leg()).await;
                drop(pass);
                pacing.answered(emitted, clock.now());
                pacing.on_feedback(&feedback);
                if was_accepted {
                    break;
                }
                let pause = feedback.pause().unwrap();
                pass = pacing.again(self.name.cost(&request), pause).await;
            }
        }
        let figures = self.provider.figures();
        assert_eq!(figures.accepted as usize, messages.len());
        assert_eq!(figures.duplicates, 0);
        figures.tally
    }

    fn answer(&mut self, request: &[&Message]) -> (bool, Feedback) {
        let wire: Vec<_> = request.iter().map(|message| message.wire()).collect();
        let body = match self.name {
            Name::Bulk => serde_json::to_vec(&wire),
            Name::Solo | Name::Segments => serde_json::to_vec(&wire[0]),
        };
        self.arrivals.push((now() - self.start).as_millis());
        let response = self.provider.answer(Arrival(now()), &body.unwrap());
        let was_accepted = response.status() == StatusCode::OK;
        assert!(was_accepted || response.status() == StatusCode::TOO_MANY_REQUESTS);
        (
            was_accepted,
            Feedback::parse(response.headers(), Duration::ZERO),
        )
    }
}

fn told_once() -> Tally {
    Tally {
        announcements: 1,
        ..Tally::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_counts_from_the_answer() {
    let mut trial = Trial::new(Name::Solo, 4, None);
    let mut legs = [30, 20].into_iter().cycle().map(Duration::from_millis);
    let tally = trial
        .run(Paced::new(Name::Solo), || legs.next().unwrap())
        .await;

    assert_eq!(trial.arrivals, [30, 130, 230, 330]);
    assert_eq!(tally, Tally::default());
}

#[tokio::test(start_paused = true)]
async fn a_lower_quota_is_kept_after_the_refusal_that_announces_it() {
    let mut trial = Trial::new(Name::Bulk, 100, Some(50));
    let tally = trial.run(Paced::new(Name::Bulk), || Duration::ZERO).await;

    // The sixth is refused and sent again one window later. The others follow every third of a second, on a grid of 1 ms.
    let arrivals = [0, 250, 500, 750, 1000, 1250, 2250, 2584, 2918, 3252, 3586];
    assert_eq!(trial.arrivals, arrivals);
    assert_eq!(tally, told_once());
}

#[tokio::test(start_paused = true)]
async fn a_lower_quota_announced_by_an_accepting_answer_costs_no_refusal() {
    let mut trial = Trial::new(Name::Bulk, 40, Some(20));
    let tally = trial.run(Paced::new(Name::Bulk), || Duration::ZERO).await;

    assert_eq!(trial.arrivals, [0, 250, 500, 1500]);
    assert_eq!(tally, Tally::default());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_and_ignores_the_new_quota_is_banned() {
    let mut trial = Trial::new(Name::Bulk, 100, Some(50));
    let tally = trial
        .run(Throttle::new(Name::Bulk), || Duration::ZERO)
        .await;

    // The ban ends at 2250. It continues at the old rate, and the fourth request exceeds the quota.
    let arrivals = [
        0, 250, 500, 750, 1000, 1250, 2250, 2250, 2500, 2750, 4750, 4750,
    ];
    assert_eq!(trial.arrivals, arrivals);
    assert_eq!(tally.announcements, 1);
    assert_eq!((tally.violations, tally.bans), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_dispatcher_keeps_the_quota_at_any_latency() {
    fastrand::seed(11);
    for name in Name::ALL {
        for round in 0..20 {
            let messages = if name == Name::Bulk { 600 } else { 120 };
            let lower_after = fastrand::usize(..messages);
            let mut trial = Trial::new(name, messages, Some(lower_after));
            // Mostly short, sometimes very long, independent for each direction.
            let leg = || {
                let is_slow = fastrand::u8(..) < 30;
                Duration::from_millis(if is_slow { fastrand::u64(1..600) } else { 1 })
            };
            let tally = trial.run(Paced::new(name), leg).await;
            let announcements = tally.announcements;
            assert!(announcements <= u32::from(name == Name::Bulk));
            let expected = Tally {
                announcements,
                ..Tally::default()
            };
            assert_eq!(tally, expected, "{name}, round {round}");
        }
    }
}
