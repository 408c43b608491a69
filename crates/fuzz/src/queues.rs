mod judge;
mod limit;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use futures::{FutureExt, StreamExt, TryFutureExt};
use paceline::limiter::{Gate, Keyed, Mode, Shared, Switch, Switched};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use testkit::clock::paused_runtime;
use testkit::queue::{Oracle, Visit};

use crate::dice::{Tunable, cost, duration};
use crate::switch_mirror::{SwitchMirror, Way};
use judge::{Judge, Request};
use limit::Limit;

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
    paused_runtime().block_on(async {
        match kind % 3 {
            0 => trace::<Interval, Shared<_>>(bytes).await,
            1 => trace::<TokenBucket, Shared<_>>(bytes).await,
            _ => trace::<SlidingLog, Shared<_>>(bytes).await,
        }
    });
}

/// The same for several keys. Each answer is as if no key were ever forgotten, and there are at most as many keys as allowed.
///
/// # Panics
///
/// If one of this does not hold.
pub fn keyed(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let kind: u8 = bytes.arbitrary().unwrap_or_default();
    paused_runtime().block_on(async {
        match kind % 3 {
            0 => trace::<Interval, Keyed<usize, _>>(bytes).await,
            1 => trace::<TokenBucket, Keyed<usize, _>>(bytes).await,
            _ => trace::<SlidingLog, Keyed<usize, _>>(bytes).await,
        }
    });
}

/// Takes steps until the bytes are used up. Then it serves all waiters.
async fn trace<P: Tunable, L: Limit<P>>(mut bytes: Unstructured<'_>) {
    let (Ok(policy), Ok(max)) = (P::any(&mut bytes), bytes.arbitrary::<u8>()) else {
        return;
    };
    let mut line = Line::<P, L>::of(policy, max);
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
const MOST_REQUESTS: usize = 32;

const MOST_ROUNDS: usize = 4_000;

/// A limit with what it is compared to.
struct Line<P: Tunable, L: Limit<P>> {
    oracle: Oracle<Judge<P, L>>,
    /// The same limit behind the switch.
    switched: Switched<L>,
    switch: SwitchMirror,
}

impl<P: Tunable, L: Limit<P>> Line<P, L> {
    fn of(policy: P, max: u8) -> Self {
        let (judge, switch) = (Judge::<P, L>::of(policy, max), Switch::new());
        Self {
            switched: judge.limit.clone().switched(&switch),
            oracle: Oracle::new(judge),
            switch: SwitchMirror::new(switch),
        }
    }

    async fn step(&mut self, bytes: &mut Unstructured<'_>) -> Result<()> {
        // A request is woken by its deadline and by the switch too.
        self.oracle.disturb();
        let (kind, key) = bytes.arbitrary::<(u8, u8)>()?;
        let (way, key) = (Way::of(kind), usize::from(key) % L::KEYS);
        // A key with its own parameters or pause takes room that is never freed, and without room a request that passes in
        // another mode is not remembered.
        let is_unbounded = self.oracle.subject.max.is_none();
        match kind % 32 {
            0..4 => {
                let (cost, is_polled) = (cost(bytes)?, bytes.ratio(7, 8)?);
                self.join(way, key, cost, None, is_polled);
            }
            4 | 5 if is_unbounded => {
                let (cost, within) = (cost(bytes)?, duration(bytes)?);
                self.join(way, key, cost, Some(within), true);
            }
            6..13 => {
                if let Some(n) = self.any_request(bytes)? {
                    self.poll(n);
                }
            }
            13 | 14 => self.poll_woken(),
            15 | 16 => {
                if let Some(n) = self.any_request(bytes)? {
                    self.oracle.leave(n);
                }
            }
            17 | 18 => self.try_acquire(way, key, cost(bytes)?),
            19 => self.peek(key, cost(bytes)?),
            20 if is_unbounded => {
                let cost = cost(bytes)?;
                self.change(key, |judge| judge.refund(key, cost));
            }
            21 if is_unbounded => {
                let policy = P::any(bytes)?;
                self.change(key, |judge| judge.retune(key, policy));
            }
            22 if is_unbounded => self.oracle.subject.pause_for(key, duration(bytes)?),
            23 if is_unbounded => self.oracle.subject.resume(key),
            24 if is_unbounded => self.set_any_mode(bytes.arbitrary()?),
            _ => self.jump(duration(bytes)?).await,
        }
        Ok(())
    }

    fn any_request(&self, bytes: &mut Unstructured<'_>) -> Result<Option<usize>> {
        Ok(self.oracle.pick(bytes.arbitrary::<u8>()?.into()))
    }

    /// Changes what is spent. A settled state may be forgotten, and then there is nothing to change.
    fn change(&mut self, key: usize, change: impl FnOnce(&mut Judge<P, L>)) {
        let judge = &mut self.oracle.subject;
        if L::KEYS == 1 || !judge.mirrors[key].settles_in().is_zero() {
            judge.mirrors[key].bound_holds();
            change(judge);
        }
    }

    fn join(&mut self, way: Way, key: usize, cost: u32, within: Option<Duration>, is_polled: bool) {
        if self.oracle.len() == MOST_REQUESTS {
            return;
        }
        let judge = &self.oracle.subject;
        let request: Request = match (way, within) {
            (Way::Direct | Way::Stream, Some(within)) => {
                let request = judge.limit.acquire_within(key, cost, within);
                request.map_err(Some).boxed_local()
            }
            (Way::Switched, Some(within)) => {
                let limit = L::switched_at(&self.switched, key);
                limit
                    .acquire_within(cost, within)
                    .map_err(Some)
                    .boxed_local()
            }
            // The handle outlives the request.
            (Way::Switched, None) => {
                let mut gate = Gate::new(L::switched_at(&self.switched, key));
                poll_fn(move |cx| gate.poll_pass(cost, cx))
                    .map_err(Some)
                    .boxed_local()
            }
            // It is dropped with its `next`, and leaves the queue too. One that can never pass may start the clock of its key.
            (Way::Stream, None) if !judge.mirrors[key].never_passes(cost) => {
                let items = futures::stream::iter([cost]);
                let mut paced = Box::pin(items.pace_by_cost(judge.limit.handle(key), |cost| *cost));
                let passed = async move {
                    let item = paced.next().await.expect("one item");
                    item.map(drop).map_err(|_| None)
                };
                passed.boxed_local()
            }
            (Way::Direct | Way::Stream, None) => {
                let limit = judge.limit.handle(key);
                limit.acquire(cost).map_err(Some).boxed_local()
            }
        };
        let visit = Visit {
            queue: key,
            cost,
            leaves: None,
        };
        let n = self.oracle.join(visit, request);
        self.oracle.subject.asked.insert(n, (way, within));
        if is_polled {
            self.poll(n);
        }
    }

    fn poll_woken(&mut self) {
        for n in self.oracle.woken() {
            self.poll(n);
        }
    }

    fn poll(&mut self, n: usize) {
        self.oracle.subject.requests = self.oracle.len();
        match self.switch.mode_of(self.oracle.subject.way_of(n)) {
            Mode::Active => self.oracle.poll(n),
            Mode::Shadow | Mode::Off => self.poll_unlimited(n),
        }
    }

    /// The request passes at once, and leaves the queue although its handle is kept.
    fn poll_unlimited(&mut self, n: usize) {
        let Visit {
            queue: key, cost, ..
        } = self.oracle.visit(n);
        let is_charged = self.pass_unlimited(key, cost, |line| {
            let answer = line.oracle.driven(n).poll();
            matches!(answer, Poll::Ready(Ok(())))
        });
        if let Some(is_charged) = is_charged {
            self.oracle.passed_by(n, is_charged);
        }
        let passed = self.oracle.leave(n);
        self.counts_are_right();
        drop(passed);
    }

    /// Asks while the switch limits nothing. The request passes, and in shadow mode it is charged if the limit lets it pass at
    /// once. Returns whether it was, if that was to be decided.
    fn pass_unlimited(
        &mut self,
        key: usize,
        cost: u32,
        ask: impl FnOnce(&mut Self) -> bool,
    ) -> Option<bool> {
        let passed = self.oracle.subject.limit.stats().passed;
        assert!(ask(self), "{cost} was held back");
        let is_charged = self.oracle.subject.limit.stats().passed > passed;
        let is_off = self.switch.mode_of(Way::Switched) == Mode::Off;
        if cost > 0 && !is_off {
            self.switch.count(is_charged);
            return Some(is_charged);
        }
        assert!(!is_charged, "{cost} was charged");
        // While it is off, not even the clock starts.
        if !is_off {
            self.oracle.answered(key, 0, true);
        }
        None
    }

    fn try_acquire(&mut self, way: Way, key: usize, cost: u32) {
        if self.switch.mode_of(way) != Mode::Active {
            let is_charged =
                self.pass_unlimited(key, cost, |line| line.ask(way, key, cost).is_pass());
            if let Some(is_charged) = is_charged {
                self.oracle.tried(key, cost, is_charged);
            }
            return;
        }
        let expected = self.expected(key, cost);
        let answer = self.ask(way, key, cost);
        self.oracle.subject.is_right(key, cost, answer, expected);
        self.oracle.tried(key, cost, answer.is_pass());
    }

    fn ask(&self, way: Way, key: usize, cost: u32) -> Decision {
        match way {
            Way::Direct | Way::Stream => self.oracle.subject.limit.try_acquire(key, cost),
            Way::Switched => {
                let limit = L::switched_at(&self.switched, key);
                let answer = limit.try_acquire(cost).now_or_never();
                answer.expect("ready at once in memory")
            }
        }
    }

    /// Whatever the mode.
    fn peek(&mut self, key: usize, cost: u32) {
        let expected = self.expected(key, cost);
        let answer = self.oracle.subject.limit.peek(key, cost);
        self.oracle.subject.is_right(key, cost, answer, expected);
        self.oracle.answered(key, cost, answer.is_pass());
    }

    /// The answer to one more request, if it does not depend on waiters that may be passed over.
    fn expected(&mut self, key: usize, cost: u32) -> Option<Decision> {
        self.oracle.subject.requests = self.oracle.len();
        let turn = self.oracle.turn_of(key, cost);
        self.oracle.subject.expected(&turn)
    }

    fn set_any_mode(&mut self, kind: u8) {
        if self.switch.set_any_mode(kind) {
            self.switched_waiters_were_woken();
        }
    }

    async fn jump(&mut self, by: Duration) {
        self.oracle.lose_time(by).await;
        if self.switch.mode_of(Way::Switched) != Mode::Active {
            self.switched_waiters_were_woken();
        }
        if self.oracle.subject.max.is_none() {
            self.oracle.check_heads();
        }
    }

    fn switched_waiters_were_woken(&self) {
        let judge = &self.oracle.subject;
        let mut waiters = self.oracle.waiters();
        assert!(
            waiters.all(|n| judge.way_of(n) != Way::Switched || self.oracle.is_woken(n)),
            "not woken by the switch"
        );
    }

    fn counts_are_right(&mut self) {
        self.switch.counts_are_right();
        let (counts, waiting) = (self.oracle.counts, self.oracle.waiting());
        self.oracle.subject.counts_are_right(counts, waiting);
    }

    /// Polls only the woken requests. Each passes at the first millisecond at which it can.
    async fn serve_all(&mut self) {
        for n in self.oracle.outside() {
            self.oracle.leave(n);
        }
        self.set_any_mode(0);
        if self.oracle.subject.max.is_none() {
            (0..L::KEYS).for_each(|key| self.oracle.subject.resume(key));
        }
        // From here on the clock moves by whole milliseconds.
        self.jump(self.oracle.subject.until_due(Duration::ZERO))
            .await;
        for _ in 0..MOST_ROUNDS {
            self.oracle.disturb();
            self.poll_woken();
            self.counts_are_right();
            let Some(wait) = self.next_wait() else {
                self.oracle.subject.bounds_hold();
                return;
            };
            self.jump(self.oracle.subject.until_due(wait)).await;
        }
        panic!("{} waiters sleep for ever", self.oracle.waiting());
    }

    /// The time until the first head can pass, if there is one that can before long.
    fn next_wait(&mut self) -> Option<Duration> {
        let heads = (0..L::KEYS).filter_map(|key| Some((key, self.oracle.head(key)?.1)));
        let heads: Vec<_> = heads.collect();
        let waits = heads
            .into_iter()
            .map(|(key, cost)| self.oracle.subject.wait_of_head(key, cost));
        waits.flatten().min()
    }
}
