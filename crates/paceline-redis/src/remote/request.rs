use core::mem;
use core::task::Waker;
use core::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;

use super::AFTER_FAULT;
use super::error::ServerError;

/// Identifies a request in the queue. Earlier requests have smaller ids.
pub(crate) type RequestId = u64;

pub(crate) type Decided = Result<Decision, ServerError>;

/// What a queue answers: what the limit decided, or why it did not.
pub(crate) type Asked = Result<Decision, Undecided>;

/// Nothing is known against the request, and it does not pass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Undecided {
    /// The server did not answer, and the outage policy has nothing for the request.
    Outage {
        retry_in: Duration,
    },
    Fault(ServerError),
}

/// The answer to a request that is denied for that time, by the limit or by nobody.
pub(super) const fn denied_for(retry_in: Duration, is_undecided: bool) -> Asked {
    if is_undecided {
        Err(Undecided::Outage { retry_in })
    } else {
        Ok(Decision::Wait { retry_in })
    }
}

/// An outage is no error: the caller waits and asks again.
pub(crate) fn without_outage(answer: Asked) -> Decided {
    answer.or_else(|undecided| match undecided {
        Undecided::Outage { retry_in } => Ok(Decision::Wait { retry_in }),
        Undecided::Fault(fault) => Err(fault),
    })
}

/// A caller that cannot return a fault waits and asks again.
pub(crate) fn without_fault(answer: Decided) -> Decision {
    answer.unwrap_or(Decision::Wait {
        retry_in: AFTER_FAULT,
    })
}

/// A request, until its caller fetches the result.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) cost: u32,
    pub(super) mode: WaitMode,
    pub(super) waker: Waker,
    pub(super) state: RequestState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WaitMode {
    /// Stays in the queue until it passes.
    Wait,
    /// The same, but fails if the server refuses the call.
    WaitFailFast,
    /// Takes whatever answer there is.
    Try,
}

#[derive(Debug)]
pub(super) enum RequestState {
    Queued,
    InFlight,
    /// Without `counted_at`, the outage policy granted the permit: the server has not counted it, and it cannot be returned.
    Granted {
        until: Tick,
        counted_at: Option<u64>,
    },
    Answered(Asked),
}

impl QueuedRequest {
    pub(super) const fn is_queued(&self) -> bool {
        matches!(self.state, RequestState::Queued)
    }

    /// Whether requests behind this one have to wait for it.
    pub(super) const fn blocks(&self) -> bool {
        !matches!(self.mode, WaitMode::Try)
            && matches!(self.state, RequestState::Queued | RequestState::InFlight)
    }

    pub(super) fn finish(&mut self, state: RequestState, wakes: &mut Vec<Waker>) {
        self.state = state;
        wakes.push(mem::replace(&mut self.waker, Waker::noop().clone()));
    }
}
