//! A service with everything that a layer can get wrong: readiness, errors, and bodies that take time.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use tower_service::Service;

use crate::clock::{self, Until};
use crate::wakes::Driven;

/// A service that is ready when the test says so, and records how it is used.
///
/// A clone is not ready because the original is. `poll_ready` reserves, and `call` uses the reservation.
#[derive(Debug, Default)]
pub struct Inner {
    state: Arc<Mutex<State>>,
    is_reserved: bool,
}

#[derive(Debug, Default)]
struct State {
    is_shut: bool,
    wakers: Vec<Waker>,
    takes: Duration,
    fails: bool,
    frames: Vec<Part>,
    used: Used,
}

/// How an [`Inner`] was used, over all its clones.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Used {
    /// Calls.
    pub calls: u32,
    /// Calls of a clone that had not said that it is ready.
    pub calls_unready: u32,
    /// Clones that said that they are ready, and were neither called nor dropped since.
    pub reserved: u32,
    /// Calls that are under way.
    pub in_flight: u32,
    /// The most that there were at once.
    pub most_in_flight: u32,
}

/// A part of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Bytes.
    Data(&'static [u8]),
    /// Trailers, with the header `part: trailers`.
    Trailers,
    /// A pause of a millisecond.
    Pause,
    /// An error.
    Failure,
}

/// The error of [`Inner`] and of its bodies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "there is one")]
pub struct InnerError;

impl fmt::Display for InnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the inner service fails")
    }
}

impl std::error::Error for InnerError {}

impl Inner {
    /// Always ready, answers at once with an empty body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers after this long.
    #[must_use]
    pub fn taking(self, takes: Duration) -> Self {
        self.lock().takes = takes;
        self
    }

    /// Answers with an error.
    #[must_use]
    pub fn failing(self) -> Self {
        self.lock().fails = true;
        self
    }

    /// Answers with this body.
    #[must_use]
    pub fn with_body(self, frames: &[Part]) -> Self {
        self.lock().frames = frames.to_vec();
        self
    }

    /// From now on it is ready, or not.
    pub fn set_ready(&self, is_ready: bool) {
        let mut state = self.lock();
        state.is_shut = !is_ready;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How it was used.
    #[must_use]
    pub fn used(&self) -> Used {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_reserved) {
            self.lock().used.reserved -= 1;
        }
    }
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            is_reserved: false,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.release();
    }
}

impl<R> Service<R> for Inner {
    type Response = Response<TestBody>;
    type Error = InnerError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<TestBody>, InnerError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        let mut state = self.lock();
        if state.is_shut && !self.is_reserved {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        if !self.is_reserved {
            state.used.reserved += 1;
        }
        drop(state);
        self.is_reserved = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        let is_ready = self.is_reserved;
        self.release();
        let mut state = self.lock();
        state.used.calls += 1;
        state.used.calls_unready += u32::from(!is_ready);
        let (takes, fails) = (state.takes, state.fails);
        let frames = state.frames.iter().copied().collect();
        drop(state);
        let flight = Flight::new(&self.state);
        Box::pin(async move {
            if !takes.is_zero() {
                clock::sleep(takes).await;
            }
            let mut body = TestBody {
                frames,
                pause: None,
                flight: Some(flight),
            };
            body.end_flight();
            if fails {
                Err(InnerError)
            } else {
                Ok(Response::new(body))
            }
        })
    }
}

/// A call that is under way.
#[derive(Debug)]
struct Flight(Arc<Mutex<State>>);

impl Flight {
    fn new(state: &Arc<Mutex<State>>) -> Self {
        let used = &mut state.lock().unwrap().used;
        used.in_flight += 1;
        used.most_in_flight = used.most_in_flight.max(used.in_flight);
        Self(Arc::clone(state))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.lock().unwrap().used.in_flight -= 1;
    }
}

/// The body of a response of [`Inner`]. The call is under way until it has ended or failed, or is dropped.
#[derive(Debug)]
pub struct TestBody {
    frames: VecDeque<Part>,
    pause: Option<Until>,
    flight: Option<Flight>,
}

impl TestBody {
    fn end_flight(&mut self) {
        if self.is_end_stream() {
            self.flight = None;
        }
    }
}

impl Body for TestBody {
    type Data = &'static [u8];
    type Error = InnerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<&'static [u8]>, InnerError>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.poll(cx));
                self.pause = None;
            }
            let frame = self.frames.pop_front();
            self.end_flight();
            return Poll::Ready(match frame {
                None => None,
                Some(Part::Data(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Part::Trailers) => {
                    let (name, value) = ("part".parse(), "trailers".parse());
                    let trailers = [(name.unwrap(), value.unwrap())];
                    Some(Ok(Frame::trailers(HeaderMap::from_iter(trailers))))
                }
                Some(Part::Failure) => {
                    self.flight = None;
                    Some(Err(InnerError))
                }
                Some(Part::Pause) => {
                    self.pause = Some(Until::after(Duration::from_millis(1)));
                    continue;
                }
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.pause.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.frames.iter().map(|part| match part {
            Part::Data(bytes) => bytes.len() as u64,
            _ => 0,
        });
        SizeHint::with_exact(bytes.sum())
    }
}

/// A call to a service: it waits, or it has a response whose body is read.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "all that there can be")]
pub enum Stage<F, B> {
    /// The call waits for its response.
    Waiting(Driven<F>),
    /// The body of the response is being read.
    Responded(Driven<B>),
}

impl<F, B, E> Stage<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    /// A call that was not polled yet.
    pub fn new(call: F) -> Self {
        Self::Waiting(Driven::new(call))
    }

    /// Polls one of the calls or its body. It goes to the end, or is forgotten when it is over.
    pub fn step(calls: &mut Vec<Self>, index: usize) {
        match calls.remove(index) {
            Self::Waiting(mut call) => match call.poll() {
                Poll::Pending => calls.push(Self::Waiting(call)),
                Poll::Ready(Ok(response)) => {
                    calls.push(Self::Responded(Driven::new(response.into_body())));
                }
                Poll::Ready(Err(_)) => {}
            },
            Self::Responded(mut body) => {
                if let Poll::Ready(Some(Ok(_))) = body.poll_with(Body::poll_frame) {
                    calls.push(Self::Responded(body));
                }
            }
        }
    }
}
