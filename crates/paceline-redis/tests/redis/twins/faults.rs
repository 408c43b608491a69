//! Mistakes that other implementations make.

use paceline::time::Rate;

use super::asking::{LimitArgs, Question, Store};
use super::subject::{Here, Subject, at, of_every_kind};
use super::{MILLI, MINUTE, NOW, SECOND};

const KEY: &str = "key";

fn limit_args(subject: &Subject) -> Vec<LimitArgs> {
    vec![LimitArgs::new(KEY, &subject.numbers())]
}

#[test]
fn a_thousand_calls_in_one_microsecond_count_a_thousand() {
    let mut store = Store::start();
    for limit in [999, 1_000, 1_001] {
        for subject in of_every_kind(limit, MINUTE) {
            store.flush();
            let limit_args = limit_args(&subject);
            let passed: u32 = (0..1_001)
                .map(|_| store.ask(&Question::ask(NOW, 1), &limit_args).passed)
                .sum();
            assert_eq!(passed, subject.burst(), "{subject:?}");
        }
    }
}

#[test]
fn a_refused_request_is_not_counted() {
    let mut store = Store::start();
    for subject in of_every_kind(2, MINUTE) {
        store.flush();
        let limit_args = limit_args(&subject);
        store.ask(&Question::ask(NOW, subject.burst()), &limit_args);
        let wait = store.ask(&Question::ask(NOW, 1), &limit_args).retry_in;
        for tried in 1..200 {
            let later = store.ask(&Question::ask(NOW + tried, 1), &limit_args);
            assert_eq!(later.wait(), Some(wait - tried), "{subject:?}");
        }
        assert_eq!(
            store.ask(&Question::ask(NOW + wait, 1), &limit_args).passed,
            1,
            "{subject:?}"
        );
    }
}

#[test]
fn a_steady_stream_above_the_limit_never_stalls() {
    let mut store = Store::start();
    let subject = Subject::Smooth {
        limit: 100,
        window: MINUTE,
    };
    let limit_args = limit_args(&subject);
    let mut here = Here::new(subject, at(NOW));
    let mut passed = [0; 20];
    for asked in 0..20 * 101 {
        let now = NOW + asked * MINUTE / 101;
        let answer = store.ask_lasting(&Question::ask(now, 1), &limit_args);
        assert_eq!(answer.wait(), here.ask(now, 1), "at {now}");
        passed[usize::try_from((now - NOW) / MINUTE).unwrap()] += answer.passed;
    }
    assert!(
        passed.iter().all(|passed| (99..=100).contains(passed)),
        "{passed:?}"
    );
}

#[test]
fn a_clock_that_goes_back_by_less_than_a_state_lives_makes_nothing_early() {
    let mut store = Store::start();
    for subject in of_every_kind(2, MINUTE) {
        store.flush();
        let limit_args = limit_args(&subject);
        let taken = store.ask_lasting(&Question::ask(NOW, subject.burst()), &limit_args);
        let wait = store.ask(&Question::ask(NOW, 1), &limit_args).retry_in;
        for back in [1, SECOND, MINUTE] {
            let knowing = vec![limit_args[0].knowing(taken.known())];
            let answer = store.ask_lasting(&Question::ask(NOW - back + 1, 1), &knowing);
            assert_eq!(
                (answer.now, answer.wait()),
                (NOW - back + 1, Some(wait)),
                "{subject:?}"
            );
            assert_eq!(
                (answer.known(), answer.lost[0]),
                (taken.known(), false),
                "{subject:?}"
            );
        }
        let answer = store.ask_lasting(&Question::ask(NOW + wait, 1), &limit_args);
        assert_eq!(answer.passed, 1, "{subject:?}");
        // Permits that are spent at an earlier time count as spent at the recorded time.
        let again = store.ask_lasting(&Question::give_back(NOW, 1), &limit_args);
        assert_eq!(again.known().at, NOW + wait, "{subject:?}");
        let again = store.ask_lasting(&Question::ask(NOW, 1), &limit_args);
        assert_eq!(
            (again.passed, again.known().at),
            (1, NOW + wait),
            "{subject:?}"
        );
    }
}

#[test]
fn a_hundred_thousand_permits_can_be_taken_at_once() {
    const MANY: u32 = 100_000;
    let mut store = Store::start();
    for subject in of_every_kind(MANY, 1_000 * MINUTE) {
        if matches!(subject, Subject::Interval { .. }) {
            continue;
        }
        store.flush();
        let limit_args = limit_args(&subject);
        assert_eq!(
            store.ask(&Question::ask(NOW, MANY - 3), &limit_args).passed,
            1,
            "{subject:?}"
        );
        assert_eq!(
            store.ask(&Question::ahead(NOW, 9), &limit_args).ahead,
            3,
            "{subject:?}"
        );
        store.ask(&Question::give_back(NOW, MANY - 1), &limit_args);
        assert_eq!(
            store.ask(&Question::peek(NOW, MANY), &limit_args).passed,
            0,
            "{subject:?}"
        );
        let again = store.ask(&Question::groups(NOW, vec![(1, MANY)]), &limit_args);
        assert_eq!(again.passed, MANY - 1, "{subject:?}");
    }
}

/// The largest number of entries: more arguments than one command takes.
#[test]
fn a_thousand_buckets_are_written_and_dropped() {
    let mut store = Store::start();
    let subject = Subject::Strict {
        limit: 2_000,
        bucket: MILLI,
        buckets: 1_000,
    };
    let limit_args = limit_args(&subject);
    let mut here = Here::new(subject, at(NOW));
    for bucket in 0..1_100 {
        let now = NOW + bucket * MILLI;
        assert_eq!(
            store
                .ask_lasting(&Question::ask(now, 1), &limit_args)
                .wait(),
            here.ask(now, 1)
        );
    }
    assert_eq!(store.cli::<u64>(&["HLEN", KEY]), 1_001 + 3);
    let now = NOW + 2_200 * MILLI;
    assert_eq!(
        store
            .ask_lasting(&Question::ask(now, 2_000), &limit_args)
            .passed,
        1
    );
    assert_eq!(store.cli::<u64>(&["HLEN", KEY]), 1 + 3);
}

/// Large hashes are not ordered.
#[test]
fn the_oldest_of_many_buckets_goes_first() {
    let mut store = Store::start();
    let subject = Subject::Strict {
        limit: 600,
        bucket: MILLI,
        buckets: 1_000,
    };
    let limit_args = limit_args(&subject);
    let mut here = Here::new(subject, at(NOW));
    for bucket in 0..800 {
        let now = NOW + bucket * MILLI;
        let answer = store.ask_lasting(&Question::ask(now, 1), &limit_args);
        assert_eq!(answer.wait(), here.ask(now, 1), "at {now}");
    }
    let now = NOW + 800 * MILLI;
    store.ask_lasting(&Question::give_back(now, 100), &limit_args);
    here.give_back(now, 100);
    for cost in [100, 101, 200, 600] {
        let answer = store.ask_lasting(&Question::peek(now, cost), &limit_args);
        assert_eq!(answer.wait(), here.peek(now, cost), "{cost}");
    }
}

#[test]
fn a_log_drops_entries_older_than_its_window() {
    let mut store = Store::start();
    let limit_args = limit_args(&Subject::Log {
        limit: 2,
        window: SECOND,
    });
    for half in 0..100 {
        let now = NOW + half * SECOND / 2;
        assert_eq!(
            store
                .ask_lasting(&Question::ask(now, 1), &limit_args)
                .passed,
            1
        );
    }
    assert_eq!(store.cli::<u64>(&["ZCARD", KEY]), 2 + 2);
}

#[test]
fn a_cost_of_any_size_is_one_entry_of_a_log() {
    let mut store = Store::start();
    let limit_args = limit_args(&Subject::Log {
        limit: 100_000,
        window: MINUTE,
    });
    for (number, cost) in [1, 9, 90_000].into_iter().enumerate() {
        let now = NOW + number as u64;
        assert_eq!(
            store
                .ask_lasting(&Question::ask(now, cost), &limit_args)
                .passed,
            1
        );
        assert_eq!(store.cli::<usize>(&["ZCARD", KEY]), number + 1 + 2);
    }
}

/// So that no call takes long.
#[test]
fn a_log_removes_at_most_a_thousand_entries_in_a_call() {
    let mut store = Store::start();
    let limit_args = limit_args(&Subject::Log {
        limit: 2_000,
        window: MINUTE,
    });
    for entry in 0..1_200 {
        store.ask_lasting(&Question::ask(NOW + entry, 1), &limit_args);
    }
    let (now, all) = (NOW + 1_200, store.dump(KEY).unwrap());
    store.ask_lasting(&Question::give_back(now, 1_200), &limit_args);
    assert_eq!(store.cli::<u64>(&["ZCARD", KEY]), 200 + 2);
    let again = store.ask_lasting(&Question::ahead(now, 9_999), &limit_args);
    assert_eq!(again.ahead, 1_800);

    let mut restore = redis::cmd("RESTORE");
    let restore = restore.arg(KEY).arg(0).arg(all).arg("REPLACE");
    store.query::<()>(restore).unwrap();
    for (later, left) in [(0, 200), (1, 0)] {
        let now = now + MINUTE + later;
        let answer = store.ask_lasting(&Question::ask(now, 1), &limit_args);
        assert_eq!(answer.passed, 1);
        assert_eq!(store.cli::<u64>(&["ZCARD", KEY]), left + 1 + later + 2);
    }
}

#[test]
fn a_fractional_rate_does_not_drift() {
    let mut store = Store::start();
    let rate = Rate::per_second(3);
    let limit_args = limit_args(&Subject::Bucket {
        rate,
        burst: 2,
        may_owe: false,
    });
    let mut now = NOW;
    store.ask_lasting(&Question::ask(now, 2), &limit_args);
    for _ in 0..300 {
        now += store
            .ask_lasting(&Question::ask(now, 1), &limit_args)
            .retry_in;
        assert_eq!(
            store
                .ask_lasting(&Question::ask(now, 1), &limit_args)
                .passed,
            1
        );
    }
    assert_eq!(now, NOW + 100 * SECOND, "not 99.9999");
}
