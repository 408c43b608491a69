use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use thiserror::Error;

use super::count;
use super::failure::Causes;
use super::fields;
use super::gate::Admitted;
use super::h2c::Answer;
use super::http1::{Broken, Exchange, Incoming, Pool};
use super::patience::Patience;
use crate::state::Sidecar;

/// What a poll of a body brings.
pub(crate) type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// The body of a response: bytes that are here already, or what the upstream sends.
pub(crate) struct Body(Kind);

enum Kind {
    Whole(Bytes),
    Streamed(Box<Download>),
}

/// What has answered. The head of the response was taken from it.
#[derive(Debug)]
pub(super) enum Answered {
    Http1(Exchange, Rc<Pool>),
    Http2(Answer),
}

/// The body of a response on its way to the client.
struct Download {
    source: Source,
    /// Without a byte for so long it ends.
    limit: Duration,
    /// The permit of the request.
    admitted: Admitted,
    sidecar: Arc<Sidecar>,
}

enum Source {
    Http1(Incoming, Rc<Pool>),
    Http2(Answer),
    /// After the end.
    Over,
}

/// Why the body of a response ends before its end.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    // Not its source: hyper would pass the reason of a reset on to the client, for which it means something else.
    #[error("the upstream broke the body of its response: {}", Causes(.0))]
    Broken(Broken),
    #[error("the upstream sent nothing more of the body of its response")]
    Late,
}

impl Body {
    pub(super) fn text(text: String) -> Self {
        Self(Kind::Whole(text.into()))
    }
}

impl Answered {
    /// The body of the response. The connection goes back to the pool at its end.
    pub(super) fn body(self, limit: Duration, admitted: Admitted, sidecar: &Arc<Sidecar>) -> Body {
        let mut source = match self {
            Self::Http1(exchange, pool) => Source::Http1(exchange.into_incoming(), pool),
            Self::Http2(answer) => Source::Http2(answer),
        };
        if let Some(whole) = source.whole() {
            source.finish();
            return Body(Kind::Whole(whole));
        }
        Body(Kind::Streamed(Box::new(Download {
            source,
            limit,
            admitted,
            sidecar: Arc::clone(sidecar),
        })))
    }
}

impl Source {
    fn whole(&mut self) -> Option<Bytes> {
        match self {
            Self::Http1(incoming, _) => incoming.whole(),
            source => source.is_end_stream().then(Bytes::new),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<Broken> {
        match self {
            Self::Http1(incoming, _) => incoming.poll_frame(cx),
            Self::Http2(answer) => {
                let polled = Pin::new(&mut answer.body).poll_frame(cx);
                // hyper takes a reset without an error for the end.
                if matches!(polled, Poll::Ready(None)) && !answer.body.is_end_stream() {
                    return Poll::Ready(Some(Err(Broken::Closed)));
                }
                polled.map_err(Broken::Http2)
            }
            Self::Over => Poll::Ready(None),
        }
    }

    fn patience(&mut self) -> Option<&mut Patience> {
        match self {
            Self::Http1(incoming, _) => Some(incoming.patience()),
            Self::Http2(answer) => Some(&mut answer.patience),
            Self::Over => None,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(incoming, _) => incoming.is_end_stream(),
            Self::Http2(answer) => answer.body.is_end_stream(),
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(incoming, _) => incoming.size_hint(),
            Self::Http2(answer) => answer.body.size_hint(),
            Self::Over => SizeHint::with_exact(0),
        }
    }

    fn finish(self) {
        match self {
            Self::Http1(incoming, pool) => incoming.finish(&pool),
            Self::Http2(_) | Self::Over => {}
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<BodyError> {
        match &mut self.0 {
            Kind::Whole(whole) if whole.is_empty() => Poll::Ready(None),
            Kind::Whole(whole) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(whole))))),
            Kind::Streamed(download) => download.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(whole) => whole.is_empty(),
            Kind::Streamed(download) => download.source.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(whole) => SizeHint::with_exact(whole.len() as u64),
            Kind::Streamed(download) => download.source.size_hint(),
        }
    }
}

impl Download {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<BodyError> {
        let polled = self.source.poll_frame(cx);
        let Some(patience) = self.source.patience() else {
            return Poll::Ready(None);
        };
        match polled {
            Poll::Pending => {
                // Only while the client wants more: a slow reader is not the fault of the upstream.
                if patience.poll_over(cx, 0, self.limit).is_pending() {
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(self.fail(BodyError::Late))))
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                patience.begin();
                if let Some(trailers) = frame.trailers_mut() {
                    fields::drop_from_trailers(trailers);
                }
                // hyper does not ask again after the last byte of a known length.
                if self.source.is_end_stream() {
                    self.end().finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(self.fail(BodyError::Broken(error)))))
            }
            Poll::Ready(None) => {
                self.end().finish();
                Poll::Ready(None)
            }
        }
    }

    fn end(&mut self) -> Source {
        drop(std::mem::take(&mut self.admitted));
        std::mem::replace(&mut self.source, Source::Over)
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        let counts = &self.sidecar.counts;
        count(&counts.responses_broken);
        if counts.failures.may_be_logged() {
            tracing::warn!(cause = %Causes(&error), "a response broke off");
        }
        drop(self.end());
        error
    }
}
