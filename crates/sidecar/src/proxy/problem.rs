use std::borrow::Cow;
use std::fmt::Write;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode, Version};
use serde::Serialize;

use super::body::Body;

/// An answer of the sidecar itself: problem+json (RFC 9457), or what gRPC has for it.
#[derive(Debug)]
pub(super) struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: StatusCode,
    /// What a client may know. The cause of a failure is in the log.
    detail: Cow<'static, str>,
    /// A kind that IANA has registered, such as `quota-exceeded`.
    kind: Option<&'static str>,
    /// The policy that the client has exceeded.
    violated: Option<&'static str>,
    /// `Retry-After` and the headers of the limit.
    headers: HeaderMap,
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated: Option<[&'static str; 1]>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            status,
            detail: detail.into(),
            kind: None,
            violated: None,
            headers: HeaderMap::new(),
        }))
    }

    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn of_kind(mut self, kind: &'static str, violated: Option<&'static str>) -> Self {
        self.0.kind = Some(kind);
        self.0.violated = violated;
        self
    }

    pub(super) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.0.headers = headers;
        self
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Whether the request is bad.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(
            self.0.status,
            StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT | StatusCode::NOT_IMPLEMENTED
        )
    }

    pub(super) fn detail(&self) -> &str {
        &self.0.detail
    }

    pub(super) fn response(self, is_grpc: bool, version: Version) -> Response<Body> {
        // What comes next on the connection may not be a request, whatever it looks like.
        let closes = self.is_of_client() && version != Version::HTTP_2;
        let mut response = if is_grpc { self.grpc() } else { self.json() };
        if closes {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }

    fn json(self) -> Response<Body> {
        let Inner {
            status,
            detail,
            kind,
            violated,
            headers,
        } = *self.0;
        let kind =
            kind.map(|kind| format!("https://iana.org/assignments/http-problem-types#{kind}"));
        let title = match status {
            _ if violated.is_some() => "Quota Exceeded",
            _ if kind.is_some() => "Temporary Reduced Capacity",
            _ => status.canonical_reason().unwrap_or_default(),
        };
        let problem = serde_json::to_string(&Json {
            kind,
            title,
            status: status.as_u16(),
            detail: &detail,
            violated: violated.map(|name| [name]),
        });
        let mut response = Response::new(Body::text(problem.unwrap_or_default()));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    /// Trailers only, as headers of a response without a body.
    fn grpc(self) -> Response<Body> {
        let status = match self.0.status {
            StatusCode::BAD_REQUEST => 3,
            StatusCode::TOO_MANY_REQUESTS => 8,
            StatusCode::NOT_IMPLEMENTED => 12,
            _ => 14,
        };
        let mut response = Response::new(Body::text(String::new()));
        *response.headers_mut() = self.0.headers;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
        headers.insert(HeaderName::from_static("grpc-status"), status.into());
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.0.detail)) {
            headers.insert(HeaderName::from_static("grpc-message"), message);
        }
        // A client of gRPC takes the pushback instead of its own backoff.
        let seconds = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        if let Some(seconds) = seconds.and_then(|seconds| seconds.parse::<u64>().ok()) {
            let pushback = HeaderName::from_static("grpc-retry-pushback-ms");
            headers.insert(pushback, seconds.saturating_mul(1_000).into());
        }
        response
    }
}

const GRPC: &str = "application/grpc";

/// Whether the content type is that of gRPC, such as `application/grpc+proto`. That of gRPC-Web is another.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let after = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.as_bytes().strip_prefix(GRPC.as_bytes()));
    after.is_some_and(|after| matches!(after.first(), None | Some(b'+' | b';')))
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            _ => write!(encoded, "%{byte:02X}").unwrap_or_default(),
        }
    }
    encoded
}
