//! Mistakes that other implementations make.

use super::alone::{Alone, KEY};
use super::asking::{Question, Store};
use super::subject::{Here, Subject, of_every_kind};
use super::{MILLI, MINUTE, NOW, SECOND};

#[test]
fn a_thousand_calls_in_one_microsecond_count_a_thousand() {
    let mut store = Store::start();
    for subject in of_every_kind(1_000, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        let passed: u32 = (0..1_001).map(|_| limit.ask(NOW, 1).passed).sum();
        assert_eq!(passed, subject.burst(), "{subject:?}");
    }
}

#[test]
fn a_hundred_thousand_permits_can_be_taken_at_once() {
    const MANY: u32 = 100_000;
    let mut store = Store::start();
    for subject in of_every_kind(MANY, 1_000 * MINUTE) {
        if matches!(subject, Subject::Interval(_)) {
            continue;
        }
        let mut limit = Alone::new(&mut store, &subject);
        assert_eq!(limit.ask(NOW, MANY - 3).passed, 1, "{subject:?}");
        assert_eq!(limit.ahead(NOW, 9).ahead, 3, "{subject:?}");
        limit.give_back(NOW, MANY - 1);
        assert_eq!(limit.peek(NOW, MANY).passed, 0, "{subject:?}");
        let again = limit.call(&Question::groups(NOW, vec![(1, MANY)]));
        assert_eq!(again.passed, MANY - 1, "{subject:?}");
    }
}

/// The largest number of entries.
#[test]
fn a_thousand_buckets_are_written_and_dropped_and_the_oldest_goes_first() {
    let mut store = Store::start();
    let subject = Subject::Strict(2_000, MILLI, 1_000);
    let mut limit = Alone::new(&mut store, &subject);
    let mut here = Here::new(&subject, NOW);
    for now in (NOW..).step_by(1_000).take(1_100) {
        assert_eq!(limit.ask(now, 1).wait(), here.ask(now, 1), "at {now}");
    }
    assert_eq!(limit.entries(), 1_001);
    let now = NOW + 1_100 * MILLI;
    limit.give_back(now, 100);
    here.give_back(now, 100);
    for cost in (1_000..=2_000).step_by(50) {
        assert_eq!(limit.peek(now, cost).wait(), here.peek(now, cost), "{cost}");
    }
    assert_eq!(limit.ask(NOW + 2_200 * MILLI, 2_000).passed, 1);
    assert_eq!(limit.entries(), 1);
}

#[test]
fn a_log_has_one_entry_for_each_request_in_its_window_whatever_its_cost() {
    let mut store = Store::start();
    let mut limit = Alone::new(&mut store, &Subject::Log(2, SECOND));
    for half in 0..100 {
        assert_eq!(limit.ask(NOW + half * SECOND / 2, 1).passed, 1);
    }
    assert_eq!(limit.entries(), 2);

    let mut limit = Alone::new(&mut store, &Subject::Log(100_000, MINUTE));
    for (number, cost) in (1..).zip([1, 9, 90_000]) {
        assert_eq!(limit.ask(NOW + number, cost).passed, 1);
        assert_eq!(limit.entries(), number);
    }
}

/// So that no call takes long.
#[test]
fn a_log_changes_at_most_a_thousand_entries_in_a_call() {
    let mut store = Store::start();
    let mut limit = Alone::new(&mut store, &Subject::Log(2_000, MINUTE));
    for entry in 0..1_200 {
        limit.ask(NOW + entry, 1);
    }
    let now = NOW + 1_200;
    limit.give_back(now, 1_200);
    assert_eq!(limit.ahead(now, 9_999).ahead, 1_800);
}

#[test]
fn a_log_is_never_more_than_twice_as_long_as_what_counts_of_it() {
    let mut store = Store::start();
    let mut limit = Alone::new(&mut store, &Subject::Log(100, SECOND));
    let length = |limit: &mut Alone<'_>| limit.store.cli::<u64>(&["STRLEN", KEY]);
    for entry in 0..1_000 {
        let now = NOW + entry * SECOND / 100;
        assert_eq!(limit.ask(now, 1).passed, 1);
        let counts = limit.entries();
        assert!(length(&mut limit) <= 41 + 16 * (2 * counts).max(16));
    }
    assert_eq!(limit.ask(NOW + 11 * SECOND - 1, 1).passed, 1);
    assert_eq!((limit.entries(), length(&mut limit)), (1, 41 + 16));
}
