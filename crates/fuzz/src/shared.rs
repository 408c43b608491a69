mod judge;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use futures::future::{FutureExt, LocalBoxFuture, select_all};
use paceline::limiter::{
    AcquireError, Gate, LimiterExt, Mode, PolicyExt, Shared, Switch, SwitchExt, Switched,
};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::time::Tick;
use testkit::clock::{Stopwatch, jump};
use testkit::wakes::Driven;

use crate::dice::{Tunable, cost, duration};
use crate::expected::{is_never, is_wait};
use crate::mirror::Mirror;
use crate::switch_mirror::{SwitchMirror, Way};
use crate::virtual_time::{in_millis, in_virtual_time};

/// Requests, waits, cancels and changes of a shared limit at any time, directly and through a switch. The limit behaves as a
/// plain FIFO queue in front of the policy, to the nanosecond. It counts correctly, as does the switch, and a waiter that can
/// pass was woken.
///
/// # Panics
///
/// If one of this does not hold.
pub fn shared(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let kind: u8 = bytes.arbitrary().unwrap_or_default();
    match kind % 3 {
        0 => in_virtual_time(trace::<Interval>(bytes)),
        1 => in_virtual_time(trace::<TokenBucket>(bytes)),
        _ => in_virtual_time(trace::<SlidingLog>(bytes)),
    }
}

/// Takes steps until the bytes are used up. Then it serves all waiters.
async fn trace<P: Tunable>(mut bytes: Unstructured<'_>) {
    let Ok(policy) = P::any(&mut bytes) else {
        return;
    };
    let mut line = Line::of(policy);
    for _ in 0..MOST_STEPS {
        if bytes.is_empty() || line.step(&mut bytes).await.is_err() {
            break;
        }
        line.counts_are_right();
    }
    line.serve_all().await;
}

const MOST_STEPS: usize = 300;

/// Fewer than the estimate considers for each request.
const MOST_WAITERS: usize = 32;

/// A waiter that was not polled for this long may have been overtaken.
const PATIENCE: Duration = Duration::from_millis(10);

struct Line<P: Tunable> {
    limit: Shared<P>,
    /// The same limit behind the switch.
    switched: Switched<Shared<P>>,
    switch: SwitchMirror,
    mirror: Mirror<P>,
    waiters: Vec<Waiter>,
    tickets: u64,
    /// The time since the start of the runtime, which is the origin of the grid of its timers.
    since_start: Stopwatch,
    /// The requests that passed since the last refund or retune.
    passed: Vec<(Tick, u32)>,
}

struct Waiter {
    future: Driven<LocalBoxFuture<'static, std::result::Result<(), AcquireError>>>,
    way: Way,
    cost: u32,
    within: Option<Duration>,
    place: Option<Place>,
}

/// The position in the queue, since the first poll.
#[derive(Clone, Copy, Debug)]
struct Place {
    ticket: u64,
    joined: Tick,
    polled: Tick,
}

impl Waiter {
    /// That of a request that is not queued is the last.
    fn ticket(&self) -> u64 {
        self.place.map_or(u64::MAX, |place| place.ticket)
    }

    fn is_before(&self, ticket: u64) -> bool {
        self.place.is_some_and(|place| place.ticket < ticket)
    }

    /// The limit does not report whether the others have overtaken this waiter.
    fn may_be_overdue(&self, now: Tick) -> bool {
        self.place
            .is_some_and(|place| now.since(place.polled) >= PATIENCE)
    }
}

impl<P: Tunable> Line<P> {
    fn of(policy: P) -> Self {
        let (limit, switch) = (policy.shared(), Switch::new());
        Self {
            switched: limit.clone().switched(&switch),
            limit,
            switch: SwitchMirror::new(switch),
            mirror: Mirror::new(policy),
            waiters: Vec::new(),
            tickets: 0,
            since_start: Stopwatch::start(),
            passed: Vec::new(),
        }
    }

    async fn step(&mut self, bytes: &mut Unstructured<'_>) -> Result<()> {
        let kind = bytes.arbitrary::<u8>()?;
        let way = Way::of(kind);
        match kind % 32 {
            0..4 => {
                let (cost, is_polled) = (cost(bytes)?, bytes.ratio(7, 8)?);
                self.join(way, cost, None, is_polled);
            }
            4 | 5 => {
                let (cost, within) = (cost(bytes)?, duration(bytes)?);
                self.join(way, cost, Some(within), true);
            }
            6..13 => {
                if let Some(n) = self.any_waiter(bytes)? {
                    self.poll(n);
                }
            }
            13 | 14 => self.poll_woken(),
            15 | 16 => {
                if let Some(n) = self.any_waiter(bytes)? {
                    self.leave(n);
                }
            }
            17 | 18 => self.try_acquire(way, cost(bytes)?),
            19 => self.peek(cost(bytes)?),
            20 => self.refund(cost(bytes)?),
            21 => self.retune(P::any(bytes)?),
            22 => {
                let pause = duration(bytes)?;
                self.limit.pause_for(pause);
                self.mirror.pause_for(pause);
            }
            23 => {
                self.limit.resume();
                self.mirror.resume();
            }
            24 => self.set_mode(bytes.arbitrary()?),
            _ => self.jump(duration(bytes)?).await,
        }
        Ok(())
    }

    fn any_waiter(&self, bytes: &mut Unstructured<'_>) -> Result<Option<usize>> {
        let n = usize::from(bytes.arbitrary::<u8>()?);
        Ok(n.checked_rem(self.waiters.len()))
    }

    fn join(&mut self, way: Way, cost: u32, within: Option<Duration>, is_polled: bool) {
        if self.waiters.len() == MOST_WAITERS {
            return;
        }
        let future = match (way, within) {
            (Way::Direct, None) => self.limit.acquire(cost).boxed_local(),
            (Way::Direct, Some(within)) => self.limit.acquire_within(cost, within).boxed_local(),
            // The handle outlives the request.
            (Way::Switched, None) => {
                let mut gate = Gate::new(self.switched.clone());
                poll_fn(move |cx| gate.poll_pass(cost, cx)).boxed_local()
            }
            (Way::Switched, Some(within)) => {
                self.switched.acquire_within(cost, within).boxed_local()
            }
        };
        self.waiters.push(Waiter {
            future: Driven::new(future),
            way,
            cost,
            within,
            place: None,
        });
        if is_polled {
            self.poll(self.waiters.len() - 1);
        }
    }

    fn poll_woken(&mut self) {
        let mut woken: Vec<_> = self
            .waiters
            .iter()
            .filter(|one| one.future.is_woken())
            .collect();
        woken.sort_by_key(|one| one.place.map(|place| place.ticket));
        let tickets: Vec<_> = woken
            .iter()
            .filter_map(|one| Some(one.place?.ticket))
            .collect();
        for ticket in tickets {
            let has_it = |one: &Waiter| one.place.is_some_and(|place| place.ticket == ticket);
            if let Some(n) = self.waiters.iter().position(has_it) {
                self.poll(n);
            }
        }
    }

    fn poll(&mut self, n: usize) {
        match self.switch.mode_of(self.waiters[n].way) {
            Mode::Active => self.poll_limited(n),
            Mode::Shadow | Mode::Off => self.poll_unlimited(n),
        }
    }

    /// The waiter passes at once, and leaves the queue although its handle is kept.
    fn poll_unlimited(&mut self, n: usize) {
        let waiter = &self.waiters[n];
        let (ticket, cost) = (waiter.ticket(), waiter.cost);
        self.pass_unlimited(ticket, cost, |line| {
            matches!(line.waiters[n].future.poll(), Poll::Ready(Ok(())))
        });
        let passed = self.waiters.remove(n);
        self.counts_are_right();
        drop(passed);
    }

    fn poll_limited(&mut self, n: usize) {
        let now = self.mirror.now();
        let ticket = self.waiters[n].ticket();
        let Waiter {
            way,
            cost,
            within,
            place,
            ..
        } = self.waiters[n];
        let expected = self.expected(ticket, cost);
        let behind = if place.is_none() && within.is_some() {
            self.wait_for(cost)
        } else {
            None
        };
        let answer = self.waiters[n].future.poll();

        let is_over = match (within, place) {
            (Some(within), Some(place)) => now >= place.joined.after(within),
            // A time of zero ends at once.
            (Some(within), None) => within.is_zero() || behind.is_some_and(|wait| wait > within),
            (None, _) => false,
        };
        let context = format!(
            "{answer:?} to {cost} within {within:?} at {now:?}, {expected:?}, behind {behind:?}, place {place:?}, {:?}",
            self.limit
        );
        match answer {
            Poll::Ready(Ok(())) => {
                assert!(expected.allows(Decision::is_pass), "{context}");
                self.has_passed(cost);
            }
            Poll::Ready(Err(error)) if error.is_too_late() => {
                assert!(expected.allows(is_wait), "{context}");
                let is_unsure = place.is_none() && behind.is_none();
                assert!(is_over || is_unsure, "{context}: too early");
                // A request that was queued for no time at all was held back too.
                let has_joined = place.is_none() && behind.is_none_or(|wait| Some(wait) <= within);
                if has_joined && behind.is_some() {
                    self.mirror.held_back += 1;
                } else if has_joined {
                    self.mirror.held_back = self.limit.stats().held_back;
                }
                // Of a limit inside another limiter, such a request gives up.
                self.mirror.refused += u64::from(way == Way::Direct);
            }
            Poll::Ready(Err(_)) => {
                assert!(expected.allows(is_never), "{context}");
                self.mirror.refused += 1;
            }
            Poll::Pending => {
                assert!(expected.allows(is_wait), "{context}");
                assert!(!is_over, "{context}: it is too late");
                let waiter = &mut self.waiters[n];
                assert!(
                    waiter.future.is_waker_kept(),
                    "{context}: nobody will wake it"
                );
                let place = place.unwrap_or_else(|| {
                    self.mirror.held_back += 1;
                    self.tickets += 1;
                    Place {
                        ticket: self.tickets,
                        joined: now,
                        polled: now,
                    }
                });
                waiter.place = Some(Place {
                    polled: now,
                    ..place
                });
                return;
            }
        }
        self.waiters.remove(n);
    }

    fn leave(&mut self, n: usize) {
        self.waiters.remove(n);
    }

    fn try_acquire(&mut self, way: Way, cost: u32) {
        if self.switch.mode_of(way) != Mode::Active {
            self.pass_unlimited(u64::MAX, cost, |line| line.ask(way, cost).is_pass());
            return;
        }
        let expected = self.expected(u64::MAX, cost);
        let answer = self.ask(way, cost);
        assert!(expected.agrees_with(answer), "{answer:?} to {cost}");
        if answer.is_pass() {
            self.has_passed(cost);
        } else {
            self.mirror.refused += 1;
        }
    }

    fn ask(&self, way: Way, cost: u32) -> Decision {
        match way {
            Way::Direct => self.limit.try_acquire(cost),
            Way::Switched => {
                let answer = self.switched.try_acquire(cost).now_or_never();
                answer.expect("ready at once in memory")
            }
        }
    }

    /// Whatever the mode.
    fn peek(&mut self, cost: u32) {
        let expected = self.expected(u64::MAX, cost);
        let answer = self.limit.peek(cost);
        assert!(expected.agrees_with(answer), "{answer:?} to {cost}");
    }

    fn refund(&mut self, cost: u32) {
        self.bound_holds();
        self.limit.refund(cost);
        self.mirror.refund(cost);
    }

    fn retune(&mut self, policy: P) {
        self.bound_holds();
        self.limit.retune(policy);
        self.mirror.retune(policy);
    }

    fn set_mode(&mut self, kind: u8) {
        if self.switch.set_any_mode(kind) {
            self.switched_waiters_were_woken();
        }
    }

    async fn jump(&mut self, by: Duration) {
        jump(by).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.a_waiter_that_can_pass_was_woken();
    }

    /// Polls only the woken waiters. Each passes at the first millisecond at which it can.
    async fn serve_all(&mut self) {
        self.waiters.retain(|one| one.place.is_some());
        self.limit.resume();
        self.mirror.resume();
        if self.switch.set_mode(Mode::Active) {
            self.switched_waiters_were_woken();
        }
        // From here on the clock moves by whole milliseconds.
        let now = self.since_start.elapsed();
        let aligned = in_millis(now, u128::div_ceil);
        self.jump(aligned.saturating_sub(now)).await;
        loop {
            self.poll_woken();
            self.counts_are_right();
            let Some(first) = self.first() else { break };
            let now = self.mirror.now();
            let retry_in = match self.mirror.look(now, self.waiters[first].cost) {
                Decision::Wait { retry_in } => retry_in,
                // Its timer fires at the next whole millisecond.
                Decision::Pass | Decision::Never { .. } => Duration::ZERO,
            };
            if retry_in > FOR_EVER {
                break;
            }
            let due = in_millis(self.since_start.elapsed() + retry_in, u128::div_ceil);
            let left = due.saturating_sub(self.since_start.elapsed());
            let woken = select_all(
                self.waiters
                    .iter()
                    .map(|one| one.future.woken().boxed_local()),
            );
            let in_time = tokio::time::timeout(left, woken).await;
            let is_late = in_time.is_err();
            drop(in_time);
            if is_late {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                self.a_waiter_that_can_pass_was_woken();
            }
            assert!(self.since_start.elapsed() <= due, "woken after {due:?}");
        }
        self.bound_holds();
    }
}

const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
