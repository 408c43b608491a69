use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{HeaderValue, Request, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{Interval, interval_at, timeout};

use super::{fields, now};

/// The body of a request on its way to the upstream.
#[derive(Debug)]
pub(super) struct Upload {
    /// `None` if it is empty.
    body: Option<(Incoming, Arc<Progress>)>,
    /// The body waits for `100 Continue` of the upstream, but no longer than this: not every server answers that.
    waiting: Option<Box<Interval>>,
    /// The rest of the body is read if the upstream does not want it.
    lingers: bool,
}

/// What a request's body says to the future that waits for its response, and the other way round.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
struct State {
    moved: u64,
    awaits_client: bool,
    has_failed: bool,
    has_ended: bool,
    may_continue: bool,
    is_abandoned: bool,
    waker: Option<Waker>,
}

/// Why the body of a request ends before its end.
#[derive(Debug, Error)]
pub(super) enum UploadError {
    #[error("the client broke the body of its request")]
    Client(#[source] hyper::Error),
    #[error("the response was complete before the request")]
    Abandoned,
}

/// How long a body waits for `100 Continue`. curl waits as long for a server.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long the rest of a body is read that the upstream does not want.
const LINGER: Duration = Duration::from_secs(5);

impl Upload {
    /// The body of this request.
    pub(super) fn of(request: Request<Incoming>) -> Request<Self> {
        if request.body().is_end_stream() {
            return request.map(|_| Self::empty());
        }
        let is_http2 = request.version() == Version::HTTP_2;
        let expected = request.headers().get(EXPECT).map(HeaderValue::as_bytes);
        let is_continue = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
        let is_waiting = !is_http2 && expected.is_some_and(is_continue);
        request.map(|body| Self {
            body: Some((body, Arc::default())),
            waiting: is_waiting.then(|| Box::new(interval_at(now() + LONGEST_WAIT, LONGEST_WAIT))),
            lingers: !is_http2,
        })
    }

    pub(super) const fn empty() -> Self {
        Self {
            body: None,
            waiting: None,
            lingers: false,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    pub(super) fn progress(&self) -> Option<Arc<Progress>> {
        self.body.as_ref().map(|(_, progress)| Arc::clone(progress))
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The upstream is not asked whether the body may come.
    pub(super) fn go_on(&mut self) {
        self.waiting = None;
    }
}

impl Progress {
    /// How much has moved so far, and whether the client has to send more before the upstream can answer.
    pub(super) fn so_far(&self) -> (u64, bool) {
        let state = self.state();
        (state.moved, state.awaits_client)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    /// The client was waited for long enough.
    pub(super) fn fail(&self) {
        self.state().has_failed = true;
    }

    /// The upstream has said `100 Continue`.
    pub(super) fn go_on(&self) {
        self.change(|state| state.may_continue = true);
    }

    /// Ends a body that is not complete when the response is. The upstream has nothing to add, and what it has not read
    /// makes the connection useless for the next request. Returns whether the body was complete.
    pub(super) fn abandon(&self) -> bool {
        let has_ended = self.state().has_ended;
        if !has_ended {
            self.change(|state| state.is_abandoned = true);
        }
        has_ended
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = &mut *self;
        let Some((body, progress)) = &mut this.body else {
            return Poll::Ready(None);
        };
        let mut state = progress.state();
        if state.is_abandoned {
            return Poll::Ready(Some(Err(UploadError::Abandoned)));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        if let Some(waiting) = &mut this.waiting {
            if !state.may_continue {
                ready!(waiting.poll_tick(cx));
            }
            this.waiting = None;
        }
        // The first poll of the body has hyper send `100 Continue` to the client.
        let polled = Pin::new(body).poll_frame(cx);
        state.awaits_client = polled.is_pending();
        Poll::Ready(match ready!(polled) {
            Some(Ok(mut frame)) => {
                state.moved += 1;
                if let Some(trailers) = frame.trailers_mut() {
                    fields::drop_from_trailers(trailers);
                    this.lingers = false;
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                state.has_failed = true;
                Some(Err(UploadError::Client(error)))
            }
            None => {
                this.lingers = false;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}

/// hyper drops a body when it is complete, or of no more use.
///
/// An upload that is refused, or answered early, is of no more use. If the connection of the client was closed with bytes unread, it would
/// be reset, and the answer lost. So they are read for a while, except from a client that has not sent them and waits for that.
impl Drop for Upload {
    fn drop(&mut self) {
        let Some((body, progress)) = self.body.take() else {
            return;
        };
        let mut state = progress.state();
        state.has_ended = true;
        state.awaits_client = false;
        let lingers = self.lingers && !self.is_waiting() && !body.is_end_stream();
        let lingers = lingers && !state.has_failed;
        if let Some(runtime) = Handle::try_current().ok().filter(|_| lingers) {
            runtime.spawn(timeout(LINGER, read_out(body)));
        }
    }
}

async fn read_out(mut body: Incoming) {
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}
