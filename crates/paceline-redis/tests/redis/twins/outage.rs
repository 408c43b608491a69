//! During an outage other processes may use insurances, so a bucket does not fill for that time.

use std::cell::RefCell;
use std::time::Duration;

use paceline::time::Rate;
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use proptest::{prop_assert, prop_assert_eq};

use super::asking::{Known, LimitArgs, Question, Store};
use super::numbers;
use super::subject::{Here, Subject, at, of_every_kind};
use super::{MILLI, MINUTE, NOW, SECOND};

const KEY: &str = "key";

/// One token each millisecond.
fn bucket() -> Subject {
    let rate = Rate::per_second(1_000);
    Subject::Bucket {
        rate,
        burst: 10,
        may_owe: false,
    }
}

/// All ten tokens are taken now. Two have come back when the outage begins, which lasts a tenth of a second.
const FROM: u64 = NOW + 2 * MILLI;
const TO: u64 = FROM + 100 * MILLI;

fn taken(store: &mut Store) -> LimitArgs {
    store.flush();
    let limit_args = LimitArgs::new(KEY, &bucket().numbers());
    let taken = store.ask_lasting(&Question::ask(NOW, 10), std::slice::from_ref(&limit_args));
    assert_eq!(taken.passed, 1);
    limit_args.knowing(taken.known())
}

#[test]
fn a_bucket_does_not_fill_during_an_outage_and_does_after_it() {
    let mut store = Store::start();
    let limit_args = [taken(&mut store)];
    let ask = |now, cost| Question::ask(now, cost).outage(FROM, TO);

    let refused = store.ask_lasting(&ask(TO, 3), &limit_args);
    assert_eq!(refused.wait(), Some(MILLI));
    assert_eq!(
        refused.known(),
        Known {
            at: TO,
            until: TO + 8 * MILLI
        }
    );
    assert_eq!(refused.lives, [0], "the key lives a second longer anyway");
    for later in (100..MILLI).step_by(100) {
        assert_eq!(
            store.ask_lasting(&ask(TO + later, 3), &limit_args).wait(),
            Some(MILLI - later)
        );
    }
    assert_eq!(
        store.ask_lasting(&ask(TO + MILLI, 3), &limit_args).passed,
        1
    );
}

#[test]
fn an_outage_counts_once_for_many_processes() {
    let mut store = Store::start();
    let limit_args = [taken(&mut store)];
    // For each client the outage begins at another time.
    for (number, early) in [0, 100, 300, 700].into_iter().enumerate() {
        let now = TO + MILLI * number as u64;
        let answer = store.ask_lasting(
            &Question::ask(now, 3).outage(FROM + early, TO + early),
            &limit_args,
        );
        assert_eq!(
            answer.passed,
            u32::from(number == 1 || number == 4),
            "{answer:?}"
        );
    }
    let granted = store.ask_lasting(
        &Question::ahead(TO + 4 * MILLI, 9).outage(FROM, TO),
        &limit_args,
    );
    assert_eq!(granted.ahead, 3, "two, and four since, less three");
}

#[test]
fn a_key_that_expired_during_the_outage_is_remembered() {
    let mut store = Store::start();
    let limit_args = [taken(&mut store)];
    store.flush();

    let refused = store.ask_lasting(&Question::ask(TO, 3).outage(FROM, TO), &limit_args);
    assert_eq!((refused.wait(), refused.lost[0]), (Some(MILLI), false));
    let knowing = [limit_args[0].knowing(refused.known())];
    assert_eq!(
        store
            .ask_lasting(&Question::ask(TO + MILLI, 3).outage(FROM, TO), &knowing)
            .passed,
        1
    );

    // A client without that memory takes the bucket for an unused one.
    store.flush();
    let unaware = [limit_args[0].knowing(Known::default())];
    assert_eq!(
        store
            .ask(&Question::ask(TO, 10).outage(FROM, TO), &unaware)
            .passed,
        1
    );
}

#[test]
fn a_state_that_was_full_before_or_written_since_an_outage_is_unchanged() {
    let mut store = Store::start();
    let limit_args = [taken(&mut store)];
    // Full when the outage begins, to the microsecond.
    let full = NOW + 10 * MILLI;
    let answer = store.ask_lasting(&Question::ask(TO, 10).outage(full, TO), &limit_args);
    assert_eq!(answer.passed, 1);
    // Written since the outage.
    let answer = store.ask_lasting(&Question::ask(TO + MILLI, 1).outage(FROM, TO), &limit_args);
    assert_eq!(answer.passed, 1);
    // Expired since the outage, and remembered.
    store.flush();
    let known = [limit_args[0].knowing(Known {
        at: TO,
        until: TO + 10 * MILLI,
    })];
    let answer = store.ask(&Question::ask(TO + 10 * MILLI, 10).outage(FROM, TO), &known);
    assert_eq!(answer.passed, 1);
}

#[test]
fn an_outage_that_ends_in_the_future_ends_now() {
    let mut store = Store::start();
    let limit_args = [taken(&mut store)];
    // The clock of another node is ahead of this one.
    let answer = store.ask_lasting(&Question::ask(TO, 3).outage(FROM, TO + SECOND), &limit_args);
    assert_eq!(answer.wait(), Some(MILLI));
}

/// After an outage longer than the time to fill, the whole bucket counts as spent. A debt may be more than that.
#[test]
fn a_bucket_that_counted_as_spent_fills_from_then_on() {
    let mut store = Store::start();
    let rate = Rate::per_second(1_000);
    let owing = numbers::owing(rate, 10);
    let interval = numbers::interval(Duration::from_millis(10));
    for (limit, all) in [(owing, 10), (interval, 1)] {
        store.flush();
        let ask = |now, cost| Question::ask(now, cost).outage(FROM, TO);
        let until = TO + limit.settles_in;
        let known = Known { at: NOW, until };
        let limit_args = [LimitArgs::new(KEY, &limit).knowing(known)];
        let answer = store.ask_lasting(&ask(until, all), &limit_args);
        assert_eq!((answer.passed, answer.lost[0]), (1, false), "{limit:?}");

        store.flush();
        let known = Known {
            at: NOW,
            until: until + 1,
        };
        let limit_args = [limit_args[0].knowing(known)];
        let answer = store.ask_lasting(&ask(until + 1, all), &limit_args);
        let wait = (answer.wait(), answer.lost[0]);
        assert_eq!(wait, (Some(TO - FROM), false), "{limit:?}");
    }
}

#[test]
fn an_outage_in_the_future_has_no_effect() {
    let mut store = Store::start();
    let limit_args = [taken(&mut store)];
    let question = Question::ask(NOW + MILLI, 2).outage(NOW + SECOND, NOW + MINUTE);
    assert_eq!(
        store.ask_lasting(&question, &limit_args).wait(),
        Some(MILLI)
    );
}

#[test]
fn a_full_bucket_is_not_written_because_of_an_outage() {
    let mut store = Store::start();
    let limit_args = taken(&mut store);
    let held = store.dump(KEY);
    let window = LimitArgs::new(
        "window",
        &Subject::Fixed {
            limit: 1,
            window: MINUTE,
        }
        .numbers(),
    );
    store.ask_lasting(&Question::ask(TO, 1), std::slice::from_ref(&window));
    let refused = store.ask_lasting(
        &Question::ask(TO + 8 * MILLI, 1).outage(FROM, TO),
        &[limit_args, window],
    );
    assert_eq!((refused.passed, refused.binding), (0, 2));
    assert_eq!(store.dump(KEY), held);
}

#[test]
fn a_window_counts_what_is_recorded_after_an_outage() {
    let mut store = Store::start();
    for subject in of_every_kind(2, MINUTE) {
        if matches!(subject, Subject::Bucket { .. } | Subject::Interval { .. }) {
            continue;
        }
        store.flush();
        let limit_args = [LimitArgs::new(KEY, &subject.numbers())];
        let mut here = Here::new(subject.clone(), at(NOW));
        for now in [NOW, NOW + MINUTE / 2, NOW + MINUTE, NOW + 2 * MINUTE] {
            let answer = store.ask_lasting(
                &Question::ask(now, 1).outage(NOW + 1, NOW + SECOND),
                &limit_args,
            );
            assert_eq!(answer.wait(), here.ask(now, 1), "{subject:?}");
        }
    }
}

/// The policy in memory is not given the time of the outage.
#[test]
fn a_bucket_in_redis_matches_one_in_memory_that_was_paused_during_the_outage() {
    let rate = prop_oneof![
        Just(Rate::per_second(3)),
        Just(Rate::per_minute(7)),
        Just(Rate::new(999_983, Duration::from_secs(86_400))),
        (1..50_u32, 1..SECOND)
            .prop_map(|(permits, micros)| Rate::new(permits, Duration::from_micros(micros))),
    ];
    let subject = prop_oneof![
        3 => (rate, 1..9_u32, proptest::bool::ANY)
            .prop_map(|(rate, burst, may_owe)| Subject::Bucket { rate, burst, may_owe }),
        1 => (1..SECOND).prop_map(|every| Subject::Interval { every: Duration::from_nanos(every) }),
    ];
    let mut server = Store::start();
    let store = RefCell::new(&mut server);
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let values = (
        subject,
        0..5_u64,
        1..5_u64,
        1..3 * SECOND,
        0..5_u64,
        1..9_u32,
        proptest::bool::ANY,
    );
    let tried = TestRunner::new(config).run(
        &values,
        |(subject, first, until_blind, outage, after, cost, ends)| {
            let mut store = store.borrow_mut();
            store.flush();
            let cost = cost.min(subject.numbers().capacity);
            let grain = subject.grain();
            let mut here = Here::new(subject.clone(), at(NOW));
            let mut limit_args = LimitArgs::new(KEY, &subject.numbers());
            for now in [NOW, NOW + first * grain / 2] {
                let answer =
                    store.ask_lasting(&Question::ask(now, cost), std::slice::from_ref(&limit_args));
                prop_assert_eq!(answer.wait(), here.ask(now, cost));
                limit_args = limit_args.knowing(answer.known());
            }
            let from = NOW + first * grain / 2 + until_blind * grain / 3 + 1;
            let now = from + outage + after * grain / 3;
            if ends && limit_args.known.until <= now {
                store.flush();
            }
            for now in [now, now + 1] {
                let question = Question::ask(now, cost).outage(from, from + outage);
                let answer = store.ask_lasting(&question, std::slice::from_ref(&limit_args));
                let (there, expected) = (
                    answer.wait().unwrap_or(0),
                    here.peek(now - outage, cost).unwrap_or(0),
                );
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
        },
    );
    if let Err(broken) = tried {
        panic!("{broken}");
    }
}
