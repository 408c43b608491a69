use core::convert::Infallible;
use core::fmt;
use core::hash::Hash;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::time::Instant;

use crate::feedback::Feedback;
use crate::policy::Decision;
use crate::time::Resolution;

use super::future::Obeying;
use super::mode::Mode;
use super::share::{Share, point_of, point_of_request};
use super::switch::Switch;
use super::{Answer, Limiter, Limits, Method, Obey, RateCall, Settle, Status, TooCostly};

/// A limiter or permits, or those for each key, with a [`Switch`]: active, in shadow mode or off, for all requests or for a share of
/// them.
///
/// It wraps any limiter and is a limiter itself: a [`Shared`](super::Shared), a [`KeyedAt`](super::KeyedAt), an
/// [`Observed`](super::Observed) one, or one in Redis. It also wraps [`Limits`], such as a [`Keyed`](super::Keyed), and then has a
/// switched limiter for each key. Permits it wraps too, in memory and in Redis: see [below](#permits).
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
/// # Permits
///
/// Around what [admits](crate::concurrency::Admit) work, or does so for each key, it admits work
/// as the switch says. A request that is shadowed asks without being queued, and begins in any case. Its guard is `Some` if there was
/// a permit for it, so that the permits in use are those that a limit would see. It is `None` if there was none, and in
/// [`Mode::Off`].
///
/// ```
/// use core::future::poll_fn;
/// use paceline::concurrency::{Admit, Permits};
/// use paceline::limiter::{Mode, Switch, Switched};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let switch = Switch::new().with_mode(Mode::Shadow);
/// let mut permits = Switched::new(Permits::new(1), switch.clone());
///
/// let Ok(first) = poll_fn(|cx| permits.poll_admit((), cx)).await;
/// assert!(matches!(first, Some(Some(_))));
/// let Ok(second) = poll_fn(|cx| permits.poll_admit((), cx)).await;
/// assert!(matches!(second, Some(None)), "it begins without a permit");
/// assert_eq!(switch.stats().held_back, 1);
/// # }
/// ```
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
pub struct Switched<L, E = Infallible> {
    /// The error of a key without a limit.
    limiter: Result<L, E>,
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
    pub(crate) shadowed: Option<Decision>,
    /// Made for the settlement of a request that was not counted.
    settles_nothing: bool,
}

/// Puts a [`Switch`] around a limit, in one word: a dark launch, a shadow mode, a kill switch.
///
/// ```
/// use paceline::limiter::{Mode, Switch};
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let switch = Switch::new().with_mode(Mode::Shadow);
/// let limit = Interval::every(Duration::from_millis(100)).shared().switched(&switch);
///
/// for _ in 0..3 {
///     limit.acquire_one().await;
/// }
/// assert_eq!(switch.stats().held_back, 2);
/// # }
/// ```
pub trait SwitchExt: Sized {
    /// [`Switched::new`] of this limiter, these [`Limits`] or these permits, with a clone of the switch.
    #[doc(alias("set_mode", "dark launch", "kill switch", "shadow mode"))]
    fn switched(self, switch: &Switch) -> Switched<Self> {
        Switched::new(self, switch.clone())
    }
}

impl<L> SwitchExt for L {}

impl<L> Switched<L> {
    /// Asks `limiter` as `switch` says.
    #[must_use]
    pub const fn new(limiter: L, switch: Switch) -> Self {
        Self::of(Ok(limiter), switch, None)
    }

    /// The limiter inside.
    #[must_use]
    pub const fn limiter(&self) -> &L {
        match &self.limiter {
            Ok(limiter) => limiter,
            Err(error) => match *error {},
        }
    }
}

impl<L, E> Switched<L, E> {
    const fn of(limiter: Result<L, E>, switch: Switch, key: Option<u16>) -> Self {
        Self {
            limiter,
            switch,
            key,
            drawn: None,
            ticket: None,
            is_asked: false,
            shadowed: None,
            settles_nothing: false,
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

impl<L: Limiter, E> Switched<L, E> {
    fn poll_method(&mut self, method: Method, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let waits = |answer: &Answer<_>| match answer {
            Poll::Pending => true,
            Poll::Ready(Ok(Decision::Wait { .. })) => method != Method::Try,
            Poll::Ready(_) => false,
        };
        let answer = self.poll_ask(cost, cx, waits, |this, mode, cx| match mode {
            Mode::Active => this.poll_active(method, cost, cx),
            Mode::Shadow if method != Method::Open => this.poll_shadow(cost, cx),
            Mode::Shadow | Mode::Off => {
                this.leave(L::give_up);
                Poll::Ready(Ok(Decision::Pass))
            }
        });
        // A request that may pass is made next, and has the same number. Cost 0 is no request.
        let is_open = method == Method::Open && matches!(answer, Poll::Ready(Ok(Decision::Pass)));
        if cost > 0 && !is_open && !waits(&answer) {
            self.end_request();
        }
        answer
    }

    fn poll_active(&mut self, method: Method, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let Ok(limiter) = &mut self.limiter else {
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
    fn poll_shadow(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let answer = ready!(self.poll_limiter(|limiter| limiter.poll_try(cost, cx)));
        let decision = answer.and_then(Result::ok);
        if !decision.is_some_and(Decision::is_pass) {
            self.leave(L::give_up);
        }
        if cost > 0 {
            self.count_shadowed(decision);
        }
        Poll::Ready(Ok(Decision::Pass))
    }
}

/// How a limiter, or permits, are asked.
impl<L, E> Switched<L, E> {
    /// Asks in the mode that applies to this request, and again if the switch is changed while it `waits`.
    pub(crate) fn poll_ask<T>(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
        waits: impl Fn(&Poll<T>) -> bool,
        mut ask: impl FnMut(&mut Self, Mode, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        loop {
            self.shadowed = None;
            let setting @ (mode, share) = self.switch.setting_for_request();
            let is_limited = mode != Mode::Active || cost == 0 || self.is_in(share);
            let mode = if is_limited { mode } else { Mode::Shadow };
            let answer = ask(self, mode, cx);
            if !waits(&answer) {
                self.switch.deregister(&mut self.ticket);
                return answer;
            }
            if self.switch.register(&mut self.ticket, setting, cx.waker()) {
                return answer;
            }
        }
    }

    /// Asks where only `Pending` leaves a trace: a place in the queue, or an answer under way. `None` for a key without a limit.
    pub(crate) fn poll_limiter<T>(
        &mut self,
        ask: impl FnOnce(&mut L) -> Poll<T>,
    ) -> Poll<Option<T>> {
        let Ok(limiter) = &mut self.limiter else {
            return Poll::Ready(None);
        };
        let answer = ask(limiter);
        self.is_asked |= answer.is_pending();
        answer.map(Some)
    }

    /// Counts a request that passes without being limited, and what it would have been answered.
    pub(crate) fn count_shadowed(&mut self, decision: Option<Decision>) {
        self.shadowed = decision.filter(|decision| !decision.is_pass());
        self.switch.count_shadowed(decision.map(Decision::is_pass));
    }

    /// Leaves the queue, if it may be in it.
    pub(crate) fn leave(&mut self, give_up: impl FnMut(&mut L)) {
        if core::mem::take(&mut self.is_asked) {
            self.limiter.iter_mut().for_each(give_up);
        }
    }

    /// The next request without a key draws its own number.
    pub(crate) const fn end_request(&mut self) {
        self.drawn = None;
    }

    /// Leaves the queue, and forgets the request.
    pub(crate) fn forget(&mut self, give_up: impl FnMut(&mut L)) {
        self.leave(give_up);
        self.switch.deregister(&mut self.ticket);
        self.end_request();
    }
}

impl<L: Limiter, E> Limiter for Switched<L, E> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        self.poll_method(Method::Decide, cost, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        self.poll_method(Method::Try, cost, cx)
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        self.poll_method(Method::Open, cost, cx)
    }

    fn give_up(&mut self) {
        self.forget(L::give_up);
    }

    fn shadowed(&self) -> Option<Decision> {
        self.shadowed
    }

    fn is_out_of_reach(&self) -> bool {
        self.limiter.as_ref().is_ok_and(L::is_out_of_reach)
    }

    fn is_refusal(&self, error: &L::Error) -> bool {
        let limiter = self.limiter.as_ref();
        limiter.is_ok_and(|limiter| limiter.is_refusal(error))
    }

    fn too_costly(&self, cost: u32, capacity: u32) -> TooCostly {
        let unknown = |_: &E| TooCostly::new(cost, capacity);
        let limiter = self.limiter.as_ref();
        limiter.map_or_else(unknown, |limiter| limiter.too_costly(cost, capacity))
    }

    /// `None` while the switch is off.
    fn status(&self) -> Option<Status> {
        self.settled()?.status()
    }

    /// Not known while only a share is limited.
    fn least_wait(&self, cost: u32) -> Duration {
        let is_limited = self.switch.setting() == (Mode::Active, Share::FULL);
        let limiter = self.limiter.as_ref().ok().filter(|_| is_limited);
        limiter.map_or(Duration::ZERO, |limiter| limiter.least_wait(cost))
    }

    fn resolution(&self) -> Resolution {
        self.limiter
            .as_ref()
            .map_or_else(|_| Resolution::default(), L::resolution)
    }
}

impl<K: Hash, L: Limits<K>> Limits<K> for Switched<L> {
    type Limit = Switched<L::Limit, L::Error>;
    type Error = L::Error;

    /// The error reaches the caller only if the key is limited now.
    fn at(&self, key: K) -> Result<Switched<L::Limit, L::Error>, L::Error> {
        let point = point_of(&key);
        let limit = self.limiter().at(key);
        let is_limited = match self.switch.setting() {
            (Mode::Active, share) => share.includes_point(point),
            _ => false,
        };
        let limit = if is_limited { Ok(limit?) } else { limit };
        Ok(Switched::of(limit, self.switch.clone(), Some(point)))
    }
}

/// Counts nothing while the switch is off, or for a key without a limit.
impl<L: Settle, E> Settle for Switched<L, E> {
    fn charge(&self, cost: u32) {
        if let Some(limit) = self.settled() {
            limit.charge(cost);
        }
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        if let Some(limit) = self.settled() {
            limit.refund_from(spent_at, cost);
        }
    }

    fn settles(&mut self, passed: &Self) {
        self.settles_nothing = passed.shadowed.is_some() || passed.settled().is_none();
        if let (Ok(limiter), Ok(passed)) = (&mut self.limiter, &passed.limiter) {
            limiter.settles(passed);
        }
    }
}

impl<L, E> Switched<L, E> {
    /// The limiter, unless the switch is off.
    fn settled(&self) -> Option<&L> {
        let limiter = self.limiter.as_ref().ok();
        limiter.filter(|_| !self.settles_nothing && self.switch.mode() != Mode::Off)
    }
}

/// Whatever the switch says: the pause holds where the limit does.
impl<L: Obey, E> Obey for Switched<L, E> {
    type Error = L::Error;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<L::Error>> {
        self.limiter.as_ref().ok()?.obey(feedback)
    }

    fn begin(&self) -> Option<RateCall> {
        self.limiter.as_ref().ok()?.begin()
    }
}

/// A new handle, with the same switch and key.
impl<L: Clone, E: Clone> Clone for Switched<L, E> {
    fn clone(&self) -> Self {
        Self::of(self.limiter.clone(), self.switch.clone(), self.key)
    }
}

/// The switch forgets its waker.
impl<L, E> Drop for Switched<L, E> {
    fn drop(&mut self) {
        self.switch.deregister(&mut self.ticket);
    }
}

impl<L: fmt::Debug, E: fmt::Debug> fmt::Debug for Switched<L, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched")
            .field("limiter", &self.limiter)
            .field("switch", &self.switch)
            .finish_non_exhaustive()
    }
}
