//! Permits for each key.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::task::Poll;
use std::thread;

use futures::executor::block_on;
use paceline::concurrency::{KeyedPermits, Permit};
use testkit::clock::jump;
use testkit::wakes::Driven;
use tokio::runtime::Handle;

use crate::timed::{ms, now, since, sleep};

#[test]
fn keys_share_nothing_and_need_no_runtime() {
    let users = KeyedPermits::new(2);
    let _ann = [
        block_on(users.acquire("ann")),
        block_on(users.acquire("ann")),
    ];
    assert!(users.try_acquire(&"ann").is_none());
    let _bob = users.try_acquire(&"bob").unwrap();
    assert_eq!((users.in_use(&"ann"), users.in_use(&"bob")), (2, 1));
    assert_eq!((users.in_use(&"eve"), users.len()), (0, 2));
}

#[test]
fn a_key_is_asked_in_borrowed_form() {
    let users = KeyedPermits::<String>::new(1);
    let _ann = block_on(users.acquire("ann".to_owned()));
    assert!(users.try_acquire("ann").is_none());
    assert_eq!(users.in_use("ann"), 1);
}

#[test]
fn a_key_says_how_many_permits_it_has() {
    let users = KeyedPermits::by(|user: &u32| *user);
    for n in 0..4 {
        let held: Vec<_> = (0..5).filter_map(|_| users.try_acquire(&n)).collect();
        assert_eq!(held.len(), n as usize);
    }
    assert!(users.is_empty());
}

#[test]
fn a_key_is_forgotten_with_its_last_permit_or_waiter() {
    let users = KeyedPermits::new(1);
    let handle = users.at("ann");
    assert!(
        users.is_empty(),
        "a handle that does not wait is not enough"
    );
    let held = users.try_acquire(&"ann");
    let mut first = Driven::new(users.acquire("ann"));
    let mut second = Driven::new(users.acquire("ann"));
    assert!(first.poll().is_pending() && second.poll().is_pending());

    drop(held);
    assert_eq!((users.len(), users.in_use(&"ann")), (1, 0), "two wait");
    assert!(users.try_acquire(&"ann").is_none(), "they are ahead");
    drop(first);
    assert_eq!(users.len(), 1);
    let permit = second.poll();
    drop(second);
    assert_eq!((users.len(), users.in_use(&"ann")), (1, 1));
    drop((permit, handle));
    assert!(users.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_remembered_until_its_last_permit_has_cooled_down() {
    let users = KeyedPermits::new(2).with_cooldown(ms(100));
    let (one, two) = (users.acquire("ann").await, users.acquire("ann").await);
    drop(one);
    jump(ms(40)).await;
    drop(two);
    jump(ms(59)).await;
    assert!(users.try_acquire(&"ann").is_none());
    jump(ms(1)).await;
    drop(users.try_acquire(&"ann").unwrap());
    assert!(
        users.try_acquire(&"ann").is_none(),
        "the other one still cools down"
    );
    jump(ms(99)).await;
    assert_eq!(users.len(), 1);
    jump(ms(1)).await;
    assert_eq!(users.len(), 0);
    let held = [users.acquire("ann").await, users.acquire("ann").await];
    assert_eq!(users.in_use(&"ann"), 2);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn stats_include_forgotten_keys() {
    let users = KeyedPermits::new(1);
    for user in 0..100_u32 {
        let held = users.acquire(user).await;
        assert!(users.try_acquire(&user).is_none());
        assert!(users.acquire_within(user, ms(5)).await.is_err());
        drop(held);
    }
    let _held = users.try_acquire(&7);
    let mut waits = Driven::new(users.acquire(7));
    assert!(waits.poll().is_pending());
    let stats = users.stats();
    assert_eq!((stats.passed, stats.refused), (101, 200));
    assert_eq!((stats.held_back, stats.waiting), (101, 1));
}

#[tokio::test(start_paused = true)]
async fn a_new_key_finds_no_room_while_all_keys_are_in_use() {
    let start = now();
    let users = KeyedPermits::new(2).with_max_keys(2);
    let ann = users.acquire("ann").await;
    let bob = users.acquire("bob").await;
    assert!(users.try_acquire(&"eve").is_none());
    assert!(
        users.try_acquire(&"ann").is_some(),
        "there is room for a known key"
    );
    let refused = users.acquire_within("eve", ms(150)).await.unwrap_err();
    assert!(refused.is_too_late());
    assert_eq!((since(start), users.len()), (150, 2));
    assert_eq!(users.stats().refused, 2);

    let eve = tokio::spawn(users.acquire("eve"));
    sleep(10).await;
    drop(bob);
    let eve = eve.await.unwrap();
    assert_eq!(since(start), 250, "it asks each 100 ms");
    assert_eq!((users.in_use(&"eve"), users.len()), (1, 2));
    drop((ann, eve));
    assert!(users.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_key_gets_the_room_of_a_key_as_soon_as_it_has_cooled_down() {
    let start = now();
    let users = KeyedPermits::new(1).with_cooldown(ms(30)).with_max_keys(1);
    drop(users.acquire("ann").await);
    let _bob = users.acquire("bob").await;
    assert_eq!(since(start), 30);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_room_and_leaves_leaves_nothing() {
    let users = KeyedPermits::new(1).with_max_keys(1);
    let ann = users.acquire("ann").await;
    let mut bob = Driven::new(users.acquire("bob"));
    assert!(bob.poll().is_pending());
    drop(bob);
    assert_eq!(users.len(), 1);
    drop(ann);
    assert!(users.try_acquire(&"eve").is_some());
}

/// A key that runs something when it is hashed next: the permits have been dropped, and their key is not forgotten yet.
#[derive(Clone, Eq, PartialEq)]
struct Busybody;

thread_local! {
    static WHEN_HASHED: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

impl Hash for Busybody {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(run) = WHEN_HASHED.take() {
            run();
        }
        0.hash(state);
    }
}

#[test]
fn a_key_that_is_used_again_while_it_is_forgotten_keeps_its_limit() {
    let users = KeyedPermits::new(1);
    let held = users.try_acquire(&Busybody);
    let next = Rc::new(Cell::new(None));
    WHEN_HASHED.set(Some(Box::new({
        let (users, next) = (users.clone(), Rc::clone(&next));
        move || next.set(users.try_acquire(&Busybody))
    })));

    drop(held);
    let next = next.take();
    assert!(next.is_some(), "it was free");
    assert!(users.try_acquire(&Busybody).is_none());
    assert_eq!(users.len(), 1);
    drop(next);
    assert_eq!((users.len(), users.stats().passed), (0, 2));
}

#[test]
#[should_panic(expected = "keyed permits need room for at least 1 key, got 0")]
fn room_for_no_key_is_refused() {
    let _ = KeyedPermits::<u8>::new(1).with_max_keys(0);
}

#[test]
#[should_panic(expected = "at least 1 permit, got 0")]
fn zero_permits_are_refused_at_construction() {
    let _ = KeyedPermits::<u8>::new(0);
}

#[test]
fn a_number_from_a_configuration_is_checked() {
    assert_eq!(KeyedPermits::<u8>::try_new(0).unwrap_err().parameter(), "n");
}

#[test]
fn permits_outlive_what_they_came_from() {
    let users = KeyedPermits::new(1).with_cooldown(ms(10));
    let held = users.try_acquire(&"ann").unwrap();
    let mut waits = Driven::new(users.acquire("ann"));
    assert!(waits.poll().is_pending());
    drop((users, held, waits));
}

#[test]
fn what_is_shown_has_no_keys() {
    let users = KeyedPermits::new(1);
    let mut waits = users.acquire("secret");
    assert_eq!(format!("{users:?}"), "KeyedPermits { .. }");
    assert_eq!(
        format!("{:?}", users.at("secret")),
        "PermitsAt { is_waiting: false, .. }"
    );
    assert!(!format!("{waits:?}").contains("secret"));
    drop(futures::FutureExt::now_or_never(&mut waits));
}

/// No task for a key, and no memory after it.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_keys_come_and_go() {
    const KEYS: u32 = 100_000;
    for cooldown in [0, 50] {
        let users = KeyedPermits::new(2).with_cooldown(ms(cooldown));
        let held: Vec<Permit> = (0..KEYS)
            .map(|user| users.try_acquire(&user).unwrap())
            .collect();
        let mut waits = Driven::new(users.acquire(7));
        let _second = users.try_acquire(&7);
        assert!(waits.poll().is_pending());
        assert_eq!(users.len(), KEYS as usize);
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);

        drop(held);
        jump(ms(cooldown)).await;
        assert_eq!(users.len(), 1, "a key that is waited for");
        drop(waits.poll());
        assert_eq!(users.stats().passed, u64::from(KEYS) + 2);
    }
}

#[test]
fn threads_that_use_the_same_keys_never_exceed_a_limit() {
    let users = KeyedPermits::<u32>::new(2);
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let users = users.clone();
            thread::spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..5_000 {
                    let key = rng.u32(..4);
                    let permit = if rng.bool() {
                        Some(block_on(users.acquire(key)))
                    } else {
                        users.try_acquire(&key)
                    };
                    assert!(users.in_use(&key) <= 2);
                    if rng.bool() {
                        thread::yield_now();
                    }
                    drop(permit);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(users.is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_permits_of_a_key_are_had_together_once_there_is_room_for_the_key() {
    let users = KeyedPermits::new(3).with_max_keys(1);
    let one = users.try_acquire(&"ann").unwrap();
    let mut three = Driven::new(users.acquire_many("ann", 3));
    assert!(three.poll().is_pending());
    assert!(users.try_acquire_many(&"ann", 2).is_none(), "behind it");
    drop(one);
    assert!(three.is_woken());
    let Poll::Ready(Ok(three)) = three.poll() else {
        panic!("they are free");
    };
    assert_eq!((three.count(), users.in_use(&"ann")), (3, 3));

    let start = now();
    let other = tokio::spawn(users.acquire_many("bob", 2));
    sleep(10).await;
    assert!(
        users.try_acquire_many(&"bob", 2).is_none(),
        "there is no room"
    );
    drop(three);
    assert_eq!(other.await.unwrap().unwrap().count(), 2);
    assert_eq!(since(start), 100, "it asks again for room");
    assert_eq!(users.stats().refused, 2);
    assert!(users.is_empty());
    drop(users.acquire_many("bob", 2));
    let never = users.acquire_many("bob", 4).await.unwrap_err();
    assert_eq!(never.too_costly().unwrap().capacity(), 3);
    assert!(users.is_empty());
}
