use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use futures::future::{FutureExt, LocalBoxFuture, select_all};
use paceline::limiter::{
    AcquireError, Gate, Keyed, LimiterExt, Limits, Mode, PolicyExt, Switch, SwitchExt, Switched,
};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::time::Tick;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::dice::{Tunable, cost, duration};
use crate::expected::{Expected, is_never, is_wait};
use crate::mirror::Mirror;
use crate::switch_mirror::{SwitchMirror, Way};
use crate::virtual_time::in_virtual_time;

/// Requests for any keys, directly and through a switch. Each answer is as if no key were ever forgotten, there are at most as
/// many keys as allowed, and every waiter passes eventually.
///
/// # Panics
///
/// If one of this does not hold.
pub fn keyed(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let kind: u8 = bytes.arbitrary().unwrap_or_default();
    match kind % 3 {
        0 => in_virtual_time(trace::<Interval>(bytes)),
        1 => in_virtual_time(trace::<TokenBucket>(bytes)),
        _ => in_virtual_time(trace::<SlidingLog>(bytes)),
    }
}

async fn trace<P: Tunable>(mut bytes: Unstructured<'_>) {
    let (Ok(policy), Ok(max)) = (P::any(&mut bytes), bytes.arbitrary::<u8>()) else {
        return;
    };
    // A key of a policy that never settles is never forgotten.
    let settles = policy.settled_at(&policy.fresh(Tick::ZERO)) < Tick::MAX;
    let max = (settles && max % 2 == 1).then(|| 1 + usize::from(max / 2) % (KEYS - 1));
    let mut map = Map::of(policy, max);
    for _ in 0..MOST_STEPS {
        if bytes.is_empty() || map.step(&mut bytes).await.is_err() {
            break;
        }
        map.counts_are_right();
    }
    map.serve_all().await;
}

const MOST_STEPS: usize = 300;

const MOST_WAITERS: usize = 32;

const KEYS: usize = 6;

/// A waiter that was not polled for this long may have been overtaken.
const PATIENCE: Duration = Duration::from_millis(10);

struct Map<P: Tunable> {
    limit: Keyed<usize, P>,
    /// The same limits behind the switch.
    switched: Switched<Keyed<usize, P>>,
    switch: SwitchMirror,
    max: Option<usize>,
    /// One for each key. None is forgotten.
    mirrors: Vec<Mirror<P>>,
    waiters: Vec<Waiter>,
    tickets: u64,
}

struct Waiter {
    future: Driven<LocalBoxFuture<'static, std::result::Result<(), AcquireError>>>,
    way: Way,
    key: usize,
    cost: u32,
    place: Option<Place>,
}

/// The position in the queue, since the first poll.
#[derive(Clone, Copy)]
struct Place {
    ticket: u64,
    polled: Tick,
}

impl Waiter {
    /// That of a request that is not queued is the last.
    fn ticket(&self) -> u64 {
        self.place.map_or(u64::MAX, |place| place.ticket)
    }
}

impl<P: Tunable> Map<P> {
    fn of(policy: P, max: Option<usize>) -> Self {
        let (limit, switch) = (policy.keyed(), Switch::new());
        let limit = match max {
            Some(max) => limit.with_max_keys(max),
            None => limit,
        };
        Self {
            switched: limit.clone().switched(&switch),
            limit,
            switch: SwitchMirror::new(switch),
            max,
            mirrors: (0..KEYS).map(|_| Mirror::new(policy)).collect(),
            waiters: Vec::new(),
            tickets: 0,
        }
    }

    async fn step(&mut self, bytes: &mut Unstructured<'_>) -> Result<()> {
        let (kind, key) = bytes.arbitrary::<(u8, u8)>()?;
        let key = usize::from(key) % KEYS;
        let waiter = usize::from(bytes.arbitrary::<u8>()?).checked_rem(self.waiters.len());
        let way = Way::of(kind);
        match (kind % 32, waiter) {
            (0..5, _) => self.join(way, key, cost(bytes)?),
            (5..11, Some(n)) => self.poll(n),
            (11 | 12, _) => self.poll_woken(),
            (13 | 14, Some(n)) => drop(self.waiters.remove(n)),
            (15..20, _) => self.try_acquire(way, key, cost(bytes)?),
            (20, _) => self.peek(key, cost(bytes)?),
            // A key with its own parameters or pause takes room that is never freed.
            (21, _) if self.max.is_none() => {
                let policy = P::any(bytes)?;
                // A settled state may be forgotten, but slower parameters would still count it.
                if self.mirrors[key].settles_in().is_zero() {
                    return Ok(());
                }
                self.limit.with(&key, |limit| limit.retune(policy));
                self.mirrors[key].retune(policy);
            }
            (22, _) if self.max.is_none() => {
                let pause = duration(bytes)?;
                self.limit.with(&key, |limit| limit.pause_for(pause));
                self.mirrors[key].pause_for(pause);
            }
            (23, _) if self.max.is_none() => self.resume(key),
            // Without room, a request that passes in another mode is not remembered.
            (24, _) if self.max.is_none() => self.set_mode(bytes.arbitrary()?),
            _ => self.jump(duration(bytes)?).await,
        }
        Ok(())
    }

    fn join(&mut self, way: Way, key: usize, cost: u32) {
        if self.waiters.len() == MOST_WAITERS {
            return;
        }
        let future = match way {
            Way::Direct => self.limit.acquire(key, cost).boxed_local(),
            // The handle outlives the request.
            Way::Switched => {
                let Ok(limit) = self.switched.at(key);
                let mut gate = Gate::new(limit);
                poll_fn(move |cx| gate.poll_pass(cost, cx)).boxed_local()
            }
        };
        self.waiters.push(Waiter {
            future: Driven::new(future),
            way,
            key,
            cost,
            place: None,
        });
        self.poll(self.waiters.len() - 1);
    }

    fn poll_woken(&mut self) {
        let woken = self.waiters.iter().filter(|one| one.future.is_woken());
        let tickets: Vec<_> = woken.filter_map(|one| Some(one.place?.ticket)).collect();
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
        let (key, ticket, cost) = (waiter.key, waiter.ticket(), waiter.cost);
        self.pass_unlimited(key, ticket, cost, |map| {
            matches!(map.waiters[n].future.poll(), Poll::Ready(Ok(())))
        });
        let passed = self.waiters.remove(n);
        self.counts_are_right();
        drop(passed);
    }

    /// Asks while the switch limits nothing. The request passes, and in shadow mode it is charged if the limit lets it pass at once.
    fn pass_unlimited(
        &mut self,
        key: usize,
        ticket: u64,
        cost: u32,
        ask: impl FnOnce(&mut Self) -> bool,
    ) {
        let is_shadowed = self.switch.mode_of(Way::Switched) == Mode::Shadow;
        // While it is off, not even the clock of a key starts.
        let expected = is_shadowed.then(|| self.expected(key, ticket, cost));
        let passed = self.limit.stats().passed;
        assert!(ask(self), "{cost} of {key} was held back, {expected:?}");
        let is_charged = self.limit.stats().passed > passed;
        let Some(expected) = expected.filter(|_| cost > 0) else {
            assert!(!is_charged, "{cost} of {key} was charged");
            return;
        };
        assert!(
            expected.allows(|decision| decision.is_pass() == is_charged),
            "{cost} of {key} is charged: {is_charged}, {expected:?}"
        );
        self.switch.count(is_charged);
        if is_charged {
            self.has_passed(key, cost);
        } else {
            self.mirrors[key].refused += 1;
        }
    }

    fn poll_limited(&mut self, n: usize) {
        let ticket = self.waiters[n].ticket();
        let Waiter {
            key, cost, place, ..
        } = self.waiters[n];
        let expected = self.expected(key, ticket, cost);
        let answer = self.waiters[n].future.poll();
        let context = || format!("{answer:?} to {cost} of {key}, {expected:?}");
        match answer {
            Poll::Ready(Ok(())) => {
                assert!(expected.allows(Decision::is_pass), "{}", context());
                self.has_passed(key, cost);
            }
            Poll::Ready(Err(_)) => {
                assert!(expected.allows(is_never), "{}", context());
                self.mirrors[key].refused += 1;
            }
            Poll::Pending => {
                assert!(expected.allows(is_wait) || self.is_full(), "{}", context());
                let waiter = &mut self.waiters[n];
                assert!(
                    waiter.future.is_waker_kept(),
                    "{}: nobody will wake it",
                    context()
                );
                let polled = self.mirrors[key].now();
                let place = place.unwrap_or_else(|| {
                    self.mirrors[key].held_back += 1;
                    self.tickets += 1;
                    Place {
                        ticket: self.tickets,
                        polled,
                    }
                });
                waiter.place = Some(Place { polled, ..place });
                return;
            }
        }
        self.waiters.remove(n);
    }

    fn try_acquire(&mut self, way: Way, key: usize, cost: u32) {
        if self.switch.mode_of(way) != Mode::Active {
            self.pass_unlimited(key, u64::MAX, cost, |map| map.ask(way, key, cost).is_pass());
            return;
        }
        let expected = self.expected(key, u64::MAX, cost);
        let answer = self.ask(way, key, cost);
        self.is_right(&expected, answer);
        if answer.is_pass() {
            self.has_passed(key, cost);
        } else {
            self.mirrors[key].refused += 1;
        }
    }

    fn ask(&self, way: Way, key: usize, cost: u32) -> Decision {
        match way {
            Way::Direct => self.limit.try_acquire(&key, cost),
            Way::Switched => {
                let Ok(limit) = self.switched.at(key);
                let answer = limit.try_acquire(cost).now_or_never();
                answer.expect("ready at once in memory")
            }
        }
    }

    fn resume(&mut self, key: usize) {
        self.limit.with(&key, |limit| limit.resume());
        self.mirrors[key].resume();
    }

    /// Whatever the mode.
    fn peek(&mut self, key: usize, cost: u32) {
        let expected = self.expected(key, u64::MAX, cost);
        let answer = self.limit.peek(&key, cost);
        self.is_right(&expected, answer);
    }

    fn is_right(&self, expected: &Expected, answer: Decision) {
        let is_without_room =
            self.is_full() && is_wait(answer) && expected.allows(Decision::is_pass);
        assert!(
            expected.agrees_with(answer) || is_without_room,
            "{answer:?}, not {expected:?}"
        );
    }

    fn set_mode(&mut self, kind: u8) {
        if !self.switch.set_any_mode(kind) {
            return;
        }
        let mut switched = self
            .waiters
            .iter()
            .filter(|one| one.place.is_some() && one.way == Way::Switched);
        assert!(
            switched.all(|one| one.future.is_woken()),
            "not woken by the switch"
        );
    }

    async fn jump(&mut self, by: Duration) {
        jump(by).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }

    /// The limit's answer. The wait behind other waiters is not computed here.
    fn expected(&mut self, key: usize, ticket: u64, cost: u32) -> Expected {
        let mirror = &mut self.mirrors[key];
        if mirror.never_passes(cost) {
            // Such a request does not start the clock of a key.
            return Expected::Sure(mirror.timeless(cost));
        }
        let now = mirror.now();
        if cost == 0 {
            return Expected::Sure(Decision::Pass);
        }
        let alone = mirror.look(now, cost);
        // A request that waits for room has a queue of its own, and may be overtaken when it misses its turn.
        let is_before = |other: u64| other < ticket || (self.max.is_some() && other != ticket);
        let is_ahead = |one: &&Waiter| {
            one.key == key && one.place.is_some_and(|place| is_before(place.ticket))
        };
        let mut ahead = self.waiters.iter().filter(is_ahead).peekable();
        if is_never(alone) || ahead.peek().is_none() {
            return Expected::Sure(alone);
        }
        let is_patient = |one: &Waiter| {
            one.place
                .is_some_and(|one| now.since(one.polled) < PATIENCE)
        };
        if self.max.is_some() || !ahead.any(is_patient) {
            return Expected::Unsure;
        }
        Expected::Sure(Decision::Wait {
            retry_in: Duration::ZERO,
        })
    }

    /// Counts a request that the limit let pass.
    fn has_passed(&mut self, key: usize, cost: u32) {
        if cost > 0 {
            self.mirrors[key].pay(cost);
        }
    }

    /// Whether a new key may find no room, or only room that is reserved for waiters.
    fn is_full(&self) -> bool {
        let spoken_for = self.limit.len() + self.waiters.len();
        self.max.is_some_and(|max| spoken_for >= max)
    }

    fn counts_are_right(&self) {
        self.switch.counts_are_right();
        let stats = self.limit.stats();
        let sum = |count: fn(&Mirror<P>) -> u64| self.mirrors.iter().map(count).sum::<u64>();
        assert_eq!(stats.passed, sum(|mirror| mirror.passed));
        assert_eq!(stats.refused, sum(|mirror| mirror.refused));
        let waiting = self
            .waiters
            .iter()
            .filter(|one| one.place.is_some())
            .count();
        if let Some(max) = self.max {
            assert!(self.limit.len() <= max && stats.waiting <= waiting);
        } else {
            assert_eq!(stats.held_back, sum(|mirror| mirror.held_back));
            assert_eq!(stats.waiting, waiting);
        }
    }

    /// Polls only the woken waiters.
    async fn serve_all(&mut self) {
        self.set_mode(Mode::Active as u8);
        for key in 0..KEYS {
            // Otherwise the key would be kept for its pause.
            if self.max.is_none() {
                self.resume(key);
            }
        }
        loop {
            self.poll_woken();
            self.counts_are_right();
            if self.waiters.is_empty() || self.is_for_ever() {
                break;
            }
            let woken = select_all(
                self.waiters
                    .iter()
                    .map(|one| one.future.woken().boxed_local()),
            );
            let in_time = tokio::time::timeout(FOR_EVER, woken).await;
            assert!(in_time.is_ok(), "no waiter is woken any more");
        }
    }

    /// Whether a waiter may have to wait longer than a test can. A request that waits for room tries again each second.
    fn is_for_ever(&mut self) -> bool {
        let longest = match self.max {
            Some(_) => Duration::from_secs(60),
            None => FOR_EVER,
        };
        let mut mirrors = self.mirrors.iter_mut();
        mirrors.any(|mirror| mirror.settles_in() > longest)
    }
}

const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
