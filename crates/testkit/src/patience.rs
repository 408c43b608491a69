//! How long a test waits for a stream before it reports that the stream is stuck.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use futures_core::Stream;
use tokio::time::timeout;

/// On a paused clock an hour costs nothing, and no tested code has a reason to wait that long.
const HOUR: Duration = Duration::from_secs(3600);

/// While a task wakes itself over and over the clock stands still, so a spin has to be counted, not timed.
const IDLE_POLLS: u32 = 20_000;

/// A stream that goes on for ever is never pending for an hour; no input of a test has nearly as many items.
const ITEMS: u32 = 10_000;

/// Counts the items, and the polls since the last of them.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    idle_polls: u32,
    items: u32,
}

impl Patience {
    /// Waits for the next item, or for the end.
    pub(crate) async fn next<S: Stream>(
        &mut self,
        mut stream: Pin<&mut S>,
    ) -> Result<Option<S::Item>, Stuck> {
        let next = poll_fn(|cx| match self.polled() {
            Ok(()) => stream.as_mut().poll_next(cx).map(Ok),
            Err(stuck) => Poll::Ready(Err(stuck)),
        });
        let item = wait(next).await??;
        if item.is_some() {
            self.given()?;
        }
        Ok(item)
    }

    /// Call it before every poll.
    pub(crate) fn polled(&mut self) -> Result<(), Stuck> {
        self.idle_polls += 1;
        if self.idle_polls > IDLE_POLLS {
            return Err(Stuck::Spins);
        }
        Ok(())
    }

    /// Call it for every item.
    pub(crate) fn given(&mut self) -> Result<(), Stuck> {
        self.idle_polls = 0;
        self.items += 1;
        if self.items > ITEMS {
            return Err(Stuck::GoesOn);
        }
        Ok(())
    }
}

/// Waits for `future`, an hour at most.
pub(crate) async fn wait<F: Future>(future: F) -> Result<F::Output, Stuck> {
    timeout(HOUR, future).await.map_err(|_| Stuck::Hangs)
}

/// The ways in which a stream fails to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stuck {
    Hangs,
    Spins,
    GoesOn,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hangs => "hangs: nothing happened for an hour",
            Self::Spins => "spins: polled 20,000 times, and nothing came",
            Self::GoesOn => "goes on for ever: gave 10,000 items",
        })
    }
}
