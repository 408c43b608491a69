use core::fmt;
use core::hash::Hash;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::policy::Decision;
use crate::time::Resolution;

use super::limit::Mode;
use super::share::{Share, point_of, point_of_request};
use super::switch::Switch;
use super::{Limiter, Limits, Method, Status};

/// A limiter, or a limiter for each key, with a [`Switch`]: active, in shadow mode or off, for all requests or for a share of them.
///
/// It wraps any limiter and is a limiter itself: a [`Shared`](super::Shared), a [`KeyedAt`](super::KeyedAt), an
/// [`Observed`](super::Observed) one, or one in Redis. It also wraps [`Limits`], such as a [`Keyed`](super::Keyed), and then has a
/// switched limiter for each key.
///
/// ```
/// use paceline::limiter::{Limits, PolicyExt, Share, Switch, Switched};
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::time::Rate;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let switch = Switch::new().with_share(Share::percent(30));
/// let users = TokenBucket::new(Rate::per_second(1), 1).keyed::<&str>();
/// let users = Switched::new(users, switch.clone());
///
/// for user in ["ann", "bob", "ann", "bob"] {
///     let Ok(limit) = users.at(user);
///     println!("{user}: {:?}", limit.try_acquire(1).await);
/// }
/// // Of the two, the share has bob. What ann would have been refused is only counted.
/// assert!(switch.share().includes("bob") && !switch.share().includes("ann"));
/// assert_eq!(switch.stats().held_back, 1);
///
/// switch.set_share(Share::FULL);
/// let Ok(ann) = users.at("ann");
/// assert!(!ann.try_acquire(1).await.is_pass());
/// # }
/// ```
///
/// # What is limited
///
/// In [`Mode::Active`] a request in the switch's [`Share`] gets the answer of the limiter. Any other request is shadowed: it passes,
/// the limiter charges it if it conforms, and the switch counts it if it does not. The limiter thus has the state that it would have
/// if all were limited, and a larger share brings no surprise.
///
/// * A limiter that has a key limits either all of its requests or none, as [`Share::includes`] says: the same in all processes. The
///   key comes from [`Limits::at`] or from [`with_key`](Self::with_key).
/// * Without a key, the requests of all limiters of the switch are numbered. Of any 10,000 requests in a row exactly the share is
///   limited, spread evenly.
///
/// A shadowed request waits for no permits and takes only what the limiter grants at once. A limit on a server is asked all the
/// same, and the request waits for the answer; [`Mode::Off`] spares it that. An error of the limiter reaches the caller only where
/// the request is limited. So does an error of [`Limits::at`]: a limiter that was made for a key without a limit while the key was
/// not limited lets everything pass.
///
/// # Watching it
///
/// To see a dark launch in metrics or in a log, put an [`Observed`](super::Observed) limiter around the switched one: what passes
/// only because of the switch is [`Event::Shadowed`](super::Event::Shadowed) there. An observer that the limiter itself carries
/// sees the answers of the limiter. There the same request is refused, and so it is in the limiter's own
/// [`Stats`](super::Stats).
///
/// ```
/// use paceline::limiter::{Event, Mode, Observed, PolicyExt, Switch, Switched};
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (sender, events) = mpsc::channel();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let limit = Switched::new(limit, Switch::new().with_mode(Mode::Shadow));
/// let limit = Observed::new(limit, move |event| sender.send(event).unwrap());
///
/// limit.acquire_one().await;
/// assert!(limit.try_acquire(1).await.is_pass());
///
/// assert!(matches!(events.recv(), Ok(Event::Passed { .. })));
/// assert!(matches!(events.recv(), Ok(Event::Shadowed { .. })));
/// # }
/// ```
///
/// # Cost
///
/// While the share is [`Share::FULL`], one relaxed read of an atomic comes on top of the limiter; for a request that waits, a short
/// lock too. Without a key, a partial share costs an atomic addition for each request.
///
/// # Cancel safety
///
/// That of the limiter. A queued request that is not limited any more, because the switch was changed, passes at once and leaves the
/// limiter's queue.
pub struct Switched<L> {
    /// `None` for a key without a limit.
    limiter: Option<L>,
    switch: Switch,
    /// The number of the key.
    key: Option<u16>,
    /// The number of the present request, if it has no key.
    drawn: Option<u16>,
    /// Under which the switch keeps the waker of this handle.
    ticket: Option<u64>,
    /// Whether the limiter may be in its queue, or have an answer under way.
    is_asked: bool,
    /// What the last request would have been answered if the switch were on.
    shadowed: Option<Decision>,
}

impl<L> Switched<L> {
    /// Asks `limiter` as `switch` says.
    #[must_use]
    pub const fn new(limiter: L, switch: Switch) -> Self {
        Self::of(Some(limiter), switch, None)
    }

    const fn of(limiter: Option<L>, switch: Switch, key: Option<u16>) -> Self {
        Self {
            limiter,
            switch,
            key,
            drawn: None,
            ticket: None,
            is_asked: false,
            shadowed: None,
        }
    }

    /// The requests of this handle are in the share if this key is. A handle from [`Limits::at`] has its key already.
    ///
    /// ```
    /// use paceline::limiter::{PolicyExt, Share, Switch, Switched};
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let switch = Switch::new().with_share(Share::percent(30));
    /// let limit = Interval::every(Duration::from_secs(1)).shared();
    /// let ann = Switched::new(limit.clone(), switch.clone()).with_key("ann");
    /// let bob = Switched::new(limit, switch).with_key("bob");
    ///
    /// assert!(bob.try_acquire(1).await.is_pass());
    /// assert!(ann.try_acquire(1).await.is_pass(), "not in the share");
    /// assert!(!bob.try_acquire(1).await.is_pass());
    /// # }
    /// ```
    #[must_use]
    pub fn with_key<K: Hash + ?Sized>(mut self, key: &K) -> Self {
        self.key = Some(point_of(key));
        self
    }

    /// The switch.
    #[must_use]
    pub const fn switch(&self) -> &Switch {
        &self.switch
    }

    /// `None` for a key without a limit.
    pub(super) const fn limiter(&self) -> Option<&L> {
        self.limiter.as_ref()
    }

    /// Whether the present request is in this share.
    fn is_in(&mut self, share: Share) -> bool {
        if share == Share::FULL {
            return true;
        }
        let draw = || point_of_request(self.switch.draw());
        let point = self
            .key
            .unwrap_or_else(|| *self.drawn.get_or_insert_with(draw));
        share.includes_point(point)
    }
}

impl<L: Limiter> Switched<L> {
    fn poll_ask(
        &mut self,
        method: Method,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, L::Error>> {
        loop {
            self.shadowed = None;
            let setting @ (mode, share) = self.switch.setting();
            let answer = match mode {
                Mode::Active if cost == 0 || self.is_in(share) => {
                    self.poll_active(method, cost, cx)
                }
                Mode::Active | Mode::Shadow if method != Method::Open => self.poll_shadow(cost, cx),
                _ => {
                    self.leave();
                    Poll::Ready(Ok(Decision::Pass))
                }
            };
            let waits = match answer {
                Poll::Pending => true,
                Poll::Ready(Ok(Decision::Wait { .. })) => method != Method::Try,
                Poll::Ready(_) => false,
            };
            if !waits {
                self.end(method, cost, &answer);
                return answer;
            }
            if self.switch.register(&mut self.ticket, setting, cx.waker()) {
                return answer;
            }
        }
    }

    fn poll_active(
        &mut self,
        method: Method,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, L::Error>> {
        let Some(limiter) = &mut self.limiter else {
            return Poll::Ready(Ok(Decision::Pass));
        };
        self.is_asked = true;
        let answer = match method {
            Method::Decide => limiter.poll_decide(cost, cx),
            Method::Try => limiter.poll_try(cost, cx),
            Method::Open => limiter.poll_open(cost, cx),
        };
        self.shadowed = limiter.shadowed();
        answer
    }

    /// Passes, except while the answer is under way.
    fn poll_shadow(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let answer = self
            .limiter
            .as_mut()
            .map(|limiter| limiter.poll_try(cost, cx));
        let would_pass = match answer {
            Some(Poll::Pending) => {
                self.is_asked = true;
                return Poll::Pending;
            }
            Some(Poll::Ready(Ok(decision))) => {
                let is_shadowed = cost > 0 && !decision.is_pass();
                self.shadowed = is_shadowed.then_some(decision);
                Some(decision.is_pass())
            }
            Some(Poll::Ready(Err(_))) | None => None,
        };
        if would_pass != Some(true) {
            self.leave();
        }
        if cost > 0 {
            self.switch.count_shadowed(would_pass);
        }
        Poll::Ready(Ok(Decision::Pass))
    }

    /// What remains after an answer on which the request does not wait.
    fn end(&mut self, method: Method, cost: u32, answer: &Poll<Result<Decision, L::Error>>) {
        self.switch.deregister(&mut self.ticket);
        // A request that may pass is made next, and has the same number. Cost 0 is no request.
        let is_open = method == Method::Open && matches!(answer, Poll::Ready(Ok(Decision::Pass)));
        if cost > 0 && !is_open {
            self.drawn = None;
        }
    }

    fn leave(&mut self) {
        if core::mem::take(&mut self.is_asked) {
            self.limiter.iter_mut().for_each(L::give_up);
        }
    }
}

impl<L: Limiter> Limiter for Switched<L> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        self.poll_ask(Method::Decide, cost, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        self.poll_ask(Method::Try, cost, cx)
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        self.poll_ask(Method::Open, cost, cx)
    }

    fn give_up(&mut self) {
        self.leave();
        self.switch.deregister(&mut self.ticket);
        self.drawn = None;
    }

    fn shadowed(&self) -> Option<Decision> {
        self.shadowed
    }

    /// `None` while the switch is off.
    fn status(&self) -> Option<Status> {
        let limiter = self
            .limiter
            .as_ref()
            .filter(|_| self.switch.mode() != Mode::Off);
        limiter.and_then(L::status)
    }

    /// Not known while only a share is limited.
    fn least_wait(&self, cost: u32) -> Duration {
        let is_limited = self.switch.setting() == (Mode::Active, Share::FULL);
        let limiter = self.limiter.as_ref().filter(|_| is_limited);
        limiter
            .map(|limiter| limiter.least_wait(cost))
            .unwrap_or_default()
    }

    fn resolution(&self) -> Resolution {
        self.limiter.as_ref().map(L::resolution).unwrap_or_default()
    }
}

impl<K: Hash, L: Limits<K>> Limits<K> for Switched<L> {
    type Limiter = Switched<L::Limiter>;
    type Error = L::Error;

    /// The error reaches the caller only if the key is limited now.
    fn at(&self, key: K) -> Result<Switched<L::Limiter>, L::Error> {
        let point = point_of(&key);
        let limiter = self
            .limiter
            .as_ref()
            .map(|limits| limits.at(key))
            .transpose();
        let limiter = limiter.or_else(|error| match self.switch.setting() {
            (Mode::Active, share) if share.includes_point(point) => Err(error),
            _ => Ok(None),
        });
        Ok(Switched::of(limiter?, self.switch.clone(), Some(point)))
    }
}

/// A new handle, with the same switch and key.
impl<L: Clone> Clone for Switched<L> {
    fn clone(&self) -> Self {
        Self::of(self.limiter.clone(), self.switch.clone(), self.key)
    }
}

/// The switch forgets its waker.
impl<L> Drop for Switched<L> {
    fn drop(&mut self) {
        self.switch.deregister(&mut self.ticket);
    }
}

impl<L: fmt::Debug> fmt::Debug for Switched<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched")
            .field("limiter", &self.limiter)
            .field("switch", &self.switch)
            .finish_non_exhaustive()
    }
}
