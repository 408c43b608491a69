use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::hash::Hash;
use core::pin::Pin;

use crate::feedback::Feedback;
use crate::policy::Policy;

use super::{KeyedAt, Limiter, Observed, Observer, Shared, Switched};

/// A limit that a provider can pause, by the headers of a response: a [`Shared`], that of a key of a [`Keyed`](super::Keyed), or one
/// in Redis; also inside a [`Switched`] or an [`Observed`].
///
/// Code that is generic over it works with limits in memory and with limits in Redis, as `FeedbackLayer` of feature `tower` does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit that a response can pause",
    note = "it has to be a `Shared`, a `Keyed`, or a limit in Redis; `Switched` and `Observed` may wrap it"
)]
pub trait Obey {
    /// Why other processes may not know of a pause; [`Infallible`] in memory.
    type Error: fmt::Display;

    /// Pauses for as long as a provider asks: [`Shared::apply_feedback`].
    ///
    /// `None`: all is done. A future, for a limit on a server: this process has changed as soon as it was polled, and other
    /// processes know when it is ready.
    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Self::Error>>;
}

/// What remains to be done after [`Obey::obey`].
pub type Obeying<E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send>>;

impl<P: Policy> Obey for Shared<P> {
    type Error = Infallible;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Infallible>> {
        self.apply_feedback(feedback);
        None
    }
}

impl<K, P> Obey for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    type Error = Infallible;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Infallible>> {
        self.apply_feedback(feedback);
        None
    }
}

/// Whatever the switch says: the pause holds where the limit does.
impl<L: Obey> Obey for Switched<L> {
    type Error = L::Error;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<L::Error>> {
        self.limiter()?.obey(feedback)
    }
}

impl<L: Limiter + Obey, O: Observer> Obey for Observed<L, O> {
    type Error = <L as Obey>::Error;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Self::Error>> {
        self.limiter().obey(feedback)
    }
}
