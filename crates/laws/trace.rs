//! Random traces: requests with their instants.

use std::fmt::Debug;
use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use proptest::collection::{SizeRange, vec};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use super::subject::Subject;

pub(super) const fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Checks `law` with thousands of values, and panics with the smallest one that breaks it.
#[track_caller]
pub(super) fn check<S: Subject, T: Debug>(
    values: impl Strategy<Value = T>,
    law: impl Fn(T) -> TestCaseResult,
) {
    check_times(S::TIMES, values, law);
}

/// The same as [`check`], with `times` · 256 values.
#[track_caller]
pub(super) fn check_times<T: Debug>(
    times: u32,
    values: impl Strategy<Value = T>,
    law: impl Fn(T) -> TestCaseResult,
) {
    if let Err(broken) = runner(times).run(&values, law) {
        panic!("{broken}");
    }
}

/// What tries `times` · 256 values.
pub(super) fn runner(times: u32) -> TestRunner {
    let default = Config::default();
    TestRunner::new(Config {
        cases: default.cases.saturating_mul(times),
        failure_persistence: None,
        ..default
    })
}

/// A policy, the creation of its state, the requests since then, and the steps that follow.
#[derive(Clone, Debug)]
pub(super) struct Case<S> {
    pub(super) policy: S,
    pub(super) start: Tick,
    pub(super) asks: Vec<Ask>,
    /// What happens after each request, besides it.
    pub(super) changes: Vec<Change>,
    pub(super) then: Vec<Step>,
    /// Any number.
    pub(super) number: u32,
}

/// A case, and other parameters.
pub(super) type Retuned<S> = (Case<S>, S);

impl<S: Subject> Case<S> {
    /// With these steps as requests.
    pub(super) fn new(
        policy: S,
        start: Tick,
        (steps, changes): (Vec<Step>, Vec<Change>),
        then: Vec<Step>,
        number: u32,
    ) -> Self {
        let asks = asks(&policy, policy.fresh(start), start, &steps);
        Self {
            policy,
            start,
            asks,
            changes,
            then,
            number,
        }
    }

    /// Any cost, mostly a small one.
    pub(super) fn cost(&self) -> u32 {
        self.number >> (self.number % 32)
    }

    /// The requests that come next.
    pub(super) fn later(&self, state: &S::State, now: Tick) -> Vec<Ask> {
        asks(&self.policy, state.clone(), now, &self.then)
    }

    /// The state after all requests, and the time.
    pub(super) fn end(&self) -> (S::State, Tick) {
        let mut state = self.policy.fresh(self.start);
        for ask in &self.asks {
            let _ = self.policy.decide(&mut state, ask.at, ask.cost);
        }
        (state, self.asks.last().map_or(self.start, |ask| ask.at))
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) at: Tick,
    pub(super) cost: u32,
}

/// A change of a state besides a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Below [`KINDS`](Self::KINDS).
    pub(super) kind: u8,
    pub(super) number: u32,
    /// The number of the earlier request whose instant a refund names.
    pub(super) of: u8,
}

impl Change {
    pub(super) const KINDS: u8 = 9;

    /// Any cost, mostly a small one.
    pub(super) const fn cost(self) -> u32 {
        self.number >> (self.number % 32)
    }

    /// The request that it names.
    pub(super) fn of(self, asks: &[Ask]) -> Ask {
        asks[usize::from(self.of) % asks.len()]
    }
}

/// One request of a trace without a policy. With a policy, which defines the units, it becomes an [`Ask`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    gap: Gap,
    cost: Cost,
}

/// The time since the last request.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Nanos(u64),
    /// A multiple of the grain, up to 1 ns off.
    Grains(u64, i8),
    /// A multiple of the period, up to 1 ns off.
    Periods(u64, i8),
    /// The end of the wait of the last request, up to 1 ns off.
    Due(i8),
    /// The instant at which the state settles, up to 1 ns off.
    Settled(i8),
}

#[derive(Clone, Copy, Debug)]
enum Cost {
    Exactly(u32),
    /// The most that can pass at once, plus this.
    Burst(u32),
    /// The cost of the last request.
    Again,
    /// All that passes now, half of it, or one less.
    Room(u8),
}

/// Requests of all kinds.
pub(super) fn cases<S: Subject>() -> impl Strategy<Value = Case<S>> {
    cases_of(S::any(), steps(mixed, 30), 0)
}

/// The same, for this policy.
pub(super) fn cases_with<S: Subject>(policy: &S) -> impl Strategy<Value = Case<S>> {
    cases_of(Just(policy.clone()), steps(mixed, 30), 0)
}

/// The same, with a change after each request.
pub(super) fn changed_cases<S: Subject>() -> impl Strategy<Value = Case<S>> {
    cases_of(S::any(), steps(mixed, 30), 30)
}

/// The same, and other parameters.
pub(super) fn retuned_cases<S: Subject>() -> impl Strategy<Value = Retuned<S>> {
    (changed_cases(), S::any())
}

/// Requests for all that passes, at the end of the last wait, at the same instant as the last request, or at the edge of a window.
pub(super) fn greedy_cases<S: Subject>() -> impl Strategy<Value = Case<S>> {
    cases_of(S::any(), steps(greedy, 60), 0)
}

/// The same, and other parameters.
pub(super) fn retuned_greedy_cases<S: Subject>() -> impl Strategy<Value = Retuned<S>> {
    (greedy_cases(), S::any())
}

/// Without requests.
pub(super) fn policies<S: Subject>() -> impl Strategy<Value = S> {
    S::any()
}

/// A random start, mostly an early one.
pub(super) fn starts() -> impl Strategy<Value = Tick> {
    prop_oneof![
        4 => Just(0),
        4 => 0..1000u64,
        2 => any::<u64>(),
        1 => (0..1000u64).prop_map(|before| u64::MAX - before),
    ]
    .prop_map(Tick::from_nanos)
}

fn cases_of<S: Subject>(
    policy: impl Strategy<Value = S>,
    before: impl Strategy<Value = Vec<Step>>,
    changes: impl Into<SizeRange>,
) -> impl Strategy<Value = Case<S>> {
    let change = (0..Change::KINDS, any::<u32>(), any::<u8>());
    let change = change.prop_map(|(kind, number, of)| Change { kind, number, of });
    let before = (before, vec(change, changes));
    let case = (policy, starts(), before, steps(mixed, 15), any::<u32>());
    case.prop_map(|(policy, start, before, then, number)| {
        Case::new(policy, start, before, then, number)
    })
}

/// Each step takes four random numbers. A strategy for each part would take longer than the laws.
fn steps(step: fn(Dice) -> Step, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let dice = (0..20u8, any::<u8>(), 0..20u8, any::<u8>());
    vec(dice.prop_map(step), 1..most)
}

/// The kind of gap and its value, the kind of cost and its value. Zeros make the simplest step.
pub(super) type Dice = (u8, u8, u8, u8);

pub(super) fn mixed((gap_kind, gap, cost_kind, cost): Dice) -> Step {
    let off = i8::try_from(gap % 3).unwrap_or(0) - 1;
    let times = u64::from(gap / 3 % 6);
    Step {
        gap: match gap_kind {
            0..4 => Gap::Nanos(u64::from(gap % 2)),
            4..6 => Gap::Nanos(u64::from(gap % 50)),
            6 => Gap::Nanos(u64::MAX >> (gap % 64)),
            7..11 => Gap::Grains(times, off),
            11..13 => Gap::Periods(times, off),
            13..19 => Gap::Due(off),
            _ => Gap::Settled(off),
        },
        cost: match cost_kind {
            0..6 => Cost::Exactly(1),
            6..10 => Cost::Exactly(u32::from(cost % 9)),
            10..14 => Cost::Again,
            14..16 => Cost::Burst(0),
            16 => Cost::Burst(1),
            17 => Cost::Exactly(u32::MAX),
            _ => Cost::Exactly(u32::MAX >> (cost % 32)),
        },
    }
}

fn greedy((gap_kind, gap, cost_kind, cost): Dice) -> Step {
    let off = i8::try_from(gap % 3).unwrap_or(0) - 1;
    let times = u64::from(gap / 3 % 12);
    Step {
        gap: match gap_kind {
            0..6 => Gap::Nanos(0),
            6..14 => Gap::Due(0),
            14..16 => Gap::Grains(times, off),
            16..18 => Gap::Periods(times % 3, off),
            _ => Gap::Settled(0),
        },
        cost: match cost_kind {
            0..8 => Cost::Exactly(1),
            8..12 => Cost::Again,
            12..15 => Cost::Room(cost % 3),
            15..18 => Cost::Exactly(1 + u32::from(cost % 4)),
            _ => Cost::Burst(0),
        },
    }
}

/// Turns `steps` into requests for this policy, from this state on. Time never goes back.
pub(super) fn asks<S: Subject>(
    policy: &S,
    mut state: S::State,
    mut now: Tick,
    steps: &[Step],
) -> Vec<Ask> {
    let mut due = now;
    let mut before = 1;
    let mut asks = Vec::with_capacity(steps.len());
    for step in steps {
        let at = match step.gap {
            Gap::Nanos(nanos) => now.after(Duration::from_nanos(nanos)),
            Gap::Grains(times, off) => by(after(now, policy.grain(), times), off),
            Gap::Periods(times, off) => by(after(now, policy.period(), times), off),
            Gap::Due(off) => by(due, off),
            Gap::Settled(off) => match policy.settled_at(&state) {
                Tick::MAX => now,
                settled => by(settled, off),
            },
        };
        now = now.max(at);
        let cost = match step.cost {
            Cost::Exactly(cost) => cost,
            Cost::Burst(more) => policy.burst().saturating_add(more),
            Cost::Again => before,
            Cost::Room(0) => policy.room(&state, now),
            Cost::Room(1) => policy.room(&state, now) / 2,
            Cost::Room(_) => policy.room(&state, now).saturating_sub(1),
        };
        due = match policy.decide(&mut state, now, cost) {
            Decision::Wait { retry_in } => now.after(retry_in),
            Decision::Pass | Decision::Never { .. } => now,
        };
        before = cost;
        asks.push(Ask { at: now, cost });
    }
    asks
}

fn after(now: Tick, nanos: u64, times: u64) -> Tick {
    now.after(Duration::from_nanos(nanos.saturating_mul(times)))
}

fn by(tick: Tick, off: i8) -> Tick {
    Tick::from_nanos(tick.as_nanos().saturating_add_signed(off.into()))
}
