//! The server's clock is set back, or a server that is behind takes over.

use paceline::time::Rate;

use super::asking::{Answer, Known, LimitArgs, Question, Store};
use super::subject::{Here, Subject, at, micros, of_every_kind};
use super::{MINUTE, NOW, SECOND};

const KEY: &str = "key";

const HOUR: u64 = 60 * MINUTE;

/// An hour before the time at which the state was written.
const BACK: u64 = NOW - HOUR;

fn limit_args(subject: &Subject) -> LimitArgs {
    LimitArgs::new(KEY, &subject.numbers())
}

/// The whole burst is taken now.
fn taken(store: &mut Store, subject: &Subject) -> Answer {
    store.flush();
    let taken = store.ask(&Question::ask(NOW, subject.burst()), &[limit_args(subject)]);
    assert_eq!(taken.passed, 1, "{subject:?}");
    taken
}

/// The policy in memory, fully spent at that time.
fn spent(subject: &Subject, now: u64) -> Here<Subject> {
    let mut here = Here::new(subject.clone(), at(now));
    assert_eq!(here.ask(now, subject.burst()), None);
    here
}

#[test]
fn a_state_that_is_further_ahead_than_it_lives_counts_as_lost_once() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let known = taken(&mut store, &subject).known();
        let here = spent(&subject, BACK);
        let first = store.ask(
            &Question::ask(BACK, 1),
            &[limit_args(&subject).knowing(known)],
        );
        assert_eq!(first.wait(), here.peek(BACK, 1), "{subject:?}");
        let until = here.until();
        assert_eq!(first.known(), Known { at: BACK, until }, "{subject:?}");
        assert!(first.lost[0], "{subject:?}");

        // Clients that remember the times before, this client, and a new one.
        for known in [known, first.known(), Known::default()] {
            let limit_args = [limit_args(&subject).knowing(known)];
            for now in [BACK + 1, BACK + first.retry_in - 1] {
                let later = store.ask(&Question::ask(now, 1), &limit_args);
                assert_eq!(later.wait(), here.peek(now, 1), "{subject:?}");
                assert!(!later.lost[0], "{subject:?}");
            }
        }
        let now = BACK + first.retry_in;
        let limit_args = [limit_args(&subject).knowing(known)];
        let passes = store.ask(&Question::ask(now, 1), &limit_args);
        assert_eq!((passes.passed, passes.lost[0]), (1, false), "{subject:?}");
    }
}

#[test]
fn a_state_that_is_less_far_ahead_waits_for_the_clock() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let taken = taken(&mut store, &subject);
        let life = taken.known().until - NOW;
        for (back, is_lost) in [(SECOND, false), (life, false), (life + 1, true)] {
            let known = [limit_args(&subject).knowing(taken.known())];
            let peeked = store.ask(&Question::peek(NOW - back, 1), &known);
            assert_eq!(peeked.lost[0], is_lost, "{subject:?} by {back}");
            let here = spent(&subject, NOW);
            assert_eq!(peeked.wait(), here.peek(NOW, 1), "{subject:?} by {back}");
        }
    }
}

/// The longest life of a state with a debt is that of the debt.
#[test]
fn a_debt_is_kept_however_far_the_clock_is_set_back() {
    let mut store = Store::start();
    let rate = Rate::new(4, micros(MINUTE));
    let (burst, may_owe) = (4, true);
    let every = micros(MINUTE);
    let owing = [
        Subject::Bucket {
            rate,
            burst,
            may_owe,
        },
        Subject::Interval { every },
    ];
    for subject in owing {
        for (back, is_lost) in [(5 * MINUTE, false), (HOUR, true)] {
            store.flush();
            let mut here = Here::new(subject.clone(), at(NOW));
            assert_eq!(here.ask(NOW, 40), None);
            let limit_args = [limit_args(&subject)];
            assert_eq!(store.ask(&Question::ask(NOW, 40), &limit_args).passed, 1);

            let refused = store.ask(&Question::ask(NOW - back, 1), &limit_args);
            let expected = (here.peek(NOW, 1), is_lost);
            assert_eq!((refused.wait(), refused.lost[0]), expected, "{subject:?}");
        }
    }
}

#[test]
fn a_state_that_is_missing_after_the_step_counts_as_lost_once() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let known = taken(&mut store, &subject).known();
        store.flush();
        let known = [limit_args(&subject).knowing(known)];
        for (later, is_lost) in [(0, true), (1, false)] {
            let refused = store.ask(&Question::ask(BACK + later, 1), &known);
            assert_eq!(
                refused.wait(),
                spent(&subject, BACK).peek(BACK + later, 1),
                "{subject:?}"
            );
            assert_eq!(refused.lost[0], is_lost, "{subject:?}");
        }
    }
}

/// It is ahead, but not by its whole life: the server that has taken over has an older copy.
#[test]
fn an_outdated_state_that_is_ahead_counts_as_lost() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let nobody = [limit_args(&subject)];
        store.ask(&Question::ask(NOW, 1), &nobody);
        let known = Known {
            at: NOW + 2 * SECOND,
            until: NOW + MINUTE,
        };
        let known = [limit_args(&subject).knowing(known)];
        let answer = store.ask(&Question::ask(NOW - SECOND, 1), &known);
        assert_eq!((answer.passed, answer.lost[0]), (0, true), "{subject:?}");
    }
}
