use std::convert::Infallible;

use ::tower::{Layer, service_fn};
use http::{HeaderValue, Request, Response};
use paceline::concurrency::KeyedPermits;
use paceline::limiter::{Keyed, KeyedAt, Limiter, Limits, PolicyExt};
use paceline::policy::{FixedWindow, Interval};
use paceline_tower::{
    Answers, ConcurrencyLayer, EnforceLayer, Failures, FeedbackLayer, For, OnMissingKey, PaceLayer,
    extension_key, header_key, host_key,
};

use super::{call, hello};
use crate::timed::{ms, now, since};

/// As limits and permits in Redis: a key has 1 to 200 bytes.
#[derive(Clone)]
struct Short<L>(L);

impl<L: Limits<String>> Limits<String> for Short<L> {
    type Limit = L::Limit;
    type Error = ();

    fn at(&self, key: String) -> Result<Self::Limit, ()> {
        let is_short = matches!(key.len(), 1..=200);
        is_short.then(|| self.0.at(key).ok()).flatten().ok_or(())
    }
}

fn once_a_minute() -> Keyed<String, FixedWindow> {
    FixedWindow::new(1, ms(60_000)).keyed()
}

fn with_user(user: &[u8]) -> Request<()> {
    let user = HeaderValue::from_bytes(user).unwrap();
    Request::get("/").header("x-user", user).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_header_limits_its_absence_does_not_and_a_key_that_cannot_be_is_400_without_its_value() {
    let limits = For::header(Short(once_a_minute()), "X-User");
    let layer = EnforceLayer::with_terms(limits).answering(Answers::new("users"));
    let mut service = layer.layer(hello());
    let secret = "s3cret".repeat(40);
    for (request, status) in [
        (with_user(b"ann"), 200),
        (with_user(b"ann"), 429),
        (with_user(b"bob"), 200),
        (Request::new(()), 200),
        (Request::new(()), 200),
        (with_user(b""), 400),
        (with_user(secret.as_bytes()), 400),
    ] {
        let response = call(&mut service, request).await.unwrap();
        assert_eq!(response.status(), status);
        if status == 400 {
            assert_eq!(response.headers().len(), 1, "the content type");
            assert_eq!(
                response.body(),
                r#"{"title":"Bad Request","status":400,"detail":"the key in header `X-User` cannot be used"}"#
            );
        }
    }
    let mut request = with_user(b"");
    let grpc = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert("content-type", grpc);
    let response = call(&mut service, request).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "3");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
}

#[tokio::test(start_paused = true)]
async fn a_header_has_permits_too() {
    let permits = For::header(Short(KeyedPermits::new(1)), "X-User");
    let layer = ConcurrencyLayer::with_terms(permits).at_once();
    let mut service = layer.answering(Answers::new("users")).layer(hello());
    let ann = call(&mut service, with_user(b"ann")).await.unwrap();
    for (user, status) in [("ann", 503), ("bob", 200), ("", 400)] {
        let response = call(&mut service, with_user(user.as_bytes())).await;
        assert_eq!(response.unwrap().status(), status, "{user}");
    }
    drop(ann);
    let response = call(&mut service, with_user(b"ann")).await.unwrap();
    assert_eq!(response.status(), 200);
    let free = call(&mut service, Request::new(())).await.unwrap();
    assert!(
        !free.body().is_held(),
        "without the header it is not limited"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_limits_refuse_is_refused_and_no_failure() {
    let layer = EnforceLayer::by_key(Short(once_a_minute()), header_key("x-user"));
    let mut service = layer.layer(hello());
    for (user, passes) in [("ann", true), ("ann", false), ("bob", true)] {
        let answer = call(&mut service, with_user(user.as_bytes())).await;
        assert_eq!(answer.is_ok(), passes, "{user}");
    }
    let error = call(&mut service, with_user(b"")).await.unwrap_err();
    assert!(error.is_bad_key() && !error.is_limiter_failed());
    assert_eq!(error.to_string(), "the key of the request cannot be used");
    assert_eq!(layer.failures(), Failures::default());
}

/// The statuses of three requests without a key, and then of one with it.
/// By header a layer asks with the borrowed key first, and by key with an own one.
#[tokio::test(start_paused = true)]
async fn a_limit_for_each_key_and_one_for_all_keys_are_one_layer() {
    let limits = || {
        let total = FixedWindow::new(3, ms(60_000)).shared();
        FixedWindow::new(2, ms(60_000)).keyed().with_total(total)
    };
    let layers = [
        EnforceLayer::with_terms(For::header(limits(), "x-user")),
        EnforceLayer::by_key(limits(), header_key("x-user")),
    ];
    for layer in layers {
        let answers = Answers::new("users").with_success_headers(true);
        let mut service = layer.answering(answers).layer(hello());
        for (user, status, left) in [
            ("ann", 200, 1),
            ("ann", 200, 0),
            ("ann", 429, 0),
            ("bob", 200, 0),
            ("bob", 429, 0),
        ] {
            let request = with_user(user.as_bytes());
            let response = call(&mut service, request).await.unwrap();
            assert_eq!(response.status(), status, "{user}");
            let told = format!(r#""users";r={left};t=60"#);
            assert_eq!(response.headers()["ratelimit"], told, "{user}");
        }
    }

    let total = Interval::every(ms(100)).shared();
    let users = Interval::every(ms(1_000)).keyed().with_total(total);
    let mut service = PaceLayer::by_key(users, header_key("x-user")).layer(hello());
    let start = now();
    for (user, at) in [("ann", 0), ("bob", 100), ("ann", 1_000), ("eve", 1_100)] {
        let request = with_user(user.as_bytes());
        call(&mut service, request).await.unwrap();
        assert_eq!(since(start), at, "{user}");
    }
}

async fn statuses(rule: OnMissingKey<KeyedAt<String, FixedWindow>>) -> [u16; 4] {
    let layer = EnforceLayer::by_key(once_a_minute(), header_key("x-user"));
    let layer = layer.on_missing_key(rule).answering(Answers::new("users"));
    let mut service = layer.layer(hello());
    let mut statuses = [0; 4];
    for (at, status) in statuses.iter_mut().enumerate() {
        let request = if at < 3 {
            Request::new(())
        } else {
            with_user(b"ann")
        };
        let response = call(&mut service, request).await.unwrap();
        *status = response.status().as_u16();
    }
    statuses
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_passes_is_refused_or_shares_one_limit() {
    assert_eq!(statuses(OnMissingKey::default()).await, [200; 4]);
    assert_eq!(statuses(OnMissingKey::Pass).await, [200; 4]);
    assert_eq!(statuses(OnMissingKey::Refuse).await, [400, 400, 400, 200]);
    let shared = once_a_minute().at("(nobody)".to_owned());
    let shared = OnMissingKey::Share(shared);
    assert_eq!(statuses(shared).await, [200, 429, 429, 200]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_missing_key_names_its_header_and_is_no_failure() {
    let terms = For::header(Short(once_a_minute()), "X-User");
    let layer = EnforceLayer::with_terms(terms.on_missing_key(OnMissingKey::Refuse));
    let mut service = layer.layer(hello());
    let error = call(&mut service, Request::new(())).await.unwrap_err();
    assert!(error.is_bad_key() && !error.is_limiter_failed());
    let text = "the key in header `X-User` is missing";
    assert_eq!(error.to_string(), text);
    let error = call(&mut service, with_user(b"")).await.unwrap_err();
    let text = "the key in header `X-User` cannot be used";
    assert_eq!(error.to_string(), text);
    assert!(call(&mut service, with_user(b"ann")).await.is_ok());
    assert_eq!(layer.failures(), Failures::default());

    let layer = EnforceLayer::by_key(once_a_minute(), header_key("x-user"));
    let mut service = layer.on_missing_key(OnMissingKey::Refuse).layer(hello());
    let error = call(&mut service, Request::new(())).await.unwrap_err();
    assert_eq!(error.to_string(), "the key of the request is missing");
}

#[tokio::test(start_paused = true)]
async fn permits_and_a_rate_that_waits_know_the_rule_too() {
    let permits = KeyedPermits::new(1);
    let shared = OnMissingKey::Share(permits.at("(nobody)".to_owned()));
    let layer = ConcurrencyLayer::by_key(permits, header_key("x-user"));
    let layer = layer.on_missing_key(shared).at_once();
    let mut service = layer.layer(hello());
    let held = call(&mut service, Request::new(())).await.unwrap();
    let refused = call(&mut service, Request::new(())).await.unwrap_err();
    assert!(refused.is_no_room());
    assert!(call(&mut service, with_user(b"ann")).await.is_ok());
    drop(held);
    assert!(call(&mut service, Request::new(())).await.is_ok());

    let hosts = once_a_minute();
    let shared = OnMissingKey::Share(hosts.at("(none)".to_owned()));
    let layer = PaceLayer::by_key(hosts, host_key()).on_missing_key(shared);
    let mut service = layer.within(ms(1)).layer(hello());
    assert!(call(&mut service, Request::new(())).await.is_ok());
    let late = call(&mut service, Request::new(())).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(60_000)));
}

#[tokio::test(start_paused = true)]
async fn a_response_pauses_the_limit_that_requests_without_a_key_share() {
    let hosts = once_a_minute();
    let nameless = hosts.at("(none)".to_owned());
    let terms = For::key(hosts, host_key());
    let terms = terms.on_missing_key(OnMissingKey::Share(nameless.clone()));
    let server = service_fn(|_: Request<()>| async {
        let response = Response::builder().status(429).header("retry-after", "7");
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let mut client = FeedbackLayer::with_terms(terms).layer(server);
    call(&mut client, Request::new(())).await.unwrap();
    assert_eq!(nameless.least_wait(1), ms(7_000));
}

#[tokio::test(start_paused = true)]
async fn one_limit_for_all_has_no_keys_to_miss() {
    let layer = EnforceLayer::new(FixedWindow::new(1, ms(60_000)).shared());
    let mut service = layer.on_missing_key(OnMissingKey::Refuse).layer(hello());
    assert!(call(&mut service, Request::new(())).await.is_ok());
    let error = call(&mut service, Request::new(())).await.unwrap_err();
    assert!(error.is_too_soon());
}

#[test]
fn a_value_of_any_bytes_is_a_key() {
    let key = header_key("x-user");
    assert_eq!(key(&with_user(b"ann")), Some("ann".to_owned()));
    assert_eq!(key(&with_user(b"a\xff")), Some("a\u{fffd}".to_owned()));
    assert_eq!(key(&with_user(b"")), Some(String::new()));
    assert_eq!(key(&Request::new(())), None);
}

#[test]
fn an_extension_is_a_key() {
    let key = extension_key::<u32, ()>();
    let mut request = Request::new(());
    assert_eq!(key(&request), None);
    request.extensions_mut().insert(7_u32);
    assert_eq!(key(&request), Some(7));
}

fn host(uri: &str, header: Option<&[u8]>) -> Option<String> {
    let mut request = Request::get(uri).body(()).unwrap();
    if let Some(header) = header {
        let header = HeaderValue::from_bytes(header).unwrap();
        request.headers_mut().insert("host", header);
    }
    host_key()(&request)
}

#[test]
fn the_host_of_a_uri_is_a_key_in_one_spelling() {
    for (uri, key) in [
        ("http://a.example/path?query", "a.example"),
        ("HTTP://A.Example:80/", "a.example"),
        ("https://a.example:443/", "a.example"),
        ("https://a.example:/", "a.example"),
        ("http://a.example:443/", "a.example:443"),
        ("https://a.example:80/", "a.example:80"),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
        ("http://[2001:DB8::1]:80/", "[2001:db8::1]"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]:81"),
        ("http://ann:s3cret@a.example/", "a.example"),
        ("a.example:443", "a.example:443"),
    ] {
        let key = Some(key.to_owned());
        assert_eq!(host(uri, None), key, "{uri}");
        assert_eq!(host(uri, Some(b"b.example")), key, "the URI counts: {uri}");
    }
}

#[test]
fn without_a_host_in_the_uri_the_header_is_the_key() {
    for (header, key) in [
        (&b"A.example"[..], Some("a.example")),
        (b"a.example:8080", Some("a.example:8080")),
        (b"[::1]:8080", Some("[::1]:8080")),
        (b"", None),
        (b"a b", None),
        (b"\xff", None),
    ] {
        assert_eq!(host("/path", Some(header)).as_deref(), key, "{header:?}");
    }
    assert_eq!(host("/path", None), None);
}
