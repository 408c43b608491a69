//! The limits of a [`Combined`](super::Combined), one by one and all at once.

use core::convert::Infallible;
use core::fmt::Debug;
use core::hash::Hash;
use core::task::{Context, Poll};

use crate::policy::{Decision, Policy};
use crate::wait::{Caller, Priority};

use super::keyed::KeyedAt;
use super::shared::Shared;
use super::{Limiter, Method, Settle, TooCostly};

/// A handle that can be part of a [`Combined`](super::Combined): a [`Shared`], or that of a key. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a `Combined` or an `AnyOf`",
    label = "expected a `Shared`, or the limit of a key of a `Keyed`",
    note = "a policy becomes one with `.shared()`; an `Owned` belongs to one adapter",
    note = "`Switched`, `Line` and other limiters around a limit go around the whole",
    note = "for limits in Redis: `All` in one limit, and `RedisLimiter::acquire_any`",
    note = "reserve the permits of a client of a `Fair` first, and settle them with 0 if another limit refuses"
)]
pub trait Part: Limiter<Error = Infallible> + Settle + sealed::Part {}

// Each by itself, so that the compiler says the above of any other limiter.
impl<P: Policy> Part for Shared<P> {}
impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Part for KeyedAt<K, P> {}

/// The limits of a [`Combined`](super::Combined): a tuple of two to four [`Part`]s. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not what a `Combined` is made of",
    label = "expected a tuple of two to four limits, each a `Shared` or the limit of a key of a `Keyed`"
)]
pub trait Together: sealed::Together {
    /// A cost for each: `[u32; N]`.
    type Costs: Copy + Debug + Unpin + Send + AsRef<[u32]>;

    #[doc(hidden)]
    fn same(cost: u32) -> Self::Costs;

    #[doc(hidden)]
    fn with_members<R>(
        &mut self,
        costs: Self::Costs,
        work: impl FnOnce(&mut [Member<'_>]) -> R,
    ) -> R;

    #[doc(hidden)]
    fn parts(&self) -> impl Iterator<Item = &dyn Part>;

    #[doc(hidden)]
    fn settles(&mut self, passed: &Self);
}

/// Public in a private module, which seals the traits.
#[expect(
    unnameable_types,
    reason = "a trait that cannot be named cannot be implemented elsewhere"
)]
pub(super) mod sealed {
    use core::task::{Context, Poll};

    use crate::policy::Decision;
    use crate::wait::Priority;

    pub trait Together {}

    pub trait Part {
        /// Goes to the limit. For a key without a place it returns the answer to give.
        fn enter(&mut self, cost: u32) -> Decision;

        /// Where the queue is; 0 without one.
        fn address(&self) -> usize;

        /// Whether keys take turns there.
        fn takes_turns(&self) -> bool {
            false
        }

        /// Whether it has a place; `None` without a queue.
        fn has_place(&self) -> Option<bool>;

        /// Leaves the queue, to take a new place.
        fn forget_place(&mut self);

        /// Takes a place, and goes on under the lock.
        fn reserve(&mut self, next: &mut dyn FnMut());

        /// Takes the permits, if all others can be taken under the lock.
        fn take(&mut self, cost: u32, next: &mut dyn FnMut() -> bool) -> bool;

        /// Wakes what the other locks kept from being woken, and says that the request has passed.
        fn passed(&mut self, cost: u32);

        /// Stands in the queue until the request would pass, and then at its head.
        fn hold(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decision>;

        /// The class of its requests.
        fn class(&self) -> Priority;

        /// Leaves the queue and keeps the place.
        fn step_aside(&mut self);

        /// Leaves the queue.
        fn cancel(&mut self);

        /// What a request would be answered that is not queued.
        fn peek(&self, cost: u32) -> Decision;

        /// Counts and reports a request that does not wait as refused.
        fn refuse(&mut self, cost: u32, decision: Decision);
    }
}

/// One limit, and what a request costs there. Cost 0 uses nothing.
#[expect(unnameable_types, reason = "in a sealed trait")]
#[expect(missing_debug_implementations, reason = "in a sealed trait")]
pub struct Member<'a> {
    pub(super) part: &'a mut dyn sealed::Part,
    pub(super) cost: u32,
    /// How often the request reaches it.
    times: u32,
    /// Its number in the tuple.
    number: usize,
}

impl Member<'_> {
    fn peek(&self) -> Decision {
        self.part.peek(self.cost)
    }

    /// Why it can never pass the request.
    fn never(&self) -> Option<TooCostly> {
        match self.peek() {
            Decision::Never { capacity } => {
                Some(TooCostly::new(self.cost, capacity).reached(self.times))
            }
            _ => None,
        }
    }
}

/// Goes to all limits. A limit that is there twice has one queue: it is asked once, for the sum.
pub(super) fn enter(members: &mut [Member<'_>]) -> Decision {
    let answers = members
        .iter_mut()
        .map(|member| member.part.enter(member.cost));
    let entered = answers.fold(Decision::Pass, Decision::strictest);
    for later in 1..members.len() {
        let address = members[later].part.address();
        let is_same = |member: &Member<'_>| address != 0 && member.part.address() == address;
        if let Some(first) = members[..later].iter().position(is_same) {
            let cost = core::mem::take(&mut members[later].cost);
            members[first].cost = members[first].cost.saturating_add(cost);
            members[first].times += u32::from(cost > 0 && members[first].cost > cost);
        }
    }
    entered
}

/// What the limits say, the strictest of them.
pub(super) fn peek(members: &[Member<'_>]) -> Decision {
    let looks = members.iter().map(Member::peek);
    looks.fold(Decision::Pass, Decision::strictest)
}

/// What limits say to a request that is not queued. One that is there twice is asked for the sum; a key has to be entered for that.
pub(super) fn look_outside<T: Together>(limits: &T, costs: T::Costs) -> Decision {
    let parts = || limits.parts().zip(costs.as_ref());
    let looks = parts().map(|(part, cost)| {
        let address = part.address();
        let others = parts().filter(|(other, _)| other.address() == address);
        let sum = others.fold(0, |sum: u32, (_, cost)| sum.saturating_add(*cost));
        part.peek(if address == 0 { *cost } else { sum })
    });
    looks.fold(Decision::Pass, Decision::strictest)
}

/// Takes the permits of all, or none.
pub(super) fn take(members: &mut [Member<'_>]) -> bool {
    let taken = in_order_of_locks(members, take_all);
    if taken {
        for member in members {
            member.part.passed(member.cost);
        }
    }
    taken
}

/// Each takes its permits under its lock and all those before.
fn take_all(members: &mut [Member<'_>]) -> bool {
    match members.split_first_mut() {
        None => true,
        Some((member, rest)) if member.cost == 0 => take_all(rest),
        Some((member, rest)) => {
            let next = &mut || take_all(rest);
            member.part.take(member.cost, next)
        }
    }
}

/// Takes a place in every queue, in the order of arrival of all such requests. One that has its places keeps them. Where a key had
/// no limit of its own when the request came, it takes all of them anew: places of two instants would let two requests wait for each other.
pub(super) fn reserve(members: &mut [Member<'_>]) {
    let asked = members.iter().filter(|member| member.cost > 0);
    let mut places = asked.filter_map(|member| member.part.has_place());
    let first = places.next();
    if places.any(|has_place| Some(has_place) != first) {
        for member in members.iter_mut() {
            member.part.forget_place();
        }
    }
    in_order_of_locks(members, reserve_all);
}

fn reserve_all(members: &mut [Member<'_>]) {
    match members.split_first_mut() {
        None => {}
        Some((member, rest)) if member.cost == 0 => reserve_all(rest),
        Some((member, rest)) => member.part.reserve(&mut || reserve_all(rest)),
    }
}

/// Two requests never wait for each other's locks, since all take them in one order.
fn in_order_of_locks<R>(
    members: &mut [Member<'_>],
    work: impl FnOnce(&mut [Member<'_>]) -> R,
) -> R {
    members.sort_unstable_by_key(|member| member.part.address());
    let done = work(members);
    members.sort_unstable_by_key(|member| member.number);
    done
}

/// Goes from limit to limit, and waits at the first limit that would refuse.
///
/// Where keys take turns, two requests may stand in another order than at other limits, and would wait for each other. So every request
/// goes to these limits last, and to two of them in one order.
pub(super) fn hold(members: &mut [Member<'_>], cx: &mut Context<'_>) -> Poll<Decision> {
    if !members.iter().any(|member| member.part.takes_turns()) {
        return hold_in_order(members, cx);
    }
    members.sort_unstable_by_key(|member| {
        let takes_turns = member.part.takes_turns();
        (takes_turns.then(|| member.part.address()), member.number)
    });
    let held = hold_in_order(members, cx);
    members.sort_unstable_by_key(|member| member.number);
    held
}

fn hold_in_order(members: &mut [Member<'_>], cx: &mut Context<'_>) -> Poll<Decision> {
    for at in 0..members.len() {
        let Member { part, cost, .. } = &mut members[at];
        if *cost == 0 {
            continue;
        }
        let held = part.hold(*cost, cx);
        if held != Poll::Ready(Decision::Pass) {
            // It is not in the way at limits that it does not wait for.
            let later = members[at + 1..].iter_mut();
            later.for_each(|member| member.part.step_aside());
            return held;
        }
    }
    Poll::Ready(Decision::Pass)
}

/// Why the request can never pass, if one of the limits says so: that with the least capacity.
pub(super) fn never(members: &[Member<'_>]) -> Option<TooCostly> {
    let never = members.iter().filter_map(Member::never);
    never.min_by_key(TooCostly::capacity)
}

/// Refuses a request that one of the limits can never pass.
pub(super) fn refuse_never(members: &mut [Member<'_>]) -> Result<(), TooCostly> {
    let Some(refusal) = never(members) else {
        return Ok(());
    };
    let capacity = refusal.capacity();
    for member in members {
        member.part.cancel();
        if member.never().is_some() {
            member
                .part
                .refuse(member.cost, Decision::Never { capacity });
        }
    }
    Err(refusal)
}

impl<P: Policy> sealed::Part for Shared<P> {
    fn class(&self) -> Priority {
        self.priority
    }

    fn enter(&mut self, _cost: u32) -> Decision {
        Decision::Pass
    }

    fn address(&self) -> usize {
        self.queue.address()
    }

    fn takes_turns(&self) -> bool {
        self.flow.is_some()
    }

    fn has_place(&self) -> Option<bool> {
        Some(!self.is_outside())
    }

    fn forget_place(&mut self) {
        self.queue.cancel(&mut self.position);
    }

    fn reserve(&mut self, next: &mut dyn FnMut()) {
        self.queue.reserve_and(&mut self.position, self.flow, next);
    }

    fn take(&mut self, cost: u32, next: &mut dyn FnMut() -> bool) -> bool {
        self.queue.take_if(&mut self.position, cost, next)
    }

    fn passed(&mut self, cost: u32) {
        if cost > 0 {
            self.queue.wake_deferred();
        }
        let answer = Poll::Ready(Ok(Decision::Pass));
        self.reporter.answered(Method::Decide, cost, &answer, None);
    }

    fn hold(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decision> {
        let caller = Caller::new(cx, self.resolution, self.priority, self.flow);
        let held = self.queue.poll_hold(&mut self.position, cost, &caller);
        if held != Poll::Ready(Decision::Pass) {
            self.reporter
                .answered(Method::Decide, cost, &held.map(Ok), None);
        }
        held
    }

    fn step_aside(&mut self) {
        self.queue.step_aside(&mut self.position);
    }

    fn cancel(&mut self) {
        self.give_up();
    }

    fn peek(&self, cost: u32) -> Decision {
        Self::peek(self, cost)
    }

    fn refuse(&mut self, cost: u32, decision: Decision) {
        self.queue.with(|limit, _| limit.stats.refused += 1);
        let answer = Poll::Ready(Ok(decision));
        self.reporter.answered(Method::Try, cost, &answer, None);
    }
}

/// A key has a queue only while a request of it is under way.
impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> sealed::Part for KeyedAt<K, P> {
    fn class(&self) -> Priority {
        self.keyed.priority
    }

    fn enter(&mut self, cost: u32) -> Decision {
        if cost == 0 || self.handle.is_some() {
            return Decision::Pass;
        }
        self.uncounted = None;
        let reply = self
            .keyed
            .on_shard(&self.key, |shard, key| shard.limit_of(key, &mut self.spare));
        self.handle_of(reply).err().unwrap_or(Decision::Pass)
    }

    fn address(&self) -> usize {
        self.handle.as_ref().map_or(0, sealed::Part::address)
    }

    fn has_place(&self) -> Option<bool> {
        self.handle.as_ref().and_then(sealed::Part::has_place)
    }

    fn forget_place(&mut self) {
        if let Some(handle) = &mut self.handle {
            handle.forget_place();
        }
    }

    fn reserve(&mut self, next: &mut dyn FnMut()) {
        match &mut self.handle {
            Some(handle) => handle.reserve(next),
            None => next(),
        }
    }

    fn take(&mut self, cost: u32, next: &mut dyn FnMut() -> bool) -> bool {
        match &mut self.handle {
            Some(handle) => handle.take(cost, next),
            None => next(),
        }
    }

    fn passed(&mut self, cost: u32) {
        if let Some(handle) = self.handle.as_mut().filter(|_| cost > 0) {
            handle.queue.wake_deferred();
        }
        self.leave();
        let answer = Poll::Ready(Ok(Decision::Pass));
        self.reporter
            .answered(Method::Decide, cost, &answer, self.uncounted);
    }

    fn hold(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decision> {
        let Some(handle) = &mut self.handle else {
            return Poll::Ready(Decision::Pass);
        };
        let held = handle.hold(cost, cx);
        if held != Poll::Ready(Decision::Pass) {
            self.reporter
                .answered(Method::Decide, cost, &held.map(Ok), None);
        }
        held
    }

    fn step_aside(&mut self) {
        if let Some(handle) = &mut self.handle {
            handle.step_aside();
        }
    }

    fn cancel(&mut self) {
        self.give_up();
    }

    fn peek(&self, cost: u32) -> Decision {
        self.keyed.peek(&self.key, cost)
    }

    fn refuse(&mut self, cost: u32, decision: Decision) {
        // One that is queued keeps its place for the next request.
        if self.handle.as_ref().is_some_and(Shared::is_outside) {
            self.leave();
        }
        self.keyed
            .on_shard(&self.key, |shard, _| shard.count_refusal());
        let answer = Poll::Ready(Ok(decision));
        self.reporter.answered(Method::Try, cost, &answer, None);
    }
}

/// A macro, because Rust cannot implement a trait for tuples of any length.
macro_rules! together {
    ($count:literal: $($part:ident $number:tt),+) => {
        impl<$($part: Part),+> sealed::Together for ($($part,)+) {}

        impl<$($part: Part),+> Together for ($($part,)+) {
            type Costs = [u32; $count];

            fn same(cost: u32) -> Self::Costs {
                [cost; $count]
            }

            fn with_members<R>(
                &mut self,
                costs: Self::Costs,
                work: impl FnOnce(&mut [Member<'_>]) -> R,
            ) -> R {
                work(&mut [$(Member {
                    part: &mut self.$number,
                    cost: costs[$number],
                    times: 1,
                    number: $number,
                }),+])
            }

            fn parts(&self) -> impl Iterator<Item = &dyn Part> {
                [$(&self.$number as &dyn Part),+].into_iter()
            }

            fn settles(&mut self, passed: &Self) {
                $(self.$number.settles(&passed.$number);)+
            }
        }
    };
}

together!(2: A 0, B 1);
together!(3: A 0, B 1, C 2);
together!(4: A 0, B 1, C 2, D 3);
