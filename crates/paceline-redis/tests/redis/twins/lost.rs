//! A state that is missing before its time, or older than known, counts as fully spent.

use paceline::time::Rate;

use super::asking::{Answer, Known, LimitArgs, Question, Store};
use super::subject::{Here, Subject, at, micros, of_every_kind};
use super::{MILLI, MINUTE, NOW};

const KEY: &str = "key";

/// A client that knows that the state was written a moment ago, and counts for a moment longer.
fn limit_args(subject: &Subject) -> LimitArgs {
    LimitArgs::new(KEY, &subject.numbers()).knowing(Known {
        at: NOW - MILLI,
        until: NOW + MILLI,
    })
}

/// The policy in memory, fully spent now.
fn spent(subject: &Subject) -> Here<Subject> {
    let mut here = Here::new(subject.clone(), at(NOW));
    assert_eq!(here.ask(NOW, subject.burst()), None);
    here
}

/// From now on the state answers like a limit that was fully spent now, until it has settled.
#[track_caller]
fn heals(store: &mut Store, subject: &Subject, first: &Answer) {
    let here = spent(subject);
    assert_eq!(first.wait(), here.peek(NOW, 1), "{subject:?}");
    assert_eq!(
        (first.lost[0], first.known().at),
        (true, NOW),
        "{subject:?}"
    );
    assert_eq!(first.known().until, here.until(), "{subject:?}");
    assert!(store.pttl(KEY) > 0, "{subject:?}");

    let limit_args = [limit_args(subject).knowing(first.known())];
    let (wait, until) = (first.retry_in, here.until());
    for now in [NOW, NOW + wait - 1, NOW + wait, until - 1] {
        for cost in [1, subject.burst()] {
            let answer = store.ask_lasting(&Question::peek(now, cost), &limit_args);
            let expected = (here.peek(now, cost), false);
            assert_eq!(
                (answer.wait(), answer.lost[0]),
                expected,
                "{subject:?} at {now}"
            );
        }
    }
    let singles = Question::groups(until, vec![(1, subject.burst())]);
    let answer = store.ask_lasting(&singles, &limit_args);
    assert_eq!(
        (answer.passed, answer.lost[0]),
        (subject.burst(), false),
        "{subject:?}"
    );
}

/// Other clients may have spent no more than the limit besides.
#[test]
fn a_debt_survives_the_loss_of_later_state() {
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
        let nobody = [LimitArgs::new(KEY, &subject.numbers())];
        store.flush();
        let began = NOW - 2 * MILLI;
        let mut here = Here::new(subject.clone(), at(began));
        assert_eq!(here.ask(began, 9), None);
        assert_eq!(
            store.ask_lasting(&Question::ask(began, 9), &nobody).wait(),
            None
        );

        let answer = store.ask_lasting(&Question::ask(NOW, 1), &[limit_args(&subject)]);
        assert_eq!(
            (answer.wait(), answer.lost[0]),
            (here.peek(NOW, 1), true),
            "{subject:?}"
        );
        let later = NOW + 2 * MINUTE;
        let wait = store.ask_lasting(&Question::peek(later, 1), &nobody).wait();
        assert!(
            wait.is_some() || here.peek(later, 1).is_none(),
            "{subject:?}"
        );
    }
}

#[test]
fn a_state_missing_before_its_time_counts_as_spent_and_recovers() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let first = store.ask(&Question::ask(NOW, 1), &[limit_args(&subject)]);
        heals(&mut store, &subject, &first);
    }
}

#[test]
fn an_outdated_state_counts_as_spent_and_recovers() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let nobody = LimitArgs::new(KEY, &subject.numbers());
        store.ask(&Question::ask(NOW - 2 * MILLI, 1), &[nobody]);
        let first = store.ask(&Question::ask(NOW, 1), &[limit_args(&subject)]);
        heals(&mut store, &subject, &first);
    }
}

#[test]
fn a_state_that_is_lost_twice_recovers() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        store.ask(&Question::ask(NOW - MILLI - 1, 1), &[limit_args(&subject)]);
        let first = store.ask(&Question::ask(NOW, 1), &[limit_args(&subject)]);
        heals(&mut store, &subject, &first);
    }
}

#[test]
fn a_loss_counts_once_for_many_processes() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit_args = [limit_args(&subject)];
        let first = store.ask(&Question::ask(NOW, 1), &limit_args);
        for later in 1..5 {
            let answer = store.ask(&Question::ask(NOW + later, 1), &limit_args);
            assert_eq!(
                (answer.lost[0], answer.known()),
                (false, first.known()),
                "{subject:?}"
            );
            assert_eq!(answer.wait(), Some(first.retry_in - later), "{subject:?}");
        }
    }
}

#[test]
fn a_missing_state_that_has_settled_was_not_lost() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let known = Known {
            at: NOW - MINUTE,
            until: NOW,
        };
        let limit_args = [limit_args(&subject).knowing(known)];
        let answer = store.ask(&Question::ask(NOW, subject.burst()), &limit_args);
        assert_eq!((answer.passed, answer.lost[0]), (1, false), "{subject:?}");
        // The state is as old as known.
        let limit_args = [limit_args[0].knowing(Known {
            at: NOW,
            until: NOW + 9 * MINUTE,
        })];
        let answer = store.ask(&Question::ask(NOW + 1, 1), &limit_args);
        assert_eq!((answer.passed, answer.lost[0]), (0, false), "{subject:?}");
    }
}

#[test]
fn a_peek_reports_a_lost_state_and_writes_nothing() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit_args = [limit_args(&subject)];
        for _ in 0..2 {
            let peeked = store.ask(&Question::peek(NOW, 1), &limit_args);
            assert_eq!(
                (peeked.wait(), peeked.lost[0]),
                (spent(&subject).peek(NOW, 1), true)
            );
            assert_eq!(store.cli::<u64>(&["DBSIZE"]), 0, "{subject:?}");
        }
        store.ask_lasting(
            &Question::ask(NOW - 2 * MILLI, 1),
            &[LimitArgs::new(KEY, &limit_args[0].numbers)],
        );
        let held = store.dump(KEY);
        assert!(
            store.ask(&Question::peek(NOW, 1), &limit_args).lost[0],
            "{subject:?}"
        );
        assert_eq!(store.dump(KEY), held, "{subject:?}");
    }
}

#[test]
fn of_several_limits_only_the_lost_one_is_written() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let other = LimitArgs::new(
            "other",
            &Subject::Fixed {
                limit: 1,
                window: MINUTE,
            }
            .numbers(),
        );
        let answer = store.ask(&Question::ask(NOW, 1), &[other, limit_args(&subject)]);
        assert_eq!((answer.passed, answer.binding), (0, 2), "{subject:?}");
        assert_eq!(answer.lost, [false, true], "{subject:?}");
        assert_eq!(
            store.cli::<Vec<String>>(&["KEYS", "*"]),
            [KEY],
            "{subject:?}"
        );
    }
}

/// The returned permits were spent before the loss, and how much was spent before is unknown.
#[test]
fn giving_back_to_a_lost_state_makes_nothing_early() {
    let mut store = Store::start();
    for (subject, is_older) in of_every_kind(4, MINUTE)
        .iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        store.flush();
        let mut limit_args = [limit_args(subject)];
        if is_older {
            let nobody = LimitArgs::new(KEY, &subject.numbers());
            store.ask_lasting(&Question::ask(NOW - 2 * MILLI, 1), &[nobody]);
        }
        let (mut least, burst) = (spent(subject), subject.burst());
        let most = least.clone();
        for (given_back, now) in (0..3).zip(NOW..) {
            let answer = store.ask_lasting(&Question::give_back(now, 1), &limit_args);
            assert_eq!(answer.lost[0], given_back == 0, "{subject:?}");
            limit_args[0].known = answer.known();
            least.give_back(now, 1);
            let wait = store
                .ask_lasting(&Question::peek(now, burst), &limit_args)
                .wait();
            assert!(wait >= least.peek(now, burst), "{subject:?}: {wait:?}");
            assert!(wait <= most.peek(now, burst), "{subject:?}: {wait:?}");
        }
    }
}
