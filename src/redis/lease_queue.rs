use core::mem;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::time::Tick;

use super::lease_script::{LeaseId, LeaseReply};
use super::lease_table::{LeaseKey, LeaseTable, PendingRelease};

/// The most requests of one round trip.
const MAX_BATCH: usize = 64;

/// The pause before waiters ask again after a refusal. It doubles from the first value to the second.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The shortest pause: the lease that ends first may be renewed just before its end.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The pause after the server refused a call. It would refuse the next one too.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// The pause after a failure while the breaker is still closed.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// One lease pool as this process sees it: the requests for leases, the leases held, and those to be released.
///
/// Does no I/O: its methods are given the time and the replies. `A` is the answer to a request.
#[derive(Debug)]
pub(super) struct LeaseQueue<A> {
    pub(super) table: LeaseTable,
    /// The requests that wait, in order.
    waiters: VecDeque<LeaseWaiter<A>>,
    /// The length at which cancelled requests are removed.
    prunes_at: usize,
    /// The requests that do not wait.
    tries: VecDeque<LeaseWaiter<A>>,
    /// The guards of leases in Redis, by class. Guards of lost leases count.
    guards: Vec<u32>,
    /// The guards of leases that are not in Redis, by class.
    local: Vec<u32>,
    has_task: bool,
    /// How many waiters ask on one round trip.
    batch_size: usize,
    /// When waiters ask again.
    ask_at: Tick,
    pause: Duration,
    /// No round trip starts before.
    paused_until: Tick,
}

/// A request for a lease.
#[derive(Debug)]
pub(super) struct LeaseWaiter<A> {
    pub(super) class: usize,
    /// Whether it stays until a lease is granted.
    pub(super) waits: bool,
    pub(super) since: Tick,
    pub(super) answer: oneshot::Sender<A>,
}

/// What the task does next.
#[derive(Debug)]
pub(super) enum LeaseStep<A> {
    /// Makes a round trip.
    Flush {
        waiters: Vec<LeaseWaiter<A>>,
        /// Requests that do not wait, and are behind a waiter that is not on this round trip.
        refused: Vec<LeaseWaiter<A>>,
        renewals: Vec<(LeaseKey, LeaseId)>,
        releases: Vec<PendingRelease>,
    },
    Sleep(Duration),
    End,
}

/// Answers to send after the lock is released.
pub(super) type LeaseAnswers<A> = Vec<(LeaseWaiter<A>, LeaseOutcome)>;

#[derive(Debug)]
pub(super) enum LeaseOutcome {
    Granted(LeaseKey),
    /// Granted by the outage policy.
    Local,
    Refused,
}

impl<A> LeaseQueue<A> {
    /// `most`: how many leases Redis grants at once to waiters.
    pub(super) fn new(lease: Duration, classes: usize, most: u64) -> Self {
        Self {
            table: LeaseTable::new(lease),
            batch_size: usize::try_from(most).map_or(MAX_BATCH, |most| most.min(MAX_BATCH)),
            waiters: VecDeque::new(),
            prunes_at: MAX_BATCH,
            tries: VecDeque::new(),
            guards: vec![0; classes],
            local: vec![0; classes],
            has_task: false,
            ask_at: Tick::ZERO,
            pause: PAUSE,
            paused_until: Tick::ZERO,
        }
    }

    pub(super) fn join(&mut self, waiter: LeaseWaiter<A>) {
        if !waiter.waits {
            return self.tries.push_back(waiter);
        }
        if self.waiters.is_empty() {
            self.ask_soon();
        }
        self.waiters.push_back(waiter);
        if self.waiters.len() > self.prunes_at {
            self.waiters.retain(|waiter| !waiter.answer.is_closed());
            self.prunes_at = MAX_BATCH.max(self.waiters.len() * 2);
        }
    }

    /// Whether there is no task yet. If so, the caller has to start it.
    pub(super) const fn claim_task(&mut self) -> bool {
        !mem::replace(&mut self.has_task, true)
    }

    /// The task was dropped with its runtime. Returns the requests, and the notifications of all holders.
    pub(super) fn task_dropped(&mut self) -> (VecDeque<LeaseWaiter<A>>, Vec<Arc<Notify>>) {
        self.has_task = false;
        let mut waiters = mem::take(&mut self.waiters);
        waiters.append(&mut self.tries);
        (waiters, self.table.holders())
    }

    pub(super) fn next_step(&mut self, now: Tick, is_down: bool) -> LeaseStep<A> {
        self.table.expire(now);
        let is_gone = |waiter: &LeaseWaiter<A>| waiter.answer.is_closed();
        for queue in [&mut self.waiters, &mut self.tries] {
            while queue.front().is_some_and(is_gone) {
                queue.pop_front();
            }
        }
        let asks = (!self.waiters.is_empty()).then_some(self.ask_at);
        let maintains = if self.table.has_releases() {
            Some(now)
        } else {
            self.table.renewal()
        };
        // Renewals and releases can wait for the end of an outage. Requests cannot: the outage policy may grant them.
        let due = asks.into_iter().chain(maintains.filter(|_| !is_down)).min();
        let due = due.map(|due| due.max(self.paused_until));
        if !self.tries.is_empty() || due.is_some_and(|due| due <= now) {
            return self.flush(now);
        }
        if self.waiters.is_empty() && self.table.is_idle() {
            self.has_task = false;
            return LeaseStep::End;
        }
        let wakes = due.into_iter().chain(self.table.first_end()).min();
        LeaseStep::Sleep(wakes.map_or(LONGEST_PAUSE, |wakes| wakes.since(now)))
    }

    fn flush(&mut self, now: Tick) -> LeaseStep<A> {
        let count = self.waiters.len().min(self.batch_size);
        let mut waiters: Vec<_> = self.waiters.drain(..count).collect();
        let count = self.tries.len().min(MAX_BATCH);
        let mut tries: Vec<_> = self.tries.drain(..count).collect();
        if self.waiters.is_empty() {
            waiters.append(&mut tries);
        }
        waiters.retain(|waiter| !waiter.answer.is_closed());
        LeaseStep::Flush {
            waiters,
            refused: tries,
            renewals: self.table.to_renew(now),
            releases: self.table.take_releases(),
        }
    }

    /// The limits to send to Redis, which does not know the local leases.
    pub(super) fn limits(&self, limits: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
        let all_local: u64 = self.local.iter().copied().map(u64::from).sum();
        let less = |((own, total), local): ((u64, u64), &u32)| {
            let own = own.saturating_sub(u64::from(*local));
            (own, total.saturating_sub(all_local))
        };
        limits.zip(&self.local).map(less).collect()
    }

    /// Applies the reply to a round trip that was sent at `sent`. `ids` are the leases that were wanted.
    pub(super) fn apply_reply(
        &mut self,
        now: Tick,
        sent: Tick,
        waiters: Vec<LeaseWaiter<A>>,
        ids: Vec<LeaseId>,
        renewals: &[(LeaseKey, LeaseId)],
        reply: &LeaseReply,
    ) -> LeaseAnswers<A> {
        for ((key, _), is_known) in renewals.iter().zip(&reply.renewed) {
            self.table.renewed(now, sent, *key, *is_known);
        }
        let mut wanted = ids.into_iter().zip(&reply.granted);
        let mut any_granted = false;
        let outcomes = waiters.into_iter().map(|waiter| {
            let granted = wanted.next().filter(|(_, granted)| **granted);
            let key = granted.and_then(|(id, _)| self.table.grant(now, sent, id));
            let Some(key) = key else {
                return (waiter, LeaseOutcome::Refused);
            };
            any_granted = true;
            self.guards[waiter.class] += 1;
            (waiter, LeaseOutcome::Granted(key))
        });
        let outcomes = outcomes.collect();
        if any_granted {
            self.pause = PAUSE;
        }
        let pause = match reply.first_end_in {
            Duration::ZERO => self.pause,
            first_end => SHORTEST_PAUSE.max(first_end.min(self.pause)),
        };
        self.requeue_refused(outcomes, now, pause)
    }

    /// There was no answer: the outage policy decides. `most` returns how many leases of a class this process may hold.
    pub(super) fn decide_locally(
        &mut self,
        now: Tick,
        waiters: Vec<LeaseWaiter<A>>,
        most: impl Fn(usize) -> u32,
    ) -> LeaseAnswers<A> {
        let outcomes = waiters.into_iter().map(|waiter| {
            let class = waiter.class;
            if self.guards[class].saturating_add(self.local[class]) >= most(class) {
                return (waiter, LeaseOutcome::Refused);
            }
            self.local[class] += 1;
            (waiter, LeaseOutcome::Local)
        });
        let outcomes = outcomes.collect();
        self.requeue_refused(outcomes, now, self.pause)
    }

    /// Puts refused waiters back to the front of the queue, and returns the other answers.
    fn requeue_refused(
        &mut self,
        outcomes: LeaseAnswers<A>,
        now: Tick,
        pause: Duration,
    ) -> LeaseAnswers<A> {
        let waits_on = |(waiter, outcome): &(LeaseWaiter<A>, LeaseOutcome)| {
            waiter.waits && matches!(outcome, LeaseOutcome::Refused)
        };
        let (refused, answers): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(waits_on);
        if !refused.is_empty() {
            self.ask_at = now.after(pause);
            self.pause = LONGEST_PAUSE.min(self.pause * 2);
        }
        for (waiter, _) in refused.into_iter().rev() {
            self.waiters.push_front(waiter);
        }
        answers
    }

    /// The call failed. Redis may have granted the wanted leases, and may have lost the others.
    pub(super) fn failed(&mut self, now: Tick, ids: Vec<LeaseId>, releases: Vec<PendingRelease>) {
        for id in ids {
            self.table.queue_release(now, id, None);
        }
        self.table.put_back(releases, 1);
        self.table.mark_unconfirmed(now);
        self.paused_until = now.after(AFTER_FAILURE);
    }

    /// The server refused the call.
    pub(super) fn refused(&mut self, now: Tick, releases: Vec<PendingRelease>) {
        self.table.put_back(releases, 1);
        self.paused_until = now.after(AFTER_FAULT);
    }

    /// There is a new connection. Unless it is the first, its server may have forgotten all leases.
    pub(super) fn reconnected(&mut self, now: Tick, is_first: bool) {
        if !is_first {
            self.table.mark_unconfirmed(now);
        }
        self.paused_until = now;
        self.ask_soon();
    }

    /// A lease may be available now.
    const fn ask_soon(&mut self) {
        self.ask_at = Tick::ZERO;
        self.pause = PAUSE;
    }

    /// A guard is gone; `None` stands for a local lease. Returns `done` if nothing has to be released.
    pub(super) fn release(
        &mut self,
        now: Tick,
        key: Option<LeaseKey>,
        class: usize,
        done: Option<oneshot::Sender<()>>,
    ) -> Option<oneshot::Sender<()>> {
        self.ask_soon();
        let Some(key) = key else {
            self.local[class] -= 1;
            return done;
        };
        self.guards[class] -= 1;
        self.table.release(now, key, done)
    }
}
