//! Layers with a switch and with an observer.

use std::sync::{Arc, Mutex};

use ::tower::{Layer, Service, ServiceExt};
use futures::future::join_all;
use http::Request;
use paceline::concurrency::{Adaptive, KeyedPermits, Outcome, Permits};
use paceline::limiter::{
    Event, KeyedAt, Line, Mode, Observed, PolicyExt, Share, Shared, Switch, SwitchExt, Switched,
};
use paceline::policy::{FixedWindow, Interval};
use paceline_tower::{AdaptiveLayer, ConcurrencyLayer, EnforceLayer, For, PaceLayer};
use testkit::probe::service::{Inner, Part};
use testkit::wakes::Driven;

use super::{call, echo, get, hello};
use crate::recorded::{Recorded, outcomes, success};
use crate::timed::{ms, now, since, sleep};

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

#[tokio::test(start_paused = true)]
async fn the_keys_in_the_share_are_those_of_the_switch_for_rates_and_for_permits() {
    let switch = Switch::new().with_share(Share::percent(30));
    let rates = EnforceLayer::by_key(once().keyed().switched(&switch), ITSELF);
    let rates = rates.layer(echo());
    let permits = KeyedPermits::new(1);
    let held: Vec<_> = (0..200_u32).map(|n| permits.try_acquire(&n)).collect();
    let layer = ConcurrencyLayer::by_key(permits.switched(&switch), ITSELF);
    let mut permits = layer.until_response().at_once().layer(echo());
    for n in 0..200_u32 {
        let is_free = !switch.share().includes(&n);
        assert_eq!(second(&rates, n).await, is_free, "{n}");
        assert_eq!(call(&mut permits, n).await.is_ok(), is_free, "{n}");
    }
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_more_requests_are_under_way_than_there_are_permits() {
    let permits = Permits::new(2);
    let switch = Switch::new().with_mode(Mode::Shadow);
    let inner = Inner::new().taking(ms(100));
    let layer = ConcurrencyLayer::new(permits.clone().switched(&switch));
    let service = layer.until_response().layer(inner.clone());
    let calls = (0..5).map(|_| tokio::spawn(service.clone().oneshot(get("/"))));
    let calls: Vec<_> = calls.collect();
    sleep(50).await;
    assert_eq!((inner.used().in_flight, permits.in_use()), (5, 2));
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    assert_eq!((permits.in_use(), switch.stats().held_back), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_switch_lets_requests_go_that_wait() {
    let start = now();
    let switch = Switch::new();
    let limit = Interval::every(ms(1_000)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let paced = PaceLayer::new(limit.clone().switched(&switch)).layer(echo());
    let permits = Permits::new(1);
    let _held = permits.try_acquire();
    let layer = ConcurrencyLayer::new(permits.clone().switched(&switch));
    let held = layer.until_response().layer(echo());
    let waiting = [
        tokio::spawn(async move { paced.oneshot(1).await.is_ok() }),
        tokio::spawn(async move { held.oneshot(1).await.is_ok() }),
    ];
    sleep(30).await;
    assert_eq!((limit.stats().waiting, permits.stats().waiting), (1, 1));
    switch.set_mode(Mode::Off);
    for task in waiting {
        assert!(task.await.unwrap());
    }
    assert_eq!(since(start), 30);
    assert_eq!((limit.stats().waiting, permits.stats().waiting), (0, 0));
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
    let permits = Permits::new(1);
    let limit = Observed::new(permits.clone(), inside.observer()).switched(&switch);
    let layer = ConcurrencyLayer::new(Observed::new(limit, outside.observer()));
    let mut held = layer.at_once().until_response().layer(echo());

    assert!(second(&rates, 1).await);
    assert_eq!(inside.taken(), ["passed", "refused"]);
    assert_eq!(outside.taken(), ["passed", "shadowed"]);
    call(&mut held, 1).await.unwrap();
    let permit = permits.try_acquire();
    call(&mut held, 1).await.unwrap();
    assert_eq!(inside.taken(), ["passed", "refused"]);
    assert_eq!(outside.taken(), ["passed", "shadowed"]);

    switch.set_mode(Mode::Off);
    assert!(call(&mut held, 1).await.is_ok() && call(&mut rates.clone(), 1).await.is_ok());
    assert!(inside.taken().is_empty());
    assert_eq!(outside.taken(), ["passed", "passed"]);

    switch.set_mode(Mode::Active);
    assert!(call(&mut held, 1).await.is_err() && call(&mut rates.clone(), 1).await.is_err());
    assert_eq!(inside.taken(), ["refused", "refused"]);
    assert_eq!(outside.taken(), ["refused", "refused"]);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn terms_of_your_own_can_have_both_too() {
    let reports = Reports::default();
    let switch = Switch::new();
    let limit = Observed::new(once().shared(), reports.observer()).switched(&switch);
    let even = For::each(move |n: &u32| Ok((n % 2 == 0).then(|| limit.clone())));
    let mut service = EnforceLayer::with_terms(even).layer(echo());
    for n in [0, 1, 2, 3] {
        assert_eq!(call(&mut service, n).await.is_ok(), n != 2);
    }
    switch.set_mode(Mode::Shadow);
    assert!(call(&mut service, 4).await.is_ok());
    assert_eq!(reports.taken(), ["passed", "refused", "refused"]);
}

/// What programs write down: the types with a switch have names, and a layer without one keeps its own.
#[tokio::test(start_paused = true)]
async fn the_type_of_a_layer_says_what_wraps_its_limit() {
    struct App {
        layer: EnforceLayer<For<Request<()>, Switched<Shared<FixedWindow>>>>,
        keys: EnforceLayer<For<Request<()>, KeyedAt<String, FixedWindow>>>,
    }
    let keys = For::header(once().keyed(), "x-user");
    let app = App {
        layer: EnforceLayer::new(once().shared().switched(&Switch::new())),
        keys: EnforceLayer::with_terms(keys),
    };
    let mut service = app.layer.layer(app.keys.layer(hello()));
    assert!(call(&mut service, get("/")).await.is_ok());
    assert!(call(&mut service, get("/")).await.is_err());
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
