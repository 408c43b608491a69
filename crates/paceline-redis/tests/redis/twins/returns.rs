//! Permits that were counted and not used are given back by the time at which they were counted.

use std::cell::RefCell;

use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use proptest::{prop_assert, prop_assert_eq};

use super::asking::{LimitArgs, Question, Store};
use super::subject::{Here, Subject, at, micros, of_every_kind};
use super::{MILLI, MINUTE, NOW, SECOND};

const KEY: &str = "key";

fn limit_args(subject: &Subject) -> [LimitArgs; 1] {
    [LimitArgs::new(KEY, &subject.numbers())]
}

/// A is counted, and is cancelled while its answer travels. B passes as soon as it can. Then C asks, on the trip that returns the
/// permit of A.
#[test]
fn a_returned_permit_does_not_let_the_next_request_follow_too_closely() {
    let mut store = Store::start();
    for subject in of_every_kind(1, 20 * MILLI) {
        for after_b in [100, 2_300, 6_700, 16_400, 17_500] {
            store.flush();
            let limit_args = limit_args(&subject);
            let a = store.ask_lasting(&Question::ask(NOW, 1), &limit_args);
            let wait = store.ask_lasting(&Question::ask(NOW, 1), &limit_args);
            let b = NOW + wait.retry_in;
            let mut here = Here::new(subject.clone(), at(b));
            assert_eq!(here.ask(b, 1), None);
            assert_eq!(
                store.ask_lasting(&Question::ask(b, 1), &limit_args).passed,
                1
            );

            let c = Question::ask(b + after_b, 1).returning(1, a.known().at);
            let c = store.ask_lasting(&c, &limit_args);
            assert_eq!(c.passed, 0, "{subject:?}: {after_b} us after B");
            assert!(c.wait() >= here.peek(b + after_b, 1), "{subject:?}");
        }
    }
}

#[test]
fn a_permit_after_which_nothing_passed_is_returned_whole() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        for (before, later) in [(0, 0), (0, SECOND), (1, 2 * SECOND)] {
            // An interval has no permits to pass before.
            let before = before.min(subject.burst() - 1);
            store.flush();
            let limit_args = limit_args(&subject);
            let mut without = Here::new(subject.clone(), at(NOW));
            if before > 0 {
                assert_eq!(without.ask(NOW, before), None);
                store.ask_lasting(&Question::ask(NOW, before), &limit_args);
            }
            let now = NOW + 3 * SECOND;
            let cost = subject.burst() - before;
            let taken = store.ask_lasting(&Question::ask(now, cost), &limit_args);
            assert_eq!(taken.passed, 1, "{subject:?}");

            let now = now + later;
            let returned = Question::give_back(now, 0).returning(cost, taken.known().at);
            store.ask_lasting(&returned, &limit_args);
            for cost in 1..=subject.burst() {
                let peeked = store.ask_lasting(&Question::peek(now, cost), &limit_args);
                assert_eq!(peeked.wait(), without.peek(now, cost), "{subject:?}");
            }
        }
    }
}

#[test]
fn returns_are_applied_before_the_requests_of_their_call() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit_args = limit_args(&subject);
        let burst = subject.burst();
        store.ask_lasting(&Question::ask(NOW, burst), &limit_args);
        let again = Question::ask(NOW + MILLI, burst).returning(burst, NOW);
        let again = store.ask_lasting(&again, &limit_args);
        assert_eq!((again.passed, again.lost[0]), (1, false), "{subject:?}");
        // A peek applies none.
        let peek = Question::peek(NOW + MILLI, 1).returning(burst, NOW + MILLI);
        let peeked = store.ask_lasting(&peek, &limit_args);
        assert_eq!(peeked.passed, 0, "{subject:?}");
    }
}

#[test]
fn a_permit_from_before_a_loss_is_not_returned() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        store.flush();
        let limit_args = limit_args(&subject);
        let taken = store.ask_lasting(&Question::ask(NOW, 1), &limit_args);
        store.flush();
        let known = [limit_args[0].knowing(taken.known())];
        let now = NOW + SECOND;
        for returned_with in [now, now + 1] {
            let lost = Question::ask(returned_with, 1).returning(1, NOW);
            let lost = store.ask_lasting(&lost, &known);
            let mut spent = Here::new(subject.clone(), at(now));
            assert_eq!(spent.ask(now, subject.burst()), None);
            assert_eq!(lost.wait(), spent.peek(returned_with, 1), "{subject:?}");
        }
    }
}

#[test]
fn a_return_to_a_missing_state_writes_nothing() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let returned = Question::give_back(NOW, 0).returning(1, NOW - 1);
        store.ask(&returned, &limit_args(&subject));
        assert_eq!(store.cli::<u64>(&["DBSIZE"]), 0, "{subject:?}");
    }
}

/// Requests that pass, some of which are not used and returned later, with a request or alone.
#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    cost: u32,
    /// After how many more steps the permits are returned; `None` if they are used.
    returned_after: Option<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![1 => Just(0), 4 => 0..12 * MILLI, 1 => 0..60 * MILLI];
    let returned = prop_oneof![1 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    let step = (gap, 1..3_u32, returned).prop_map(|(gap, cost, returned_after)| Step {
        gap,
        cost,
        returned_after,
    });
    vec(step, 1..60)
}

fn subjects() -> BoxedStrategy<Subject> {
    let window = 5 * MILLI..50 * MILLI;
    prop_oneof![
        (1..200_u32, 1..5_u32).prop_map(|(rate, burst)| Subject::Bucket {
            rate: Rate::per_second(rate),
            burst,
            may_owe: false,
        }),
        window.clone().prop_map(|every| Subject::Interval {
            every: micros(every)
        }),
        (1..5_u32, window.clone()).prop_map(|(limit, window)| Subject::Log { limit, window }),
        (1..5_u32, window.clone(), 1..5_u32).prop_map(|(limit, window, buckets)| {
            Subject::Strict {
                limit,
                bucket: window / u64::from(buckets),
                buckets,
            }
        }),
        (1..5_u32, window.clone()).prop_map(|(limit, window)| Subject::Smooth { limit, window }),
        (1..5_u32, window).prop_map(|(limit, window)| Subject::Fixed { limit, window }),
    ]
    .boxed()
}

/// The most that may be used in any half-open window of that length, which begins with a used permit.
fn bound(subject: &Subject, length: u64) -> u64 {
    match *subject {
        Subject::Bucket { rate, burst, .. } => {
            let period = u64::try_from(rate.period().as_micros()).unwrap();
            u64::from(burst) + (length * u64::from(rate.permits())).div_ceil(period)
        }
        _ => unreachable!("checked by its own window"),
    }
}

/// Whether what was used, as times and costs, keeps the bound of the docs.
fn check(subject: &Subject, used: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let sum = |from: u64, length: u64| -> u64 {
        let within = used
            .iter()
            .filter(|(at, _)| (from..from + length).contains(at));
        within.map(|(_, cost)| u64::from(*cost)).sum()
    };
    for (number, (from, cost)) in used.iter().enumerate() {
        match *subject {
            Subject::PerRequest(_) => unreachable!("no trace has one"),
            Subject::Interval { every } => {
                let every = u64::try_from(every.as_micros()).unwrap();
                if let Some((next, _)) = used.get(number + 1) {
                    let gap = next - from;
                    prop_assert!(gap >= every * u64::from(*cost), "{} us apart", gap);
                }
            }
            Subject::Bucket { .. } => {
                for (to, _) in &used[number..] {
                    let length = to - from;
                    prop_assert!(sum(*from, length + 1) <= bound(subject, length));
                }
            }
            Subject::Log { limit, window } => prop_assert!(sum(*from, window) <= limit.into()),
            Subject::Strict {
                limit,
                bucket,
                buckets,
            } => prop_assert!(sum(*from, bucket * u64::from(buckets)) <= limit.into()),
            Subject::Smooth { limit, window } => {
                prop_assert!(sum(*from, window) < 2 * u64::from(limit));
            }
            Subject::Fixed { limit, window } => {
                prop_assert!(sum(*from, window) <= 2 * u64::from(limit));
            }
        }
    }
    Ok(())
}

#[test]
fn whatever_is_returned_the_rest_keeps_the_bound() {
    let store = RefCell::new(Store::start());
    let config = Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&(subjects(), steps()), |(subject, steps)| {
        let mut store = store.borrow_mut();
        store.flush();
        let limit_args = limit_args(&subject);
        let (mut now, mut used) = (NOW, vec![]);
        // Not used and not returned yet: the step in which they are, the cost, and when they were counted.
        let mut unused: Vec<(usize, u32, u64)> = vec![];
        for (number, step) in steps.iter().enumerate() {
            now += step.gap;
            let cost = step.cost.min(subject.numbers().capacity);
            let mut question = Question::ask(now, cost);
            for (_, cost, counted_at) in unused.extract_if(.., |(then, ..)| *then <= number) {
                question = question.returning(cost, counted_at);
            }
            if store.ask_lasting(&question, &limit_args).passed == 1 {
                match step.returned_after {
                    None => used.push((now, cost)),
                    Some(steps) => unused.push((number + 1 + steps, cost, now)),
                }
            }
        }
        check(&subject, &used)
    });
    if let Err(broken) = tried {
        panic!("{broken}");
    }
}

/// They are forgotten as if they had never passed.
#[test]
fn logs_and_counters_count_only_what_was_not_returned() {
    let store = RefCell::new(Store::start());
    let entries = vec((0..4 * MILLI, 1..4_u32, proptest::bool::ANY), 1..30);
    let (limit, window) = (200, 160 * MILLI);
    let subjects = vec![
        Subject::Log { limit, window },
        Subject::Strict {
            limit,
            bucket: window / 8,
            buckets: 8,
        },
        Subject::Smooth { limit, window },
    ];
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let values = (select(subjects), entries);
    let tried = TestRunner::new(config).run(&values, |(subject, entries)| {
        let mut store = store.borrow_mut();
        store.flush();
        let limit_args = limit_args(&subject);
        let mut here = Here::new(subject, at(NOW));
        let mut now = NOW;
        let mut returns = Question::give_back(0, 0);
        for (number, (gap, cost, is_returned)) in entries.into_iter().enumerate() {
            now += gap;
            let taken = store.ask_lasting(&Question::ask(now, cost), &limit_args);
            prop_assert_eq!(taken.passed, 1);
            // The buckets of a counter begin with its first permit.
            if is_returned && number > 0 {
                returns = returns.returning(cost, now);
            } else {
                prop_assert_eq!(here.ask(now, cost), None);
            }
        }
        store.ask_lasting(&returns.at(now), &limit_args);
        for cost in [1, 100, 150, 170, 190, 195, 198, 200] {
            let peeked = store.ask_lasting(&Question::peek(now, cost), &limit_args);
            prop_assert_eq!(peeked.wait(), here.peek(now, cost), "{}", cost);
        }
        Ok(())
    });
    if let Err(broken) = tried {
        panic!("{broken}");
    }
}

/// What has filled since may be lost, and no more.
#[test]
fn a_bucket_that_others_have_used_loses_at_most_what_it_filled_since() {
    let mut store = Store::start();
    // A token each 10 ms.
    let subject = Subject::Bucket {
        rate: Rate::per_second(100),
        burst: 10,
        may_owe: false,
    };
    for (later, back) in [(0, 6), (10, 5), (20, 4), (60, 0), (90, 0)] {
        store.flush();
        let limit_args = limit_args(&subject);
        store.ask_lasting(&Question::ask(NOW, 6), &limit_args);
        store.ask_lasting(&Question::ask(NOW + 1, 1), &limit_args);
        let now = NOW + later * MILLI;
        let before = store.ask_lasting(&Question::ahead(now + 1, 0), &limit_args);
        let returned = Question::give_back(now + 1, 0).returning(6, NOW);
        let after = store.ask_lasting(&returned, &limit_args);
        let gained = (before.known().until - after.known().until).div_ceil(10 * MILLI);
        assert_eq!(gained, back, "after {later} ms");
    }
}

/// A request that was cancelled was none; one that has cost less than its estimate was made.
#[test]
fn a_cancelled_request_gives_back_its_request_and_a_settled_one_keeps_it() {
    let mut store = Store::start();
    for of in of_every_kind(3, MINUTE) {
        let requests = Subject::PerRequest(Box::new(of));
        let tokens = Subject::Log {
            limit: 100,
            window: MINUTE,
        };
        let limits = [("requests", &requests), ("tokens", &tokens)];
        let limits = limits.map(|(key, subject)| LimitArgs::new(key, &subject.numbers()));
        store.flush();
        let taken = store.ask_lasting(&Question::ask(NOW, 60), &limits);
        let [left, _] = taken.rooms[..] else {
            panic!("two limits");
        };
        let back = Question::give_back(NOW + SECOND, 0);

        let settled = back.clone().settling(50, taken.known().at);
        let settled = store.ask_lasting(&settled, &limits);
        assert_eq!(settled.rooms, [left, 90], "{requests:?}");
        let charged = store.ask_lasting(&Question::charge(NOW + SECOND, 30), &limits);
        assert_eq!(charged.rooms, [left, 60], "{requests:?}");
        let latest = store.ask_lasting(&Question::give_back(NOW + SECOND, 30), &limits);
        assert_eq!(latest.rooms, [left, 90], "{requests:?}");
        let cancelled = back.returning(10, taken.known().at);
        let cancelled = store.ask_lasting(&cancelled, &limits);
        let unused = Here::new(requests.clone(), at(NOW)).peek_room(NOW);
        assert_eq!(cancelled.rooms, [unused, 100], "{requests:?}");
    }
}

#[test]
fn what_is_taken_ahead_is_one_request() {
    let mut store = Store::start();
    let window = Subject::Fixed {
        limit: 2,
        window: MINUTE,
    };
    let requests = Subject::PerRequest(Box::new(window.clone()));
    let limits = [("requests", requests), ("tokens", window)];
    let limits = limits.map(|(key, subject)| LimitArgs::new(key, &subject.numbers()));
    let many = Question::ahead(NOW, 9);
    let [first, second] = [(); 2].map(|()| store.ask_lasting(&many, &limits));
    assert_eq!((first.ahead, first.rooms), (2, vec![1, 0]));
    assert_eq!((second.ahead, second.rooms), (0, vec![1, 0]));

    let requests = &limits[..1];
    let taken = store.ask_lasting(&many, requests);
    assert_eq!((taken.ahead, taken.rooms), (9, vec![0]));
    let refused = store.ask_lasting(&many, requests);
    assert_eq!((refused.ahead, refused.retry_in), (0, MINUTE));
}
