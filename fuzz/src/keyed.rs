use std::task::Poll;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use futures::future::{FutureExt, LocalBoxFuture, select_all};
use paceline::limiter::{Keyed, Mode, PolicyExt, TooCostly};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::time::Tick;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::dice::{Tunable, cost, duration};
use crate::expected::{Expected, is_never, is_wait};
use crate::mirror::Mirror;
use crate::virtual_time::in_virtual_time;

/// Requests for any keys. Each answer is as if no key were ever forgotten, there are at most as many keys as allowed, and
/// every waiter passes eventually.
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
    max: Option<usize>,
    /// One for each key. None is forgotten.
    mirrors: Vec<Mirror<P>>,
    waiters: Vec<Waiter>,
    tickets: u64,
}

struct Waiter {
    future: Driven<LocalBoxFuture<'static, std::result::Result<(), TooCostly>>>,
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

impl<P: Tunable> Map<P> {
    fn of(policy: P, max: Option<usize>) -> Self {
        let limit = policy.keyed();
        Self {
            limit: match max {
                Some(max) => limit.with_max_keys(max),
                None => limit,
            },
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
        match (kind % 32, waiter) {
            (0..5, _) => self.join(key, cost(bytes)?),
            (5..11, Some(n)) => self.poll(n),
            (11 | 12, _) => self.poll_woken(),
            (13 | 14, Some(n)) => drop(self.waiters.remove(n)),
            (15..20, _) => self.try_acquire(key, cost(bytes)?),
            (20, _) => self.peek(key, cost(bytes)?),
            // A key with its own parameters or pause takes room that is never freed.
            (21, _) if self.max.is_none() => {
                let policy = P::any(bytes)?;
                // A settled state may be forgotten, but slower parameters would still count it.
                if self.mirrors[key].settles_in().is_zero() {
                    return Ok(());
                }
                self.limit.retune(&key, policy);
                self.mirrors[key].retune(policy);
            }
            (22, _) if self.max.is_none() => {
                let pause = duration(bytes)?;
                self.limit.pause_for(&key, pause);
                self.mirrors[key].pause_for(pause);
            }
            (23, _) if self.max.is_none() => {
                self.limit.resume(&key);
                self.mirrors[key].resume();
            }
            // Without room, a request that passes in another mode is not remembered.
            (24, _) if self.max.is_none() => self.set_mode(bytes.arbitrary()?),
            _ => self.jump(duration(bytes)?).await,
        }
        Ok(())
    }

    fn join(&mut self, key: usize, cost: u32) {
        if self.waiters.len() < MOST_WAITERS {
            let future = Driven::new(self.limit.acquire(key, cost).boxed_local());
            self.waiters.push(Waiter {
                future,
                key,
                cost,
                place: None,
            });
            self.poll(self.waiters.len() - 1);
        }
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
        let Waiter {
            key, cost, place, ..
        } = self.waiters[n];
        let ticket = place.map_or(u64::MAX, |place| place.ticket);
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

    fn try_acquire(&mut self, key: usize, cost: u32) {
        let expected = self.expected(key, u64::MAX, cost);
        let answer = self.limit.try_acquire(&key, cost);
        self.is_right(&expected, answer);
        if answer.is_pass() {
            self.has_passed(key, cost);
        } else {
            self.mirrors[key].refused += 1;
        }
    }

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
        let mode = match kind {
            0..192 => Mode::Active,
            192..224 => Mode::Shadow,
            _ => Mode::Off,
        };
        self.limit.set_mode(mode);
        self.mirrors
            .iter_mut()
            .for_each(|mirror| mirror.mode = mode);
    }

    async fn jump(&mut self, by: Duration) {
        jump(by).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }

    /// The wait behind other waiters is not computed here.
    fn expected(&mut self, key: usize, ticket: u64, cost: u32) -> Expected {
        let mirror = &mut self.mirrors[key];
        let is_off = mirror.mode == Mode::Off && cost > 0;
        if is_off || mirror.never_passes(cost) {
            // Such a request does not start the clock of a key.
            return Expected::Sure(mirror.timeless(cost));
        }
        let now = mirror.now();
        if cost == 0 || mirror.mode != Mode::Active {
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

    fn has_passed(&mut self, key: usize, cost: u32) {
        let mirror = &mut self.mirrors[key];
        if cost == 0 || mirror.mode == Mode::Off {
            return;
        }
        let conforms = mirror.pay(cost);
        mirror.passed += 1;
        if mirror.mode == Mode::Active {
            assert!(conforms, "{cost} of {key} passed");
        } else {
            mirror.held_back += u64::from(!conforms);
        }
    }

    /// Whether a new key may find no room, or only room that is reserved for waiters.
    fn is_full(&self) -> bool {
        let spoken_for = self.limit.len() + self.waiters.len();
        self.max.is_some_and(|max| spoken_for >= max)
    }

    fn counts_are_right(&self) {
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
                self.limit.resume(&key);
                self.mirrors[key].resume();
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
