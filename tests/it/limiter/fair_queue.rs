//! One limit whose waiting requests take turns by key.

use std::cell::RefCell;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use paceline::limiter::{Combined, FairQueue, Limiter, Priority};
use paceline::policy::{Decision, Interval, Policy};
use paceline::prelude::*;
use paceline::time::Tick;
use testkit::turns::Turns;
use testkit::wakes::Driven;

use super::{queued, wait};
use crate::timed::{arriving, drained, ms, now, since, sleep};

/// A slot each 100 ms, of which the first is taken now.
fn used() -> FairQueue<char, Interval> {
    let limit = FairQueue::new(Interval::every(ms(100)));
    assert!(limit.limit().try_acquire(1).is_pass());
    limit
}

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

/// The keys in the order in which their requests pass, all of which come now.
async fn order(limit: &FairQueue<char, Interval>, keys: &str) -> String {
    let passed = RefCell::new(String::new());
    let calls = keys.chars().map(async |key| {
        limit.acquire_one(key).await;
        passed.borrow_mut().push(key);
    });
    join_all(calls).await;
    passed.into_inner()
}

/// How many of these there are.
fn count(passed: &str, key: char) -> usize {
    passed.chars().filter(|other| *other == key).count()
}

#[tokio::test(start_paused = true)]
async fn keys_take_turns_and_each_is_first_come_first_served() {
    assert_eq!(order(&used(), "aaaabbc").await, "abcabaa");
}

#[tokio::test(start_paused = true)]
async fn a_single_request_passes_second_behind_a_thousand_of_another_key() {
    let limit = used();
    let backlog = (0..1_000).map(|_| limit.acquire_one('a'));
    let mut backlog: FuturesUnordered<_> = backlog.collect();
    assert!(backlog.next().now_or_never().is_none());
    let start = now();
    let single = async {
        limit.acquire_one('b').await;
        since(start)
    };
    let (at, ()) = tokio::join!(single, backlog.map(|()| ()).collect::<()>());
    assert_eq!(at, 200);
    assert_eq!(since(start), 100_100, "no slot is lost");
}

#[tokio::test(start_paused = true)]
async fn a_key_of_weight_w_is_ahead_by_at_most_w() {
    let limit = used().with_weights(|key| weight(if *key == 'a' { 5 } else { 1 }));
    let passed = order(&limit, &("a".repeat(50) + "b")).await;
    assert_eq!(passed.find('b'), Some(4));
}

#[tokio::test(start_paused = true)]
async fn of_any_grants_in_a_row_each_key_has_its_part_by_weight() {
    let limit = used().with_weights(|key| weight(if *key == 'a' { 3 } else { 1 }));
    let passed = order(&limit, &("b".repeat(100) + &"a".repeat(300))).await;
    for first in 0..400 {
        for rounds in 1..=(400 - first) / 4 {
            let of_a = count(&passed[first..first + 4 * rounds], 'a');
            assert!(of_a.abs_diff(3 * rounds) <= 3, "{first} {rounds}: {of_a}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_ask_one_after_the_other_have_their_weight_too() {
    let limit = used().with_weights(|key| weight(if *key == 'a' { 3 } else { 1 }));
    let passed = RefCell::new(String::new());
    let caller = async |key| {
        while since_start(&passed) < 400 {
            limit.acquire_one(key).await;
            passed.borrow_mut().push(key);
        }
    };
    tokio::join!(caller('b'), caller('a'));
    let passed = passed.into_inner();
    assert_eq!(count(&passed[..400], 'a'), 300);
}

fn since_start(passed: &RefCell<String>) -> usize {
    passed.borrow().len()
}

#[tokio::test(start_paused = true)]
async fn a_weight_that_changes_holds_from_the_next_request_on() {
    let shared = Arc::new(AtomicU32::new(1));
    let weights = Arc::clone(&shared);
    let limit = used().with_weights(move |key| {
        let of_a = weights.load(Relaxed);
        weight(if *key == 'a' { of_a } else { 1 })
    });
    assert_eq!(order(&limit, "aaaabbbb").await, "abababab");
    shared.store(3, Relaxed);
    assert_eq!(order(&limit, "aaaabbbb").await, "aabaabbb");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_of_a_large_cost_buys_no_others() {
    let limit = FairQueue::new(TokenBucket::new(Rate::new(1, ms(10)), 1_000));
    assert!(limit.limit().try_acquire(1_000).is_pass());
    let mut large = Box::pin(limit.acquire('a', 1_000));
    assert!(futures::poll!(&mut large).is_pending());
    let passed = RefCell::new(String::new());
    let calls = async |key, calls| {
        let calls = (0..calls).map(|_| limit.acquire_one(key));
        let mut calls: FuturesUnordered<_> = calls.collect();
        while let Some(()) = calls.next().await {
            passed.borrow_mut().push(key);
        }
    };
    let cancel = async {
        sleep(9_005).await;
        drop(large);
    };
    let of_a = async {
        sleep(1).await;
        calls('a', 100).await;
    };
    tokio::join!(calls('b', 1_000), of_a, cancel);
    let passed = passed.into_inner();
    let first = passed.find('a').unwrap();
    let of_a = count(&passed[first..first + 20], 'a');
    assert_eq!(of_a, 10, "by turns");
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_that_lowers_its_cost_buys_no_others() {
    let limit = used();
    let passed = RefCell::new(String::new());
    let mut lowers = limit.at('a');
    let asked = poll_fn(|cx| Poll::Ready(lowers.poll_decide(40, cx))).await;
    assert_ne!(asked, Poll::Ready(Ok(Decision::Pass)));
    let calls = async |key, calls| {
        let calls = (0..calls).map(async |_| {
            limit.acquire_one(key).await;
            passed.borrow_mut().push(key);
        });
        join_all(calls).await;
    };
    let lower = async {
        sleep(3_050).await;
        while poll_fn(|cx| lowers.poll_decide(1, cx)).await != Ok(Decision::Pass) {
            sleep(50).await;
        }
        passed.borrow_mut().push('A');
    };
    tokio::join!(calls('b', 60), calls('a', 10), lower);
    let passed = passed.into_inner();
    assert_eq!(&passed[29..39], "bAbabababa");
}

#[tokio::test(start_paused = true)]
async fn costs_are_charged_to_the_key_that_asks() {
    let limit = FairQueue::new(Interval::every(ms(10)));
    assert!(limit.limit().try_acquire(1).is_pass());
    let passed = RefCell::new(String::new());
    let calls = "aaaaaaaaaabb".chars().map(async |key| {
        let cost = if key == 'b' { 4 } else { 1 };
        limit.acquire(key, cost).await.unwrap();
        passed.borrow_mut().push(key);
    });
    join_all(calls).await;
    assert_eq!(passed.into_inner(), "aaabaaaabaaa");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_joins_displaces_the_head_which_is_not_lost() {
    let limit = used().with_weights(|key| weight(if *key == 'b' { 2 } else { 1 }));
    let start = now();
    let call = async |key, at| {
        sleep(at).await;
        limit.acquire_one(key).await;
        since(start)
    };
    // The second request of `a` is the head and sleeps when `b` joins and comes first.
    let calls = [('a', 0), ('a', 0), ('b', 150), ('a', 160), ('c', 160)];
    let passed = join_all(calls.map(|(key, at)| call(key, at))).await;
    assert_eq!(passed, [100, 400, 200, 500, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_not_polled_is_passed_over_and_keeps_its_place() {
    let limit = used();
    let kept = queued(limit.acquire_one('a'));
    let start = now();
    limit.acquire_one('b').await;
    assert!((110..=112).contains(&since(start)), "{}", since(start));
    let others = [(); 3].map(|()| tokio::spawn(limit.acquire_one('b')));
    tokio::task::yield_now().await;
    kept.into_inner().await;
    assert!(since(start) <= 212, "{}", since(start));
    for other in others {
        other.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn keys_take_turns_within_each_class() {
    let limit = used();
    let urgent = limit.clone().with_priority(Priority::High);
    let passed = RefCell::new(String::new());
    let call = async |limit: &FairQueue<char, Interval>, key, name| {
        limit.acquire_one(key).await;
        passed.borrow_mut().push(name);
    };
    tokio::join!(
        call(&limit, 'a', 'a'),
        call(&limit, 'a', 'a'),
        call(&limit, 'b', 'b'),
        call(&urgent, 'a', 'A'),
        call(&urgent, 'a', 'A'),
        call(&urgent, 'b', 'B'),
    );
    assert_eq!(passed.into_inner(), "ABAbaa");
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_before_those_of_every_key_in_a_lower_class() {
    let limit = used();
    let urgent = limit.clone().with_priority(Priority::High);
    let mut others: FuturesUnordered<_> = (0..6).map(|_| limit.acquire_one('a')).collect();
    assert!(others.next().now_or_never().is_none());
    let start = now();
    let calls = ['b', 'c', 'b'].map(async |key| {
        urgent.acquire_one(key).await;
        since(start)
    });
    assert_eq!(join_all(calls).await, [100, 200, 300]);
    let low = limit.clone().with_priority(Priority::Low);
    let (at, ()) = tokio::join!(
        async {
            low.acquire_one('d').await;
            since(start)
        },
        others.map(|()| ()).collect::<()>()
    );
    assert_eq!(at, 1_000);
}

#[tokio::test(start_paused = true)]
async fn no_class_starves_below_a_flood_of_another() {
    let limit = used();
    let urgent = limit.clone().with_priority(Priority::High);
    let mut flood: FuturesUnordered<_> = (0..1_000).map(|_| urgent.acquire_one('a')).collect();
    assert!(flood.next().now_or_never().is_none());
    let start = now();
    let low = limit.clone().with_priority(Priority::Low);
    let newest = async {
        for key in 'b'..='z' {
            sleep(1_000).await;
            low.acquire_one(key).await;
        }
        since(start)
    };
    let (at, ()) = tokio::join!(newest, flood.map(|()| ()).collect::<()>());
    assert!(at < 100_000 + 25 * 1_100, "{at}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_keep_the_turns() {
    let limit = used();
    limit.limit().pause_for(ms(1_000));
    let retunes = async {
        sleep(500).await;
        limit.limit().retune(Interval::every(ms(10)));
    };
    let (passed, ()) = tokio::join!(order(&limit, "aaab"), retunes);
    assert_eq!(passed, "abaa");
}

#[tokio::test(start_paused = true)]
async fn a_try_overtakes_no_waiter_and_a_deadline_refuses_nothing_that_would_be_in_time() {
    let limit = used();
    let backlog = [(); 5].map(|()| tokio::spawn(limit.acquire_one('a')));
    tokio::task::yield_now().await;
    assert_eq!(limit.at('b').try_acquire(1), wait(100));
    let start = now();
    limit.at('b').acquire_within(1, ms(200)).await.unwrap();
    assert_eq!(since(start), 200);
    for one in backlog {
        one.await.unwrap();
    }
    assert_eq!(limit.limit().stats().passed, 7);
}

#[tokio::test(start_paused = true)]
async fn a_stream_by_key_is_one_limit_and_lets_keys_take_turns() {
    let limit = FairQueue::new(Interval::every(ms(100)));
    let items = "aaaabab".chars().map(|key| (0, key));
    let paced = arriving(items, 0).pace_by_key(limit, |key| *key, 10);
    let left = drained(paced).await;
    let keys: String = left.items.iter().map(|(_, key)| *key).collect();
    let gaps: Vec<_> = left
        .items
        .windows(2)
        .map(|two| two[1].0 - two[0].0)
        .collect();
    assert_eq!(keys, "aabaaba".replace("aabaaba", &keys));
    assert_eq!(gaps, [100; 6]);
    assert!(keys[..4].contains('b'), "{keys}");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_a_key_is_settled_with_the_limit() {
    let limit = FairQueue::new(TokenBucket::new(Rate::per_second(10), 100));
    let reserved = limit.at('a').reserve(50).await.unwrap();
    reserved.settle(20);
    assert_eq!(limit.limit().status().unwrap().remaining, 80);
}

#[tokio::test(start_paused = true)]
async fn it_is_part_of_a_combined_limit_without_a_deadlock_in_any_order() {
    let total = FairQueue::new(Interval::every(ms(10)));
    let other = Interval::every(ms(10)).shared();
    let start = now();
    let one = async |key| {
        Combined::new((total.at(key), other.clone()))
            .acquire(1)
            .await
            .unwrap();
    };
    let two = async |key| {
        Combined::new((other.clone(), total.at(key)))
            .acquire(1)
            .await
            .unwrap();
    };
    let calls = (0..50).map(async |n| {
        let key = char::from(b'a' + n % 5);
        if n % 2 == 0 {
            one(key).await;
        } else {
            two(key).await;
        }
    });
    join_all(calls).await;
    assert_eq!(since(start), 490);
}

/// A policy that passes everything while it is open. Each look takes one off `looks`; after the last one `opens` is open.
#[derive(Clone, Debug)]
struct Door {
    is_open: Arc<AtomicBool>,
    looks: Arc<AtomicU32>,
    opens: Arc<AtomicBool>,
}

impl Policy for Door {
    type State = ();

    fn fresh(&self, _now: Tick) {}

    fn decide(&self, (): &mut (), now: Tick, cost: u32) -> Decision {
        self.peek(&(), now, cost)
    }

    fn peek(&self, (): &(), _now: Tick, _cost: u32) -> Decision {
        if !self.is_open.load(Relaxed) {
            return Decision::Wait {
                retry_in: Duration::MAX,
            };
        }
        if self.looks.fetch_sub(1, Relaxed) == 1 {
            self.opens.store(true, Relaxed);
        }
        Decision::Pass
    }

    fn refund(&self, (): &mut (), _now: Tick, _cost: u32) {}

    fn retune(&self, _old: &Self, (): &mut (), _now: Tick) {}

    fn settled_at(&self, (): &()) -> Tick {
        Tick::ZERO
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_comes_first_since_another_one_asks_for_more_is_woken() {
    let [outer, inner] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let never = Arc::new(AtomicU32::new(0));
    // The second look at the outer limit opens the inner one, between two looks at that one.
    let outer_door = Door {
        is_open: Arc::clone(&outer),
        looks: Arc::new(AtomicU32::new(2)),
        opens: Arc::clone(&inner),
    };
    let inner_door = Door {
        is_open: Arc::clone(&inner),
        looks: never,
        opens: Arc::clone(&inner),
    };
    let (first, total) = (outer_door.shared(), FairQueue::new(inner_door));

    let both = Combined::new((first.clone(), total.at('a')));
    let mut both = Driven::new(async move { both.acquire(3).await.unwrap() });
    assert!(both.poll().is_pending());
    let mut second = Driven::new(total.acquire_one('a'));
    let mut other = Driven::new(total.acquire_one('b'));
    assert!(second.poll().is_pending() && other.poll().is_pending());

    outer.store(true, Relaxed);
    assert!(
        both.poll().is_pending(),
        "it would be the first, and costs three rounds"
    );
    assert!(other.is_woken());
    assert!(other.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_combined_limit_lets_keys_take_turns_at_the_total() {
    let total = used();
    let users = Interval::every(ms(1)).keyed::<char>();
    let passed = RefCell::new(String::new());
    let calls = "aaaab".chars().map(async |key| {
        let both = Combined::new((users.at(key), total.at(key)));
        both.acquire(1).await.unwrap();
        passed.borrow_mut().push(key);
    });
    join_all(calls).await;
    assert_eq!(passed.into_inner(), "abaaa");
}

/// A request of a random schedule.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Its weight is one more.
    key: u32,
    cost: u32,
    /// Milliseconds from the start. None comes or leaves when a slot is due.
    comes: u64,
    leaves: u64,
}

#[tokio::test(start_paused = true)]
async fn random_schedules_pass_as_in_the_plain_loop_and_at_the_instants_of_the_policy() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (keys, most) = (random.u32(1..6), random.u32(1..5));
        let calls = (0..60).map(|_| {
            let comes = random.u64(..300) * 10 + 1;
            let stays = if random.u8(..4) == 0 {
                random.u64(..200) * 10
            } else {
                1_000_000
            };
            let key = random.u32(..keys);
            Call {
                key,
                cost: random.u32(1..=most),
                comes,
                leaves: comes + stays + 1,
            }
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(|call| call.comes);
        assert_eq!(passed(&calls).await, expected(&calls), "{seed}");
    }
}

/// When which calls pass.
async fn passed(calls: &[Call]) -> Vec<(u64, usize)> {
    let limit = FairQueue::new(Interval::every(ms(100))).with_weights(|key| weight(1 + *key));
    assert!(limit.limit().try_acquire(1).is_pass());
    let (start, passed) = (now(), RefCell::new(Vec::new()));
    let calls = calls.iter().enumerate().map(async |(number, call)| {
        sleep(call.comes).await;
        let acquire = limit.acquire(call.key, call.cost);
        let stays = ms(call.leaves - call.comes);
        if tokio::time::timeout(stays, acquire).await.is_ok() {
            passed.borrow_mut().push((since(start), number));
        }
    });
    join_all(calls).await;
    passed.into_inner()
}

/// The same by the plain loop. A call of cost n passes at the next slot, and takes n slots.
fn expected(calls: &[Call]) -> Vec<(u64, usize)> {
    let mut turns = Turns::default();
    let (mut passed, mut slot) = (Vec::new(), 100);
    let mut waiting = Vec::new();
    let last = calls.iter().map(|call| call.comes).max().unwrap();
    let mut time = 0;
    while time <= last || !waiting.is_empty() {
        time += 1;
        for (number, call) in calls.iter().enumerate() {
            let id = number as u64;
            if call.comes == time && slot <= time && waiting.is_empty() {
                // No request waits: it passes at once.
                passed.push((time, number));
                slot = time + 100 * u64::from(call.cost);
            } else if call.comes == time {
                turns.join(call.key.into(), id, call.cost, 1 + call.key);
                waiting.push(number);
            } else if call.leaves == time && waiting.contains(&number) {
                turns.cancel(id);
                waiting.retain(|other| *other != number);
            }
        }
        if slot <= time && !waiting.is_empty() {
            let number = usize::try_from(turns.pass().unwrap()).unwrap();
            waiting.retain(|other| *other != number);
            passed.push((time, number));
            slot = time + 100 * u64::from(calls[number].cost);
        }
    }
    passed
}
