//! Permits with an observer around them.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use paceline::concurrency::{Admit, Permits};
use paceline::limiter::{Event, Observed, Observer};
use testkit::clock::jump;

use super::{asked, claims, tried};
use crate::timed::ms;

/// What was reported, in short.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    fn push(&self, report: String) {
        self.0.lock().unwrap().push(report);
    }

    #[track_caller]
    fn assert(&self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut *self.0.lock().unwrap()), expected);
    }
}

impl Observer for Reports {
    fn observe(&mut self, event: Event) {
        self.push(match event {
            Event::Passed {
                cost: 1, waited, ..
            } => format!("passed after {waited:?}"),
            Event::Refused {
                cost: 1,
                retry_in: std::time::Duration::MAX,
                ..
            } => "refused".to_owned(),
            Event::GaveUp { waited, .. } => format!("gave up after {waited:?}"),
            other => panic!("{other:?}"),
        });
    }

    fn queued(&mut self) {
        self.push("queued".to_owned());
    }

    fn dequeued(&mut self) {
        self.push("dequeued".to_owned());
    }
}

fn observed<A>(permits: A) -> (Observed<A, Reports>, Reports) {
    let reports = Reports::default();
    (Observed::new(permits, reports.clone()), reports)
}

#[tokio::test(start_paused = true)]
async fn observed_permits_keep_the_claims() {
    claims::hold_for(|n| Observed::new(Permits::new(n), drop)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_queued_once_and_passes_once() {
    let (mut permits, reports) = observed(Permits::new(1));
    let held = tried(&mut permits);
    reports.assert(&["passed after 0ns"]);
    assert!(asked(&mut permits).is_pending());
    jump(ms(70)).await;
    assert!(asked(&mut permits).is_pending());
    reports.assert(&["queued"]);
    drop(held);
    assert!(asked(&mut permits).is_ready());
    reports.assert(&["dequeued", "passed after 70ms"]);
    drop(permits);
    reports.assert(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_and_one_that_was_queued_leaves_the_queue() {
    let (mut permits, reports) = observed(Permits::new(1));
    let held = permits.limiter().try_acquire();
    assert!(matches!(tried(&mut permits), Poll::Ready(Ok(None))));
    reports.assert(&["refused"]);
    assert!(asked(&mut permits).is_pending());
    assert!(matches!(tried(&mut permits), Poll::Ready(Ok(None))));
    reports.assert(&["queued", "dequeued", "refused"]);
    drop((held, permits));
    reports.assert(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_or_is_dropped_is_reported_once() {
    for drops in [false, true] {
        let permits = Permits::new(1);
        let _held = permits.try_acquire();
        let (mut handle, reports) = observed(permits.clone());
        assert!(asked(&mut handle).is_pending());
        jump(ms(30)).await;
        if !drops {
            handle.give_up();
            handle.give_up();
        }
        drop(handle);
        reports.assert(&["queued", "dequeued", "gave up after 30ms"]);
        assert_eq!(permits.stats().waiting, 0);
    }
}

/// Permits that cannot be reached at the second poll.
#[derive(Default)]
struct Broken {
    polls: u32,
}

impl Admit for Broken {
    type Guard = ();
    type Error = &'static str;

    fn poll_admit(
        &mut self,
        (): (),
        _: &mut Context<'_>,
    ) -> Poll<Result<Option<()>, &'static str>> {
        self.polls += 1;
        if self.polls == 1 {
            return Poll::Pending;
        }
        Poll::Ready(Err("the server is gone"))
    }

    fn give_up(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_has_given_up_when_its_handle_is_gone() {
    let (mut handle, reports) = observed(Broken::default());
    assert!(asked(&mut handle).is_pending());
    assert!(matches!(asked(&mut handle), Poll::Ready(Err(_))));
    reports.assert(&["queued"]);
    drop(handle);
    reports.assert(&["dequeued", "gave up after 0ns"]);
}

#[tokio::test(start_paused = true)]
async fn while_the_answer_to_a_try_is_under_way_it_is_not_queued() {
    let (mut handle, reports) = observed(Broken::default());
    assert!(tried(&mut handle).is_pending());
    drop(handle);
    reports.assert(&[]);
}
