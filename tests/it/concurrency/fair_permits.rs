//! Permits that keys divide by weight.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use futures::StreamExt;
use futures::future::join_all;
use paceline::concurrency::{Adaptive, Aimd, FairPermits, Permit, Permits};
use paceline::limiter::{Line, Priority};
use paceline::prelude::*;
use testkit::turns::Turns;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

/// Pseudo-random numbers below `n`.
fn below(seed: &mut u64, n: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) % n
}

fn part(seed: &mut u64, n: u32) -> u32 {
    u32::try_from(below(seed, n.into())).unwrap()
}

/// The index of any of these.
fn any<T>(seed: &mut u64, of: &[T]) -> usize {
    usize::try_from(below(seed, of.len() as u64)).unwrap()
}

/// One more than the number of the key.
fn weight_of(key: u64) -> NonZeroU32 {
    weight(1 + u32::try_from(key).unwrap())
}

type Request = Pin<Box<dyn Future<Output = Permit>>>;

/// Requests polled by hand, when they are woken.
struct Requests {
    permits: FairPermits<u64>,
    waiting: Vec<(u64, u64, Driven<Request>)>,
    costs: BTreeMap<u64, u32>,
    held: Vec<(u64, Permit)>,
}

impl Requests {
    fn of(permits: FairPermits<u64>) -> Self {
        Self {
            permits,
            waiting: Vec::new(),
            costs: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// The first request of the first of these keys, and its cost.
    fn first_of(&self, keys: &[u64]) -> Option<(u64, u32)> {
        let mut waiting = self.waiting.iter();
        let (_, id, _) = waiting.find(|(key, ..)| keys.first() == Some(key))?;
        Some((*id, self.costs[id]))
    }

    /// Returns whether it passes at once.
    fn join(&mut self, key: u64, id: u64, cost: u32) -> bool {
        self.costs.insert(id, cost);
        let permits = self.permits.at(key);
        let request: Request =
            Box::pin(async move { permits.acquire_many(cost).await.expect("not too many") });
        let mut request = Driven::new(request);
        let polled = request.poll();
        let passes = polled.is_ready();
        match polled {
            Poll::Ready(permit) => self.held.push((key, permit)),
            Poll::Pending => self.waiting.push((key, id, request)),
        }
        passes
    }

    /// Polls those that are woken, and returns which of them pass, in this order.
    fn passed(&mut self) -> Vec<u64> {
        let mut passed = Vec::new();
        while let Some(index) = self.waiting.iter().position(|(.., one)| one.is_woken()) {
            if let Poll::Ready(permit) = self.waiting[index].2.poll() {
                let (key, id, _) = self.waiting.remove(index);
                self.held.push((key, permit));
                passed.push(id);
            }
        }
        passed
    }
}

#[tokio::test(start_paused = true)]
async fn random_schedules_pass_as_in_the_plain_list_and_never_more_than_the_total() {
    let (mut granted, mut alone) = (0, 0);
    for seed in 0..1_000 {
        let random = &mut (seed + 1);
        let (keys, most) = (1 + below(random, 6), 1 + part(random, 4));
        let mut total = most + part(random, 8);
        let mut requests =
            Requests::of(FairPermits::new(total).with_weights(|key| weight_of(*key)));
        let mut turns = Turns::dividing(total);
        for id in 0..120 {
            match below(random, 12) {
                0..5 => {
                    let (key, cost) = (below(random, keys), 1 + part(random, most));
                    let weight = weight_of(key).get();
                    let at_once = turns.take(key, cost, weight);
                    if !at_once {
                        turns.join(key, id, cost, weight);
                    }
                    assert_eq!(requests.join(key, id, cost), at_once, "{seed} {id}");
                }
                5 if !requests.waiting.is_empty() => {
                    let index = any(random, &requests.waiting);
                    let (_, id, request) = requests.waiting.remove(index);
                    drop(request);
                    turns.cancel(id);
                }
                6 if below(random, 2) == 0 => {
                    total = if below(random, 3) == 0 {
                        0
                    } else {
                        most + part(random, 8)
                    };
                    requests.permits.total().resize(total);
                    turns.resize(total);
                }
                _ if !requests.held.is_empty() => {
                    let index = any(random, &requests.held);
                    let (key, permit) = requests.held.remove(index);
                    turns.give_back(key, permit.count());
                }
                _ => {}
            }
            let below: Vec<u64> = turns.waiting().filter(|key| turns.is_below(*key)).collect();
            let has_room = turns.in_use() < total;
            let expected: Vec<u64> = std::iter::from_fn(|| turns.pass()).collect();
            let first = requests.first_of(&below).filter(|_| has_room);
            let passed = requests.passed();
            assert_eq!(passed, expected, "{seed} {id}");
            if let (Some((id, 1)), [_]) = (first, &below[..]) {
                assert_eq!(passed.first(), Some(&id), "alone below its share");
                alone += 1;
            }
            let in_use = requests.permits.total().in_use();
            assert_eq!(in_use, turns.in_use());
            assert!(in_use <= total || expected.is_empty());
            granted += expected.len();
        }
    }
    assert!(granted > 15_000 && alone > 1_000, "{granted} {alone}");
}

/// A call of so many milliseconds.
async fn call(permits: Permits, millis: u64) {
    let _permit = permits.acquire().await;
    sleep(millis).await;
}

/// Calls that come now and hold their permits until the end, in the order in which they get them.
struct Held {
    order: RefCell<String>,
    permits: RefCell<Vec<Permit>>,
}

impl Held {
    fn new() -> Self {
        Self {
            order: RefCell::default(),
            permits: RefCell::default(),
        }
    }

    /// Requests of one permit for each of these keys, and then `work`.
    async fn while_waiting(&self, permits: &FairPermits<char>, keys: &str, work: impl Future) {
        let calls = keys.chars().map(async |key| {
            let permit = permits.at(key).acquire().await;
            self.order.borrow_mut().push(key);
            self.permits.borrow_mut().push(permit);
        });
        tokio::select! {
            biased;
            _ = join_all(calls) => {}
            _ = work => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_no_other_waits_a_key_has_all_and_then_others_get_what_comes_back() {
    let permits = FairPermits::new(4);
    let backlog = [(); 40].map(|()| tokio::spawn(call(permits.at('a'), 100)));
    sleep(10).await;
    assert_eq!(permits.total().in_use(), 4);
    let start = now();
    join_all([(); 4].map(|()| call(permits.at('b'), 100))).await;
    // Two places of four, from the first release on.
    assert_eq!(since(start), 90 + 200);
    join_all(backlog).await;
    assert_eq!(since(start), 1_090, "and none was lost");
}

#[tokio::test(start_paused = true)]
async fn a_key_alone_below_its_share_gets_the_next_permit_under_a_flood() {
    let permits = FairPermits::new(10);
    let mut flood: Vec<_> = (0..10)
        .map(|_| permits.at('a').try_acquire().unwrap())
        .collect();
    let backlog = (0..500).map(|_| tokio::spawn(permits.at('a').acquire_owned()));
    let backlog: Vec<_> = backlog.collect();
    sleep(1).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut single = waiter(permits.at('b'));
        assert!(single.poll().is_pending());
        flood.pop();
        assert!(single.is_woken());
        let Poll::Ready(permit) = single.poll() else {
            panic!("the first release");
        };
        held.push(permit);
    }
    // It has its share, and takes turns with those above from now on.
    let mut sixth = waiter(permits.at('b'));
    assert!(sixth.poll().is_pending());
    assert_eq!(permits.total().in_use(), 10);
    drop(backlog);
}

fn waiter(permits: Permits) -> Driven<Request> {
    Driven::new(Box::pin(async move { permits.acquire().await }))
}

#[tokio::test(start_paused = true)]
async fn keys_below_their_share_take_turns_by_weight_up_to_their_shares() {
    let weight_of = |key: &char| {
        weight(match key {
            'a' => 3,
            'b' => 2,
            _ => 1,
        })
    };
    let permits = FairPermits::new(12).with_weights(weight_of);
    let mut of_c: Vec<_> = (0..12)
        .map(|_| permits.at('c').try_acquire().unwrap())
        .collect();
    let held = Held::new();
    let release = async {
        for _ in 0..11 {
            sleep(1).await;
            of_c.pop();
        }
        sleep(1).await;
    };
    let keys = "c".repeat(20) + &"a".repeat(20) + &"b".repeat(20);
    held.while_waiting(&permits, &keys, release).await;
    // Shares of 6, 4 and 2. The eleventh permit is of the share of the other key.
    assert_eq!(held.order.into_inner(), "ababaababac");
}

#[tokio::test(start_paused = true)]
async fn a_request_for_several_permits_waits_for_them_and_is_not_overtaken_by_keys_above() {
    let permits = FairPermits::new(6);
    let mut of_a: Vec<_> = (0..6)
        .map(|_| permits.at('a').try_acquire().unwrap())
        .collect();
    let held = Held::new();
    let several = async {
        let permits = permits.at('b');
        let three = permits.acquire_many(3).await.unwrap();
        held.order.borrow_mut().push('3');
        three
    };
    let release = async {
        for _ in 0..5 {
            sleep(1).await;
            of_a.pop();
        }
        sleep(1).await;
    };
    let singles = held.while_waiting(&permits, "aaaaaa", release);
    let (three, ()) = tokio::join!(several, singles);
    assert_eq!(held.order.into_inner(), "3aa");
    assert_eq!(three.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_have_a_permit_each_before_any_has_a_second() {
    let permits = FairPermits::new(10);
    let passed = RefCell::new(Vec::new());
    let calls = (0..5_000).map(async |call| {
        let key = call / 5;
        let _permit = permits.at(key).acquire().await;
        passed.borrow_mut().push(key);
        sleep(1).await;
    });
    let start = now();
    join_all(calls).await;
    assert_eq!(since(start), 500, "no permit is idle");
    let passed = passed.into_inner();
    // The first key has had ten before another waited, and is alone at no time.
    let mut counts = BTreeMap::new();
    for key in &passed[10..4_000] {
        *counts.entry(key).or_insert(0) += 1;
    }
    let (least, most) = (counts.values().min(), counts.values().max());
    assert_eq!((least, most), (Some(&3), Some(&4)));
}

/// How many calls of two keys end in ten seconds, which both always have a hundred that wait.
async fn done(permits: FairPermits<char>, calls: [(char, u64); 2]) -> [u32; 2] {
    let end = now() + ms(10_000);
    let loops = calls.map(async |(key, millis)| {
        let done = AtomicU32::new(0);
        let callers = (0..100).map(async |_| {
            loop {
                call(permits.at(key), millis).await;
                if now() > end {
                    break;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _ = tokio::time::timeout_at(end, join_all(callers)).await;
        done.into_inner()
    });
    let [one, another] = loops;
    tokio::join!(one, another).into()
}

#[tokio::test(start_paused = true)]
async fn a_slow_key_has_half_of_the_permits_and_does_not_take_the_service_from_a_quick_one() {
    let calls = [('s', 1_000), ('q', 10)];
    // Five permits each: 5 calls a second, and 500.
    let [slow, quick] = done(FairPermits::new(10), calls).await;
    assert!(
        (45..=55).contains(&slow) && (4_500..=5_000).contains(&quick),
        "{slow} {quick}"
    );
    let timed = FairPermits::new(10).with_permit_seconds();
    let [slow, quick] = done(timed, calls).await;
    assert!(
        (45..=55).contains(&slow) && (4_500..=5_000).contains(&quick),
        "{slow} {quick}"
    );
}

#[tokio::test(start_paused = true)]
async fn by_permits_a_slow_key_has_as_many_calls_and_by_time_as_much_of_it() {
    let calls = [('s', 100), ('q', 1)];
    // One permit is no share to divide: they take turns.
    let [slow, quick] = done(FairPermits::new(1), calls).await;
    assert!(slow.abs_diff(quick) <= 1 && slow == 99, "{slow} {quick}");
    let timed = FairPermits::new(1).with_permit_seconds();
    let [slow, quick] = done(timed, calls).await;
    assert!(
        (49..=51).contains(&slow) && (4_900..=5_100).contains(&quick),
        "{slow} {quick}"
    );
}

#[tokio::test(start_paused = true)]
async fn by_time_weights_divide_the_time() {
    let permits = FairPermits::new(1)
        .with_weights(|key| weight(if *key == 'q' { 3 } else { 1 }))
        .with_permit_seconds();
    let [slow, quick] = done(permits, [('s', 10), ('q', 1)]).await;
    assert!(
        (245..=255).contains(&slow) && (7_450..=7_550).contains(&quick),
        "{slow} {quick}"
    );
}

#[tokio::test(start_paused = true)]
async fn by_time_a_key_that_has_paid_does_not_wait_behind_keys_that_come_anew_for_ever() {
    let permits = FairPermits::new(1).with_permit_seconds();
    let done = RefCell::new(BTreeMap::new());
    let caller = async |key| {
        for _ in 0..40 {
            call(permits.at(key), 100).await;
            *done.borrow_mut().entry(key).or_insert(0) += 1;
        }
    };
    // The key `a` always waits, and the others are forgotten after each call.
    let all = join_all(['a', 'a', 'a', 'b', 'c', 'd'].map(caller));
    let _ = tokio::time::timeout(ms(8_050), all).await;
    let of_a = done.borrow()[&'a'];
    assert!((15..=30).contains(&of_a), "{done:?}");
}

/// How many calls end in ten seconds that a key makes in this many loops, of so many milliseconds and a pause.
async fn in_loops(
    permits: &FairPermits<char>,
    key: char,
    loops: u32,
    [millis, pause]: [u64; 2],
) -> u32 {
    let end = now() + ms(10_000);
    let calls = AtomicU32::new(0);
    let loops = (0..loops).map(async |_| {
        loop {
            call(permits.at(key), millis).await;
            calls.fetch_add(1, Ordering::Relaxed);
            if pause > 0 {
                // It neither uses a permit nor waits for one.
                sleep(pause).await;
            }
        }
    });
    let _ = tokio::time::timeout_at(end, join_all(loops)).await;
    calls.into_inner()
}

#[tokio::test(start_paused = true)]
async fn by_time_a_slow_key_that_asks_one_after_another_has_no_more_of_it_than_a_quick_one() {
    for loops in [1, 100] {
        let permits = FairPermits::new(1).with_permit_seconds();
        let slow = in_loops(&permits, 's', 1, [100, 1]);
        let quick = in_loops(&permits, 'q', loops, [1, 0]);
        let (slow, quick) = tokio::join!(slow, quick);
        assert_eq!((slow, quick), (50, 5_000));
    }
}

#[tokio::test(start_paused = true)]
async fn by_permits_a_quick_key_that_asks_one_after_another_keeps_its_share_beside_a_slow_one() {
    let permits = FairPermits::new(2);
    let quick = in_loops(&permits, 'q', 1, [1, 0]);
    let slow = in_loops(&permits, 's', 5, [1_000, 0]);
    let (quick, slow) = tokio::join!(quick, slow);
    assert_eq!((quick, slow), (10_000, 10));
}

#[tokio::test(start_paused = true)]
async fn by_time_a_key_pays_only_for_the_time_in_which_another_waited() {
    let permits = FairPermits::new(1).with_permit_seconds();
    let held = permits.at('a').try_acquire();
    sleep(60_000).await;
    let order = Held::new();
    let release = async {
        sleep(1).await;
        drop(held);
        for _ in 0..4 {
            sleep(10).await;
            order.permits.borrow_mut().clear();
        }
    };
    order.while_waiting(&permits, "aabb", release).await;
    assert_eq!(*order.order.borrow(), "baba");
}

#[test]
fn keys_that_begin_to_divide_a_queue_with_the_newest_first_wake_the_oldest() {
    let total = Permits::new(1).with_newest_first(ms(0));
    let held = total.try_acquire();
    let [mut oldest, mut newest] = [(); 2].map(|()| waiter(total.clone()));
    assert!(oldest.poll().is_pending() && newest.poll().is_pending());
    drop(held);
    assert!(newest.is_woken() && !oldest.is_woken());
    let _permits = FairPermits::<char>::of(&total);
    assert!(oldest.is_woken() && oldest.poll().is_ready());
}

#[test]
fn two_divisions_of_the_same_permits_have_the_same_keys() {
    let total = Permits::new(2);
    let [one, other] = [(); 2].map(|()| FairPermits::of(&total));
    let mut held: Vec<_> = (0..2).map(|_| one.at('a').try_acquire().unwrap()).collect();
    let mut above = waiter(other.at('a'));
    let mut below = waiter(other.at('b'));
    assert!(above.poll().is_pending() && below.poll().is_pending());
    held.pop();
    assert!(below.is_woken() && !above.is_woken());
}

#[test]
fn a_key_alone_below_its_share_waits_for_one_release_whatever_the_classes() {
    let permits = FairPermits::new(2);
    let mut held: Vec<_> = (0..2)
        .map(|_| permits.at('a').try_acquire().unwrap())
        .collect();
    let mut urgent = waiter(permits.at('a').with_priority(Priority::High));
    let mut below = waiter(permits.at('b'));
    assert!(urgent.poll().is_pending() && below.poll().is_pending());
    held.pop();
    assert!(below.is_woken() && !urgent.is_woken());
}

#[tokio::test(start_paused = true)]
async fn by_time_what_a_key_held_while_none_waited_costs_nothing() {
    let permits = FairPermits::new(1).with_permit_seconds();
    call(permits.at('a'), 60_000).await;
    let held = permits.at('c').try_acquire();
    let order = Held::new();
    let release = async {
        sleep(1).await;
        drop(held);
        while order.permits.borrow().len() < 4 {
            sleep(1).await;
        }
    };
    let give_back = async {
        for _ in 0..4 {
            sleep(10).await;
            order.permits.borrow_mut().clear();
        }
    };
    let waiting = order.while_waiting(&permits, "aabb", release);
    tokio::join!(waiting, give_back);
    assert_eq!(*order.order.borrow(), "abab");
}

#[tokio::test(start_paused = true)]
async fn the_total_of_a_controller_is_never_passed_and_its_shares_follow() {
    let adaptive = Adaptive::new(Aimd::new(1, 100).with_start(8));
    let tenants = FairPermits::adaptive(&adaptive);
    let mut of_a: Vec<_> = (0..8)
        .map(|_| tenants.at('a').try_acquire().unwrap())
        .collect();
    let mut of_b = Vec::new();
    let mut waiting: Vec<_> = (0..4)
        .map(|_| Driven::new(tenants.at('b').acquire()))
        .collect();
    assert!(waiting.iter_mut().all(|one| one.poll().is_pending()));
    let mut above = Driven::new(tenants.at('a').acquire());
    assert!(above.poll().is_pending());

    // The limit falls to 4 of which 7 are in use.
    of_a.pop().unwrap().dropped();
    assert_eq!(
        (adaptive.permits().limit(), adaptive.permits().in_use()),
        (4, 7)
    );
    for _ in 0..3 {
        of_a.pop();
        assert!(waiting.iter().all(|one| !one.is_woken()));
    }
    // It has 4 permits, each key a share of 2.
    for _ in 0..2 {
        of_a.pop();
        let one = waiting.iter_mut().find(|one| one.is_woken()).unwrap();
        let Poll::Ready(permit) = one.poll() else {
            panic!("below its share");
        };
        of_b.push(permit);
        waiting.retain(|one| !one.is_woken() && one.is_waker_kept());
    }
    assert_eq!((of_a.len(), of_b.len(), waiting.len()), (2, 2, 2));
    assert_eq!(adaptive.permits().in_use(), 4);
    // A total that rises wakes the next by turns: the key that has waited for its turn.
    adaptive.permits().resize(5);
    assert!(above.is_woken() || waiting[0].is_woken());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_cancelled_or_forgotten_holds_up_no_other() {
    let permits = FairPermits::new(2);
    let mut of_a: Vec<_> = (0..2)
        .map(|_| permits.at('a').try_acquire().unwrap())
        .collect();
    let mut kept = waiter(permits.at('b'));
    let mut cancelled = waiter(permits.at('c'));
    let mut behind = waiter(permits.at('a'));
    for one in [&mut kept, &mut cancelled, &mut behind] {
        assert!(one.poll().is_pending());
    }
    of_a.pop();
    assert!(kept.is_woken());
    // It is passed over after 10 ms.
    sleep(20).await;
    assert!(cancelled.is_woken() && !behind.is_woken());
    drop(cancelled);
    assert!(behind.is_woken());
    let Poll::Ready(permit) = behind.poll() else {
        panic!("it is its turn");
    };
    of_a.pop();
    assert!(kept.poll().is_ready());
    drop(permit);
    assert_eq!(permits.total().in_use(), 0);
    assert_eq!(permits.total().stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn every_verb_of_permits_works_for_a_key() {
    let permits = FairPermits::new(2);
    let of_a = permits.at('a').acquire_many(2).await.unwrap();
    assert!(permits.at('b').try_acquire().is_none());
    let late = permits.at('b').acquire_within(ms(50)).await;
    assert!(late.unwrap_err().is_too_late());
    assert!(
        permits
            .at('b')
            .acquire_many(3)
            .await
            .unwrap_err()
            .is_too_costly()
    );
    let line = Line::new(permits.at('b')).with_max_waiting(1);
    let waits = tokio::spawn(line.acquire_permit());
    sleep(1).await;
    assert!(line.acquire_permit().await.unwrap_err().is_full());
    drop(of_a);
    drop(waits.await.unwrap().unwrap());

    let held = permits.at('a').acquire().await;
    let work = |item| async move {
        sleep(10).await;
        item
    };
    let items: Vec<_> = futures::stream::iter(0..3)
        .concurrent(permits.at('b'), work)
        .collect()
        .await;
    assert_eq!(items, [0, 1, 2]);
    drop(held);
    assert_eq!(permits.total().in_use(), 0);
}

#[test]
fn requests_without_a_key_are_one_key_of_weight_1() {
    let total = Permits::new(4);
    let mut waited = waiter(total.clone());
    let mut held: Vec<_> = (0..4).map(|_| total.try_acquire().unwrap()).collect();
    assert!(waited.poll().is_pending());
    let permits = FairPermits::of(&total);
    let mut keyless = waiter(total);
    let mut keyed = waiter(permits.at('a'));
    assert!(keyless.poll().is_pending() && keyed.poll().is_pending());
    // They use all permits, and the key none.
    let mut grants = Vec::new();
    for one in [&mut keyed, &mut waited, &mut keyless] {
        held.pop();
        assert!(one.is_woken());
        grants.push(one.poll());
    }
    assert!(grants.iter().all(Poll::is_ready));
}

#[test]
fn on_many_threads_the_total_holds_and_no_request_is_forgotten() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let permits = FairPermits::new(3).with_weights(|key| weight(1 + key % 3));
    let in_use = Arc::new(AtomicU32::new(0));
    let tasks = (0..24_u32).map(|task| {
        let (permits, in_use) = (permits.clone(), Arc::clone(&in_use));
        runtime.spawn(async move {
            for call in 0..300 {
                let cost = 1 + (task + call) % 3;
                let permit = permits
                    .at((task + call) % 7)
                    .acquire_many(cost)
                    .await
                    .unwrap();
                assert!(in_use.fetch_add(cost, Ordering::SeqCst) + cost <= 3);
                if call % 5 == 0 {
                    tokio::task::yield_now().await;
                }
                in_use.fetch_sub(cost, Ordering::SeqCst);
                drop(permit);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(permits.total().in_use(), 0);
}
