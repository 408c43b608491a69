//! Other parameters under the same key keep what was spent, as `retune` does.

use std::time::Duration;

use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::Strategy;
use proptest::{prop_assert, prop_assert_eq};

use super::alone::{Alone, KEY};
use super::asking::Store;
use super::subject::{Here, Subject, micros};
use super::{MILLI, MINUTE, NOW, REAL, SECOND, Tried, holds};

const CASES: u32 = 200;

/// Sends the same requests, after some times, to both sides of a policy, and compares their answers.
fn spend(limit: &mut Alone<'_>, here: &mut Here, now: &mut u64, asks: &[(u64, u32)]) -> Tried {
    for (gap, cost) in asks {
        *now += gap;
        prop_assert_eq!(limit.ask(*now, *cost).wait(), here.ask(*now, *cost));
    }
    Ok(())
}

fn owing() -> impl Strategy<Value = Subject> {
    (1..200_u32, 1..SECOND, 1..12_u32).prop_map(|(permits, period, burst)| {
        Subject::Owing(Rate::new(permits, micros(period)), burst)
    })
}

/// Never early, and late by at most one fraction of a microsecond, rounded up.
#[test]
fn a_bucket_keeps_its_tokens_with_their_fraction() {
    let asks = vec((0..SECOND / 100, 1..30_u32), 1..5);
    let values = (owing(), owing(), asks, 0..SECOND / 10);
    holds(CASES, values, |store, (old, new, asks, gap)| {
        let mut limit = Alone::new(store, &old);
        let mut here = Here::new(&old, NOW);
        let mut now = NOW;
        spend(&mut limit, &mut here, &mut now, &asks)?;
        now += gap;
        let mut here = here.retuned(&new, now);
        limit.retune(&new);
        let held = limit.dump();
        limit.peek(now, 1);
        prop_assert_eq!(limit.dump(), held, "a peek changes nothing");
        for cost in [new.burst(), 1, 1] {
            let there = limit.ask(now, cost);
            let expected = here.peek(now, cost).unwrap_or(0);
            let waits = there.wait().unwrap_or(0);
            prop_assert!(
                waits == expected || waits == expected + 1,
                "{waits}, not {expected}"
            );
            prop_assert_eq!(there.known().at, now, "written, also if it was refused");
            if waits > 0 {
                now += waits;
                prop_assert_eq!(limit.ask(now, cost).passed, 1, "a wait is exact");
            }
            prop_assert_eq!(here.ask(now, cost), None);
        }
        Ok(())
    });
}

#[test]
fn the_largest_buckets_keep_their_tokens() {
    let mut store = Store::start();
    let largest = (1_u64 << 52) - 1;
    let odd = Rate::new(u32::MAX, Duration::from_nanos((1 << 40) - 1));
    let edges = [
        Subject::Owing(Rate::new(1, micros(largest)), 1),
        Subject::Owing(Rate::new(3, Duration::from_nanos(largest)), 1),
        Subject::Owing(Rate::new(1, micros(1 << 20)), u32::MAX),
        Subject::Owing(odd, 4_000),
        Subject::Owing(Rate::per_second(1_000_000), u32::MAX),
        Subject::Owing(Rate::new(999_983, Duration::from_secs(86_400)), 52_000),
    ];
    for old in &edges {
        for new in &edges {
            let burst = old.burst();
            for spent in [burst, burst.div_ceil(3), old.numbers().capacity] {
                let mut limit = Alone::new(&mut store, old);
                let mut here = Here::new(old, NOW);
                assert_eq!(limit.ask(NOW, spent).wait(), here.ask(NOW, spent));
                let now = NOW + SECOND + 1;
                let here = here.retuned(new, now);
                limit.retune(new);
                for cost in [1, new.burst().div_ceil(2), new.burst()] {
                    let there = limit.peek(now, cost).wait().unwrap_or(0);
                    let expected = here.peek(now, cost).unwrap_or(0);
                    // If the product of two tokens is not exact: two fractions more.
                    assert!(
                        (expected..=expected + 3).contains(&there),
                        "{old:?} to {new:?}: {there}, not {expected}"
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
    let mut limit = Alone::new(&mut store, &Subject::Interval(Duration::from_nanos(1)));
    limit.ask(NOW, u32::MAX);
    limit.retune(&Subject::Interval(micros(1 << 52)));
    assert_eq!(limit.ask(NOW, 1).wait(), Some(1 << 52));
}

#[test]
fn an_interval_counts_from_the_last_request() {
    let every = || (1..SECOND).prop_map(|nanos| Subject::Interval(Duration::from_nanos(nanos)));
    let values = (every(), every(), 1..20_u32, 0..20_u32, 0..2 * MILLI);
    holds(CASES, values, |store, (old, new, cost, given_back, gap)| {
        let mut limit = Alone::new(store, &old);
        let mut here = Here::new(&old, NOW);
        let mut now = NOW;
        spend(&mut limit, &mut here, &mut now, &[(0, cost)])?;
        here.give_back(now, given_back);
        limit.give_back(now, given_back);
        for interval in [&new, &old, &new] {
            now += gap;
            here = here.retuned(interval, now);
            limit.retune(interval);
            prop_assert_eq!(limit.peek(now, 1).wait(), here.peek(now, 1));
        }
        Ok(())
    });
}

#[test]
fn a_log_and_a_fixed_window_keep_what_was_spent() {
    let parameters = || (1..9_u32, 1..SECOND);
    let asks = vec((0..SECOND / 4, 1..3_u32), 1..9);
    let values = (parameters(), parameters(), asks, 0..SECOND / 4);
    let kinds: [fn(u32, u64) -> Subject; 2] = [Subject::Log, Subject::Fixed];
    holds(CASES, values, |store, (old, new, mut asks, gap)| {
        for (_, cost) in &mut asks {
            *cost = old.0.min(*cost);
        }
        for kind in kinds {
            let (old, new) = (kind(old.0, old.1), kind(new.0, new.1));
            let mut limit = Alone::new(store, &old);
            let mut here = Here::new(&old, NOW);
            let mut now = NOW;
            spend(&mut limit, &mut here, &mut now, &asks)?;
            now += gap;
            let expected = here.retuned(&new, now).peek(now, 1);
            limit.retune(&new);
            let there = limit.peek(now, 1).wait();
            match (old, new) {
                (Subject::Log(_, old), Subject::Log(_, new)) if new > old => {
                    prop_assert!(there >= expected, "what a longer window finds, counts");
                }
                _ => prop_assert_eq!(there, expected),
            }
        }
        Ok(())
    });
}

/// Kinds of counters, with windows in tenths of a minute.
fn counters() -> impl Strategy<Value = Subject> {
    (20..40_u32, 1..30_u64, 0..6_u32).prop_map(|(limit, tenths, buckets)| {
        let window = tenths * MINUTE / 10;
        match buckets {
            0 => Subject::Smooth(limit, window),
            _ => Subject::Strict(limit, window / u64::from(buckets), buckets),
        }
    })
}

/// Never earlier than if everything had been spent under the new parameters, and no later than with `retune`.
#[test]
fn a_counter_with_other_buckets_keeps_what_was_spent_at_its_time() {
    let asks = vec((0..6 * SECOND, 1..3_u32), 1..9);
    let values = (counters(), counters(), asks, 0..9 * SECOND);
    holds(CASES, values, |store, (old, new, asks, gap)| {
        let mut limit = Alone::new(store, &old);
        let settles_in = limit.numbers.settles_in;
        let mut here = Here::new(&old, NOW);
        let mut always_new = Here::new(&new, NOW);
        let mut now = NOW;
        for (gap, cost) in asks {
            spend(&mut limit, &mut here, &mut now, &[(gap, cost)])?;
            prop_assert_eq!(always_new.ask(now, cost), None, "there is room for all");
        }
        now += gap;
        let retuned = here.retuned(&new, now);
        limit.retune(&new);
        // Otherwise the old parameters may have dropped an entry and started new buckets, or the new ones may find a dropped entry.
        let all_counts = now - NOW < settles_in;
        for cost in [1, new.burst() / 2, new.burst()] {
            let there = limit.peek(now, cost).wait();
            let (least, most) = (always_new.peek(now, cost), retuned.peek(now, cost));
            prop_assert!(
                (least..=most).contains(&there) || !all_counts,
                "{there:?}, and at least {least:?}, by retune {most:?}"
            );
        }
        Ok(())
    });
}

/// The state is written with a shorter window, and read with a longer one.
#[test]
fn a_key_lives_for_the_longest_window_it_was_used_with() {
    let mut store = Store::start();
    let with_window = |window| {
        [
            Subject::Log(1, window),
            Subject::Fixed(1, window),
            Subject::Strict(1, window / 3, 3),
            Subject::Smooth(1, window),
            Subject::Interval(micros(window)),
            Subject::Bucket(Rate::new(1, micros(window)), 1),
        ]
    };
    let short = 30 * MILLI;
    for (short_one, long_one) in with_window(short).iter().zip(with_window(MINUTE)) {
        let mut limit = Alone::new(&mut store, short_one);
        let first = limit.ask(REAL, 1);
        limit.retune(&long_one);
        let refused = limit.ask(REAL, 1);
        assert_eq!((first.passed, refused.passed), (1, 0), "{long_one:?}");
        limit.known = refused.known();
        let left = (refused.known().until - refused.now) / MILLI;
        let lives = u64::try_from(limit.store.pttl(KEY)).unwrap();
        assert!(
            lives + 10_000 > left && lives <= left + 1_001,
            "{long_one:?}: {lives} ms of {left}"
        );
        limit.store.sleep_until(first.now + 3 * short);
        let later = limit.ask(REAL, 1);
        assert_eq!((later.passed, later.lost[0]), (0, false), "{long_one:?}");
    }
}
