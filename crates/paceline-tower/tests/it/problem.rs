//! The one writer of answers in place of a service's.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use paceline_tower::{Problem, ProblemFormat};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

fn value(response: &Response<String>) -> Value {
    serde_json::from_str(response.body()).unwrap()
}

fn in_json(problem: Problem) -> Response<String> {
    problem.response(ProblemFormat::default())
}

/// The format for the sender of a `POST` of this content type.
fn format_of(content_type: &'static str) -> ProblemFormat {
    let content_type = HeaderValue::from_static(content_type);
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    ProblemFormat::of(&Method::POST, &headers)
}

/// The answer to a gRPC call: its status and the pushback.
fn in_grpc(problem: Problem) -> (String, Option<String>) {
    let response = problem.response(format_of("application/grpc"));
    assert_eq!(
        (response.status(), response.body().as_str()),
        (StatusCode::OK, "")
    );
    let header = |name| Some(response.headers().get(name)?.to_str().unwrap().to_owned());
    (
        header("grpc-status").unwrap(),
        header("grpc-retry-pushback-ms"),
    )
}

#[test]
fn a_status_is_a_problem_of_its_own_name() {
    let response = in_json(Problem::new(StatusCode::BAD_GATEWAY, "the service failed"));
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers().len(), 1);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let text = r#"{"title":"Bad Gateway","status":502,"detail":"the service failed"}"#;
    assert_eq!(response.body(), text);
}

#[test]
fn the_registered_kinds_have_their_type_title_and_status() {
    let types = "https://iana.org/assignments/http-problem-types";
    let exceeded = Problem::quota_exceeded("day", "too much").with_wait(1_001 * MS);
    let problem = value(&in_json(exceeded));
    let expected = json!({
        "type": format!("{types}#quota-exceeded"),
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "too much, retry in 2 s",
        "violated-policies": ["day"],
    });
    assert_eq!(problem, expected);

    let problem = value(&in_json(Problem::reduced_capacity("no room")));
    let expected = json!({
        "type": format!("{types}#temporary-reduced-capacity"),
        "title": "Temporary Reduced Capacity",
        "status": 503,
        "detail": "no room",
    });
    assert_eq!(problem, expected);
}

#[test]
fn any_text_is_json() {
    let texts = [
        r#"a "b" \c\ "#,
        "line\nline\ttab\u{1}",
        "µ \u{1f600}",
        "\u{7f}",
        "",
    ];
    for text in texts {
        let problem = value(&in_json(Problem::quota_exceeded(text, text)));
        assert_eq!(problem["detail"], text);
        assert_eq!(problem["violated-policies"], json!([text]));
    }
}

#[test]
fn a_wait_is_whole_seconds_in_http_and_exact_in_grpc() {
    for (wait, seconds, millis) in [
        (Duration::ZERO, "1", "1"),
        (Duration::from_nanos(1), "1", "1"),
        (200 * MS, "1", "200"),
        (1_000 * MS, "1", "1000"),
        (1_000 * MS + Duration::from_nanos(1), "2", "1001"),
        (Duration::MAX, "999999999999999", "2147483647"),
    ] {
        let problem = Problem::reduced_capacity("no room").with_wait(wait);
        let (code, pushback) = in_grpc(problem.clone());
        assert_eq!((&*code, pushback.as_deref()), ("14", Some(millis)));
        assert_eq!(problem.detail(), format!("no room, retry in {seconds} s"));
        assert_eq!(in_json(problem).headers()["retry-after"], seconds);
    }
}

#[test]
fn without_a_wait_a_call_that_fails_again_is_not_repeated() {
    for (status, code, pushback) in [
        (400, "3", Some("-1")),
        (401, "16", Some("-1")),
        (403, "7", Some("-1")),
        (404, "12", Some("-1")),
        (408, "14", None),
        (431, "3", Some("-1")),
        (429, "8", Some("-1")),
        (500, "13", None),
        (501, "12", Some("-1")),
        (502, "14", None),
        (503, "14", None),
        (504, "14", None),
    ] {
        let problem = Problem::new(StatusCode::from_u16(status).unwrap(), "");
        let (found, said) = in_grpc(problem);
        assert_eq!((&*found, said.as_deref()), (code, pushback), "{status}");
    }
}

#[test]
fn a_format_is_that_of_the_sender() {
    let json = "application/problem+json";
    for (content_type, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("Application/gRPC ;v=1", "application/grpc"),
        ("application/grpc-web", "application/grpc-web"),
        ("Application/gRPC-Web+proto", "Application/gRPC-Web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        (
            "application/grpc-web-text+proto",
            "application/grpc-web-text+proto",
        ),
        ("application/grpc-web-texts", json),
        ("application/grpc-other", json),
        ("application/grpcx", json),
        ("application/json", json),
        ("", json),
    ] {
        let problem = Problem::reduced_capacity("no room");
        let response = problem.response(format_of(content_type));
        assert_eq!(
            response.headers()["content-type"],
            answered,
            "{content_type}"
        );
        let is_grpc = response.headers().contains_key("grpc-status");
        assert_eq!(is_grpc, answered != json, "{content_type}");
    }
}
