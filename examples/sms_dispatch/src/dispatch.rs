//! One provider's messages, sent in their order with one request in flight, until there are no more, or it is down, or
//! somebody says stop.

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

/// Trips to measure the way before anything is counted.
const PINGS: usize = 40;
const FIRST_BACK_OFF: Duration = Duration::from_millis(300);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// When a refusal does not say how long to wait.
const WAIT_ANYWAY: Duration = Duration::from_secs(1);

/// When the next request may go.
pub(crate) trait Pacing {
    /// What each request holds from its turn to its answer, and drops then.
    type Pass;

    /// The messages in their order, each request when its turn has come.
    fn turns<'a>(
        &self,
        messages: &'a [Message],
    ) -> LocalBoxStream<'a, (Vec<&'a Message>, Self::Pass)>;

    /// Waits for one more turn, for the same request: it is an arrival like any other. Not before `pause` is over.
    async fn again(&self, cost: u32, pause: Duration) -> Self::Pass;

    /// Hears how long a request took.
    fn answered(&mut self, _emitted: Tick, _answered: Tick) {}

    /// Hears what the headers of an answer say; whether it goes on with another quota.
    fn told(&mut self, _feedback: &Feedback) -> bool {
        false
    }

    fn margin(&self) -> Option<&Margin> {
        None
    }

    /// What keeps its requests apart, in a word or two.
    fn method(&self) -> &'static str;
}

/// Everything it takes to dispatch one provider's messages.
#[derive(Debug)]
pub(crate) struct Dispatcher<P> {
    pub(crate) name: Name,
    pub(crate) client: Client,
    pub(crate) pacing: P,
    /// The clock the rows were read by.
    pub(crate) clock: Clock,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) retries: u32,
    pub(crate) progress: ProgressBar,
    pub(crate) told: Option<Told>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: Name,
    pub(crate) sent: usize,
    pub(crate) unsent: Vec<Message>,
    /// From the row being read to its emission, in microseconds.
    pub(crate) waits: Histogram<u64>,
    pub(crate) method: &'static str,
    pub(crate) margin: Option<Margins>,
    pub(crate) told: Option<Told>,
    /// Why there was no use in going on.
    pub(crate) down: Option<String>,
}

/// The margin when it began, when it ended, and at its worst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margins {
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) worst: Duration,
}

/// When the provider told another quota, and when the first request left that obeyed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
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
        // The adapters keep the order, and nothing is sent before the last was accepted: what is left is the tail.
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
            told: self.told,
            down,
        }
    }

    async fn warm_up(&mut self) {
        // The first trip opens the connection, so it says nothing about the ones to come. What has no margin needs no more.
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
            if let Some(told) = &mut self.told {
                told.obeyed.get_or_insert(emitted);
            }
            // Not to be stopped: what is on its way may be accepted.
            let (answer, feedback) = self.client.send(request).await;
            // The answer proves the arrival: from here on a permit cools down.
            drop(pass);
            let answered = self.clock.now();
            self.pacing.answered(emitted, answered);
            if self.pacing.told(&feedback) {
                self.told = Some(Told {
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

    /// What `future` gives and when, or `None` if we are to stop.
    async fn unless_stopped<F: Future>(&mut self, future: F) -> Option<(Tick, F::Output)> {
        select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            stamped = stamped(&mut self.clock, future) => Some(stamped),
        }
    }
}

/// What `future` gives, and a reading of the clock from before the poll that gave it. Read afterwards it could be later
/// than the limit's own reading by as long as the thread was off the processor in between, and the round trip that
/// begins with it would be too short by that (see [`margin`](crate::margin)).
async fn stamped<F: Future>(clock: &mut Clock, future: F) -> (Tick, F::Output) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let before = clock.now();
        future.as_mut().poll(cx).map(|output| (before, output))
    })
    .await
}

/// Twice as long each time, and a quarter more or less, so that those who failed together do not come back together.
fn back_off(failures: u32) -> Duration {
    let doubled = FIRST_BACK_OFF.saturating_mul(1 << (failures - 1).min(16));
    doubled
        .min(LONGEST_BACK_OFF)
        .mul_f64(0.75 + fastrand::f64() / 2.0)
}
