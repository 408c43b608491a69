use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{HeaderName, HeaderValue, Request, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::task::spawn_local;
use tokio::time::{Interval, interval_at, timeout};

use super::body::Polled;
use super::{fields, now};
use crate::config::Client;

/// The body of a request on its way to the upstream.
#[derive(Debug, Default)]
pub(super) struct Upload {
    /// `None` if it is empty.
    body: Option<Incoming>,
    /// The body waits for `100 Continue` of the upstream, but no longer than this: not every server answers that.
    waiting: Option<Box<Interval>>,
    /// The rest of the body is read if the upstream does not want it.
    lingers: bool,
    /// The field that names the client. The service does not take it from trailers.
    client: Option<HeaderName>,
}

/// The client broke the body of its request.
#[derive(Debug, Error)]
#[error("the client broke the body of its request")]
pub(super) struct UploadError(#[from] hyper::Error);

/// How long a body waits for `100 Continue`. curl waits as long for a server.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long the rest of a body is read that the upstream does not want.
const LINGER: Duration = Duration::from_secs(5);

impl Upload {
    /// The body of this request.
    pub(super) fn of(request: Request<Incoming>, client: &Client) -> Request<Self> {
        if request.body().is_end_stream() {
            return request.map(|_| Self::default());
        }
        let version = request.version();
        let expected = request.headers().get(EXPECT).map(HeaderValue::as_bytes);
        let is_continue = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
        // A client of HTTP/1.0 does not know what it has asked for.
        let is_waiting = version == Version::HTTP_11 && expected.is_some_and(is_continue);
        request.map(|body| Self {
            body: Some(body),
            waiting: is_waiting.then(|| Box::new(interval_at(now() + LONGEST_WAIT, LONGEST_WAIT))),
            lingers: version != Version::HTTP_2,
            client: client.header().cloned(),
        })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The body may come.
    pub(super) fn go_on(&mut self) {
        self.waiting = None;
    }

    /// Nothing more is read of it.
    pub(super) fn give_up(&mut self) {
        self.lingers = false;
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<UploadError> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if let Some(waiting) = &mut this.waiting {
            ready!(waiting.poll_tick(cx));
            this.waiting = None;
        }
        // The first poll of the body has hyper send `100 Continue` to the client.
        let mut frame = ready!(Pin::new(body).poll_frame(cx)?);
        match frame.as_mut().map(Frame::trailers_mut) {
            Some(None) => {}
            Some(Some(trailers)) => {
                fields::for_upstream_trailers(trailers, this.client.as_ref());
                this.lingers = false;
            }
            None => this.lingers = false,
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// hyper drops a body when it is complete, or of no more use.
///
/// An upload that is refused, or answered early, is of no more use. If the connection of the client was closed with bytes unread, it would
/// be reset, and the answer lost. So they are read for a while, except from a client that has not sent them and waits for that.
impl Drop for Upload {
    fn drop(&mut self) {
        let lingers = self.lingers && !self.is_waiting();
        if let Some(body) = self.body.take().filter(|_| lingers)
            && !body.is_end_stream()
        {
            spawn_local(timeout(LINGER, read_out(body)));
        }
    }
}

async fn read_out(mut body: Incoming) {
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}
