//! Handles that admit work, in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fastrand::Rng;
use paceline::concurrency::{Admit, KeyedPermits, Permit, Permits};
use paceline::limiter::Limits;
use testkit::clock::{Stopwatch, jump};
use testkit::queue::{Oracle, Room, Subject, Visit};

use super::{claims, tried};
use crate::timed::ms;

#[tokio::test(start_paused = true)]
async fn permits_keep_the_claims() {
    claims::hold_for(Permits::new).await;
    claims::hold_for(|n| Permits::new(n).with_cooldown(ms(7))).await;
}

#[tokio::test(start_paused = true)]
async fn the_permits_of_one_key_keep_the_claims() {
    claims::hold_for(|n| KeyedPermits::new(n).at("ann")).await;
    claims::hold_for(|n| KeyedPermits::new(n).with_cooldown(ms(7)).at("ann")).await;
    claims::hold_for(|n| KeyedPermits::new(n).with_max_keys(1).at("ann")).await;
}

#[tokio::test(start_paused = true)]
async fn code_that_is_generic_over_keys_gets_a_handle_for_each() {
    async fn admit<K, L: Limits<K, Limit: Admit>>(limits: &L, key: K) -> bool
    where
        L::Error: std::fmt::Debug,
        <L::Limit as Admit>::Error: std::fmt::Debug,
    {
        let mut handle = limits.at(key).unwrap();
        let admitted = std::future::poll_fn(|cx| handle.poll_try_admit((), cx)).await;
        admitted.unwrap().map(std::mem::forget).is_some()
    }
    let users = KeyedPermits::new(1);
    assert!(admit(&users, "ann").await);
    assert!(!admit(&users, "ann").await);
    assert!(admit(&users, "bob").await);
}

/// How many keys there are.
const KEYS: usize = 3;

/// Permits of a few keys, each with a count of them.
struct Counted {
    n: usize,
    cooldown: Duration,
    max_keys: usize,
    held: [Vec<Permit>; KEYS],
    /// When permits have cooled down.
    cooling: [Vec<Duration>; KEYS],
    /// What the last handle was admitted with.
    granted: Option<Permit>,
    watch: Stopwatch,
}

impl Counted {
    fn used(&self, key: usize) -> usize {
        let now = self.watch.elapsed();
        let cooling = self.cooling[key].iter().filter(|until| now < **until);
        self.held[key].len() + cooling.count()
    }

    fn gives_back(&mut self, key: usize) {
        if self.held[key].pop().is_some() {
            self.cooling[key].push(self.watch.elapsed() + self.cooldown);
        }
    }
}

/// A handle of a limit, which is boxed so that there is one oracle.
type Handle = Box<dyn Admit<Guard = Permit, Error = Infallible>>;

impl Subject for Counted {
    type Request = Handle;
    type Refusal = Infallible;

    fn poll(
        &mut self,
        handle: Pin<&mut Handle>,
        _: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Infallible>> {
        let Ok(permit) = ready!(handle.get_mut().poll_admit((), cx));
        self.granted = Some(permit.expect("a limit with a queue refuses nothing"));
        Poll::Ready(Ok(()))
    }

    fn room(&mut self, key: usize, _: u32) -> Room {
        let in_use = (0..KEYS).filter(|key| self.used(*key) > 0).count();
        match self.used(key) {
            0 if in_use >= self.max_keys => Room::No,
            // A key that is waited for takes room too.
            0 if self.max_keys < KEYS => Room::Maybe,
            used => Room::exact(used < self.n),
        }
    }

    /// What waits for room for its key has no position.
    fn is_ordered(&self) -> bool {
        self.max_keys == KEYS
    }

    fn pass(&mut self, key: usize, _: u32) {
        self.held[key].push(self.granted.take().expect("it was admitted"));
    }
}

/// Handles of a few keys ask, try, give up and go at random, guards are dropped at random, and the clock moves at random. Returns how
/// many were admitted.
async fn schedule(
    rng: &mut Rng,
    (n, cooldown, max_keys): (u32, u64, usize),
    handle: impl Fn(usize) -> Handle,
) -> u64 {
    let mut oracle = Oracle::new(Counted {
        n: n as usize,
        cooldown: ms(cooldown),
        max_keys,
        held: Default::default(),
        cooling: Default::default(),
        granted: None,
        watch: Stopwatch::start(),
    });
    for _ in 0..STEPS {
        // Wakes are counted in the tests of the wait queue.
        oracle.disturb();
        let (key, some) = (rng.usize(..KEYS), oracle.pick(rng.usize(..STEPS)));
        match (rng.u32(..12), some) {
            (0..3, _) => comes(&mut oracle, key, handle(key)),
            (3..7, Some(n)) => oracle.poll(n),
            (7, Some(n)) => tries(&mut oracle, n),
            (8, Some(n)) => {
                let (key, mut handle) = goes(&mut oracle, n);
                handle.give_up();
                comes(&mut oracle, key, handle);
            }
            (9, Some(n)) => drop(oracle.leave(n)),
            (10, _) => oracle.lose_time(ms(rng.u64(..12))).await,
            _ => oracle.subject.gives_back(key),
        }
    }
    let give_back_all = |oracle: &mut Oracle<Counted>| {
        oracle.disturb();
        for key in (0..KEYS).flat_map(|key| [key; STEPS]) {
            oracle.subject.gives_back(key);
        }
    };
    oracle.end(ms(110), give_back_all).await;
    give_back_all(&mut oracle);
    jump(ms(110)).await;
    oracle.counts.passed
}

fn comes(oracle: &mut Oracle<Counted>, queue: usize, handle: Handle) {
    let visit = Visit {
        queue,
        cost: 1,
        leaves: None,
    };
    oracle.join(visit, handle);
}

fn goes(oracle: &mut Oracle<Counted>, n: usize) -> (usize, Handle) {
    let key = oracle.visit(n).queue;
    let handle = oracle.leave(n).expect("it is there");
    (key, handle.into_inner())
}

/// A handle that was queued leaves the queue.
fn tries(oracle: &mut Oracle<Counted>, n: usize) {
    let answer = oracle
        .driven(n)
        .poll_with(|mut handle, _| tried(&mut *handle));
    let Poll::Ready(Ok(permit)) = answer else {
        panic!("in memory the answer is there")
    };
    let is_admitted = permit.is_some();
    oracle.subject.granted = permit;
    oracle.passed_by(n, is_admitted);
    let (key, handle) = goes(oracle, n);
    if !is_admitted {
        comes(oracle, key, handle);
    }
}

const STEPS: usize = 12;

#[tokio::test(start_paused = true)]
async fn on_random_schedules_each_key_is_a_plain_queue_and_forgotten_after_it() {
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let (n, cooldown) = (rng.u32(1..4), rng.u64(..2) * rng.u64(..15));
        let users = KeyedPermits::new(n).with_cooldown(ms(cooldown));
        let max_keys = rng.usize(1..=KEYS);
        let (users, max_keys) = if rng.bool() {
            (users.with_max_keys(max_keys), max_keys)
        } else {
            (users, KEYS)
        };
        let handle = |key| Box::new(users.at(key)) as Handle;
        let passed = schedule(&mut rng, (n, cooldown, max_keys), handle).await;
        let stats = users.stats();
        assert_eq!((stats.passed, stats.waiting), (passed, 0), "{seed}");
        assert!(users.is_empty(), "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_random_schedules_handles_of_permits_are_a_plain_queue() {
    for seed in 0..5_000 {
        let mut rng = Rng::with_seed(seed);
        let (n, cooldown) = (rng.u32(1..4), rng.u64(..2) * rng.u64(..15));
        let permits = [0; KEYS].map(|_| Permits::new(n).with_cooldown(ms(cooldown)));
        let handle = |key: usize| Box::new(permits[key].clone()) as Handle;
        let passed = schedule(&mut rng, (n, cooldown, KEYS), handle).await;
        let counted: u64 = permits.iter().map(|permits| permits.stats().passed).sum();
        assert_eq!(counted, passed, "{seed}");
        let in_use = permits.iter().map(Permits::in_use);
        assert_eq!(in_use.sum::<u32>(), 0, "{seed}");
    }
}
