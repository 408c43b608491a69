//! The script as a whole: which keys it accesses, and that it leaves nothing behind.

use super::asking::{LimitArgs, Question, Store};
use super::subject::{Subject, of_every_kind};
use super::{MILLI, MINUTE, NOW};

fn everything(store: &mut Store, prefix: &str) {
    let subjects = of_every_kind(4, MINUTE);
    let all: Vec<_> = subjects
        .iter()
        .enumerate()
        .map(|(number, subject)| LimitArgs::new(&format!("{prefix}{number}"), &subject.numbers()))
        .collect();
    let owing = Subject::Bucket {
        rate: paceline::time::Rate::per_second(3),
        burst: 2,
        may_owe: true,
    };
    let owing = LimitArgs::new(&format!("{prefix}owing"), &owing.numbers());
    let mut groups: Vec<_> = all.iter().map(|limit| vec![limit.clone()]).collect();
    groups.extend([all, vec![owing]]);
    for limits in groups {
        for question in [
            Question::ask(NOW, 1),
            Question::groups(NOW, vec![(1, 9), (2, 1)]).and_ahead(3),
            Question::ask(NOW + 1, 1).outage(NOW, NOW + 1),
            Question::peek(NOW, 1),
            Question::give_back(NOW, 1),
            Question::ask(0, 1),
        ] {
            store.ask(&question, &limits);
        }
    }
}

#[test]
fn a_script_accesses_only_its_keys() {
    let mut store = Store::start();
    store.cli::<()>(&["ACL", "SETUSER", "default", "resetkeys", "~ours:*"]);
    let limit = [LimitArgs::new(
        "theirs",
        &of_every_kind(4, MINUTE)[0].numbers(),
    )];
    let refused = store.try_ask(&Question::ask(NOW, 1), &limit).unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");

    everything(&mut store, "ours:");
}

#[test]
fn a_script_leaves_no_globals_behind() {
    let mut store = Store::start();
    let globals = "local names = {} for name in pairs(_G) do names[#names + 1] = name end
        table.sort(names) return names";
    let before: Vec<String> = store.cli(&["EVAL", globals, "0"]);
    everything(&mut store, "");
    assert_eq!(store.cli::<Vec<String>>(&["EVAL", globals, "0"]), before);
    // The server refuses globals, and it refused nothing.
    let strays = redis::cmd("EVAL").arg("stray = 1").arg(0).clone();
    assert!(store.query::<()>(&strays).is_err());
}

#[test]
fn the_time_is_the_servers_unless_a_test_brings_its_own() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let limit_args = [LimitArgs::new("key", &subject.numbers())];
        let before = store.time_us();
        let answer = store.ask(&Question::ask(0, 1), &limit_args);
        let after = store.time_us();
        assert!(
            (before..=after).contains(&answer.now),
            "{before}, {}, {after}",
            answer.now
        );
        assert_eq!(answer.known().at, answer.now);
        assert!(answer.known().until > answer.now + MILLI);
        store.flush();
    }
}
