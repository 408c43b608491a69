//! Layers on an axum router, which takes a service that cannot fail.

use std::net::SocketAddr;

use ::axum::Router;
use ::axum::body::Body;
use ::axum::extract::{ConnectInfo, Request};
use ::axum::response::Response;
use ::axum::routing::get;
use ::tower::ServiceExt;
use http::request::Parts;
use http_body_util::BodyExt;
use paceline::concurrency::{Adaptive, Aimd, Permits};
use paceline::limiter::PolicyExt;
use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_tower::{
    AdaptiveLayer, Answers, ClientIp, ConcurrencyLayer, EnforceLayer, PaceLayer, Refusal,
    header_key,
};
use testkit::clock::Stopwatch;

use super::per_second;

fn refused(head: &Parts, refusal: &Refusal) -> Response {
    let is_excess = refusal.is_quota_exceeded();
    let status = if is_excess { 429 } else { 503 };
    let body = format!("{}: {refusal}", head.uri.path());
    let response = Response::builder().status(status);
    response.body(Body::from(body)).unwrap()
}

fn from(user: &str, path: &str) -> Request {
    let request = Request::get(path).header("x-user", user);
    request.body(Body::empty()).unwrap()
}

async fn text(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_limit_for_each_user_needs_no_error_handler() {
    let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
    let limit = EnforceLayer::by_key(users, header_key("x-user"));
    let app = Router::new()
        .route("/data", get(async || "data"))
        .layer(limit.answering_with(refused))
        .route("/status", get(async || "up"));

    for (user, path, expected) in [
        ("ann", "/data", (200, "data")),
        ("ann", "/data", (200, "data")),
        (
            "ann",
            "/data",
            (429, "/data: rate limit exceeded, retry in 1s"),
        ),
        ("bob", "/data", (200, "data")),
        ("ann", "/status", (200, "up")),
    ] {
        let Ok(response) = app.clone().oneshot(from(user, path)).await;
        let (status, body) = text(response).await;
        assert_eq!((status, &*body), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_peer_of_a_connection_is_a_key_without_a_closure() {
    let clients = TokenBucket::new(Rate::per_second(1), 1).keyed();
    let client = ClientIp::peer::<ConnectInfo<SocketAddr>>();
    let limit = EnforceLayer::by_key(clients, client.clone().into_key());
    let app = Router::new()
        .route("/", get(async || "data"))
        .layer(limit.answering_with(refused));
    let from = |peer: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        let request = Request::get("/").extension(ConnectInfo(peer));
        request.body(Body::empty()).unwrap()
    };
    for (peer, expected) in [
        ("192.0.2.1:80", 200),
        ("192.0.2.1:81", 429),
        ("192.0.2.2:80", 200),
        ("[2001:db8::1]:80", 200),
        ("[2001:db8::2]:80", 429),
    ] {
        let Ok(response) = app.clone().oneshot(from(peer)).await;
        assert_eq!(response.status(), expected, "{peer}");
    }
    assert_eq!(client.key(&from("192.0.2.1:80")).to_string(), "192.0.2.1");
    assert_eq!(client.key(&Request::new(())).to_string(), "unknown");
}

#[tokio::test(start_paused = true)]
async fn waiting_permits_and_a_limit_that_follows_the_answers_need_no_error_handler_either() {
    let permits = Permits::new(1);
    let concurrency = ConcurrencyLayer::new(permits.clone()).at_once();
    let adaptive = AdaptiveLayer::new(Adaptive::new(Aimd::new(1, 100).with_start(8)));
    let app = Router::new()
        .route("/", get(async || "a body"))
        .layer(concurrency.answering_with(refused))
        .layer(adaptive.at_once().answering_with(refused))
        .layer(PaceLayer::new(per_second(1)).answering(Answers::new("api")));
    let watch = Stopwatch::start();
    let Ok(first) = app.clone().oneshot(from("ann", "/")).await;
    let Ok(second) = app.clone().oneshot(from("ann", "/")).await;
    assert_eq!(watch.elapsed_ms(), 1_000);
    assert_eq!(
        text(second).await,
        (503, "/: too many requests are under way".to_owned())
    );
    assert_eq!(permits.in_use(), 1, "the first body is not read yet");
    assert_eq!(text(first).await, (200, "a body".to_owned()));
    assert_eq!(permits.in_use(), 0);
}
