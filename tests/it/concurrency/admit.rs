//! Handles that admit work, in memory.

use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use paceline::concurrency::{Admit, KeyedPermits, Permit, Permits, PermitsAt};
use paceline::limiter::Limits;
use testkit::clock::{Stopwatch, jump};
use testkit::wakes::Driven;

use super::claims;
use crate::timed::{ms, now, since, sleep};

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

#[tokio::test(start_paused = true)]
async fn a_queued_handle_that_is_not_polled_is_passed_over_and_keeps_its_position() {
    for keyed in [false, true] {
        let users = KeyedPermits::new(1);
        let permits = Permits::new(1);
        let handle = || -> Box<dyn Admit<Guard = Permit, Error = _> + Send> {
            if keyed {
                Box::new(users.at("ann"))
            } else {
                Box::new(permits.clone())
            }
        };
        let mut idle = Driven::new(handle());
        let (mut first, mut second) = (handle(), handle());
        let held = tried(&mut first).unwrap();
        assert!(
            idle.poll_with(|mut idle, cx| idle.poll_admit((), cx))
                .is_pending()
        );
        let start = now();
        drop(held);

        let passes = std::future::poll_fn(|cx| second.poll_admit((), cx)).await;
        assert_eq!(since(start), 10);
        let mut third = Driven::new(handle());
        assert!(
            third
                .poll_with(|mut third, cx| third.poll_admit((), cx))
                .is_pending()
        );
        assert!(
            idle.poll_with(|mut idle, cx| idle.poll_admit((), cx))
                .is_pending()
        );
        drop(passes);
        assert!(idle.is_woken() && !third.is_woken());
        assert!(
            idle.poll_with(|mut idle, cx| idle.poll_admit((), cx))
                .is_ready()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_of_the_queue_may_try() {
    let permits = Permits::new(1);
    let (mut head, mut behind) = (permits.clone(), permits.clone());
    let permit = permits.try_acquire();
    assert!(asked(&mut head).is_none());
    assert!(asked(&mut behind).is_none());
    drop(permit);
    assert!(tried(&mut behind).is_none());
    assert!(tried(&mut head).is_some());
    assert_eq!((permits.in_use(), permits.stats().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handle_waits_for_a_cooldown_without_help() {
    let start = now();
    let mut permits = Permits::new(1).with_cooldown(ms(100));
    for _ in 0..3 {
        drop(std::future::poll_fn(|cx| permits.poll_admit((), cx)).await);
        sleep(5).await;
    }
    assert_eq!(since(start), 205);
}

/// Asks without waiting for the answer.
fn asked<A: Admit<Error = std::convert::Infallible>>(handle: &mut A) -> Option<A::Guard> {
    let mut cx = Context::from_waker(Waker::noop());
    match handle.poll_admit((), &mut cx) {
        Poll::Ready(Ok(guard)) => guard,
        Poll::Pending => None,
    }
}

fn tried<A: Admit<Error = std::convert::Infallible>>(handle: &mut A) -> Option<A::Guard> {
    let mut cx = Context::from_waker(Waker::noop());
    match handle.poll_try_admit((), &mut cx) {
        Poll::Ready(Ok(guard)) => guard,
        Poll::Pending => panic!("in memory the answer is there"),
    }
}

/// How many keys there are.
const KEYS: usize = 3;

/// What a random schedule knows of one key.
#[derive(Default)]
struct Known {
    held: Vec<Permit>,
    /// When permits have cooled down.
    cooling: Vec<u128>,
}

/// Handles of a few keys ask, try, give up and go at random, guards are dropped at random, and the clock moves at random.
struct Schedule<A, F> {
    rng: Rng,
    make: F,
    n: usize,
    cooldown: u128,
    max_keys: usize,
    keys: [Known; KEYS],
    handles: Vec<(usize, A)>,
    watch: Stopwatch,
    passed: u64,
}

impl<A, F> Schedule<A, F>
where
    A: Admit<Guard = Permit, Error = std::convert::Infallible> + Clone,
    F: Fn(usize) -> A,
{
    async fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step().await;
            self.check();
        }
        self.ends().await;
    }

    async fn step(&mut self) {
        let key = self.rng.usize(..KEYS);
        match self.rng.u32(..12) {
            0..3 => self.handles.push((key, (self.make)(key))),
            3..7 => self.asks(|handle| asked(handle)),
            7 => self.asks(|handle| tried(handle)),
            8 => self.asks(|handle| {
                handle.give_up();
                None
            }),
            9 if !self.handles.is_empty() => {
                let index = self.rng.usize(..self.handles.len());
                self.handles.swap_remove(index);
            }
            10 => jump(ms(self.rng.u64(..12))).await,
            _ => self.gives_back(key),
        }
    }

    fn asks(&mut self, ask: impl Fn(&mut A) -> Option<Permit>) {
        if !self.handles.is_empty() {
            let index = self.rng.usize(..self.handles.len());
            let (key, handle) = &mut self.handles[index];
            if let Some(permit) = ask(handle) {
                self.keys[*key].held.push(permit);
                self.passed += 1;
            }
        }
    }

    fn gives_back(&mut self, key: usize) {
        let free_at = self.watch.elapsed_ms() + self.cooldown;
        let known = &mut self.keys[key];
        if known.held.pop().is_some() {
            known.cooling.push(free_at);
        }
    }

    fn check(&mut self) {
        let now = self.watch.elapsed_ms();
        for known in &mut self.keys {
            known.cooling.retain(|until| now < *until);
            let used = known.held.len() + known.cooling.len();
            assert!(used <= self.n, "{used} of {}", self.n);
        }
        let in_use = |known: &&Known| !(known.held.is_empty() && known.cooling.is_empty());
        assert!(self.keys.iter().filter(in_use).count() <= self.max_keys);
    }

    /// Every handle is admitted in the end.
    async fn ends(&mut self) {
        for _ in 0..100 {
            for key in 0..KEYS {
                while !self.keys[key].held.is_empty() {
                    self.gives_back(key);
                }
            }
            let before = self.handles.len();
            let keys = &mut self.keys;
            self.handles.retain_mut(|(key, handle)| {
                let permit = asked(handle);
                let is_admitted = permit.is_some();
                keys[*key].held.extend(permit);
                !is_admitted
            });
            self.passed += (before - self.handles.len()) as u64;
            self.check();
            if self.handles.is_empty() && self.keys.iter().all(|known| known.held.is_empty()) {
                break;
            }
            jump(ms(110)).await;
        }
        assert!(self.handles.is_empty(), "a handle waits for ever");
        jump(ms(110)).await;
    }
}

fn schedule<A, F: Fn(usize) -> A>(
    seed: u64,
    n: usize,
    cooldown: u64,
    max_keys: usize,
    make: F,
) -> Schedule<A, F> {
    Schedule {
        rng: Rng::with_seed(seed),
        make,
        n,
        cooldown: cooldown.into(),
        max_keys,
        keys: Default::default(),
        handles: Vec::new(),
        watch: Stopwatch::start(),
        passed: 0,
    }
}

const SCHEDULES: u64 = 100_000;
const STEPS: usize = 12;

#[tokio::test(start_paused = true)]
async fn in_no_random_schedule_is_a_key_above_its_limit_or_remembered_after_it() {
    for seed in 0..SCHEDULES {
        let mut rng = Rng::with_seed(seed);
        let (n, cooldown) = (rng.u32(1..4), rng.u64(..2) * rng.u64(..15));
        let users = KeyedPermits::new(n).with_cooldown(ms(cooldown));
        let max_keys = rng.usize(1..=KEYS);
        let (users, max_keys) = if rng.bool() {
            (users.with_max_keys(max_keys), max_keys)
        } else {
            (users, KEYS)
        };
        let make = |key| -> PermitsAt<usize> { users.at(key) };
        let mut schedule = schedule(seed, n as usize, cooldown, max_keys, make);
        schedule.run(STEPS).await;
        let stats = users.stats();
        assert_eq!(
            (stats.passed, stats.waiting),
            (schedule.passed, 0),
            "{seed}"
        );
        assert!(users.is_empty(), "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_no_random_schedule_are_permits_above_their_limit() {
    for seed in 0..SCHEDULES / 5 {
        let mut rng = Rng::with_seed(seed);
        let (n, cooldown) = (rng.u32(1..4), rng.u64(..2) * rng.u64(..15));
        let permits = [0; KEYS].map(|_| Permits::new(n).with_cooldown(ms(cooldown)));
        let make = |key: usize| permits[key].clone();
        let mut schedule = schedule(seed, n as usize, cooldown, KEYS, make);
        schedule.run(STEPS).await;
        let passed: u64 = permits.iter().map(|permits| permits.stats().passed).sum();
        assert_eq!(passed, schedule.passed, "{seed}");
        assert!(
            permits.iter().all(|permits| permits.in_use() == 0),
            "{seed}"
        );
    }
}
