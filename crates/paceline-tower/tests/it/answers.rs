use std::convert::Infallible;
use std::time::Duration;

use ::tower::{Layer, ServiceExt, service_fn};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use paceline::concurrency::Permits;
use paceline::feedback::{Feedback, LimitHeaders, QuotaUnit};
use paceline::limiter::{PolicyExt, Shared};
use paceline::policy::{All, FixedWindow, TokenBucket};
use paceline::time::Rate;
use paceline_tower::{Answers, ConcurrencyLayer, EnforceLayer, Held, OnFailure, PaceLayer};
use serde_json::{Value, json};

use super::{Remote, call, get, hello};
use crate::timed::{ms, sleep};

fn minute(permits: u32) -> Shared<FixedWindow> {
    FixedWindow::new(permits, secs(60)).shared()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The answer to a request that comes 48 s after the only one that a limit of 1 a minute lets pass.
async fn refused(answers: Answers, request: Request<()>) -> Response<String> {
    let layer = EnforceLayer::new(minute(1)).answering(answers);
    let mut service = layer.layer(hello());
    assert_eq!(call(&mut service, get("/")).await.unwrap().body(), "hello");
    sleep(48_000).await;
    call(&mut service, request).await.unwrap()
}

fn headers(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let pairs = headers.iter();
    let pairs = pairs.map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    pairs
}

fn problem(response: &Response<String>) -> Value {
    serde_json::from_str(response.body()).unwrap()
}

fn grpc(content_type: &str) -> Request<()> {
    let request = Request::post("/greeter").header("content-type", content_type);
    request.body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_headers_and_the_problem_of_the_standards() {
    let response = refused(Answers::new("api"), get("/")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        headers(response.headers()),
        [
            ("content-type", "application/problem+json"),
            ("ratelimit", r#""api";r=0;t=12"#),
            ("ratelimit-policy", r#""api";q=1;w=60"#),
            ("retry-after", "12"),
        ]
    );
    assert_eq!(
        problem(&response),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "rate limit exceeded (1 per 60s), retry in 12 s",
            "violated-policies": ["api"],
        })
    );
}

#[tokio::test(start_paused = true)]
async fn the_problem_is_json_whatever_the_name_of_the_policy() {
    let name = r#"a "quoted" \ {name}%"#;
    let response = refused(Answers::new(name), get("/")).await;
    assert_eq!(problem(&response)["violated-policies"], json!([name]));
}

#[tokio::test(start_paused = true)]
async fn each_part_can_be_switched_off() {
    let off = Answers::new("api")
        .with_retry_after(false)
        .with_limit_headers(false)
        .with_problem(false);
    let response = refused(off.clone(), get("/")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers(response.headers()), []);
    assert_eq!(response.body(), "");

    let response = refused(off.with_grpc(false), grpc("application/grpc")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers(response.headers()), []);
}

#[tokio::test(start_paused = true)]
async fn the_window_of_a_refusal_ends_when_the_request_can_pass_and_not_when_the_bucket_is_full() {
    let limit = TokenBucket::new(Rate::per_minute(6), 2).shared();
    let answers = Answers::new("api").with_success_headers(true);
    let mut service = EnforceLayer::new(limit).answering(answers).layer(hello());
    call(&mut service, get("/")).await.unwrap();
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=20"#);
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=10"#);
    assert_eq!(response.headers()["retry-after"], "10");
    sleep(10_000).await;
    assert_eq!(call(&mut service, get("/")).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn jitter_only_adds_and_leaves_the_window_as_it_is() {
    let answers = Answers::new("api").with_jitter(secs(100));
    let mut service = EnforceLayer::new(minute(1))
        .answering(answers)
        .layer(hello());
    call(&mut service, get("/")).await.unwrap();
    sleep(48_000).await;
    let mut waits = Vec::new();
    for _ in 0..100 {
        let response = call(&mut service, get("/")).await.unwrap();
        assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=12"#);
        let wait = response.headers()["retry-after"].to_str().unwrap();
        waits.push(wait.parse::<u64>().unwrap());
    }
    assert!(waits.iter().all(|wait| (12..=112).contains(wait)));
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 10, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn what_can_never_pass_has_both_numbers_and_no_retry_after() {
    let layer = EnforceLayer::new(minute(5)).costing(|_: &Request<()>| 6);
    let service = layer.answering(Answers::new("api")).layer(hello());
    let response = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers().get("retry-after"), None);
    let detail = "a cost of 6 can never pass a limit of 5 at once (5 per 60s)";
    assert_eq!(problem(&response)["detail"], detail);

    let response = service.oneshot(grpc("application/grpc")).await.unwrap();
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
}

#[tokio::test(start_paused = true)]
async fn no_room_and_a_failed_limiter_are_503_for_a_capacity_that_is_reduced() {
    let permits = Permits::new(1);
    let _held = permits.try_acquire();
    let layer = ConcurrencyLayer::new(permits).at_once().until_response();
    let mut service = layer.answering(Answers::new("api")).layer(hello());
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(
        problem(&response),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporary Reduced Capacity",
            "status": 503,
            "detail": "too many requests are under way, retry in 1 s",
        })
    );
    // A pushback is a second if the wait is not known.
    let response = call(&mut service, grpc("application/grpc")).await.unwrap();
    let message = "too many requests are under way, retry in 1 s";
    assert_eq!(
        headers(response.headers()),
        [
            ("content-type", "application/grpc"),
            ("grpc-message", message),
            ("grpc-retry-pushback-ms", "1000"),
            ("grpc-status", "14"),
            ("retry-after", "1"),
        ]
    );

    let layer = EnforceLayer::new(Remote::failing_after(0)).on_failure(OnFailure::Closed);
    let mut service = layer.answering(Answers::new("api")).layer(hello());
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let detail = "the limiter failed, retry in 1 s";
    assert_eq!(problem(&response)["detail"], detail);
    let response = call(&mut service, grpc("application/grpc")).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "14");
}

#[tokio::test(start_paused = true)]
async fn bodies_of_another_type_lose_no_part_of_the_answer() {
    let permits = ConcurrencyLayer::new(Permits::new(2)).at_once();
    let answers = Answers::new("api").with_success_headers(true);
    let limit = EnforceLayer::new(minute(1));
    let limit = limit.answering(answers.with_body(Held::from));
    let mut service = limit.layer(permits.answering(Answers::new("room")).layer(hello()));

    let passed = call(&mut service, get("/")).await.unwrap();
    assert_eq!(
        headers(passed.headers()),
        [
            ("ratelimit", r#""api";r=0;t=60"#),
            ("ratelimit-policy", r#""api";q=1;w=60"#),
        ]
    );
    let refused = call(&mut service, get("/")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.body().is_held());
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["title"], "Quota Exceeded");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_too_long_is_429_with_the_time_that_is_left() {
    let layer = PaceLayer::new(minute(1)).within(secs(5));
    let mut service = layer.answering(Answers::new("api")).layer(hello());
    call(&mut service, get("/")).await.unwrap();
    sleep(48_000).await;
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "12");
    assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=12"#);
}

#[tokio::test(start_paused = true)]
async fn head_gets_the_headers_of_get_and_no_body() {
    let got = refused(Answers::new("api"), get("/")).await;
    let head = Request::head("/").body(()).unwrap();
    let response = refused(Answers::new("api"), head).await;
    assert_eq!(response.body(), "");
    let mut headers = response.headers().clone();
    let length = headers.remove("content-length").unwrap();
    assert_eq!(length, got.body().len().to_string().as_str());
    assert_eq!(&headers, got.headers());
}

#[tokio::test(start_paused = true)]
async fn grpc_gets_trailers_only() {
    let response = refused(Answers::new("100 % ok"), grpc("application/grpc+proto")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "");
    assert_eq!(
        headers(response.headers()),
        [
            ("content-type", "application/grpc"),
            (
                "grpc-message",
                "rate limit exceeded (1 per 60s), retry in 12 s"
            ),
            ("grpc-retry-pushback-ms", "12000"),
            ("grpc-status", "8"),
            ("ratelimit", r#""100 % ok";r=0;t=12"#),
            ("ratelimit-policy", r#""100 % ok";q=1;w=60"#),
            ("retry-after", "12"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_grpc_message_is_percent_encoded_and_a_wait_is_at_least_a_second_but_for_the_pushback() {
    // Microseconds have a letter outside of ASCII.
    let limit = FixedWindow::new(1, Duration::from_micros(900)).shared();
    let layer = EnforceLayer::new(limit).answering(Answers::new("api"));
    let mut service = layer.layer(hello());
    call(&mut service, get("/")).await.unwrap();
    let response = call(&mut service, grpc("application/grpc")).await.unwrap();
    let message = "rate limit exceeded (1 per 900%C2%B5s), retry in 1 s";
    assert_eq!(response.headers()["grpc-message"], message);
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1");
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["ratelimit"], r#""api";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn grpc_web_gets_its_own_content_type_and_a_protocol_that_is_none_a_problem() {
    let web = "application/grpc-web+proto";
    let response = refused(Answers::new("api"), grpc(web)).await;
    assert_eq!(response.headers()["content-type"], web);
    assert_eq!(response.headers()["grpc-status"], "8");
    let response = refused(Answers::new("api"), grpc("application/grpc-other")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(problem(&response)["title"], "Quota Exceeded");
}

#[tokio::test(start_paused = true)]
async fn successes_have_the_headers_by_choice_and_keep_their_own() {
    let own = service_fn(|_: Request<()>| async {
        let response = Response::builder()
            .header("ratelimit", r#""upstream";r=7;t=1"#)
            .header("x-ratelimit-limit", "10");
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    let plain = EnforceLayer::new(minute(3)).answering(Answers::new("api"));
    let response = call(&mut plain.layer(hello()), get("/")).await.unwrap();
    assert_eq!(headers(response.headers()), []);

    let answers = Answers::new("api").with_success_headers(true);
    let layer = EnforceLayer::new(minute(3)).answering(answers.with_legacy(true));
    let response = call(&mut layer.layer(hello()), get("/")).await.unwrap();
    assert_eq!(
        headers(response.headers()),
        [
            ("ratelimit", r#""api";r=2;t=60"#),
            ("ratelimit-policy", r#""api";q=3;w=60"#),
            ("x-ratelimit-limit", "3"),
            ("x-ratelimit-remaining", "2"),
            ("x-ratelimit-reset", "60"),
        ]
    );
    let response = call(&mut layer.layer(own), get("/")).await.unwrap();
    assert_eq!(
        headers(response.headers()),
        [
            ("ratelimit", r#""api";r=1;t=60"#),
            ("ratelimit", r#""upstream";r=7;t=1"#),
            ("ratelimit-policy", r#""api";q=3;w=60"#),
            ("x-ratelimit-limit", "10"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn several_layers_append_and_a_client_obeys_the_strictest() {
    let outer =
        EnforceLayer::new(minute(10)).answering(Answers::new("all").with_success_headers(true));
    let inner = EnforceLayer::new(FixedWindow::new(1, secs(5)).shared())
        .answering(Answers::new("burst").with_success_headers(true));
    let mut service = outer.layer(inner.layer(hello()));

    call(&mut service, get("/")).await.unwrap();
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        headers(response.headers())[1..],
        [
            ("ratelimit", r#""all";r=8;t=60"#),
            ("ratelimit", r#""burst";r=0;t=5"#),
            ("ratelimit-policy", r#""all";q=10;w=60"#),
            ("ratelimit-policy", r#""burst";q=1;w=5"#),
            ("retry-after", "5"),
        ]
    );
    let feedback = Feedback::parse(response.headers(), Duration::ZERO);
    assert_eq!(feedback.pause(), Some(secs(5)));
    assert_eq!(feedback.limits().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_several_that_refuses_is_the_violated_policy() {
    let limit = All::new((FixedWindow::new(9, secs(1)), FixedWindow::new(2, secs(60)))).shared();
    let headers = LimitHeaders::try_new("api").unwrap();
    let headers = headers.try_with_parts(["second", "minute"]).unwrap();
    let answers = Answers::from(headers.with_unit(QuotaUnit::ContentBytes));
    let layer = EnforceLayer::new(limit).answering(answers);
    let mut service = layer.layer(hello());
    for _ in 0..2 {
        call(&mut service, get("/")).await.unwrap();
    }
    let response = call(&mut service, get("/")).await.unwrap();
    let policy = r#""minute";q=2;qu="content-bytes";w=60"#;
    assert_eq!(response.headers()["ratelimit-policy"], policy);
    assert_eq!(problem(&response)["violated-policies"], json!(["minute"]));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_obeys_random_limits_is_never_refused_twice() {
    for _ in 0..200 {
        let rate = Rate::new(fastrand::u32(1..50), ms(fastrand::u64(1..90_000)));
        let limit = TokenBucket::new(rate, fastrand::u32(1..20)).shared();
        let jitter = ms(fastrand::u64(0..3_000));
        let answers = Answers::new("api")
            .with_jitter(jitter)
            .with_success_headers(fastrand::bool())
            .with_legacy(fastrand::bool());
        let mut service = EnforceLayer::new(limit).answering(answers).layer(hello());
        let mut refused = 0;
        while refused < 3 {
            let response = call(&mut service, get("/")).await.unwrap();
            if response.status() == 200 {
                continue;
            }
            refused += 1;
            let feedback = Feedback::parse(response.headers(), Duration::ZERO);
            assert_eq!(feedback.ignored(), []);
            tokio::time::advance(feedback.pause().unwrap()).await;
            assert_eq!(call(&mut service, get("/")).await.unwrap().status(), 200);
        }
    }
}
