//! A key lives until a second after its state has settled and no longer, by the server's clock.

use std::time::Duration;

use paceline::time::Rate;

use super::alone::{Alone, KEY};
use super::asking::{LimitArgs, Question, Store};
use super::subject::{Subject, of_every_kind};
use super::{MILLI, MINUTE, NOW, REAL, SECOND};
use crate::servers::EXPIRES_AT;

#[test]
fn an_idle_key_expires_when_its_state_has_settled_and_not_before() {
    let mut store = Store::start();
    for subject in of_every_kind(4, 20 * MILLI) {
        let mut limit = Alone::new(&mut store, &subject);
        let first = limit.ask(REAL, 1);
        let until = limit.ahead(REAL, 3).known().until;
        assert!(until >= first.known().until && until > first.now);
        // What other clients know of the state stays true.
        limit.give_back(REAL, 9);
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
        let mut limit = Alone::new(&mut store, &subject);
        let all = limit.ask(REAL, subject.burst());
        assert_eq!(all.passed, 1, "{subject:?}");
        limit.known = all.known();
        let expires_at = ["EVAL", EXPIRES_AT, "1", KEY];
        let (held, ends) = (limit.dump(), limit.store.cli::<u64>(&expires_at));
        for question in [
            Question::ask(REAL, 1),
            Question::ahead(REAL, 3),
            Question::groups(REAL, vec![(1, 3), (1, 1)]),
            Question::peek(REAL, 1),
            Question::ask(REAL, subject.burst()).and_ahead(1),
        ] {
            let refused = limit.call(&question);
            let what = format!("{subject:?}: {question:?}");
            assert_eq!((refused.passed, refused.ahead), (0, 0), "{what}");
            assert!(refused.retry_in > 0 && refused.binding == 1, "{what}");
            assert_eq!(refused.known(), all.known(), "{what}");
        }
        assert_eq!(limit.dump(), held, "{subject:?}");
        assert_eq!(store.cli::<u64>(&expires_at), ends, "{subject:?}");
    }
}

#[test]
fn a_refusal_by_another_limit_writes_nothing() {
    let mut store = Store::start();
    let binding = LimitArgs::new("binding", &Subject::Fixed(1, MINUTE).numbers());
    for subject in of_every_kind(4, MINUTE) {
        let limit = Alone::new(&mut store, &subject);
        let mut both = [limit.args(), binding.clone()];
        store.ask(&Question::ask(REAL, 1), &both[1..]);
        for _ in 0..2 {
            let refused = store.ask(&Question::ask(REAL, 1), &both);
            assert_eq!((refused.passed, refused.binding), (0, 2), "{subject:?}");
            assert_eq!(refused.lost, [false, false], "{subject:?}");
            both[0].known = refused.known[0];
        }
        assert_eq!(store.keys(), ["binding"], "{subject:?}");
    }
}

#[test]
fn a_peek_and_a_return_of_what_was_not_taken_write_nothing() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        for question in [
            Question::peek(REAL, 1),
            Question::look(REAL),
            Question::give_back(REAL, 1),
            Question::give_back(NOW, 0).returning(1, NOW - 1),
        ] {
            let what = format!("{subject:?}: {question:?}");
            assert_eq!(limit.call(&question).retry_in, 0, "{what}");
            assert_eq!(limit.dump(), None, "{what}");
        }
        assert_eq!(limit.peek(REAL, 1).passed, 1, "{subject:?}");
    }
}

#[test]
fn a_state_that_settles_at_once_is_kept_for_a_second() {
    let mut store = Store::start();
    let shortest = [
        Subject::Bucket(Rate::per_second(1_000_000), 1),
        Subject::Interval(Duration::from_nanos(1)),
    ];
    for subject in shortest {
        let answer = Alone::new(&mut store, &subject).ask(NOW, 1);
        assert_eq!(answer.known().until, NOW + 1);
        assert_eq!(answer.lives, [1_001]);
    }
    for subject in of_every_kind(4, 40) {
        let answer = Alone::new(&mut store, &subject).ask(NOW, 1);
        assert_eq!(answer.lives, [1_001], "{subject:?}");
    }
}
