//! What a response says about its host, and what becomes of the next requests.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};
use paceline::feedback::{Caps, Feedback};
use paceline::limiter::future::Obeying;
use paceline::limiter::{
    Event, Keyed, Limiter, Mode, Obey, Observed, PolicyExt, Shared, Switch, Switched,
};
use paceline::policy::{Decision, Interval, SlidingLog};
use paceline_tower::future::Terms;
use paceline_tower::{Failures, FeedbackLayer, For, PaceLayer, host_key};
use testkit::clock::{Stopwatch, jump};
use testkit::probe::service::{Inner, InnerError};
use testkit::wakes::Driven;

use super::{NeverReady, call, get, per_second};
use crate::timed::{ms, sleep};

/// 2023-11-14 22:13:20 UTC.
const NOW_UNIX: Duration = Duration::from_secs(1_700_000_000);

type Pairs<'a> = &'a [(&'static str, &'static str)];

type Obedient = FeedbackLayer<For<Request<()>, Shared<Interval>>>;

fn hosts() -> Keyed<String, Interval> {
    Interval::every(ms(100)).keyed()
}

fn limit() -> Shared<Interval> {
    Interval::every(ms(100)).shared()
}

/// A host that answers so to each request.
fn answering(
    status: u16,
    headers: Pairs<'static>,
) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    service_fn(move |_| ready(Ok(response(status, headers))))
}

fn response(status: u16, headers: Pairs<'_>) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap()
}

/// For how many milliseconds one response pauses the limit of this layer.
async fn paused_by(
    layer: impl FnOnce(Obedient) -> Obedient,
    status: u16,
    headers: Pairs<'static>,
) -> Option<u128> {
    let limit = limit();
    let layer = layer(FeedbackLayer::new(limit.clone()));
    let mut service = layer.layer(answering(status, headers));
    let passed = call(&mut service, get("/")).await.unwrap();
    assert_eq!(passed.status(), status, "the response passes");
    assert_eq!(layer.failures(), Failures::default());
    limit.paused_for().map(|pause| pause.as_millis())
}

/// Each response pauses its limit for so many milliseconds.
async fn assert_pauses(cases: &[(u16, Pairs<'static>, Option<u128>)]) {
    for (status, headers, expected) in cases {
        let with_clock = |layer: Obedient| layer.with_now_unix(|| NOW_UNIX);
        let pause = paused_by(with_clock, *status, headers).await;
        assert_eq!(pause, *expected, "{status} {headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_pauses_its_host_and_no_other_also_for_requests_that_wait_already() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (noted, watch) = (Arc::clone(&sent), Stopwatch::start());
    let client = service_fn(move |request: Request<()>| {
        let entry = (watch.elapsed_ms(), request.uri().to_string());
        noted.lock().unwrap().push(entry);
        ready(Ok::<_, Infallible>(match request.uri().path() {
            "/refused" => response(429, &[("retry-after", "2")]),
            _ => response(200, &[]),
        }))
    });
    let layer = PaceLayer::by_key(hosts(), host_key()).obeying();
    let service = layer.layer(client);
    let uris = [
        "http://a/1",
        "http://a/refused",
        "http://a/2",
        "http://A:80/3",
        "http://a:81/1",
        "http://b/1",
        "http://b/2",
        "http://b/3",
    ];
    join_all(uris.map(|uri| service.clone().oneshot(get(uri)))).await;
    let mut sent = sent.lock().unwrap().clone();
    sent.sort();
    let sent: Vec<_> = sent.iter().map(|(at, uri)| (*at, uri.as_str())).collect();
    let expected = [
        (0, "http://a/1"),
        (0, "http://a:81/1"),
        (0, "http://b/1"),
        (100, "http://a/refused"),
        (100, "http://b/2"),
        (200, "http://b/3"),
        (2_100, "http://a/2"),
        (2_200, "http://A:80/3"),
    ];
    assert_eq!(sent, expected);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_quota_pauses_before_the_first_refusal_and_one_with_requests_left_does_not() {
    let exhausted = &[("ratelimit", r#""a";r=0;t=30"#)];
    let reset = &[
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1700000007"),
    ];
    let window = &[
        ("ratelimit-policy", r#""a";q=10;w=5"#),
        ("ratelimit", r#""a";r=0"#),
    ];
    let left = &[
        ("ratelimit-policy", r#""a";q=1;w=3600"#),
        ("ratelimit", r#""a";r=1;t=3600"#),
    ];
    assert_pauses(&[
        (200, exhausted, Some(30_000)),
        (404, exhausted, Some(30_000)),
        (200, reset, Some(7_000)),
        (200, window, Some(5_000)),
        (200, left, None),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_429_that_does_not_say_how_long_pauses_until_the_reset_or_for_the_fallback() {
    assert_pauses(&[
        (429, &[], Some(1_000)),
        (429, &[("retry-after", "soon")], Some(1_000)),
        (429, &[("x-ratelimit-reset", "17")], Some(17_000)),
        (429, &[("retry-after", "0")], None),
    ])
    .await;
    for (fallback, expected) in [(250, Some(250)), (0, None)] {
        let with_fallback = |layer: Obedient| layer.with_fallback_pause(ms(fallback));
        assert_eq!(paused_by(with_fallback, 429, &[]).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn other_statuses_pause_only_if_their_headers_ask_for_it() {
    for status in [200, 204, 400, 403, 404, 500, 503] {
        let asks = &[("retry-after", "2")];
        assert_pauses(&[(status, &[], None), (status, asks, Some(2_000))]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_retry_after_of_a_job_or_of_a_redirection_does_not_pause_the_host_but_its_quota_does() {
    for status in [201, 202, 301, 307] {
        let of_job = &[("retry-after", "20")];
        let quota = &[("retry-after", "20"), ("ratelimit", r#""a";r=0;t=3"#)];
        assert_pauses(&[(status, of_job, None), (status, quota, Some(3_000))]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_date_is_compared_with_that_of_the_response_and_else_with_the_clock() {
    let ours = &[("retry-after", "Tue, 14 Nov 2023 22:13:30 GMT")];
    let theirs = &[
        ("date", "Tue, 14 Nov 2023 22:13:26 GMT"),
        ("retry-after", "Tue, 14 Nov 2023 22:13:30 GMT"),
    ];
    let past = &[("retry-after", "Tue, 14 Nov 2023 22:13:10 GMT")];
    assert_pauses(&[
        (503, ours, Some(10_000)),
        (503, theirs, Some(4_000)),
        (503, past, None),
    ])
    .await;
    let by_the_machine = paused_by(|layer| layer, 503, ours).await;
    assert_eq!(by_the_machine, None, "it is in the past");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_cut_to_the_caps() {
    let caps = Caps::new().with_longest_pause(ms(60_000));
    let with_caps = |layer: Obedient| layer.with_caps(caps);
    let pause = paused_by(with_caps, 503, &[("retry-after", "86400")]).await;
    assert_eq!(pause, Some(60_000));
}

#[tokio::test(start_paused = true)]
async fn any_response_arrives_untouched() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("retry-after", &b"\xff\xfe"[..]),
        ("retry-after", b""),
        ("retry-after", b"-5"),
        ("retry-after", b"99999999999999999999999999999999"),
        ("ratelimit", b"\"a;r=;;;t==,,"),
        ("ratelimit-policy", b"((((("),
        ("x-ratelimit-reset", b"NaN"),
        ("date", b"yesterday"),
        ("set-cookie", b"a=1"),
        ("set-cookie", b"b=2"),
    ] {
        let value = HeaderValue::from_bytes(value).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    let sent = headers.clone();
    let client = service_fn(move |_: Request<()>| {
        let mut response = Response::new(b"\x00\xffbody".to_vec());
        *response.status_mut() = 429.try_into().unwrap();
        *response.version_mut() = Version::HTTP_10;
        *response.headers_mut() = sent.clone();
        response.extensions_mut().insert(7_u32);
        ready(Ok::<_, Infallible>(response))
    });
    let layer = FeedbackLayer::new(limit());
    let response = call(&mut layer.layer(client), get("/")).await.unwrap();
    assert_eq!(layer.failures(), Failures::default());
    assert_eq!(response.status(), 429);
    assert_eq!(response.version(), Version::HTTP_10);
    assert_eq!(*response.headers(), headers);
    assert_eq!(response.extensions().get(), Some(&7_u32));
    assert_eq!(response.body(), b"\x00\xffbody");
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_as_the_inner_service_is() {
    let layer = FeedbackLayer::new(limit());
    // It need not be `Clone`.
    let mut never = layer.layer(NeverReady.boxed());
    assert_eq!(call(&mut never, get("/")).await.unwrap_err(), InnerError);

    let inner = Inner::new();
    inner.set_ready(false);
    let mut service = layer.layer(inner.clone());
    let mut ready = Driven::new(ServiceExt::<Request<()>>::ready(&mut service));
    assert!(ready.poll().is_pending());
    inner.set_ready(true);
    assert!(ready.is_woken() && ready.poll().is_ready());
    assert_eq!(
        inner.used().reserved,
        1,
        "the reservation is that of this clone"
    );
    drop(ready);
    service.call(get("/")).await.unwrap();
    let used = inner.used();
    assert_eq!((used.calls, used.calls_unready, used.reserved), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_pauses_nothing() {
    let hosts = hosts();
    let layer = FeedbackLayer::by_key(hosts.clone(), host_key());
    let mut service = layer.layer(answering(429, &[("retry-after", "2")]));
    call(&mut service, get("/no/host")).await.unwrap();
    assert!(hosts.is_empty());
    call(&mut service, get("http://a/")).await.unwrap();
    assert_eq!(hosts.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_reads_nothing_and_keeps_no_key() {
    let hosts = hosts();
    let inner = Inner::new().taking(ms(50));
    let layer = FeedbackLayer::by_key(hosts.clone(), host_key());
    let mut service = layer.layer(inner.clone());
    let mut dropped = Driven::new(call(&mut service, get("http://a/")));
    assert!(dropped.poll().is_pending());
    assert_eq!(inner.used().in_flight, 1);
    drop(dropped);
    assert_eq!((inner.used().in_flight, hosts.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_read_late_pauses_from_then_on() {
    let limit = limit();
    let client = service_fn(|_: Request<()>| async {
        sleep(100).await;
        Ok::<_, Infallible>(response(429, &[("retry-after", "2")]))
    });
    let mut service = FeedbackLayer::new(limit.clone()).layer(client);
    let mut late = Driven::new(service.call(get("/")));
    assert!(late.poll().is_pending());
    jump(ms(5_000)).await;
    assert_eq!(limit.paused_for(), None);
    assert!(late.poll().is_ready());
    assert_eq!(limit.paused_for(), Some(ms(2_000)));
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_panics_does_not_lose_the_response() {
    async fn assert_counts<T>(layer: FeedbackLayer<T>, panics: u64, key_panics: u64)
    where
        T: Terms<Request = Request<()>, Limit: Obey> + Clone,
    {
        let mut service = layer.layer(answering(429, &[("retry-after", "2")]));
        assert_eq!(call(&mut service, get("/")).await.unwrap().status(), 429);
        let failures = layer.failures();
        assert_eq!((failures.panics, failures.key_panics), (panics, key_panics));
    }
    let observed = limit().with_observer(|_: Event| panic!("planted"));
    assert_counts(FeedbackLayer::new(observed), 1, 0).await;
    let without_clock = FeedbackLayer::new(limit()).with_now_unix(|| panic!("planted"));
    assert_counts(without_clock, 1, 0).await;
    let key = |_: &Request<()>| -> Option<String> { panic!("planted") };
    assert_counts(FeedbackLayer::by_key(hosts(), key), 0, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_switched_and_an_observed_limit_obey_too() {
    let headers = &[("retry-after", "2")];
    let switch = Switch::new();
    let hosts = hosts();
    let switched = Switched::new(hosts.clone(), switch.clone());
    let layer = PaceLayer::by_key(switched, host_key()).obeying();
    let mut service = layer.layer(answering(429, headers));
    call(&mut service, get("http://a/")).await.unwrap();
    let retry_in = ms(2_000);
    assert_eq!(hosts.try_acquire("a", 1), Decision::Wait { retry_in });
    switch.set_mode(Mode::Off);
    let watch = Stopwatch::start();
    call(&mut service, get("http://a/")).await.unwrap();
    assert_eq!(
        watch.elapsed_ms(),
        0,
        "the pause holds where the limit does"
    );

    let limit = limit();
    let observed = Observed::new(limit.clone(), |_: Event| ());
    let layer = PaceLayer::new(observed).obeying();
    call(&mut layer.layer(answering(429, headers)), get("/"))
        .await
        .unwrap();
    assert_eq!(limit.paused_for(), Some(ms(2_000)));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_too_late_for_the_pause_is_refused_at_once() {
    let layer = PaceLayer::new(SlidingLog::new(1, ms(1_000)).shared());
    let layer = layer.within(ms(1_500)).obeying();
    let service = layer.layer(answering(429, &[("retry-after", "2")]));
    let watch = Stopwatch::start();
    call(&mut service.clone(), get("/")).await.unwrap();
    let error = call(&mut service.clone(), get("/")).await.unwrap_err();
    assert!(error.is_too_late());
    assert_eq!(error.retry_in(), Some(ms(2_000)));
    assert_eq!(watch.elapsed_ms(), 0);
}

/// A limit on a server, to which a pause takes a round trip.
#[derive(Clone)]
struct OnServer {
    paused: Arc<Mutex<Vec<Duration>>>,
    ends: End,
}

#[derive(Clone, Copy)]
enum End {
    Done,
    Error,
    Panic,
}

impl OnServer {
    fn new(ends: End) -> Self {
        let paused = Arc::default();
        Self { paused, ends }
    }
}

impl Limiter for OnServer {
    type Error = &'static str;

    fn poll_decide(&mut self, _: u32, _: &mut Context<'_>) -> Poll<Result<Decision, &'static str>> {
        Poll::Ready(Ok(Decision::Pass))
    }

    fn give_up(&mut self) {}
}

impl Obey for OnServer {
    type Error = &'static str;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<&'static str>> {
        let (paused, ends) = (Arc::clone(&self.paused), self.ends);
        let pause = feedback.pause().unwrap();
        Some(Box::pin(async move {
            sleep(30).await;
            paused.lock().unwrap().push(pause);
            match ends {
                End::Done => Ok(()),
                End::Error => Err("the server is gone"),
                End::Panic => panic!("planted"),
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_asks_for_a_pause_waits_until_the_server_knows_of_it() {
    for (ends, errors, panics) in [(End::Done, 0, 0), (End::Error, 1, 0), (End::Panic, 0, 1)] {
        let limit = OnServer::new(ends);
        let layer = FeedbackLayer::new(limit.clone());
        let watch = Stopwatch::start();
        let mut service = layer.layer(answering(200, &[("ratelimit", r#""a";r=3;t=3"#)]));
        call(&mut service, get("/")).await.unwrap();
        assert_eq!(watch.elapsed_ms(), 0, "no call without a pause");

        let mut service = layer.layer(answering(429, &[("retry-after", "2")]));
        let response = call(&mut service, get("/")).await.unwrap();
        assert_eq!((response.status().as_u16(), watch.elapsed_ms()), (429, 30));
        assert_eq!(*limit.paused.lock().unwrap(), [ms(2_000)]);
        let failures = layer.failures();
        assert_eq!((failures.errors, failures.panics), (errors, panics));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_the_server_learns_of_a_pause_drops_that_too() {
    let limit = OnServer::new(End::Done);
    let layer = FeedbackLayer::new(limit.clone());
    let mut service = layer.layer(answering(429, &[("retry-after", "2")]));
    let mut dropped = Driven::new(service.call(get("/")));
    assert!(dropped.poll().is_pending());
    assert_eq!(
        Arc::strong_count(&limit.paused),
        4,
        "layer, service and call"
    );
    drop(dropped);
    assert_eq!(Arc::strong_count(&limit.paused), 3);
    assert!(limit.paused.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cost_and_own_terms_are_kept() {
    let limit = per_second(4);
    let layer = PaceLayer::new(limit.clone()).costing(|_: &Request<()>| 3);
    let mut service = layer
        .obeying()
        .layer(answering(503, &[("retry-after", "2")]));
    call(&mut service, get("/")).await.unwrap();
    let status = limit.status().unwrap();
    assert_eq!(status.reset_in, ms(2_000), "paused");
    limit.resume();
    assert_eq!(limit.status().unwrap().remaining, 1, "3 of 4 were charged");
}
