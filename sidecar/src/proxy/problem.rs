use std::borrow::Cow;
use std::fmt::Write;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::Body;

/// An answer of the sidecar itself: problem+json (RFC 9457), or what gRPC has for it.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// What a client may know. The cause of a failure is in the log.
    detail: Cow<'static, str>,
    /// `Retry-After` and the headers of the limit.
    headers: HeaderMap,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            detail: detail.into(),
            headers: HeaderMap::new(),
        }
    }

    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn with_headers(self, headers: HeaderMap) -> Self {
        Self { headers, ..self }
    }

    #[cfg(test)]
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn response(self, is_grpc: bool) -> Response<Body> {
        if is_grpc { self.grpc() } else { self.json() }
    }

    fn json(self) -> Response<Body> {
        let title = self.status.canonical_reason().unwrap_or_default();
        let problem = serde_json::json!({
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = Response::new(Body::text(problem.to_string()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    /// Trailers only, as headers of a response without a body.
    fn grpc(self) -> Response<Body> {
        let status = match self.status {
            StatusCode::BAD_REQUEST => 13,
            StatusCode::TOO_MANY_REQUESTS => 8,
            StatusCode::NOT_IMPLEMENTED => 12,
            _ => 14,
        };
        let mut response = Response::new(Body::text(String::new()));
        *response.headers_mut() = self.headers;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
        headers.insert(HeaderName::from_static("grpc-status"), status.into());
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.detail)) {
            headers.insert(HeaderName::from_static("grpc-message"), message);
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
