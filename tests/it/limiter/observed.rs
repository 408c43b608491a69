use std::cell::RefCell;
use std::rc::Rc;

use futures::{FutureExt, SinkExt, StreamExt, stream};
use paceline::limiter::{Event, Limiter, Limits, Observed};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;

use crate::timed::ms;

type Reports = Rc<RefCell<Vec<String>>>;

/// An observer, and its reports in short.
fn observed<L: Limiter>(limiter: L) -> (Observed<L, impl FnMut(Event) + Clone>, Reports) {
    let reports = Reports::default();
    let send = Rc::clone(&reports);
    let observer = move |event: Event| {
        send.borrow_mut().push(match event {
            Event::Passed { cost, waited, .. } => format!("passed {cost} after {waited:?}"),
            Event::Refused { cost, retry_in, .. } => format!("refused {cost} for {retry_in:?}"),
            Event::TooCostly { cost, capacity, .. } => format!("{cost} of {capacity}"),
            Event::GaveUp { waited, .. } => format!("gave up after {waited:?}"),
            _ => unreachable!(),
        });
    };
    (Observed::new(limiter, observer), reports)
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::new(1, ms(100)), 2)
}

#[tokio::test(start_paused = true)]
async fn reports_what_passed_and_how_long_it_waited() {
    let limit = bucket().shared();
    let (mine, reports) = observed(limit.clone());
    let paced = stream::iter([2, 1, 9, 0, 2]).pace_by_cost(mine, |cost| *cost);
    assert_eq!(paced.count().await, 5);
    assert_eq!(
        *reports.borrow(),
        [
            "passed 2 after 0ns",
            "passed 1 after 100ms",
            "9 of 2",
            "passed 2 after 200ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn reports_what_was_refused_and_shed() {
    let (limit, reports) = observed(Interval::every(ms(100)).owned());
    assert_eq!(stream::iter(0..2).enforce(limit).count().await, 2);
    let (limit, shed) = observed(Interval::every(ms(100)).owned());
    assert_eq!(stream::iter(0..2).shed(limit).count().await, 1);
    assert_eq!(
        *reports.borrow(),
        ["passed 1 after 0ns", "refused 1 for 100ms"]
    );
    assert_eq!(*reports.borrow(), *shed.borrow());
}

#[tokio::test(start_paused = true)]
async fn reports_a_request_that_gave_up_and_after_how_long() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let (mine, reports) = observed(limit);
    let mut paced = stream::iter([1]).pace(mine);
    assert!(paced.next().now_or_never().is_none());
    jump(ms(30)).await;
    drop(paced);
    assert_eq!(*reports.borrow(), ["gave up after 30ms"]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_sink_begins_with_its_first_look() {
    let (limit, reports) = observed(Interval::every(ms(100)).shared());
    let mut sink = futures::sink::drain().pace_sends(limit);
    for item in 0..3 {
        sink.send(item).await.unwrap();
    }
    assert_eq!(
        *reports.borrow(),
        [
            "passed 1 after 0ns",
            "passed 1 after 100ms",
            "passed 1 after 100ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_queued_for_itself() {
    let (limit, reports) = observed(Interval::every(ms(100)).shared());
    let (a, b) = (limit.clone(), limit);
    let (a, b) = (stream::iter(0..2).pace(a), stream::iter(0..2).pace(b));
    futures::join!(a.count(), b.count());
    let mut reports = reports.borrow().clone();
    reports.sort();
    assert_eq!(
        reports,
        [
            "passed 1 after 0ns",
            "passed 1 after 100ms",
            "passed 1 after 100ms",
            "passed 1 after 200ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_is_part_of_the_wait() {
    let (limit, reports) = observed(Interval::every(ms(100)).owned());
    let mut paced = stream::iter(0..2).pace(limit);
    paced.next().await;
    assert!(paced.next().now_or_never().is_none());
    jump(ms(180)).await;
    paced.next().await;
    assert_eq!(
        *reports.borrow(),
        ["passed 1 after 0ns", "passed 1 after 180ms"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_handles_of_all_keys_report_to_clones_of_the_observer() {
    let users = Interval::every(ms(100)).keyed::<&str>();
    let reports = Reports::default();
    let send = Rc::clone(&reports);
    let users = Observed::new(users, move |event: Event| {
        send.borrow_mut().push(format!("{}", event.is_of_request()));
    });
    let (Ok(ann), Ok(bob)) = (Limits::at(&users, "ann"), Limits::at(&users, "bob"));
    assert!(ann.try_acquire(1).await.is_pass());
    assert!(bob.try_acquire(1).await.is_pass());
    assert!(
        !Limits::at(&users, "ann")
            .unwrap()
            .try_acquire(1)
            .await
            .is_pass()
    );
    assert_eq!(reports.borrow().len(), 3);
}
