//! A key lives until a second after its state has settled and no longer, by the server's clock.

use std::time::Duration;

use paceline::time::Rate;

use super::asking::{Answer, LimitArgs, Question, Store};
use super::subject::{Subject, of_every_kind};
use super::{MILLI, MINUTE, NOW, SECOND};
use crate::servers::EXPIRES_AT;

/// Uses the server's clock.
const REAL: u64 = 0;

const KEY: &str = "key";

fn limit_args(subject: &Subject) -> Vec<LimitArgs> {
    vec![LimitArgs::new(KEY, &subject.numbers())]
}

/// The key lives, but not for much more than a second after its state settles.
#[track_caller]
fn lives(store: &mut Store, answer: &Answer, what: &Subject) {
    let left = answer.known().until - answer.now;
    let (life, most) = (store.pttl(KEY), (left + SECOND) / MILLI + 2);
    assert!(
        life > 0 && life <= i64::try_from(most).unwrap(),
        "{what:?}: {life} ms of {left} us"
    );
}

#[test]
fn after_every_write_a_key_expires_a_second_after_its_state_settles() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit_args = limit_args(&subject);
        let first = store.ask(&Question::ask(REAL, 1), &limit_args);
        lives(&mut store, &first, &subject);
        let ahead = store.ask(&Question::ahead(REAL, 2), &limit_args);
        lives(&mut store, &ahead, &subject);

        // Lifetimes are whole milliseconds, so the key may live up to one longer.
        let before = store.pttl(KEY) + 1;
        for given_back in [1, 9] {
            store.ask(&Question::give_back(REAL, given_back), &limit_args);
            let after = store.pttl(KEY);
            assert!(
                (1..=before).contains(&after),
                "{subject:?}: {after} of {before}"
            );
        }
    }
}

#[test]
fn an_idle_key_expires_when_its_state_has_settled_and_not_before() {
    let mut store = Store::start();
    for subject in of_every_kind(4, 20 * MILLI) {
        store.flush();
        let limit_args = limit_args(&subject);
        let first = store.ask(&Question::ask(REAL, 1), &limit_args);
        let answer = store.ask(&Question::ahead(REAL, 3), &limit_args);
        let until = answer.known().until;
        assert!(until >= first.known().until && until > first.now);
        while store.cli::<bool>(&["EXISTS", KEY]) {}
        let gone = store.time_us();
        assert!(
            gone >= until,
            "{subject:?}: gone {} us too early",
            until - gone
        );
        store.sleep_until(until + SECOND + 2 * MILLI);
        assert_eq!(store.cli::<u64>(&["DBSIZE"]), 0, "{subject:?}");
    }
}

#[test]
fn a_refusal_writes_nothing() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit_args = limit_args(&subject);
        let all = store.ask(&Question::ask(REAL, subject.burst()), &limit_args);
        assert_eq!(all.passed, 1, "{subject:?}");
        let limit_args = vec![limit_args[0].knowing(all.known())];
        let expires_at = ["EVAL", EXPIRES_AT, "1", KEY];
        let (held, ends) = (store.dump(KEY), store.cli::<u64>(&expires_at));
        for question in [
            Question::ask(REAL, 1),
            Question::ahead(REAL, 3),
            Question::groups(REAL, vec![(1, 3), (1, 1)]),
            Question::peek(REAL, 1),
            Question::groups(REAL, vec![(subject.burst(), 1)]).and_ahead(1),
        ] {
            let refused = store.ask(&question, &limit_args);
            assert_eq!(
                (refused.passed, refused.ahead),
                (0, 0),
                "{subject:?}: {question:?}"
            );
            assert!(
                refused.retry_in > 0 && refused.binding == 1,
                "{subject:?}: {question:?}"
            );
            assert_eq!(refused.known(), all.known(), "{subject:?}: {question:?}");
        }
        assert_eq!(store.dump(KEY), held, "{subject:?}");
        assert_eq!(store.cli::<u64>(&expires_at), ends, "{subject:?}");
    }
}

#[test]
fn a_refusal_by_another_limit_writes_nothing() {
    let mut store = Store::start();
    let binding = Subject::Fixed {
        limit: 1,
        window: MINUTE,
    };
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let mut both = limit_args(&subject);
        both.push(LimitArgs::new("binding", &binding.numbers()));
        store.ask(&Question::ask(REAL, 1), &both[1..]);
        for _ in 0..2 {
            let refused = store.ask(&Question::ask(REAL, 1), &both);
            assert_eq!((refused.passed, refused.binding), (0, 2), "{subject:?}");
            assert_eq!(refused.lost, [false, false], "{subject:?}");
            both[0].known = refused.known[0];
        }
        assert_eq!(
            store.cli::<Vec<String>>(&["KEYS", "*"]),
            ["binding"],
            "{subject:?}"
        );
    }
}

#[test]
fn more_than_was_taken_cannot_be_given_back() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.ask(&Question::give_back(REAL, 1), &limit_args(&subject));
        assert_eq!(store.cli::<u64>(&["DBSIZE"]), 0, "{subject:?}");
    }
}

#[test]
fn a_peek_writes_nothing() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let answer = store.ask(&Question::peek(REAL, 1), &limit_args(&subject));
        assert_eq!((answer.passed, answer.retry_in), (1, 0), "{subject:?}");
        assert_eq!(store.cli::<u64>(&["DBSIZE"]), 0, "{subject:?}");
    }
}

/// Other clients remember until when the key cannot have expired.
#[test]
fn giving_back_does_not_shorten_the_lifetime_of_a_key() {
    let mut store = Store::start();
    for subject in of_every_kind(4, 40 * MILLI) {
        store.flush();
        let limit_args = limit_args(&subject);
        let taken = store.ask(&Question::ask(REAL, subject.burst()), &limit_args);
        store.ask(&Question::give_back(REAL, 9), &limit_args);
        let known = vec![limit_args[0].knowing(taken.known())];
        let mut last = taken.now;
        while last < taken.known().until + 2 * MILLI {
            let peeked = store.ask(&Question::peek(REAL, 1), &known);
            assert_eq!((peeked.passed, peeked.lost[0]), (1, false), "{subject:?}");
            last = peeked.now;
        }
        store.sleep_until(taken.known().until + SECOND + 3 * MILLI);
        assert!(!store.cli::<bool>(&["EXISTS", KEY]), "{subject:?}");
    }
}

/// Neither for a later request, nor for a state that was read and not written.
#[test]
fn the_reported_settling_time_is_covered_by_the_lifetime_of_the_key() {
    let mut store = Store::start();
    for subject in of_every_kind(4, 40 * MILLI) {
        store.flush();
        let limit_args = limit_args(&subject);
        store.ask(&Question::ask(REAL, subject.burst()), &limit_args);
        store.sleep_until(store.time_us() + 10 * MILLI);
        store.ask(&Question::give_back(REAL, 1), &limit_args);
        // A client that is denied (except by the interval), and remembers the state.
        let refused = store.ask(&Question::ask(REAL, subject.burst()), &limit_args);
        let known = vec![limit_args[0].knowing(refused.known())];
        let until = store.time_us() + 100 * MILLI;
        let mut last = 0;
        while last < until {
            let peeked = store.ask(&Question::peek(REAL, 1), &known);
            assert!(!peeked.lost[0], "{subject:?} at {}", peeked.now);
            last = peeked.now;
        }
    }
}

#[test]
fn a_state_that_settles_at_once_is_kept_for_a_second() {
    let mut store = Store::start();
    let rate = Rate::per_second(1_000_000);
    let subject = Subject::Bucket {
        rate,
        burst: 1,
        may_owe: false,
    };
    for subject in [
        subject,
        Subject::Interval {
            every: Duration::from_nanos(1),
        },
    ] {
        store.flush();
        let answer = store.ask_lasting(&Question::ask(NOW, 1), &limit_args(&subject));
        assert_eq!(answer.known().until, NOW + 1);
        assert_eq!(answer.lives, [1_001]);
    }
    for subject in of_every_kind(4, 40) {
        store.flush();
        let answer = store.ask_lasting(&Question::ask(NOW, 1), &limit_args(&subject));
        assert_eq!(answer.lives, [1_001], "{subject:?}");
    }
}
