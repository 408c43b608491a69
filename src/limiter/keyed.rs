use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::hash::Hash;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::{Decision, Policy};

use super::keys::{Keys, Reply};
use super::limit::Ask;
use super::{Answer, Gate, Limiter, Mode, PassError, Shared, Stats, TooCostly};

/// A limit for each key: for each user, host or connection.
///
/// Keys share nothing: each has its own state and its own line, first come, first served. Made by
/// [`PolicyExt::keyed`](super::PolicyExt::keyed), where all keys have the same parameters, or by [`Keyed::by`], where the key
/// says which. Clones share the keys.
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{Decision, TokenBucket};
/// use paceline::time::Rate;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<&str>();
///
/// assert_eq!(users.try_acquire(&"ann", 2), Decision::Pass);
/// assert!(!users.try_acquire(&"ann", 1).is_pass());
/// assert_eq!(users.try_acquire(&"bob", 2), Decision::Pass);
/// # }
/// ```
///
/// # Memory
///
/// A key costs its own size, a state, and a little more; one for which somebody waits costs a few hundred bytes while that
/// lasts. A key that has settled (its state answers like a fresh one) is forgotten: as new keys come, or when somebody who
/// waited for it leaves. There is no background task. Only settled keys are forgotten, so that no rush of new keys ever
/// resets a limit that binds. There are at most [`max_keys`](Self::max_keys) of them; when all of these are in use, a new
/// key waits until the first one settles, and `try_acquire` says how long that will be. Who waits for room stands in no line,
/// and feels what changes meanwhile within a second.
///
/// **Window bound**: that of the policy, for each key.
pub struct Keyed<K, P: Policy> {
    keys: Arc<Mutex<Keys<K, P>>>,
}

impl<K, P> Keyed<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// The same `policy` for every key.
    #[must_use]
    pub fn new(policy: P) -> Self
    where
        P: Clone + Sync,
    {
        Self::by(move |_| policy.clone())
    }

    /// Each key has the policy that `policy_of` says. It is asked often, under a lock: it must always say the same, and not
    /// ask this limit.
    ///
    /// ```
    /// use paceline::limiter::Keyed;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let plans = Keyed::by(|plan: &&str| match *plan {
    ///     "premium" => TokenBucket::new(Rate::per_second(100), 100),
    ///     _ => TokenBucket::new(Rate::per_second(1), 1),
    /// });
    ///
    /// assert!(plans.try_acquire(&"premium", 50).is_pass());
    /// assert!(!plans.try_acquire(&"free", 50).is_pass());
    /// # }
    /// ```
    #[must_use]
    pub fn by(policy_of: impl Fn(&K) -> P + Send + Sync + 'static) -> Self {
        Self {
            keys: Arc::new(Mutex::new(Keys::new(Arc::new(policy_of)))),
        }
    }

    /// At most so many keys at once; without it, as many as come. To be called before it is cloned and used.
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    #[must_use]
    #[track_caller]
    pub fn max_keys(self, max: usize) -> Self {
        assert!(
            max > 0,
            "a keyed limit needs room for at least 1 key, got 0"
        );
        self.locked().set_max(max);
        self
    }

    /// A limiter for this key: a place in its line, for an adapter.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    ///
    /// let a = futures::stream::iter(0..3).pace(hosts.at("a.example"));
    /// let b = futures::stream::iter(0..3).pace(hosts.at("b.example"));
    /// futures::join!(a.count(), b.count());
    /// assert_eq!(start.elapsed(), Duration::from_millis(200));
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> KeyedAt<K, P> {
        KeyedAt {
            keyed: self.clone(),
            key,
            line: None,
        }
    }

    /// Waits for `cost` permits of this key, behind everybody who waits for the same key.
    ///
    /// # Errors
    ///
    /// At once, if so many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was counted.
    pub fn acquire(&self, key: K, cost: u32) -> AcquireAt<K, P> {
        AcquireAt {
            gate: Some(Gate::new(self.at(key))),
            cost,
        }
    }

    /// Asks for `cost` permits of this key without waiting. It never overtakes those who wait for the same key.
    pub fn try_acquire(&self, key: &K, cost: u32) -> Decision {
        self.ask_aside(key, Ask::ToPass, cost)
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    pub fn peek(&self, key: &K, cost: u32) -> Decision {
        self.ask_aside(key, Ask::ToLook, cost)
    }

    /// How many keys are remembered now, those included that have settled and are not yet forgotten.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locked().len()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives this key parameters of its own from now on; those who wait for it feel it at once. What was spent stays spent.
    ///
    /// Such a key is never forgotten, and is remembered even if there is no room for it. What it had spent before and had settled
    /// may have been forgotten: slower parameters do not count it then.
    pub fn retune(&self, key: &K, policy: P) {
        let limit = self.locked().tuned(key);
        limit.retune(policy);
    }

    /// Lets nothing pass for this key before `duration` is over. It is remembered as long, even if there is no room for it.
    pub fn pause_for(&self, key: &K, duration: Duration) {
        let limit = self.locked().full(key);
        limit.pause_for(duration);
    }

    /// Ends every pause of this key.
    pub fn resume(&self, key: &K) {
        let limit = self.locked().full(key);
        limit.resume();
        drop(limit);
        self.locked().left(key);
    }

    /// Whether the limits hold, are only watched, or are off, for every key. Those who wait feel it at once.
    pub fn set_mode(&self, mode: Mode) {
        let limits = self.locked().set_mode(mode);
        for limit in limits {
            limit.set_mode(mode);
        }
    }

    /// What all the limits have done so far, those of forgotten keys included. It goes through all the keys.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.locked().stats()
    }

    fn ask_aside(&self, key: &K, ask: Ask, cost: u32) -> Decision {
        let reply = self.locked().ask(key, ask, cost, false);
        match (reply, ask) {
            (Reply::Now(decision), _) => decision,
            (Reply::AskThere(limit), Ask::ToPass) => limit.try_acquire(cost),
            (Reply::AskThere(limit), Ask::ToLook) => limit.peek(cost),
        }
    }
}

impl<K, P: Policy> Keyed<K, P> {
    fn locked(&self) -> MutexGuard<'_, Keys<K, P>> {
        // As in a shared limit: should a policy panic, the state is as it left it.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same keys.
impl<K, P: Policy> Clone for Keyed<K, P> {
    fn clone(&self) -> Self {
        Self {
            keys: Arc::clone(&self.keys),
        }
    }
}

/// Says nothing of the keys: they may be secret.
impl<K, P: Policy> fmt::Debug for Keyed<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

/// The limit of one key, and a place in its line. Made by [`Keyed::at`]. A clone is another place in the same line.
pub struct KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    keyed: Keyed<K, P>,
    key: K,
    /// While it stands there.
    line: Option<Shared<P>>,
}

impl<K, P> KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn ask_in_line(
        &mut self,
        ask: Ask,
        cost: u32,
        poll: impl FnOnce(&mut Shared<P>) -> Answer,
    ) -> Answer {
        let line = match &mut self.line {
            Some(line) => line,
            None => match self.keyed.locked().ask(&self.key, ask, cost, true) {
                Reply::Now(decision) => return Poll::Ready(Ok(decision)),
                Reply::AskThere(limit) => self.line.insert(limit),
            },
        };
        let answer = poll(line);
        let has_left = matches!(
            answer,
            Poll::Ready(Ok(Decision::Pass | Decision::Never { .. }))
        );
        // Who was only let look keeps the place.
        if has_left && !line.keeps_a_place() {
            self.give_up();
        }
        answer
    }
}

impl<K, P> Limiter for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToPass, cost, |line| line.poll_decide(cost, cx))
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        match &mut self.line {
            Some(line) if cost > 0 => {
                let answer = line.poll_try(cost, cx);
                if matches!(answer, Poll::Ready(Ok(Decision::Pass))) {
                    self.give_up();
                }
                answer
            }
            _ => Poll::Ready(Ok(self.keyed.try_acquire(&self.key, cost))),
        }
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToLook, cost, |line| line.poll_open(cost, cx))
    }

    fn give_up(&mut self) {
        if self.line.take().is_some() {
            self.keyed.locked().left(&self.key);
        }
    }
}

impl<K, P> Clone for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn clone(&self) -> Self {
        self.keyed.at(self.key.clone())
    }
}

/// Leaves the line.
impl<K, P> Drop for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Says nothing of the key: it may be secret.
impl<K, P> fmt::Debug for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedAt")
            .field("in_line", &self.line.is_some())
            .finish_non_exhaustive()
    }
}

/// Future of [`Keyed::acquire`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// Gone, and with it the place in line, when it is done.
    gate: Option<Gate<KeyedAt<K, P>>>,
    cost: u32,
}

impl<K, P> Future for AcquireAt<K, P>
where
    K: Hash + Eq + Clone + Unpin,
    P: Policy + Send + 'static,
    P::State: Send,
{
    type Output = Result<(), TooCostly>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let cost = self.cost;
        let gate = self.gate.as_mut().expect("polled after it was ready");
        let passed = ready!(gate.poll_pass(cost, cx));
        self.gate = None;
        Poll::Ready(passed.map_err(PassError::into_too_costly))
    }
}
