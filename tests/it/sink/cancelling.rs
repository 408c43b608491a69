//! `send` and `feed` are dropped at every await point, after any number of polls, while the inner sink is full or not. Each
//! item that the sink was given is delivered once, in order, with one permit.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Sink, SinkExt};
use paceline::limiter::Shared;
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::sink::{PaceSinkExt, ShedSends};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use testkit::clock::jump;
use testkit::probe::{self, SinkHandle};
use testkit::wakes::Driven;

use super::driven::taken_ms;
use crate::timed::ms;

const D: u64 = 10;

/// One call. Its future is polled before each of its steps and dropped after the last one.
#[derive(Clone, Debug)]
struct Call {
    how: How,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Send,
    Feed,
    /// The sink is ready, then a rival asks, then the item is sent.
    ByHand,
}

/// What happens between two polls.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    InnerTakes(usize),
    TimePasses(u64),
    /// A rival asks the limit, and gives up at once.
    RivalLeaves,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let step = prop_oneof![
        Just(Step::Nothing),
        (1..3_usize).prop_map(Step::InnerTakes),
        (0..25_u64).prop_map(Step::TimePasses),
        Just(Step::RivalLeaves),
    ];
    let steps = prop::collection::vec(step, 0..5);
    let how = prop_oneof![Just(How::Send), Just(How::Feed), Just(How::ByHand)];
    let call = (how, steps).prop_map(|(how, steps)| Call { how, steps });
    prop::collection::vec(call, 1..25)
}

/// Records the items that a sink is given and does not return.
struct Recorded<S> {
    sink: Pin<Box<S>>,
    given: Vec<u32>,
}

impl<S: Sink<u32>> Sink<u32> for Recorded<S> {
    type Error = S::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.sink.as_mut().poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: u32) -> Result<(), S::Error> {
        // The inner sink never fails, so an error has the item in it.
        self.sink.as_mut().start_send(item)?;
        self.given.push(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.sink.as_mut().poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.sink.as_mut().poll_close(cx)
    }
}

type Limit = Shared<Interval>;

/// The results of some calls.
struct Outcome<T> {
    /// Items that the sink was given and did not return.
    given: Vec<u32>,
    /// Items that were delivered, with their milliseconds.
    taken: Vec<(u128, T)>,
    /// Permits that the sink took.
    paid: u64,
    shed: u64,
}

/// Makes the calls, then closes. A sink that drops items reports their number at the end.
fn outcome<S, T>(
    calls: Vec<Call>,
    adapter: impl FnOnce(probe::Sink<T>, Limit) -> S,
    shed_count: fn(&S) -> u64,
) -> Outcome<T>
where
    S: Sink<u32>,
{
    let runtime = testkit::clock::paused_runtime();
    runtime.block_on(async {
        let limit = Interval::every(ms(D)).shared();
        let (handle, inner) = probe::sink();
        let mut sink = Recorded {
            sink: Box::pin(adapter(inner, limit.clone())),
            given: Vec::new(),
        };
        let mut rivals = 0;
        for (item, call) in (0..).zip(calls) {
            let steps = &call.steps;
            let (is_ready, more) = match call.how {
                How::Send => polled(sink.send(item), steps, &handle, &limit).await,
                How::Feed => polled(sink.feed(item), steps, &handle, &limit).await,
                How::ByHand => {
                    let ready = poll_fn(|cx| sink.poll_ready_unpin(cx));
                    polled(ready, steps, &handle, &limit).await
                }
            };
            rivals += more;
            if let (How::ByHand, true) = (call.how, is_ready) {
                rivals += rival(&limit);
                let _ = sink.start_send_unpin(item);
            }
        }
        handle.accept_all();
        assert!(sink.close().await.is_ok());
        assert!(!handle.sent_when_not_ready());
        let Recorded { sink, given } = sink;
        let shed = shed_count(&sink);
        drop(sink);
        assert_eq!(limit.stats().waiting, 0);
        Outcome {
            given,
            taken: taken_ms(&handle),
            paid: limit.stats().passed - rivals,
            shed,
        }
    })
}

/// A rival asks once. Returns whether it got a permit.
fn rival(limit: &Limit) -> u64 {
    Driven::new(limit.acquire(1)).poll().is_ready().into()
}

/// Returns whether the future is ready, and how many rivals got a permit meanwhile.
async fn polled<T>(
    future: impl Future,
    steps: &[Step],
    handle: &SinkHandle<T>,
    limit: &Limit,
) -> (bool, u64) {
    let mut future = Driven::new(future);
    let mut rivals = 0;
    for step in steps {
        if future.poll().is_ready() {
            return (true, rivals);
        }
        match *step {
            Step::Nothing => {}
            Step::InnerTakes(more) => handle.accept(more),
            Step::TimePasses(time) => jump(ms(time)).await,
            Step::RivalLeaves => rivals += rival(limit),
        }
    }
    (false, rivals)
}

impl<T: Clone> Outcome<T> {
    fn items(&self) -> Vec<T> {
        self.taken.iter().map(|(_, item)| item.clone()).collect()
    }

    fn count(&self) -> u64 {
        self.taken.len().try_into().unwrap()
    }

    /// One permit for each item that was delivered, and none closer than the interval.
    fn is_paid(&self) -> TestCaseResult {
        prop_assert_eq!(self.paid, self.count());
        let at = self.taken.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        let mut pairs = at.windows(2);
        prop_assert!(
            pairs.all(|pair| pair[0] + u128::from(D) <= pair[1]),
            "{at:?}"
        );
        Ok(())
    }
}

/// Whether `all` contains the items of `part` in the same order.
fn is_in_order(part: &[u32], all: &[u32]) -> bool {
    let mut all = all.iter();
    part.iter().all(|item| all.any(|other| other == item))
}

/// Only for sinks that do not drop.
fn nothing<S>(_: &S) -> u64 {
    0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paced_sends_are_delivered_once_and_apart(calls in calls()) {
        let outcome = outcome(calls, PaceSinkExt::pace_sends, nothing);
        prop_assert_eq!(outcome.items(), outcome.given.clone());
        outcome.is_paid()?;
    }

    #[test]
    fn sends_by_cost_are_delivered_once_and_paid_for(calls in calls()) {
        let adapter = |sink: probe::Sink<u32>, limit| sink.pace_sends_by_cost(limit, |item| item % 3);
        let outcome = outcome(calls, adapter, nothing);
        prop_assert_eq!(outcome.items(), outcome.given.clone());
        let paid = outcome.given.iter().filter(|item| **item % 3 > 0).count();
        prop_assert_eq!(outcome.paid, u64::try_from(paid).unwrap());
    }

    #[test]
    fn enforced_sends_are_delivered_or_given_back(calls in calls()) {
        let outcome = outcome(calls, PaceSinkExt::enforce_sends, nothing);
        prop_assert_eq!(outcome.items(), outcome.given.clone());
        outcome.is_paid()?;
    }

    #[test]
    fn shed_sends_are_delivered_or_counted(calls in calls()) {
        let shed_count = |sink: &ShedSends<probe::Sink<u32>, Limit, u32>| sink.shed_count();
        let outcome = outcome(calls, PaceSinkExt::shed_sends, shed_count);
        prop_assert!(is_in_order(&outcome.items(), &outcome.given));
        prop_assert_eq!(outcome.count() + outcome.shed, u64::try_from(outcome.given.len()).unwrap());
        outcome.is_paid()?;
    }

    #[test]
    fn groups_of_sends_are_delivered_once(calls in calls(), max in 1..5_usize) {
        let adapter = |sink: probe::Sink<Vec<u32>>, _| sink.group_sends(max, ms(20));
        let outcome = outcome(calls, adapter, nothing);
        let groups = outcome.items();
        prop_assert!(groups.iter().all(|group| (1..=max).contains(&group.len())), "{groups:?}");
        prop_assert_eq!(groups.concat(), outcome.given);
    }
}
