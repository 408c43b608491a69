//! Layers with a switch and with an observer.

use std::sync::{Arc, Mutex};

use ::tower::{Layer, Service, ServiceExt};
use futures::future::join_all;
use http::Request;
use paceline::concurrency::{Adaptive, KeyedPermits, Outcome, Permits};
use paceline::limiter::{Event, Line, Mode, Observed, PolicyExt, Switch, SwitchExt};
use paceline::policy::FixedWindow;
use paceline_tower::{AdaptiveLayer, ConcurrencyLayer, EnforceLayer, For, PaceLayer};
use testkit::probe::service::{Inner, Part};
use testkit::wakes::Driven;

use super::{call, echo, get};
use crate::recorded::{Recorded, outcomes, success};
use crate::timed::ms;

fn once() -> FixedWindow {
    FixedWindow::new(1, ms(1_000))
}

/// Each request is its key.
const ITSELF: fn(&u32) -> Option<u32> = |n| Some(*n);

/// Whether the second of two requests passes, while what the first returned is held.
async fn second<S, R: Clone>(service: &S, request: R) -> bool
where
    S: Service<R> + Clone,
{
    let mut service = service.clone();
    let _first = call(&mut service, request.clone()).await;
    call(&mut service, request).await.is_ok()
}

/// Each mode, and whether the second request passes. At least once it goes back from a mode that lets all pass.
const MODES: [(Mode, bool); 4] = [
    (Mode::Active, false),
    (Mode::Shadow, true),
    (Mode::Off, true),
    (Mode::Active, false),
];

#[tokio::test(start_paused = true)]
async fn a_switch_turns_every_layer_off_and_on_while_it_serves() {
    let switch = Switch::new();
    let one = || once().shared().switched(&switch);
    let keyed = || once().keyed().switched(&switch);
    let enforce = EnforceLayer::new(one()).layer(echo());
    let by_key = EnforceLayer::by_key(keyed(), ITSELF).layer(echo());
    let costed = EnforceLayer::by_key(keyed(), ITSELF).costing(|_: &u32| 1);
    let costed = costed.layer(echo());
    let pace = PaceLayer::new(one()).within(ms(10)).layer(echo());
    let paced = PaceLayer::by_key(keyed(), ITSELF).within(ms(10));
    let paced = paced.layer(echo());
    for (mode, passes) in MODES {
        switch.set_mode(mode);
        let second = [
            second(&enforce, 1).await,
            second(&by_key, 1).await,
            second(&costed, 1).await,
            second(&pace, 1).await,
            second(&paced, 1).await,
        ];
        assert_eq!(second, [passes; 5], "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_switch_turns_permits_off_and_on_while_they_serve() {
    let inner = Inner::new().with_body(&[Part::Data(b"a"), Part::Data(b"b")]);
    let switch = Switch::new();
    let one = ConcurrencyLayer::new(Permits::new(1).switched(&switch));
    let one = one.at_once().layer(inner.clone());
    let path = |request: &Request<()>| Some(request.uri().path().to_owned());
    let by_key = ConcurrencyLayer::by_key(KeyedPermits::new(1).switched(&switch), path);
    let by_key = by_key.at_once().layer(inner.clone());
    let header = For::header(KeyedPermits::new(1).switched(&switch), "x-user");
    let header = ConcurrencyLayer::with_terms(header);
    let header = header.at_once().layer(inner);
    let ann = Request::get("/").header("x-user", "ann").body(()).unwrap();
    for (mode, passes) in MODES {
        switch.set_mode(mode);
        let second = [
            second(&one, get("/")).await,
            second(&by_key, get("/")).await,
            second(&header, ann.clone()).await,
        ];
        assert_eq!(second, [passes; 3], "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_switched_adaptive_layer_reports_for_the_requests_that_have_a_permit() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let reports = Reports::default();
    let switch = Switch::new();
    let permits = Observed::new(adaptive.clone().switched(&switch), reports.observer());
    let layer = AdaptiveLayer::new(permits).at_once();
    let layer = layer.classifying(|_: &Result<_, _>, latency| Outcome::Success { latency });
    let service = layer.layer(Inner::new().taking(ms(10)));
    for (mode, passes) in MODES {
        switch.set_mode(mode);
        let calls = [1, 2].map(|_| service.clone().oneshot(get("/")));
        let done = join_all(calls).await;
        let passed = done.iter().filter(|done| done.is_ok()).count();
        assert_eq!(passed == 2, passes, "{mode:?}");
    }
    assert_eq!(
        outcomes(&adaptive),
        [success(10); 3],
        "none while it is off"
    );
    assert_eq!(
        reports.taken()[..4],
        ["passed", "refused", "passed", "shadowed"]
    );
    assert_eq!(adaptive.permits().in_use(), 0);
}

/// What was reported, in short.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<&'static str>>>);

impl Reports {
    fn observer(&self) -> impl FnMut(Event) + Clone + Send + Sync + 'static {
        let reports = self.clone();
        move |event| {
            reports.0.lock().unwrap().push(match event {
                Event::Passed { .. } => "passed",
                Event::Shadowed { .. } => "shadowed",
                Event::Refused { .. } => "refused",
                Event::GaveUp { .. } => "gave up",
                other => panic!("{other:?}"),
            });
        }
    }

    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_once_what_becomes_of_each_request_with_each_key() {
    let reports = Reports::default();
    let keys = Observed::new(once().keyed(), reports.observer());
    let mut service = EnforceLayer::by_key(keys, ITSELF).layer(echo());
    for n in [1, 2, 1] {
        let _ = call(&mut service, n).await;
    }
    assert_eq!(reports.taken(), ["passed", "passed", "refused"]);

    let layer = PaceLayer::new(Observed::new(once().shared(), reports.observer()));
    let service = layer.max_waiting(1).layer(echo());
    let calls = (0..3).map(|n| Driven::new(service.clone().oneshot(n)));
    let mut calls: Vec<_> = calls.collect();
    let ready = calls.iter_mut().map(|call| call.poll().is_ready());
    // One passes, one waits, and for the last there is no place.
    assert_eq!(ready.collect::<Vec<_>>(), [true, false, true]);
    drop(calls);
    assert_eq!(reports.taken(), ["passed", "refused", "gave up"]);

    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(Observed::new(permits.clone(), reports.observer()));
    let mut service = layer.at_once().until_response().layer(echo());
    call(&mut service, 1).await.unwrap();
    let held = permits.try_acquire();
    assert!(call(&mut service, 1).await.unwrap_err().is_no_room());
    drop(held);
    assert_eq!(reports.taken(), ["passed", "refused"]);
}

#[tokio::test(start_paused = true)]
async fn around_the_switch_an_observer_sees_shadowed_requests_and_inside_it_refused_ones() {
    let (inside, outside) = (Reports::default(), Reports::default());
    let switch = Switch::new().with_mode(Mode::Shadow);
    let rates = Observed::new(once().shared(), inside.observer()).switched(&switch);
    let rates = EnforceLayer::new(Observed::new(rates, outside.observer())).layer(echo());
    assert!(second(&rates, 1).await);
    assert_eq!(inside.taken(), ["passed", "refused"]);
    assert_eq!(outside.taken(), ["passed", "shadowed"]);

    switch.set_mode(Mode::Off);
    assert!(rates.clone().oneshot(1).await.is_ok());
    assert_eq!((inside.taken(), outside.taken()), (vec![], vec!["passed"]));

    switch.set_mode(Mode::Active);
    assert!(rates.clone().oneshot(1).await.is_err());
    assert_eq!(inside.taken(), ["refused"]);
    assert_eq!(outside.taken(), ["refused"]);
}

/// A line that is full or closed has not failed: nothing passes it, although a failure would open the layer.
#[tokio::test(start_paused = true)]
async fn what_a_line_refuses_does_not_pass_a_layer_that_is_open_on_failure() {
    let line = Line::new(once().shared()).with_max_waiting(1);
    let lines = Line::new(once().keyed()).with_max_waiting(1);
    let pace = PaceLayer::new(line.clone());
    let by_key = PaceLayer::by_key(lines.clone(), ITSELF);
    let seen = PaceLayer::new(Observed::new(line.clone().switched(&Switch::new()), drop));
    let enforce = EnforceLayer::new(line.clone());
    let at_once = [1; 4].map(|n| pace.layer(echo()).oneshot(n));
    let by_key_at_once = [1; 4].map(|n| by_key.layer(echo()).oneshot(n));
    let (one, keyed) = futures::join!(join_all(at_once), join_all(by_key_at_once));
    for answers in [one, keyed] {
        let passed = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(passed, 2, "one at once, and the one that waits");
        assert!(answers[2].as_ref().unwrap_err().is_no_room());
    }
    line.close();
    lines.close();
    for n in 2..5 {
        let answers = [
            pace.layer(echo()).oneshot(n).await,
            by_key.layer(echo()).oneshot(n).await,
            seen.layer(echo()).oneshot(n).await,
            enforce.layer(echo()).oneshot(n).await,
        ];
        for answer in answers {
            assert!(answer.unwrap_err().is_no_room());
        }
    }
    let failures = [pace.failures(), by_key.failures(), seen.failures()];
    assert_eq!(failures.map(|failures| failures.errors), [0; 3]);
}
