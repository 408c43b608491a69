use core::fmt;
use core::future::Future;
use core::pin::Pin;

use crate::feedback::Feedback;

use super::RateCall;

/// A limit that a provider can pause, by the headers of a response: a [`Shared`](super::Shared), that of a key of a [`Keyed`](super::Keyed), that
/// of a client of a [`Fair`](super::Fair), which pauses all clients, or one in Redis; also inside a [`Switched`](super::Switched) or an [`Observed`](super::Observed).
///
/// Code that is generic over it works with limits in memory and with limits in Redis, as `FeedbackLayer` of `paceline-tower` does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit that a response can pause",
    note = "it has to be a `Shared`, a `Keyed`, a `Fair`, or a limit in Redis; `Switched` and `Observed` may wrap it"
)]
pub trait Obey {
    /// Why other processes may not know of a pause; [`Infallible`](core::convert::Infallible) in memory.
    type Error: fmt::Display;

    /// Pauses for as long as a provider asks: [`Shared::apply_feedback`](super::Shared::apply_feedback).
    ///
    /// `None`: all is done. A future, for a limit on a server: this process has changed as soon as it was polled, and other
    /// processes know when it is ready.
    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Self::Error>>;

    /// The call of a request that has just passed, if the limit follows the outcomes of calls: [`AdaptiveRate`](super::AdaptiveRate).
    ///
    /// Provided: `None`. Limiters around others return that of those.
    fn begin(&self) -> Option<RateCall> {
        None
    }
}

/// What remains to be done after [`Obey::obey`].
pub type Obeying<E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send>>;
