//! A key of another type or format is not changed, and the request fails.

use super::alone::{Alone, KEY};
use super::asking::{LimitArgs, Question, Store};
use super::subject::{Subject, of_every_kind};
use super::{MINUTE, NOW};

const fn named(subject: &Subject) -> &'static str {
    match subject {
        Subject::Bucket(..) | Subject::Owing(..) => "a token bucket",
        Subject::Interval(_) => "an interval",
        Subject::Log(..) => "a sliding log",
        Subject::Strict(..) | Subject::Smooth(..) => "a sliding counter",
        Subject::Fixed(..) => "a fixed window",
        Subject::PerRequest(of) => named(of),
    }
}

#[track_caller]
fn is_refused(store: &mut Store, subject: &Subject, what: &str) {
    let what = format!("{what} as {subject:?}");
    let limits = ["other", KEY].map(|key| LimitArgs::new(key, &subject.numbers()));
    let held = store.dump(KEY);
    for question in [
        Question::ask(NOW, 1),
        Question::ahead(NOW, 1),
        Question::peek(NOW, 1),
        Question::give_back(NOW, 1),
    ] {
        for limits in [&limits[1..], &limits] {
            let said = store.try_ask(&question, limits).unwrap().unwrap_err();
            assert!(said.starts_with("WRONGTYPE "), "{what}: {said}");
            let names = said.contains(KEY) && said.contains(named(subject));
            assert!(names, "{what}: {said}");
        }
    }
    assert_eq!(store.dump(KEY), held, "{what}");
    assert_eq!(store.keys(), [KEY], "{what}");
    assert_eq!(store.pttl(KEY), -1, "{what}");
}

#[test]
fn values_of_other_programs_are_not_touched() {
    let mut store = Store::start();
    let commands: [&[&str]; 12] = [
        &["SET", KEY, "plain text"],
        &["SET", KEY, ""],
        &["SET", KEY, "17"],
        &["SET", KEY, "1 2 3 "],
        &["SET", KEY, "1 2 3 4 5"],
        &["SET", KEY, "1 2+3 4"],
        &["RPUSH", KEY, "1"],
        &["SADD", KEY, "1"],
        &["HSET", KEY, "name", "value"],
        &["HSET", KEY, "at", "1", "origin", "1", "name", "1 2"],
        &["HSET", KEY, "17", "17 1"],
        &["ZADD", KEY, "17", "id:1"],
    ];
    for command in commands {
        store.flush();
        store.cli::<()>(command);
        for subject in of_every_kind(4, MINUTE) {
            is_refused(&mut store, &subject, &command.join(" "));
        }
    }
}

#[test]
fn the_state_of_another_policy_is_not_touched() {
    let mut store = Store::start();
    for holder in of_every_kind(4, MINUTE) {
        Alone::new(&mut store, &holder).ask(NOW, 1);
        for subject in of_every_kind(4, MINUTE) {
            if named(&holder) != named(&subject) {
                is_refused(&mut store, &subject, &format!("{holder:?}"));
            }
        }
    }
}

/// Other errors are not reported as a wrong type.
#[test]
fn another_error_keeps_its_message() {
    let mut store = Store::start();
    store.cli::<()>(&["ACL", "SETUSER", "default", "-get", "-getrange"]);
    for subject in of_every_kind(4, MINUTE) {
        let limit = [LimitArgs::new(KEY, &subject.numbers())];
        let refused = store.try_ask(&Question::ask(NOW, 1), &limit);
        let refused = refused.unwrap().unwrap_err();
        assert!(!refused.contains("WRONGTYPE"), "{refused}");
        let says_why = refused.contains("run this command") || refused.contains("permission");
        assert!(says_why, "{refused}");
    }
}
