//! A limit in Redis that carries its observer: each request is one event, however it is made.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, SinkExt, StreamExt, stream};
use paceline::concurrency::Admit;
use paceline::feedback::Feedback;
use paceline::limiter::{Event, Mode, Observed, Observer};
use paceline::policy::{Decision, SlidingLog};
use paceline::prelude::*;
use paceline::time::Clock;
use paceline_redis::RedisLimiter;

use super::{MINUTE, denied, log, redis};
use crate::servers::Server;

/// The events, and how many requests are queued.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<(Vec<Event>, u32)>>);

impl Seen {
    /// In short, what was seen since the last time. No request is left in the queue.
    fn take(&self) -> Vec<String> {
        let (events, queued) = &mut *self.0.lock().unwrap();
        assert_eq!(*queued, 0, "{events:?}");
        let line = |event: &Event| match event {
            Event::Passed { cost, .. } => format!("passed {cost}"),
            Event::Refused { cost, retry_in, .. } if *retry_in > MINUTE / 2 => {
                format!("refused {cost}")
            }
            Event::Shadowed { cost, retry_in, .. } => {
                let known = retry_in.is_some();
                format!("shadowed {cost}, {known}")
            }
            Event::TooCostly { cost, capacity, .. } => format!("{cost} of {capacity}"),
            Event::GaveUp { .. } => "gave up".to_owned(),
            other => format!("{other:?}"),
        };
        std::mem::take(events).iter().map(line).collect()
    }

    #[track_caller]
    fn is(&self, lines: &[&str]) {
        assert_eq!(self.take(), lines);
    }
}

impl Observer for &Seen {
    fn observe(&mut self, event: Event) {
        self.0.lock().unwrap().0.push(event);
    }

    fn queued(&mut self) {
        self.0.lock().unwrap().1 += 1;
    }

    fn dequeued(&mut self) {
        self.0.lock().unwrap().1 -= 1;
    }
}

/// A limit of 5 in a minute.
async fn watched(server: &Server) -> (RedisLimiter<SlidingLog>, Seen) {
    let seen = Seen::default();
    let limit = redis(server).await.limit("a", log(5));
    (limit.unwrap().with_observer(seen.clone()), seen)
}

/// Polls a future once, and drops it.
fn gives_up<F: Future>(future: F) {
    let mut future = pin!(future);
    assert!(future.as_mut().now_or_never().is_none());
}

#[tokio::test]
async fn each_request_is_one_event_however_it_is_made() {
    let server = Server::start().await;
    let (limit, seen) = watched(&server).await;
    gives_up(limit.acquire(1));
    gives_up(limit.acquire_within(1, MINUTE));
    gives_up(limit.try_acquire(1));
    gives_up(limit.try_acquire_up_to(1));
    gives_up(stream::iter([1]).pace(limit.clone()).next());
    seen.is(&["gave up"; 5]);

    // What was counted for those may be given back after the first answer.
    limit.acquire(1).await.unwrap();
    seen.is(&["passed 1"]);
    limit.acquire_within(1, MINUTE).await.unwrap();
    seen.is(&["passed 1"]);
    let mut passed = 2;
    while limit.try_acquire_up_to(5).await.unwrap() > 0 {
        let [line] = &seen.take()[..] else {
            panic!("no event, or several")
        };
        let taken = line.strip_prefix("passed ").unwrap();
        passed += taken.parse::<u32>().unwrap();
    }
    seen.is(&["refused 5"]);
    assert_eq!(passed, 5);

    denied(limit.try_acquire(1).await);
    assert!(limit.acquire_within(1, Duration::ZERO).await.is_err());
    seen.is(&["refused 1"; 2]);
    for cost in [6, 7] {
        assert!(!limit.try_acquire(cost).await.unwrap().is_pass());
        assert!(limit.acquire(cost).await.is_err());
        let line = format!("{cost} of 5");
        seen.is(&[&line[..]; 2]);
    }

    // What is no request is no event.
    let _ = (limit.peek(1).await, limit.try_acquire(0).await);
    let _ = (limit.acquire(0).await, limit.try_acquire_up_to(0).await);
    drop(limit.acquire(1));
    limit.refund(5).await.unwrap();
    seen.is(&[]);
}

#[tokio::test]
async fn each_request_of_an_adapter_is_one_event() {
    let server = Server::start().await;
    let (limit, seen) = watched(&server).await;
    assert_eq!(stream::iter([1]).pace(limit.clone()).count().await, 1);
    let batches = stream::iter([1; 2]).pace_batches(limit.clone(), 2);
    assert_eq!(batches.count().await, 1);
    let mut sink = futures::sink::drain().pace_sends(limit.clone());
    sink.send(1).await.unwrap();
    let costs = stream::iter([1, 9, 0]).pace_by_cost(limit.clone(), |cost| *cost);
    assert_eq!(costs.count().await, 3);
    let tried: Vec<_> = stream::iter([1])
        .try_pace(limit.clone().fail_fast())
        .collect()
        .await;
    assert!(tried[0].is_ok());
    seen.is(&[
        "passed 1", "passed 1", "passed 1", "passed 1", "9 of 5", "passed 1",
    ]);

    assert_eq!(stream::iter([1; 2]).enforce(limit.clone()).count().await, 2);
    assert_eq!(stream::iter([1; 2]).shed(limit.clone()).count().await, 0);
    seen.is(&["refused 1"; 4]);
    let before = limit.clone();
    let mut paced = stream::iter([1]).pace(limit);
    assert!(paced.next().now_or_never().is_none());
    denied(before.try_acquire(1).await);
    seen.0.lock().unwrap().0.clear();
    drop(paced);
    seen.is(&["gave up"]);
}

#[tokio::test]
async fn how_long_a_request_has_waited_is_in_its_event() {
    let window = Duration::from_millis(50);
    let server = Server::start().await;
    let limit = redis(&server).await.limit("a", SlidingLog::new(1, window));
    let seen = Seen::default();
    let limit = limit.unwrap().with_observer(seen.clone());
    let mut clock = Clock::new();
    let start = clock.now();

    assert_eq!(stream::iter(0..2).pace(limit).count().await, 2);
    let took = clock.now().since(start);
    let events = std::mem::take(&mut seen.0.lock().unwrap().0);
    let [Event::Passed { .. }, Event::Passed { waited, .. }] = events[..] else {
        panic!("{events:?}");
    };
    // How much of the window was over when it was asked is not known.
    assert!(took >= window, "{took:?}");
    assert!(waited > Duration::ZERO && waited <= took, "{waited:?}");
}

#[tokio::test]
async fn a_request_that_is_too_late_in_the_queue_is_refused_once() {
    let server = Server::start().await;
    let (limit, seen) = watched(&server).await;
    limit.acquire(5).await.unwrap();
    let waiting = limit.acquire_within(1, MINUTE / 200);
    let late = tokio::join!(waiting, async { limit.pause_for(MINUTE).await.unwrap() }).0;
    assert!(late.unwrap_err().retry_in().unwrap() > MINUTE / 2);
    seen.is(&["passed 5", "Paused { duration: 60s }", "refused 1"]);
    limit.acquire_within(0, Duration::ZERO).await.unwrap();
    seen.is(&[]);
}

#[tokio::test]
async fn a_fault_is_a_refusal_and_a_stream_waits_on() {
    let server = Server::start().await;
    let (limit, seen) = watched(&server).await;
    server.cli::<()>(&["SET", &limit.keys()[0], "x"]).await;
    assert!(limit.try_acquire(1).await.is_err());
    for waited in [
        limit.acquire(1).await,
        limit.acquire_within(1, MINUTE).await,
    ] {
        let error = waited.unwrap_err().limit().unwrap().to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
    }
    assert!(limit.try_acquire_up_to(1).await.is_err());
    let tried = stream::iter([1]).try_pace(limit.clone().fail_fast());
    assert!(tried.collect::<Vec<_>>().await[0].is_err());
    seen.is(&["Refused { cost: 1, retry_in: 1s }"; 5]);
    gives_up(stream::iter([1]).pace(limit).next());
    seen.is(&["gave up"]);
}

#[tokio::test]
async fn what_passes_only_in_shadow_mode_is_an_event_of_its_own_around_the_switch() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let (seen, around) = (Seen::default(), Seen::default());
    let limit = redis.limit("a", log(5)).unwrap();
    let limit = limit.with_observer(seen.clone());
    let switch = redis.switch("a").unwrap();
    let report = {
        let around = around.clone();
        move |event: Event| (&around).observe(event)
    };
    let limit = Observed::new(limit.switched(&switch), report);
    redis.set_mode("a", Mode::Shadow).await.unwrap();
    assert_eq!(limit.try_acquire(5).await, Decision::Pass);
    around.is(&["passed 5"]);
    seen.is(&["passed 5"]);

    assert_eq!(limit.try_acquire(1).await, Decision::Pass);
    assert_eq!(limit.try_acquire(6).await, Decision::Pass);
    limit.acquire(1).await.unwrap();
    limit.acquire_within(1, MINUTE).await.unwrap();
    assert_eq!(stream::iter([1; 2]).pace(limit.clone()).count().await, 2);
    let (held_back, too_costly) = ("shadowed 1, true", "shadowed 6, false");
    around.is(&[&[held_back, too_costly][..], &[held_back; 4]].concat());
    // The limit itself has refused them.
    seen.is(&[&["refused 1", "6 of 5"][..], &["refused 1"; 4]].concat());
    assert_eq!(switch.stats().held_back, 6);

    redis.set_mode("a", Mode::Off).await.unwrap();
    limit.acquire(9).await.unwrap();
    around.is(&["passed 9"]);
    seen.is(&[]);
    assert_eq!(switch.stats().held_back, 6);
}

#[tokio::test]
async fn each_change_is_an_event_of_the_clone_on_which_it_was_made() {
    let server = Server::start().await;
    let (limit, seen) = watched(&server).await;
    let (other, of_other) = watched(&server).await;
    let clone = limit.clone();
    clone.pause_for(MINUTE).await.unwrap();
    let feedback = Feedback::parse([("Retry-After", "120")], Duration::ZERO);
    limit.apply_feedback(&feedback).await.unwrap();
    let nothing = Feedback::parse([("X-RateLimit-Remaining", "7")], Duration::ZERO);
    limit.apply_feedback(&nothing).await.unwrap();
    clone.resume().await.unwrap();
    clone.retune(SlidingLog::new(4, MINUTE)).await.unwrap();
    seen.is(&[
        "Paused { duration: 60s }",
        "FeedbackApplied { pause: 120s }",
        "Resumed",
        "Retuned",
    ]);
    other.pause_for(MINUTE).await.unwrap();
    of_other.is(&["Paused { duration: 60s }"]);

    limit.pause_for(2 * MINUTE).await.unwrap();
    limit.pause_for(MINUTE).await.unwrap();
    let events = std::mem::take(&mut seen.0.lock().unwrap().0);
    let [_, Event::Paused { duration, .. }] = events[..] else {
        panic!("{events:?}");
    };
    assert!(duration > MINUTE, "of two pauses the later end counts");
}

#[tokio::test]
async fn a_key_reports_with_its_key() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", log(1)).unwrap();
    let seen = Seen::default();
    let same = users.clone().with_observer(seen.clone());
    same.at("ann").unwrap().acquire(1).await.unwrap();
    denied(same.at("ann").unwrap().try_acquire(1).await);
    same.at("bob").unwrap().pause_for(MINUTE).await.unwrap();
    seen.is(&["passed 1", "refused 1", "Paused { duration: 60s }"]);

    let by_key = Arc::new(Mutex::new(Vec::new()));
    let users = users.with_observer_by_key({
        let by_key = Arc::clone(&by_key);
        move |key, event| by_key.lock().unwrap().push((key.to_owned(), event))
    });
    users.at("bob").unwrap().resume().await.unwrap();
    let keys = stream::iter(["bob", "cat"]).try_pace_by_key(users, |key| *key, 2);
    assert_eq!(keys.count().await, 2);
    let by_key = by_key.lock().unwrap();
    let of = |wanted: &str| -> Vec<_> {
        let events = by_key.iter().filter(|(key, _)| key == wanted);
        events.map(|(_, event)| *event).collect()
    };
    let (bob, cat) = (of("bob"), of("cat"));
    assert!(matches!(bob[..], [Event::Resumed, Event::Passed { .. }]));
    assert!(matches!(cat[..], [Event::Passed { .. }]));
    assert_eq!(by_key.len(), 3);
}

#[tokio::test]
async fn each_request_for_a_lease_is_one_event_and_so_is_its_release() {
    let server = Server::start().await;
    let seen = Seen::default();
    let permits = redis(&server).await.permits("a", 1, 10 * MINUTE).unwrap();
    let permits = permits.with_observer(seen.clone());
    gives_up(permits.acquire());
    gives_up(permits.try_acquire());
    let lease = permits.acquire().await.unwrap();
    assert!(permits.try_acquire().await.unwrap().is_none());
    gives_up(permits.acquire());
    let first = ["Resized { limit: 1 }", "gave up", "gave up", "passed 1"];
    seen.is(&[&first[..], &["refused 1", "gave up"]].concat());
    let waiting = async { permits.acquire().await.unwrap() };
    let (second, ()) = tokio::join!(waiting, async { lease.release().await.unwrap() });
    drop(second);
    let mut events = seen.take();
    // The waiter may have its lease before the other holder hears of its release.
    events.sort();
    assert_eq!(
        events,
        ["Released { count: 1 }", "Released { count: 1 }", "passed 1"]
    );

    let mut handle = permits.clone();
    for _ in 0..2 {
        let admitted = poll_fn(|cx| handle.poll_admit((), cx)).await;
        drop(admitted.unwrap().unwrap());
        seen.is(&["passed 1", "Released { count: 1 }"]);
    }
}

#[cfg(all(feature = "metrics", feature = "tracing"))]
mod recorded {
    #![expect(clippy::float_cmp, reason = "small whole numbers are exact")]

    use paceline::limiter::Metrics;
    use paceline::policy::TokenBucket;
    use paceline::time::Rate;
    use paceline_redis::OutagePolicy;

    use super::*;
    use crate::failing;
    use crate::recorded::Recorded;

    #[tokio::test]
    async fn what_passes_in_an_outage_is_counted_beside_the_outage() {
        let recorded = Recorded::default();
        let _guard = metrics::set_default_local_recorder(&recorded);
        let mut server = Server::start().await;
        let redis = failing::redis(&server.url(), OutagePolicy::open()).await;
        let bucket = TokenBucket::new(Rate::per_second(1), 1);
        let limit = redis.limit("a", bucket).unwrap();
        let limit = limit.with_observer(Metrics::new("a"));
        let passed = || recorded.value("paceline_requests_total{limit=a,outcome=passed}");
        let is_up = || recorded.value("paceline_remote_up{}");
        limit.acquire(1).await.unwrap();
        assert_eq!((passed(), is_up()), (1.0, 1.0));

        server.kill();
        for count in 2..=20 {
            assert!(limit.try_acquire(1).await.unwrap().is_pass());
            assert_eq!(passed(), f64::from(count));
        }
        failing::until_down(&redis).await;
        assert_eq!(is_up(), 0.0, "{:?}", recorded.lines());
        server.start_again().await;
        failing::until_up(&redis).await;
        assert_eq!((passed(), is_up()), (20.0, 1.0));
    }
}
