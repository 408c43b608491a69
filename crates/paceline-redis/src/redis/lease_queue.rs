use core::mem;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::remote::{
    AFTER_FAILURE, AFTER_FAULT, CallError, Failure, Fallback, OutagePolicy, ServerError, Stage,
    Step, WHILE_DOWN,
};
use paceline::time::Tick;

use super::connector::Connector;
use super::lease_table::{LeaseId, LeaseTable, PendingRelease};
use super::policy::divided;
use super::scripts::LeaseCall;
use paceline::config::ConfigError;

/// The most requests that wait, and the most that do not, of one round trip.
const MAX_BATCH: usize = 64;

/// The pause before the process that is next in turn asks again.
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause is also this part of the time for which the place has not changed: a long wait costs few calls.
const PART_OF_WAIT: u32 = 16;

/// The shortest pause: the lease that ends first may be renewed just before its end.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// A mark stands for three pauses at least, and for this time. A busy process loses its turn only after that.
const PAUSES_OF_A_MARK: u32 = 3;
const SHORTEST_MARK: Duration = Duration::from_millis(100);

/// One lease pool as this process sees it: the requests for leases, the leases held, and those to be released.
///
/// Does no I/O: its methods are given the time and the replies. `A` is the answer to a request.
#[derive(Debug)]
pub(super) struct LeaseQueue<A> {
    pub(super) table: LeaseTable,
    /// Answers to send after the lock is released.
    pub(super) answers: Vec<(LeaseWaiter<A>, LeaseOutcome)>,
    /// Names this queue in Redis: its mark, and the first part of the ids of its leases.
    name: String,
    last_id: u64,
    lease: Duration,
    classes: Vec<ClassConfig>,
    keys: Arc<[String]>,
    /// The requests that wait, in order. They are of the first class.
    waiters: VecDeque<LeaseWaiter<A>>,
    /// The requests that do not wait.
    tries: VecDeque<LeaseWaiter<A>>,
    round_trip: Option<RoundTrip<A>>,
    /// The guards of leases in Redis, by class. Guards of lost leases count.
    guards: Vec<u32>,
    /// The guards of leases that are not in Redis, by class.
    local: Vec<u32>,
    pub(super) stage: Stage,
    /// How many connections had been made when the batcher looked last.
    connects: u64,
    /// When waiters ask again.
    ask_at: Tick,
    /// The place of this process among those that wait, from 1, and since when. `None` if it has no mark in Redis.
    place: Option<(u32, Tick)>,
    /// How long the last round trip took.
    last_took: Duration,
    /// No round trip starts before.
    paused_until: Tick,
}

/// One class of leases.
#[derive(Debug)]
pub(super) struct ClassConfig {
    pub(super) key: String,
    /// A lease is granted while there are fewer leases of its class than this.
    pub(super) own: u64,
    /// A lease is granted while there are fewer leases of all classes than this.
    pub(super) total: u64,
    /// An insurance is the number of leases that this process may hold when those of others have ended.
    pub(super) fallback: Fallback<u32>,
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
}

impl ClassConfig {
    pub(super) fn new(
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
            name,
            last_id: 0,
            lease,
            waiters: VecDeque::new(),
            tries: VecDeque::new(),
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

    /// A call that only counts the leases.
    pub(super) fn count_call(&self) -> LeaseCall {
        self.script_call(None, Duration::ZERO, &[], &[], &[])
    }

    /// The number of leases of each class, from the reply to such a call.
    pub(super) fn read_count(&self, numbers: &[i64]) -> Result<Vec<u32>, CallError> {
        let parts = parts(numbers, [self.classes.len(), 0, 0]);
        let count = |count: &i64| u32::try_from(*count).ok();
        let counts = parts.and_then(|(_, [in_use, ..])| in_use.iter().map(count).collect());
        counts.ok_or_else(|| malformed(numbers))
    }
}

/// For the batcher.
impl<A> LeaseQueue<A> {
    /// The batcher's task was dropped with its runtime. Returns the requests, and the notifications of all holders.
    pub(super) fn task_dropped(&mut self, now: Tick) -> (Vec<LeaseWaiter<A>>, Vec<Arc<Notify>>) {
        self.stage = Stage::Idle;
        let mut waiters: Vec<_> = self.waiters.drain(..).chain(self.tries.drain(..)).collect();
        if let Some(round_trip) = self.round_trip.take() {
            waiters.extend(self.reply_lost(now, round_trip));
        }
        (waiters, self.table.holders())
    }

    /// What the batcher does next. `connects` is how many connections have been made.
    pub(super) fn next_step(&mut self, now: Tick, connects: u64, is_down: bool) -> Step<Connector> {
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
        if !self.tries.is_empty() || due.is_some_and(|due| due <= now) {
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
        let call = self.script_call(waiting, mark_stands, &releases, &renewals, &asked);
        self.round_trip = Some(RoundTrip {
            sent: now,
            mark_stands,
            asked,
            renewals,
            releases,
        });
        call
    }

    /// A call with the arguments in the order in which the script reads them. `waiting` is how many requests wait; with `None`
    /// the marks are left alone.
    fn script_call(
        &self,
        waiting: Option<usize>,
        mark_stands: Duration,
        releases: &[PendingRelease],
        renewals: &[LeaseId],
        asked: &[(LeaseWaiter<A>, LeaseId)],
    ) -> LeaseCall {
        // Rounded up: the server never forgets a lease before its holder does.
        let micros = |time: Duration| time.as_nanos().div_ceil(1_000).to_string();
        let mut args = vec![micros(self.lease), self.classes.len().to_string()];
        // Redis does not know the local leases.
        let all_local: u64 = self.local.iter().copied().map(u64::from).sum();
        for (class, local) in self.classes.iter().zip(&self.local) {
            args.push(class.own.saturating_sub(u64::from(*local)).to_string());
            args.push(class.total.saturating_sub(all_local).to_string());
        }
        let waiting = waiting.map_or_else(|| "-1".into(), |count| count.to_string());
        args.extend([self.name.clone(), waiting, micros(mark_stands)]);
        let id_args = |id: &LeaseId| {
            let name = format!("{}:{}", self.name, id.number);
            [(id.class + 1).to_string(), name]
        };
        args.push(releases.len().to_string());
        args.extend(releases.iter().flat_map(|release| id_args(&release.id)));
        args.push(renewals.len().to_string());
        args.extend(renewals.iter().flat_map(id_args));
        let waiters = asked.iter().filter(|(waiter, _)| waiter.waits);
        args.extend([asked.len().to_string(), waiters.count().to_string()]);
        args.extend(asked.iter().flat_map(|(_, id)| id_args(id)));
        LeaseCall {
            keys: Arc::clone(&self.keys),
            args,
        }
    }

    /// The call has ended. `down_since` is when the present outage began.
    pub(super) fn complete(
        &mut self,
        now: Tick,
        result: Result<Vec<i64>, CallError>,
        down_since: Option<Tick>,
    ) {
        let Some(round_trip) = self.round_trip.take() else {
            return;
        };
        let (renewed, wanted) = (round_trip.renewals.len(), round_trip.asked.len());
        let error = match result {
            Ok(numbers) => match parts(&numbers, [self.classes.len(), renewed, wanted]) {
                Some(parts) => return self.apply_reply(now, round_trip, parts),
                None => malformed(&numbers),
            },
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
        ([_, first_end_in, place], [_, renewed, granted]): ([i64; 3], [&[i64]; 3]),
    ) {
        let first_end_in = Duration::from_micros(u64::try_from(first_end_in).unwrap_or(0));
        let place = u32::try_from(place).unwrap_or(0);
        let sent = round_trip.sent;
        self.last_took = now.since(sent);
        let released = round_trip.releases.into_iter();
        let released = released.filter_map(|release| release.done);
        self.table.released.extend(released);
        for (id, is_known) in round_trip.renewals.into_iter().zip(renewed) {
            self.table.renewed(now, sent, id, *is_known == 1);
        }
        let mut refused = Vec::new();
        let mut was_served = false;
        for ((waiter, id), is_granted) in round_trip.asked.into_iter().zip(granted) {
            if *is_granted == 1 && self.table.grant(now, sent, id) {
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

    /// Redis may have granted what was asked for, and may have lost all leases. Returns the requests.
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

fn malformed(numbers: &[i64]) -> CallError {
    CallError::failed(Failure::Fault(format!("an answer of {numbers:?}").into()))
}

/// The parts of the script's reply: its first three numbers, the number of leases of each class, and for each renewed and each
/// wanted lease whether Redis has it. `None` if it has not as many of these as the `counts`.
fn parts(numbers: &[i64], counts: [usize; 3]) -> Option<([i64; 3], [&[i64]; 3])> {
    let (head, rest) = numbers.split_first_chunk()?;
    let (in_use, rest) = rest.split_at_checked(counts[0])?;
    let (renewed, granted) = rest.split_at_checked(counts[1])?;
    (granted.len() == counts[2]).then_some((*head, [in_use, renewed, granted]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn queue_of(limit: u32) -> LeaseQueue<()> {
        let class = ClassConfig::new("key".into(), limit, limit, OutagePolicy::closed());
        LeaseQueue::new("me".into(), LEASE, vec![class.unwrap()], Arc::new([]))
    }

    fn join(queue: &mut LeaseQueue<()>, waits: bool) -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        queue.join(LeaseWaiter {
            class: 0,
            waits,
            answer,
        });
        answered
    }

    /// The arguments of the call that is due now.
    fn call(queue: &mut LeaseQueue<()>, now: Tick) -> Vec<String> {
        match queue.next_step(now, 1, false) {
            Step::Lease(call) => call.args,
            step => panic!("{step:?}"),
        }
    }

    /// Until when the queue has nothing to ask.
    fn sleep(queue: &mut LeaseQueue<()>, now: Tick) -> Tick {
        match queue.next_step(now, 1, false) {
            Step::Sleep { until, .. } => until,
            step => panic!("{step:?}"),
        }
    }

    fn is_idle(queue: &mut LeaseQueue<()>, now: Tick, is_down: bool) -> bool {
        matches!(queue.next_step(now, 1, is_down), Step::Idle)
    }

    /// Makes a call that takes no time, and returns how long its mark stands, and the pause until the next call.
    fn refuse(queue: &mut LeaseQueue<()>, now: Tick, place: i64) -> (Duration, Duration) {
        let stands = call(queue, now)[6].parse().unwrap();
        queue.complete(now, Ok(vec![1, 0, place, 2, 0]), None);
        (Duration::from_micros(stands), sleep(queue, now).since(now))
    }

    #[test]
    fn a_call_has_the_order_in_which_the_script_reads_it() {
        let mut queue = queue_of(2);
        let answers = [(); 3].map(|()| join(&mut queue, true));
        let _try = join(&mut queue, false);
        // Two of three, and the one that does not wait.
        let wanted = ["3", "2", "1", "me:1", "1", "me:2", "1", "me:3"];
        let head = ["10000000", "1", "2", "2", "me", "3", "100000"];
        assert_eq!(
            call(&mut queue, at(0)),
            [&head[..], &["0", "0"], &wanted].concat()
        );
        queue.complete(at(0), Ok(vec![1, 0, 1, 2, 1, 1, 0]), None);
        assert_eq!(queue.answers.len(), 3);

        drop(answers);
        let first = LeaseId {
            number: 1,
            class: 0,
        };
        queue.release(at(1), Some(first), 0, None);
        let head = ["10000000", "1", "2", "2", "me", "0", "100000"];
        let released = ["1", "1", "me:1"];
        assert_eq!(
            call(&mut queue, at(1)),
            [&head[..], &released, &["0", "0", "0"]].concat()
        );
    }

    #[test]
    fn a_call_without_requests_leaves_the_marks_alone() {
        let mut queue = queue_of(2);
        let _answer = join(&mut queue, true);
        call(&mut queue, at(0));
        queue.complete(at(0), Ok(vec![1, 0, 0, 1, 1]), None);
        let renewal = at(0).after(LEASE / 3);
        assert_eq!(call(&mut queue, renewal)[5], "-1");
    }

    #[test]
    fn the_pause_grows_with_the_place_and_with_the_time_in_it() {
        let mut queue = queue_of(1);
        let _answer = join(&mut queue, true);
        assert_eq!(refuse(&mut queue, at(0), 3).1, millis(6));
        assert_eq!(refuse(&mut queue, at(6), 3).1, millis(6));
        assert_eq!(refuse(&mut queue, at(12), 1).1, millis(2));
        assert_eq!(refuse(&mut queue, at(60), 1).1, millis(3));
        assert_eq!(refuse(&mut queue, at(172), 1).1, millis(10));

        // A lease for one of two requests is a new beginning.
        let _other = join(&mut queue, true);
        call(&mut queue, at(200));
        queue.complete(at(200), Ok(vec![1, 0, 1, 1, 1]), None);
        assert_eq!(refuse(&mut queue, at(200), 1).1, millis(2));
    }

    #[test]
    fn a_mark_stands_for_three_pauses_and_at_most_the_time_of_a_lease() {
        let mut queue = queue_of(1);
        let _answer = join(&mut queue, true);
        let mut now = at(0);
        let mut longest = Duration::ZERO;
        while now < at(3_600_000) {
            let (stands, pause) = refuse(&mut queue, now, 20);
            assert!(stands >= pause * 3 && stands <= LEASE);
            assert!(stands >= SHORTEST_MARK);
            longest = longest.max(pause);
            now = now.after(pause);
        }
        assert_eq!(longest, LONGEST_PAUSE);
    }

    #[test]
    fn cancelled_waiters_take_their_mark_back_unless_redis_is_down() {
        let mut queue = queue_of(1);
        let mut answer = join(&mut queue, true);
        let (_, pause) = refuse(&mut queue, at(0), 1);
        answer.close();
        assert_eq!(sleep(&mut queue, at(0)), at(0).after(pause));
        assert_eq!(call(&mut queue, at(0).after(pause))[5], "0");
        queue.complete(at(2), Ok(vec![1, 0, 0, 1]), None);
        assert!(is_idle(&mut queue, at(2), false));

        let mut answer = join(&mut queue, true);
        refuse(&mut queue, at(3), 1);
        answer.close();
        assert!(is_idle(&mut queue, at(9), true));
    }

    #[test]
    fn what_redis_may_have_granted_to_a_dropped_task_is_released() {
        let mut queue = queue_of(1);
        let _answer = join(&mut queue, true);
        call(&mut queue, at(0));
        let (waiters, _) = queue.task_dropped(at(1));
        assert_eq!(waiters.len(), 1);
        let args = call(&mut queue, at(1));
        assert_eq!(args[7..10], ["1", "1", "me:1"]);
    }

    #[test]
    fn a_reply_of_another_shape_is_a_fault() {
        for reply in [&[][..], &[1, 0, 1], &[1, 0, 1, 1], &[1, 0, 1, 1, 1, 1]] {
            let mut queue = queue_of(1);
            let _answer = join(&mut queue, true);
            call(&mut queue, at(0));
            queue.complete(at(0), Ok(reply.to_vec()), None);
            let (_, outcome) = queue.answers.pop().unwrap();
            assert!(matches!(outcome, LeaseOutcome::Failed(_)), "{outcome:?}");
        }
        assert!(
            queue_of(1)
                .read_count(&[1, 0, 0, 7])
                .is_ok_and(|counts| counts == [7])
        );
        assert!(queue_of(1).read_count(&[1, 0, 0, -7]).is_err());
        assert!(queue_of(1).read_count(&[1, 0, 0]).is_err());
    }
}
