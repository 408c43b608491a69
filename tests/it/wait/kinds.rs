//! The kinds of limit that have a wait queue, as one trait: for the claims here, and for the schedules of the package `laws`.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use paceline::concurrency::{FairPermits, Permits};
use paceline::fair::FairShare;
use paceline::limiter::{AcquireError, Fair, FairQueue, Keyed, Limiter, Shared};
use paceline::policy::{Decision, Policy};
use paceline::prelude::*;
use paceline::time::Tick;
use testkit::wakes::Driven;

use crate::timed::ms;

/// What a request gets: dropping it gives the permits back.
pub(super) type Grant = Box<dyn Send>;

pub(super) type Request = BoxFuture<'static, Grant>;

/// A limit with a wait queue: a number of permits, which come back some time after they were given back.
pub(super) trait Kind: Clone + Send + Sync + 'static {
    const NEWEST_FIRST: bool = false;

    /// With `cooldown` between the drop of a grant and the return of its permits.
    fn new(permits: u32, cooldown: Duration) -> Self;

    fn acquire(&self, cost: u32) -> Request;

    fn try_acquire(&self, cost: u32) -> Option<Grant>;

    /// A handle that asks by itself, where there is one.
    fn handle(&self) -> Option<Box<dyn Limiter<Error = Infallible> + Send>>;

    /// The grant of a request that a handle has made.
    fn grant_of_handle(&self, cost: u32) -> Grant;

    /// Changes the number of permits.
    fn resize(&self, permits: u32);

    /// Nothing passes until there is a [`resume`](Self::resume).
    fn pause(&self);

    /// `permits`: how many there were before.
    fn resume(&self, permits: u32);

    fn waiting(&self) -> usize;

    /// Permits that come back as soon as they are given back.
    fn of(permits: u32) -> Self {
        Self::new(permits, Duration::ZERO)
    }

    /// A request through a handle, with its grant.
    fn granted<F>(&self, passes: F, cost: u32) -> Request
    where
        F: Future<Output = Result<(), AcquireError>> + Send + 'static,
    {
        let this = self.clone();
        let granted = move |()| this.grant_of_handle(cost);
        let passes = passes.map(|passed| passed.expect("not too large"));
        passes.map(granted).boxed()
    }

    /// One permit that is given back at once: there are at least `millis` between two grants.
    fn spaced(millis: u64) -> Spaced<Self> {
        Spaced(Self::new(1, ms(millis)))
    }

    /// Waiters for one permit each, in the order in which they are served.
    fn waiters(&self, count: usize) -> Vec<Driven<Request>> {
        queued::<Self, _>((0..count).map(|_| Driven::new(self.acquire(1))))
    }
}

/// A limit of which every grant is given back at once.
#[derive(Clone)]
pub(super) struct Spaced<K>(pub(super) K);

impl<K: Kind> Spaced<K> {
    pub(super) fn acquire(&self) -> BoxFuture<'static, ()> {
        self.0.acquire(1).map(drop).boxed()
    }

    pub(super) fn try_acquire(&self) -> bool {
        self.0.try_acquire(1).is_some()
    }

    pub(super) fn waiters(&self, count: usize) -> Vec<Driven<BoxFuture<'static, ()>>> {
        queued::<K, _>((0..count).map(|_| Driven::new(self.acquire())))
    }
}

/// Queues them, and returns them in the order in which they are served.
pub(super) fn queued<K: Kind, F: Future + Unpin>(
    waiters: impl Iterator<Item = Driven<F>>,
) -> Vec<Driven<F>> {
    let mut waiters: Vec<_> = waiters.collect();
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    if K::NEWEST_FIRST {
        waiters.reverse();
    }
    waiters
}

/// A policy that counts permits as [`Permits`] does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    permits: u32,
    cooldown: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Count {
    in_use: u32,
    /// When how many come back, soonest first.
    cooling: Vec<(Tick, u32)>,
}

impl Policy for Counted {
    type State = Count;

    fn fresh(&self, _now: Tick) -> Count {
        Count {
            in_use: 0,
            cooling: Vec::new(),
        }
    }

    fn decide(&self, state: &mut Count, now: Tick, cost: u32) -> Decision {
        let decision = self.peek(state, now, cost);
        if decision.is_pass() {
            state.in_use += cost;
        }
        decision
    }

    fn peek(&self, state: &Count, now: Tick, cost: u32) -> Decision {
        if cost > self.permits {
            return Decision::Never {
                capacity: self.permits,
            };
        }
        let mut used = state.in_use + state.cooling.iter().map(|(_, count)| count).sum::<u32>();
        let mut from = now;
        for (until, count) in &state.cooling {
            if used + cost > self.permits || *until <= now {
                used -= count;
                from = from.max(*until);
            }
        }
        match from.since(now) {
            _ if used + cost > self.permits => Decision::Wait {
                retry_in: Duration::MAX,
            },
            Duration::ZERO => Decision::Pass,
            retry_in => Decision::Wait { retry_in },
        }
    }

    fn refund(&self, state: &mut Count, now: Tick, cost: u32) {
        state.in_use -= cost;
        state.cooling.retain(|(until, _)| *until > now);
        if !self.cooldown.is_zero() {
            state.cooling.push((now.after(self.cooldown), cost));
        }
    }

    fn retune(&self, _old: &Self, _state: &mut Count, _now: Tick) {}

    fn settled_at(&self, state: &Count) -> Tick {
        let cooled = state.cooling.last().map_or(Tick::ZERO, |last| last.0);
        if state.in_use > 0 { Tick::MAX } else { cooled }
    }
}

pub(super) struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// The orders of a limit: of arrival, the newest first, by turns, where all requests have one key, or by deadline, where none has one.
pub(super) const OLDEST: u8 = 0;
pub(super) const NEWEST: u8 = 1;
pub(super) const TURNS: u8 = 2;
pub(super) const DEADLINES: u8 = 3;

#[derive(Clone)]
pub(super) struct SharedLimit<const ORDER: u8 = OLDEST> {
    limit: Shared<Counted>,
    cooldown: Duration,
}

impl<const ORDER: u8> SharedLimit<ORDER> {
    pub(super) fn newest_first(self, after: Duration) -> Self {
        let limit = self.limit.with_newest_first(after);
        Self { limit, ..self }
    }
}

impl<const ORDER: u8> Kind for SharedLimit<ORDER> {
    const NEWEST_FIRST: bool = ORDER == NEWEST;

    fn new(permits: u32, cooldown: Duration) -> Self {
        let policy = Counted { permits, cooldown };
        let limit = match ORDER {
            TURNS => FairQueue::new(policy).at(KEY),
            NEWEST => policy.shared().with_newest_first(Duration::ZERO),
            DEADLINES => policy.shared().by_deadline(ms(7)),
            _ => policy.shared(),
        };
        Self { limit, cooldown }
    }

    fn acquire(&self, cost: u32) -> Request {
        let limit = self.limit.clone();
        self.granted(async move { limit.acquire(cost).await }, cost)
    }

    fn try_acquire(&self, cost: u32) -> Option<Grant> {
        let passes = self.limit.try_acquire(cost).is_pass();
        passes.then(|| self.grant_of_handle(cost))
    }

    fn handle(&self) -> Option<Box<dyn Limiter<Error = Infallible> + Send>> {
        Some(Box::new(self.limit.clone()))
    }

    fn grant_of_handle(&self, cost: u32) -> Grant {
        let limit = self.limit.clone();
        Box::new(OnDrop(move || limit.refund(cost)))
    }

    fn resize(&self, permits: u32) {
        let cooldown = self.cooldown;
        self.limit.retune(Counted { permits, cooldown });
    }

    fn pause(&self) {
        self.limit.pause_for(Duration::MAX);
    }

    fn resume(&self, _permits: u32) {
        self.limit.resume();
    }

    fn waiting(&self) -> usize {
        self.limit.stats().waiting
    }
}

#[derive(Clone)]
pub(super) struct KeyedLimit {
    limits: Keyed<String, Counted>,
    cooldown: Duration,
}

pub(super) const KEY: &str = "the key";

impl Kind for KeyedLimit {
    fn new(permits: u32, cooldown: Duration) -> Self {
        let limits = Counted { permits, cooldown }.keyed();
        Self { limits, cooldown }
    }

    fn acquire(&self, cost: u32) -> Request {
        self.granted(self.limits.acquire(KEY.to_owned(), cost), cost)
    }

    fn try_acquire(&self, cost: u32) -> Option<Grant> {
        let passes = self.limits.try_acquire(KEY, cost).is_pass();
        passes.then(|| self.grant_of_handle(cost))
    }

    fn handle(&self) -> Option<Box<dyn Limiter<Error = Infallible> + Send>> {
        Some(Box::new(self.limits.at(KEY.to_owned())))
    }

    fn grant_of_handle(&self, cost: u32) -> Grant {
        let limits = self.limits.clone();
        Box::new(OnDrop(move || limits.with(KEY, |limit| limit.refund(cost))))
    }

    fn resize(&self, permits: u32) {
        let cooldown = self.cooldown;
        self.limits
            .with(KEY, |limit| limit.retune(Counted { permits, cooldown }));
    }

    fn pause(&self) {
        self.limits
            .with(KEY, |limit| limit.pause_for(Duration::MAX));
    }

    fn resume(&self, _permits: u32) {
        self.limits.with(KEY, |limit| limit.resume());
    }

    fn waiting(&self) -> usize {
        self.limits.stats().waiting
    }
}

/// One client of a fair share. Without a cool-down the cycle never ends. With one, permits come back when the cycle ends, and only then.
#[derive(Clone)]
pub(super) struct FairLimit {
    clients: Fair<String>,
    cycle: Option<Duration>,
}

impl FairLimit {
    const NEVER: Duration = Duration::from_secs(20 * 365 * 86_400);

    pub(super) fn share(&self, permits: u32) -> FairShare {
        FairShare::new(permits, self.cycle.unwrap_or(Self::NEVER))
    }
}

impl Kind for FairLimit {
    fn new(permits: u32, cooldown: Duration) -> Self {
        let cycle = Some(cooldown).filter(|cooldown| !cooldown.is_zero());
        let clients = Fair::new(FairShare::new(permits, cycle.unwrap_or(Self::NEVER)));
        Self { clients, cycle }
    }

    fn acquire(&self, cost: u32) -> Request {
        self.granted(self.clients.acquire(KEY.to_owned(), cost), cost)
    }

    fn try_acquire(&self, cost: u32) -> Option<Grant> {
        let passes = self.clients.try_acquire(KEY, cost).is_pass();
        passes.then(|| self.grant_of_handle(cost))
    }

    fn handle(&self) -> Option<Box<dyn Limiter<Error = Infallible> + Send>> {
        Some(Box::new(self.clients.at(KEY.to_owned())))
    }

    fn grant_of_handle(&self, cost: u32) -> Grant {
        let this = self.clone();
        Box::new(OnDrop(move || {
            if this.cycle.is_none() {
                this.clients.at(KEY.to_owned()).refund(cost);
            }
        }))
    }

    fn resize(&self, permits: u32) {
        self.clients.retune(self.share(permits));
    }

    fn pause(&self) {
        self.clients.pause_for(Duration::MAX);
    }

    fn resume(&self, _permits: u32) {
        self.clients.resume();
    }

    fn waiting(&self) -> usize {
        self.clients.stats().waiting
    }
}

#[derive(Clone)]
pub(super) struct PermitLimit<const ORDER: u8 = OLDEST>(Permits);

impl<const ORDER: u8> PermitLimit<ORDER> {
    pub(super) fn newest_first(self, after: Duration) -> Self {
        Self(self.0.with_newest_first(after))
    }
}

impl<const ORDER: u8> Kind for PermitLimit<ORDER> {
    const NEWEST_FIRST: bool = ORDER == NEWEST;

    fn new(permits: u32, cooldown: Duration) -> Self {
        let permits = Permits::new(permits).with_cooldown(cooldown);
        Self(match ORDER {
            TURNS => FairPermits::of(&permits).at(KEY),
            NEWEST => permits.with_newest_first(Duration::ZERO),
            _ => permits,
        })
    }

    fn acquire(&self, cost: u32) -> Request {
        if cost == 1 {
            let acquire = self.0.acquire_owned();
            return acquire.map(|permit| Box::new(permit) as Grant).boxed();
        }
        let permits = self.0.clone();
        let acquire = async move { permits.acquire_many(cost).await.expect("not too large") };
        acquire.map(|permit| Box::new(permit) as Grant).boxed()
    }

    fn try_acquire(&self, cost: u32) -> Option<Grant> {
        let permit = self.0.try_acquire_many(cost)?;
        Some(Box::new(permit))
    }

    fn handle(&self) -> Option<Box<dyn Limiter<Error = Infallible> + Send>> {
        None
    }

    fn grant_of_handle(&self, _cost: u32) -> Grant {
        unreachable!("permits have no handles")
    }

    fn resize(&self, permits: u32) {
        self.0.resize(permits);
    }

    fn pause(&self) {
        self.0.resize(0);
    }

    fn resume(&self, permits: u32) {
        self.0.resize(permits);
    }

    fn waiting(&self) -> usize {
        self.0.stats().waiting
    }
}
