//! Checks every law of [`Policy`](paceline::policy::Policy) for every policy, on thousands of random traces.
//!
//! A law is a generic function over a `Subject`. A subject is a policy with random parameters, the bound in its docs, and a
//! naive model of it. To check another policy, make it a subject and add its line at the end. `PROPTEST_CASES` sets the
//! number of traces, which is eight times as large. [`adversary`] searches for the worst window, and [`sustained`] for the
//! slowest stream.

mod adversary;
mod answers;
mod bounds;
mod changes;
mod credit;
mod edges;
mod fair;
mod margin;
mod model;
mod permits;
mod reading;
mod settle;
mod subject;
mod sustained;
mod trace;
mod twins;

use paceline::policy::{
    All, FixedWindow, Interval, Ramp, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use subject::Aligned;
use trace::check;

/// A test for each of these laws, on what a strategy makes.
macro_rules! keep {
    ($policy:ty: $($values:path => [$($part:ident::$law:ident,)+])*) => {$($(
        #[test]
        fn $law() {
            check::<$policy, _>($values(), |values| $part::$law::<$policy>(&values));
        }
    )+)*};
}

/// A test for each of these laws, which make their traces themselves.
macro_rules! keep_at_last {
    ($policy:ty: $($part:ident::$law:ident,)*) => {$(
        #[test]
        fn $law() {
            $part::$law::<$policy>();
        }
    )*};
}

/// A module for each policy, with a test for each law.
macro_rules! keep_every_law {
    ($($name:ident: $policy:ty,)*) => {$(
        mod $name {
            use super::*;

            keep! {
                $policy:
                trace::cases => [
                    answers::a_wait_is_exact_to_the_nanosecond,
                    answers::a_refusal_and_a_cost_of_zero_change_nothing,
                    answers::a_peek_equals_the_decision,
                    answers::only_a_cost_above_the_capacity_never_passes,
                    answers::the_policy_agrees_with_its_model,
                    bounds::no_window_of_a_random_trace_exceeds_the_bound_in_the_docs,
                    changes::is_settled_agrees_with_settled_at,
                    changes::a_refund_at_once_undoes_the_request,
                    changes::a_retune_to_the_same_parameters_changes_no_answer,
                    reading::room_requests_pass_and_the_next_one_does_not,
                    reading::a_status_describes_the_limit_with_the_least_room,
                    settle::a_charge_lets_no_request_pass_earlier,
                    settle::a_policy_per_request_is_the_policy_with_cost_1,
                    credit::a_request_that_passes_on_credit_would_pass_without_it,
                ]
                trace::greedy_cases => [
                    bounds::no_window_of_a_greedy_trace_exceeds_the_bound_in_the_docs,
                    bounds::after_a_refund_the_bound_holds,
                    reading::no_window_of_a_quota_holds_more_than_the_docs_say,
                ]
                trace::changed_cases => [
                    changes::a_refund_never_makes_a_state_better_than_full,
                    settle::a_charge_of_what_passes_equals_the_decision,
                    settle::a_refund_of_a_charge_undoes_it,
                    settle::a_refund_after_its_window_makes_no_room,
                    settle::charges_and_refunds_agree_with_the_model,
                    settle::a_word_keeps_the_state_exactly,
                    settle::a_debt_settles_when_it_says,
                    edges::no_request_passes_earlier_if_the_clock_goes_back,
                ]
                trace::retuned_greedy_cases => [
                    bounds::after_a_retune_the_new_bound_holds,
                ]
                trace::retuned_cases => [
                    settle::a_retune_keeps_what_is_spent_and_owed,
                ]
                trace::policies => [
                    reading::a_full_limit_passes_its_quota_within_the_window,
                    reading::a_caller_that_spreads_its_quota_evenly_is_never_refused,
                ]
                edges::calls => [
                    edges::no_method_panics_with_extreme_values_in_any_order,
                ]
            }

            keep_at_last! {
                $policy:
                edges::the_policy_agrees_with_its_model_for_a_hundred_days,
                changes::a_settled_state_answers_as_a_fresh_one,
                reading::after_its_reset_a_limit_answers_as_a_full_one,
            }
        }
    )*};
}

keep_every_law! {
    interval: Interval,
    ramp: Ramp,
    token_bucket: TokenBucket,
    unlimited: Unlimited,
    sliding_log: SlidingLog,
    sliding_counter: SlidingCounter,
    fixed_window: FixedWindow,
    aligned_window: Aligned,
    interval_and_bucket: All<(Interval, TokenBucket)>,
    log_and_counter_and_interval: All<(SlidingLog, SlidingCounter, Interval)>,
    all_of_all: All<(All<(FixedWindow, SlidingLog)>, Interval)>,
}
