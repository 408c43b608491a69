//! What a limit has to answer, and to count.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use paceline::limiter::AcquireError;
use paceline::policy::Decision;
use paceline::time::Tick;
use testkit::clock::Stopwatch;
use testkit::queue::{Counts, Room, Subject, Turn};

use super::limit::Limit;
use crate::dice::Tunable;
use crate::mirror::Mirror;
use crate::switch_mirror::Way;

/// The refusal of an item of a stream, which can only be too costly, is `None`.
pub(super) type Request = LocalBoxFuture<'static, Result<(), Option<AcquireError>>>;

/// A limit, and a mirror of each key that is never forgotten.
pub(super) struct Judge<P: Tunable, L> {
    pub(super) limit: L,
    pub(super) mirrors: Vec<Mirror<P>>,
    /// The most keys at once.
    pub(super) max: Option<usize>,
    /// How many requests there are, queued or not.
    pub(super) requests: usize,
    /// By the number of a request, how it reaches the limit and within which time it has to pass.
    pub(super) asked: BTreeMap<usize, (Way, Option<Duration>)>,
    /// How many of the refused requests have given up, as one does inside another limiter.
    gave_up: u64,
    /// How many of the refused requests were queued for no time.
    held_back: u64,
    /// Whether the last of them may have been.
    is_unsure: bool,
    /// Since the start of the runtime, which is the origin of the grid of its timers.
    watch: Stopwatch,
}

impl<P: Tunable, L: Limit<P>> Judge<P, L> {
    pub(super) fn of(policy: P, max: u8) -> Self {
        // A key of a policy that never settles is never forgotten.
        let settles = policy.settled_at(&policy.fresh(Tick::ZERO)) < Tick::MAX;
        let is_bounded = L::KEYS > 1 && settles && max % 2 == 1;
        let max = is_bounded.then(|| 1 + usize::from(max / 2) % (L::KEYS - 1));
        Self {
            limit: L::new(policy, max),
            mirrors: (0..L::KEYS).map(|_| Mirror::new(policy)).collect(),
            max,
            requests: 0,
            asked: BTreeMap::new(),
            gave_up: 0,
            held_back: 0,
            is_unsure: false,
            watch: Stopwatch::start(),
        }
    }

    pub(super) fn way_of(&self, n: usize) -> Way {
        self.asked[&n].0
    }

    pub(super) fn refund(&mut self, key: usize, cost: u32) {
        self.limit.with(key, |limit| limit.refund(cost));
        self.mirrors[key].refund(cost);
    }

    pub(super) fn retune(&mut self, key: usize, policy: P) {
        self.limit.with(key, |limit| limit.retune(policy));
        self.mirrors[key].retune(policy);
    }

    pub(super) fn pause_for(&mut self, key: usize, pause: Duration) {
        self.limit.with(key, |limit| limit.pause_for(pause));
        self.mirrors[key].pause_for(pause);
    }

    pub(super) fn resume(&mut self, key: usize) {
        self.limit.with(key, |limit| limit.resume());
        self.mirrors[key].resume();
    }

    /// The answer to a request that is first.
    fn alone(&mut self, key: usize, cost: u32) -> Decision {
        let mirror = &mut self.mirrors[key];
        if L::KEYS > 1 && mirror.never_passes(cost) {
            // Such a request does not start the clock of a key.
            return mirror.timeless(cost);
        }
        // Even a request of cost 0 starts the clock.
        let now = mirror.now();
        mirror.look(now, cost)
    }

    fn never_passes(&mut self, key: usize, cost: u32) -> bool {
        matches!(self.alone(key, cost), Decision::Never { .. })
    }

    /// How long one more request would wait, if that does not depend on waiters that may be passed over.
    fn wait_behind(&mut self, turn: &Turn) -> Option<Duration> {
        if turn.is_any_idle || (self.max.is_some() && !turn.others.is_empty()) {
            return None;
        }
        let wait = self.mirrors[turn.queue].wait_behind(&turn.others, turn.cost);
        // Behind others it is never nothing.
        Some(wait.max(Duration::from_nanos(u64::from(!turn.others.is_empty()))))
    }

    /// The answer to one more request, if it is known.
    pub(super) fn expected(&mut self, turn: &Turn) -> Option<Decision> {
        let alone = self.alone(turn.queue, turn.cost);
        if turn.cost == 0 || matches!(alone, Decision::Never { .. }) {
            return Some(alone);
        }
        match self.wait_behind(turn)? {
            Duration::ZERO => Some(Decision::Pass),
            retry_in => Some(Decision::Wait { retry_in }),
        }
    }

    pub(super) fn is_right(
        &mut self,
        key: usize,
        cost: u32,
        answer: Decision,
        expected: Option<Decision>,
    ) {
        let is_never = matches!(answer, Decision::Never { .. });
        assert_eq!(
            is_never,
            self.never_passes(key, cost),
            "{answer:?} to {cost}"
        );
        let Some(expected) = expected else { return };
        let is_without_room = self.is_full() && expected.is_pass() && answer.retry_in().is_some();
        // A wait until about the last tick depends on the start of a clock.
        let is_for_ever = |decision: Decision| {
            let wait = decision.retry_in();
            wait.is_some_and(|wait| wait.as_nanos() > u128::from(u64::MAX / 2))
        };
        let is_right =
            answer == expected || is_without_room || (is_for_ever(answer) && is_for_ever(expected));
        assert!(is_right, "{answer:?} to {cost}, not {expected:?}");
    }

    /// Whether a new key may find no room, or only room that is reserved for waiters.
    fn is_full(&self) -> bool {
        let spoken_for = self.limit.len() + self.requests;
        self.max.is_some_and(|max| spoken_for >= max)
    }

    /// Whether it is too late for a request that does not pass now, if that is known.
    fn is_too_late(&mut self, turn: &Turn) -> Option<bool> {
        let (_, within) = self.asked[&turn.n];
        let Some(within) = within else {
            return Some(false);
        };
        match turn.joined {
            Some(joined) => Some(joined + within <= self.watch.elapsed()),
            // A time of zero ends at once.
            None if within.is_zero() => Some(true),
            None => self.wait_behind(turn).map(|wait| wait > within),
        }
    }

    /// A request came too late. One that was queued for no time at all was held back too.
    fn gives_up(&mut self, turn: &Turn, refusal: &AcquireError) {
        assert_ne!(self.is_too_late(turn), Some(false), "{turn:?}: too early");
        let (way, within) = self.asked[&turn.n];
        let (within, wait) = (within.expect("it has a time"), self.wait_behind(turn));
        match wait {
            None => self.is_unsure |= turn.joined.is_none(),
            Some(wait) if turn.joined.is_none() && wait <= within => self.held_back += 1,
            Some(_) => {}
        }
        if way == Way::Switched {
            self.gave_up += 1;
            return;
        }
        let message = format!("could not pass within {within:?}");
        assert_eq!(refusal.to_string(), message);
        if wait.is_some() {
            assert_eq!(refusal.retry_in(), wait, "{turn:?}");
        }
    }

    pub(super) fn counts_are_right(&mut self, counts: Counts, waiting: usize) {
        let stats = self.limit.stats();
        let refused = counts.refused - self.gave_up;
        assert_eq!((stats.passed, stats.refused), (counts.passed, refused));
        if let Some(max) = self.max {
            assert!(self.limit.len() <= max && stats.waiting <= waiting);
            return;
        }
        if std::mem::take(&mut self.is_unsure) {
            self.held_back = stats.held_back - counts.held_back;
        }
        let held_back = counts.held_back + self.held_back;
        assert_eq!((stats.held_back, stats.waiting), (held_back, waiting));
    }

    pub(super) fn bounds_hold(&mut self) {
        self.mirrors.iter_mut().for_each(Mirror::bound_holds);
    }

    /// The time until the head of a queue can pass, if it is not longer than a test can wait.
    pub(super) fn wait_of_head(&mut self, key: usize, cost: u32) -> Option<Duration> {
        let Some(_) = self.max else {
            let wait = self.alone(key, cost).retry_in().unwrap_or_default();
            return Some(wait).filter(|wait| *wait <= FOR_EVER);
        };
        // A request that waits for room tries again and again.
        let mut mirrors = self.mirrors.iter_mut();
        let settles = mirrors.all(|mirror| mirror.settles_in() <= Duration::from_secs(60));
        settles.then_some(Duration::from_millis(100))
    }

    /// The time until the timer fires of a request that can pass after `wait`: timers count in whole milliseconds.
    pub(super) fn until_due(&self, wait: Duration) -> Duration {
        let now = self.watch.elapsed();
        in_millis(now + wait, u128::div_ceil).saturating_sub(now)
    }
}

impl<P: Tunable, L: Limit<P>> Subject for Judge<P, L> {
    type Request = Request;
    type Refusal = Option<AcquireError>;

    fn poll(
        &mut self,
        request: Pin<&mut Request>,
        _: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Self::Refusal>> {
        request.get_mut().as_mut().poll(cx)
    }

    fn room(&mut self, key: usize, cost: u32) -> Room {
        match self.alone(key, cost) {
            Decision::Pass if self.is_full() && cost > 0 => Room::Maybe,
            decision => Room::exact(decision.is_pass()),
        }
    }

    fn room_at_rest(&mut self, key: usize, cost: u32) -> Room {
        let elapsed = self.watch.elapsed();
        let off_grid = elapsed.saturating_sub(in_millis(elapsed, u128::div_euclid));
        let mirror = &mut self.mirrors[key];
        let fired = mirror.now().before(off_grid);
        Room::exact(mirror.look(fired, cost).is_pass())
    }

    /// A request that waits for room has a queue of its own, and may be overtaken when it misses its turn.
    fn is_ordered(&self) -> bool {
        self.max.is_none()
    }

    fn pass(&mut self, key: usize, cost: u32) {
        self.mirrors[key].pay(cost);
    }

    fn wait(&mut self, turn: &Turn) {
        assert!(!self.never_passes(turn.queue, turn.cost), "{turn:?}: waits");
        assert_ne!(self.is_too_late(turn), Some(true), "{turn:?}: waits");
    }

    fn refuse(&mut self, turn: &Turn, refusal: Option<AcquireError>) {
        let late = refusal.filter(AcquireError::is_too_late);
        let never_passes = self.never_passes(turn.queue, turn.cost);
        assert_eq!(never_passes, late.is_none(), "{turn:?}: {late:?}");
        if let Some(late) = late {
            self.gives_up(turn, &late);
        }
    }
}

/// Rounds to whole milliseconds, as timers do.
fn in_millis(time: Duration, round: fn(u128, u128) -> u128) -> Duration {
    let millis = round(time.as_nanos(), 1_000_000);
    Duration::from_millis(u64::try_from(millis).expect("less than an age"))
}

const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
