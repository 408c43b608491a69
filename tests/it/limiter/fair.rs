//! Clients that share one capacity, and lend each other what they do not need.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use paceline::fair::{ClientTerms, FairShare, Newcomers};
use paceline::feedback::Feedback;
use paceline::limiter::{ClientShare, Event, Fair, Limiter, Limits, Mode, Obey, Quota, Switch};
use paceline::policy::Decision;
use paceline::prelude::*;
use testkit::wakes::Driven;

use super::{queued, spawned, too_costly, wait};
use crate::timed::{ms, now, since, sleep};

type Clients = Fair<&'static str>;

/// Cycles of 100 ms.
const CYCLE: Duration = Duration::from_millis(100);

fn fair(capacity: u32) -> Clients {
    Fair::new(FairShare::new(capacity, CYCLE))
}

/// How many of `asked` single permits pass now.
fn pass(clients: &Clients, client: &'static str, asked: u32) -> u32 {
    let passed = (0..asked).filter(|_| clients.try_acquire(&client, 1).is_pass());
    passed.count().try_into().unwrap()
}

fn sizes(clients: &Clients) -> Vec<(&'static str, u32)> {
    let sized = |share: ClientShare<&'static str>| (share.key.unwrap_or("others"), share.size);
    clients.shares().into_iter().map(sized).collect()
}

fn share_of(clients: &Clients, client: &'static str) -> ClientShare<&'static str> {
    let mut shares = clients.shares().into_iter();
    shares
        .find(|share| share.key == Some(client))
        .expect("it is remembered")
}

/// Four clients in their first cycle, each with its default share.
fn four() -> Clients {
    let share = FairShare::new(40, CYCLE).try_with_reservation(1_000);
    let clients = Fair::new(share.unwrap());
    for client in ["a", "b", "c", "d"] {
        assert!(clients.try_acquire(&client, 1).is_pass());
        clients.at(client).refund(1);
    }
    clients
}

/// One client, of which everything is spent.
fn spent(share: FairShare) -> Clients {
    let clients = Fair::new(share);
    assert!(clients.try_acquire(&"a", share.capacity()).is_pass());
    clients
}

#[tokio::test(start_paused = true)]
async fn alone_a_client_has_the_whole_capacity_in_every_cycle() {
    let clients = fair(40);
    for _ in 0..3 {
        assert_eq!(pass(&clients, "a", 60), 40);
        assert_eq!(clients.try_acquire(&"a", 1), wait(100));
        sleep(100).await;
    }
    let stats = clients.stats();
    assert_eq!((stats.passed, stats.refused), (120, 63));
}

#[tokio::test(start_paused = true)]
async fn the_sizes_are_those_of_the_published_table() {
    let clients = four();
    sleep(100).await;
    for (asked, sizes_after) in [
        ([2, 15, 10, 10], [5, 15, 10, 10]),
        ([3, 15, 50, 10], [3, 11, 16, 10]),
        ([0, 15, 50, 5], [1, 12, 22, 5]),
    ] {
        for (client, asked) in ["a", "b", "c", "d"].into_iter().zip(asked) {
            pass(&clients, client, asked);
        }
        sleep(100).await;
        let sizes: Vec<_> = sizes(&clients).into_iter().map(|(_, size)| size).collect();
        assert_eq!(sizes, sizes_after);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_counts_as_demand() {
    let clients = four();
    assert_eq!(pass(&clients, "a", 10), 10);
    let mut waiters: Vec<_> = (0..30).map(|_| queued(clients.acquire_one("a"))).collect();
    assert_eq!(share_of(&clients, "a").waiting, 30);
    waiters.truncate(20);

    sleep(100).await;
    let share = share_of(&clients, "a");
    // It asked for 30, of which 20 still wait. The others keep what is left.
    assert_eq!((share.demand, share.waiting), (30, 20));
    assert_eq!(sizes(&clients), [("a", 30), ("b", 4), ("c", 3), ("d", 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_admitted_at_once_from_what_is_unspent() {
    let clients = fair(40);
    let passed =
        [("a", 25), ("b", 30), ("c", 30)].map(|(client, asked)| pass(&clients, client, asked));
    assert_eq!(passed, [25, 15, 0]);
    assert_eq!(clients.cycle().spent, 40);

    sleep(100).await;
    assert_eq!(pass(&clients, "c", 100), 13, "its share of three");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_ends_the_cycle_wakes_those_who_wait() {
    let newcomers = Newcomers::EndCycle { at_most: 1 };
    let clients = spent(FairShare::new(4, CYCLE).with_newcomers(newcomers));
    let mut waiter = queued(clients.acquire("a", 2));

    sleep(30).await;
    assert!(!waiter.is_woken());
    assert!(clients.try_acquire(&"b", 2).is_pass());
    assert!(waiter.is_woken(), "a new cycle began");
    assert!(waiter.poll().is_ready());
    assert_eq!(clients.cycle().ends_in, ms(100));

    // Once a cycle.
    assert!(!clients.try_acquire(&"c", 1).is_pass());
}

#[tokio::test(start_paused = true)]
async fn a_cycle_that_ends_later_for_a_client_of_this_cycle_wakes_those_who_wait() {
    let newcomers = Newcomers::EndCycle { at_most: 1 };
    let clients = spent(FairShare::new(4, CYCLE).with_newcomers(newcomers));
    // More than its default share, for which no cycle ends.
    assert_eq!(clients.try_acquire(&"b", 3), wait(100));
    let mut waiter = queued(clients.acquire("a", 1));
    assert!(!waiter.is_woken());

    assert!(clients.peek(&"b", 2).is_pass());
    assert!(!waiter.is_woken());
    assert!(clients.try_acquire(&"b", 2).is_pass());
    assert!(waiter.is_woken() && waiter.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_look_as_a_new_client_says_what_it_would_be_answered() {
    let clients = fair(40);
    assert_eq!(clients.peek(&"a", 40), Decision::Pass);
    assert_eq!(pass(&clients, "a", 25), 25);
    assert_eq!(clients.peek(&"b", 15), Decision::Pass);
    assert_eq!(clients.peek(&"b", 16), wait(100));
    assert_eq!(clients.status(&"b").unwrap().remaining, 15);
    assert_eq!(clients.len(), 1, "to look does not keep it");
    assert_eq!(
        share_of(&clients, "a").size,
        40,
        "nor does it take anything"
    );
}

#[tokio::test(start_paused = true)]
async fn cost_0_passes_before_every_waiter_and_is_no_client() {
    let clients = fair(1);
    assert!(clients.try_acquire(&"a", 0).is_pass());
    assert!(clients.is_empty());
    assert!(clients.try_acquire(&"a", 1).is_pass());
    let _waiter = queued(clients.acquire_one("a"));

    assert!(clients.try_acquire(&"a", 0).is_pass());
    assert!(clients.acquire("a", 0).now_or_never().is_some());
    assert_eq!(clients.stats().passed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_capacity_is_refused_for_ever_wherever_it_is_queued() {
    let clients = spent(FairShare::new(4, CYCLE));
    let never = Decision::Never { capacity: 4 };
    assert_eq!(clients.try_acquire(&"a", 5), never);
    let mut waiter = queued(clients.acquire("a", 4));
    let refused = clients.acquire("a", 5).await.unwrap_err();
    assert_eq!(too_costly(refused), (5, 4));
    assert_eq!(clients.stats().refused, 2);

    clients.retune(FairShare::new(3, CYCLE));
    assert!(waiter.is_woken());
    assert!(matches!(waiter.poll(), Poll::Ready(Err(_))));
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_its_share_passes_first_in_a_cycle_and_is_owed() {
    let clients = fair(10);
    assert!(clients.try_acquire(&"a", 1).is_pass());
    assert!(clients.try_acquire(&"b", 1).is_pass());
    sleep(100).await;
    // Both have half of it, and neither asked for more.
    let start = now();
    clients.acquire("a", 8).await.unwrap();
    assert_eq!(since(start) % 100, 0);
    assert!(!clients.try_acquire(&"a", 1).is_pass());
    assert!(clients.cycle().spent <= 10);
}

#[tokio::test(start_paused = true)]
async fn a_retune_asks_for_the_terms_of_known_clients_again() {
    let weight = Arc::new(Mutex::new(1));
    let of_a = Arc::clone(&weight);
    let clients = fair(40).with_terms(move |client| match *client {
        "a" => ClientTerms::new()
            .try_with_weight(*of_a.lock().unwrap())
            .unwrap(),
        _ => ClientTerms::new(),
    });
    assert_eq!(pass(&clients, "a", 1) + pass(&clients, "b", 1), 2);
    assert_eq!(sizes(&clients), [("a", 20), ("b", 20)]);

    *weight.lock().unwrap() = 3;
    clients.retune(clients.share());
    assert_eq!(sizes(&clients), [("a", 30), ("b", 10)]);
    sleep(100).await;
    assert_eq!((pass(&clients, "a", 40), pass(&clients, "b", 40)), (30, 10));
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_every_client_until_it_is_over_or_ended() {
    let clients = fair(4);
    let start = now();
    clients.pause_for(ms(250));
    assert_eq!(clients.try_acquire(&"a", 1), wait(250));
    assert_eq!(clients.try_acquire(&"a", 0), Decision::Pass);
    assert_eq!(clients.paused_for(), Some(ms(250)));
    clients.acquire_one("a").await;
    assert_eq!(since(start), 250);
    assert_eq!(clients.paused_for(), None);

    clients.pause_for(Duration::MAX);
    let mut a = queued(clients.acquire_one("a"));
    let mut b = queued(clients.acquire_one("b"));
    clients.resume();
    assert!(a.is_woken() && b.is_woken());
    assert!(a.poll().is_ready() && b.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_everything_passes_and_what_would_be_refused_is_demand() {
    let (clients, switch) = (fair(2), Switch::new().with_mode(Mode::Shadow));
    let Ok(limit) = clients.clone().switched(&switch).at("a");
    for _ in 0..5 {
        assert!(limit.try_acquire(1).await.is_pass());
    }
    assert_eq!(switch.stats().held_back, 3);
    let share = share_of(&clients, "a");
    assert_eq!((share.used, share.refused), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn clients_beyond_the_bound_share_one_share_and_one_queue() {
    let share = FairShare::new(9, CYCLE).try_with_max_clients(2).unwrap();
    let clients: Fair<u32> = Fair::new(share);
    let passed = (0..100).filter(|client| clients.try_acquire(client, 1).is_pass());
    // Two with their own share of a third, in which they asked for 1, and all others with one share.
    assert_eq!(passed.count(), 5);
    assert_eq!(clients.len(), 3);
    assert!(clients.shares().iter().any(|share| share.key.is_none()));

    let mut first = queued(clients.acquire_one(1_000));
    let mut second = queued(clients.acquire_one(1_001));
    assert_eq!(clients.stats().waiting, 2);
    sleep(100).await;
    assert!(first.is_woken() && !second.is_woken(), "one queue");
    assert!(first.poll().is_ready() && second.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_client_beyond_the_bound_takes_the_room_of_a_forgotten_one() {
    let share = FairShare::new(9, CYCLE).try_with_max_clients(1).unwrap();
    let clients: Clients = Fair::new(share.try_forgetting_after(1).unwrap());
    assert!(clients.try_acquire(&"a", 1).is_pass());
    for _ in 0..5 {
        assert!(clients.try_acquire(&"b", 1).is_pass());
        sleep(100).await;
    }
    let shares = clients.shares().into_iter();
    let keys: Vec<_> = shares.map(|share| share.key).collect();
    assert_eq!(keys, [Some("b")]);
}

/// Ten clients, and one that has its own share if it is in the list: 50 of 61 parts.
fn with_own_share(list: &Arc<Mutex<Vec<&'static str>>>) -> Fair<String> {
    let list = Arc::clone(list);
    let share = FairShare::new(100, CYCLE).try_with_max_clients(10).unwrap();
    let share = share.with_newcomers(Newcomers::EndCycle { at_most: 1 });
    Fair::new(share).with_terms(move |client: &String| {
        let is_listed = list.lock().unwrap().contains(&client.as_str());
        let weight = if is_listed { 50 } else { 1 };
        let terms = ClientTerms::new().try_with_weight(weight).unwrap();
        terms.with_own_share(is_listed)
    })
}

/// How many of these requests pass: `each` of 500 new clients, then 30 of a listed one.
fn pass_after_made_up(clients: &Fair<String>, round: u32, each: u32, client: &str) -> usize {
    for made_up in 0..500 * each {
        let _ = clients.try_acquire(&format!("{round}-{}", made_up / each), 1);
    }
    let pass = |client: &str| clients.try_acquire(client, 1).is_pass();
    (0..30).filter(|_| pass(client)).count()
}

#[tokio::test(start_paused = true)]
async fn a_client_with_its_own_share_has_it_whatever_clients_come_first() {
    for each in [1, 50] {
        // It comes in each cycle, or is forgotten each time.
        for step in [1, 13] {
            let clients = with_own_share(&Arc::new(Mutex::new(vec!["shop"])));
            for round in 0..40 {
                let is_there = round % step == 0;
                let client = if is_there { "shop" } else { "made up" };
                let passed = pass_after_made_up(&clients, round, each, client);
                assert!(!is_there || passed == 30, "cycle {round}: {passed}");
                assert!(clients.len() <= 12, "ten, the listed one, and all others");
                sleep(100).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retune_gives_and_takes_a_share_of_its_own() {
    let list = Arc::new(Mutex::new(vec![]));
    let clients = with_own_share(&list);
    let mut rounds = 0..;
    let mut passed = || pass_after_made_up(&clients, rounds.next().unwrap(), 50, "shop");
    for _ in 0..3 {
        assert_eq!(passed(), 0);
        sleep(100).await;
    }
    let size = |client: &str| clients.status(client).unwrap().quota.unwrap().permits;
    assert_eq!(size("shop"), size("any"), "they share it");

    list.lock().unwrap().push("shop");
    clients.retune(clients.share());
    assert!(clients.peek("shop", 30).is_pass(), "it is looked for alone");
    assert_eq!(size("shop"), 82, "50 of 61 parts of 100");
    for _ in 0..3 {
        let _ = passed();
        sleep(100).await;
        assert_eq!(passed(), 30);
        assert_eq!(clients.len(), 12);
    }

    list.lock().unwrap().clear();
    clients.retune(clients.share());
    sleep(100).await;
    assert_eq!(clients.len(), 11, "the youngest one goes");
    assert_eq!(passed(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_forgotten_with_its_queue() {
    let share = FairShare::new(4, CYCLE).try_forgetting_after(2);
    let clients = spent(share.unwrap());
    drop(queued(clients.acquire_one("a")));
    assert_eq!(clients.len(), 1);
    for _ in 0..10 {
        sleep(100).await;
        let _ = clients.cycle();
    }
    assert_eq!(clients.len(), 0);
    assert!(clients.shares().is_empty());
    assert_eq!(clients.stats().passed, 1);
    // It comes back as a newcomer.
    assert!(clients.try_acquire(&"b", 1).is_pass());
    assert!(clients.try_acquire(&"a", 1).is_pass());
}

/// A handle that looked, was told that it may pass, and stays idle for so long that its client is forgotten.
#[tokio::test(start_paused = true)]
async fn a_handle_with_a_reserved_position_outlives_many_cycles() {
    let share = FairShare::new(1, CYCLE).try_forgetting_after(1);
    let clients = spent(share.unwrap());
    let mut handle = Driven::new(clients.at("a"));
    let pass = Poll::Ready(Ok(Decision::Pass));
    assert_ne!(handle.poll_with(|mut at, cx| at.poll_open(1, cx)), pass);
    sleep(100).await;
    assert_eq!(handle.poll_with(|mut at, cx| at.poll_open(1, cx)), pass);
    for client in ["b", "c", "d"] {
        sleep(500).await;
        let _ = clients.try_acquire(&client, 1);
        assert_eq!(share_of(&clients, "a").waiting, 1, "it is not forgotten");
    }
    sleep(100).await;
    let asked = handle.poll_with(|mut at, cx| at.poll_decide(1, cx));
    assert!(asked.is_ready());
    drop(handle);
    assert_eq!(clients.stats().waiting, 0);
}

#[test]
fn it_prints_none_of_its_clients() {
    let clients = fair(40);
    assert!(clients.try_acquire(&"secret", 1).is_pass());
    assert_eq!(format!("{clients:?}"), "Fair { .. }");
}

#[test]
fn it_works_without_a_runtime_until_it_has_to_wait() {
    let clients = fair(40);
    assert!(clients.try_acquire(&"a", 1).is_pass());
    assert!(clients.acquire("a", 1).now_or_never().unwrap().is_ok());
    assert!(!clients.try_acquire(&"a", 40).is_pass());
    clients.at("a").refund(1);
    clients.retune(FairShare::new(50, Duration::from_secs(60)));
    assert_eq!(clients.cycle().capacity, 50);
    assert_eq!(clients.shares().len(), 1);
}

/// On the real clock, with threads of its own.
#[test]
fn on_many_threads_every_waiter_of_every_client_passes() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let start = now();
        let clients: Fair<u32> = Fair::new(FairShare::new(50, ms(2)));
        let tasks: Vec<_> = (0..1_000)
            .map(|n| tokio::spawn(clients.acquire(n % 7, 1 + n % 3)))
            .collect();
        let all_pass = async {
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        };
        let limited = tokio::time::timeout(Duration::from_secs(60), all_pass);
        limited.await.expect("nobody is forgotten");
        // 1,999 permits in cycles of 50.
        assert!(start.elapsed() >= ms(2) * 38);
        assert_eq!(clients.stats().passed, 1_000);
        assert_eq!(clients.stats().waiting, 0);
    });
}

#[tokio::test(start_paused = true)]
async fn acquire_within_counts_those_who_wait_ahead_and_is_refused_at_once() {
    let clients = spent(FairShare::new(2, CYCLE));
    let _waiter = queued(clients.acquire("a", 2));
    sleep(30).await;
    let start = now();
    let late = clients.acquire_within("a", 1, ms(169)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(170)));
    assert_eq!(since(start), 0);
    assert_eq!(share_of(&clients, "a").refused, 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_reads_sees_idle_cycles() {
    let clients = fair(40);
    assert!(clients.try_acquire(&"a", 3).is_pass());
    let first = clients.cycle();
    assert_eq!((first.capacity, first.spent), (40, 3));
    assert_eq!((first.began_ago, first.ends_in), (ms(0), ms(100)));

    sleep(230).await;
    let third = clients.cycle();
    assert_eq!(third.number, first.number + 2);
    assert_eq!(
        (third.spent, third.began_ago, third.ends_in),
        (0, ms(30), ms(70))
    );
    assert_eq!(share_of(&clients, "a").demand, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_reads_its_size_what_is_left_and_when_the_cycle_ends() {
    let clients = fair(40);
    let left = |client| {
        let status = clients.status(&client).unwrap();
        (status.remaining, status.reset_in)
    };
    assert_eq!(left("a").0, 40);
    assert!(clients.is_empty(), "to read a client does not keep it");

    assert!(clients.try_acquire(&"a", 3).is_pass());
    sleep(30).await;
    assert_eq!(left("a"), (37, ms(70)));
    let quota = Quota {
        permits: 40,
        window: CYCLE,
    };
    assert_eq!(clients.status(&"a").unwrap().quota, Some(quota));
    assert_eq!(clients.at("a").status(), clients.status(&"a"));

    clients.pause_for(ms(90));
    assert_eq!(left("a"), (0, ms(90)));
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_each_request_with_its_client() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let clients = fair(1).with_observer_by_key({
        let seen = Arc::clone(&seen);
        move |client: &&'static str, event| {
            let what = match event {
                Event::Passed { .. } => "passed",
                Event::Refused { .. } => "refused",
                _ => "else",
            };
            seen.lock().unwrap().push((*client, what));
        }
    });
    assert!(clients.try_acquire(&"a", 1).is_pass());
    assert!(!clients.try_acquire(&"a", 1).is_pass());
    clients.acquire_one("a").await;
    let expected = [("a", "passed"), ("a", "refused"), ("a", "passed")];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_estimate_is_corrected_to_what_it_has_cost() {
    let clients = fair(100);
    let ann = clients.at("ann");
    let reserved = ann.reserve(40).await.unwrap();
    let other = ann.try_reserve(50).unwrap();
    assert_eq!(ann.peek(11), wait(100));
    reserved.settle(10);
    assert_eq!(share_of(&clients, "ann").used, 60);
    other.settle(90);
    assert_eq!(clients.cycle().spent, 100);
    assert_eq!(ann.try_reserve(1).unwrap_err(), wait(100));
    let late = ann.reserve_within(1, ms(99)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(100)));
    assert_eq!(clients.stats().passed, 2, "a charge is no request");

    let start = now();
    let reserved = ann.reserve_within(30, ms(100)).await.unwrap();
    assert_eq!(since(start), 100);
    assert_eq!(clients.cycle().spent, 30);
    sleep(100).await;
    let new = ann.reserve(30).await.unwrap();
    reserved.settle(0);
    assert_eq!(clients.cycle().spent, 30, "of the cycle before");
    new.settle(0);
    assert_eq!(clients.cycle().spent, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_until_what_it_was_charged_is_spent_and_the_others_do_not() {
    let clients = fair(10);
    assert_eq!((pass(&clients, "a", 1), pass(&clients, "b", 1)), (1, 1));
    clients.at("a").charge(20);
    assert_eq!(clients.cycle().spent, 10);
    let a = spawned([clients.acquire("a", 4)]);
    let b = spawned([clients.acquire("b", 4)]);
    assert_eq!(b.await, [100]);
    assert_eq!(share_of(&clients, "a").demand, 25, "1, 20 and 4 that wait");
    // Each has 5. Of its own a repays 4, and spends 1 of the 12 that it has overdrawn; then it has 5 and 5, and 1.
    assert_eq!(share_of(&clients, "a").used, 1);
    assert_eq!(a.await, [300]);
    assert_eq!(clients.stats().passed, 4);
}

#[tokio::test(start_paused = true)]
async fn a_new_client_is_charged_and_one_without_room_with_all_others() {
    let share = FairShare::new(40, CYCLE).try_with_max_clients(1);
    let clients: Clients = Fair::new(share.unwrap());
    clients.at("a").charge(0);
    assert!(clients.is_empty());
    for (client, count) in [("a", 3), ("b", 5), ("c", 7)] {
        clients.at(client).charge(count);
    }
    let shares = clients.shares().into_iter();
    let used: Vec<_> = shares.map(|share| (share.key, share.used)).collect();
    assert_eq!(used, [(Some("a"), 3), (None, 12)]);
    clients.at("b").refund(4);
    assert_eq!(clients.cycle().spent, 11);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_one_client_to_wait_pauses_all() {
    let (sender, events) = std::sync::mpsc::channel();
    let clients = fair(40).with_observer(move |event: Event| sender.send(event).unwrap());
    let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    assert!(clients.at("a").obey(&refused).is_none());
    assert_eq!(clients.paused_for(), Some(ms(2_000)));
    assert_eq!(clients.try_acquire(&"b", 1), wait(2_000));
    let Ok(Event::FeedbackApplied { pause, .. }) = events.try_recv() else {
        panic!("it is reported");
    };
    assert_eq!(pause, ms(2_000));

    let fine = Feedback::parse([("X-RateLimit-Remaining", "7")], Duration::ZERO);
    assert_eq!(clients.apply_feedback(&fine), None);
    clients.resume();
    assert_eq!(clients.apply_feedback(&refused), Some(ms(2_000)));
}

#[test]
fn a_setting_out_of_range_is_named_with_its_value() {
    let share = FairShare::new(40, CYCLE);
    let errors = [
        share.try_with_reservation(10_001),
        share.try_with_max_clients(10_000_001),
        share.try_with_smoothing(101),
    ];
    let messages = errors.map(|error| error.unwrap_err().to_string());
    assert_eq!(
        messages,
        [
            "a reservation is at most 10000 ten-thousandths, got 10001",
            "a fair share has at most 10000000 clients, got 10000001",
            "demand is averaged over 1 to 100 cycles, got 101",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_with_its_status_is_a_request_and_then_a_look() {
    let share = FairShare::new(40, CYCLE).try_with_max_clients(1).unwrap();
    let log = Arc::<Mutex<Vec<Event>>>::default();
    let seen = Arc::clone(&log);
    let [one, two] = [(); 2].map(|()| Clients::new(share));
    let one = one.with_observer(move |event| seen.lock().unwrap().push(event));
    let both = |client, cost| {
        let decision = two.try_acquire(&client, cost);
        let status = two.status(&client).unwrap();
        let asked = one.try_acquire_with_status(&client, cost);
        assert_eq!(asked, (decision, status), "{client} {cost}");
    };
    both("a", 0);
    assert!(one.is_empty(), "nothing was asked for");
    both("a", 30);
    // Beyond the largest number of clients.
    both("b", 15);
    both("a", 20);
    both("a", 41);
    assert_eq!(log.lock().unwrap().len(), 4);
    let waiters = [&one, &two].map(|clients| queued(clients.acquire("a", 30)));
    both("a", 1);
    drop(waiters);
    sleep(130).await;
    both("a", 1);
    for clients in [&one, &two] {
        clients.pause_for(ms(90));
    }
    both("a", 1);
    assert_eq!(one.shares(), two.shares());
    assert_eq!(one.stats(), two.stats());
}

#[tokio::test(start_paused = true)]
async fn a_refund_for_clients_that_are_forgotten_gives_nothing_to_those_without_a_seat() {
    let share = FairShare::new(12, ms(1_000))
        .try_with_max_clients(1)
        .unwrap();
    let clients = Fair::<String>::new(share);
    let takes = |client| {
        (0..100)
            .filter(|_| clients.try_acquire(client, 1).is_pass())
            .count()
    };
    for _ in 0..4 {
        assert!(clients.try_acquire("seated", 1).is_pass());
        takes("other");
        sleep(1_000).await;
    }
    assert!(clients.try_acquire("seated", 1).is_pass());
    assert!(clients.try_acquire("other", 1).is_pass());
    // "other" has borrowed and is forgotten, "seated" is not.
    sleep(20_000).await;
    assert!(clients.try_acquire("seated", 1).is_pass());
    clients.at("other".to_owned()).refund(1);
    assert_eq!((takes("seated"), clients.cycle().spent), (11, 12));
}
