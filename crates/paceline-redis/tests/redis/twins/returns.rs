//! Permits that were counted and not used are given back by the time at which they were counted.

use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::sample::select;
use proptest::{prop_assert, prop_assert_eq};

use super::alone::Alone;
use super::asking::{LimitArgs, Question, Store};
use super::subject::{Here, Subject, of_every_kind};
use super::{MILLI, MINUTE, NOW, SECOND, Tried, holds};

/// A is counted, and is cancelled while its answer travels. B passes as soon as it can. Then C asks, on the trip that returns the
/// permit of A.
#[test]
fn a_returned_permit_does_not_let_the_next_request_follow_too_closely() {
    let mut store = Store::start();
    for subject in of_every_kind(1, 20 * MILLI) {
        for after_b in [100, 2_300, 6_700, 16_400, 17_500] {
            let mut limit = Alone::new(&mut store, &subject);
            let a = limit.ask(NOW, 1);
            let b = NOW + limit.ask(NOW, 1).retry_in;
            let here = Here::spent(&subject, b);
            assert_eq!(limit.ask(b, 1).passed, 1);

            let c = Question::ask(b + after_b, 1).returning(1, a.known().at);
            let c = limit.call(&c);
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
            let mut limit = Alone::new(&mut store, &subject);
            let mut without = Here::new(&subject, NOW);
            if before > 0 {
                assert_eq!(without.ask(NOW, before), None);
                limit.ask(NOW, before);
            }
            let now = NOW + 3 * SECOND;
            let cost = subject.burst() - before;
            assert_eq!(limit.ask(now, cost).passed, 1, "{subject:?}");

            let returned = Question::give_back(now + later, 0).returning(cost, now);
            limit.call(&returned);
            for cost in 1..=subject.burst() {
                let peeked = limit.peek(now + later, cost).wait();
                assert_eq!(peeked, without.peek(now + later, cost), "{subject:?}");
            }
        }
    }
}

#[test]
fn returns_are_applied_before_the_requests_of_their_call() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        let (burst, now) = (subject.burst(), NOW + MILLI);
        limit.ask(NOW, burst);
        let again = limit.call(&Question::ask(now, burst).returning(burst, NOW));
        assert_eq!((again.passed, again.lost[0]), (1, false), "{subject:?}");
        // A peek applies none.
        let peeked = limit.call(&Question::peek(now, 1).returning(burst, now));
        assert_eq!(peeked.passed, 0, "{subject:?}");
    }
}

#[test]
fn a_permit_from_before_a_loss_is_not_returned() {
    let mut store = Store::start();
    for subject in of_every_kind(4, MINUTE) {
        let mut limit = Alone::new(&mut store, &subject);
        limit.known = limit.ask(NOW, 1).known();
        limit.store.flush();
        let now = NOW + SECOND;
        let spent = Here::spent(&subject, now);
        for returned_with in [now, now + 1] {
            let lost = limit.call(&Question::ask(returned_with, 1).returning(1, NOW));
            assert_eq!(lost.wait(), spent.peek(returned_with, 1), "{subject:?}");
        }
    }
}

/// A request that passes: the time since the one before, its cost, and after how many more steps its permits are returned; `None`
/// if they are used.
type Step = (u64, u32, Option<usize>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![1 => Just(0), 4 => 0..12 * MILLI, 1 => 0..60 * MILLI];
    let returned_after = prop_oneof![1 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    vec((gap, 1..3_u32, returned_after), 1..60)
}

/// Whether what was used, as times and costs, keeps the bound of the docs in each window that begins with a used permit.
fn keep_the_bound(subject: &Subject, used: &[(u64, u32)]) -> Tried {
    for (number, (from, cost)) in used.iter().enumerate() {
        let sum = |length: u64| -> u64 {
            let within = used[number..].iter();
            let within = within.filter(|(at, _)| *at < from + length);
            within.map(|(_, cost)| u64::from(*cost)).sum()
        };
        let (window, most) = match *subject {
            Subject::Bucket(rate, burst) => {
                let period = u64::try_from(rate.period().as_micros()).unwrap();
                for (to, _) in &used[number..] {
                    let filled = ((to - from) * u64::from(rate.permits())).div_ceil(period);
                    prop_assert!(sum(to - from + 1) <= u64::from(burst) + filled);
                }
                continue;
            }
            Subject::Interval(every) => {
                let every = u64::try_from(every.as_micros()).unwrap();
                (every * u64::from(*cost), *cost)
            }
            Subject::Log(limit, window) => (window, limit),
            Subject::Strict(limit, bucket, buckets) => (bucket * u64::from(buckets), limit),
            Subject::Smooth(limit, window) => (window, 2 * limit - 1),
            Subject::Fixed(limit, window) => (window, 2 * limit),
            Subject::Owing(..) | Subject::PerRequest(_) => unreachable!("no trace has one"),
        };
        prop_assert!(sum(window) <= most.into(), "{} of {}", sum(window), most);
    }
    Ok(())
}

#[test]
fn whatever_is_returned_the_rest_keeps_the_bound() {
    let subjects = (1..5_u32, 5 * MILLI..50 * MILLI)
        .prop_flat_map(|(limit, window)| select(of_every_kind(limit, window).to_vec()));
    holds(300, (subjects, steps()), |store, (subject, steps)| {
        let mut limit = Alone::new(store, &subject);
        let (mut now, mut used) = (NOW, vec![]);
        // Not used and not returned yet: the step in which they are, the cost, and when they were counted.
        let mut unused: Vec<(usize, u32, u64)> = vec![];
        for (number, (gap, cost, returned_after)) in steps.into_iter().enumerate() {
            now += gap;
            let cost = cost.min(limit.numbers.capacity);
            let mut question = Question::ask(now, cost);
            for (_, cost, counted_at) in unused.extract_if(.., |(then, ..)| *then <= number) {
                question = question.returning(cost, counted_at);
            }
            if limit.call(&question).passed == 1 {
                match returned_after {
                    None => used.push((now, cost)),
                    Some(steps) => unused.push((number + 1 + steps, cost, now)),
                }
            }
        }
        keep_the_bound(&subject, &used)
    });
}

/// They are forgotten as if they had never passed.
#[test]
fn logs_and_counters_count_only_what_was_not_returned() {
    let (most, window) = (200, 160 * MILLI);
    let subjects = vec![
        Subject::Log(most, window),
        Subject::Strict(most, window / 8, 8),
        Subject::Smooth(most, window),
    ];
    let entries = vec((0..4 * MILLI, 1..4_u32, proptest::bool::ANY), 1..30);
    let values = (select(subjects), entries);
    holds(150, values, |store, (subject, entries)| {
        let mut limit = Alone::new(store, &subject);
        let mut here = Here::new(&subject, NOW);
        let mut now = NOW;
        let mut returns = Question::give_back(0, 0);
        for (number, (gap, cost, is_returned)) in entries.into_iter().enumerate() {
            now += gap;
            prop_assert_eq!(limit.ask(now, cost).passed, 1);
            // The buckets of a counter begin with its first permit.
            if is_returned && number > 0 {
                returns = returns.returning(cost, now);
            } else {
                prop_assert_eq!(here.ask(now, cost), None);
            }
        }
        limit.call(&returns.at(now));
        for cost in [1, 100, 150, 170, 190, 195, 198, 200] {
            let peeked = limit.peek(now, cost).wait();
            prop_assert_eq!(peeked, here.peek(now, cost), "{}", cost);
        }
        Ok(())
    });
}

/// What has filled since may be lost, and no more.
#[test]
fn a_bucket_that_others_have_used_loses_at_most_what_it_filled_since() {
    let mut store = Store::start();
    // A token each 10 ms.
    let subject = Subject::Bucket(Rate::per_second(100), 10);
    for (later, back) in [(0, 6), (10, 5), (20, 4), (60, 0), (90, 0)] {
        let mut limit = Alone::new(&mut store, &subject);
        limit.ask(NOW, 6);
        limit.ask(NOW + 1, 1);
        let now = NOW + later * MILLI + 1;
        let before = limit.ahead(now, 0).known().until;
        let after = limit.call(&Question::give_back(now, 0).returning(6, NOW));
        let gained = (before - after.known().until).div_ceil(10 * MILLI);
        assert_eq!(gained, back, "after {later} ms");
    }
}

/// A request that was cancelled was none; one that has cost less than its estimate was made.
#[test]
fn a_cancelled_request_gives_back_its_request_and_a_settled_one_keeps_it() {
    let mut store = Store::start();
    for of in of_every_kind(3, MINUTE) {
        let requests = Subject::PerRequest(Box::new(of));
        let tokens = Subject::Log(100, MINUTE);
        let limits = [("requests", &requests), ("tokens", &tokens)];
        let limits = limits.map(|(key, subject)| LimitArgs::new(key, &subject.numbers()));
        store.flush();
        let [left, _] = store.ask(&Question::ask(NOW, 60), &limits).rooms[..] else {
            panic!("two limits");
        };
        let unused = Here::new(&requests, NOW).peek_room(NOW);
        let back = Question::give_back(NOW + SECOND, 0);
        for (question, rooms) in [
            (back.clone().settling(50, NOW), [left, 90]),
            (Question::charge(NOW + SECOND, 30), [left, 60]),
            (Question::give_back(NOW + SECOND, 30), [left, 90]),
            (back.returning(10, NOW), [unused, 100]),
        ] {
            let there = store.ask(&question, &limits).rooms;
            assert_eq!(there, rooms, "{requests:?}: {question:?}");
        }
    }
}

#[test]
fn what_is_taken_ahead_is_one_request() {
    let mut store = Store::start();
    let window = Subject::Fixed(2, MINUTE);
    let requests = Subject::PerRequest(Box::new(window.clone()));
    let limits = [("requests", requests), ("tokens", window)];
    let limits = limits.map(|(key, subject)| LimitArgs::new(key, &subject.numbers()));
    let many = Question::ahead(NOW, 9);
    let [first, second] = [(); 2].map(|()| store.ask(&many, &limits));
    assert_eq!((first.ahead, first.rooms), (2, vec![1, 0]));
    assert_eq!((second.ahead, second.rooms), (0, vec![1, 0]));

    let requests = &limits[..1];
    let taken = store.ask(&many, requests);
    assert_eq!((taken.ahead, taken.rooms), (9, vec![0]));
    let refused = store.ask(&many, requests);
    assert_eq!((refused.ahead, refused.retry_in), (0, MINUTE));
}
