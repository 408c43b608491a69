use core::fmt::Write;
use core::time::Duration;
use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode};

use super::text::push_quoted;

/// An answer in place of the service's: problem details in JSON (RFC 9457), or a status of gRPC.
///
/// [`Answers`](super::Answers) write the refusals of a layer with it. A program that refuses a request itself answers in the same way:
///
/// ```
/// use http::Request;
/// use paceline_tower::{Problem, ProblemFormat};
/// use std::time::Duration;
///
/// let request = Request::get("/").body(()).unwrap();
/// let busy = Problem::reduced_capacity("no worker is free").with_wait(Duration::from_millis(200));
/// let response = busy.clone().response(ProblemFormat::of(request.method(), request.headers()));
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()["retry-after"], "1");
/// let problem: serde_json::Value = serde_json::from_str(response.body()).unwrap();
/// assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
/// assert_eq!(problem["detail"], "no worker is free, retry in 1 s");
///
/// let call = Request::post("/").header("content-type", "application/grpc").body(()).unwrap();
/// let response = busy.response(ProblemFormat::of(call.method(), call.headers()));
/// assert_eq!(response.status(), 200);
/// assert_eq!(response.headers()["grpc-status"], "14");
/// assert_eq!(response.headers()["grpc-retry-pushback-ms"], "200");
/// ```
///
/// * **JSON** has `title`, `status` and `detail`, and `type` if the kind of the problem is registered. Without it the type is
///   `about:blank`.
/// * **`HEAD`** gets the headers of a `GET`, its `Content-Length` included, and no body.
/// * **gRPC and gRPC-Web**, by content type, get trailers only, as headers of a response without a body: HTTP status 200, the content
///   type of the protocol, `grpc-status`, `grpc-message` and `grpc-retry-pushback-ms`.
/// * **The pushback** is the wait in milliseconds, rounded up. Without a wait it is −1, do not retry, for a status that says that the
///   same request fails again: 4xx other than 408, and 501. For others it is left out, and the backoff of the client decides.
///
/// | HTTP status | 400, other 4xx | 401 | 403 | 404, 501 | 429 | 408, other 5xx | 500 |
/// |---|---|---|---|---|---|---|---|
/// | `grpc-status` | 3, invalid argument | 16 | 7 | 12, unimplemented | 8, resource exhausted | 14, unavailable | 13, internal |
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
    /// The registered kind and its title.
    kind: Option<[&'static str; 2]>,
    /// The policy that the caller has exceeded.
    exceeded: Option<String>,
    wait: Option<Duration>,
    headers: HeaderMap,
}

impl Problem {
    /// A problem that its status names, and what a client may know of it.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            detail: detail.into(),
            kind: None,
            exceeded: None,
            wait: None,
            headers: HeaderMap::new(),
        }
    }

    /// 429, `#quota-exceeded`: the caller has exceeded the policy of this name.
    pub fn quota_exceeded(policy: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, detail);
        problem.kind = Some(["quota-exceeded", "Quota Exceeded"]);
        problem.exceeded = Some(policy.to_owned());
        problem
    }

    /// 503, `#temporary-reduced-capacity`: there is more work than capacity.
    pub fn reduced_capacity(detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        problem.kind = Some(["temporary-reduced-capacity", "Temporary Reduced Capacity"]);
        problem
    }

    /// Says when to try again: in `Retry-After`, in whole seconds, rounded up and at least 1, and in the detail.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        let begun = u64::from(wait.subsec_nanos() > 0);
        // No header has a larger number.
        let seconds = wait.as_secs().saturating_add(begun);
        let seconds = HeaderValue::from(seconds.clamp(1, 999_999_999_999_999));
        let digits = seconds.to_str().unwrap_or_default();
        self.detail.to_mut().extend([", retry in ", digits, " s"]);
        self.headers.insert(RETRY_AFTER, seconds);
        self.wait = Some(wait);
        self
    }

    /// The headers of the response, to be added to, such as those of a limit.
    pub const fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// The HTTP status, also of an answer to gRPC.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// What a client may know of it.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The response in this format.
    #[must_use]
    pub fn response(mut self, format: ProblemFormat) -> Response<String> {
        let mut response = Response::new(String::new());
        if let Some(content_type) = format.grpc {
            self.headers.insert(CONTENT_TYPE, content_type);
            self.add_trailers();
        } else {
            *response.status_mut() = self.status;
            if !format.is_empty {
                let json = self.json();
                self.headers.insert(CONTENT_TYPE, JSON);
                if format.is_head {
                    self.headers.insert(CONTENT_LENGTH, json.len().into());
                } else {
                    *response.body_mut() = json;
                }
            }
        }
        *response.headers_mut() = self.headers;
        response
    }

    fn json(&self) -> String {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let title = self.kind.map_or(reason, |[_, title]| title);
        // Few are longer.
        let mut json = String::with_capacity(256);
        json.push('{');
        if let Some([kind, _]) = self.kind {
            let registry = "https://iana.org/assignments/http-problem-types";
            json.extend([r#""type":""#, registry, "#", kind, r#"","#]);
        }
        json.extend([r#""title":""#, title, r#"","status":"#]);
        json.extend([self.status.as_str(), r#","detail":"#]);
        push_quoted(&mut json, &self.detail);
        if let Some(policy) = &self.exceeded {
            json.push_str(r#","violated-policies":["#);
            push_quoted(&mut json, policy);
            json.push(']');
        }
        json.push('}');
        json
    }

    /// What gRPC has in trailers, for a response that has nothing else.
    fn add_trailers(&mut self) {
        let code: u16 = match self.status.as_u16() {
            401 => 16,
            403 => 7,
            404 | 501 => 12,
            429 => 8,
            500 => 13,
            400..=407 | 409..=499 => 3,
            _ => 14,
        };
        let fails_again = !matches!(code, 13 | 14);
        let pushback = self.wait.map(millis).or(fails_again.then_some(-1));
        let mut add = |name, value| self.headers.insert(HeaderName::from_static(name), value);
        add("grpc-status", code.into());
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.detail)) {
            add("grpc-message", message);
        }
        if let Some(millis) = pushback {
            add("grpc-retry-pushback-ms", millis.into());
        }
    }
}

/// How a client reads a [`Problem`]: as JSON, which is the default, without a body, or as gRPC.
#[derive(Clone, Debug, Default)]
pub struct ProblemFormat {
    /// The content type of the answer to a gRPC request.
    pub(super) grpc: Option<HeaderValue>,
    is_head: bool,
    /// Neither a body nor its length.
    pub(super) is_empty: bool,
}

impl ProblemFormat {
    /// The format for the sender of a request with this method and these headers.
    #[must_use]
    pub fn of(method: &Method, headers: &HeaderMap) -> Self {
        Self {
            grpc: headers.get(CONTENT_TYPE).and_then(grpc_type),
            is_head: method == Method::HEAD,
            is_empty: false,
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Rounded up, and at least 1.
fn millis(wait: Duration) -> i32 {
    let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

/// The content type of the answer to a gRPC request. That of gRPC-Web is its own.
fn grpc_type(content_type: &HeaderValue) -> Option<HeaderValue> {
    let bytes = content_type.as_bytes();
    let mut parts = bytes.split(|byte| matches!(byte, b'+' | b';' | b' '));
    let name = parts.next()?;
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    if is(b"application/grpc") {
        return Some(HeaderValue::from_static("application/grpc"));
    }
    let is_web = is(b"application/grpc-web") || is(b"application/grpc-web-text");
    is_web.then(|| content_type.clone())
}

/// As gRPC writes messages: printable ASCII stays, but for `%`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => encoded.push(byte.into()),
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}
