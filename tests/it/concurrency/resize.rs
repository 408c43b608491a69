//! A limit that moves while others wait on it.

use paceline::concurrency::Permits;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

#[test]
fn growing_lets_those_in_who_wait_in_their_order() {
    let permits = Permits::new(1);
    let _held = permits.try_acquire();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(permits.acquire())).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }

    permits.resize(3);
    assert!(waiting[0].is_woken() && !waiting[1].is_woken());
    let _first = waiting[0].poll();
    assert!(waiting[1].is_woken());
    let _second = waiting[1].poll();
    assert!(!waiting[2].is_woken());
    assert_eq!((permits.in_use(), permits.limit()), (3, 3));
}

#[test]
fn shrinking_takes_effect_as_permits_come_back() {
    let permits = Permits::new(3);
    let mut held: Vec<_> = (0..3).map(|_| permits.try_acquire()).collect();
    let mut waits = Driven::new(permits.acquire());
    assert!(waits.poll().is_pending());

    permits.resize(1);
    for left in [2, 1] {
        held.pop();
        assert!(!waits.is_woken(), "{left} are in use");
    }
    held.pop();
    assert!(waits.is_woken());
    assert!(waits.poll().is_ready());
}

#[test]
fn of_no_permits_nothing_passes_until_there_are_some() {
    let permits = Permits::new(2);
    permits.resize(0);
    assert!(permits.try_acquire().is_none());
    let mut one = Driven::new(permits.acquire());
    let mut many = Driven::new(permits.acquire_many(7));
    assert!(one.poll().is_pending());
    assert!(many.poll().is_pending(), "a pause refuses nobody");

    permits.resize(7);
    assert!(one.is_woken());
    let one = one.poll();
    assert!(!many.is_woken());
    drop(one);
    assert!(many.poll().is_ready());
}

#[test]
fn who_became_too_dear_is_told_when_its_turn_comes_and_stops_nobody() {
    let permits = Permits::new(4);
    let held = permits.try_acquire_many(4);
    let mut first = Driven::new(permits.acquire());
    let mut dear = Driven::new(permits.acquire_many(4));
    let mut last = Driven::new(permits.acquire());
    assert!(first.poll().is_pending());
    assert!(dear.poll().is_pending());
    assert!(last.poll().is_pending());

    permits.resize(3);
    assert!(dear.poll().is_pending(), "it may grow again until then");
    drop(held);
    let _first = first.poll();
    assert!(dear.is_woken());
    let std::task::Poll::Ready(Err(refused)) = dear.poll() else {
        panic!("four of three");
    };
    assert_eq!((refused.asked(), refused.limit()), (4, 3));
    assert!(last.is_woken());
    assert!(last.poll().is_ready());
}

#[test]
fn who_was_too_dear_for_a_while_passes_if_it_has_grown_again() {
    let permits = Permits::new(4);
    let held = permits.try_acquire();
    let mut dear = Driven::new(permits.acquire_many(4));
    assert!(dear.poll().is_pending());
    let mut behind = Driven::new(permits.acquire_many(4));
    assert!(behind.poll().is_pending());

    permits.resize(3);
    assert!(dear.is_woken(), "it is first, and is told at once");
    permits.resize(4);
    drop(held);
    assert!(dear.poll().is_ready());
    assert!(behind.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn growing_shortens_a_cooldown_wait_and_shrinking_makes_it_longer() {
    let start = now();
    let permits = Permits::new(2).with_cooldown(ms(100));
    let (one, two) = (permits.try_acquire(), permits.try_acquire());
    drop(one);
    sleep(40).await;
    drop(two);

    let waits = tokio::spawn(permits.acquire());
    sleep(10).await;
    permits.resize(1);
    drop(waits.await.unwrap());
    assert_eq!(since(start), 140, "both had to come back");

    let waits = tokio::spawn(permits.acquire());
    sleep(10).await;
    permits.resize(2);
    drop(waits.await.unwrap());
    assert_eq!(since(start), 150);
}
