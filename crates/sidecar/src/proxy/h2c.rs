use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use super::failure::{Causes, Failure};
use super::http1::Broken;
use super::patience::Patience;
use super::upload::{Upload, UploadError};
use crate::config::Timeouts;

/// The client of a service of HTTP/2 with prior knowledge: hyper's, with one connection for all requests of a thread. It is locked
/// while it is made.
#[derive(Debug, Default)]
pub(super) struct Multiplexed(Mutex<Option<http2::SendRequest<Observed>>>);

/// A stream of the connection.
#[derive(Debug)]
pub(super) struct Stream {
    sender: http2::SendRequest<Observed>,
    /// Whether the connection has had a request before.
    pub(super) is_reused: bool,
}

/// The body of a response on its way from the service.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Incoming,
    pub(super) patience: Box<Patience>,
    upload: Option<Rc<Progress>>,
}

/// The body of a request, which hyper's connection sends.
#[derive(Debug)]
struct Observed {
    upload: Upload,
    progress: Option<Rc<Progress>>,
}

/// What a request's body says to the future that waits for its response, and the other way round.
#[derive(Debug, Default)]
struct Progress {
    moved: Cell<u64>,
    awaits_client: Cell<bool>,
    has_failed: Cell<bool>,
    is_abandoned: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Why the body of a request ends before its end.
#[derive(Debug, Error)]
enum ObservedError {
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error("the response was complete before the request")]
    Abandoned,
}

/// Spawns on this thread.
#[derive(Clone, Debug)]
struct Local;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

impl Multiplexed {
    /// A stream of the connection, which is `socket` if there is none. Others wait here while one connects, and then use its
    /// connection.
    pub(super) async fn stream(
        &self,
        socket: impl Future<Output = Result<TcpStream, Failure>>,
    ) -> Result<Stream, Failure> {
        let mut multiplexed = self.0.lock().await;
        if let Some(sender) = multiplexed.clone().filter(http2::SendRequest::is_ready) {
            return Ok(Stream {
                sender,
                is_reused: true,
            });
        }
        let handshake = http2::handshake(Local, TokioIo::new(socket.await?)).await;
        let (sender, connection) = handshake.map_err(failed)?;
        spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(cause = %Causes(&error), "a connection to the upstream ended");
            }
        });
        Ok(Stream {
            sender: multiplexed.insert(sender).clone(),
            is_reused: false,
        })
    }
}

impl Stream {
    /// Waits for the response. The error comes with whether the connection has ended, so that the request was not seen.
    pub(super) async fn send(
        mut self,
        request: Request<Upload>,
        timeouts: &Timeouts,
    ) -> Result<Response<Answer>, (Failure, bool)> {
        let upload = (!request.body().is_empty()).then(Rc::<Progress>::default);
        let progress = upload.clone();
        let request = request.map(|upload| Observed { upload, progress });
        let mut patience = Box::new(Patience::new(timeouts));
        let response = self.sender.send_request(request);
        match wait(response, upload.as_deref(), &mut patience, timeouts).await {
            Ok(mut response) => {
                patience.begin();
                // There may be several, and hyper has checked that they are the same.
                if let Some(length) = response.headers().get(CONTENT_LENGTH).cloned() {
                    response.headers_mut().insert(CONTENT_LENGTH, length);
                }
                Ok(response.map(|body| Answer {
                    body,
                    patience,
                    upload,
                }))
            }
            // A stream that was reset on a connection that goes on was refused with intent.
            Err(failure) => Err((failure, !self.sender.is_ready())),
        }
    }
}

async fn wait(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    upload: Option<&Progress>,
    patience: &mut Patience,
    timeouts: &Timeouts,
) -> Result<Response<Incoming>, Failure> {
    let mut response = pin!(response);
    poll_fn(|cx| {
        if let Poll::Ready(result) = response.as_mut().poll(cx) {
            let has_failed = upload.is_some_and(|upload| upload.has_failed.get());
            return Poll::Ready(result.map_err(|error| {
                if has_failed {
                    Failure::Upload
                } else {
                    failed(error)
                }
            }));
        }
        let (moved, awaits_client) = upload.map_or((0, false), |upload| {
            (upload.moved.get(), upload.awaits_client.get())
        });
        let (limit, late) = if awaits_client {
            (timeouts.body, Failure::UploadLate)
        } else {
            (timeouts.response, Failure::Late)
        };
        // What counts as quiet changes with the side that is awaited.
        let moved = moved * 2 + u64::from(awaits_client);
        ready!(patience.poll_over(cx, moved, limit));
        if let Some(upload) = upload.filter(|_| awaits_client) {
            upload.has_failed.set(true);
        }
        Poll::Ready(Err(late))
    })
    .await
}

fn failed(error: hyper::Error) -> Failure {
    Failure::Broken(Broken::Http2(error))
}

impl Answer {
    /// The response is complete. The service has nothing to add, so a body that is not complete ends.
    pub(super) fn finish(self) {
        if let Some(upload) = self.upload {
            upload.is_abandoned.set(true);
            let waker = upload.waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Body for Observed {
    type Data = Bytes;
    type Error = ObservedError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ObservedError>>> {
        let Self { upload, progress } = &mut *self;
        let Some(progress) = progress else {
            return Poll::Ready(None);
        };
        if progress.is_abandoned.get() {
            return Poll::Ready(Some(Err(ObservedError::Abandoned)));
        }
        *progress.waker.borrow_mut() = Some(cx.waker().clone());
        let polled = Pin::new(upload).poll_frame(cx);
        progress.awaits_client.set(polled.is_pending());
        let frame = ready!(polled).transpose();
        progress.has_failed.set(frame.is_err());
        progress.moved.set(progress.moved.get() + 1);
        Poll::Ready(frame.map_err(ObservedError::Upload).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.upload.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.size_hint()
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if self
            .progress
            .as_ref()
            .is_some_and(|progress| progress.has_failed.get())
        {
            self.upload.give_up();
        }
    }
}

/// The request with scheme and authority of the service. Path and query stay as they are, byte for byte.
pub(super) fn address(request: &mut Request<Upload>, authority: &Authority) -> Result<(), Failure> {
    let path = request.uri().path_and_query().cloned();
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(authority.clone());
    uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    *request.uri_mut() = Uri::from_parts(uri).map_err(|_| Failure::Upload)?;
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    request.headers_mut().remove(EXPECT);
    // The service is not asked whether the body may come.
    request.body_mut().go_on();
    Ok(())
}
