//! Other parameters under the same key keep what was spent, as `retune` does.

use std::cell::RefCell;
use std::time::Duration;

use paceline::policy::{Interval, Policy, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use proptest::{prop_assert, prop_assert_eq};

use super::asking::{LimitArgs, Question, Store};
use super::numbers::{self, Numbers};
use super::subject::{Here, at, micros};
use super::{MILLI, MINUTE, NOW, SECOND};

const KEY: &str = "key";

fn limit_args(numbers: &Numbers) -> [LimitArgs; 1] {
    [LimitArgs::new(KEY, numbers)]
}

fn check<T: std::fmt::Debug>(
    values: impl Strategy<Value = T>,
    law: impl Fn(&mut Store, T) -> Result<(), TestCaseError>,
) {
    let store = RefCell::new(Store::start());
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&values, |value| {
        let mut store = store.borrow_mut();
        store.flush();
        law(&mut store, value)
    });
    if let Err(broken) = tried {
        panic!("{broken}");
    }
}

/// Sends the same requests to both sides of a policy, and compares their answers.
fn spend<P: Policy>(
    store: &mut Store,
    here: &mut Here<P>,
    numbers: &Numbers,
    now: &mut u64,
    asks: &[(u64, u32)],
) -> Result<(), TestCaseError> {
    for (gap, cost) in asks {
        *now += gap;
        let there = store.ask_lasting(&Question::ask(*now, *cost), &limit_args(numbers));
        prop_assert_eq!(there.wait(), here.ask(*now, *cost));
    }
    Ok(())
}

fn rates() -> impl Strategy<Value = Rate> {
    (1..200_u32, 1..SECOND).prop_map(|(permits, period)| Rate::new(permits, micros(period)))
}

/// Never early, and late by at most one fraction of a microsecond, rounded up.
#[test]
fn a_bucket_keeps_its_tokens_with_their_fraction() {
    let values = (
        rates(),
        rates(),
        1..12_u32,
        1..12_u32,
        vec((0..SECOND / 100, 1..30_u32), 1..5),
        0..SECOND / 10,
    );
    check(
        values,
        |store, (old_rate, new_rate, old_burst, new_burst, asks, gap)| {
            let old = TokenBucket::new(old_rate, old_burst).with_debt();
            let new = TokenBucket::new(new_rate, new_burst).with_debt();
            let (old_numbers, new_numbers) = (
                numbers::owing(old_rate, old_burst),
                numbers::owing(new_rate, new_burst),
            );
            let mut now = NOW;
            let mut here = Here::new(old, at(NOW));
            spend(store, &mut here, &old_numbers, &mut now, &asks)?;
            now += gap;
            let mut here = here.retuned(&new, now);
            for cost in [new_burst, 1, 1] {
                let there = store.ask_lasting(&Question::ask(now, cost), &limit_args(&new_numbers));
                let expected = here.peek(now, cost).unwrap_or(0);
                let waits = there.wait().unwrap_or(0);
                prop_assert!(
                    waits == expected || waits == expected + 1,
                    "{waits}, not {expected}"
                );
                prop_assert_eq!(there.known().at, now, "written, also if it was refused");
                if waits > 0 {
                    now += waits;
                    let passes =
                        store.ask_lasting(&Question::ask(now, cost), &limit_args(&new_numbers));
                    prop_assert_eq!(passes.passed, 1, "a wait is exact");
                }
                prop_assert_eq!(here.ask(now, cost), None);
            }
            Ok(())
        },
    );
}

#[test]
fn the_largest_buckets_keep_their_tokens() {
    let mut store = Store::start();
    let largest = (1_u64 << 52) - 1;
    let edges = [
        (Rate::new(1, micros(largest)), 1),
        (Rate::new(3, Duration::from_nanos(largest)), 1),
        (Rate::new(1, micros(1 << 20)), u32::MAX),
        (
            Rate::new(u32::MAX, Duration::from_nanos((1 << 40) - 1)),
            4_000,
        ),
        (Rate::per_second(1_000_000), u32::MAX),
        (Rate::new(999_983, Duration::from_secs(86_400)), 52_000),
    ];
    for (old_rate, old_burst) in edges {
        for (new_rate, new_burst) in edges {
            let old = numbers::owing(old_rate, old_burst);
            for spent in [old_burst, old_burst.div_ceil(3), old.capacity] {
                store.flush();
                let owing = TokenBucket::new(old_rate, old_burst).with_debt();
                let mut here = Here::new(owing, at(NOW));
                let there = store.ask_lasting(&Question::ask(NOW, spent), &limit_args(&old));
                assert_eq!(there.wait(), here.ask(NOW, spent));
                let now = NOW + SECOND + 1;
                let here = here.retuned(&TokenBucket::new(new_rate, new_burst).with_debt(), now);
                let new = limit_args(&numbers::owing(new_rate, new_burst));
                for cost in [1, new_burst.div_ceil(2), new_burst] {
                    let there = store.ask_lasting(&Question::peek(now, cost), &new).wait();
                    let (there, expected) = (there.unwrap_or(0), here.peek(now, cost).unwrap_or(0));
                    // If the product of two tokens is not exact: two fractions more.
                    assert!(
                        (expected..=expected + 3).contains(&there),
                        "{old_rate} {old_burst} to {new_rate} {new_burst}: {there}, not {expected}"
                    );
                }
            }
        }
    }
}

/// Permits that were paid in nanoseconds take centuries with the new interval.
#[test]
fn an_interval_that_is_too_long_is_cut_to_the_longest() {
    let mut store = Store::start();
    let (short, long) = (Duration::from_nanos(1), micros(1 << 52));
    store.ask_lasting(
        &Question::ask(NOW, u32::MAX),
        &limit_args(&numbers::interval(short)),
    );
    let refused = store.ask_lasting(
        &Question::ask(NOW, 1),
        &limit_args(&numbers::interval(long)),
    );
    assert_eq!(refused.wait(), Some(1 << 52));
}

#[test]
fn a_waiter_gets_a_faster_rate_at_once() {
    let mut store = Store::start();
    let slow = limit_args(&numbers::bucket(Rate::per_day(1), 1));
    let fast = limit_args(&numbers::bucket(Rate::per_second(1_000), 1));
    store.ask_lasting(&Question::ask(NOW, 1), &slow);
    let refused = store.ask_lasting(&Question::ask(NOW + 1, 1), &fast);
    assert_eq!((refused.wait(), &*refused.lives), (Some(MILLI), &[0][..]));
    let answer = store.ask_lasting(&Question::ask(NOW + 1 + MILLI, 1), &fast);
    assert_eq!(answer.passed, 1);
    // A peek changes nothing.
    let held = store.dump(KEY);
    store.ask_lasting(&Question::peek(NOW + 2 * MILLI, 1), &slow);
    assert_eq!(store.dump(KEY), held);
}

#[test]
fn an_interval_counts_from_the_last_request() {
    let every = || (1..SECOND).prop_map(Duration::from_nanos);
    let values = (every(), every(), 1..20_u32, 0..20_u32, 0..2 * MILLI);
    check(values, |store, (old, new, cost, given_back, gap)| {
        let mut now = NOW;
        let mut here = Here::new(Interval::every(old), at(NOW));
        spend(
            store,
            &mut here,
            &numbers::interval(old),
            &mut now,
            &[(0, cost)],
        )?;
        here.give_back(now, given_back);
        store.ask_lasting(
            &Question::give_back(now, given_back),
            &limit_args(&numbers::interval(old)),
        );
        for every in [new, old, new] {
            now += gap;
            here = here.retuned(&Interval::every(every), now);
            let there = store.ask_lasting(
                &Question::peek(now, 1),
                &limit_args(&numbers::interval(every)),
            );
            prop_assert_eq!(there.wait(), here.peek(now, 1));
        }
        Ok(())
    });
}

#[test]
fn a_log_and_a_fixed_window_keep_what_was_spent() {
    let values = (
        1..9_u32,
        1..9_u32,
        1..SECOND,
        1..SECOND,
        vec((0..SECOND / 4, 1..3_u32), 1..9),
        0..SECOND / 4,
    );
    check(
        values,
        |store, (old_limit, new_limit, old_window, new_window, asks, gap)| {
            let old = SlidingLog::new(old_limit, micros(old_window));
            let asks: Vec<_> = asks
                .into_iter()
                .map(|(gap, cost)| (gap, cost.min(old_limit)))
                .collect();
            let mut now = NOW;
            let mut here = Here::new(old, at(NOW));
            spend(
                store,
                &mut here,
                &numbers::log(old_limit, old_window),
                &mut now,
                &asks,
            )?;
            now += gap;
            let here = here.retuned(&SlidingLog::new(new_limit, micros(new_window)), now);
            let new = limit_args(&numbers::log(new_limit, new_window));
            let there = store.ask_lasting(&Question::peek(now, 1), &new).wait();
            if new_window <= old_window {
                prop_assert_eq!(there, here.peek(now, 1));
            } else {
                prop_assert!(
                    there >= here.peek(now, 1),
                    "what a longer window finds, counts"
                );
            }

            store.flush();
            let old = paceline::policy::FixedWindow::new(old_limit, micros(old_window));
            let mut now = NOW;
            let mut here = Here::new(old, at(NOW));
            spend(
                store,
                &mut here,
                &numbers::fixed(old_limit, old_window),
                &mut now,
                &asks,
            )?;
            now += gap;
            let new = paceline::policy::FixedWindow::new(new_limit, micros(new_window));
            let here = here.retuned(&new, now);
            let new = limit_args(&numbers::fixed(new_limit, new_window));
            let there = store.ask_lasting(&Question::peek(now, 1), &new);
            prop_assert_eq!(there.wait(), here.peek(now, 1));
            Ok(())
        },
    );
}

/// Kinds of counters, with windows in tenths of a second.
fn counters() -> impl Strategy<Value = (SlidingCounter, Numbers)> {
    (20..40_u32, 1..30_u64, 0..6_u32).prop_map(|(limit, tenths, buckets)| {
        let window = tenths * SECOND / 10 * 60;
        match buckets {
            0 => (
                SlidingCounter::smooth(limit, micros(window)),
                numbers::smooth(limit, window),
            ),
            _ => (
                SlidingCounter::strict(limit, micros(window), buckets),
                numbers::strict(limit, window, buckets),
            ),
        }
    })
}

/// Never earlier than if everything had been spent under the new parameters, and no later than with `retune`.
#[test]
fn a_counter_with_other_buckets_keeps_what_was_spent_at_its_time() {
    let values = (
        counters(),
        counters(),
        vec((0..6 * SECOND, 1..3_u32), 1..9),
        0..9 * SECOND,
    );
    check(
        values,
        |store, ((old, old_numbers), (new, new_numbers), asks, gap)| {
            let mut now = NOW;
            let mut here = Here::new(old, at(NOW));
            let mut always_new = Here::new(new, at(NOW));
            for (gap, cost) in asks {
                spend(store, &mut here, &old_numbers, &mut now, &[(gap, cost)])?;
                prop_assert_eq!(always_new.ask(now, cost), None, "there is room for all");
            }
            now += gap;
            let retuned = here.retuned(&new, now);
            // Otherwise the old parameters may have dropped an entry and started new buckets, or the new ones may find a dropped entry.
            let all_counts = now - NOW < old_numbers.settles_in;
            for cost in [1, new.limit() / 2, new.limit()] {
                let peek = Question::peek(now, cost);
                let there = store.ask_lasting(&peek, &limit_args(&new_numbers)).wait();
                let (least, most) = (always_new.peek(now, cost), retuned.peek(now, cost));
                prop_assert!(
                    there <= most || !all_counts,
                    "{there:?}, by retune {most:?}"
                );
                prop_assert!(
                    there >= least || !all_counts,
                    "{there:?}, and at least {least:?}"
                );
            }
            Ok(())
        },
    );
}

/// The state is written with a shorter window, and read with a longer one.
#[test]
fn a_key_lives_for_the_longest_window_it_was_used_with() {
    let mut store = Store::start();
    let (short, long) = (30 * MILLI, MINUTE);
    let pairs = [
        (numbers::log(1, short), numbers::log(1, long)),
        (numbers::fixed(1, short), numbers::fixed(1, long)),
        (numbers::strict(1, short, 3), numbers::strict(1, long, 3)),
        (numbers::smooth(1, short), numbers::smooth(1, long)),
        (
            numbers::interval(micros(short)),
            numbers::interval(micros(long)),
        ),
        (
            numbers::bucket(Rate::new(1, micros(short)), 1),
            numbers::bucket(Rate::new(1, micros(long)), 1),
        ),
    ];
    for (short_one, long_one) in pairs {
        store.flush();
        let first = store.ask(&Question::ask(0, 1), &limit_args(&short_one));
        let refused = store.ask(&Question::ask(0, 1), &limit_args(&long_one));
        assert_eq!((first.passed, refused.passed), (1, 0), "{long_one:?}");
        let known = [limit_args(&long_one)[0].knowing(refused.known())];
        let left = (refused.known().until - refused.now) / MILLI;
        let lives = u64::try_from(store.pttl(KEY)).unwrap();
        assert!(
            lives + 10_000 > left && lives <= left + 1_001,
            "{long_one:?}: {lives} ms of {left}"
        );
        store.sleep_until(first.now + 3 * short);
        let later = store.ask(&Question::ask(0, 1), &known);
        assert_eq!((later.passed, later.lost[0]), (0, false), "{long_one:?}");
    }
}
