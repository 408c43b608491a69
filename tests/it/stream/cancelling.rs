//! `next` is dropped at every await point, after any number of polls, while the source and a rival for the same limit do
//! anything. Then the stream is taken apart. No item and no permit is lost or counted twice.

use std::pin::Pin;

use futures::{Stream, StreamExt};
use paceline::concurrency::Permits;
use paceline::limiter::{Exceeded, Shared};
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::stream::PaceStreamExt;
use proptest::prelude::*;
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

struct Outcome<T> {
    arrived: u32,
    /// Each item with the millisecond of its emission.
    emitted: Vec<(u128, T)>,
    /// The items held by the adapter, and those still in the input.
    held: Vec<u32>,
    left: Vec<u32>,
    /// Permits that the stream took.
    paid: u64,
    limit: Limit,
}

/// Makes the calls, then takes the adapter apart.
fn outcome<S: Stream>(
    calls: Vec<Call>,
    adapter: impl FnOnce(Source<u32>, Limit) -> S,
    into_parts: impl FnOnce(Pin<Box<S>>) -> (Source<u32>, Vec<u32>),
) -> Outcome<S::Item> {
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
        let mut stream = Box::pin(adapter(source, limit.clone()));
        let mut emitted = Vec::new();
        for call in calls {
            let item = run.next(stream.as_mut(), &call).await;
            emitted.extend(item.map(|item| (run.since_start.elapsed_ms(), item)));
        }
        run.handle.end();
        let (source, held) = into_parts(stream);
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

struct Run {
    handle: SourceHandle<u32>,
    limit: Limit,
    since_start: Stopwatch,
    arrived: u32,
    rivals: u64,
}

impl Run {
    async fn next<S: Stream>(
        &mut self,
        mut stream: Pin<&mut S>,
        steps: &[Step],
    ) -> Option<S::Item> {
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

impl<T> Outcome<T> {
    /// Every item that arrived is in exactly one place. `emitted` has the items that were emitted.
    fn accounts_for(&self, emitted: &[u32]) -> bool {
        let mut all = [emitted, &self.held, &self.left].concat();
        all.sort_unstable();
        all.into_iter().eq(0..self.arrived)
    }

    /// One permit for each emission, and none closer than the interval.
    fn is_paid(&self) -> bool {
        let mut pairs = self.emitted.windows(2);
        self.paid == u64::try_from(self.emitted.len()).unwrap()
            && pairs.all(|pair| pair[0].0 + u128::from(D) <= pair[1].0)
    }
}

fn items<T: Copy>(emitted: &[(u128, T)]) -> Vec<T> {
    emitted.iter().map(|(_, item)| *item).collect()
}

fn one<T>((input, held): (Source<T>, Option<T>)) -> (Source<T>, Vec<T>) {
    (input, held.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pace_loses_nothing_and_pays_once(calls in calls()) {
        let outcome = outcome(
            calls,
            PaceStreamExt::pace,
            |paced| one(Pin::into_inner(paced).into_parts()),
        );
        let emitted = items(&outcome.emitted);
        prop_assert!(emitted.is_sorted() && outcome.accounts_for(&emitted));
        prop_assert!(outcome.is_paid(), "{:?}", outcome.emitted);
    }

    #[test]
    fn try_pace_loses_nothing_and_pays_once(calls in calls()) {
        let outcome = outcome(
            calls,
            PaceStreamExt::try_pace,
            |paced| one(Pin::into_inner(paced).into_parts()),
        );
        let emitted: Vec<u32> = items(&outcome.emitted).into_iter().map(|Ok(item)| item).collect();
        prop_assert!(emitted.is_sorted() && outcome.accounts_for(&emitted));
        prop_assert!(outcome.is_paid(), "{:?}", outcome.emitted);
    }

    #[test]
    fn pace_by_cost_loses_nothing_and_pays_what_it_costs(calls in calls()) {
        let outcome = outcome(
            calls,
            |source, limit| source.pace_by_cost(limit, |item| item % 3),
            |paced| one(Pin::into_inner(paced).into_parts()),
        );
        let emitted = outcome.emitted.iter().map(|(_, item)| *item.as_ref().unwrap());
        let emitted: Vec<u32> = emitted.collect();
        prop_assert!(emitted.is_sorted() && outcome.accounts_for(&emitted));
        let paid = emitted.iter().filter(|item| **item % 3 > 0).count();
        prop_assert_eq!(outcome.paid, u64::try_from(paid).unwrap());
    }

    #[test]
    fn pace_batches_loses_nothing_and_pays_for_each_batch(calls in calls(), max in 1..4_usize) {
        let outcome = outcome(
            calls,
            |source, limit| source.pace_batches(limit, max),
            |paced| Pin::into_inner(paced).into_parts(),
        );
        let batches = outcome.emitted.iter().map(|(_, batch)| batch.as_slice());
        let emitted = batches.collect::<Vec<_>>().concat();
        prop_assert!(emitted.is_sorted() && outcome.accounts_for(&emitted));
        prop_assert!(outcome.is_paid(), "{:?}", outcome.emitted);
    }

    #[test]
    fn pace_by_key_loses_nothing_and_keeps_each_key_apart(calls in calls()) {
        let keys = Interval::every(ms(D)).keyed();
        let outcome = outcome(
            calls,
            |source, _| source.pace_by_key(keys.clone(), |item| item % 3, 4),
            |paced| Pin::into_inner(paced).into_parts(),
        );
        prop_assert!(outcome.accounts_for(&items(&outcome.emitted)));
        for key in 0..3 {
            let of_key: Vec<_> = outcome.emitted.iter().filter(|(_, item)| item % 3 == key).collect();
            let mut pairs = of_key.windows(2);
            let is_apart = pairs.all(|two| two[0].0 + u128::from(D) <= two[1].0 && two[0].1 < two[1].1);
            prop_assert!(is_apart, "{of_key:?}");
        }
        prop_assert_eq!(keys.stats().passed, u64::try_from(outcome.emitted.len()).unwrap());
        prop_assert_eq!(keys.stats().waiting, 0);
    }

    #[test]
    fn enforce_loses_nothing_and_pays_for_what_passes(calls in calls()) {
        let mut outcome = outcome(
            calls,
            PaceStreamExt::enforce,
            |enforced| one(Pin::into_inner(enforced).into_parts()),
        );
        let answers = std::mem::take(&mut outcome.emitted);
        let passed = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
        let emitted = answers.into_iter().map(|(_, answer)| answer.unwrap_or_else(Exceeded::into_item));
        let emitted: Vec<u32> = emitted.collect();
        prop_assert!(emitted.is_sorted() && outcome.accounts_for(&emitted));
        prop_assert_eq!(outcome.paid, u64::try_from(passed).unwrap());
        prop_assert!(outcome.limit.stats().refused >= u64::try_from(emitted.len() - passed).unwrap());
    }

    #[test]
    fn shed_counts_what_it_drops_and_pays_for_what_passes(calls in calls()) {
        let mut dropped = 0;
        let outcome = outcome(
            calls,
            PaceStreamExt::shed,
            |shed| {
                dropped = shed.shed_count();
                one(Pin::into_inner(shed).into_parts())
            },
        );
        let emitted = items(&outcome.emitted);
        prop_assert!(emitted.is_sorted());
        let known = emitted.len() + outcome.held.len() + outcome.left.len();
        prop_assert_eq!(u64::try_from(known).unwrap() + dropped, u64::from(outcome.arrived));
        prop_assert!(outcome.is_paid(), "{:?}", outcome.emitted);
    }

    /// The futures can only be dropped. They end with the stream, which releases their permits.
    #[test]
    fn concurrent_doubles_nothing_and_gives_every_permit_back(calls in calls(), most in 1..4_u32) {
        let permits = Permits::new(most);
        let wait = |item: u32| async move {
            crate::timed::sleep(u64::from(item % 4) * 7).await;
            item
        };
        let outcome = outcome(
            calls,
            |source, _| source.concurrent(permits.clone(), wait),
            |started| one(Pin::into_inner(started).into_parts()),
        );
        let mut known = [items(&outcome.emitted), outcome.held.clone(), outcome.left.clone()].concat();
        known.sort_unstable();
        let count = known.len();
        known.dedup();
        prop_assert_eq!(known.len(), count, "doubled");
        prop_assert!(known.last().is_none_or(|last| *last < outcome.arrived));
        let under_way = usize::try_from(outcome.arrived).unwrap() - count;
        prop_assert!(under_way <= usize::try_from(most).unwrap(), "{under_way} are lost");
        prop_assert_eq!(permits.in_use(), 0);
    }
}
