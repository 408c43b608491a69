use core::task::{Context, Poll, ready};
use core::time::Duration;

use paceline::concurrency::{Admit, Permit, Permits};
use paceline::limiter::{Gate, Limiter, Status};
use paceline::policy::Decision;
use paceline::time::{Resolution, Timer};

use super::Refusal;
use super::failure::{Contained, Fault};
use super::refusal::RefusalKind;

/// What one request asks of its limit: to pass, or for a guard.
pub(super) trait Ask {
    type Guard;
    type Error;

    /// Whether it waits for room, and not for a quota of its caller.
    const IS_FOR_ROOM: bool;

    /// Asks, and is queued while it has to wait.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Answer<Self>;

    /// Asks without being queued, and is refused as `kind` if it would have to wait. `Pending` means only that the answer is under
    /// way.
    fn poll_try(&mut self, kind: RefusalKind, cx: &mut Context<'_>) -> Answer<Self>;

    /// Leaves the queue.
    fn give_up(&mut self);

    /// Whether it waits, or would have to, only because the limit cannot be asked. A guard that does not come means that there is no
    /// room, whatever the cause is.
    fn is_out_of_reach(&self) -> bool {
        false
    }

    /// How long it waits at the least.
    fn least_wait(&self) -> Duration {
        Duration::ZERO
    }

    fn status(&self) -> Option<Status> {
        None
    }

    fn resolution(&self) -> Resolution {
        Resolution::default()
    }
}

/// What a limit answers.
pub(super) type Answer<Q> = Poll<Result<<Q as Ask>::Guard, Blocked<<Q as Ask>::Error>>>;

/// Why a request does not pass.
#[derive(Debug)]
pub(super) enum Blocked<E> {
    Refused(Refusal),
    Failed(Fault<E>),
}

impl<E> Blocked<E> {
    /// A refusal says what the limit has left.
    pub(super) fn with_status(self, ask: &impl Ask) -> Self {
        match self {
            Self::Refused(refusal) if !refusal.is_limiter_failed() => {
                Self::Refused(refusal.with_status(ask.status()))
            }
            failed => failed,
        }
    }
}

/// How long a request waits, and how many wait.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    /// `None`: it waits. Else why it is refused if it cannot pass at once.
    pub(super) refuses: Option<RefusalKind>,
    pub(super) within: Option<Duration>,
    /// A place for each request that waits.
    pub(super) places: Option<Permits>,
}

impl Patience {
    pub(super) const fn new(refuses: Option<RefusalKind>) -> Self {
        Self {
            refuses,
            within: None,
            places: None,
        }
    }
}

/// A request in front of its limit.
///
/// A request that may not wait is not queued. It is refused by an answer of the limit alone: while the answer is under way it waits
/// for that.
#[derive(Debug)]
pub(super) struct Admission<Q> {
    ask: Q,
    /// As in [`Patience`]; it may not wait either if that would be too long, or if there is no place.
    refuses: Option<RefusalKind>,
    has_begun: bool,
    place: Option<Permit>,
    /// Armed while it waits.
    deadline: Option<Timer>,
}

impl<Q: Ask> Admission<Q> {
    pub(super) const fn new(ask: Q) -> Self {
        Self {
            ask,
            refuses: None,
            has_begun: false,
            place: None,
            deadline: None,
        }
    }

    /// Ready when the request passes, with its guard, or is refused.
    pub(super) fn poll(&mut self, patience: &Patience, cx: &mut Context<'_>) -> Answer<Q> {
        if !self.has_begun {
            self.has_begun = true;
            self.refuses = self.begin(patience);
        }
        let polled = match self.refuses {
            Some(kind) => self.ask.poll_try(kind, cx),
            None => self.ask.poll_wait(cx),
        };
        let answer = match (polled, patience.within) {
            (Poll::Ready(answer), _) => answer,
            (Poll::Pending, None) => return Poll::Pending,
            (Poll::Pending, Some(within)) => {
                ready!(self.poll_deadline(within, cx));
                Err(self.too_late(within))
            }
        };
        Poll::Ready(answer.map_err(|blocked| blocked.with_status(&self.ask)))
    }

    /// What the limit has left.
    pub(super) fn status(&self) -> Option<Status> {
        self.ask.status()
    }

    /// Finds out whether the request may wait.
    fn begin(&mut self, patience: &Patience) -> Option<RefusalKind> {
        if patience.refuses.is_some() {
            return patience.refuses;
        }
        if let Some(within) = patience.within {
            if self.ask.least_wait() > within {
                return Some(Self::late(within));
            }
        }
        let places = patience.places.as_ref()?;
        self.place = places.try_acquire();
        self.place.is_none().then_some(RefusalKind::NoRoom)
    }

    fn poll_deadline(&mut self, within: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let resolution = self.ask.resolution();
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut timer = Timer::new().with_resolution(resolution);
            timer.arm(within);
            timer
        });
        deadline.poll_elapsed(cx)
    }

    fn too_late(&mut self, within: Duration) -> Blocked<Q::Error> {
        if self.ask.is_out_of_reach() {
            return Blocked::Refused(Refusal::new(RefusalKind::LimiterFailed));
        }
        // A retry does not wait behind this request.
        self.ask.give_up();
        let wait = Some(self.ask.least_wait()).filter(|wait| !wait.is_zero());
        Blocked::Refused(Refusal::new(Self::late(within)).with_retry_in(wait))
    }

    const fn late(within: Duration) -> RefusalKind {
        RefusalKind::TooLate {
            within,
            for_room: Q::IS_FOR_ROOM,
        }
    }
}

/// A request of `cost` to a limiter.
#[derive(Debug)]
pub(super) struct AskRate<L: Limiter> {
    gate: Gate<Contained<L>>,
    cost: u32,
}

impl<L: Limiter> AskRate<L> {
    pub(super) const fn new(limiter: L, cost: u32) -> Self {
        let gate = Gate::new(Contained::new(limiter));
        Self { gate, cost }
    }

    /// The answer to a request that may not wait; it is refused as `kind`.
    fn decided(
        &self,
        decision: Result<Decision, Fault<L::Error>>,
        kind: RefusalKind,
    ) -> Result<(), Blocked<L::Error>> {
        match decision {
            Ok(Decision::Wait { .. }) if self.is_out_of_reach() => {
                Err(Blocked::Refused(Refusal::new(RefusalKind::LimiterFailed)))
            }
            Ok(decision) => answered(decision, self.cost, kind).map_err(Blocked::Refused),
            Err(fault) => Err(self.failed(fault)),
        }
    }

    fn failed(&self, fault: Fault<L::Error>) -> Blocked<L::Error> {
        if self.gate.limiter().is_refusal(&fault) {
            return Blocked::Refused(Refusal::new(RefusalKind::NoRoom));
        }
        Blocked::Failed(fault)
    }
}

/// The answer to a request of `cost` that may not wait; it is refused as `kind`.
#[inline]
pub(super) fn answered(decision: Decision, cost: u32, kind: RefusalKind) -> Result<(), Refusal> {
    match decision {
        Decision::Pass => Ok(()),
        Decision::Wait { retry_in } => {
            let wait = Some(retry_in).filter(|wait| *wait < Duration::MAX);
            Err(Refusal::new(kind).with_retry_in(wait))
        }
        Decision::Never { capacity } => {
            Err(Refusal::new(RefusalKind::TooCostly { cost, capacity }))
        }
    }
}

impl<L: Limiter> Ask for AskRate<L> {
    type Guard = ();
    type Error = L::Error;

    const IS_FOR_ROOM: bool = false;

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Answer<Self> {
        let passed = ready!(self.gate.poll_pass(self.cost, cx));
        let Err(error) = passed else {
            return Poll::Ready(Ok(()));
        };
        let capacity = error.too_costly().map(|never| never.capacity());
        let capacity = capacity.unwrap_or_default();
        // A gate has no deadline.
        let never = |_| Ok(Decision::Never { capacity });
        let answer = error.into_limit().map_or_else(never, Err);
        Poll::Ready(self.decided(answer, RefusalKind::TooSoon))
    }

    fn poll_try(&mut self, kind: RefusalKind, cx: &mut Context<'_>) -> Answer<Self> {
        let decision = ready!(self.gate.limiter_mut().poll_try(self.cost, cx));
        Poll::Ready(self.decided(decision, kind))
    }

    fn give_up(&mut self) {
        self.gate.give_up();
    }

    fn is_out_of_reach(&self) -> bool {
        self.gate.limiter().is_out_of_reach()
    }

    fn least_wait(&self) -> Duration {
        self.gate.limiter().least_wait(self.cost)
    }

    fn status(&self) -> Option<Status> {
        self.gate.limiter().status()
    }

    fn resolution(&self) -> Resolution {
        self.gate.limiter().resolution()
    }
}

/// A request for a permit.
#[derive(Debug)]
pub(super) struct AskPermit<A> {
    permits: Contained<A>,
}

impl<A: Admit> AskPermit<A> {
    pub(super) const fn new(permits: A) -> Self {
        Self {
            permits: Contained::new(permits),
        }
    }
}

impl<A: Admit> Ask for AskPermit<A> {
    type Guard = A::Guard;
    type Error = A::Error;

    const IS_FOR_ROOM: bool = true;

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Answer<Self> {
        let admitted = self.permits.poll_admit((), cx);
        admitted.map(|admitted| admitted_as(admitted, RefusalKind::NoRoom))
    }

    fn poll_try(&mut self, kind: RefusalKind, cx: &mut Context<'_>) -> Answer<Self> {
        let admitted = self.permits.poll_try_admit((), cx);
        admitted.map(|admitted| admitted_as(admitted, kind))
    }

    fn give_up(&mut self) {
        self.permits.give_up();
    }
}

fn admitted_as<G, E>(
    admitted: Result<Option<G>, Fault<E>>,
    kind: RefusalKind,
) -> Result<G, Blocked<E>> {
    let guard = admitted.map_err(Blocked::Failed)?;
    guard.ok_or_else(|| Blocked::Refused(Refusal::new(kind)))
}
