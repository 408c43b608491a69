use std::convert::Infallible;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use paceline::concurrency::{KeyedPermits, PermitsAt};
use paceline::limiter::{Limits, PolicyExt, Shared};
use paceline::policy::FixedWindow;
use paceline_tower::{
    Answers, ConcurrencyLayer, EnforceLayer, For, extension_key, header_key, host_key,
};

use super::call;
use crate::timed::ms;

/// As limits in Redis: a key has 1 to 200 bytes.
#[derive(Clone)]
struct Short(Shared<FixedWindow>);

impl Limits<String> for Short {
    type Limit = Shared<FixedWindow>;
    type Error = ();

    fn at(&self, key: String) -> Result<Self::Limit, ()> {
        let is_short = matches!(key.len(), 1..=200);
        is_short.then(|| self.0.clone()).ok_or(())
    }
}

fn with_user(user: &[u8]) -> Request<()> {
    let user = HeaderValue::from_bytes(user).unwrap();
    Request::get("/").header("x-user", user).body(()).unwrap()
}

fn answered() -> impl Service<Request<()>, Response = Response<String>, Error = Infallible> {
    let limits = Short(FixedWindow::new(1, ms(60_000)).shared());
    let layer = EnforceLayer::with_terms(For::header(limits, "X-User"));
    let ok = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) };
    layer.answering(Answers::new("users")).layer(service_fn(ok))
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_limits_refuse_is_400_and_names_the_header_but_not_the_value() {
    let mut service = answered();
    let secret = "s3cret".repeat(40);
    for user in ["", &secret] {
        let response = call(&mut service, with_user(user.as_bytes()))
            .await
            .unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers().len(), 1, "the content type");
        assert_eq!(
            response.body(),
            r#"{"title":"Bad Request","status":400,"detail":"the key in header `X-User` cannot be used"}"#
        );
    }
    let request = Request::post("/").header("content-type", "application/grpc");
    let request = request.header("x-user", "").body(()).unwrap();
    let response = call(&mut service, request).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "3");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
}

/// Permits that refuse the keys that Redis does.
#[derive(Clone)]
struct ShortPermits(KeyedPermits<String>);

impl Limits<String> for ShortPermits {
    type Limit = PermitsAt<String>;
    type Error = ();

    fn at(&self, key: String) -> Result<Self::Limit, ()> {
        let is_short = matches!(key.len(), 1..=200);
        is_short.then(|| self.0.at(key)).ok_or(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_has_permits_too_and_a_key_that_they_refuse_is_400_and_names_it() {
    let users = KeyedPermits::new(1);
    let permits = For::header(ShortPermits(users.clone()), "X-User");
    let layer = ConcurrencyLayer::with_terms(permits).at_once();
    let ok = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::from("ok"))) };
    let mut service = layer.answering(Answers::new("users")).layer(service_fn(ok));
    let ann = call(&mut service, with_user(b"ann")).await.unwrap();
    for (user, status) in [
        ("ann", 503),
        ("bob", 200),
        ("", 400),
        (&"x".repeat(201), 400),
    ] {
        let response = call(&mut service, with_user(user.as_bytes()))
            .await
            .unwrap();
        assert_eq!(response.status(), status, "{user}");
        if status == 400 {
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let detail = &br#""the key in header `X-User` cannot be used""#[..];
            assert!(body.windows(detail.len()).any(|part| part == detail));
        }
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
async fn a_header_limits_and_its_absence_does_not() {
    let mut service = answered();
    let mut statuses = Vec::new();
    for request in [
        with_user(b"ann"),
        with_user(b"ann"),
        Request::new(()),
        Request::new(()),
    ] {
        let response = call(&mut service, request).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200]);
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

#[tokio::test(start_paused = true)]
async fn a_key_of_a_header_fits_a_layer() {
    let users = FixedWindow::new(1, ms(60_000)).keyed();
    let layer = EnforceLayer::by_key(users, header_key("x-user"));
    let ok = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) };
    let service = layer.layer(service_fn(ok));
    for (user, passes) in [("ann", true), ("ann", false), ("bob", true)] {
        let answer = service.clone().oneshot(with_user(user.as_bytes())).await;
        assert_eq!(answer.is_ok(), passes, "{user}");
    }
}

#[test]
#[should_panic(expected = "`x user` is not the name of a header")]
fn a_name_that_no_header_has_panics_where_it_is_given() {
    let _ = header_key::<()>("x user");
}
