use std::cell::RefCell;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::Reason;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use super::body::Polled;
use super::failure::{Causes, Failure};
use super::http1::{Broken, SMALL};
use super::patience::Patience;
use super::upload::Upload;
use crate::config::Timeouts;

/// The client of a service of HTTP/2 with prior knowledge: hyper's, with one connection for all requests of a thread. It is locked
/// while it is made.
#[derive(Debug, Default)]
pub(super) struct Multiplexed(Mutex<Option<Sender>>);

pub(super) type Sender = Rc<http2::SendRequest<Sent>>;

/// A request, until its response is there.
#[derive(Debug)]
pub(super) struct Outgoing {
    head: Parts,
    upload: Rc<RefCell<Progress>>,
    patience: Box<Patience>,
    /// How often it has gone out again.
    repeats: u32,
}

/// The body of a response on its way from the service.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Incoming,
    pub(super) patience: Box<Patience>,
    /// When the response is complete, the service has nothing to add, so a body that is not complete ends.
    _upload: Rc<RefCell<Progress>>,
}

/// The body of a request, and what the future that waits for the response knows of it.
#[derive(Debug, Default)]
struct Progress {
    upload: Upload,
    /// What hyper has read, while it is little and the response is not there: the request may go out again.
    kept: Option<Vec<u8>>,
    /// What goes out again.
    again: Bytes,
    /// The frames that hyper has read since the request went out.
    frames: u64,
    awaits_client: bool,
    has_failed: bool,
    waker: Option<Waker>,
}

/// The body as hyper's connection sends it. It is cancelled when the request or the response is dropped.
#[derive(Debug)]
pub(super) struct Sent(Weak<RefCell<Progress>>);

/// Spawns on this thread.
#[derive(Clone, Debug)]
struct Local;

/// How often a request goes out again that the service has not processed. A service may end each connection after a few requests.
const MOST_REPEATS: u32 = 32;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

impl Multiplexed {
    /// The connection, unless this request has `failed` on it: it may be about to close. If there is none, it is `socket`. Others
    /// wait here while one connects, and then use its connection.
    pub(super) async fn sender(
        &self,
        failed: Option<&Sender>,
        socket: impl Future<Output = Result<TcpStream, Failure>>,
    ) -> Result<Sender, Failure> {
        let mut multiplexed = self.0.lock().await;
        if let Some(sender) = &*multiplexed
            && sender.is_ready()
            && !failed.is_some_and(|failed| Rc::ptr_eq(failed, sender))
        {
            return Ok(Rc::clone(sender));
        }
        let handshake = http2::handshake(Local, TokioIo::new(socket.await?)).await;
        let (sender, connection) = handshake.map_err(Broken::Http2).map_err(Failure::Broken)?;
        spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(cause = %Causes(&error), "a connection to the upstream ended");
            }
        });
        Ok(multiplexed.insert(Rc::new(sender)).clone())
    }
}

impl Outgoing {
    /// The request with scheme and authority of the service. Path and query stay as they are, byte for byte.
    pub(super) fn new(
        request: Request<Upload>,
        authority: &Authority,
        timeouts: &Timeouts,
    ) -> Result<Self, Failure> {
        let (mut head, mut upload) = request.into_parts();
        let mut uri = mem::take(&mut head.uri).into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(authority.clone());
        uri.path_and_query
            .get_or_insert(PathAndQuery::from_static("/"));
        head.uri = Uri::from_parts(uri).map_err(|_| Failure::Upload)?;
        head.version = Version::HTTP_2;
        head.headers.remove(HOST);
        head.headers.remove(EXPECT);
        // The service is not asked whether the body may come.
        upload.go_on();
        let progress = Rc::<RefCell<Progress>>::default();
        progress.borrow_mut().upload = upload;
        progress.borrow_mut().kept = Some(Vec::new());
        Ok(Self {
            head,
            upload: progress,
            patience: Box::new(Patience::new(timeouts)),
            repeats: 0,
        })
    }

    /// Sends the request, and waits for the head of the response.
    pub(super) async fn send(
        &mut self,
        sender: &Sender,
        timeouts: &Timeouts,
    ) -> Result<Response<Incoming>, Failure> {
        let body = Sent(Rc::downgrade(&self.upload));
        let request = Request::from_parts(self.head.clone(), body);
        let mut sender = http2::SendRequest::clone(sender);
        let mut response = pin!(sender.send_request(request));
        poll_fn(|cx| {
            let polled = response.as_mut().poll(cx);
            let mut progress = self.upload.borrow_mut();
            if let Poll::Ready(result) = polled {
                return Poll::Ready(result.map_err(|error| {
                    if progress.has_failed {
                        Failure::Upload
                    } else {
                        Failure::Broken(Broken::Http2(error))
                    }
                }));
            }
            let (limit, late) = if progress.awaits_client {
                (timeouts.body, Failure::UploadLate)
            } else {
                (timeouts.response, Failure::Late)
            };
            // What counts as quiet changes with the side that is awaited.
            let moved = progress.frames * 2 + u64::from(progress.awaits_client);
            ready!(self.patience.poll_over(cx, moved, limit));
            if progress.awaits_client {
                progress.upload.give_up();
            }
            Poll::Ready(Err(late))
        })
        .await
    }

    /// Whether the request goes out again after this error: the service has not processed it, or it may be processed twice. What hyper
    /// has read of its body must still be here.
    pub(super) fn may_repeat(&mut self, error: &Broken, is_repeatable: bool) -> bool {
        let Broken::Http2(error) = error else {
            return false;
        };
        let cause = error.source();
        let remote = cause.and_then(|cause| cause.downcast_ref::<h2::Error>());
        let remote = remote.filter(|error| error.is_remote());
        let most = match remote.and_then(h2::Error::reason) {
            // It was not sent.
            _ if error.is_canceled() => MOST_REPEATS,
            // It waited for a stream when the connection ended. hyper does not say whether it was sent.
            _ if error.is_user() && is_repeatable => MOST_REPEATS,
            // The connection ends, and this request is above the last one that the service processes.
            Some(Reason::NO_ERROR) if remote.is_some_and(h2::Error::is_go_away) => MOST_REPEATS,
            Some(Reason::REFUSED_STREAM) => 1,
            // The connection broke.
            _ if cause.is_some_and(|cause| cause.is::<io::Error>()) && is_repeatable => 1,
            _ => 0,
        };
        let mut progress = self.upload.borrow_mut();
        progress.frames = 0;
        progress.awaits_client = false;
        self.repeats += 1;
        let Some(kept) = &progress.kept else {
            return false;
        };
        progress.again = Bytes::copy_from_slice(kept);
        self.repeats <= most
    }

    /// The head of the response is there.
    pub(super) fn answered(self, mut response: Response<Incoming>) -> Response<Answer> {
        // There may be several, and hyper has checked that they are the same.
        if let Some(length) = response.headers().get(CONTENT_LENGTH).cloned() {
            response.headers_mut().insert(CONTENT_LENGTH, length);
        }
        let Self {
            upload,
            mut patience,
            ..
        } = self;
        upload.borrow_mut().kept = None;
        patience.begin();
        response.map(|body| Answer {
            body,
            patience,
            _upload: upload,
        })
    }
}

impl Progress {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<h2::Error> {
        self.waker = Some(cx.waker().clone());
        if !self.again.is_empty() {
            self.frames += 1;
            return Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.again)))));
        }
        let polled = Pin::new(&mut self.upload).poll_frame(cx);
        self.awaits_client = polled.is_pending();
        let frame = ready!(polled).transpose();
        self.has_failed = frame.is_err();
        if let Ok(Some(frame)) = &frame {
            self.frames += 1;
            self.kept = self.kept.take().and_then(|mut kept| {
                kept.extend_from_slice(frame.data_ref()?);
                (kept.len() <= SMALL).then_some(kept)
            });
        }
        Poll::Ready(frame.map_err(|_| Reason::CANCEL.into()).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.again.is_empty() && self.upload.is_end_stream()
    }
}

/// hyper reads no more, and does not know it yet.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<h2::Error> {
        match self.0.upgrade() {
            Some(progress) => progress.borrow_mut().poll_frame(cx),
            None => Poll::Ready(Some(Err(Reason::CANCEL.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let progress = self.0.upgrade();
        progress.is_some_and(|progress| progress.borrow().is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() {
            SizeHint::with_exact(0)
        } else {
            SizeHint::default()
        }
    }
}
