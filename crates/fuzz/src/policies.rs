//! Checks the laws of every policy on the traces of a fuzzer.

use std::time::Duration;

use arbitrary::Unstructured;
use paceline::policy::{
    All, Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use paceline::time::Tick;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::bounds::allows_every_window;
use super::model::Model;
use super::steps::{Cost, Gap, Step};
use super::subject::Subject;
use super::trace::Ask;

/// A policy with three sets of parameters, and all operations on its state.
///
/// # Panics
///
/// If a law is broken.
pub fn policies(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let obeys = [
        obeys::<Interval>,
        obeys::<TokenBucket>,
        obeys::<SlidingLog>,
        obeys::<SlidingCounter>,
        obeys::<FixedWindow>,
        obeys::<Unlimited>,
        obeys::<All<(Interval, TokenBucket)>>,
        obeys::<All<(SlidingLog, SlidingCounter, Interval)>>,
        obeys::<All<(All<(FixedWindow, SlidingLog)>, Interval)>>,
    ];
    obeys[usize::from(*kind) % obeys.len()](data);
}

/// Checks that no window of the `passed` requests exceeds the bound in the docs of the policy.
pub(crate) trait Bounded {
    fn assert_bound(&self, passed: &[(Tick, u32)]);
}

impl<S: Subject> Bounded for S {
    fn assert_bound(&self, passed: &[(Tick, u32)]) {
        let asks: Vec<Ask> = passed.iter().map(|&(at, cost)| Ask { at, cost }).collect();
        if let Err(broken) = allows_every_window(self, &asks) {
            panic!("{self:?}: {broken}");
        }
    }
}

/// Not more, since models are slow.
const MOST_STEPS: usize = 200;

fn obeys<S: Subject>(data: &[u8]) {
    let mut steps = Unstructured::new(data);
    let seeds: [u16; 3] = steps.arbitrary().unwrap_or_default();
    let policies = seeds.map(subject::<S>);
    let start = if steps.arbitrary().unwrap_or(false) {
        steps.arbitrary().map_or(Tick::ZERO, Tick::from_nanos)
    } else {
        Tick::ZERO
    };
    let mut trace = Trace::begin(&policies, start);
    for _ in 0..MOST_STEPS {
        if steps.is_empty() {
            break;
        }
        let Ok(step) = steps.arbitrary() else { break };
        trace.take(step);
    }
    trace.bound_holds();
}

/// A policy of the tests of the laws.
fn subject<S: Subject>(seed: u16) -> S {
    let seed = seed.to_be_bytes().repeat(16);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = S::any().new_tree(&mut runner);
    tree.expect("nothing is filtered").current()
}

struct Trace<'a, S: Subject> {
    policies: &'a [S; 3],
    policy: &'a S,
    state: S::State,
    now: Tick,
    due: Tick,
    cost: u32,
    /// `None` after two retunes, which may round twice.
    model: Option<S::Model>,
    late: u128,
    /// The requests that passed since the last refund or retune.
    passed: Vec<(Tick, u32)>,
}

impl<'a, S: Subject> Trace<'a, S> {
    fn begin(policies: &'a [S; 3], now: Tick) -> Self {
        let policy = &policies[0];
        Self {
            policies,
            policy,
            state: policy.fresh(now),
            now,
            due: now,
            cost: 1,
            model: Some(S::Model::start(policy, now)),
            late: 0,
            passed: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask { gap, cost } => self.ask(gap, cost),
            Step::Refund { cost } => self.refund(cost),
            Step::Retune { to } => self.retune(to),
            Step::Settle { later } => self.settle(later),
            Step::Elsewhen { at, cost, to } => self.elsewhen(Tick::from_nanos(at), cost, to),
        }
        let _ = self.policy.settled_at(&self.state);
    }

    fn ask(&mut self, gap: Gap, cost: Cost) {
        self.now = self.now.max(self.then(gap));
        self.cost = self.cost_of(cost);
        let (now, cost) = (self.now, self.cost);
        let before = self.state.clone();
        let answer = self.policy.decide(&mut self.state, now, cost);
        let context = || {
            format!(
                "{:?} of {before:?} to {cost} at {now:?}: {answer:?}",
                self.policy
            )
        };
        assert_eq!(
            self.policy.peek(&before, now, cost),
            answer,
            "{}",
            context()
        );
        if !answer.is_pass() || cost == 0 {
            let (before, after) = (format!("{before:?}"), format!("{:?}", self.state));
            assert_eq!(after, before, "{}", context());
        }
        assert!(cost > 0 || answer.is_pass(), "{}", context());
        assert!(
            is_right(self.policy, &before, now, cost, answer),
            "{}",
            context()
        );
        if let Some(model) = self.model.as_mut().filter(|_| now < Tick::MAX) {
            let due = model.due(now, cost);
            assert!(
                due.agrees_with(answer, now, self.late),
                "{}, due {due:?}",
                context()
            );
            if answer.is_pass() {
                model.count(now, cost);
            }
        }
        self.due = match answer {
            Decision::Wait { retry_in } => now.after(retry_in),
            Decision::Pass | Decision::Never { .. } => now,
        };
        // After the last tick, which means never, there is no bound.
        if answer.is_pass() && cost > 0 && now < Tick::MAX {
            self.passed.push((now, cost));
        }
    }

    fn refund(&mut self, cost: Cost) {
        let cost = self.cost_of(cost);
        self.bound_holds();
        self.policy.refund(&mut self.state, self.now, cost);
        if let Some(model) = self.model.as_mut() {
            model.refund(self.now, cost);
        }
        self.is_no_better_than_full();
    }

    /// If a policy divides time into windows, those of a full limit may end later. Then only this instant is compared.
    fn is_no_better_than_full(&self) {
        let best = self.policy.full();
        let (mut state, mut full) = (self.state.clone(), best.fresh(self.now));
        let mut at = self.now;
        for cost in [1, self.cost, self.policy.burst(), 1, self.cost] {
            let answer = self.policy.decide(&mut state, at, cost);
            if answer.is_pass() {
                let from_full = best.decide(&mut full, at, cost);
                assert!(
                    from_full.is_pass(),
                    "{best:?}: {cost} at {at:?}, {from_full:?}"
                );
            } else if !S::PHASED {
                at = end_of(at, answer);
            }
        }
    }

    fn retune(&mut self, to: u8) {
        let new = &self.policies[usize::from(to) % 3];
        self.bound_holds();
        let (policy, now) = (self.policy, self.now);
        new.retune(policy, &mut self.state, now);
        self.policy = new;
        let was_rounded = self.late > 0;
        let model = self
            .model
            .take()
            .filter(|_| !was_rounded && now < Tick::MAX);
        self.model = model.and_then(|model| model.retuned(new, now));
        self.late = S::Model::LATE_WHEN_RETUNED;
    }

    /// From the instant at which it settles, the state answers as a fresh one does.
    fn settle(&mut self, later: u8) {
        let settled = self.policy.settled_at(&self.state);
        if settled == Tick::MAX {
            return;
        }
        let then = settled
            .max(self.now)
            .after(Duration::from_nanos(later.into()));
        let mut used = self.state.clone();
        let mut fresh = self.policy.fresh(then);
        let mut at = then;
        for cost in [self.policy.burst(), 1, self.policy.burst(), self.cost, 2] {
            let answer = self.policy.decide(&mut used, at, cost);
            let fresh = self.policy.decide(&mut fresh, at, cost);
            let then = end_of(at, answer);
            if then == Tick::MAX && then == end_of(at, fresh) {
                return;
            }
            assert_eq!(
                answer, fresh,
                "{:?} settled at {settled:?}, to {cost} at {at:?}",
                self.policy
            );
            at = then;
        }
    }

    fn elsewhen(&self, at: Tick, cost: u32, to: u8) {
        let mut state = self.state.clone();
        let peek = self.policy.peek(&state, at, cost);
        assert_eq!(
            self.policy.decide(&mut state, at, cost),
            peek,
            "{:?} at {at:?}",
            self.policy
        );
        self.policy.refund(&mut state, at, cost / 2);
        let new = &self.policies[usize::from(to) % 3];
        new.retune(self.policy, &mut state, at);
        let _ = new.settled_at(&state);
        let peek = new.peek(&state, self.now, cost);
        assert_eq!(
            new.decide(&mut state, self.now, cost),
            peek,
            "{new:?} after {at:?}"
        );
    }

    fn bound_holds(&mut self) {
        self.policy.assert_bound(&self.passed);
        self.passed.clear();
    }

    fn then(&self, gap: Gap) -> Tick {
        let after = |nanos: u64, times: u8| {
            self.now
                .after(Duration::from_nanos(nanos.saturating_mul(times.into())))
        };
        match gap {
            Gap::None => self.now,
            Gap::Nanos(nanos) => after(1, nanos),
            Gap::Much(nanos) => self.now.after(Duration::from_nanos(nanos)),
            Gap::Grains(times, off) => by(after(self.policy.grain(), times), off),
            Gap::Periods(times, off) => by(after(self.policy.period(), times), off),
            Gap::Due(off) => by(self.due, off),
        }
    }

    fn cost_of(&self, cost: Cost) -> u32 {
        match cost {
            Cost::One => 1,
            Cost::Some(cost) => cost.into(),
            Cost::Any(cost) => cost,
            Cost::Burst => self.policy.burst(),
            Cost::More => self.policy.burst().saturating_add(1),
            Cost::Again => self.cost,
        }
    }
}

/// A wait is exact, and only a cost above the capacity never passes.
fn is_right<S: Subject>(
    policy: &S,
    state: &S::State,
    now: Tick,
    cost: u32,
    answer: Decision,
) -> bool {
    let never = |cost| matches!(policy.peek(state, now, cost), Decision::Never { .. });
    if never(1) {
        return false;
    }
    match answer {
        Decision::Pass => true,
        Decision::Never { capacity } => cost > capacity && !never(capacity),
        Decision::Wait { retry_in } => {
            let then = now.after(retry_in);
            let waits = |left| {
                let answer = policy.peek(state, then.before(left), cost);
                left.is_zero() || answer == Decision::Wait { retry_in: left }
            };
            let is_refused_until_then = waits(Duration::from_nanos(1)) && waits(retry_in / 2);
            let passes_then = policy.peek(state, then, cost).is_pass();
            // The last tick means never.
            then == Tick::MAX || (!retry_in.is_zero() && is_refused_until_then && passes_then)
        }
    }
}

fn end_of(now: Tick, answer: Decision) -> Tick {
    match answer {
        Decision::Wait { retry_in } => now.after(retry_in),
        Decision::Pass | Decision::Never { .. } => now,
    }
}

fn by(tick: Tick, off: i8) -> Tick {
    Tick::from_nanos(tick.as_nanos().saturating_add_signed(off.into()))
}
