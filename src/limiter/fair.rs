use core::convert::Infallible;
use core::fmt;
use core::hash::Hash;
use core::mem;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::Instant;

use crate::fair::report::{ClientShare, FairCycle};
use crate::fair::{ClientTerms, FairShare, GuaranteedShare, Rule, RuleState};
use crate::feedback::Feedback;
use crate::policy::{Decision, Status};
use crate::time::error::ConfigError;
use crate::time::{Resolution, or_panic};
use crate::wait::{Caller, Intent, Position, Priority, WaitQueue};

use super::acquire::{Acquire, AcquireOne, AcquireWithin, retry_in};
use super::as_key::AsKey;
use super::fair_clients::{Account, ClientQueue, FairClients, Reply, lock};
use super::future::Obeying;
use super::reporter::{KeyedObserver, Reporter, SharedObserver};
use super::settle::{ReserveWithin, Settle};
use super::share::Share;
use super::{Answer, Event, Limiter, Limits, Method, Obey, Observer, Stats};

/// How many clients are gone through at a time, since no other request is decided meanwhile.
const AT_ONCE: usize = 1_000;

/// Clients that share one capacity: one that needs more borrows what the others leave, until they need it back.
///
/// A client is a key: a tenant, a user, a product. Clones share the clients. A [`Rule`] has the capacity, a number of permits in each
/// cycle, and says what each client may use; [`fair`](crate::fair) has both rules.
///
/// | rule | a client may use | bound |
/// |---|---|---|
/// | [`FairShare`], the default | what follows from what all asked for in the cycle before | each cycle |
/// | [`GuaranteedShare`](crate::fair::GuaranteedShare) | its share at all times, saved up for a while, and what others have no room to save up | any window |
///
/// By the first rule a client lends what it did not need a moment ago, and waits if it needs that now. By the second it never waits
/// because of another one, and all clients together can use more at once.
///
/// ```
/// use paceline::fair::FairShare;
/// use paceline::limiter::Fair;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let cycle = Duration::from_secs(10);
/// let tenants = Fair::<&str>::new(FairShare::new(40, cycle).try_with_reservation(1_000).unwrap());
/// let pass = |tenant, asked| (0..asked).filter(|_| tenants.try_acquire(&tenant, 1).is_pass()).count();
///
/// // The first cycle: ann asks for more than her half, and bob comes later. What is unspent is his.
/// assert_eq!((pass("ann", 30), pass("bob", 30)), (30, 10));
/// tokio::time::sleep(cycle).await;
///
/// // Both wanted 30, so each has half.
/// assert_eq!((pass("ann", 30), pass("bob", 5)), (20, 5));
/// tokio::time::sleep(cycle).await;
///
/// // Ann wanted 30 and bob 5: he has lent 10 of his 20, and keeps 10.
/// assert_eq!((pass("ann", 40), pass("bob", 40)), (30, 10));
/// # }
/// ```
///
/// With a guaranteed share:
///
/// ```
/// use paceline::fair::GuaranteedShare;
/// use paceline::limiter::Fair;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let tenants = Fair::new(GuaranteedShare::new(40, Duration::from_secs(10)));
/// let pass = |tenant, asked| (0..asked).filter(|_| tenants.try_acquire(&tenant, 1).is_pass()).count();
///
/// // Bob asks for little. Ann takes her half, and what all can borrow.
/// assert_eq!((pass("bob", 1), pass("ann", 90)), (1, 29));
/// // He needs his half now, and has it.
/// assert_eq!(pass("bob", 20), 20);
/// # }
/// ```
///
/// # What counts as demand
///
/// With a [`FairShare`]:
///
/// Each request in the cycle counts with its cost: if it passed, was refused, or waits when the cycle ends. So do permits that were
/// [charged](Settle::charge). A request that can never pass, since it costs more than the capacity, is no demand.
///
/// An adapter waits for one item at a time, so the demand of a stream is what it sent, and one more. It borrows one item more in each
/// cycle. A task for each item, or [`concurrent`](crate::stream::PaceStreamExt::concurrent) work that acquires, shows all of its
/// demand at once.
///
/// # The queues
///
/// Each client has a queue of its own, first come, first served: nothing overtakes a waiter of the same client, and no client waits
/// behind another. The head of a queue passes when its permits are due. With a [`FairShare`] that is at the beginning of a cycle at the
/// latest, unless its client has no share in that cycle. It passes earlier if permits are given back, a new client ends the cycle or one
/// is forgotten, the parameters change, or a pause ends.
///
/// # Memory
///
/// A client costs its key twice, about 200 bytes, and while requests wait, a few hundred bytes more. A client without a request is
/// forgotten after [`try_forgetting_after`](FairShare::try_forgetting_after) cycles; one with a waiter is not. There are at most
/// [`try_with_max_clients`](FairShare::try_with_max_clients) clients, those [with their own share](ClientTerms::with_own_share), and
/// one more for all others together, who share one queue, too. There is no background task: the next request, or a look at
/// [`shares`](Self::shares), begins the cycles that are due.
///
/// # Cost
///
/// A decision is one short lock for all clients, and one look into a map. With a [`FairShare`] a new cycle goes through all clients, and
/// so does a new client; a look at an unknown one copies the state of all. With a guaranteed share a new client and a refund go through the
/// clients that wait. Clients that all wait to borrow ask again when others were faster: with
/// 100 of them a waiter is woken about 6 times until it passes, with 1,000 about 76 times.
///
/// # What it cannot do
///
/// * `set_remaining`: each client gets its default share in a cycle, and what a provider has left would go to the client that comes
///   first. [`pause_for`](Self::pause_for) and [`retune`](Self::retune) concern all clients.
/// * `reset`: what a client takes from others is owed to them, and to begin anew would forgive it.
///
/// # Or `Keyed`
///
/// In a [`Keyed`](super::Keyed) limit keys share nothing. It is right where each key has a limit of its own, such as a user with a
/// quota; this is right where there is one capacity, such as the quota of a provider or what a service bears.
///
/// # Cancel safety
///
/// Dropping a future or a handle leaves the queue; nothing was counted, and the next waiter takes its place.
///
/// **Window bound**: that of the rule. With a [`FairShare`] it is the capacity in each cycle, over all clients together, and twice the capacity in any window of the length of a
/// cycle. With [`with_pacing`](FairShare::with_pacing) the capacity in any such window. With
/// [`Newcomers::EndCycle`](crate::fair::Newcomers::EndCycle) a cycle may end early, `at_most` times, and as often for clients with their
/// own share, and each time the capacity comes on top. Permits that are charged, or given back after others passed, come on top, too.
pub struct Fair<K, R: Rule = FairShare> {
    clients: Arc<Mutex<FairClients<K, R>>>,
    resolution: Resolution,
    /// `None` if the clients are not observed.
    observer: Option<Arc<KeyedObserver<K>>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Fair<K, GuaranteedShare> {
    /// A rate of which each of these clients has a part that no other can take, and all others together the rest. Each side borrows what
    /// the other does not use.
    ///
    /// ```
    /// use paceline::fair::GuaranteedShare;
    /// use paceline::limiter::{Fair, Share};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let rate = GuaranteedShare::new(100, Duration::from_secs(1));
    /// let calls = Fair::reserved(rate, [("payments", Share::percent(20))]);
    ///
    /// while calls.try_acquire(&"analytics", 1).is_pass() {} // a flood
    /// assert!(calls.try_acquire(&"payments", 20).is_pass());
    /// # }
    /// ```
    ///
    /// [`retune`](Self::retune) changes the rate; the parts stay. One that is too small for the new rate makes all buckets deeper.
    ///
    /// # Panics
    ///
    /// If the part of a client or of all others is too small: its bucket holds less than [`least`](GuaranteedShare::try_with_least). (Of 2
    /// a second each needs a half.) And if a client is named twice, or all parts together are nothing or the whole rate.
    /// [`try_reserved`](Self::try_reserved) returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn reserved(rate: GuaranteedShare, parts: impl IntoIterator<Item = (K, Share)>) -> Self {
        or_panic(Self::try_reserved(rate, parts))
    }

    /// [`reserved`](Self::reserved), for values from a configuration.
    ///
    /// ```
    /// use paceline::fair::GuaranteedShare;
    /// use paceline::limiter::{Fair, Share};
    /// use std::time::Duration;
    ///
    /// let rate = GuaranteedShare::new(100, Duration::from_secs(1));
    /// let parts = [("payments", Share::percent(60)), ("orders", Share::percent(40))];
    /// let error = Fair::try_reserved(rate, parts).unwrap_err();
    /// assert_eq!(error.to_string(), "a reserve has from 1 to 9999 ten-thousandths of the rate, got 10000");
    /// ```
    ///
    /// # Errors
    ///
    /// As [`reserved`](Self::reserved) panics.
    pub fn try_reserved(
        rate: GuaranteedShare,
        parts: impl IntoIterator<Item = (K, Share)>,
    ) -> Result<Self, ConfigError> {
        let (mut seats, mut names, mut sum) = (HashMap::new(), Vec::new(), 0_u32);
        for (number, (client, part)) in parts.into_iter().enumerate() {
            let who = format!("part {number}");
            check_part(&rate, part, &who)?;
            let weight = part.ten_thousandths();
            let terms = ClientTerms::new().with_own_share(true);
            names.push(client.clone());
            if seats
                .insert(client, terms.try_with_weight(weight)?)
                .is_some()
            {
                let message = "a client has one part of a reserve, got another one as";
                return Err(ConfigError::new(format!("{message} {who}")));
            }
            sum = sum.saturating_add(weight);
        }
        let rate = rate.try_with_reserve(sum)?;
        let others = Share::of_ten_thousand(Share::FULL.ten_thousandths() - sum);
        check_part(&rate, others, "all others")?;
        let fair = Self::new(rate)
            .with_terms(move |client| seats.get(client).copied().unwrap_or_default());
        fair.remember(names);
        Ok(fair)
    }
}

/// A smaller bucket would be filled up to the least, and all the others in proportion.
fn check_part(rate: &GuaranteedShare, part: Share, who: &str) -> Result<(), ConfigError> {
    let (least, weight) = (rate.least(), part.ten_thousandths());
    let all = u64::from(rate.capacity()) * u64::from(rate.depth());
    if u128::from(all) * u128::from(weight) >= u128::from(least) * 100_000_000 {
        return Ok(());
    }
    let all = f64::from(rate.capacity()) * f64::from(rate.depth()) / 10_000.0;
    Err(ConfigError::new(format!(
        "the bucket of each part of a reserve holds at least {least}, got less for {who}: {part} of {all}"
    )))
}

impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Fair<K, R> {
    /// Clients that share the capacity of `share`, all on the same terms.
    #[must_use]
    pub fn new(share: R) -> Self {
        Self {
            clients: Arc::new(Mutex::new(FairClients::new(share))),
            resolution: Resolution::default(),
            observer: None,
        }
    }

    /// Each client shares on the terms that `terms_of` returns. It is called when a client is new, for each request of one beyond the
    /// largest number of clients, and for all clients by [`retune`](Self::retune), under a lock: it must not use this limit. To be
    /// called before there are clients.
    ///
    /// ```
    /// use paceline::fair::{FairShare, ClientTerms};
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tenants = Fair::<String>::new(FairShare::new(40, Duration::from_secs(10)));
    /// let tenants = tenants.with_terms(|tenant: &String| match tenant.as_str() {
    ///     "premium" => ClientTerms::new().try_with_weight(3).unwrap(),
    ///     _ => ClientTerms::new(),
    /// });
    ///
    /// assert!(tenants.try_acquire("free", 1).is_pass());
    /// assert!(tenants.try_acquire("premium", 30).is_pass());
    /// assert!(!tenants.try_acquire("premium", 1).is_pass());
    /// # }
    /// ```
    ///
    /// A client whose terms have a share of its own already, such as one with a part of a [reserve](Fair::reserved), keeps them.
    #[must_use]
    pub fn with_terms(self, terms_of: impl Fn(&K) -> ClientTerms + Send + Sync + 'static) -> Self {
        let mut clients = self.lock();
        let before = mem::replace(&mut clients.terms_of, Box::new(|_| ClientTerms::new()));
        clients.terms_of = Box::new(move |client| {
            let own = before(client);
            if own.has_own_share() {
                own
            } else {
                terms_of(client)
            }
        });
        drop(clients);
        self
    }

    /// Remembers clients before they ask, each on its terms.
    ///
    /// With a guaranteed share a client is new at its first request, and starts with what the others leave. One that is remembered before
    /// has a full bucket by then, and keeps it if it has [its own share](ClientTerms::with_own_share).
    pub fn remember(&self, clients: impl IntoIterator<Item = K>) {
        for client in clients {
            self.locked(|clients| clients.remember(&client));
        }
    }

    /// How exactly requests wait: see [`Shared::with_resolution`](super::Shared::with_resolution).
    #[must_use]
    pub fn with_resolution(self, resolution: Resolution) -> Self {
        Self { resolution, ..self }
    }

    /// As [`with_observer`](Self::with_observer), with the key of each event. What is done to the limit concerns all keys, and is
    /// not reported.
    #[must_use]
    pub fn with_observer_by_key(self, observer: impl Fn(&K, Event) + Send + Sync + 'static) -> Self
    where
        K: Sync,
    {
        Self {
            observer: Some(Arc::new(KeyedObserver::by_key(observer))),
            ..self
        }
    }

    /// Reports to `observer` what becomes of each request and is done to the limit through this handle and its later clones, without
    /// the key: see [`Shared::with_observer`](super::Shared::with_observer). To be called before it is cloned.
    #[must_use]
    pub fn with_observer<O>(self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        let observer = Some(Arc::new(KeyedObserver::same(observer)));
        Self { observer, ..self }
    }

    /// A limiter for this client, for an adapter: a handle that queues for it.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let tenants = Fair::new(FairShare::new(10, Duration::from_secs(1)));
    ///
    /// let calls = futures::stream::iter(0..25).pace(tenants.at("ann"));
    /// assert_eq!(calls.count().await, 25);
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> FairAt<K, R> {
        let observer = self.observer_of(|| key.clone());
        FairAt {
            fair: self.clone(),
            key,
            queue: None,
            position: Position::None,
            spare: None,
            reporter: Reporter::of(observer.as_ref()),
        }
    }

    /// Waits for `cost` permits of this client, behind every request that waits for the same client.
    ///
    /// # Errors
    ///
    /// At once, if that many can never pass: more than the capacity. With a guaranteed share, more than the bucket of the client and the
    /// pool hold. That is less the more clients there are, so a request that waits is refused too when clients join.
    /// [`try_with_least`](GuaranteedShare::try_with_least) keeps a cost passable.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    pub fn acquire(&self, key: K, cost: u32) -> Acquire<FairAt<K, R>> {
        Acquire::new(self.at(key), cost)
    }

    /// Waits for one permit of this client, which no limit refuses for ever: [`acquire`](Self::acquire) of 1, without an error.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// let tenants = Fair::new(FairShare::new(2, Duration::from_secs(1)));
    /// for _ in 0..3 {
    ///     tenants.acquire_one("ann").await;
    /// }
    /// # assert_eq!(start.elapsed(), Duration::from_secs(1));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    pub fn acquire_one(&self, key: K) -> AcquireOne<FairAt<K, R>> {
        AcquireOne::new(self.at(key))
    }

    /// Waits for `cost` permits of this client, if they can be had `within` this time.
    ///
    /// As [`Shared::acquire_within`](super::Shared::acquire_within): it fails at once when the wait is known to be too long, and
    /// when the time is over at the latest. How much a client gets in the next cycle is not known before, so a request behind others
    /// may wait for a time that turns out to be too long.
    ///
    /// # Errors
    ///
    /// [`is_too_late`](super::AcquireError::is_too_late), with [`retry_in`](super::AcquireError::retry_in) for a `Retry-After`;
    /// or [`is_too_costly`](super::AcquireError::is_too_costly) if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    pub fn acquire_within(
        &self,
        key: K,
        cost: u32,
        within: Duration,
    ) -> AcquireWithin<FairAt<K, R>> {
        // A look at a client that is not known copies all accounts.
        self.remember([key.clone()]);
        AcquireWithin::new(self.at(key), cost, within, FairAt::refuse_late)
    }

    /// Asks for `cost` permits of this client without waiting. It never overtakes a waiter of the same client.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use paceline::policy::Decision;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let cycle = Duration::from_secs(10);
    /// let tenants = Fair::<String>::new(FairShare::new(40, cycle));
    ///
    /// assert_eq!(tenants.try_acquire("ann", 40), Decision::Pass);
    /// assert_eq!(tenants.try_acquire("ann", 1), Decision::Wait { retry_in: cycle });
    /// assert_eq!(tenants.try_acquire("ann", 41), Decision::Never { capacity: 40 });
    /// # }
    /// ```
    pub fn try_acquire<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32) -> Decision {
        let decision = self.try_decide(key, cost, Intent::Acquire);
        self.report_try(key, cost, decision);
        decision
    }

    /// [`try_acquire`](Self::try_acquire) and then [`status`](Self::status), with one look into the map: for the sidecar, which writes both
    /// into each response.
    #[doc(hidden)]
    pub fn try_acquire_with_status<Q>(&self, key: &Q, cost: u32) -> (Decision, Status)
    where
        Q: AsKey<K> + ?Sized,
    {
        let (reply, status) = self.locked(|clients| {
            let (reply, asked) = clients.try_ask(key, Intent::Acquire, cost);
            (reply, asked.map(|(slot, now)| clients.status_at(slot, now)))
        });
        let decision = self.decision(reply, cost, Intent::Acquire);
        self.report_try(key, cost, decision);
        (decision, status.unwrap_or_else(|| self.lock().status(key)))
    }

    /// Asks without waiting.
    fn try_decide<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32, intent: Intent) -> Decision {
        let (reply, _) = self.locked(|clients| clients.try_ask(key, intent, cost));
        self.decision(reply, cost, intent)
    }

    fn decision(&self, reply: Reply<K, R>, cost: u32, intent: Intent) -> Decision {
        match reply {
            Reply::Decided(decision) => decision,
            Reply::Ask(queue) => {
                let decision = try_queue(&queue, &mut Position::None, intent, cost);
                let is_refused = intent == Intent::Acquire && !decision.is_pass();
                self.settle(&queue, if is_refused { cost } else { 0 }, true);
                decision
            }
        }
    }

    /// Asks for a handle that does not wait yet. If it has to wait it gets the queue; a `spare` one saves memory being taken.
    fn ask(
        &self,
        key: &K,
        intent: Intent,
        cost: u32,
        spare: &mut Option<Arc<ClientQueue<K, R>>>,
    ) -> Reply<K, R> {
        let queue_of = |slot, clock| {
            let clients = Arc::clone(&self.clients);
            let account = Account {
                clients,
                clock,
                slot,
            };
            match spare.take() {
                Some(spare) => {
                    spare.with(|old, _| *old = account);
                    spare
                }
                None => WaitQueue::new(account),
            }
        };
        self.locked(|clients| clients.ask(key, intent, cost, queue_of))
    }

    /// Tells the account which requests wait after the queue was used, and wakes others that may pass earlier now: see
    /// [`Account::settle`].
    fn settle(
        &self,
        queue: &ClientQueue<K, R>,
        refused: u32,
        leaves: bool,
    ) -> Option<Arc<ClientQueue<K, R>>> {
        let last = queue.with(|account, waiters| account.settle(waiters, refused, leaves));
        self.locked(|_| ());
        last
    }

    fn observer_of(&self, key: impl FnOnce() -> K) -> Option<SharedObserver> {
        self.observer.as_ref().map(|observer| observer.of(key))
    }

    fn report_try<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32, decision: Decision) {
        if let Some(observer) = self.observer_of(|| key.to_key()) {
            observer.report_try(cost, decision, None);
        }
    }

    pub(super) fn report(&self, event: Event) {
        if let Some(KeyedObserver::Same(observer)) = self.observer.as_deref() {
            observer.report(event);
        }
    }

    /// Works under the lock. Then it wakes each head whose permits are due earlier than its timer says.
    #[inline]
    fn locked<T>(&self, work: impl FnOnce(&mut FairClients<K, R>) -> T) -> T {
        let mut clients = self.lock();
        let done = work(&mut clients);
        if clients.has_to_wake {
            wake(clients, |queue| queue.update(|_, _| ()));
        }
        done
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, FairClients<K, R>> {
        lock(&self.clients)
    }
}

/// Changes while it is used.
impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Fair<K, R> {
    /// Goes on with other parameters, and asks for the terms of all clients again. The clients stay, and what was spent in this cycle
    /// stays spent. The change takes effect at once, for queued requests too. If a [`FairShare`] allows fewer clients, the
    /// youngest ones beyond that are forgotten at the next cycle; with a guaranteed share they stay until they are idle.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tenants = Fair::<String>::new(FairShare::new(40, Duration::from_secs(10)));
    /// assert!(tenants.try_acquire("ann", 40).is_pass());
    ///
    /// tenants.retune(tenants.share().try_with_reservation(500).unwrap());
    /// assert!(!tenants.try_acquire("ann", 1).is_pass());
    /// tenants.retune(FairShare::new(50, Duration::from_secs(10)));
    /// assert!(tenants.try_acquire("ann", 10).is_pass());
    /// # }
    /// ```
    pub fn retune(&self, share: R) {
        for slots in self.locked(FairClients::slots).chunks(AT_ONCE) {
            self.locked(|clients| clients.renew_terms(slots));
        }
        let mut clients = self.lock();
        clients.retune(share);
        // A request that is too costly now is refused, wherever it is queued.
        wake(clients, |queue| queue.wake_all());
        self.report(Event::Retuned);
    }

    /// Lets no request pass before `duration` is over, whatever the client: see
    /// [`Shared::pause_for`](super::Shared::pause_for). The cycles go on.
    pub fn pause_for(&self, duration: Duration) {
        let duration = self.lock().pause_for(duration);
        self.report(Event::Paused { duration });
    }

    /// Pauses for as long as a provider asks, whatever the client, and says for how long; `None` if it asks for nothing. See
    /// [`Shared::apply_feedback`](super::Shared::apply_feedback).
    #[expect(clippy::must_use_candidate, reason = "the pause is the effect")]
    pub fn apply_feedback(&self, feedback: &Feedback) -> Option<Duration> {
        let asked = feedback.pause()?;
        let pause = self.lock().pause_for(asked);
        self.report(Event::FeedbackApplied { pause });
        Some(asked)
    }

    /// Ends every pause.
    pub fn resume(&self) {
        self.locked(FairClients::resume);
        self.report(Event::Resumed);
    }
}

/// What it has left and what its clients have.
impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Fair<K, R> {
    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted, and no client is remembered.
    pub fn peek<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32) -> Decision {
        self.try_decide(key, cost, Intent::Peek)
    }

    /// How long the pause still lasts; `None` if there is none.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.lock().paused_for()
    }

    /// The parameters, as of the last [`retune`](Self::retune).
    #[must_use]
    pub fn share(&self) -> R {
        *self.lock().accounts.share()
    }

    /// What all clients have done so far, those that are forgotten included.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// What this client has left now.
    ///
    /// With a [`FairShare`] the quota is its size in this cycle, and the reset the end of the cycle. With a guaranteed share the quota is
    /// that share, and the reset is when its bucket is full. A client that is not remembered is not kept for it.
    pub fn status<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Option<Status> {
        Some(self.locked(|clients| clients.status(key)))
    }

    /// What each client has in this cycle, with a [`FairShare`] the oldest first. It begins the cycles that are due, and goes through all
    /// clients. Requests are decided between a thousand and the next, which may be as of a later instant.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let cycle = Duration::from_secs(10);
    /// let tenants = Fair::<String>::new(FairShare::new(40, cycle));
    /// assert!(tenants.try_acquire("ann", 25).is_pass());
    /// assert!(tenants.try_acquire("bob", 5).is_pass());
    /// tokio::time::sleep(cycle).await;
    ///
    /// for client in tenants.shares() {
    ///     println!("{:?}: {} of {} used", client.key, client.used, client.size);
    /// }
    /// let ann = &tenants.shares()[0];
    /// assert_eq!((ann.key.clone(), ann.demand, ann.borrowed), (Some("ann".into()), 25, ann.size - 20));
    /// # }
    /// ```
    #[must_use]
    pub fn shares(&self) -> Vec<ClientShare<K>> {
        let slots = self.locked(FairClients::slots);
        let parts = slots.chunks(AT_ONCE);
        let shares = parts.flat_map(|slots| self.locked(|clients| clients.shares(slots)));
        shares.collect()
    }

    /// How many clients are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locked(FairClients::len)
    }

    /// Whether no client is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What only the rule of cycles has.
impl<K: Hash + Eq + Clone + Send + 'static> Fair<K> {
    /// The cycle that is under way. It begins the cycles that are due.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tenants = Fair::<String>::new(FairShare::new(40, Duration::from_secs(10)));
    /// assert!(tenants.try_acquire("ann", 25).is_pass());
    /// tokio::time::sleep(Duration::from_secs(3)).await;
    ///
    /// let cycle = tenants.cycle();
    /// assert_eq!((cycle.number, cycle.spent, cycle.capacity), (0, 25, 40));
    /// assert_eq!(cycle.ends_in, Duration::from_secs(7));
    /// # }
    /// ```
    #[must_use]
    pub fn cycle(&self) -> FairCycle {
        self.locked(|clients| {
            let now = clients.enter();
            clients.accounts.cycle(now)
        })
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Limits<K> for Fair<K, R> {
    type Limit = FairAt<K, R>;
    type Error = Infallible;

    fn at(&self, key: K) -> Result<FairAt<K, R>, Infallible> {
        Ok(Self::at(self, key))
    }
}

/// The same clients.
impl<K, R: Rule> Clone for Fair<K, R> {
    fn clone(&self) -> Self {
        Self {
            clients: Arc::clone(&self.clients),
            resolution: self.resolution,
            observer: self.observer.clone(),
        }
    }
}

/// Does not print the keys: they may be secret.
impl<K, R: Rule> fmt::Debug for Fair<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fair").finish_non_exhaustive()
    }
}

/// The share of one client, for an adapter. Made by [`Fair::at`]. A clone queues for the same client.
///
/// With [`Settle`] it reserves an estimate of a cost that is known afterwards, and charges what was used:
///
/// ```
/// use paceline::fair::FairShare;
/// use paceline::limiter::Fair;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let start = tokio::time::Instant::now();
/// let tokens = Fair::new(FairShare::new(1_000, Duration::from_secs(1)));
/// let ann = tokens.at("ann");
///
/// let reserved = ann.reserve(400).await.unwrap();
/// reserved.settle(1_600); // 600 more than there are in this second
/// assert_eq!(tokens.cycle().spent, 1_000);
///
/// ann.acquire(400).await.unwrap();
/// assert_eq!(start.elapsed(), Duration::from_secs(1));
/// assert_eq!(tokens.cycle().spent, 1_000);
/// # }
/// ```
///
/// What is charged is spent in this cycle and counts as demand, whether or not the client has it. What the cycle does not have is
/// spent in later cycles, as the size of the client allows, and until then nothing else of this client passes. What the client takes
/// from others is owed to them: see [`fair`](crate::fair).
///
/// With [`Obey`] it obeys a provider, whose limit is that of the whole capacity: a pause that a response to one client asks for holds
/// the requests of all clients, as [`Fair::pause_for`] does.
pub struct FairAt<K: Hash + Eq + Clone + Send + 'static, R: Rule = FairShare> {
    fair: Fair<K, R>,
    key: K,
    /// While it waits.
    queue: Option<Arc<ClientQueue<K, R>>>,
    position: Position,
    /// Memory for the next time that it waits.
    spare: Option<Arc<ClientQueue<K, R>>>,
    reporter: Reporter,
}

impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> FairAt<K, R> {
    /// Waits for `cost` permits, if they can be had `within` this time: see [`Fair::acquire_within`].
    pub fn acquire_within(&self, cost: u32, within: Duration) -> AcquireWithin<Self> {
        self.fair.acquire_within(self.key.clone(), cost, within)
    }

    /// Asks for `cost` permits without waiting: see [`Fair::try_acquire`].
    pub fn try_acquire(&self, cost: u32) -> Decision {
        self.fair.try_acquire(&self.key, cost)
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted, and the client is not remembered for it.
    pub fn peek(&self, cost: u32) -> Decision {
        self.fair.peek(&self.key, cost)
    }

    /// Gives back `cost` permits that passed in this cycle and were not used; waiters may pass sooner.
    ///
    /// What passed in an earlier cycle reduces only what the client owes: see [`fair`](crate::fair).
    pub fn refund(&self, cost: u32) {
        self.give_back(cost, None);
    }

    fn give_back(&self, cost: u32, spent_at: Option<Instant>) {
        self.fair
            .locked(|clients| clients.refund(&self.key, cost, spent_at));
    }

    fn poll_ask(&mut self, intent: Intent, cost: u32, cx: &mut Context<'_>) -> Answer {
        let queue = match &self.queue {
            Some(queue) => queue,
            None => match self.fair.ask(&self.key, intent, cost, &mut self.spare) {
                Reply::Decided(decision) => return Poll::Ready(Ok(decision)),
                Reply::Ask(queue) => self.queue.insert(queue),
            },
        };
        let caller = Caller::new(cx, Some(self.fair.resolution), Priority::Normal, None);
        let position = &mut self.position;
        let answer = queue.poll_acquire(position, cost, intent, &caller);
        let is_refused = matches!(answer, Poll::Ready(Decision::Never { .. }));
        self.settle(if is_refused { cost } else { 0 });
        answer.map(Ok)
    }

    fn try_ask(&mut self, cost: u32) -> Answer {
        let intent = Intent::Acquire;
        let Some(queue) = self.queue.as_ref().filter(|_| cost > 0) else {
            let decision = self.fair.try_decide(&self.key, cost, intent);
            return Poll::Ready(Ok(decision));
        };
        let decision = try_queue(queue, &mut self.position, intent, cost);
        self.settle(if decision.is_pass() { 0 } else { cost });
        Poll::Ready(Ok(decision))
    }

    /// Tells the account which requests wait, and counts the `refused` ones. A handle that waits no more gives the queue back.
    fn settle(&mut self, refused: u32) {
        // A handle that waits is queued, and a look that has passed reserves the position.
        let leaves = self.position.is_none();
        if let Some(queue) = &self.queue {
            let last = self.fair.settle(queue, refused, leaves);
            if leaves {
                self.queue = None;
                self.spare = last.or(self.spare.take());
            }
        }
    }

    /// Leaves the queue.
    fn leave(&mut self) {
        if let Some(queue) = &self.queue {
            queue.cancel(&mut self.position);
            self.settle(0);
        }
    }

    /// Leaves the queue, since it would take too long.
    fn refuse_late(&mut self, cost: u32, known: Option<Duration>) -> Option<Duration> {
        self.leave();
        self.fair
            .locked(|clients| clients.count_refusal(&self.key, cost));
        let retry_in = known.or_else(|| retry_in(self.fair.peek(&self.key, cost)));
        self.reporter.too_late(cost, retry_in);
        retry_in
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Limiter for FairAt<K, R> {
    type Error = Infallible;

    fn status(&self) -> Option<Status> {
        self.fair.status(&self.key)
    }

    fn least_wait(&self, cost: u32) -> Duration {
        let decision = self.fair.peek(&self.key, cost);
        decision.retry_in().unwrap_or_default()
    }

    fn resolution(&self) -> Resolution {
        self.fair.resolution
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.poll_ask(Intent::Peek, cost, cx);
        self.reporter.answered(Method::Open, cost, &answer, None);
        answer
    }

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.poll_ask(Intent::Acquire, cost, cx);
        self.reporter.answered(Method::Decide, cost, &answer, None);
        answer
    }

    fn poll_try(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let answer = self.try_ask(cost);
        self.reporter.answered(Method::Try, cost, &answer, None);
        answer
    }

    fn give_up(&mut self) {
        self.leave();
        self.reporter.gave_up();
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Settle for FairAt<K, R> {
    fn charge(&self, cost: u32) {
        self.fair.locked(|clients| clients.charge(&self.key, cost));
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        self.give_back(cost, Some(spent_at));
    }

    fn reserve_within(&self, estimate: u32, within: Duration) -> ReserveWithin<Self> {
        ReserveWithin {
            acquire: self.acquire_within(estimate, within),
        }
    }
}

/// For all clients: the provider has one limit.
impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Obey for FairAt<K, R> {
    type Error = Infallible;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Infallible>> {
        self.fair.apply_feedback(feedback);
        None
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Clone for FairAt<K, R> {
    fn clone(&self) -> Self {
        self.fair.at(self.key.clone())
    }
}

/// Leaves the queue.
impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> Drop for FairAt<K, R> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Does not print the key: it may be secret.
impl<K: Hash + Eq + Clone + Send + 'static, R: Rule> fmt::Debug for FairAt<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairAt")
            .field("is_waiting", &self.queue.is_some())
            .finish_non_exhaustive()
    }
}

/// Asks a queue without being queued.
fn try_queue<K, R: Rule>(
    queue: &ClientQueue<K, R>,
    position: &mut Position,
    intent: Intent,
    cost: u32,
) -> Decision {
    queue.try_acquire(position, None, cost, intent, Account::wait_behind)
}

/// Unlocks, and wakes waiters of each queue.
#[cold]
fn wake<K, R: Rule>(mut clients: MutexGuard<'_, FairClients<K, R>>, each: fn(&ClientQueue<K, R>)) {
    let queues = clients.queues();
    drop(clients);
    for queue in queues {
        each(&queue);
    }
}
