use core::task::Waker;
use core::time::Duration;

use crate::policy::Decision;
use crate::time::Tick;

use super::error::ServerError;

/// A place in line. Smaller is earlier.
pub(super) type Ticket = u64;

/// Somebody who asked and has no answer yet, or has not fetched it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) cost: u32,
    pub(super) manner: Manner,
    pub(super) since: Tick,
    pub(super) waker: Waker,
    pub(super) state: State,
}

/// How somebody asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Manner {
    /// Stands in line until it passes.
    Stands,
    /// The same, unless the server refuses to answer.
    StandsUnlessFault,
    /// Wants an answer.
    Tries,
}

#[derive(Debug)]
pub(super) enum State {
    Standing,
    /// On a trip.
    Sent,
    Granted(Granted),
    Answered(Result<Decision, ServerError>),
}

/// A permit that waits to be fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// When it was counted.
    pub(super) at: Tick,
    /// In Redis: what passed without it cannot be given back there.
    pub(super) is_counted: bool,
}

impl Granted {
    /// Whether it can still be used.
    pub(super) fn is_fresh(self, now: Tick) -> bool {
        now.since(self.at) <= FRESH
    }
}

/// A permit that nobody has fetched for so long is void. It was counted, so that nothing passes that much later than Redis
/// thinks.
pub(super) const FRESH: Duration = Duration::from_millis(100);

impl Waiting {
    /// Whether it is to go on the next trip.
    pub(super) const fn is_standing(&self) -> bool {
        matches!(self.state, State::Standing)
    }

    /// Whether it is in line until it passes, and has not.
    pub(super) const fn stands(&self) -> bool {
        !matches!(self.manner, Manner::Tries) && matches!(self.state, State::Standing | State::Sent)
    }

    pub(super) fn becomes(&mut self, state: State, wakes: &mut Vec<Waker>) {
        self.state = state;
        wakes.push(self.waker.clone());
    }
}
