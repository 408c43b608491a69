use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use paceline::concurrency::Permit;

pin_project! {
    /// The body of a response whose request is under way until the body has ended.
    ///
    /// It drops its guard when the body has ended, with trailers or without, or has failed, and with itself. `is_end_stream` and
    /// `size_hint` are those of the body.
    pub struct Held<B, G = Permit> {
        #[pin]
        body: B,
        guard: Option<G>,
    }
}

impl<B: Body, G> Held<B, G> {
    fn new(body: B, guard: Option<G>) -> Self {
        let guard = guard.filter(|_| !body.is_end_stream());
        Self { body, guard }
    }

    /// Whether the request is still under way.
    pub const fn is_held(&self) -> bool {
        self.guard.is_some()
    }
}

impl<B: Body, G> Body for Held<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        // Nothing comes after trailers, and a server may not poll again.
        let goes_on = matches!(&frame, Some(Ok(frame)) if !frame.is_trailers());
        if !goes_on || this.body.is_end_stream() {
            *this.guard = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B, G> From<B> for Held<B, G> {
    /// A body that holds nothing, such as that of a response in place of the service's.
    fn from(body: B) -> Self {
        Self { body, guard: None }
    }
}

impl<B: Default, G> Default for Held<B, G> {
    fn default() -> Self {
        B::default().into()
    }
}

impl<B: fmt::Debug, G> fmt::Debug for Held<B, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("body", &self.body)
            .field("is_held", &self.guard.is_some())
            .finish()
    }
}

/// When a request is no longer under way: after the body of its response, or after the response.
#[diagnostic::on_unimplemented(
    message = "a response of type `{P}` cannot hold a permit until its body has ended",
    note = "only an `http::Response<B>` with `B: http_body::Body` has a body; for another service use `.until_response()`"
)]
pub trait Hold<P, G> {
    /// The response of the layer's service.
    type Response;

    /// The response, which may hold the guard. Without one the request was refused, or is not limited.
    fn hold(response: P, guard: Option<G>) -> Self::Response;
}

/// A request is under way until the body of its response has ended, failed or was dropped.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UntilBody;

impl<B: Body, G> Hold<Response<B>, G> for UntilBody {
    type Response = Response<Held<B, G>>;

    fn hold(response: Response<B>, guard: Option<G>) -> Self::Response {
        response.map(|body| Held::new(body, guard))
    }
}

/// A request is under way until there is a response.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UntilResponse;

impl<P, G> Hold<P, G> for UntilResponse {
    type Response = P;

    fn hold(response: P, guard: Option<G>) -> P {
        drop(guard);
        response
    }
}
