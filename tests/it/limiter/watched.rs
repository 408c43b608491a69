//! A limit that carries its observer: each request is one event, however it is made.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{SinkExt, StreamExt, stream};
use paceline::concurrency::{KeyedPermits, Permits};
use paceline::feedback::Feedback;
use paceline::io::PaceReadExt;
use paceline::limiter::{Event, Keyed, Limiter, Observer, PolicyExt, Shared, Stats, WhenFull};
use paceline::policy::{Decision, TokenBucket, Unlimited};
use paceline::prelude::*;
use tokio::io::AsyncReadExt;

use super::{bucket, queued, spawned};
use crate::timed::{ms, sleep};

/// Writes down what it is told, and counts as a limit does.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<(Vec<Event>, Stats)>>);

impl Seen {
    /// What was seen since the last time.
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }

    pub(super) fn stats(&self) -> Stats {
        self.0.lock().unwrap().1
    }

    /// In short, since the last time.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |event: &Event| match event {
            Event::Passed { cost, waited, .. } => format!("passed {cost} after {waited:?}"),
            Event::Refused {
                cost,
                retry_in: Duration::MAX,
                ..
            } => format!("refused {cost} for ever"),
            Event::Refused { cost, retry_in, .. } => format!("refused {cost} for {retry_in:?}"),
            Event::TooCostly { cost, capacity, .. } => format!("{cost} of {capacity}"),
            Event::GaveUp { waited, .. } => format!("gave up after {waited:?}"),
            Event::Shadowed {
                cost,
                waited,
                retry_in,
                ..
            } => format!("shadowed {cost} after {waited:?} for {retry_in:?}"),
            Event::Paused { duration, .. } => format!("paused for {duration:?}"),
            Event::FeedbackApplied { pause, .. } => format!("feedback of {pause:?}"),
            Event::Released { count, .. } => format!("released {count}"),
            Event::Resized { limit, .. } => format!("resized to {limit}"),
            other => format!("{other:?}"),
        };
        self.take().iter().map(line).collect()
    }
}

impl Observer for &Seen {
    fn observe(&mut self, event: Event) {
        let (events, stats) = &mut *self.0.lock().unwrap();
        events.push(event);
        match event {
            Event::Passed { .. } => stats.passed += 1,
            Event::Shadowed { .. } => {
                stats.passed += 1;
                stats.held_back += 1;
            }
            Event::Refused { .. } | Event::TooCostly { .. } => stats.refused += 1,
            _ => {}
        }
    }

    fn queued(&mut self) {
        let stats = &mut self.0.lock().unwrap().1;
        stats.held_back += 1;
        stats.waiting += 1;
    }

    fn dequeued(&mut self) {
        self.0.lock().unwrap().1.waiting -= 1;
    }
}

fn shared() -> (Shared<TokenBucket>, Seen) {
    let seen = Seen::default();
    (bucket(2).shared().with_observer(seen.clone()), seen)
}

fn keyed() -> (Keyed<String, TokenBucket>, Seen) {
    let seen = Seen::default();
    (bucket(2).keyed().with_observer(seen.clone()), seen)
}

/// Polls a future once, and drops it.
fn gives_up<F: Future>(future: F) {
    drop(queued(future));
}

/// Everything that can be done with a limiter.
async fn is_asked_in_every_way<L: Limiter<Error = Infallible> + Clone + Unpin>(
    limit: L,
    seen: Seen,
    stats: impl Fn() -> Stats,
) {
    let check = |how: &str, requests: usize| {
        assert_eq!(seen.stats(), stats(), "{how}");
        let events = seen.take();
        let of_requests = events.iter().filter(|event| event.is_of_request()).count();
        assert_eq!(of_requests, requests, "{how}: {events:?}");
    };
    let items = || stream::iter([1, 1, 1]);
    assert_eq!(items().pace(limit.clone()).count().await, 3);
    check("pace", 3);
    let costs = stream::iter([2, 9, 0, 1]);
    let paced = costs.pace_by_cost(limit.clone(), |cost| *cost);
    assert_eq!(paced.count().await, 4);
    check("pace_by_cost", 3);
    assert_eq!(items().pace_batches(limit.clone(), 2).count().await, 2);
    check("pace_batches", 2);
    assert_eq!(items().enforce(limit.clone()).count().await, 3);
    check("enforce", 3);
    sleep(1_000).await;
    assert_eq!(items().shed(limit.clone()).count().await, 2);
    check("shed", 3);
    gives_up(items().pace(limit.clone()).next());
    check("a stream that is dropped", 1);

    let mut sink = futures::sink::drain().pace_sends(limit.clone());
    for item in 0..3 {
        sink.send(item).await.unwrap();
    }
    check("pace_sends", 3);
    let mut sink = futures::sink::drain().pace_sends_by_cost(limit.clone(), |cost| *cost);
    for cost in [2, 1, 0] {
        sink.send(cost).await.unwrap();
    }
    assert!(sink.send(9).await.is_err());
    // An item that finds no slot is refused, and passes later: `Stats` counts both.
    check("pace_sends_by_cost", 5);
    let mut sink = futures::sink::drain().enforce_sends(limit.clone());
    assert!(sink.send(1).await.is_err());
    check("enforce_sends", 1);
    let mut sink = futures::sink::drain().shed_sends(limit.clone());
    sink.send(1).await.unwrap();
    check("shed_sends", 1);

    let mut bytes = [0; 4];
    let mut read = (&[1_u8, 2, 3, 4][..]).pace_reads(limit.clone());
    read.read_exact(&mut bytes).await.unwrap();
    let requests = seen.take().len();
    assert!(requests > 0);
    assert_eq!(seen.stats(), stats(), "pace_read");
}

#[tokio::test(start_paused = true)]
async fn a_shared_limit_reports_each_request_of_an_adapter_once() {
    let (limit, seen) = shared();
    let asked = limit.clone();
    is_asked_in_every_way(asked, seen, move || limit.stats()).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_reports_each_request_of_an_adapter_once() {
    let (limits, seen) = keyed();
    let asked = limits.at("ann".to_owned());
    is_asked_in_every_way(asked, seen, move || limits.stats()).await;
}

#[tokio::test(start_paused = true)]
async fn a_shared_limit_reports_each_call_once() {
    let (limit, seen) = shared();
    let check = |how: &str, line: &str| {
        assert_eq!(seen.lines(), [line], "{how}");
        assert_eq!(limit.stats(), seen.stats(), "{how}");
    };
    assert_eq!(limit.try_acquire(2), Decision::Pass);
    check("try_acquire", "passed 2 after 0ns");
    assert!(!limit.try_acquire(1).is_pass());
    check("try_acquire", "refused 1 for 100ms");
    assert!(!limit.try_acquire(3).is_pass());
    check("try_acquire", "3 of 2");
    limit.acquire(1).await.unwrap();
    check("acquire", "passed 1 after 100ms");
    assert!(limit.acquire(3).await.is_err());
    check("acquire", "3 of 2");
    gives_up(limit.acquire(1));
    check("acquire", "gave up after 0ns");
    limit.acquire_within(1, ms(100)).await.unwrap();
    check("acquire_within", "passed 1 after 100ms");
    assert!(limit.acquire_within(1, ms(99)).await.is_err());
    check("acquire_within", "refused 1 for 100ms");
    assert!(limit.acquire_within(3, ms(99)).await.is_err());
    check("acquire_within", "3 of 2");
    gives_up(limit.acquire_within(1, ms(100)));
    check("acquire_within", "gave up after 0ns");

    let late = tokio::spawn(limit.acquire_within(1, ms(150)));
    sleep(50).await;
    limit.pause_for(ms(1_000));
    assert!(late.await.unwrap().is_err());
    assert_eq!(
        seen.lines(),
        ["paused for 1s", "refused 1 for 900ms"],
        "too late in the queue"
    );
    assert_eq!(limit.stats(), seen.stats());

    // What is no request is no event.
    let _ = (limit.peek(1), limit.try_acquire(0), limit.acquire(0).await);
    drop(limit.acquire(1));
    limit.refund(1);
    assert_eq!(seen.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_keyed_limit_reports_each_call_once() {
    let (limits, seen) = keyed();
    let ann = || "ann".to_owned();
    let check = |how: &str, line: &str| {
        assert_eq!(seen.lines(), [line], "{how}");
        assert_eq!(limits.stats(), seen.stats(), "{how}");
    };
    assert_eq!(limits.try_acquire("ann", 2), Decision::Pass);
    check("try_acquire", "passed 2 after 0ns");
    assert!(!limits.try_acquire("ann", 1).is_pass());
    check("try_acquire", "refused 1 for 100ms");
    assert!(!limits.try_acquire("bob", 3).is_pass());
    check("try_acquire", "3 of 2");
    limits.acquire(ann(), 1).await.unwrap();
    check("acquire", "passed 1 after 100ms");
    assert!(limits.acquire(ann(), 3).await.is_err());
    check("acquire", "3 of 2");
    assert!(limits.acquire_within(ann(), 1, ms(99)).await.is_err());
    check("acquire_within", "refused 1 for 100ms");
    gives_up(limits.acquire_within(ann(), 1, ms(100)));
    check("acquire_within", "gave up after 0ns");

    let passed = spawned([limits.acquire(ann(), 1)]);
    tokio::task::yield_now().await;
    assert!(!limits.try_acquire("ann", 1).is_pass());
    check("try_acquire behind a waiter", "refused 1 for 200ms");
    assert_eq!(passed.await, [100]);
    check("acquire", "passed 1 after 100ms");

    let keys = stream::iter(["ann", "bob"]);
    let paced = keys.pace_by_key(limits.clone(), |key| (*key).to_owned(), 3);
    assert_eq!(paced.count().await, 2);
    assert_eq!(
        seen.lines(),
        ["passed 1 after 0ns", "passed 1 after 100ms"],
        "pace_by_key"
    );
    assert_eq!(limits.stats(), seen.stats());
    let _ = (limits.peek("ann", 1), limits.try_acquire("ann", 0));
    assert_eq!(seen.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn permits_report_each_request_once_and_each_release() {
    let seen = Seen::default();
    let permits = Permits::new(2).with_observer(seen.clone());
    assert_eq!(seen.lines(), ["resized to 2"]);

    let one = permits.acquire().await;
    let two = permits.try_acquire().unwrap();
    assert!(permits.try_acquire().is_none());
    assert!(permits.try_acquire_many(3).is_none());
    assert!(permits.acquire_many(3).await.is_err());
    gives_up(permits.acquire());
    assert_eq!(
        seen.lines(),
        [
            "passed 1 after 0ns",
            "passed 1 after 0ns",
            "refused 1 for ever",
            "3 of 2",
            "3 of 2",
            "gave up after 0ns"
        ]
    );
    let waiting = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire_many(2).await }
    });
    sleep(30).await;
    assert_eq!(seen.stats().waiting, 1);
    drop((one, two));
    drop(waiting.await.unwrap().unwrap());
    permits.resize(7);
    assert_eq!(
        seen.lines(),
        [
            "released 1",
            "released 1",
            "passed 2 after 30ms",
            "released 2",
            "resized to 7"
        ]
    );
    assert_eq!(permits.stats(), seen.stats());
    let _ = (permits.try_acquire_many(0), permits.acquire_many(0).await);
    assert_eq!(seen.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_is_one_request_for_each_item() {
    let seen = Seen::default();
    let permits = Permits::new(2).with_observer(seen.clone());
    let work = |_| async { sleep(10).await };
    let asked = permits.clone();
    let done = stream::iter(0..5).concurrent(permits, work);
    assert_eq!(done.count().await, 5);
    let events = seen.take();
    let count = |test: fn(&Event) -> bool| events.iter().filter(|event| test(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Passed { .. })), 5);
    assert_eq!(count(|event| matches!(event, Event::Released { .. })), 5);
    assert_eq!(events.len(), 11, "and the number of permits");
    assert_eq!(asked.stats(), seen.stats());
}

#[tokio::test]
async fn a_prefetched_permit_is_an_event_too() {
    let seen = Seen::default();
    let limit = Unlimited.shared().with_observer(seen.clone());
    for _ in 0..1_000 {
        limit.acquire(1).await.unwrap();
        assert!(limit.try_acquire(1).is_pass());
    }
    assert_eq!(
        stream::iter(0..1_000).pace(limit.clone()).count().await,
        1_000
    );
    assert_eq!(seen.stats().passed, 3_000);
    assert_eq!(limit.stats(), seen.stats());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_passes_without_room_for_its_key_is_an_event_of_its_own() {
    let (limits, seen) = keyed();
    let limits = limits.with_max_keys(1).with_when_full(WhenFull::Pass);
    assert!(limits.try_acquire("ann", 2).is_pass());
    assert!(limits.try_acquire("bob", 1).is_pass());
    limits.acquire("bob".to_owned(), 1).await.unwrap();
    let shadowed = "shadowed 1 after 0ns for Some(200ms)";
    assert_eq!(seen.lines(), ["passed 2 after 0ns", shadowed, shadowed]);
    assert_eq!(limits.stats(), seen.stats());
}

#[tokio::test(start_paused = true)]
async fn permits_by_key_report_each_request_once_also_without_room() {
    let seen = Seen::default();
    let users = KeyedPermits::new(1).with_max_keys(1);
    let users = users.with_observer(seen.clone());
    let ann = users.acquire("ann").await;
    assert!(users.try_acquire(&"ann").is_none());
    assert!(users.clone().try_acquire(&"bob").is_none());
    assert!(users.acquire_within("bob", ms(50)).await.is_err());
    gives_up(users.acquire("ann"));
    assert_eq!(
        seen.lines(),
        [
            "passed 1 after 0ns",
            "refused 1 for ever",
            "refused 1 for 100ms",
            "refused 1 for 100ms",
            "gave up after 0ns",
        ]
    );

    let waiting = tokio::spawn(users.acquire("bob"));
    sleep(10).await;
    drop(ann);
    drop(waiting.await.unwrap());
    // It is in the queue of its key from when there is room.
    assert_eq!(
        seen.lines(),
        ["released 1", "passed 1 after 0ns", "released 1"]
    );
    let (mut stats, mut counted) = (users.stats(), seen.stats());
    (stats.held_back, counted.held_back) = (0, 0);
    assert_eq!(stats, counted);
}

#[tokio::test(start_paused = true)]
async fn permits_report_what_is_too_late_once() {
    let seen = Seen::default();
    let permits = Permits::new(1).with_observer(seen.clone());
    let permit = permits.acquire_within(ms(50)).await.unwrap();
    assert!(permits.acquire_within(ms(50)).await.is_err());
    assert_eq!(
        seen.lines(),
        ["resized to 1", "passed 1 after 0ns", "refused 1 for ever"]
    );
    gives_up(permits.acquire_within(ms(50)));
    drop(permit);
    assert_eq!(seen.lines(), ["gave up after 0ns", "released 1"]);

    let cooling = permits.with_cooldown(ms(100));
    drop(cooling.acquire().await);
    assert!(cooling.acquire_within(ms(50)).await.is_err());
    assert_eq!(
        seen.lines(),
        ["passed 1 after 0ns", "released 1", "refused 1 for 100ms"]
    );
    assert_eq!(seen.stats().waiting, 0);
    assert_eq!(cooling.stats(), seen.stats());
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_shared_limit_is_an_event_of_the_clone_on_which_it_was_made() {
    let (limit, seen) = shared();
    let unobserved = bucket(2).shared();
    let clone = limit.clone();
    clone.pause_for(ms(500));
    clone.pause_for(ms(200));
    let feedback = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    assert_eq!(limit.apply_feedback(&feedback), Some(ms(2_000)));
    let nothing = Feedback::parse([("X-RateLimit-Remaining", "7")], Duration::ZERO);
    assert_eq!(limit.apply_feedback(&nothing), None);
    clone.resume();
    clone.retune(bucket(2));
    assert_eq!(
        seen.lines(),
        [
            "paused for 500ms",
            "paused for 500ms",
            "feedback of 2s",
            "Resumed",
            "Retuned"
        ]
    );
    unobserved.pause_for(ms(500));
    assert_eq!(seen.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_key_is_an_event_with_its_key() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let limits = bucket(2).keyed::<String>().with_observer_by_key({
        let seen = Arc::clone(&seen);
        move |key, event| seen.lock().unwrap().push(format!("{key}: {event:?}"))
    });
    limits.with("ann", |limit| limit.pause_for(ms(500)));
    let feedback = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    limits.with("bob", |limit| limit.apply_feedback(&feedback));
    limits.with("ann", |limit| limit.resume());
    limits.with("ann", |limit| limit.retune(bucket(2)));
    limits.forget("ann");
    limits.with("bob", |limit| limit.reset());
    assert!(limits.try_acquire("bob", 1).is_pass());
    limits.acquire("cat".to_owned(), 1).await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "ann: Paused { duration: 500ms }",
            "bob: FeedbackApplied { pause: 2s }",
            "ann: Resumed",
            "ann: Retuned",
            "ann: Retuned",
            "ann: Resumed",
            "bob: Resumed",
            "bob: Passed { cost: 1, waited: 0ns }",
            "cat: Passed { cost: 1, waited: 0ns }",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_may_use_its_limit() {
    /// A place for a limit, and an observer that asks for the counts of that limit.
    fn asks<L: Send + 'static>(stats: fn(&L) -> Stats) -> (Arc<Mutex<Option<L>>>, impl Fn(Event)) {
        let own = Arc::new(Mutex::new(None));
        let asked = Arc::clone(&own);
        (own, move |_: Event| {
            if let Ok(own) = asked.try_lock() {
                let _ = own.as_ref().map(stats);
            }
        })
    }
    let (own, observer) = asks(Shared::stats);
    let limit = bucket(2).shared().with_observer(observer);
    *own.lock().unwrap() = Some(limit.clone());
    assert!(limit.try_acquire(2).is_pass());
    limit.acquire(1).await.unwrap();
    limit.pause_for(ms(1));
    limit.retune(bucket(2));

    let (own, observer) = asks(Keyed::stats);
    let limits = bucket(2).keyed().with_observer(observer);
    *own.lock().unwrap() = Some(limits.clone());
    assert!(limits.try_acquire(&1, 2).is_pass());
    limits.acquire(1, 1).await.unwrap();
    assert!(limits.acquire_within(1, 1, ms(1)).await.is_err());
    limits.with(&1, |limit| limit.pause_for(ms(1)));
}

#[tokio::test(start_paused = true)]
async fn a_look_at_what_can_never_pass_is_counted_as_it_is_reported() {
    async fn look(mut limit: impl Limiter<Error = Infallible>) {
        let looked = poll_fn(|cx| limit.poll_open(9, cx)).await;
        assert_eq!(looked, Ok(Decision::Never { capacity: 2 }));
    }
    let (limit, seen) = shared();
    look(limit.clone()).await;
    assert_eq!((limit.stats().refused, seen.stats().refused), (1, 1));

    let (users, seen) = keyed();
    look(users.at("ann".to_owned())).await;
    assert_eq!((users.stats().refused, seen.stats().refused), (1, 1));
}
