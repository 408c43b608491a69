use std::borrow::Cow;

use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode, Version};
use paceline_tower::ProblemFormat;

use super::body::Body;

/// An answer of the sidecar itself. It is boxed, since many functions return it as their error.
#[derive(Debug)]
pub(super) struct Problem(Box<paceline_tower::Problem>);

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        paceline_tower::Problem::new(status, detail).into()
    }

    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Whether the request is bad.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(
            self.status(),
            StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT | StatusCode::NOT_IMPLEMENTED
        )
    }

    pub(super) fn detail(&self) -> &str {
        self.0.detail()
    }

    pub(super) fn response(self, format: ProblemFormat, version: Version) -> Response<Body> {
        // What comes next on the connection may not be a request, whatever it looks like.
        let closes = self.is_of_client() && version != Version::HTTP_2;
        let mut response = self.0.response(format).map(Body::text);
        if closes {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }
}

impl From<paceline_tower::Problem> for Problem {
    fn from(problem: paceline_tower::Problem) -> Self {
        Self(Box::new(problem))
    }
}
