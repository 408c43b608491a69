use core::fmt;
use core::panic::AssertUnwindSafe;
use core::task::{Context, Poll};
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use paceline::concurrency::Admit;
use paceline::limiter::{Limiter, Status};
use paceline::policy::Decision;
use paceline::time::Resolution;
#[cfg(feature = "tracing")]
use paceline::time::{Clock, Tick};

/// What happens to a request when the limiter fails.
///
/// A limiter fails if it returns an error or panics, and if the key function or the cost function of the layer panics. A failure is
/// counted by cause ([`Failures`]), and with feature `tracing` reported as a warning of target `paceline`, at most once a second
/// for each layer. A panic of the inner service, or of an answer, is not caught. The panic hook runs as for any panic. In a program that is built with `panic = "abort"`, a panic ends the
/// program.
///
/// A limit that [cannot be asked](Limiter::is_out_of_reach) does not fail: it decides by itself, as a limit in Redis does by its outage
/// policy. Where that lets nothing pass, the request is refused as with [`Closed`](Self::Closed), whatever is set here, and no failure
/// is counted.
///
/// ```
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use paceline_tower::{EnforceLayer, OnFailure};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # std::panic::set_hook(Box::new(|_| ()));
/// let users = Interval::every(Duration::from_secs(1)).keyed::<char>();
/// let layer = EnforceLayer::by_key(users, |name: &&str| Some(name.chars().next().unwrap()));
/// let inner = service_fn(|_: &str| async { Ok::<_, Infallible>(()) });
///
/// assert!(layer.layer(inner).oneshot("").await.is_ok());
/// assert_eq!(layer.failures().key_panics, 1);
///
/// let layer = layer.on_failure(OnFailure::Closed);
/// assert!(layer.layer(inner).oneshot("").await.unwrap_err().is_limiter_failed());
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a request passes or does not")]
pub enum OnFailure {
    /// It passes.
    #[default]
    Open,
    /// It is refused: [`Refusal::is_limiter_failed`](super::Refusal::is_limiter_failed), and 503 for HTTP.
    Closed,
}

/// How often the limiter of a layer failed, by cause.
///
/// The end of a request is not counted. If an observer panics on [`Released`](paceline::limiter::Event::Released), or a controller on an
/// [`Ignored`](paceline::concurrency::Outcome::Ignored) request, the panic goes to the task of the request. The permit
/// comes back all the same.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Failures {
    /// The limiter returned an error: a limit on a server could not be reached.
    pub errors: u64,
    /// The limiter panicked: its policy did, or an observer.
    pub panics: u64,
    /// The key function panicked.
    pub key_panics: u64,
    /// The cost function panicked.
    pub cost_panics: u64,
    /// The classifier of an [`AdaptiveLayer`](super::AdaptiveLayer) panicked, or its controller. The request had passed.
    pub outcome_panics: u64,
}

/// Why there is no decision about a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault<E> {
    Error(E),
    Panic,
    KeyPanic,
    CostPanic,
    OutcomePanic,
}

impl<E: fmt::Display> fmt::Display for Fault<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panic => f.write_str("the limiter panicked"),
            Self::KeyPanic => f.write_str("the key function panicked"),
            Self::CostPanic => f.write_str("the cost function panicked"),
            Self::OutcomePanic => f.write_str("the classifier or the controller panicked"),
        }
    }
}

/// Counts faults, and warns of them at most once a second. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureLog {
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    failures: Failures,
    #[cfg(feature = "tracing")]
    clock: Clock,
    #[cfg(feature = "tracing")]
    warned_at: Option<Tick>,
}

impl FailureLog {
    pub(super) fn failures(&self) -> Failures {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failures
    }

    pub(super) fn note<E: fmt::Display>(&self, fault: &Fault<E>) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match fault {
            Fault::Error(_) => &mut log.failures.errors,
            Fault::Panic => &mut log.failures.panics,
            Fault::KeyPanic => &mut log.failures.key_panics,
            Fault::CostPanic => &mut log.failures.cost_panics,
            Fault::OutcomePanic => &mut log.failures.outcome_panics,
        };
        *count += 1;
        #[cfg(feature = "tracing")]
        if log.is_to_warn() {
            let failures = log.failures;
            drop(log);
            tracing::warn!(target: "paceline", %fault, ?failures, "the limiter of a layer failed");
        }
    }
}

#[cfg(feature = "tracing")]
impl Log {
    fn is_to_warn(&mut self) -> bool {
        let now = self.clock.now();
        let is_due = |warned_at| now.since(warned_at) >= Duration::from_secs(1);
        let is_to_warn = self.warned_at.is_none_or(is_due);
        if is_to_warn {
            self.warned_at = Some(now);
        }
        is_to_warn
    }
}

/// Runs foreign code; `None` if it panicked. In a program built with `panic = "abort"` a panic ends the program all the same.
///
/// To go on after a panic is safe here. A key or cost function is called by reference and owns its state. The state of a limit is
/// behind a mutex that ignores poison, and the wait queue is whole whenever a policy is asked. The handle that panicked is dropped.
pub(super) fn catch<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// A handle of a limit, whose panics are errors. After a panic it is not asked again.
#[derive(Debug)]
pub(super) struct Contained<L> {
    handle: Option<L>,
}

impl<L> Contained<L> {
    pub(super) const fn new(handle: L) -> Self {
        Self {
            handle: Some(handle),
        }
    }

    /// `None` if it panics, or has panicked before.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut L) -> T) -> Option<T> {
        let handle = self.handle.as_mut()?;
        let answer = catch(|| ask(handle));
        if answer.is_none() {
            self.drop_handle();
        }
        answer
    }

    fn poll<T, E>(
        &mut self,
        poll: impl FnOnce(&mut L) -> Poll<Result<T, E>>,
    ) -> Poll<Result<T, Fault<E>>> {
        let answer = self.ask(poll);
        answer.map_or(Poll::Ready(Err(Fault::Panic)), |answer| {
            answer.map_err(Fault::Error)
        })
    }

    /// To leave the queue may ask the policy, which may panic once more.
    fn drop_handle(&mut self) {
        if self.handle.is_some() {
            let _ = catch(|| self.handle = None);
        }
    }
}

impl<L: Limiter> Limiter for Contained<L> {
    type Error = Fault<L::Error>;

    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Self::Error>> {
        self.poll(|limiter| limiter.poll_decide(cost, cx))
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Self::Error>> {
        self.poll(|limiter| limiter.poll_try(cost, cx))
    }

    fn give_up(&mut self) {
        self.ask(L::give_up);
    }

    fn status(&self) -> Option<Status> {
        let limiter = self.handle.as_ref()?;
        catch(|| limiter.status()).flatten()
    }

    fn is_out_of_reach(&self) -> bool {
        let limiter = self.handle.as_ref();
        limiter
            .and_then(|limiter| catch(|| limiter.is_out_of_reach()))
            .unwrap_or_default()
    }

    fn is_refusal(&self, error: &Self::Error) -> bool {
        let (Fault::Error(error), Some(limiter)) = (error, &self.handle) else {
            return false;
        };
        catch(|| limiter.is_refusal(error)).unwrap_or_default()
    }

    fn least_wait(&self, cost: u32) -> Duration {
        let limiter = self.handle.as_ref();
        let wait = limiter.and_then(|limiter| catch(|| limiter.least_wait(cost)));
        wait.unwrap_or_default()
    }

    fn resolution(&self) -> Resolution {
        let limiter = self.handle.as_ref();
        limiter.map(L::resolution).unwrap_or_default()
    }
}

impl<A: Admit> Admit for Contained<A> {
    type Guard = A::Guard;
    type Error = Fault<A::Error>;

    fn poll_admit(
        &mut self,
        (): (),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<A::Guard>, Self::Error>> {
        self.poll(|permits| permits.poll_admit((), cx))
    }

    fn poll_try_admit(
        &mut self,
        (): (),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<A::Guard>, Self::Error>> {
        self.poll(|permits| permits.poll_try_admit((), cx))
    }

    fn give_up(&mut self) {
        self.ask(A::give_up);
    }
}

impl<L> Drop for Contained<L> {
    fn drop(&mut self) {
        self.drop_handle();
    }
}
