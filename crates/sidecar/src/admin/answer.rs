//! Answers to operators.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use paceline_tower::{Problem, ProblemFormat};
use serde::Serialize;

use super::events::Events;

pub(super) type Answer = Response<Either<Full<Bytes>, Events>>;

pub(super) fn of_type(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    set(&mut answer, CONTENT_TYPE, content_type);
    answer
}

pub(super) fn text(body: &'static str) -> Answer {
    of_type("text/plain; charset=utf-8", body)
}

pub(super) fn events(events: Events) -> Answer {
    let mut answer = Response::new(Either::Right(events));
    set(&mut answer, CONTENT_TYPE, "text/event-stream");
    answer
}

/// `value` must be one that JSON has: string keys, no failing `Serialize`.
pub(super) fn json(value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).unwrap_or_default();
    of_type("application/json", body)
}

pub(super) fn problem(status: StatusCode, detail: &str) -> Answer {
    let problem = Problem::new(status, detail.to_owned());
    let response = problem.response(ProblemFormat::default());
    response.map(|json| Either::Left(Full::from(json)))
}

pub(super) fn not_allowed(allowed: &'static str) -> Answer {
    let detail = format!("this path takes {allowed}");
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &detail);
    set(&mut answer, ALLOW, allowed);
    answer
}

/// What every answer carries: it is not kept, not guessed at, and says nothing to other sites.
pub(super) fn hardened(mut answer: Answer) -> Answer {
    set(&mut answer, CACHE_CONTROL, "no-store");
    set(&mut answer, X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut answer, REFERRER_POLICY, "no-referrer");
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    set(&mut answer, policy, "same-origin");
    answer
}

fn set(answer: &mut Answer, name: HeaderName, value: &'static str) {
    answer
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
}
