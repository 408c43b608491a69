//! Every policy keeps every law of [`Policy`](paceline::policy::Policy), on thousands of random traces.
//!
//! A law is a generic function over a `Subject`; a subject is a policy with random parameters, the bound that its docs
//! state, and a naive model of it. To put another policy under the laws, make it a subject and add its line at the end.
//! `PROPTEST_CASES` sets the number of traces: eight times as many.
//! [`adversary`] looks for the worst window on purpose, and [`sustained`] for the slowest stream.

mod adversary;
mod answers;
mod bounds;
mod changes;
mod credit;
mod edges;
mod model;
mod subject;
mod sustained;
mod trace;
mod twins;

use paceline::policy::{
    All, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};

/// One module for each policy, one test in it for each law.
macro_rules! keep_every_law {
    ($($name:ident: $policy:ty,)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn told_to_wait_it_is_refused_until_then_and_passes_then() {
                answers::told_to_wait_it_is_refused_until_then_and_passes_then::<$policy>();
            }

            #[test]
            fn a_refusal_changes_nothing() {
                answers::a_refusal_changes_nothing::<$policy>();
            }

            #[test]
            fn a_peek_says_what_a_decision_says() {
                answers::a_peek_says_what_a_decision_says::<$policy>();
            }

            #[test]
            fn cost_zero_passes_and_changes_nothing() {
                answers::cost_zero_passes_and_changes_nothing::<$policy>();
            }

            #[test]
            fn only_what_is_dearer_than_the_capacity_never_passes() {
                answers::only_what_is_dearer_than_the_capacity_never_passes::<$policy>();
            }

            #[test]
            fn it_agrees_with_its_model() {
                answers::it_agrees_with_its_model::<$policy>();
            }

            #[test]
            fn no_window_of_any_trace_holds_more_than_its_docs_say() {
                bounds::no_window_of_any_trace_holds_more_than_its_docs_say::<$policy>();
            }

            #[test]
            fn no_window_of_a_greedy_trace_holds_more_than_its_docs_say() {
                bounds::no_window_of_a_greedy_trace_holds_more_than_its_docs_say::<$policy>();
            }

            #[test]
            fn no_window_of_an_attack_holds_more_than_its_docs_say() {
                adversary::no_window_of_an_attack_holds_more_than_its_docs_say::<$policy>();
            }

            #[test]
            fn after_a_retune_the_new_bound_holds() {
                bounds::after_a_retune_the_new_bound_holds::<$policy>();
            }

            #[test]
            fn after_a_refund_the_bound_holds() {
                bounds::after_a_refund_the_bound_holds::<$policy>();
            }

            #[test]
            fn what_passes_on_credit_would_have_passed() {
                credit::what_passes_on_credit_would_have_passed::<$policy>();
            }

            #[test]
            fn once_settled_it_answers_like_a_fresh_one() {
                changes::once_settled_it_answers_like_a_fresh_one::<$policy>();
            }

            #[test]
            fn it_knows_whether_it_has_settled() {
                changes::it_knows_whether_it_has_settled::<$policy>();
            }

            #[test]
            fn a_refund_never_makes_it_better_than_full() {
                changes::a_refund_never_makes_it_better_than_full::<$policy>();
            }

            #[test]
            fn a_refund_gives_back_what_its_model_does() {
                changes::a_refund_gives_back_what_its_model_does::<$policy>();
            }

            #[test]
            fn what_is_refunded_at_once_was_never_asked_for() {
                changes::what_is_refunded_at_once_was_never_asked_for::<$policy>();
            }

            #[test]
            fn a_retune_to_the_same_parameters_changes_no_answer() {
                changes::a_retune_to_the_same_parameters_changes_no_answer::<$policy>();
            }

            #[test]
            fn a_retune_keeps_what_was_spent() {
                changes::a_retune_keeps_what_was_spent::<$policy>();
            }

            #[test]
            fn nothing_panics_at_the_edges_in_whatever_order() {
                edges::nothing_panics_at_the_edges_in_whatever_order::<$policy>();
            }

            #[test]
            fn it_agrees_with_its_model_for_a_hundred_days() {
                edges::it_agrees_with_its_model_for_a_hundred_days::<$policy>();
            }

            #[test]
            fn a_clock_that_goes_back_lets_nothing_pass_sooner_than_one_that_stands_still() {
                edges::a_clock_that_goes_back_lets_nothing_pass_sooner_than_one_that_stands_still::<$policy>();
            }
        }
    )*};
}

keep_every_law! {
    interval: Interval,
    token_bucket: TokenBucket,
    unlimited: Unlimited,
    sliding_log: SlidingLog,
    sliding_counter: SlidingCounter,
    fixed_window: FixedWindow,
    interval_and_bucket: All<(Interval, TokenBucket)>,
    log_and_counter_and_interval: All<(SlidingLog, SlidingCounter, Interval)>,
    all_of_all: All<(All<(FixedWindow, SlidingLog)>, Interval)>,
}
