//! A state that is missing before its time, older than known, or further ahead than it lives, counts as fully spent.

use paceline::time::Rate;

use super::alone::{Alone, KEY};
use super::asking::{Known, LimitArgs, Question, Store};
use super::subject::{Here, Subject, micros, of_every_kind};
use super::{HOUR, MILLI, MINUTE, NOW, SECOND};

/// How the state was lost before now, and what the client knows of it.
type Loss = fn(&mut Alone<'_>, &Subject) -> Known;

/// The state was written a moment ago, and counts for a moment longer.
const MOMENT: Known = Known {
    at: NOW - MILLI,
    until: NOW + MILLI,
};

const LOSSES: [(&str, Loss); 5] = [
    ("is missing", |_, _| MOMENT),
    ("is older than known", |limit, _| {
        limit.ask(NOW - 2 * MILLI, 1);
        MOMENT
    }),
    ("was lost before", |limit, _| {
        limit.known = MOMENT;
        limit.ask(NOW - MILLI - 1, 1);
        MOMENT
    }),
    ("is further ahead than it lives", |limit, subject| {
        limit.ask(NOW + HOUR, subject.burst()).known()
    }),
    ("is missing, and was further ahead", |limit, subject| {
        let known = limit.ask(NOW + HOUR, subject.burst()).known();
        limit.store.flush();
        known
    }),
];

/// Calls it for each way to lose the state of each policy.
fn for_each_loss(test: impl Fn(&mut Alone<'_>, &Subject, &str)) {
    let mut store = Store::start();
    for (how, loss) in LOSSES {
        for subject in of_every_kind(4, MINUTE) {
            let mut limit = Alone::new(&mut store, &subject);
            limit.known = loss(&mut limit, &subject);
            test(&mut limit, &subject, &format!("{subject:?}: {how}"));
        }
    }
}

/// Policies with a debt.
fn owing() -> [Subject; 2] {
    let rate = Rate::new(4, micros(MINUTE));
    [Subject::Owing(rate, 4), Subject::Interval(micros(MINUTE))]
}

#[test]
fn a_peek_reports_a_lost_state_and_writes_nothing() {
    for_each_loss(|limit, subject, what| {
        let held = limit.dump();
        for _ in 0..2 {
            let peeked = limit.peek(NOW, 1);
            let wait = Here::spent(subject, NOW).peek(NOW, 1);
            assert_eq!((peeked.wait(), peeked.lost[0]), (wait, true), "{what}");
            assert_eq!(limit.dump(), held, "{what}");
        }
    });
}

#[test]
fn a_lost_state_counts_as_spent_once_for_many_processes_and_recovers() {
    for_each_loss(|limit, subject, what| {
        let here = Here::spent(subject, NOW);
        let was_missing = limit.dump().is_none();
        let first = limit.ask(NOW, 1);
        let (at, until) = (NOW, here.until());
        assert_eq!(first.wait(), here.peek(NOW, 1), "{what}");
        assert_eq!(first.known(), Known { at, until }, "{what}");
        assert!(first.lost[0], "{what}");
        if was_missing {
            assert_eq!(first.lives, [(until + SECOND - NOW) / MILLI + 1], "{what}");
        }

        // Clients that know the state before, this one, and none.
        let wait = first.retry_in;
        for known in [limit.known, first.known(), Known::default()] {
            limit.known = known;
            for now in [NOW + 1, NOW + wait - 1] {
                let refused = limit.ask(now, 1);
                assert_eq!(refused.wait(), here.peek(now, 1), "{what}");
                assert_eq!(refused.known(), first.known(), "{what}");
                assert!(!refused.lost[0], "{what}");
            }
            for now in [NOW, NOW + wait - 1, NOW + wait, until - 1] {
                for cost in [1, subject.burst()] {
                    let peeked = limit.peek(now, cost);
                    let expected = (here.peek(now, cost), false);
                    assert_eq!((peeked.wait(), peeked.lost[0]), expected, "{what} at {now}");
                }
            }
        }
        let all = limit.call(&Question::groups(until, vec![(1, subject.burst())]));
        let expected = (subject.burst(), false);
        assert_eq!((all.passed, all.lost[0]), expected, "{what}");
    });
}

/// The returned permits were spent before the loss, and how much was spent before is unknown.
#[test]
fn giving_back_to_a_lost_state_makes_nothing_early() {
    for_each_loss(|limit, subject, what| {
        let (mut least, burst) = (Here::spent(subject, NOW), subject.burst());
        let most = least.clone();
        for (given_back, now) in (0..3).zip(NOW..) {
            let answer = limit.give_back(now, 1);
            assert_eq!(answer.lost[0], given_back == 0, "{what}");
            limit.known = answer.known();
            least.give_back(now, 1);
            let wait = limit.peek(now, burst).wait();
            assert!(wait >= least.peek(now, burst), "{what}: {wait:?}");
            assert!(wait <= most.peek(now, burst), "{what}: {wait:?}");
        }
    });
}

/// Other clients may have spent no more than the limit besides.
#[test]
fn a_debt_survives_the_loss_of_later_state() {
    let mut store = Store::start();
    for subject in owing() {
        let mut limit = Alone::new(&mut store, &subject);
        let began = NOW - 2 * MILLI;
        let mut here = Here::new(&subject, began);
        assert_eq!(here.ask(began, 9), None);
        assert_eq!(limit.ask(began, 9).wait(), None);

        limit.known = MOMENT;
        let answer = limit.ask(NOW, 1);
        let expected = (here.peek(NOW, 1), true);
        assert_eq!((answer.wait(), answer.lost[0]), expected, "{subject:?}");
        limit.known = Known::default();
        let later = NOW + 2 * MINUTE;
        let waits = limit.peek(later, 1).wait().is_some();
        assert!(waits || here.peek(later, 1).is_none(), "{subject:?}");
    }
}

/// The longest life of a state with a debt is that of the debt.
#[test]
fn a_debt_is_kept_however_far_the_clock_is_set_back() {
    let mut store = Store::start();
    for subject in owing() {
        for (back, is_lost) in [(5 * MINUTE, false), (HOUR, true)] {
            let mut limit = Alone::new(&mut store, &subject);
            let mut here = Here::new(&subject, NOW);
            assert_eq!(here.ask(NOW, 40), None);
            assert_eq!(limit.ask(NOW, 40).passed, 1);

            let refused = limit.ask(NOW - back, 1);
            let expected = (here.peek(NOW, 1), is_lost);
            assert_eq!((refused.wait(), refused.lost[0]), expected, "{subject:?}");
        }
    }
}

#[test]
fn a_missing_state_that_has_settled_was_not_lost() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        let (at, until) = (NOW - MINUTE, NOW);
        limit.known = Known { at, until };
        let answer = limit.ask(NOW, subject.burst());
        assert_eq!((answer.passed, answer.lost[0]), (1, false), "{subject:?}");
        // The state is as old as known.
        let (at, until) = (NOW, NOW + 9 * MINUTE);
        limit.known = Known { at, until };
        let answer = limit.ask(NOW + 1, 1);
        assert_eq!((answer.passed, answer.lost[0]), (0, false), "{subject:?}");
    }
}

#[test]
fn of_several_limits_only_the_lost_one_is_written() {
    let mut store = Store::start();
    let other = LimitArgs::new("other", &Subject::Fixed(1, MINUTE).numbers());
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        limit.known = MOMENT;
        let both = [other.clone(), limit.args()];
        let answer = store.ask(&Question::ask(NOW, 1), &both);
        assert_eq!((answer.passed, answer.binding), (0, 2), "{subject:?}");
        assert_eq!(answer.lost, [false, true], "{subject:?}");
        assert_eq!(store.keys(), [KEY], "{subject:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_by_less_than_a_state_lives_makes_nothing_early() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        let taken = limit.ask(NOW, subject.burst()).known();
        limit.known = taken;
        let wait = Here::spent(&subject, NOW).peek(NOW, 1);
        let life = taken.until - NOW;
        for back in [1, SECOND, life] {
            let refused = limit.ask(NOW - back, 1);
            assert_eq!(refused.now, NOW - back);
            assert_eq!(refused.wait(), wait, "{subject:?} by {back}");
            assert_eq!(refused.known(), taken, "{subject:?} by {back}");
            assert!(!refused.lost[0], "{subject:?} by {back}");
        }
        let peeked = limit.peek(NOW - life - 1, 1);
        assert_eq!((peeked.wait(), peeked.lost[0]), (wait, true), "{subject:?}");

        let open_at = NOW + wait.unwrap();
        assert_eq!(limit.ask(open_at, 1).passed, 1, "{subject:?}");
        // Permits that are spent at an earlier time count as spent at the recorded time.
        assert_eq!(limit.give_back(NOW, 1).known().at, open_at, "{subject:?}");
        let again = limit.ask(NOW, 1);
        let expected = (1, open_at);
        assert_eq!((again.passed, again.known().at), expected, "{subject:?}");
    }
}

/// It is ahead, but not by its whole life: the server that has taken over has an older copy.
#[test]
fn an_outdated_state_that_is_ahead_counts_as_lost() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        limit.ask(NOW, 1);
        let (at, until) = (NOW + 2 * SECOND, NOW + MINUTE);
        limit.known = Known { at, until };
        let answer = limit.ask(NOW - SECOND, 1);
        assert_eq!((answer.passed, answer.lost[0]), (0, true), "{subject:?}");
    }
}

#[test]
fn after_a_new_epoch_a_missing_state_counts_as_spent_for_as_long_as_it_could_have_counted() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let life = Here::spent(&subject, NOW).until() - NOW;
        let ask = |store: &mut Store, now, known| {
            let limit = LimitArgs::new(&format!("at {now}"), &subject.numbers());
            let answer = store.ask(&Question::ask(now, 1).epoch(known), &[limit]);
            assert_eq!(answer.passed == 0, answer.lost[0], "{subject:?}");
            (answer.lost[0], answer.epoch)
        };
        let before = NOW - HOUR;
        for (known, is_lost) in [(0, false), (1, false), (before, true)] {
            store.flush();
            assert_eq!(
                ask(&mut store, NOW, known),
                (is_lost, NOW),
                "known: {known}"
            );
        }
        // Another client has found it first, and knows of none before.
        store.flush();
        assert_eq!(ask(&mut store, NOW, 0), (false, NOW));
        assert_eq!(ask(&mut store, NOW + 1, NOW), (false, NOW));
        for (now, expected) in [
            (NOW + 2, true),
            (NOW + life - 1, true),
            (NOW + life, false),
            (NOW - life + 1, true),
            (NOW - life, false),
        ] {
            // It is written down at the first of them.
            let known = if now == NOW + 2 { before } else { NOW };
            let answer = ask(&mut store, now, known);
            assert_eq!(answer, (expected, NOW), "{subject:?} at {now}");
        }
        // A state that is there makes no difference, and nothing is read if the epoch is known.
        let there = LimitArgs::new(&format!("at {}", NOW + life), &subject.numbers());
        let answer = store.ask(&Question::ask(NOW + 3 * life, 1).epoch(NOW), &[there]);
        assert_eq!((answer.passed, answer.epoch), (1, 0), "{subject:?}");
    }
}

/// It cannot write one, so each missing state would be found after a new one.
#[test]
fn for_a_client_that_may_read_the_epoch_only_it_is_never_new() {
    let mut store = Store::start();
    let rules = ["resetkeys", "~at*", "%R~*:epoch"];
    store.cli::<()>(&[&["ACL", "SETUSER", "default"], &rules[..]].concat());
    for subject in of_every_kind(4, MINUTE) {
        let mut known = 0;
        for now in [NOW, NOW + HOUR, NOW + 2 * HOUR] {
            let limit = LimitArgs::new(&format!("at {now}"), &subject.numbers());
            let answer = store.ask(&Question::ask(now, 1).epoch(known), &[limit]);
            assert!(!answer.lost[0], "{subject:?} at {now}");
            known = answer.epoch;
        }
        store.flush();
    }
}
