//! Checks the laws of every policy on the traces of a fuzzer.

use arbitrary::{Result, Unstructured};
use paceline::policy::{
    All, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use paceline::time::Tick;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::bounds::allows_every_window;
use super::edges::Jumble;
use super::subject::{Aligned, Subject};
use super::trace::{Ask, Case, Change, Dice, Retuned, mixed};
use super::{answers, bounds, changes, edges, reading, settle};

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
        obeys::<Aligned>,
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
    let Ok((retuned, jumble)) = traces::<S>(&mut Unstructured::new(data)) else {
        return;
    };
    let case = &retuned.0;
    for law in [
        answers::a_wait_is_exact_to_the_nanosecond(case),
        answers::a_refusal_and_a_cost_of_zero_change_nothing(case),
        answers::a_peek_equals_the_decision(case),
        answers::only_a_cost_above_the_capacity_never_passes(case),
        bounds::no_window_of_a_random_trace_exceeds_the_bound_in_the_docs(case),
        bounds::after_a_retune_the_new_bound_holds(&retuned),
        bounds::after_a_refund_the_bound_holds(case),
        changes::a_refund_never_makes_a_state_better_than_full(case),
        changes::a_refund_at_once_undoes_the_request(case),
        reading::a_status_describes_the_limit_with_the_least_room(case),
        settle::charges_and_refunds_agree_with_the_model(case),
        settle::a_retune_keeps_what_is_spent_and_owed(&retuned),
        settle::a_debt_settles_when_it_says(case),
        edges::no_method_panics_with_extreme_values_in_any_order(&jumble),
        edges::no_request_passes_earlier_if_the_clock_goes_back(case),
    ] {
        if let Err(broken) = law {
            panic!("{broken}: {retuned:?} {jumble:?}");
        }
    }
}

/// The traces of the tests of the laws, made from these bytes.
fn traces<S: Subject>(bytes: &mut Unstructured<'_>) -> Result<(Retuned<S>, Jumble<S>)> {
    let policies = bytes.arbitrary::<[u16; 3]>()?.map(subject::<S>);
    let start = if bytes.arbitrary()? {
        Tick::from_nanos(bytes.arbitrary()?)
    } else {
        Tick::ZERO
    };
    let (number, then) = bytes.arbitrary::<(u32, [Dice; 8])>()?;
    let step = |(gap_kind, gap, cost_kind, cost)| mixed((gap_kind % 20, gap, cost_kind % 20, cost));
    let (mut steps, mut changes) = (Vec::new(), Vec::new());
    while steps.is_empty() || (steps.len() < MOST_STEPS && !bytes.is_empty()) {
        let (dice, (kind, number, of)) = bytes.arbitrary::<(Dice, (u8, u32, u8))>()?;
        let kind = kind % Change::KINDS;
        steps.push(step(dice));
        changes.push(Change { kind, number, of });
    }
    let [policy, new, _] = policies.clone();
    let then = then.map(step).to_vec();
    let case = Case::new(policy, start, (steps, changes), then, number);
    let calls = case.asks.iter().zip(&case.changes).map(|(ask, change)| {
        let (now, new) = (change.of(&case.asks).at, usize::from(change.of % 3));
        (change.kind % 6, now, change.cost(), new, ask.at)
    });
    let jumble = Jumble {
        policies,
        start,
        calls: calls.collect(),
    };
    Ok(((case, new), jumble))
}

/// A policy of the tests of the laws.
fn subject<S: Subject>(seed: u16) -> S {
    let seed = seed.to_be_bytes().repeat(16);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = S::any().new_tree(&mut runner);
    tree.expect("nothing is filtered").current()
}
