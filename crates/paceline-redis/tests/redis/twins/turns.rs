//! Two sets of parameters that alternate under one key, as during a rollout.

use paceline::time::Rate;

use super::alone::Alone;
use super::asking::Store;
use super::subject::{Subject, micros};
use super::{MILLI, MINUTE, NOW, SECOND};

/// How many of 6,000 requests, one each millisecond, pass with alternating rates and bursts.
fn passed_by_turns(store: &mut Store, turns: &[(u32, u32)]) -> u32 {
    let turns = turns.iter();
    let turns: Vec<_> = turns
        .map(|(rate, burst)| Subject::Bucket(Rate::per_second(*rate), *burst))
        .collect();
    let mut limit = Alone::new(store, &turns[0]);
    let times = (NOW..).step_by(1_000).take(6_000);
    let passed = times.zip(turns.iter().cycle()).map(|(now, turn)| {
        limit.retune(turn);
        limit.ask(now, 1).passed
    });
    passed.sum()
}

#[test]
fn alternating_buckets_gain_and_lose_no_tokens() {
    let mut store = Store::start();
    let (slow, fast) = (100 * 6, 150 * 6);
    assert!(passed_by_turns(&mut store, &[(100, 10)]) >= slow);
    assert!(passed_by_turns(&mut store, &[(150, 10)]) <= fast + 10);

    // A rate in between, because each has its share of the time.
    let passed = passed_by_turns(&mut store, &[(100, 10), (150, 10)]);
    let between = u32::midpoint(slow, fast);
    assert!(
        (between - between / 50..=between + 10).contains(&passed),
        "{passed}, not {between}"
    );
    // Tokens beyond the smaller burst are cut, and do not come back.
    let passed = passed_by_turns(&mut store, &[(100, 10), (100, 20)]);
    assert!((slow - 1..=slow + 10).contains(&passed), "{passed}");
}

#[test]
fn alternating_intervals_each_keep_their_own() {
    let mut store = Store::start();
    let intervals = [70 * MILLI, 100 * MILLI];
    let turns = intervals.map(|every| Subject::Interval(micros(every)));
    let mut limit = Alone::new(&mut store, &turns[0]);
    let mut last = [NOW - MINUTE; 2];
    for milli in 0..10 * 1_000 {
        let (turn, now) = (usize::from(milli % 3 == 0), NOW + milli * MILLI);
        limit.retune(&turns[turn]);
        if limit.ask(now, 1).passed == 1 {
            let apart = now - last.iter().max().unwrap();
            assert!(apart >= intervals[turn], "{apart} us after the last");
            last[turn] = now;
        }
    }
    assert!(last[0] > NOW + 9 * SECOND);
}

/// There are as many entries as bucket boundaries, not as turns.
#[test]
fn alternating_counters_keep_their_bounds_do_not_stall_and_need_no_more_memory() {
    let mut store = Store::start();
    let windows = [60 * SECOND, 45 * SECOND];
    let turns = windows.map(|window| Subject::Strict(100, window / 6, 6));
    let mut limit = Alone::new(&mut store, &turns[0]);
    let (mut now, mut passed) = (NOW, Vec::new());
    for (turn, window) in turns.iter().zip(windows).cycle().take(6_000) {
        now += 200 * MILLI;
        limit.retune(turn);
        if limit.ask(now, 1).passed == 1 {
            passed.push(now);
            let within = passed.iter().filter(|then| **then + window > now).count();
            assert!(within <= 100, "{within} in a window");
            let entries = limit.entries();
            assert!(entries <= 7 + 9 + 1, "{entries}");
        }
    }
    let sustained = 6_000 / 5 * 100 / 70;
    assert!(passed.len() >= sustained, "{} of {sustained}", passed.len());
}

/// The next request comes with the parameters under which no new bucket has begun.
#[test]
fn alternating_counters_drop_entries_that_are_over() {
    let mut store = Store::start();
    let buckets = [10_000 * MILLI, 7_300 * MILLI];
    let turns = buckets.map(|bucket| Subject::Strict(100, bucket, 6));
    let mut limit = Alone::new(&mut store, &turns[0]);
    let began = NOW + 800 * MILLI;
    for now in (began..).step_by(800_000).take(2_000) {
        // Less than either passes in the long run.
        let begins =
            (now - began) / buckets[0] > (now - began).saturating_sub(800 * MILLI) / buckets[0];
        limit.retune(&turns[usize::from(begins)]);
        let passed = limit.ask(now, 1).passed;
        assert_eq!(passed, 1, "after {} s", (now - began) / SECOND);
    }
}
