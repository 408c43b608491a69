//! One request on its way to the upstream, and the response on its way back.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::state::Sidecar;

/// What the requests of one thread share: the pool of its connections to the upstream.
#[derive(Debug)]
pub struct Proxy {
    #[expect(dead_code, reason = "not built yet")]
    sidecar: Arc<Sidecar>,
}

impl Proxy {
    #[must_use]
    pub fn new(sidecar: Arc<Sidecar>) -> Self {
        Self { sidecar }
    }

    /// Decides on the request, forwards it, and returns the response, whose body is streamed.
    pub async fn answer(
        &self,
        _peer: SocketAddr,
        _request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
        response
    }
}
