//! Requests with a deadline, of which the earliest goes first.

use std::sync::Arc;
use std::task::Poll;
use std::thread;

use fastrand::Rng;
use futures::future::{BoxFuture, FutureExt, join_all};
use paceline::limiter::future::AcquireWithin;
use paceline::limiter::{AcquireError, Combined, FairQueue, Limiter, Priority, Shared};
use paceline::policy::{All, AnyPolicy, PerRequest, Policy, Ramp};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;
use tokio::task::yield_now;

use super::{queued, spawned, used, wait};
use crate::judge::{Rule, most};
use crate::timed::{drained, ms, now, since, sleep};

const LONG: u64 = 10_000;

/// A limit by deadline, of which the first slot is taken now.
fn by_deadline(every: u64, usual: u64) -> Shared<Interval> {
    used(every).by_deadline(ms(usual))
}

/// What has become of a request, and when.
type Outcome = Result<u64, u64>;

/// The outcomes of requests that come at once, in this order. `None` is no deadline.
async fn outcomes(limit: &Shared<Interval>, deadlines: &[Option<u64>]) -> Vec<Outcome> {
    let start = now();
    let calls = deadlines.iter().map(|deadline| async move {
        let passed = match deadline {
            Some(deadline) => limit.acquire_by(1, start + ms(*deadline)).await,
            None => limit.acquire(1).await,
        };
        passed.map(|()| since(start)).map_err(|_| since(start))
    });
    join_all(calls).await
}

type Waiter<P> = Driven<AcquireWithin<Shared<P>>>;

fn passes<P: Policy>(waiter: &mut Waiter<P>) -> bool {
    matches!(waiter.poll(), Poll::Ready(Ok(())))
}

fn is_refused<P: Policy>(waiter: &mut Waiter<P>) -> bool {
    matches!(waiter.poll(), Poll::Ready(Err(late)) if late.is_too_late())
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_passes_first_and_equal_ones_in_order() {
    let deadlines = [900, 300, 500, 300, 901].map(Some);
    let passed = outcomes(&by_deadline(100, LONG), &deadlines).await;
    assert_eq!(passed, [Ok(400), Ok(100), Ok(300), Ok(200), Ok(500)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_deadline_has_its_arrival_plus_the_usual_time() {
    let deadlines = [None, Some(601), Some(600), Some(599), None];
    let passed = outcomes(&by_deadline(100, 600), &deadlines).await;
    assert_eq!(passed, [Ok(200), Ok(500), Ok(300), Ok(100), Ok(400)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_make_it_is_refused_at_once_and_to_pass_at_the_deadline_is_in_time() {
    let limit = by_deadline(100, LONG);
    let deadlines = [Some(300), Some(99), Some(100), Some(199), None, Some(200)];
    let outcomes = outcomes(&limit, &deadlines).await;
    let expected = [Ok(300), Err(0), Ok(100), Err(0), Ok(400), Ok(200)];
    assert_eq!(outcomes, expected);
    assert_eq!((limit.stats().refused, limit.stats().passed), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_more_urgent_one_makes_late_is_refused_when_its_deadline_is_over() {
    let limit = by_deadline(100, LONG);
    // The third goes before the second, of which the last one knows that it leaves.
    let deadlines = [Some(100), Some(250), Some(240), Some(300), Some(299)];
    let outcomes = outcomes(&limit, &deadlines).await;
    // A paused clock has whole milliseconds.
    assert_eq!(outcomes, [Ok(100), Err(251), Ok(200), Ok(300), Err(0)]);
}

#[tokio::test(start_paused = true)]
async fn the_error_says_how_long_it_had_and_what_a_retry_waits() {
    let limit = by_deadline(100, LONG);
    let start = now();
    let _ahead = queued(limit.acquire_by(1, start + ms(100)));
    sleep(10).await;
    let refused = limit.acquire_by(1, start + ms(150)).await.unwrap_err();
    assert!(refused.is_too_late() && !refused.is_too_costly());
    assert_eq!(refused.to_string(), "could not pass within 140ms");
    assert_eq!(refused.retry_in(), Some(ms(190)));

    let over = limit.acquire_by(1, start).await.unwrap_err();
    assert_eq!(over.to_string(), "could not pass: its deadline was over");
    assert_eq!(over.retry_in(), Some(ms(90)), "before all that wait");
    assert_eq!(limit.acquire_by(0, start).await, Ok(()), "a cost of 0");
    assert_eq!(since(start), 10);
}

#[tokio::test(start_paused = true)]
async fn no_request_passes_after_its_deadline_although_permits_are_there() {
    let limit = Interval::every(ms(100)).shared().by_deadline(ms(LONG));
    let start = now();
    let first = limit.acquire_by(1, start);
    jump(ms(1)).await;
    assert!(first.await.unwrap_err().is_too_late());
    assert_eq!(limit.stats().passed, 0);

    // One that waits is polled late.
    limit.acquire_one().await;
    let mut on_time = queued(limit.acquire_by(1, start + ms(101)));
    sleep(100).await;
    assert!(passes(&mut on_time));
    let mut late = queued(limit.acquire_by(1, start + ms(201)));
    jump(ms(101)).await;
    assert!(is_refused(&mut late));
    assert_eq!((limit.stats().passed, limit.waiting()), (2, 0));
    assert!(limit.try_acquire(1).is_pass(), "nothing was counted");
}

#[tokio::test(start_paused = true)]
async fn two_requests_that_can_pass_at_their_deadline_do_whichever_is_polled_first() {
    let limit = SlidingLog::new(2, ms(100)).shared().by_deadline(ms(LONG));
    limit.acquire(2).await.unwrap();
    let deadline = now() + ms(100);
    let mut first = queued(limit.acquire_by(1, deadline));
    let mut second = queued(limit.acquire_by(1, deadline));
    sleep(100).await;
    assert!(second.poll().is_pending());
    assert!(passes(&mut first));
    assert!(second.is_woken() && passes(&mut second));
}

#[tokio::test(start_paused = true)]
async fn a_more_urgent_request_takes_over_the_timer_of_the_head_and_gives_it_back() {
    let limit = by_deadline(100, LONG);
    let start = now();
    let mut usual = queued(limit.acquire_one());
    let mut second = queued(limit.acquire_by(1, start + ms(900)));
    sleep(50).await;
    let mut first = queued(limit.acquire_by(1, start + ms(200)));
    let cancelled = queued(limit.acquire_by(1, start + ms(199)));
    drop(cancelled);
    for (waiter, at) in [(&mut first, 100), (&mut second, 200)] {
        waiter.woken().await;
        assert_eq!(since(start), at);
        assert!(passes(waiter));
        assert_eq!(waiter.wakes(), 1, "at {at}");
    }
    assert!(usual.poll().is_pending());
    usual.woken().await;
    assert_eq!(since(start), 300);
    assert!(usual.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_the_order_of_the_others_and_its_place_to_those_behind() {
    let limit = by_deadline(100, LONG);
    let start = now();
    let deadline = |at| start + ms(at);
    let cancelled = queued(limit.acquire_by(1, deadline(150)));
    let passed = spawned([200, 350].map(|at| limit.acquire_by(1, deadline(at))));
    yield_now().await;
    assert!(limit.acquire_by(1, deadline(250)).await.is_err());
    drop(cancelled);
    let between = tokio::spawn(limit.acquire_by(1, deadline(250)));
    assert_eq!(passed.await, [100, 300]);
    between.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_not_polled_is_passed_over_after_10_ms_and_keeps_its_deadline() {
    let limit = by_deadline(100, LONG);
    let start = now();
    let mut idle = queued(limit.acquire_by(1, start + ms(250)));
    let mut lost = queued(limit.acquire_by(1, start + ms(230)));
    limit.acquire_one().await;
    assert_eq!(since(start), 120, "two of them");
    assert!(idle.poll().is_pending());
    idle.woken().await;
    assert_eq!(
        since(start),
        220,
        "before it came a request without a deadline"
    );
    assert!(passes(&mut idle));
    sleep(20).await;
    assert!(is_refused(&mut lost));
    assert_eq!(limit.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_keep_the_order_and_refuse_what_they_make_late() {
    let limit = by_deadline(100, LONG);
    let start = now();
    let changed = async {
        sleep(50).await;
        limit.pause_for(ms(450));
        sleep(50).await;
        limit.retune(Interval::every(ms(10)));
    };
    let deadlines = [None, Some(510), Some(400), Some(500), Some(600)];
    let (outcomes, ()) = futures::join!(outcomes(&limit, &deadlines), changed);
    let expected = [Ok(530), Ok(510), Err(401), Ok(500), Ok(520)];
    assert_eq!(outcomes, expected);

    // During a pause it is known, too.
    limit.pause_for(ms(1_000));
    let late = limit.acquire_by(1, now() + ms(999)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(1_000)));
    assert_eq!(since(start), 530);
    limit.acquire_by(1, now() + ms(1_000)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_estimate_counts_those_before_and_no_others() {
    let limit = by_deadline(100, 1_000);
    let start = now();
    let _waiters: Vec<_> = [150, 200, 300, 1_001]
        .map(|at| queued(limit.acquire_by(1, start + ms(at))))
        .into();
    let _usual = queued(limit.acquire_one());
    // A request without a deadline is behind four.
    assert_eq!(limit.peek(1), wait(500));
    assert_eq!(limit.try_acquire(1), wait(500));
    assert_eq!(limit.least_wait(1), ms(500));
    let late = limit.acquire_within(1, ms(499)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(500)));
    sleep(1).await;
    assert_eq!(limit.peek(1), wait(599), "1,001 is now before it");
    assert!(limit.acquire_by(1, start + ms(199)).await.is_err());
    let _first = queued(limit.acquire_by(1, start + ms(149)));
    assert_eq!(limit.peek(1), wait(599), "150 leaves");
}

#[tokio::test(start_paused = true)]
async fn an_estimate_in_a_long_queue_is_never_too_long() {
    let start = now();
    let limit = by_deadline(1, LONG);
    let _usual: Vec<_> = (0..1_000).map(|_| queued(limit.acquire_one())).collect();
    assert_eq!(limit.peek(1), wait(65), "it knows 64 of them");
    let deadlines = (1..=200).map(|at| start + ms(at));
    let _urgent: Vec<_> = deadlines
        .map(|at| queued(limit.acquire_by(1, at)))
        .collect();
    let deadline = |at| start + ms(at);
    assert!(limit.acquire_by(1, deadline(64)).await.is_err());
    let mut unsure = queued(limit.acquire_by(1, deadline(65)));
    sleep(65).await;
    assert!(unsure.poll().is_pending() || unsure.is_woken());
    assert_eq!(since(start), 65);
}

#[tokio::test(start_paused = true)]
async fn a_stream_by_deadline_is_told_nothing_that_would_be_wrong() {
    let limit = by_deadline(100, LONG);
    let start = now();
    let others = spawned([(); 3].map(|()| limit.acquire_owned(1)));
    yield_now().await;
    assert!(limit.foresee(2).is_empty());
    let items = futures::stream::iter([350, 399, 400]);
    let paced = items.pace_by_deadline(limit, |at| start + ms(*at), 9);
    let left = drained(paced).await.items.into_iter();
    let left: Vec<_> = left.map(|(at, item)| (at, item.is_ok())).collect();
    assert_eq!(left, [(351, false), (400, false), (400, true)]);
    assert_eq!(others.await, [100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn without_an_order_by_deadline_a_deadline_ends_the_wait_and_moves_nothing() {
    let passed = outcomes(&used(100), &[None, Some(900), Some(300), Some(399), None]).await;
    assert_eq!(passed, [Ok(100), Ok(200), Ok(300), Err(0), Ok(400)]);

    let limit = used(100);
    let start = now();
    let urgent = limit.acquire_by(1, start + ms(150));
    let (outcomes, (), urgent) = futures::join!(
        outcomes(&limit, &[None, Some(210)]),
        async { limit.pause_for(ms(200)) },
        urgent
    );
    assert_eq!(outcomes, [Ok(200), Err(211)]);
    assert!(urgent.is_err());
}

#[tokio::test(start_paused = true)]
async fn classes_and_newest_first_do_not_apply() {
    let limit = used(100).with_newest_first(ms(0)).by_deadline(ms(500));
    let urgent = limit.clone().with_priority(Priority::High);
    let batch = limit
        .clone()
        .with_priority(Priority::Low)
        .with_ageing(ms(1));
    let deadline = now() + ms(500);
    let passed = spawned([
        batch.acquire_owned(1).boxed(),
        limit.acquire_owned(1).boxed(),
        urgent.acquire_owned(1).boxed(),
        batch.acquire_by(1, deadline - ms(1)).boxed(),
        urgent.acquire_by(1, deadline + ms(1)).boxed(),
    ]);
    assert_eq!(passed.await, [200, 300, 400, 100, 500]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_waited_before_there_was_an_order_are_first_and_the_newest_no_longer_is() {
    let limit = used(100).with_newest_first(ms(0));
    let before = spawned([limit.acquire_owned(1), limit.acquire_owned(1)]);
    sleep(1).await;
    let limit = limit.by_deadline(ms(50));
    let urgent = tokio::spawn(limit.acquire_by(1, now() + ms(999)));
    assert_eq!(before.await, [100, 200]);
    urgent.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_keys_take_turns_a_deadline_ends_the_wait_and_moves_nothing() {
    let provider = FairQueue::new(Interval::every(ms(100)));
    let _same = provider.limit().clone().by_deadline(ms(50));
    provider.acquire_one("ann").await;
    let start = now();
    let passed = spawned([
        provider.at("ann").acquire_by(1, start + ms(900)).boxed(),
        provider.at("ann").acquire_by(1, start + ms(800)).boxed(),
        provider.at("bob").acquire_by(1, start + ms(950)).boxed(),
    ]);
    assert_eq!(passed.await, [100, 300, 200]);
}

#[tokio::test(start_paused = true)]
async fn combined_requests_of_different_costs_do_not_block_each_other() {
    let messages = Interval::every(ms(10)).shared().by_deadline(ms(100));
    let bytes = Interval::every(ms(1)).shared();
    let calls = (0..60_u32).map(|number| {
        let both = Combined::new((messages.clone(), bytes.clone()));
        async move {
            both.acquire_each([1 + number % 3, 1 + 7 * (number % 2)])
                .await
                .unwrap();
        }
    });
    let start = now();
    let urgent = async {
        sleep(5).await;
        let passed = messages.acquire_by(2, start + ms(60)).await;
        passed.map(|()| since(start))
    };
    let (_, urgent) = futures::join!(join_all(calls), urgent);
    assert_eq!(urgent, Ok(10), "after the first");
    // All costs but that of the last request.
    assert_eq!(since(start), 10 * (60 * 2 + 2 - 3));
}

#[tokio::test(start_paused = true)]
async fn no_request_without_a_deadline_starves() {
    // A request each millisecond, of which every second one can pass, and one without a deadline at 5.
    let flood = (0..200).map(|at| Request::of_one(at, at + 20));
    let usual = Request {
        deadline: None,
        ..Request::of_one(5, 0)
    };
    let requests: Vec<_> = flood.chain([usual]).collect();
    let outcomes = served(&limit_of(Rule::Every(2), 30), &requests, None).await;
    // Those that came until 14 have a deadline until 34. The last of them passes at 28.
    assert_eq!(outcomes[14..=15], [Some(Ok(28)), Some(Ok(32))]);
    assert_eq!(outcomes.last(), Some(&Some(Ok(30))));
}

#[test]
fn a_thread_stands_in_the_queue_by_its_arrival_and_the_usual_time() {
    let limit = Arc::new(used(3_600_000).by_deadline(ms(3_600_000)));
    let blocked = {
        let limit = Arc::clone(&limit);
        thread::spawn(move || limit.acquire_blocking(1, Duration::MAX))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        while limit.waiting() < 1 {
            thread::sleep(ms(1));
        }
        let mut behind = queued(limit.acquire_one());
        // It is known to be too late, whatever waits.
        let deadline = now() + Duration::from_secs(60);
        assert!(limit.acquire_by(1, deadline).await.is_err());
        limit.retune(Interval::every(Duration::from_secs(30)));
        let deadline = now() + Duration::from_secs(60);
        let mut first = queued(limit.acquire_by(1, deadline));
        limit.retune(Interval::every(Duration::from_secs(3_600)));
        limit.reset();
        assert!(first.is_woken() && first.poll().is_ready());
        assert!(behind.poll().is_pending());
        assert_eq!(limit.waiting(), 2);
        limit.reset();
    });
    blocked.join().unwrap().unwrap();
    assert_eq!(limit.waiting(), 0);
}

/// What comes to a limit, in milliseconds.
#[derive(Clone, Debug)]
struct Request {
    arrives: u64,
    deadline: Option<u64>,
    cost: u32,
    leaves: Option<u64>,
}

impl Request {
    fn of_one(arrives: u64, deadline: u64) -> Self {
        Self {
            arrives,
            deadline: Some(deadline),
            cost: 1,
            leaves: None,
        }
    }
}

/// What becomes of these requests. In each millisecond requests leave first, then others come, then those that were woken are polled.
async fn served(
    limit: &Shared<AnyPolicy>,
    requests: &[Request],
    pause: Option<(u64, u64)>,
) -> Vec<Option<Outcome>> {
    type Call = BoxFuture<'static, Result<(), AcquireError>>;
    let start = now();
    let mut outcomes = vec![None; requests.len()];
    let mut calls: Vec<Option<Driven<Call>>> = requests.iter().map(|_| None).collect();
    let last = requests.iter().map(|request| request.arrives).max();
    let mut time = 0;
    while time <= last.unwrap_or(0) || calls.iter().any(Option::is_some) {
        if let Some((_, length)) = pause.filter(|pause| pause.0 == time) {
            limit.pause_for(ms(length));
        }
        for (request, call) in requests.iter().zip(&mut calls) {
            if request.leaves == Some(time) {
                *call = None;
            }
        }
        let mut polls = |number: usize, mut call: Driven<Call>| {
            let polled = call.poll();
            if let Poll::Ready(passed) = polled {
                outcomes[number] = Some(passed.map(|()| time).map_err(|_| time));
                return None;
            }
            Some(call)
        };
        for (number, request) in requests.iter().enumerate() {
            if request.arrives == time && request.leaves.is_none_or(|leaves| leaves > time) {
                let call = match request.deadline {
                    Some(deadline) => limit.acquire_by(request.cost, start + ms(deadline)).boxed(),
                    None => limit.acquire_owned(request.cost).boxed(),
                };
                calls[number] = polls(number, Driven::new(call));
            }
        }
        while let Some(number) = calls
            .iter()
            .position(|call| call.as_ref().is_some_and(Driven::is_woken))
        {
            calls[number] = calls[number].take().and_then(|call| polls(number, call));
        }
        sleep(1).await;
        time += 1;
    }
    outcomes
}

/// The same of a plain list.
fn listed(
    rule: Rule,
    usual: u64,
    requests: &[Request],
    pause: Option<(u64, u64)>,
) -> Vec<Option<Outcome>> {
    let mut outcomes: Vec<Option<Outcome>> = vec![None; requests.len()];
    let mut passed: Vec<u64> = Vec::new();
    let mut waiting: Vec<usize> = Vec::new();
    let latest_end = |number: usize| {
        let request = &requests[number];
        let blocked = match rule {
            Rule::Every(gap) => gap * u64::from(request.cost - 1),
            _ => 0,
        };
        let end = match request.deadline {
            Some(deadline) => deadline + blocked,
            None => request.arrives + usual,
        };
        (end, request.arrives, number)
    };
    let mut paused_until = 0;
    let is_due = |passed: &[u64], now, number: usize, paused_until| {
        now >= paused_until && rule.passes(passed, now, requests[number].cost as usize)
    };
    let take = |passed: &mut Vec<u64>, now, number: usize| {
        passed.extend(vec![now; requests[number].cost as usize]);
    };
    let is_late = |now, number: usize| requests[number].deadline.is_some_and(|at| now > at);
    let last = requests.iter().map(|request| request.arrives).max();
    let mut now = 0;
    while now <= last.unwrap_or(0) || !waiting.is_empty() {
        if let Some((_, length)) = pause.filter(|pause| pause.0 == now) {
            paused_until = now + length;
        }
        waiting.retain(|number| requests[*number].leaves != Some(now));
        for (number, request) in requests.iter().enumerate() {
            if request.arrives != now || request.leaves.is_some_and(|leaves| leaves <= now) {
                continue;
            }
            // When it passes behind those before it that can make their deadline.
            let mut then = (passed.clone(), now);
            let before = waiting
                .iter()
                .filter(|other| latest_end(**other) < latest_end(number));
            for other in before.copied().chain([number]) {
                let mut at = then.1;
                while !is_due(&then.0, at, other, paused_until) {
                    at += 1;
                }
                if other == number || !is_late(at, other) {
                    take(&mut then.0, at, other);
                    then.1 = at;
                }
            }
            if is_late(then.1, number) {
                outcomes[number] = Some(Err(now));
            } else if waiting.is_empty() && is_due(&passed, now, number, paused_until) {
                take(&mut passed, now, number);
                outcomes[number] = Some(Ok(now));
            } else {
                waiting.push(number);
                waiting.sort_by_key(|number| latest_end(*number));
            }
        }
        waiting.retain(|number| {
            if is_late(now, *number) {
                outcomes[*number] = Some(Err(now));
            }
            !is_late(now, *number)
        });
        while let Some(head) = waiting.first().copied() {
            if !is_due(&passed, now, head, paused_until) {
                break;
            }
            take(&mut passed, now, head);
            outcomes[head] = Some(Ok(now));
            waiting.remove(0);
        }
        now += 1;
    }
    outcomes
}

fn limit_of(rule: Rule, usual: u64) -> Shared<AnyPolicy> {
    let policy: AnyPolicy = rule.text().parse().unwrap();
    policy.shared().by_deadline(ms(usual))
}

fn any_rule(random: &mut Rng) -> Rule {
    match random.u8(..3) {
        0 => Rule::Every(random.u64(1..8)),
        1 => Rule::Log(random.usize(3..6), random.u64(2..12)),
        _ => Rule::Bucket(random.u64(1..8), random.u64(3..6)),
    }
}

#[tokio::test(start_paused = true)]
async fn random_requests_are_served_as_in_a_plain_list() {
    let (mut met, mut at_once, mut at_the_deadline, mut cancelled) = (0, 0, 0, 0);
    for seed in 0..1_500 {
        let mut random = Rng::with_seed(seed);
        let (rule, usual) = (any_rule(&mut random), random.u64(0..40));
        let mut arrives = 0;
        let requests: Vec<Request> = (0..random.usize(2..20))
            .map(|_| {
                arrives += random.u64(0..6);
                Request {
                    arrives,
                    deadline: (random.u8(..4) > 0).then(|| arrives + random.u64(0..50)),
                    cost: random.u32(1..4),
                    leaves: (random.u8(..5) == 0).then(|| arrives + random.u64(0..20)),
                }
            })
            .collect();
        let pause = (random.u8(..3) == 0).then(|| (random.u64(0..30), random.u64(1..20)));
        let limit = limit_of(rule, usual);
        let outcomes = served(&limit, &requests, pause).await;
        let expected = listed(rule, usual, &requests, pause);
        assert_eq!(
            outcomes, expected,
            "{seed}: {rule:?} usual {usual} {pause:?} {requests:?}"
        );
        assert_eq!(limit.waiting(), 0);
        for (request, outcome) in requests.iter().zip(outcomes) {
            match outcome {
                Some(Ok(at)) => {
                    assert!(request.deadline.is_none_or(|deadline| at <= deadline));
                    met += 1;
                }
                Some(Err(at)) if at == request.arrives => at_once += 1,
                Some(Err(_)) => at_the_deadline += 1,
                None => cancelled += 1,
            }
        }
    }
    let counts = [met, at_once, at_the_deadline, cancelled];
    assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
}

/// Checks that these requests of cost 1 meet as many deadlines as those of any order can. Returns how many are late.
async fn meets_most(rule: Rule, items: &[(u64, u64)]) -> usize {
    let requests: Vec<_> = items
        .iter()
        .map(|(arrives, deadline)| Request::of_one(*arrives, *deadline))
        .collect();
    let outcomes = served(&limit_of(rule, 1), &requests, None).await;
    let met = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Some(Ok(_))))
        .count();
    assert_eq!(met, most(rule, items), "{rule:?} {items:?} {outcomes:?}");
    items.len() - met
}

#[tokio::test(start_paused = true)]
async fn no_order_that_leaves_no_permit_unused_meets_more_deadlines() {
    let mut late = 0;
    // All small cases.
    let rules = [
        Rule::Every(2),
        Rule::Every(3),
        Rule::Log(2, 4),
        Rule::Bucket(2, 2),
    ];
    for (rule, case) in rules
        .iter()
        .flat_map(|rule| (0..15 * 256).map(move |case| (*rule, case)))
    {
        let (arrives, slack) = (ARRIVALS[case % 15], case / 15);
        let slack = [1, 4, 16, 64].map(|step| [0, 1, 3, 5][slack / step % 4]);
        let items = arrives.into_iter().zip(slack);
        let items: Vec<_> = items.map(|(at, slack)| (at, at + slack)).collect();
        late += meets_most(rule, &items).await;
    }
    for seed in 0..500 {
        let mut random = Rng::with_seed(seed);
        let rule = any_rule(&mut random);
        let mut at = 0;
        let items: Vec<(u64, u64)> = (0..random.usize(5..9))
            .map(|_| {
                at += random.u64(1..4);
                (at, at + random.u64(0..16))
            })
            .collect();
        late += meets_most(rule, &items).await;
    }
    assert!(late > 500, "{late}");
}

/// Four arrivals from 0 to 5, no two at once: if none waits, the first of several passes that come at once.
const ARRIVALS: [[u64; 4]; 15] = arrivals();

const fn arrivals() -> [[u64; 4]; 15] {
    let mut all = [[0; 4]; 15];
    let (mut case, mut found) = (0, 0);
    while case < 6 * 6 * 6 * 6 {
        let one = [case / 216, case / 36 % 6, case / 6 % 6, case % 6];
        if one[0] < one[1] && one[1] < one[2] && one[2] < one[3] {
            all[found] = one;
            found += 1;
        }
        case += 1;
    }
    all
}

/// The orders of these requests in which each passes an interval in time, one interval for each permit after the one before.
fn is_feasible(gap: u64, at: u64, left: &[(u64, u64)]) -> bool {
    left.is_empty()
        || (0..left.len()).any(|first| {
            let mut others = left.to_vec();
            let (cost, deadline) = others.remove(first);
            at <= deadline && is_feasible(gap, at + gap * cost, &others)
        })
}

#[tokio::test(start_paused = true)]
async fn with_costs_an_interval_meets_all_deadlines_if_any_order_does() {
    let mut feasible = 0;
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let gap = random.u64(1..4);
        let count = random.usize(2..7);
        let items: Vec<(u64, u64)> = (0..count)
            .map(|_| (random.u64(1..6), random.u64(0..12 * gap)))
            .collect();
        if !is_feasible(gap, gap, &items) {
            continue;
        }
        feasible += 1;
        let rule = Rule::Every(gap);
        let mut requests = vec![Request::of_one(0, 0)];
        requests.extend(items.iter().map(|(cost, deadline)| Request {
            arrives: 0,
            deadline: Some(*deadline),
            cost: u32::try_from(*cost).unwrap(),
            leaves: None,
        }));
        let outcomes = served(&limit_of(rule, 1), &requests, None).await;
        let all = outcomes
            .iter()
            .all(|outcome| matches!(outcome, Some(Ok(_))));
        assert!(all, "{seed}: {rule:?} {items:?} {outcomes:?}");
    }
    assert!(feasible > 300, "{feasible}");
}

#[tokio::test(start_paused = true)]
async fn a_large_request_counts_as_due_later_also_in_a_policy_around_an_interval() {
    async fn smaller_first<P>(policy: P)
    where
        P: Policy<State: Send> + Send + 'static,
    {
        let limit = policy.shared().by_deadline(ms(LONG));
        limit.acquire_one().await;
        let start = now();
        // Ordered by deadline the first would pass at 100, and the second be late.
        let calls = [(4, 200), (1, 210)].map(|(cost, at)| limit.acquire_by(cost, start + ms(at)));
        assert_eq!(spawned(calls).await, [200, 100]);
    }
    let every = Interval::every(ms(100));
    smaller_first(every).await;
    smaller_first(AnyPolicy::from(every)).await;
    smaller_first(All::new((Interval::every(ms(1)), every))).await;
    let all = All::new((every, SlidingLog::new(99, ms(1))));
    smaller_first(AnyPolicy::from(all)).await;
    let ten = Rate::per_second(10);
    smaller_first(Ramp::new(ten, ten, ms(1_000))).await;

    // Where the cost does not count it moves nothing.
    let limit = PerRequest::new(every).shared().by_deadline(ms(LONG));
    limit.acquire_one().await;
    let start = now();
    let calls = [(4, 200), (1, 210)].map(|(cost, at)| limit.acquire_by(cost, start + ms(at)));
    assert_eq!(spawned(calls).await, [100, 200]);
}
