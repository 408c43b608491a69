use core::mem;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use paceline::config::ConfigError;
use paceline::time::Tick;

use super::error::{CallError, Failure, ServerError};
use super::lease_table::{LeaseId, LeaseTable, PendingRelease};
use super::outage_policy::{Fallback, OutagePolicy, divided};
use super::source::{Stage, Step};
use super::{AFTER_FAILURE, AFTER_FAULT, LeaseCall, Store, WHILE_DOWN};

/// The most requests that wait, and the most that do not, of one round trip.
const MAX_BATCH: usize = 64;

/// The pause before the process that is next in turn asks again.
const PAUSE: Duration = Duration::from_millis(2);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause is also this part of the time for which the place has not changed: a long wait costs few calls.
const PART_OF_WAIT: u32 = 16;

/// The shortest pause: the lease that ends first may be renewed just before its end.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// A mark stands for three pauses at least, and for this time. A busy process loses its turn only after that.
const PAUSES_OF_A_MARK: u32 = 3;
pub(super) const SHORTEST_MARK: Duration = Duration::from_millis(100);

/// One lease pool as this process sees it: the requests for leases, the leases held, and those to be released.
///
/// Does no I/O: its methods are given the time and the replies. `A` is the answer to a request.
#[derive(Debug)]
pub(super) struct LeaseQueue<A> {
    pub(super) table: LeaseTable,
    /// Answers to send after the lock is released.
    pub(super) answers: Vec<(LeaseWaiter<A>, LeaseOutcome)>,
    pub(super) counted: Vec<(oneshot::Sender<Counted>, Counted)>,
    /// Names this queue on the server: its mark, and the first part of the ids of its leases.
    name: String,
    last_id: u64,
    lease: Duration,
    classes: Vec<ClassConfig>,
    keys: Arc<[String]>,
    /// The requests that wait, in order. They are of the first class.
    waiters: VecDeque<LeaseWaiter<A>>,
    /// The requests that do not wait.
    tries: VecDeque<LeaseWaiter<A>>,
    /// Those who asked how many leases there are.
    counters: Vec<oneshot::Sender<Counted>>,
    round_trip: Option<RoundTrip<A>>,
    /// The guards of leases on the server, by class. Guards of lost leases count.
    guards: Vec<u32>,
    /// The guards of leases that are not on the server, by class.
    local: Vec<u32>,
    pub(super) stage: Stage,
    /// How many connections had been made when the batcher looked last.
    connects: u64,
    /// When waiters ask again.
    ask_at: Tick,
    /// The place of this process among those that wait, from 1, and since when. `None` if it has no mark there.
    place: Option<(u32, Tick)>,
    /// How long the last round trip took.
    last_took: Duration,
    /// No round trip starts before.
    paused_until: Tick,
}

/// One class of leases.
#[derive(Debug)]
pub(crate) struct ClassConfig {
    pub(crate) key: String,
    /// A lease is granted while there are fewer leases of its class than this.
    pub(crate) own: u64,
    /// A lease is granted while there are fewer leases of all classes than this.
    pub(crate) total: u64,
    /// An insurance is the number of leases that this process may hold when those of others have ended.
    pub(crate) fallback: Fallback<u32>,
}

/// A request for a lease.
#[derive(Debug)]
pub(super) struct LeaseWaiter<A> {
    pub(super) class: usize,
    /// Whether it stays until a lease is granted.
    pub(super) waits: bool,
    pub(super) answer: oneshot::Sender<A>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum LeaseOutcome {
    /// `None` if the outage policy granted it.
    Granted(Option<LeaseId>),
    Refused,
    Failed(ServerError),
}

/// The number of leases of each class.
pub(super) type Counted = Result<Vec<u64>, CallError>;

/// What the round trip under way carries.
#[derive(Debug)]
struct RoundTrip<A> {
    sent: Tick,
    /// How long the mark stands that it writes.
    mark_stands: Duration,
    /// Requests that wait come first.
    asked: Vec<(LeaseWaiter<A>, LeaseId)>,
    renewals: Vec<LeaseId>,
    releases: Vec<PendingRelease>,
    counters: Vec<oneshot::Sender<Counted>>,
}

impl ClassConfig {
    pub(crate) fn new(
        key: String,
        own: u32,
        total: u32,
        outage_policy: OutagePolicy,
    ) -> Result<Self, ConfigError> {
        let fallback = outage_policy
            .fallback(|replicas| divided(format_args!("{own} permits"), own, replicas))?;
        Ok(Self {
            key,
            own: own.into(),
            total: total.into(),
            fallback,
        })
    }
}

/// For callers and holders.
impl<A> LeaseQueue<A> {
    /// `name` is unique among all processes. `keys` are those of the classes, and one for marks if requests can wait.
    pub(super) fn new(
        name: String,
        lease: Duration,
        classes: Vec<ClassConfig>,
        keys: Arc<[String]>,
    ) -> Self {
        Self {
            keys,
            table: LeaseTable::new(lease),
            answers: Vec::new(),
            counted: Vec::new(),
            name,
            last_id: 0,
            lease,
            waiters: VecDeque::new(),
            tries: VecDeque::new(),
            counters: Vec::new(),
            round_trip: None,
            guards: vec![0; classes.len()],
            local: vec![0; classes.len()],
            classes,
            stage: Stage::Idle,
            connects: 0,
            ask_at: Tick::ZERO,
            place: None,
            last_took: Duration::ZERO,
            paused_until: Tick::ZERO,
        }
    }

    pub(super) fn join(&mut self, waiter: LeaseWaiter<A>) {
        if !waiter.waits {
            return self.tries.push_back(waiter);
        }
        if self.waiters.is_empty() {
            self.ask_at = Tick::ZERO;
        }
        self.waiters.push_back(waiter);
    }

    /// A guard is gone; `None` stands for a local lease.
    pub(super) fn release(
        &mut self,
        now: Tick,
        id: Option<LeaseId>,
        class: usize,
        done: Option<oneshot::Sender<()>>,
    ) {
        self.ask_at = Tick::ZERO;
        if let Some(id) = id {
            self.guards[class] -= 1;
            self.table.release(now, id, done);
        } else {
            self.local[class] -= 1;
            self.table.released.extend(done);
        }
    }

    /// Asks for the number of leases of each class.
    pub(super) fn count(&mut self) -> oneshot::Receiver<Counted> {
        let (counter, answer) = oneshot::channel();
        self.counters.push(counter);
        answer
    }

    // For the batcher.

    /// The batcher's task was dropped with its runtime. Returns the requests, and the notifications of all holders.
    pub(super) fn task_dropped(&mut self, now: Tick) -> (Vec<LeaseWaiter<A>>, Vec<Arc<Notify>>) {
        self.stage = Stage::Idle;
        self.counters.clear();
        let mut waiters: Vec<_> = self.waiters.drain(..).chain(self.tries.drain(..)).collect();
        if let Some(round_trip) = self.round_trip.take() {
            waiters.extend(self.reply_lost(now, round_trip));
        }
        (waiters, self.table.holders())
    }

    /// What the batcher does next. `connects` is how many connections have been made.
    pub(super) fn next_step<S: Store>(
        &mut self,
        now: Tick,
        connects: u64,
        is_down: bool,
    ) -> Step<S> {
        self.stage = Stage::Idle;
        let before = mem::replace(&mut self.connects, connects);
        if connects > before {
            // The server behind a new connection may have forgotten all leases, unless the connection is the first.
            if before > 0 {
                self.table.mark_unconfirmed(now);
            }
            self.paused_until = now;
            self.ask_at = Tick::ZERO;
        }
        self.table.expire(now);
        if self.round_trip.is_some() {
            return Step::Idle;
        }
        let is_gone = |waiter: &LeaseWaiter<A>| waiter.answer.is_closed();
        for queue in [&mut self.waiters, &mut self.tries] {
            while queue.front().is_some_and(is_gone) {
                queue.pop_front();
            }
        }
        if is_down {
            // The mark lapses.
            self.place = None;
        }
        // The mark of waiters that are gone has to be removed.
        let asks = !self.waiters.is_empty() || self.place.is_some();
        let asks = asks.then_some(self.ask_at);
        let maintains = if self.table.has_releases() {
            Some(now)
        } else {
            self.table.renewal()
        };
        // Renewals and releases can wait for the end of an outage. Requests cannot: the outage policy may grant them.
        let due = asks.into_iter().chain(maintains.filter(|_| !is_down)).min();
        let due = due.map(|due| due.max(self.paused_until));
        self.counters.retain(|counter| !counter.is_closed());
        let is_asked = !self.tries.is_empty() || !self.counters.is_empty();
        if is_asked || due.is_some_and(|due| due <= now) {
            return Step::Lease(self.call(now));
        }
        if asks.is_none() && self.table.is_idle() {
            return Step::Idle;
        }
        let wakes = due.into_iter().chain(self.table.first_end()).min();
        let until = wakes.unwrap_or_else(|| now.after(LONGEST_PAUSE)).max(now);
        self.stage = Stage::Sleeping(until);
        Step::Sleep {
            until,
            or_connected: true,
        }
    }

    fn call(&mut self, now: Tick) -> LeaseCall {
        self.waiters.retain(|waiter| !waiter.answer.is_closed());
        let waiting = self.waiters.len();
        // More are never granted at once.
        let most = self.classes.first().map_or(0, |class| class.own);
        let most = usize::try_from(most).map_or(MAX_BATCH, |most| most.min(MAX_BATCH));
        let waiters = self.waiters.drain(..waiting.min(most));
        let tries = self.tries.drain(..self.tries.len().min(MAX_BATCH));
        let asked = waiters.chain(tries).map(|waiter| {
            self.last_id += 1;
            let (number, class) = (self.last_id, waiter.class);
            (waiter, LeaseId { number, class })
        });
        let asked: Vec<_> = asked.collect();
        let mark_stands = (self.pause(now) * 2 + self.last_took) * PAUSES_OF_A_MARK;
        let mark_stands = mark_stands.max(SHORTEST_MARK).min(self.lease);
        let renewals = self.table.to_renew(now);
        let releases = self.table.take_releases();
        let reads_marks = !asked.is_empty() || self.place.is_some();
        let waiting = reads_marks.then_some(waiting);
        let call = self.call_for(waiting, mark_stands, &releases, &renewals, &asked);
        self.round_trip = Some(RoundTrip {
            sent: now,
            mark_stands,
            asked,
            renewals,
            releases,
            counters: mem::take(&mut self.counters),
        });
        call
    }

    /// `waiting` is how many requests wait; with `None` the marks are left alone.
    fn call_for(
        &self,
        waiting: Option<usize>,
        mark_stands: Duration,
        releases: &[PendingRelease],
        renewals: &[LeaseId],
        asked: &[(LeaseWaiter<A>, LeaseId)],
    ) -> LeaseCall {
        // The server does not know the local leases.
        let all_local: u64 = self.local.iter().copied().map(u64::from).sum();
        let classes = self.classes.iter().zip(&self.local);
        let most = classes.map(|(class, local)| {
            let own = class.own.saturating_sub(u64::from(*local));
            [own, class.total.saturating_sub(all_local)]
        });
        LeaseCall {
            keys: Arc::clone(&self.keys),
            queue: self.name.clone(),
            lease: self.lease,
            most: most.collect(),
            waiting,
            mark_stands,
            releases: releases.iter().map(|release| release.id).collect(),
            renewals: renewals.to_vec(),
            wanted: asked.iter().map(|(_, id)| *id).collect(),
            wanted_by_waiters: asked.iter().filter(|(waiter, _)| waiter.waits).count(),
        }
    }

    /// The call has ended. `down_since` is when the present outage began.
    pub(super) fn complete(
        &mut self,
        now: Tick,
        result: Result<Vec<u64>, CallError>,
        down_since: Option<Tick>,
    ) {
        let Some(mut round_trip) = self.round_trip.take() else {
            return;
        };
        let (renewed, wanted) = (round_trip.renewals.len(), round_trip.asked.len());
        let malformed = |numbers| Failure::Fault(format!("an answer of {numbers:?}").into());
        let read = result.and_then(|numbers: Vec<u64>| {
            let parts = parts(&numbers, [self.classes.len(), renewed, wanted]);
            parts.ok_or_else(|| CallError::failed(malformed(numbers)))
        });
        let counted = match &read {
            Ok((_, [in_use, ..])) => Ok(in_use.clone()),
            Err(error) => Err(error.clone()),
        };
        let counters = mem::take(&mut round_trip.counters).into_iter();
        let counted = counters.map(|counter| (counter, counted.clone()));
        self.counted.extend(counted);
        let error = match read {
            Ok(parts) => return self.apply_reply(now, round_trip, parts),
            Err(error) => error,
        };
        if let Some(fault) = error.server_error() {
            self.place = None;
            self.table.put_back(round_trip.releases, 1);
            self.paused_until = now.after(AFTER_FAULT);
            let failed = round_trip.asked.into_iter();
            let failed = failed.map(|(waiter, _)| (waiter, LeaseOutcome::Failed(fault.clone())));
            return self.answers.extend(failed);
        }
        let (waiters, pause) = if error.is_skipped() {
            self.table.put_back(round_trip.releases, 0);
            let waiters = round_trip.asked.into_iter().map(|(waiter, _)| waiter);
            (waiters.collect(), WHILE_DOWN)
        } else {
            self.paused_until = now.after(AFTER_FAILURE);
            (self.reply_lost(now, round_trip), AFTER_FAILURE)
        };
        // Before that, other processes may still hold all leases.
        let have_others_ended = down_since.is_some_and(|since| since.after(self.lease) <= now);
        self.decide_locally(waiters, have_others_ended);
        self.ask_at = now.after(pause);
    }

    fn apply_reply(
        &mut self,
        now: Tick,
        round_trip: RoundTrip<A>,
        ([_, first_end_in, place], [_, renewed, granted]): ([u64; 3], [Vec<u64>; 3]),
    ) {
        let first_end_in = Duration::from_micros(first_end_in);
        let place = u32::try_from(place).unwrap_or(0);
        let sent = round_trip.sent;
        self.last_took = now.since(sent);
        let released = round_trip.releases.into_iter();
        let released = released.filter_map(|release| release.done);
        self.table.released.extend(released);
        for (id, is_known) in round_trip.renewals.into_iter().zip(renewed) {
            self.table.renewed(now, sent, id, is_known == 1);
        }
        let mut refused = Vec::new();
        let mut was_served = false;
        for ((waiter, id), is_granted) in round_trip.asked.into_iter().zip(granted) {
            if is_granted == 1 && self.table.grant(now, sent, id) {
                was_served |= waiter.waits;
                self.guards[waiter.class] += 1;
                self.answers.push((waiter, LeaseOutcome::Granted(Some(id))));
            } else {
                refused.push(waiter);
            }
        }
        let before = self
            .place
            .filter(|(before, _)| *before == place && !was_served);
        self.place = (place > 0).then(|| before.unwrap_or((place, now)));
        if !refused.is_empty() {
            let third = round_trip.mark_stands / PAUSES_OF_A_MARK;
            let pause = self.pause(now).min(third);
            let pause = match first_end_in {
                Duration::ZERO => pause,
                first_end => SHORTEST_PAUSE.max(first_end.min(pause)),
            };
            self.ask_at = now.after(pause);
        }
        self.refuse(refused);
    }

    /// The pause before waiters ask again: longer for each process before this one, and longer the longer its place has not
    /// changed.
    fn pause(&self, now: Tick) -> Duration {
        let (place, since) = self.place.unwrap_or((1, now));
        let pause = PAUSE.max(now.since(since) / PART_OF_WAIT);
        pause.saturating_mul(place).min(LONGEST_PAUSE)
    }

    /// The server may have granted these requests, and may have lost all leases. Returns the requests.
    fn reply_lost(&mut self, now: Tick, round_trip: RoundTrip<A>) -> Vec<LeaseWaiter<A>> {
        // The mark lapses.
        self.place = None;
        let (waiters, ids): (Vec<_>, Vec<_>) = round_trip.asked.into_iter().unzip();
        for id in ids {
            self.table.queue_release(now, id, None);
        }
        self.table.put_back(round_trip.releases, 1);
        self.table.mark_unconfirmed(now);
        waiters
    }

    /// There was no answer: the outage policy decides.
    fn decide_locally(&mut self, waiters: Vec<LeaseWaiter<A>>, have_others_ended: bool) {
        let mut refused = Vec::new();
        for waiter in waiters {
            let class = waiter.class;
            let most = match self.classes[class].fallback {
                Fallback::Open => u32::MAX,
                Fallback::Insured(share) if have_others_ended => share,
                Fallback::Insured(_) | Fallback::Closed => 0,
            };
            if self.guards[class].saturating_add(self.local[class]) < most {
                self.local[class] += 1;
                self.answers.push((waiter, LeaseOutcome::Granted(None)));
            } else {
                refused.push(waiter);
            }
        }
        self.refuse(refused);
    }

    /// Puts requests that wait back to the front of the queue, and answers the others.
    fn refuse(&mut self, refused: Vec<LeaseWaiter<A>>) {
        for waiter in refused.into_iter().rev() {
            if waiter.waits {
                self.waiters.push_front(waiter);
            } else {
                self.answers.push((waiter, LeaseOutcome::Refused));
            }
        }
    }
}

/// The parts of the reply: its first three numbers, the number of leases of each class, and for each renewed and each
/// wanted lease whether the server has it. `None` if it has not as many of these as the `counts`.
fn parts(numbers: &[u64], counts: [usize; 3]) -> Option<([u64; 3], [Vec<u64>; 3])> {
    let (head, rest) = numbers.split_first_chunk()?;
    let (in_use, rest) = rest.split_at_checked(counts[0])?;
    let (renewed, granted) = rest.split_at_checked(counts[1])?;
    (granted.len() == counts[2]).then(|| (*head, [in_use, renewed, granted].map(<[_]>::to_vec)))
}
