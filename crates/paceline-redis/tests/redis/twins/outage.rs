//! During an outage other processes may use insurances, so a bucket does not fill for that time.

use paceline::time::Rate;
use proptest::{prop_assert, prop_assert_eq, prop_oneof};

use super::alone::Alone;
use super::asking::{Answer, Known, LimitArgs, Question, Store};
use super::subject::{Here, Subject, micros, of_every_kind};
use super::traces::{bucket, interval};
use super::{MILLI, MINUTE, NOW, SECOND, holds};

/// All ten tokens are taken now. Two have come back when the outage begins, which lasts a tenth of a second.
const FROM: u64 = NOW + 2 * MILLI;
const TO: u64 = FROM + 100 * MILLI;

fn taken(store: &mut Store) -> Alone<'_> {
    // One token each millisecond.
    let mut limit = Alone::new(store, &Subject::Bucket(Rate::per_second(1_000), 10));
    let taken = limit.ask(NOW, 10);
    assert_eq!(taken.passed, 1);
    limit.known = taken.known();
    limit
}

fn ask(limit: &mut Alone<'_>, now: u64, cost: u32) -> Answer {
    limit.call(&Question::ask(now, cost).outage(FROM, TO))
}

#[test]
fn a_bucket_does_not_fill_during_an_outage_and_does_after_it() {
    let mut store = Store::start();
    let mut limit = taken(&mut store);
    let refused = ask(&mut limit, TO, 3);
    let (at, until) = (TO, TO + 8 * MILLI);
    assert_eq!(refused.known(), Known { at, until });
    assert_eq!(refused.lives, [0], "the key lives a second longer anyway");
    for later in (0..MILLI).step_by(100) {
        let refused = ask(&mut limit, TO + later, 3);
        assert_eq!(refused.wait(), Some(MILLI - later));
    }
    assert_eq!(ask(&mut limit, TO + MILLI, 3).passed, 1);
}

#[test]
fn an_outage_counts_once_for_many_processes() {
    let mut store = Store::start();
    let mut limit = taken(&mut store);
    // For each client the outage begins at another time.
    for (early, passed, now) in [(0, 0, TO), (100, 1, TO + MILLI), (300, 0, TO + 2 * MILLI)] {
        let answer = limit.call(&Question::ask(now, 3).outage(FROM + early, TO + early));
        assert_eq!(answer.passed, passed, "{answer:?}");
    }
    let granted = Question::ahead(TO + 4 * MILLI, 9).outage(FROM, TO);
    let granted = limit.call(&granted).ahead;
    assert_eq!(granted, 3, "two, and four since, less three");
}

#[test]
fn an_outage_has_no_effect_before_it_on_a_full_bucket_and_on_a_state_written_since() {
    let mut store = Store::start();
    let mut limit = taken(&mut store);
    let in_the_future = Question::ask(NOW + MILLI, 2).outage(NOW + SECOND, NOW + MINUTE);
    assert_eq!(limit.call(&in_the_future).wait(), Some(MILLI));
    // Full when the outage begins, to the microsecond.
    let full = Question::ask(TO, 10).outage(NOW + 10 * MILLI, TO);
    assert_eq!(limit.call(&full).passed, 1);
    // Written since the outage.
    assert_eq!(ask(&mut limit, TO + MILLI, 1).passed, 1);
    // Expired since the outage, and remembered.
    limit.store.flush();
    let (at, until) = (TO, TO + 10 * MILLI);
    limit.known = Known { at, until };
    assert_eq!(ask(&mut limit, until, 10).passed, 1);
}

#[test]
fn an_outage_that_ends_in_the_future_ends_now() {
    let mut store = Store::start();
    // The clock of another node is ahead of this one.
    let ahead = Question::ask(TO, 3).outage(FROM, TO + SECOND);
    assert_eq!(taken(&mut store).call(&ahead).wait(), Some(MILLI));
}

/// After an outage longer than the time to fill, the whole bucket counts as spent. A debt may be more than that.
#[test]
fn a_bucket_that_counted_as_spent_fills_from_then_on() {
    let mut store = Store::start();
    let owing = Subject::Owing(Rate::per_second(1_000), 10);
    for subject in [owing, Subject::Interval(micros(10 * MILLI))] {
        let until = TO + subject.numbers().settles_in;
        for (later, wait) in [(0, None), (1, Some(TO - FROM))] {
            let (at, until) = (NOW, until + later);
            let mut limit = Alone::new(&mut store, &subject);
            limit.known = Known { at, until };
            let answer = ask(&mut limit, until, subject.burst());
            let expected = (wait, false);
            assert_eq!((answer.wait(), answer.lost[0]), expected, "{subject:?}");
        }
    }
}

#[test]
fn a_full_bucket_is_not_written_because_of_an_outage() {
    let mut store = Store::start();
    let mut limit = taken(&mut store);
    let held = limit.dump();
    let window = LimitArgs::new("window", &Subject::Fixed(1, MINUTE).numbers());
    let both = [limit.args(), window];
    limit.store.ask(&Question::ask(TO, 1), &both[1..]);
    let refused = Question::ask(TO + 8 * MILLI, 1).outage(FROM, TO);
    let refused = limit.store.ask(&refused, &both);
    assert_eq!((refused.passed, refused.binding), (0, 2));
    assert_eq!(limit.dump(), held);
}

#[test]
fn a_window_counts_what_is_recorded_after_an_outage() {
    let mut store = Store::start();
    for subject in of_every_kind(2, MINUTE) {
        if matches!(subject, Subject::Bucket(..) | Subject::Interval(_)) {
            continue;
        }
        let mut limit = Alone::new(&mut store, &subject);
        let mut here = Here::new(&subject, NOW);
        for now in [NOW, NOW + MINUTE / 2, NOW + MINUTE, NOW + 2 * MINUTE] {
            let answer = limit.call(&Question::ask(now, 1).outage(NOW + 1, NOW + SECOND));
            assert_eq!(answer.wait(), here.ask(now, 1), "{subject:?}");
        }
    }
}

/// The policy in memory is not given the time of the outage.
#[test]
fn a_bucket_in_redis_matches_one_in_memory_that_was_paused_during_the_outage() {
    let subject = prop_oneof![3 => bucket(), 1 => interval()];
    let times = (0..5_u64, 1..5_u64, 1..3 * SECOND, 0..5_u64);
    let values = (subject, times, 1..9_u32, proptest::bool::ANY);
    holds(200, values, |store, (subject, times, cost, ends)| {
        let (first, until_blind, outage, after) = times;
        let mut limit = Alone::new(store, &subject);
        let cost = cost.min(limit.numbers.capacity);
        let grain = subject.grain();
        let mut here = Here::new(&subject, NOW);
        for now in [NOW, NOW + first * grain / 2] {
            let answer = limit.ask(now, cost);
            prop_assert_eq!(answer.wait(), here.ask(now, cost));
            limit.known = answer.known();
        }
        let from = NOW + first * grain / 2 + until_blind * grain / 3 + 1;
        let now = from + outage + after * grain / 3;
        if ends && limit.known.until <= now {
            limit.store.flush();
        }
        for now in [now, now + 1] {
            let answer = limit.call(&Question::ask(now, cost).outage(from, from + outage));
            let there = answer.wait().unwrap_or(0);
            let expected = here.peek(now - outage, cost).unwrap_or(0);
            // The end of a key is remembered in whole microseconds.
            prop_assert!(
                there == expected || ends && there == expected + 1,
                "{there}, not {expected}"
            );
            prop_assert!(!answer.lost[0]);
            if there == 0 {
                break;
            }
        }
        Ok(())
    });
}
