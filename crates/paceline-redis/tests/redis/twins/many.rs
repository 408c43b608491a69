//! One call of the script makes many decisions.

use super::asking::{LimitArgs, Question, Store, one_of_each};
use super::subject::{Subject, of_every_kind};
use super::{MINUTE, NOW};

/// Each alone, and all of them as one limit.
fn each_and_all(limits: &[LimitArgs]) -> impl Iterator<Item = &[LimitArgs]> {
    limits.chunks(1).chain([limits])
}

#[test]
fn each_decision_of_a_call_is_the_one_of_a_call_of_its_own() {
    let mut store = Store::start();
    let (together, alone) = (one_of_each("together"), one_of_each("alone"));
    let questions = [
        Question::ask(NOW, 1),
        Question::groups(NOW, vec![(1, 2), (3, 1)]).and_ahead(2),
        Question::peek(NOW, 2),
        Question::ahead(NOW, 9),
        Question::give_back(NOW, 1),
        Question::ask(NOW, 1),
        Question::ask(NOW, 1).returning(1, NOW),
        Question::ask(NOW, 4),
    ];
    for question in &questions {
        let asked: Vec<_> = each_and_all(&together)
            .map(|limits| (question, limits))
            .collect();
        let answers = store.ask_many(&asked);
        let expected: Vec<_> = each_and_all(&alone)
            .map(|limits| store.try_ask(question, limits).unwrap())
            .collect();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(answers, expected, "{question:?}");
    }
}

#[test]
fn a_key_of_another_type_fails_its_own_decision_only() {
    let mut store = Store::start();
    let limits = one_of_each("");
    let question = Question::ask(NOW, 1);
    for (wrong, limit) in limits.iter().enumerate() {
        store.flush();
        store.cli::<()>(&["SADD", &limit.key, "1"]);
        let both = [limit.clone(), LimitArgs::new("other", &limits[0].numbers)];
        let mut asked: Vec<_> = limits.chunks(1).map(|one| (&question, one)).collect();
        asked.push((&question, &both));

        let answers = store.ask_many(&asked);
        for (number, answer) in answers.into_iter().enumerate() {
            if number == wrong || number == limits.len() {
                let fault = answer.unwrap_err();
                let begins = format!("WRONGTYPE {wrong} holds");
                assert!(fault.starts_with(&begins), "{fault}");
            } else {
                assert_eq!(answer.unwrap().passed, 1, "{number}");
            }
        }
        assert_eq!(store.cli::<u64>(&["DBSIZE"]), 6);
    }
}

#[test]
fn a_key_that_is_asked_twice_counts_twice() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit = [LimitArgs::new("key", &subject.numbers())];
        let question = Question::ask(NOW, 1);
        let mut passed = 0;
        // The first call finds no state, the second one the state of the first.
        for _ in 0..2 {
            for answer in store.ask_many(&[(&question, &limit[..]); 3]) {
                passed += answer.unwrap().passed;
            }
        }
        assert_eq!(passed, subject.burst(), "{subject:?}");
    }
}

#[test]
fn a_thousand_keys_are_decided_in_one_call() {
    let mut store = Store::start();
    let subject = Subject::Fixed(1, MINUTE).numbers();
    let limits = (0..1_000).map(|number| LimitArgs::new(&number.to_string(), &subject));
    let limits: Vec<_> = limits.collect();
    let question = Question::ask(NOW, 1);
    let asked: Vec<_> = limits.chunks(1).map(|one| (&question, one)).collect();
    for passed in [1, 0] {
        for answer in store.ask_many(&asked) {
            assert_eq!(answer.unwrap().passed, passed);
        }
    }
}
