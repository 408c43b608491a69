use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::Body as _;
use paceline_tower::ProblemFormat;

use super::body::Body;
use super::problem::Problem;
use crate::state::Sidecar;

/// Refuses what a peer sent before it is a request: its head is malformed, too large or late.
#[derive(Debug)]
pub(crate) struct Refuser {
    sidecar: Arc<Sidecar>,
    peer: IpAddr,
}

impl Refuser {
    pub(crate) const fn new(sidecar: Arc<Sidecar>, peer: IpAddr) -> Self {
        Self { sidecar, peer }
    }

    /// The response with this status, which is counted.
    pub(crate) fn response(&self, status: StatusCode, version: Version) -> Response<Body> {
        let detail = match status {
            StatusCode::REQUEST_TIMEOUT => "the head of the request did not come in time",
            StatusCode::URI_TOO_LONG => "the target of the request is too long",
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "the head of the request has too many bytes or too many fields"
            }
            _ => "the head of the request is malformed",
        };
        self.sidecar.bad_request(self.peer, status, detail);
        Problem::new(status, detail).response(ProblemFormat::default(), version)
    }

    /// The same as the last bytes on a connection of HTTP/1.
    pub(crate) fn bytes(&self, status: StatusCode) -> Vec<u8> {
        let (mut head, body) = self.response(status, Version::HTTP_11).into_parts();
        // A text is there at once.
        let polled = pin!(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let body = match polled {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            _ => Bytes::new(),
        };
        head.headers.insert(CONTENT_LENGTH, body.len().into());
        let close = HeaderValue::from_static("close");
        head.headers.insert(CONNECTION, close);
        let mut bytes = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
        for (name, value) in &head.headers {
            bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        bytes.extend([b"\r\n", &body[..]].concat());
        bytes
    }
}
