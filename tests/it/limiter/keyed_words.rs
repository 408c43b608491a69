//! A key of which only a state is known takes less memory if the state fits into a word. No answer shows it.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use paceline::limiter::{Keyed, Stats};
use paceline::policy::{
    AnyPolicy, Decision, FixedWindow, Interval, Policy, Quota, Status, TokenBucket,
};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{bucket, queued, wait};
use crate::timed::ms;

/// The same policy, whose states are never words.
#[derive(Clone, Debug, PartialEq)]
struct Wide<P>(P);

impl<P: Policy> Policy for Wide<P> {
    type State = P::State;

    fn fresh(&self, now: Tick) -> P::State {
        self.0.fresh(now)
    }

    fn decide(&self, state: &mut P::State, now: Tick, cost: u32) -> Decision {
        self.0.decide(state, now, cost)
    }

    fn peek(&self, state: &P::State, now: Tick, cost: u32) -> Decision {
        self.0.peek(state, now, cost)
    }

    fn credit(&self, state: &P::State, now: Tick) -> u32 {
        self.0.credit(state, now)
    }

    fn room(&self, state: &P::State, now: Tick) -> u32 {
        self.0.room(state, now)
    }

    fn quota(&self) -> Option<Quota> {
        self.0.quota()
    }

    fn is_per_request(&self) -> bool {
        self.0.is_per_request()
    }

    fn status(&self, state: &P::State, now: Tick) -> Status {
        self.0.status(state, now)
    }

    fn refund(&self, state: &mut P::State, now: Tick, cost: u32) {
        self.0.refund(state, now, cost);
    }

    fn refund_from(&self, state: &mut P::State, now: Tick, spent_at: Tick, cost: u32) {
        self.0.refund_from(state, now, spent_at, cost);
    }

    fn charge(&self, state: &mut P::State, now: Tick, cost: u32) {
        self.0.charge(state, now, cost);
    }

    fn retune(&self, old: &Self, state: &mut P::State, now: Tick) {
        self.0.retune(&old.0, state, now);
    }

    fn settled_at(&self, state: &P::State) -> Tick {
        self.0.settled_at(state)
    }

    fn is_settled(&self, state: &P::State, now: Tick) -> bool {
        self.0.is_settled(state, now)
    }
}

/// One step of a trace. Its numbers mean what its kind makes of them.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    key: u8,
    cost: u32,
    millis: u64,
}

impl Step {
    fn any(random: &mut Rng) -> Self {
        Self {
            kind: random.u8(0..14),
            key: random.u8(0..3),
            cost: [random.u32(0..4), random.u32(..) >> random.u32(0..32)][random.usize(0..2)],
            millis: random.u64(0..400),
        }
    }
}

/// What is seen of the limits after each step.
type Seen = (Option<Decision>, Option<Status>, Stats, Option<usize>);

/// Limits by key, with the requests that wait for them.
struct Traced<P: Policy<State: Send> + Send + 'static> {
    limits: Keyed<u8, P>,
    other: P,
    waiting: Vec<Driven<paceline::limiter::future::Acquire<paceline::limiter::KeyedAt<u8, P>>>>,
}

impl<P> Traced<P>
where
    P: Policy<State: Send> + Clone + Debug + PartialEq + Send + Sync + 'static,
{
    fn new(policy: P, other: P) -> Self {
        let limits = policy.keyed();
        Self {
            limits,
            other,
            waiting: Vec::new(),
        }
    }

    fn step(
        &mut self,
        Step {
            kind,
            key,
            cost,
            millis,
        }: Step,
    ) -> Seen {
        let limits = &self.limits;
        let (mut decision, mut keys) = (None, None);
        match kind {
            0..3 => decision = Some(limits.try_acquire(&key, cost)),
            3 => decision = Some(limits.peek(&key, cost)),
            4 => limits.charge(&key, cost),
            5 => limits.with(&key, |limit| limit.refund(cost)),
            6 => limits.with(&key, |limit| limit.pause_for(ms(millis))),
            7 => limits.with(&key, |limit| limit.retune(self.other.clone())),
            8 => limits.forget(&key),
            9 => {
                limits.forget_settled();
                keys = Some(limits.len());
            }
            10 => {
                let mut request = Driven::new(limits.acquire(key, cost));
                if request.poll().is_pending() {
                    self.waiting.push(request);
                }
            }
            11 => drop(self.waiting.pop()),
            12 => self
                .waiting
                .retain_mut(|request| request.poll().is_pending()),
            _ => {}
        }
        (decision, limits.status(&key), limits.stats(), keys)
    }
}

/// On random traces, with all that can be done to a key.
async fn answers_alike<P>(policy: P, other: P)
where
    P: Policy<State: Send> + Clone + Debug + PartialEq + Send + Sync + 'static,
{
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let mut packed = Traced::new(policy.clone(), other.clone());
        let mut wide = Traced::new(Wide(policy.clone()), Wide(other.clone()));
        let steps: Vec<_> = (0..80).map(|_| Step::any(&mut random)).collect();
        for (n, step) in steps.iter().enumerate() {
            let trace = &steps[..=n];
            assert_eq!(
                packed.step(*step),
                wide.step(*step),
                "{policy:?} {seed} {trace:?}"
            );
            if step.kind > 11 {
                jump(ms(step.millis)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_a_word_at_times_answers_as_one_that_never_is() {
    answers_alike(bucket(3), bucket(5)).await;
    answers_alike(bucket(3).with_debt(), bucket(2)).await;
    // Its states fit for four seconds.
    let uneven = |burst| TokenBucket::new(Rate::new(4_294_967_291, ms(10_000_000)), burst);
    answers_alike(uneven(1_000_000), uneven(2_000_000)).await;

    let interval = Interval::every(ms(100));
    answers_alike(interval, Interval::every(ms(300))).await;
    answers_alike(interval.with_delayed_start(), interval).await;

    let window = |limit| FixedWindow::new(limit, ms(500));
    answers_alike(window(3), window(100)).await;

    let policies = [
        "3/s burst 2",
        "every 100ms",
        "3/s fixed",
        "2/s and 3/s",
        "3/s fixed per request",
    ];
    let policies = policies.map(|text| text.parse::<AnyPolicy>().unwrap());
    for (n, policy) in policies.iter().enumerate() {
        let other = &policies[(n + 1) % policies.len()];
        answers_alike(policy.clone(), other.clone()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_stops_fitting_and_fits_again_is_exact() {
    let limits = Interval::every(ms(1)).keyed::<u32>();
    for cost in [1, 1_000, 1, 127, 128] {
        assert!(limits.try_acquire(&1, cost).is_pass());
        assert_eq!(limits.try_acquire(&1, 1), wait(cost.into()));
        limits.forget_settled();
        assert_eq!(limits.try_acquire(&1, 1), wait(cost.into()));
        jump(ms(cost.into())).await;
    }
}

/// Against what `by` asks for, so the bound holds and nothing else.
#[tokio::test(start_paused = true)]
async fn nothing_passes_a_key_whose_policy_has_become_one_of_another_kind() {
    let texts = ["1/s burst 5", "every 1s", "5/s fixed"];
    for (before, after) in [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2), (2, 1)] {
        let changed = Arc::new(AtomicBool::new(false));
        let has_changed = Arc::clone(&changed);
        let [before, after] = [before, after].map(|n| texts[n].parse::<AnyPolicy>().unwrap());
        let limits = Keyed::by(move |_: &u32| {
            let policy = if has_changed.load(Ordering::Relaxed) {
                &after
            } else {
                &before
            };
            policy.clone()
        });
        assert!(limits.try_acquire(&1, 1).is_pass());
        changed.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(!limits.try_acquire(&1, 1).is_pass());
            jump(Duration::from_secs(60)).await;
            limits.forget_settled();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_moves_between_the_tables_with_its_waiters_and_back() {
    let limits = bucket(1).keyed::<String>();
    for _ in 0..3 {
        assert!(limits.try_acquire("ann", 1).is_pass());
        let mut request = queued(limits.acquire("ann".into(), 1));
        assert_eq!(limits.try_acquire("ann", 1), wait(200), "behind the waiter");
        jump(ms(100)).await;
        assert!(request.poll().is_ready());
        assert_eq!(limits.try_acquire("ann", 1), wait(100));
        assert_eq!(limits.len(), 1);
        jump(ms(100)).await;
    }
    assert_eq!(limits.stats().passed, 6);
}

/// Gives all keys the same hash.
#[derive(Clone, Copy)]
struct Colliding;

impl BuildHasher for Colliding {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Colliding {
    fn write(&mut self, _bytes: &[u8]) {}

    fn finish(&self) -> u64 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn keys_share_nothing_even_if_a_hasher_of_ones_own_makes_them_collide() {
    let limits = bucket(1).keyed::<String>().with_hasher(Colliding);
    let keys: Vec<_> = (0..50).map(|n| n.to_string()).collect();
    for key in &keys {
        assert_eq!(limits.try_acquire(key.as_str(), 1), Decision::Pass);
        assert_eq!(limits.try_acquire(key.as_str(), 1), wait(100));
    }
    let _waits = queued(limits.acquire(keys[7].clone(), 1));
    assert_eq!(limits.try_acquire(&keys[7], 1), wait(200));
    assert_eq!(limits.try_acquire(&keys[8], 1), wait(100));
    assert_eq!(limits.len(), 50);
}
