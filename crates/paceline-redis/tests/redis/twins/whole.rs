//! The script as a whole: which keys it accesses, and that it leaves nothing behind.

use paceline::time::Rate;

use super::alone::Alone;
use super::asking::{LimitArgs, Question, Store, one_of_each};
use super::subject::{Subject, of_every_kind};
use super::{MILLI, MINUTE, NOW, REAL};

fn everything(store: &mut Store, prefix: &str) {
    let all = one_of_each(prefix);
    let owing = Subject::Owing(Rate::per_second(3), 2).numbers();
    let owing = LimitArgs::new(&format!("{prefix}owing"), &owing);
    let mut groups: Vec<_> = all.iter().map(|limit| vec![limit.clone()]).collect();
    groups.extend([all, vec![owing]]);
    for limits in groups {
        for question in [
            Question::ask(NOW, 1),
            Question::groups(NOW, vec![(1, 9), (2, 1)]).and_ahead(3),
            Question::ask(NOW + 1, 1).outage(NOW, NOW + 1),
            Question::peek(NOW, 1),
            Question::give_back(NOW, 1),
            Question::ask(REAL, 1),
        ] {
            store.try_ask(&question, &limits).unwrap().unwrap();
        }
    }
}

#[test]
fn a_script_accesses_only_its_keys() {
    let mut store = Store::start();
    store.cli::<()>(&["ACL", "SETUSER", "default", "resetkeys", "~ours:*"]);
    let limits = one_of_each("theirs");
    let refused = store.try_ask(&Question::ask(NOW, 1), &limits[..1]);
    assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));

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
        let mut limit = Alone::new(&mut store, &subject);
        let before = limit.store.time_us();
        let answer = limit.ask(REAL, 1);
        let (now, after) = (answer.now, limit.store.time_us());
        assert!((before..=after).contains(&now), "{before}, {now}, {after}");
        assert_eq!(answer.known().at, now);
        assert!(answer.known().until > now + MILLI);
    }
}
