//! `/events`: the share as it changes, as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use paceline::time::{Resolution, Timer};
use tokio::sync::OwnedSemaphorePermit;

use crate::state::Sidecar;

use super::view::View;

/// The time between two events, unless a cycle begins earlier.
const PERIOD: Duration = Duration::from_millis(500);
/// The least time between two events, however short the cycle is.
const LEAST: Duration = Duration::from_millis(50);

/// The body of `/events`: one event at once, then one at the start of each cycle and at least twice a second. It ends with the event
/// that says that the sidecar drains.
///
/// **Holds** no event: each is made when the connection has room for it. A slow reader misses events, and a connection that takes
/// nothing ends after [`PATIENCE`](super::PATIENCE).
#[derive(Debug)]
pub(super) struct Events {
    sidecar: Arc<Sidecar>,
    timer: Timer,
    is_over: bool,
    // Frees the place for another subscriber.
    _permit: OwnedSemaphorePermit,
}

impl Events {
    pub(super) fn new(sidecar: Arc<Sidecar>, permit: OwnedSemaphorePermit) -> Self {
        Self {
            sidecar,
            timer: Timer::new().with_resolution(Resolution::Millis),
            is_over: false,
            _permit: permit,
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        ready!(this.timer.poll_elapsed(cx));
        let view = View::of(&this.sidecar).of_the_busiest();
        this.is_over = view.is_draining;
        // Just after the start of the next cycle, if that comes soon.
        let start = view.until_next().saturating_add(Duration::from_millis(1));
        this.timer.arm(start.clamp(LEAST, PERIOD));
        Poll::Ready(Some(Ok(Frame::data(event(&view)))))
    }
}

fn event(view: &View) -> Bytes {
    // JSON has no line break outside a string, and escapes those inside.
    let json = serde_json::to_string(view).unwrap_or_default();
    Bytes::from(format!("id: {}\ndata: {json}\n\n", view.cycle))
}
