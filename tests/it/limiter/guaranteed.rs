//! Clients of which each has a guaranteed share of one rate, and borrows what overflows the buckets of the others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use paceline::fair::{ClientTerms, GuaranteedShare};
use paceline::feedback::Feedback;
use paceline::limiter::{ClientShare, Fair, Limiter, Limits, Obey, Quota, Share};
use paceline::policy::Decision;
use paceline::prelude::*;
use testkit::clock::jump;

use super::{queued, spawned, too_costly, wait};
use crate::timed::{ms, now, since, sleep};

type Clients = Fair<&'static str, GuaranteedShare>;

/// 100 permits a second: all buckets together hold 100, and the pool 25.
const SHARE: GuaranteedShare = GuaranteedShare::new(100, ms(1_000));

/// These clients, whose buckets are full, as is the pool.
fn full(clients: &[&'static str]) -> Clients {
    let fair = Fair::new(SHARE);
    for client in clients {
        assert!(fair.try_acquire(client, 1).is_pass());
        fair.at(client).refund(1);
    }
    fair
}

fn four() -> Clients {
    full(&["a", "b", "c", "d"])
}

/// How many single permits pass until one is refused.
fn take(clients: &Clients, client: &'static str) -> u32 {
    let passed = (0..1_000).take_while(|_| clients.try_acquire(&client, 1).is_pass());
    passed.count().try_into().unwrap()
}

/// Four clients that have taken everything.
fn spent() -> Clients {
    let clients = four();
    let taken = ["a", "b", "c", "d"].map(|client| take(&clients, client));
    assert_eq!(taken, [50, 25, 25, 25], "the first one also takes the pool");
    clients
}

/// After how many milliseconds each of these requests for one permit passes.
async fn passed_at(clients: &Clients, client: &'static str, requests: usize) -> Vec<u64> {
    spawned((0..requests).map(|_| clients.acquire(client, 1))).await
}

fn share_of(clients: &Clients, client: &'static str) -> ClientShare<&'static str> {
    let mut shares = clients.shares().into_iter();
    shares
        .find(|share| share.key == Some(client))
        .expect("it is remembered")
}

#[tokio::test(start_paused = true)]
async fn a_client_borrows_what_overflows_the_buckets_of_the_others() {
    let clients = four();
    assert_eq!(take(&clients, "a"), 50);
    assert_eq!(clients.try_acquire(&"a", 1), wait(10));
    let tens: Vec<_> = (1..=30).map(|n| 10 * n).collect();
    assert_eq!(passed_at(&clients, "a", 30).await, tens, "the whole rate");
    for client in ["b", "c", "d"] {
        assert_eq!(take(&clients, client), 25, "a full bucket");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_all_ask_for_more_have_their_shares() {
    let clients = spent();
    let forties: Vec<_> = (1..=20).map(|n| 40 * n).collect();
    let passed = futures::join!(
        passed_at(&clients, "a", 20),
        passed_at(&clients, "b", 20),
        passed_at(&clients, "c", 20),
        passed_at(&clients, "d", 20),
    );
    assert_eq!(
        passed,
        (forties.clone(), forties.clone(), forties.clone(), forties)
    );
}

#[tokio::test(start_paused = true)]
async fn shares_are_by_weight() {
    let share = GuaranteedShare::new(50, ms(1_000));
    let clients: Clients = Fair::new(share).with_terms(|client| {
        let weight = if *client == "a" { 4 } else { 1 };
        ClientTerms::new().try_with_weight(weight).unwrap()
    });
    for client in ["a", "b"] {
        assert!(clients.try_acquire(&client, 1).is_pass());
    }
    assert_eq!((take(&clients, "a"), take(&clients, "b")), (39 + 12, 9));
    let (a, b) = futures::join!(passed_at(&clients, "a", 16), passed_at(&clients, "b", 4));
    assert_eq!(a, (1..=16).map(|n| 25 * n).collect::<Vec<_>>());
    assert_eq!(b, [100, 200, 300, 400]);
}

/// Three lenders that ask for all that their share allows, each in another way, and one client that takes all it can get.
#[tokio::test(start_paused = true)]
async fn a_client_within_its_share_is_never_refused_whatever_the_others_ask() {
    let clients = four();
    let (mut lent, mut taken) = (0, 60);
    for _ in 0..20 {
        tokio::spawn(clients.acquire("d", 3));
    }
    for at in 0..30_000_u64 {
        let steady = u32::from(at % 40 == 0);
        let in_bursts = if at % 1_000 == 0 { 25 } else { 0 };
        let rests = if (40..2_000).contains(&(at % 10_000)) {
            steady
        } else {
            0
        };
        let saved_up = if at % 10_000 == 9_999 { 25 } else { 0 };
        for (client, asked) in [("a", steady), ("b", in_bursts), ("c", rests + saved_up)] {
            for _ in 0..asked {
                assert!(clients.try_acquire(&client, 1).is_pass(), "{client} {at}");
                lent += 1;
            }
        }
        taken += take(&clients, "d");
        sleep(1).await;
    }
    // 125 at the start and 100 a second, all but what the buckets hold.
    assert_eq!(clients.stats().waiting, 0);
    assert!((3_000..=3_125).contains(&(lent + taken)));
    assert_eq!(lent, 750 + 750 + 3 * 49 + 3 * 25);
}

#[tokio::test(start_paused = true)]
async fn more_than_a_bucket_and_the_pool_hold_is_refused_for_ever() {
    let clients = four();
    let never = Decision::Never { capacity: 50 };
    assert_eq!(clients.try_acquire(&"a", 51), never);
    assert!(clients.try_acquire(&"a", 50).is_pass());
    let refused = clients.acquire("a", 51).await.unwrap_err();
    assert_eq!(too_costly(refused), (51, 50));

    let mut waiter = queued(clients.acquire("a", 50));
    clients.retune(GuaranteedShare::new(80, ms(1_000)));
    assert!(waiter.is_woken());
    let refused = waiter.poll();
    let refused = refused.map(|answer| too_costly(answer.unwrap_err()));
    assert_eq!(refused, std::task::Poll::Ready((50, 40)));
}

#[tokio::test(start_paused = true)]
async fn a_large_request_waits_for_its_bucket_and_the_pool_together() {
    let clients = four();
    assert_eq!(take(&clients, "a"), 50);
    let start = now();
    clients.acquire("a", 50).await.unwrap();
    // The pool is full after 333 ms, and the bucket after a second.
    assert_eq!(since(start), 1_000);
    assert_eq!(take(&clients, "b"), 25);
}

#[tokio::test(start_paused = true)]
async fn a_retune_changes_when_waiters_pass() {
    let clients = spent();
    let waiters = spawned((0..2).map(|_| clients.acquire("a", 1)));
    sleep(20).await;
    // Half a permit is there. Now it has 50 a second.
    clients.retune(GuaranteedShare::new(200, ms(1_000)));
    assert_eq!(waiters.await, [30, 50]);
    assert_eq!(clients.share().capacity(), 200);

    let waiters = spawned([clients.acquire("a", 1)]);
    sleep(10).await;
    clients.retune(GuaranteedShare::new(40, ms(1_000)));
    assert_eq!(waiters.await, [60], "10 a second for the second half");
}

#[tokio::test(start_paused = true)]
async fn a_retune_asks_for_the_weights_again() {
    let weight = Arc::new(Mutex::new(1));
    let of_a = Arc::clone(&weight);
    let clients = Fair::new(SHARE).with_terms(move |client: &&'static str| {
        let weight = if *client == "a" {
            *of_a.lock().unwrap()
        } else {
            1
        };
        ClientTerms::new().try_with_weight(weight).unwrap()
    });
    assert!(clients.try_acquire(&"b", 1).is_pass());
    assert!(clients.try_acquire(&"a", 1).is_pass());
    *weight.lock().unwrap() = 4;
    clients.retune(clients.share());
    let quota = |client| clients.status(&client).unwrap().quota.unwrap().permits;
    assert_eq!((quota("a"), quota("b")), (80, 20));
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_all_clients_and_buckets_fill_meanwhile() {
    let clients = spent();
    clients.pause_for(ms(400));
    assert_eq!(clients.try_acquire(&"a", 1), wait(400));
    assert_eq!(clients.try_acquire(&"a", 0), Decision::Pass);
    let passed = futures::join!(passed_at(&clients, "a", 11), passed_at(&clients, "b", 10));
    assert_eq!(passed.0, [vec![400; 10], vec![440]].concat());
    assert_eq!(passed.1, [400; 10]);

    clients.pause_for(Duration::MAX);
    let mut waiter = queued(clients.acquire_one("c"));
    sleep(1_000).await;
    clients.resume();
    assert!(waiter.is_woken() && waiter.poll().is_ready());
    let asked = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    assert!(clients.at("a").obey(&asked).is_none());
    assert_eq!(clients.paused_for(), Some(ms(2_000)));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_wakes_the_client_and_then_the_borrowers() {
    let clients = spent();
    let mut own = queued(clients.acquire("a", 10));
    let mut borrower = queued(clients.acquire("b", 1));
    clients.at("a").refund(10);
    assert!(own.is_woken() && own.poll().is_ready());
    assert!(borrower.poll().is_pending(), "it went into the bucket of a");

    // What a bucket has no room for goes into the pool.
    clients.at("c").refund(26);
    assert!(borrower.is_woken() && borrower.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_takes_what_the_pool_has_and_a_waiter_waits_for_less_of_the_rate() {
    let clients = full(&["a", "b"]);
    assert_eq!(take(&clients, "a"), 75);
    let waiter = spawned([clients.acquire("a", 10)]);
    sleep(40).await;
    // A bucket holds a third of 100 now. What b has no room for goes to c, with the 2 of the pool.
    assert_eq!(take(&clients, "c"), 18);
    // Of 10, a has 2. Then it has a third of the rate, and that of b.
    assert_eq!(waiter.await, [160]);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_client_leaves_its_bucket_and_its_share_to_those_who_wait() {
    let share = SHARE.try_forgetting_after(1).unwrap();
    let clients: Clients = Fair::new(share);
    for client in ["b", "a"] {
        assert!(clients.try_acquire(&client, 1).is_pass());
        clients.at(client).refund(1);
    }
    sleep(900).await;
    assert_eq!(take(&clients, "a"), 75);
    let waiter = spawned([clients.acquire("a", 60)]);
    sleep(100).await;
    assert_eq!(clients.len(), 1, "b is idle for a second");
    // Of 60, a has 5 and the pool 25: it is full with what b leaves.
    assert_eq!(waiter.await, [400]);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_its_own_share_that_is_remembered_at_the_start_keeps_its_seat() {
    let clients: Clients =
        Fair::new(SHARE).with_terms(|client| ClientTerms::new().with_own_share(*client == "named"));
    clients.remember(["named", "named"]);
    assert_eq!(clients.len(), 1);
    for idle in [100, 30_000] {
        for _ in 0..200 {
            take(&clients, "other");
            sleep(idle).await;
        }
        take(&clients, "other");
        assert_eq!(take(&clients, "named"), 50, "half of all buckets");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_waiter_passes_and_finds_what_came_meanwhile() {
    let clients = four();
    assert_eq!(take(&clients, "a"), 50);
    let mut waiter = queued(clients.acquire_one("a"));
    jump(ms(500)).await;
    assert!(waiter.is_woken() && waiter.poll().is_ready());
    // 12.5 in its bucket and 25 in the pool, less one.
    assert_eq!(take(&clients, "a"), 36);
    assert_eq!(take(&clients, "b"), 25);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_costs_nothing_and_the_next_one_takes_its_place() {
    let clients = spent();
    let mut waiters: Vec<_> = (0..3).map(|_| queued(clients.acquire("a", 2))).collect();
    assert_eq!(share_of(&clients, "a").waiting, 6);
    sleep(60).await;
    waiters.remove(0);
    sleep(20).await;
    assert!(waiters[0].is_woken() && waiters[0].poll().is_ready());
    assert!(waiters[1].poll().is_pending());
    waiters.clear();
    assert_eq!(
        (clients.stats().waiting, share_of(&clients, "a").waiting),
        (0, 0)
    );
    assert_eq!(clients.try_acquire(&"a", 1), wait(40));
}

#[tokio::test(start_paused = true)]
async fn acquire_within_is_refused_at_once_if_others_of_its_client_wait_for_too_long() {
    let clients = spent();
    let late = clients.acquire_within("a", 1, ms(39)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(40)));
    let _waiter = queued(clients.acquire("a", 20));
    let start = now();
    let late = clients.acquire_within("a", 5, ms(249)).await.unwrap_err();
    // At the earliest: if a had the whole rate.
    assert_eq!(late.retry_in(), Some(ms(250)));
    assert_eq!(since(start), 0);
}

#[tokio::test(start_paused = true)]
async fn streams_of_all_clients_keep_their_shares() {
    let clients = spent();
    let start = now();
    let items = stream::iter((0..10).flat_map(|_| ["a", "b"]));
    let paced = items.try_pace_by_key(clients.clone(), |client| *client, 100);
    let mut passed = paced.map(|item| (item.unwrap(), since(start)));
    for n in 1..=10 {
        let mut both = [passed.next().await.unwrap(), passed.next().await.unwrap()];
        both.sort_unstable();
        assert_eq!(both, [("a", 40 * n), ("b", 40 * n)]);
    }
    let paced = stream::iter(0..10).pace(clients.at("c"));
    assert_eq!(paced.count().await, 10);
    assert_eq!(since(start), 400, "its bucket had filled");
}

#[tokio::test(start_paused = true)]
async fn what_was_used_beyond_the_estimate_is_owed() {
    let clients = four();
    let a = clients.at("a");
    let reserved = a.reserve(20).await.unwrap();
    reserved.settle(5);
    assert_eq!(clients.status(&"a").unwrap().remaining, 45);
    let reserved = a.reserve(45).await.unwrap();
    reserved.settle(65);
    let start = now();
    a.acquire(1).await.unwrap();
    // 20 are owed. Its bucket and the pool have the whole rate.
    assert_eq!(since(start), 210);
    assert_eq!(take(&clients, "b"), 25);
}

#[tokio::test(start_paused = true)]
async fn clients_beyond_the_bound_share_one_bucket_and_one_queue() {
    let share = SHARE.try_with_max_clients(1).unwrap();
    let clients: Fair<u32, GuaranteedShare> = Fair::new(share);
    let passed = (0..200).filter(|client| clients.try_acquire(client, 1).is_pass());
    // One has half of it, of which it asked for 1. The others have the other half, and 24 that the pool has left.
    assert_eq!(passed.count(), 1 + 74);
    assert_eq!(clients.len(), 2);
    let mut first = queued(clients.acquire_one(1_000));
    let mut second = queued(clients.acquire_one(1_001));
    sleep(10).await;
    assert!(first.is_woken() && !second.is_woken());
    assert!(first.poll().is_ready() && second.poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn to_look_takes_nothing_and_keeps_no_client() {
    let clients: Clients = Fair::new(SHARE);
    assert_eq!(clients.peek(&"a", 125), Decision::Pass);
    let status = clients.status(&"a").unwrap();
    let quota = Quota {
        permits: 100,
        window: ms(1_000),
    };
    assert_eq!((status.quota, status.remaining), (Some(quota), 125));
    assert!(clients.is_empty());

    assert_eq!(take(&clients, "a"), 125);
    sleep(300).await;
    let status = clients.status(&"a").unwrap();
    assert_eq!((status.remaining, status.reset_in), (30, ms(700)));
    assert_eq!(clients.at("a").status(), Some(status));
    let Ok(limit) = Limits::at(&clients, "a");
    assert_eq!(limit.least_wait(31), ms(10));
    assert!(clients.acquire("a", 30).now_or_never().is_some());
}

/// On the real clock, with threads of its own.
#[test]
fn on_many_threads_every_waiter_of_every_client_passes() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let start = now();
        let share = GuaranteedShare::new(50, ms(2)).try_with_least(3).unwrap();
        let clients: Fair<u32, GuaranteedShare> = Fair::new(share);
        let tasks: Vec<_> = (0..1_000)
            .map(|n| tokio::spawn(clients.acquire(n % 7, 1 + n % 3)))
            .collect();
        let all_pass = async {
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        };
        let limited = tokio::time::timeout(Duration::from_secs(60), all_pass);
        limited.await.expect("none is forgotten");
        // 1,999 permits of which 62 are there at the start, and 25 come in a millisecond.
        assert!(start.elapsed() >= ms(77));
        assert_eq!(
            (clients.stats().passed, clients.stats().waiting),
            (1_000, 0)
        );
    });
}

#[tokio::test(start_paused = true)]
async fn a_reserve_waits_in_a_queue_of_its_own_beside_a_flood() {
    let rate = GuaranteedShare::new(100, ms(1_000));
    let calls = Fair::reserved(rate, [("payments", Share::percent(20))]);
    while calls.try_acquire(&"analytics", 1).is_pass() {}
    while calls.try_acquire(&"payments", 1).is_pass() {}
    let flood = [(); 200].map(|()| tokio::spawn(calls.acquire_one("analytics")));
    tokio::task::yield_now().await;
    let start = now();
    for n in 1..=10 {
        calls.acquire_one("payments").await;
        assert_eq!(since(start), n * 50, "20 a second");
    }
    let passed = flood.iter().filter(|one| one.is_finished()).count();
    assert!(passed.abs_diff(40) <= 1, "{passed}: 80 a second");
}

#[test]
fn parts_of_a_reserve_that_cannot_be_are_errors() {
    let rate = GuaranteedShare::new(100, ms(1_000));
    let error = |parts: &[(&'static str, u32)]| {
        let parts = parts
            .iter()
            .map(|(name, part)| (*name, Share::of_ten_thousand(*part)));
        Fair::try_reserved(rate, parts).unwrap_err().to_string()
    };
    let range = "a reserve has from 1 to 9999 ten-thousandths of the rate, got";
    assert_eq!(error(&[]), format!("{range} 0"));
    assert_eq!(
        error(&[("a", 5_000), ("b", 5_000)]),
        format!("{range} 10000")
    );
    let small = "the bucket of each part of a reserve holds at least 1, got less for";
    assert_eq!(error(&[("a", 0)]), format!("{small} part 0: 0% of 100"));
    let second = error(&[("a", 5_000), ("b", 99)]);
    assert_eq!(second, format!("{small} part 1: 0.99% of 100"));
    let others = error(&[("a", 9_901)]);
    assert_eq!(others, format!("{small} all others: 0.99% of 100"));
    let twice = "a client has one part of a reserve, got another one as part 1";
    assert_eq!(error(&[("a", 1_000), ("a", 1_000)]), twice);

    let slow = GuaranteedShare::new(2, ms(1_000));
    let parts = |percent| [("a", Share::percent(percent))];
    assert!(
        Fair::try_reserved(slow, parts(1)).is_err(),
        "a hundred permits for the others"
    );
    assert!(Fair::try_reserved(slow, parts(50)).is_ok());
    let deep = slow.try_with_depth(1_000_000).unwrap();
    assert!(Fair::try_reserved(deep, parts(1)).is_ok());
    let large = deep.try_with_least(3).unwrap();
    assert!(Fair::try_reserved(large, parts(1)).is_err());
}

#[tokio::test(start_paused = true)]
async fn thousands_of_clients_are_listed_once_each() {
    let share = SHARE.try_with_max_clients(2_500).unwrap();
    let clients: Fair<u32, GuaranteedShare> = Fair::new(share);
    for client in 0..3_000 {
        let _ = clients.try_acquire(&client, 1);
    }
    let mut keys: Vec<_> = clients
        .shares()
        .into_iter()
        .map(|share| share.key)
        .collect();
    keys.sort_unstable();
    // Those beyond the bound are one client.
    let bounded = (0..2_500).map(Some);
    assert!(keys.into_iter().eq([None].into_iter().chain(bounded)));
}
