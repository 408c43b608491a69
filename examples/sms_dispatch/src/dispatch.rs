//! Sends one provider's messages in their order, with one request in flight, until all are sent, the provider is down, or the
//! run is stopped.

use core::{
    future::{Future, poll_fn},
    pin::pin,
    time::Duration,
};

use futures::{StreamExt, stream::LocalBoxStream};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use paceline::{
    feedback::Feedback,
    time::{Clock, Tick},
};
use tokio::{select, sync::watch};

use crate::{
    client::{Answer, Client},
    margin::Margin,
    message::Message,
    provider::Name,
};

/// Round trips to measure before the first message.
const PINGS: usize = 40;
const FIRST_BACK_OFF: Duration = Duration::from_millis(300);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// The wait after a refusal without one.
const WAIT_ANYWAY: Duration = Duration::from_secs(1);

/// Decides when the next request may leave.
pub(crate) trait Pacing {
    /// A request holds it from its turn to its answer.
    type Pass;

    /// The messages in their order, in requests, each at its turn.
    fn turns<'a>(
        &self,
        messages: &'a [Message],
    ) -> LocalBoxStream<'a, (Vec<&'a Message>, Self::Pass)>;

    /// Waits for `pause` and for another turn of the same request, since a retry is an arrival too.
    async fn again(&self, cost: u32, pause: Duration) -> Self::Pass;

    /// Takes the round trip of a request into account.
    fn answered(&mut self, _emitted: Tick, _answered: Tick) {}

    /// Takes the feedback of an answer into account, and returns whether the quota has changed.
    fn on_feedback(&mut self, _feedback: &Feedback) -> bool {
        false
    }

    fn margin(&self) -> Option<&Margin> {
        None
    }

    /// The name of the method in the report.
    fn method(&self) -> &'static str;
}

/// The state of one provider's dispatch.
#[derive(Debug)]
pub(crate) struct Dispatcher<P> {
    pub(crate) name: Name,
    pub(crate) client: Client,
    pub(crate) pacing: P,
    /// The clock by which the rows were read.
    pub(crate) clock: Clock,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) retries: u32,
    pub(crate) progress: ProgressBar,
    pub(crate) new_quota: Option<NewQuota>,
}

/// The result of one provider's dispatch.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: Name,
    pub(crate) sent: usize,
    pub(crate) unsent: Vec<Message>,
    /// The times from the reading of a row to its emission, in microseconds.
    pub(crate) waits: Histogram<u64>,
    pub(crate) method: &'static str,
    pub(crate) margin: Option<Margins>,
    pub(crate) new_quota: Option<NewQuota>,
    /// Why the provider was given up.
    pub(crate) down: Option<String>,
}

/// The margin at the start, at the end, and its maximum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margins {
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) worst: Duration,
}

/// When the provider announced another quota, and when the first request under it left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewQuota {
    pub(crate) at: Tick,
    pub(crate) obeyed: Option<Tick>,
}

/// Why a request was not accepted.
enum Undelivered {
    Stopped,
    Down(String),
}

impl<P: Pacing> Dispatcher<P> {
    pub(crate) async fn run(mut self, mut messages: Vec<Message>) -> Outcome {
        self.warm_up().await;
        let start = self.pacing.margin().map(Margin::current);
        let mut waits = Histogram::new(3).expect("three digits are fewer than five");
        let mut turns = self.pacing.turns(&messages);
        let mut sent = 0;
        let mut down = None;

        while let Some((emitted, Some(turn))) = self.unless_stopped(turns.next()).await {
            let (request, pass) = turn;
            for message in &request {
                let wait = emitted.since(message.read_at).as_micros();
                let wait = u64::try_from(wait).unwrap_or(u64::MAX);
                waits.record(wait).expect("it grows as it must");
            }
            match self.deliver(&request, emitted, pass).await {
                Ok(()) => sent += request.len(),
                Err(Undelivered::Stopped) => break,
                Err(Undelivered::Down(reason)) => {
                    down = Some(reason);
                    break;
                }
            }
            self.progress.set_position(sent as u64);
        }

        drop(turns);
        // The adapters keep the order and there is one request in flight, so the unsent messages are the last ones.
        let unsent = messages.split_off(sent);
        let margin = self
            .pacing
            .margin()
            .zip(start)
            .map(|(margin, start)| Margins {
                start,
                end: margin.current(),
                worst: margin.worst(),
            });
        Outcome {
            name: self.name,
            sent,
            unsent,
            waits,
            method: self.pacing.method(),
            margin,
            new_quota: self.new_quota,
            down,
        }
    }

    async fn warm_up(&mut self) {
        // The first round trip opens the connection, so it is not measured. Only a margin needs more.
        let mut is_up = self.client.ping().await;
        if self.pacing.margin().is_none() {
            return;
        }
        for _ in 0..PINGS {
            if !is_up {
                return;
            }
            let emitted = self.clock.now();
            is_up = self.client.ping().await;
            self.pacing.answered(emitted, self.clock.now());
        }
    }

    /// Sends one request until it is accepted.
    async fn deliver(
        &mut self,
        request: &[&Message],
        mut emitted: Tick,
        mut pass: P::Pass,
    ) -> Result<(), Undelivered> {
        let mut failures = 0;
        loop {
            if let Some(new_quota) = &mut self.new_quota {
                new_quota.obeyed.get_or_insert(emitted);
            }
            // This is not interrupted, since the provider may accept a request that is in flight.
            let (answer, feedback) = self.client.send(request).await;
            // The answer proves the arrival, so the permit cools down from here on.
            drop(pass);
            let answered = self.clock.now();
            self.pacing.answered(emitted, answered);
            if self.pacing.on_feedback(&feedback) {
                self.new_quota = Some(NewQuota {
                    at: answered,
                    obeyed: None,
                });
            }

            let pause = match answer {
                Answer::Accepted => return Ok(()),
                Answer::TooSoon => feedback.pause().unwrap_or(WAIT_ANYWAY),
                Answer::Failed(reason) if failures == self.retries => {
                    return Err(Undelivered::Down(reason));
                }
                Answer::Failed(_) => {
                    failures += 1;
                    back_off(failures)
                }
            };
            let cost = self.name.cost(request);
            let mut stop = self.stop.clone();
            (emitted, pass) = select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Err(Undelivered::Stopped),
                turn = stamped(&mut self.clock, self.pacing.again(cost, pause)) => turn,
            };
        }
    }

    /// The output of `future` and its time, or `None` when the run is stopped.
    async fn unless_stopped<F: Future>(&mut self, future: F) -> Option<(Tick, F::Output)> {
        select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            stamped = stamped(&mut self.clock, future) => Some(stamped),
        }
    }
}

/// The output of `future`, and a reading of the clock before the poll that returned it. A reading after the poll could be
/// later than the limit's own, if the thread was suspended in between, and the measured round trip would be too short (see
/// [`margin`](crate::margin)).
async fn stamped<F: Future>(clock: &mut Clock, future: F) -> (Tick, F::Output) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let before = clock.now();
        future.as_mut().poll(cx).map(|output| (before, output))
    })
    .await
}

/// An exponential back-off with a jitter of 25 %, so that requests that failed together do not return together.
fn back_off(failures: u32) -> Duration {
    let doubled = FIRST_BACK_OFF.saturating_mul(1 << (failures - 1).min(16));
    doubled
        .min(LONGEST_BACK_OFF)
        .mul_f64(0.75 + fastrand::f64() / 2.0)
}
