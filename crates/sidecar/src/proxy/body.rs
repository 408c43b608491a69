use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;

use super::failure::Causes;
use super::fields;
use super::gate::Admitted;
use super::pool::Lease;
use super::upload::Progress;

/// The body of a response: a short text of the sidecar, or what the upstream sends.
#[derive(Debug)]
pub(crate) struct Body(Kind);

enum Kind {
    Text(Bytes),
    Streamed(Box<Download>),
}

/// The body of a response on its way to the client, with the permits held until its end.
pub(super) struct Download {
    pub(super) body: Incoming,
    /// Without a byte for so long it ends.
    pub(super) limit: Duration,
    /// How far the body of the request is; `None` if it has none.
    pub(super) upload: Option<Arc<Progress>>,
    /// The connection, and the permit of the request. `None` after the end.
    pub(super) held: Option<(Lease, Admitted)>,
}

/// Why the body of a response ends before its end.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    #[error("the upstream broke the body of its response")]
    Broken(#[source] hyper::Error),
    #[error("the upstream sent nothing more of the body of its response")]
    Late,
}

impl Body {
    pub(super) fn text(text: String) -> Self {
        Self(Kind::Text(text.into()))
    }

    pub(super) fn streamed(mut download: Download) -> Self {
        if download.body.is_end_stream() {
            download.end();
            return Self(Kind::Text(Bytes::new()));
        }
        Self(Kind::Streamed(Box::new(download)))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Text(text) if text.is_empty() => Poll::Ready(None),
            Kind::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Kind::Streamed(download) => download.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Text(text) => text.is_empty(),
            Kind::Streamed(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
            Kind::Streamed(download) => download.body.size_hint(),
        }
    }
}

impl Download {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some((lease, _)) = &mut self.held else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => {
                // Only while the client wants more: a slow reader is not the fault of the upstream.
                if lease.patience.poll_over(cx, 0, self.limit).is_pending() {
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(self.fail(BodyError::Late))))
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                lease.patience.begin();
                if let Some(trailers) = frame.trailers_mut() {
                    fields::drop_from_trailers(trailers);
                }
                // hyper does not ask again after the last byte of a known length.
                if self.body.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(self.fail(BodyError::Broken(error)))))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    /// The response is complete: the connection is for the next request, unless this one was not read to its end.
    fn end(&mut self) {
        let held = self.held.take();
        let is_read = self.upload.take().is_none_or(|upload| upload.abandon());
        if let Some((lease, _)) = held.filter(|_| is_read) {
            lease.give_back();
        }
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        tracing::warn!(cause = %Causes(&error), "a response broke off");
        self.held = None;
        error
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text",
            Self::Streamed(_) => "Streamed",
        })
    }
}
