//! `next` is dropped at every await point, after any number of polls, while the source and a rival for the same limit do
//! anything. Then the stream is taken apart. No item and no permit is lost or counted twice.

use futures::{Stream, StreamExt};
use paceline::concurrency::Permits;
use paceline::limiter::{Exceeded, Shared};
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::stream::{
    Concurrent, Debounce, Enforce, Pace, PaceBatches, PaceByCost, PaceByKey, PaceStreamExt, Sample,
    Shed, ThrottleFirst, TryPace,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use testkit::clock::{Stopwatch, jump};
use testkit::probe::{self, Source, SourceHandle};
use testkit::wakes::Driven;

use crate::timed::ms;

const D: u64 = 10;

/// What happens between two polls of one `next`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    Arrive(u32),
    TimePasses(u64),
    /// A rival asks the limit, and gives up at once.
    RivalLeaves,
}

/// One `next`, which is polled before each of its steps and dropped after the last one.
type Call = Vec<Step>;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let step = prop_oneof![
        Just(Step::Nothing),
        (1..4_u32).prop_map(Step::Arrive),
        (0..25_u64).prop_map(Step::TimePasses),
        Just(Step::RivalLeaves),
    ];
    let call = prop::collection::vec(step, 0..5);
    prop::collection::vec(call, 1..30)
}

type Limit = Shared<Interval>;

struct Outcome {
    arrived: u32,
    /// The items of each emission, with its millisecond.
    emitted: Vec<(u128, Vec<u32>)>,
    /// The items held by the adapter, and those still in the input.
    held: Vec<u32>,
    left: Vec<u32>,
    /// Permits that the stream took.
    paid: u64,
    limit: Limit,
}

/// Makes the calls, then takes the adapter apart. `carried` returns the items in an emission.
fn outcome<S: Stream + Unpin, H: IntoIterator<Item = u32>>(
    calls: Vec<Call>,
    adapter: impl FnOnce(Source<u32>, Limit) -> S,
    mut carried: impl FnMut(S::Item) -> Vec<u32>,
    into_parts: impl FnOnce(S) -> (Source<u32>, H),
) -> Outcome {
    let runtime = testkit::clock::paused_runtime();
    runtime.block_on(async {
        let limit = Interval::every(ms(D)).shared();
        let (handle, source) = probe::source();
        let mut run = Run {
            handle,
            limit: limit.clone(),
            since_start: Stopwatch::start(),
            arrived: 0,
            rivals: 0,
        };
        let mut stream = adapter(source, limit.clone());
        let mut emitted = Vec::new();
        for call in calls {
            let item = run.next(&mut stream, &call).await;
            emitted.extend(item.map(|item| (run.since_start.elapsed_ms(), carried(item))));
        }
        run.handle.end();
        let (source, held) = into_parts(stream);
        let held = held.into_iter().collect();
        let left = source.collect().await;
        assert_eq!(limit.stats().waiting, 0);
        Outcome {
            arrived: run.arrived,
            emitted,
            held,
            left,
            paid: limit.stats().passed - run.rivals,
            limit,
        }
    })
}

/// The same of an adapter that drops items, with their number.
fn lossy_outcome<S: Stream<Item = u32> + Unpin>(
    calls: Vec<Call>,
    adapter: impl FnOnce(Source<u32>, Limit) -> S,
    dropped_count: impl FnOnce(&S) -> u64,
    into_parts: impl FnOnce(S) -> (Source<u32>, Option<u32>),
) -> (Outcome, u64) {
    let mut dropped = 0;
    let into_parts = |adapter| {
        dropped = dropped_count(&adapter);
        into_parts(adapter)
    };
    let outcome = outcome(calls, adapter, |item| vec![item], into_parts);
    (outcome, dropped)
}

struct Run {
    handle: SourceHandle<u32>,
    limit: Limit,
    since_start: Stopwatch,
    arrived: u32,
    rivals: u64,
}

impl Run {
    async fn next<S: Stream + Unpin>(&mut self, stream: &mut S, steps: &[Step]) -> Option<S::Item> {
        let mut next = Driven::new(stream.next());
        for step in steps {
            if let std::task::Poll::Ready(item) = next.poll() {
                assert!(item.is_some(), "the source has not ended");
                return item;
            }
            match *step {
                Step::Nothing => {}
                Step::Arrive(more) => {
                    for _ in 0..more {
                        self.handle.send(self.arrived);
                        self.arrived += 1;
                    }
                }
                Step::TimePasses(time) => jump(ms(time)).await,
                Step::RivalLeaves => {
                    let mut rival = Driven::new(self.limit.acquire(1));
                    self.rivals += u64::from(rival.poll().is_ready());
                }
            }
        }
        None
    }
}

impl Outcome {
    fn items(&self) -> Vec<u32> {
        self.emitted
            .iter()
            .flat_map(|(_, items)| items.clone())
            .collect()
    }

    fn count(&self) -> u64 {
        self.emitted.len().try_into().unwrap()
    }

    /// The items that are in some place.
    fn known(&self) -> u64 {
        let known = self.emitted.len() + self.held.len() + self.left.len();
        known.try_into().unwrap()
    }

    /// Every item that arrived is in exactly one place.
    fn loses_nothing(&self) -> TestCaseResult {
        let mut all = [self.items(), self.held.clone(), self.left.clone()].concat();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..self.arrived));
        Ok(())
    }

    fn is_in_order(&self) -> TestCaseResult {
        prop_assert!(self.items().is_sorted(), "{:?}", self.emitted);
        Ok(())
    }

    /// One permit for each emission, and none closer than the interval.
    fn is_paid(&self) -> TestCaseResult {
        prop_assert_eq!(self.paid, self.count());
        let mut pairs = self.emitted.windows(2);
        let are_apart = pairs.all(|pair| pair[0].0 + u128::from(D) <= pair[1].0);
        prop_assert!(are_apart, "{:?}", self.emitted);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paced_streams_lose_nothing_and_pay_once_for_each_emission(calls in calls(), max in 1..4_usize) {
        let batches = |source: Source<u32>, limit| source.pace_batches(limit, max);
        for outcome in [
            outcome(calls.clone(), PaceStreamExt::pace, |item| vec![item], Pace::into_parts),
            outcome(calls.clone(), PaceStreamExt::try_pace, |Ok(item)| vec![item], TryPace::into_parts),
            outcome(calls.clone(), batches, |batch| batch, PaceBatches::into_parts),
        ] {
            outcome.loses_nothing()?;
            outcome.is_in_order()?;
            outcome.is_paid()?;
        }
    }

    #[test]
    fn pace_by_cost_loses_nothing_and_pays_what_it_costs(calls in calls()) {
        let build = |source: Source<u32>, limit| source.pace_by_cost(limit, |item| item % 3);
        let outcome = outcome(calls, build, |item| vec![item.unwrap()], PaceByCost::into_parts);
        outcome.loses_nothing()?;
        outcome.is_in_order()?;
        let paid = outcome.items().iter().filter(|item| **item % 3 > 0).count();
        prop_assert_eq!(outcome.paid, u64::try_from(paid).unwrap());
    }

    #[test]
    fn pace_by_key_loses_nothing_and_keeps_each_key_apart(calls in calls()) {
        let keys = Interval::every(ms(D)).keyed();
        let build = |source: Source<u32>, _| source.pace_by_key(keys.clone(), |item| item % 3, 4);
        let outcome = outcome(calls, build, |item| vec![item], PaceByKey::into_parts);
        outcome.loses_nothing()?;
        for key in 0..3 {
            let of_key: Vec<_> = outcome.emitted.iter().filter(|(_, item)| item[0] % 3 == key).collect();
            let mut pairs = of_key.windows(2);
            let is_apart = pairs.all(|two| two[0].0 + u128::from(D) <= two[1].0 && two[0].1 < two[1].1);
            prop_assert!(is_apart, "{of_key:?}");
        }
        prop_assert_eq!(keys.stats().passed, outcome.count());
        prop_assert_eq!(keys.stats().waiting, 0);
    }

    #[test]
    fn enforce_loses_nothing_and_pays_for_what_passes(calls in calls()) {
        let mut passed = 0;
        let carried = |answer: Result<u32, Exceeded<u32>>| {
            passed += u64::from(answer.is_ok());
            vec![answer.unwrap_or_else(Exceeded::into_item)]
        };
        let outcome = outcome(calls, PaceStreamExt::enforce, carried, Enforce::into_parts);
        outcome.loses_nothing()?;
        outcome.is_in_order()?;
        prop_assert_eq!(outcome.paid, passed);
        prop_assert!(outcome.limit.stats().refused >= outcome.count() - passed);
    }

    #[test]
    fn shed_counts_what_it_drops_and_pays_for_what_passes(calls in calls()) {
        let (outcome, dropped) = lossy_outcome(calls, PaceStreamExt::shed, Shed::shed_count, Shed::into_parts);
        outcome.is_in_order()?;
        outcome.is_paid()?;
        prop_assert_eq!(outcome.known() + dropped, u64::from(outcome.arrived));
    }

    #[test]
    fn lossy_adapters_count_every_item_that_they_drop(calls in calls()) {
        let d = ms(3 * D);
        let debounce = |source: Source<u32>, _| source.debounce(d);
        let sample = |source: Source<u32>, _| source.sample(d);
        let keep_last = |source: Source<u32>, _| source.sample(d).with_keep_last();
        let first = |source: Source<u32>, _| source.throttle_first(d);
        let of_first = |first: ThrottleFirst<_>| (first.into_inner(), None);
        for (outcome, dropped) in [
            lossy_outcome(calls.clone(), debounce, Debounce::dropped_count, Debounce::into_parts),
            lossy_outcome(calls.clone(), sample, Sample::dropped_count, Sample::into_parts),
            lossy_outcome(calls.clone(), keep_last, Sample::dropped_count, Sample::into_parts),
            lossy_outcome(calls.clone(), first, ThrottleFirst::dropped_count, of_first),
        ] {
            outcome.is_in_order()?;
            prop_assert_eq!(outcome.known() + dropped, u64::from(outcome.arrived));
        }
    }

    /// The futures can only be dropped. They end with the stream, which releases their permits.
    #[test]
    fn concurrent_doubles_nothing_and_gives_every_permit_back(calls in calls(), most in 1..4_u32) {
        let permits = Permits::new(most);
        let wait = |item: u32| async move {
            crate::timed::sleep(u64::from(item % 4) * 7).await;
            item
        };
        let build = |source: Source<u32>, _| source.concurrent(permits.clone(), |item| Box::pin(wait(item)));
        let outcome = outcome(calls, build, |item| vec![item], Concurrent::into_parts);
        let mut known = [outcome.items(), outcome.held.clone(), outcome.left.clone()].concat();
        known.sort_unstable();
        let count = known.len();
        known.dedup();
        prop_assert_eq!(known.len(), count, "doubled");
        prop_assert!(known.last().is_none_or(|last| *last < outcome.arrived));
        let under_way = usize::try_from(outcome.arrived).unwrap() - count;
        prop_assert!(under_way <= usize::try_from(most).unwrap(), "{under_way} are lost");
        prop_assert_eq!((permits.in_use(), permits.stats().waiting), (0, 0));
    }
}
