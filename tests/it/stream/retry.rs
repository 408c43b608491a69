//! Calls that fail are made again, within a budget, and in the order of their key if that is asked for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures::stream::{self, FusedStream};
use futures::{FutureExt, Stream, StreamExt};
use paceline::concurrency::Permits;
use paceline::limiter::{AdaptiveRate, HoldAndProbe, Share};
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::retry::{Attempts, Failure, GiveUp, Retry, RetryBudget};
use paceline::stream::{Retried, Tried};
use proptest::prelude::{
    ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use testkit::clock::{jump, paused_runtime};
use testkit::probe;
use testkit::wakes::Driven;

use crate::timed::{arriving, drained, ms, now, since, sleep};

const REFUSED: Failure = Failure::Refused { retry_after: None };

fn refused(millis: u64) -> Failure {
    let retry_after = Some(ms(millis));
    Failure::Refused { retry_after }
}

/// The wait before each retry.
const WAIT: u64 = 100;

fn unlimited() -> Retry {
    let retry = Retry::new(RetryBudget::new(u32::MAX, Share::FULL));
    retry.with_backoff(ms(WAIT)..=ms(WAIT)).with_attempts(3)
}

/// An item of a key, whose calls take 10 ms and end as these errors say, and then well.
#[derive(Clone, Debug)]
struct Message {
    key: u32,
    n: u32,
    errors: Vec<Failure>,
}

const TAKES: u64 = 10;

fn message(key: u32, n: u32, errors: &[Failure]) -> Message {
    let errors = errors.to_vec();
    Message { key, n, errors }
}

/// A provider that remembers which calls began when.
#[derive(Clone, Default)]
struct Provider {
    begun: Rc<RefCell<Vec<(u64, u32)>>>,
    calls: Rc<RefCell<BTreeMap<u32, usize>>>,
    at_once: Rc<Cell<u32>>,
    most_at_once: Rc<Cell<u32>>,
}

impl Provider {
    fn send(
        &self,
    ) -> impl FnMut(Message) -> futures::future::LocalBoxFuture<'static, Result<u32, Failure>> + use<>
    {
        let (this, start) = (self.clone(), now());
        move |message: Message| {
            let this = this.clone();
            let send = async move {
                let _under_way = UnderWay::new(&this);
                this.begun.borrow_mut().push((since(start), message.n));
                let call = {
                    let mut calls = this.calls.borrow_mut();
                    let call = calls.entry(message.n).or_default();
                    *call += 1;
                    *call - 1
                };
                sleep(TAKES).await;
                message
                    .errors
                    .get(call)
                    .map_or(Ok(message.n), |error| Err(*error))
            };
            send.boxed_local()
        }
    }

    fn begun(&self) -> Vec<(u64, u32)> {
        self.begun.borrow().clone()
    }
}

struct UnderWay(Rc<Cell<u32>>);

impl UnderWay {
    fn new(provider: &Provider) -> Self {
        let count = provider.at_once.get() + 1;
        provider.at_once.set(count);
        provider
            .most_at_once
            .set(count.max(provider.most_at_once.get()));
        Self(Rc::clone(&provider.at_once))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

type Sent = Tried<Message, Result<u32, Failure>>;

/// The number of the message, and its attempts.
fn number(sent: Sent) -> Result<(u32, u32), (u32, Option<GiveUp>)> {
    let Tried {
        item,
        outcome,
        attempts,
        ..
    } = sent;
    let n = item.n;
    assert_eq!(attempts.given_up.is_some(), outcome.is_err());
    match outcome {
        Ok(output) => {
            assert_eq!(output, n);
            Ok((n, attempts.calls))
        }
        Err(_) => Err((n, attempts.given_up)),
    }
}

fn failure_of(failure: &Failure) -> Failure {
    *failure
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_again_after_its_wait_and_what_is_given_up_comes_back_with_its_last_error() {
    let provider = Provider::default();
    let messages = [
        message(0, 1, &[]),
        message(0, 2, &[Failure::Transient, Failure::Transient]),
        message(0, 3, &[refused(500)]),
        message(0, 4, &[Failure::Transient, Failure::Final]),
        message(
            0,
            5,
            &[
                Failure::Transient,
                refused(0),
                Failure::Transient,
                refused(7),
            ],
        ),
        message(0, 6, &[REFUSED]),
    ];
    let sent = stream::iter(messages)
        .concurrent(Permits::new(9), provider.send())
        .retry(unlimited(), failure_of, 9);
    let sent = drained(sent.map(number)).await;
    let expected = [
        (10, Ok((1, 1))),
        (120, Ok((6, 2))),
        (120, Err((4, Some(GiveUp::Final)))),
        (230, Ok((2, 3))),
        (520, Ok((3, 2))),
        (450, Ok((5, 5))),
    ];
    let mut expected = expected.to_vec();
    expected.sort_by_key(|(at, _)| *at);
    let mut items = sent.items;
    items.sort_by_key(|(at, number)| (*at, number.is_err()));
    assert_eq!(items, expected);
    assert_eq!(sent.end, 520);
}

#[tokio::test(start_paused = true)]
async fn an_item_has_as_many_attempts_as_the_retry_says() {
    let always = [Failure::Transient; 9];
    for (most, at) in [(1, 10), (2, 120), (4, 340)] {
        let provider = Provider::default();
        let sent = stream::iter([message(0, 1, &always)])
            .concurrent(Permits::new(1), provider.send())
            .retry(unlimited().with_attempts(most), failure_of, 1);
        let sent = drained(sent).await;
        let [(left_at, lost)] = &sent.items[..] else {
            panic!("one item")
        };
        assert_eq!(*left_at, at);
        assert_eq!(lost.outcome, Err(Failure::Transient));
        assert_eq!(lost.attempts.calls, most);
        assert_eq!(lost.attempts.given_up, Some(GiveUp::Attempts));
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_waits_holds_no_permit_and_takes_one_for_each_call() {
    let provider = Provider::default();
    let permits = Permits::new(1);
    let messages = [
        message(0, 1, &[Failure::Transient]),
        message(0, 2, &[]),
        message(0, 3, &[]),
    ];
    let mut sent = Box::pin(
        arriving([0, 0, 105].into_iter().zip(messages), 105)
            .concurrent(permits.clone(), provider.send())
            .retry(unlimited(), failure_of, 9),
    );
    assert_eq!(number(sent.next().await.unwrap()), Ok((2, 1)));
    assert!(sent.next().now_or_never().is_none());
    assert!(permits.try_acquire().is_some());
    let sent: Vec<_> = sent.map(number).collect().await;
    assert_eq!(sent, [Ok((3, 1)), Ok((1, 2))]);
    // The third has the permit when the retry of the first is due, at 110 ms.
    assert_eq!(provider.begun(), [(0, 1), (10, 2), (105, 3), (115, 1)]);
}

#[tokio::test(start_paused = true)]
async fn retries_that_are_due_go_before_new_items_the_longest_due_first() {
    let provider = Provider::default();
    let permits = Permits::new(3);
    let messages = [
        message(0, 1, &[refused(200)]),
        message(0, 2, &[Failure::Transient]),
        message(0, 3, &[]),
        message(0, 4, &[]),
    ];
    let mut sent = Driven::new(
        arriving([0, 0, 0, 300].into_iter().zip(messages), 300)
            .boxed_local()
            .concurrent(permits.clone(), provider.send())
            .retry(unlimited(), failure_of, 9),
    );
    assert!(sent.poll_next().is_pending());
    jump(ms(10)).await;
    assert!(sent.poll_next().is_ready(), "the third");
    assert!(sent.poll_next().is_pending());
    let others = [(); 2].map(|()| permits.try_acquire().unwrap());
    // The wake-up comes late.
    jump(ms(490)).await;
    while sent.poll_next().is_pending() {
        sleep(10).await;
    }
    drop(others);
    assert_eq!(sent.into_inner().count().await, 2);
    assert_eq!(provider.begun()[3..], [(500, 2), (510, 1), (510, 4)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_key_a_retry_after_holds_its_item_alone() {
    let provider = Provider::default();
    let messages = [
        message(1, 1, &[refused(300)]),
        message(1, 2, &[]),
        message(1, 3, &[]),
    ];
    let sent = arriving([0, 0, 50].into_iter().zip(messages), 50)
        .concurrent(Permits::new(9), provider.send())
        .retry(unlimited(), failure_of, 9);
    assert_eq!(sent.count().await, 3);
    assert_eq!(provider.begun(), [(0, 1), (0, 2), (50, 3), (310, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_holds_the_items_of_its_key_and_the_others_go_on() {
    let provider = Provider::default();
    let messages = [
        message(1, 1, &[refused(300), refused(200)]),
        message(1, 2, &[refused(400)]),
        message(2, 3, &[Failure::Transient]),
        message(1, 4, &[]),
        message(2, 5, &[]),
        message(1, 6, &[]),
    ];
    let sent = arriving([0, 0, 0, 50, 60, 400].into_iter().zip(messages), 400)
        .concurrent(Permits::new(9), provider.send())
        .retry(unlimited(), failure_of, 9)
        .held_by_key(|message| message.key);
    let sent = drained(sent.map(number)).await;
    // Of key 1 all wait for the longer of both times, and then the first alone.
    let begun = [
        (0, 1),
        (0, 2),
        (0, 3),
        (60, 5),
        (110, 3),
        (410, 1),
        (410, 2),
        (410, 4),
        (410, 6),
        (620, 1),
    ];
    assert_eq!(provider.begun(), begun);
    assert_eq!(sent.end, 630);
}

#[tokio::test(start_paused = true)]
async fn when_the_last_item_of_a_key_is_given_up_for_a_retry_after_the_key_stays_held() {
    for is_ordered in [true, false] {
        let provider = Provider::default();
        let messages = [
            message(1, 1, &[refused(300)]),
            message(1, 2, &[]),
            message(2, 3, &[]),
            message(1, 4, &[]),
        ];
        let no_retry = Retry::new(RetryBudget::new(0, Share::NONE));
        let sent = arriving([0, 100, 100, 500].into_iter().zip(messages), 500)
            .concurrent(Permits::new(9), provider.send())
            .retry(no_retry, failure_of, 9);
        let sent = if is_ordered {
            sent.ordered_by_key(|message| message.key)
        } else {
            sent.held_by_key(|message| message.key)
        };
        assert_eq!(sent.count().await, 4);
        assert_eq!(provider.begun(), [(0, 1), (100, 3), (310, 2), (500, 4)]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_an_item_is_given_up_for_a_retry_after_the_next_of_its_key_is_held() {
    for is_ordered in [true, false] {
        let provider = Provider::default();
        let messages = [
            message(1, 1, &[refused(300), refused(500)]),
            message(1, 2, &[]),
            message(1, 3, &[]),
        ];
        let retry = Retry::new(RetryBudget::new(1, Share::NONE));
        let sent = arriving([0, 5, 20].into_iter().zip(messages), 20)
            .concurrent(Permits::new(1), provider.send())
            .retry(retry, failure_of, 9);
        let sent = if is_ordered {
            sent.ordered_by_key(|message| message.key)
        } else {
            sent.held_by_key(|message| message.key)
        };
        let sent = drained(sent.map(number)).await;
        let budget = Some(GiveUp::Budget);
        assert_eq!(
            sent.items,
            [
                (320, Err((1, budget))),
                (830, Ok((2, 1))),
                (840, Ok((3, 1)))
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn messages_1_to_5_of_a_key_arrive_as_1_to_5_whatever_fails() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut messages = Vec::new();
        let mut at = 0;
        for n in 1..=5 {
            for key in 0..6 {
                let errors = (0..random.u32(0..4)).map(|_| any_failure(&mut random));
                let errors: Vec<_> = errors.collect();
                messages.push((at, message(key, key * 10 + n, &errors)));
                at += random.u64(0..30);
            }
        }
        let provider = Provider::default();
        let permits = Permits::new(random.u32(1..9));
        let sent = arriving(messages, at)
            .concurrent(permits.clone(), provider.send())
            .retry(unlimited(), failure_of, random.usize(1..40))
            .ordered_by_key(|message| message.key);
        let sent: Vec<_> = sent.collect().await;
        assert_eq!(sent.len(), 30, "{seed}");
        assert_eq!(permits.in_use(), 0);
        for key in 0..6 {
            let numbers = |n: &u32| (n / 10 == key).then_some(n % 10);
            let left = sent.iter().filter_map(|sent| numbers(&sent.item.n));
            let left: Vec<_> = left.collect();
            assert_eq!(left, [1, 2, 3, 4, 5], "{seed}");
            let begun = provider.begun().into_iter();
            let mut begun: Vec<_> = begun.filter_map(|(_, n)| numbers(&n)).collect();
            begun.dedup();
            assert_eq!(begun, [1, 2, 3, 4, 5], "{seed}: no later one in between");
        }
    }
}

fn any_failure(random: &mut Rng) -> Failure {
    match random.u32(0..10) {
        0 => Failure::Final,
        1..5 => Failure::Transient,
        5..7 => REFUSED,
        _ => refused(random.u64(0..40) * 10),
    }
}

/// When each message leaves: those of a key one after the other, and no key waits for another.
fn modelled(messages: &[(u64, Message)]) -> Vec<(u64, u32, u32, bool)> {
    let mut free_from = BTreeMap::new();
    let mut left = Vec::new();
    for (at, message) in messages {
        let free: &mut u64 = free_from.entry(message.key).or_default();
        let mut time = (*free).max(*at);
        let (mut calls, mut attempts) = (0, 0);
        let is_sent = loop {
            time += TAKES;
            let error = message.errors.get(calls);
            calls += 1;
            attempts += u32::from(!matches!(error, Some(Failure::Refused { .. })));
            match error {
                None => break true,
                Some(Failure::Final) => break false,
                Some(Failure::Transient) if attempts == 3 => break false,
                Some(Failure::Refused {
                    retry_after: Some(wait),
                }) => {
                    time += u64::try_from(wait.as_millis()).unwrap().max(WAIT);
                }
                _ => time += WAIT,
            }
        };
        *free = time;
        left.push((time, message.n, u32::try_from(calls).unwrap(), is_sent));
    }
    left.sort_unstable();
    left
}

#[tokio::test(start_paused = true)]
async fn random_messages_of_ordered_keys_leave_exactly_when_a_naive_model_says() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let mut at = 0;
        let messages = (0..40).map(|n| {
            at += random.u64(0..5) * 10;
            let errors = (0..random.u32(0..5)).map(|_| any_failure(&mut random));
            let errors: Vec<_> = errors.collect();
            (at, message(random.u32(0..5), n, &errors))
        });
        let messages: Vec<_> = messages.collect();
        let provider = Provider::default();
        let sent = arriving(messages.clone(), at)
            .concurrent(Permits::new(99), provider.send())
            .retry(unlimited(), failure_of, 99)
            .ordered_by_key(|message| message.key);
        let sent = drained(sent).await;
        let left = sent.items.into_iter().map(|(at, sent)| {
            let is_sent = sent.outcome.is_ok();
            (at, sent.item.n, sent.attempts.calls, is_sent)
        });
        let mut left: Vec<_> = left.collect();
        left.sort_unstable();
        assert_eq!(left, modelled(&messages), "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_retries_are_at_most_the_reserve_and_the_share_of_the_successes() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let (cap, parts) = (random.u32(0..10), random.u32(0..=10_000));
        let budget = RetryBudget::new(cap, Share::of_ten_thousand(parts));
        let retry = Retry::new(budget).with_attempts(9).with_seed(seed);
        let messages = (0..200).map(|n| {
            let errors = (0..random.u32(0..4)).map(|_| any_failure(&mut random));
            message(n % 7, n, &errors.collect::<Vec<_>>())
        });
        let provider = Provider::default();
        let sent = stream::iter(messages.collect::<Vec<_>>())
            .concurrent(Permits::new(20), {
                let mut request = provider.send();
                move |message| request(message)
            })
            .retry(retry, failure_of, 100)
            .held_by_key(|message| message.key);
        let sent: Vec<_> = sent.collect().await;
        let successes = sent.iter().filter(|sent| sent.outcome.is_ok()).count() as u64;
        let retries = provider.begun().len() as u64 - 200;
        assert_eq!(sent.len(), 200);
        let most = 10_000 * u64::from(cap) + u64::from(parts) * successes;
        assert!(10_000 * retries <= most, "{seed}: {retries} retries");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_refuses_for_60_s_sees_what_was_under_way_and_11_probes() {
    for seed in 0..5 {
        const PERMITS: u32 = 8;
        let start = now();
        let refuses = Duration::from_secs(10)..Duration::from_secs(70);
        let refusals = Rc::new(Cell::new(0));
        let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000));
        let rate = AdaptiveRate::new(rule.with_start(Rate::per_second(50)));
        let request = |n: u32| {
            let (rate, refusals, refuses) = (rate.clone(), Rc::clone(&refusals), refuses.clone());
            async move {
                let call = rate.call().await;
                sleep(70).await;
                if refuses.contains(&start.elapsed()) {
                    refusals.set(refusals.get() + 1);
                    call.refused(None);
                    return Err(REFUSED);
                }
                call.accepted();
                Ok(n)
            }
        };
        let retry = Retry::new(RetryBudget::new(100, Share::percent(10))).with_seed(seed);
        let sent = stream::iter(0..3_000)
            .concurrent(Permits::new(PERMITS), request)
            .retry(retry, failure_of, 1_000);
        let mut sent: Vec<_> = sent.map(|sent| sent.outcome.unwrap()).collect().await;
        sent.sort_unstable();
        assert_eq!(
            sent,
            (0..3_000).collect::<Vec<_>>(),
            "no refusal is an attempt"
        );
        assert!(start.elapsed() > Duration::from_secs(70));
        assert!(refusals.get() <= PERMITS + 11, "{seed}: {}", refusals.get());
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_charged_by_the_limit_inside_of_the_future() {
    let limit = Interval::every(ms(100)).shared();
    let provider = Provider::default();
    let mut request = provider.send();
    let request = |message| {
        let (limit, sent) = (limit.clone(), request(message));
        async move {
            limit.acquire_one().await;
            sent.await
        }
    };
    let messages = (0..10).map(|n| message(0, n, &[Failure::Transient, refused(150)]));
    let sent = stream::iter(messages).concurrent(Permits::new(5), request);
    let sent = sent.retry(unlimited(), failure_of, 9);
    assert_eq!(
        sent.filter(|sent| std::future::ready(sent.outcome.is_ok()))
            .count()
            .await,
        10
    );
    assert_eq!(limit.stats().passed, 30);
    let begun: Vec<_> = provider.begun().iter().map(|(at, _)| *at).collect();
    assert!(begun.windows(2).all(|pair| pair[0] + 100 <= pair[1]));
}

#[tokio::test(start_paused = true)]
async fn it_holds_at_most_its_room_and_leaves_the_input_alone_when_that_is_full() {
    let provider = Provider::default();
    let (handle, source) = probe::source();
    (1..=9).for_each(|n| handle.send(message(0, n, &[Failure::Transient])));
    handle.end();
    let mut sent = Driven::new(
        source
            .concurrent(Permits::new(2), provider.send())
            .retry(unlimited(), failure_of, 3)
            .ordered_by_key(|message| message.n % 2),
    );
    assert!(sent.poll_next().is_pending());
    // 1 and 2 are under way, and 3 waits behind 1.
    let polls = handle.polls();
    jump(ms(10)).await;
    assert!(sent.poll_next().is_pending());
    assert_eq!(handle.polls(), polls);
    let stream = sent.into_inner();
    assert_eq!(stream.size_hint(), (9, Some(9)));
    let (rest, held) = stream.into_parts();
    let held: Vec<_> = held
        .iter()
        .map(|(message, attempts)| (message.n, attempts.calls))
        .collect();
    assert_eq!(held, [(1, 1), (2, 1), (3, 0)]);
    assert_eq!(
        rest.map(|message| message.n).collect::<Vec<_>>().await,
        [4, 5, 6, 7, 8, 9]
    );
}

#[tokio::test(start_paused = true)]
async fn taken_apart_it_returns_the_items_under_way_too_and_says_which_they_are() {
    let provider = Provider::default();
    let permits = Permits::new(2);
    let messages = [
        message(1, 1, &[Failure::Transient]),
        message(1, 2, &[]),
        message(2, 3, &[]),
        message(3, 4, &[]),
        message(4, 5, &[]),
    ];
    let mut sent = stream::iter(messages)
        .concurrent(permits.clone(), provider.send())
        .retry(unlimited(), failure_of, 9)
        .ordered_by_key(|message| message.key);
    assert_eq!(number(sent.next().await.unwrap()), Ok((3, 1)));
    assert!(sent.next().now_or_never().is_none());
    assert_eq!(permits.in_use(), 2);
    assert_eq!(sent.size_hint(), (4, Some(4)));
    let (mut rest, held) = sent.into_parts();
    let held = held.iter().map(
        |(
            message,
            Attempts {
                calls,
                is_under_way,
                ..
            },
        )| (message.n, *calls, *is_under_way),
    );
    let expected = [(1, 1, false), (2, 0, false), (4, 0, true), (5, 0, true)];
    assert_eq!(held.collect::<Vec<_>>(), expected);
    assert_eq!((permits.in_use(), provider.at_once.get()), (0, 0));
    assert!(rest.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_item_that_has_to_wait_leaves_the_queue_for_permits() {
    let provider = Provider::default();
    let permits = Permits::new(2);
    let other = permits.try_acquire().unwrap();
    let messages = [message(1, 1, &[refused(300)]), message(1, 2, &[])];
    let mut sent = Driven::new(
        stream::iter(messages)
            .concurrent(permits.clone(), provider.send())
            .retry(unlimited(), failure_of, 9)
            .held_by_key(|message| message.key),
    );
    assert!(sent.poll_next().is_pending());
    let mut rival = Driven::new(permits.acquire());
    assert!(rival.poll().is_pending(), "the second item is queued");
    jump(ms(10)).await;
    assert!(sent.poll_next().is_pending());
    assert!(rival.poll().is_ready(), "and its key is held now");
    drop(other);
    assert_eq!(sent.into_inner().count().await, 2);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_call_panics_is_dropped_and_its_key_goes_on() {
    for panics_in_the_function in [false, true] {
        let permits = Permits::new(2);
        let request = |(key, n): (u32, u32)| async move {
            assert!(n != 1 || panics_in_the_function, "on purpose");
            sleep(10).await;
            if n == 1 { Err(()) } else { Ok(key) }
        };
        let failure_of = |&(): &()| panic!("on purpose");
        let mut sent = Box::pin(
            stream::iter([(1, 1), (1, 2), (2, 3), (1, 4)])
                .concurrent(permits.clone(), request)
                .retry(unlimited(), failure_of, 9)
                .ordered_by_key(|(key, _)| *key),
        );
        let mut left = Vec::new();
        let mut panics = 0;
        while !sent.is_terminated() {
            match AssertUnwindSafe(sent.next()).catch_unwind().await {
                Ok(Some(sent)) => left.push(sent.item.1),
                Ok(None) => break,
                Err(_) => panics += 1,
            }
        }
        left.sort_unstable();
        assert_eq!((panics, &left[..]), (1, &[2, 3, 4][..]));
        assert_eq!(permits.in_use(), 0);
        assert_eq!(sent.size_hint(), (0, Some(0)));
    }
}

#[test]
fn a_function_that_panics_when_it_starts_a_call_is_called_again() {
    let permits = Permits::new(1);
    let mut has_panicked = false;
    let request = |n: u32| {
        assert!(std::mem::replace(&mut has_panicked, true), "on purpose");
        std::future::ready(Ok::<_, ()>(n))
    };
    let retried = stream::iter([1, 2]).concurrent(permits.clone(), request);
    let mut sent = Driven::new(retried.retry(unlimited(), |()| Failure::Final, 9));
    assert!(catch_unwind(AssertUnwindSafe(|| sent.poll_next())).is_err());
    assert_eq!(permits.in_use(), 0);
    for n in [1, 2] {
        let Poll::Ready(Some(sent)) = sent.poll_next() else {
            panic!("{n} is sent")
        };
        assert_eq!(sent.outcome, Ok(n));
    }
}

#[test]
fn calls_that_are_under_way_cannot_be_retried() {
    let mut calls = stream::iter([1, 2]).concurrent(Permits::new(1), |_| {
        std::future::pending::<Result<(), ()>>()
    });
    let retried = |calls| Retried::try_new(calls, unlimited(), |()| Failure::Final, 9);
    assert!(calls.next().now_or_never().is_none());
    let error = retried(calls).err().unwrap();
    assert_eq!(error.parameter(), "calls");
    assert_eq!(
        error.to_string(),
        "retries need calls that have not begun, got some under way"
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_error_and_the_item_are_not_printed() {
    let provider = Provider::default();
    let sent = stream::iter([message(0, 1, &[Failure::Final])])
        .concurrent(Permits::new(1), provider.send());
    let mut sent = sent.retry(unlimited(), failure_of, 1);
    let lost = sent.next().await.unwrap();
    let printed = "Tried { attempts: Attempts { calls: 1, refusals: 0, is_under_way: false, given_up: Some(Final) }, .. }";
    assert_eq!(format!("{lost:?}"), printed);
}

/// What happens between two polls of one `next`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    Arrive(u32),
    TimePasses(u64),
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// `next` is dropped at every await point.
    #[test]
    fn nothing_is_lost_or_doubled_when_next_is_dropped_and_the_stream_taken_apart(
        calls in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![
                proptest::strategy::Just(Step::Nothing),
                (1..4_u32).prop_map(Step::Arrive),
                (0..15_u64).prop_map(|time| Step::TimePasses(time * 10)),
            ], 0..5), 1..40),
        seed in 0..1_000_u64,
        is_ordered in proptest::bool::ANY,
    ) {
        paused_runtime().block_on(async {
            let mut random = Rng::with_seed(seed);
            let provider = Provider::default();
            let permits = Permits::new(random.u32(1..5));
            let room = random.usize(1..9);
            let (handle, source) = probe::source();
            let sent = source
                .concurrent(permits.clone(), provider.send())
                .retry(unlimited(), failure_of, room);
            let mut sent = if is_ordered {
                sent.ordered_by_key(|message: &Message| message.key)
            } else {
                sent.held_by_key(|message| message.key)
            };
            let (mut arrived, mut left) = (0, Vec::new());
            for call in calls {
                let mut next = Driven::new(sent.next());
                for step in call {
                    if let Poll::Ready(item) = next.poll() {
                        left.push(number(item.unwrap()).map_or_else(|lost| lost.0, |sent| sent.0));
                        break;
                    }
                    match step {
                        Step::Nothing => {}
                        Step::Arrive(more) => for _ in 0..more {
                            let errors = (0..random.u32(0..4)).map(|_| any_failure(&mut random));
                            let errors: Vec<_> = errors.collect();
                            handle.send(message(random.u32(0..3), arrived, &errors));
                            arrived += 1;
                        },
                        Step::TimePasses(time) => jump(ms(time)).await,
                    }
                }
                drop(next);
                prop_assert!(sent.size_hint().0 <= room + arrived as usize - left.len());
            }
            handle.end();
            let under_way = provider.at_once.get();
            let (rest, held) = sent.into_parts();
            prop_assert!(held.len() <= room);
            prop_assert!(held.iter().map(|(message, _)| message.n).is_sorted());
            prop_assert!(held.iter().filter(|(_, attempts)| attempts.is_under_way).count() >= under_way as usize);
            prop_assert_eq!(permits.in_use(), 0);
            prop_assert!(permits.try_acquire().is_some());
            let rest: Vec<_> = rest.map(|message| message.n).collect().await;
            let held = held.into_iter().map(|(message, _)| message.n).collect();
            let mut all = [left, held, rest].concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..arrived));
            Ok(())
        })?;
    }
}
