use core::task::Waker;

use crate::policy::Decision;
use crate::time::Tick;

use super::error::ServerError;

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
    Granted(Tick),
    Answered(Result<Decision, ServerError>),
}

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
