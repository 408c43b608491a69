use ::tower::Layer;
use http::{HeaderValue, Request};
use paceline::concurrency::KeyedPermits;
use paceline::limiter::{Keyed, Limits, PolicyExt};
use paceline::policy::FixedWindow;
use paceline_tower::{
    Answers, ConcurrencyLayer, EnforceLayer, Failures, For, extension_key, header_key, host_key,
};

use super::{call, hello};
use crate::timed::ms;

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
