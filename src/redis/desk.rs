use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

use super::denial::{By, Denial};
use super::error::ServerError;
use super::reply::{Memory, Reply};
use super::spare::Spare;
use super::waiting::{Manner, State, Waiting};

/// A place in line. Smaller is earlier.
pub(super) type Ticket = u64;

/// A permit that nobody has fetched for so long is void. It was counted, so that nothing passes that much later than Redis
/// thinks.
pub(super) const FRESH: Duration = Duration::from_millis(100);

/// What one who wants an answer at once is told while others stand in line and nothing else is known.
const SOON: Duration = Duration::from_millis(1);

/// So many requests go on one trip at most.
const ON_A_TRIP: usize = 256;

/// The line of one limit in this process, and what is remembered of the limit.
///
/// It is told what time it is and what came of a trip; it makes none itself.
#[derive(Debug)]
pub(super) struct Desk<P: Policy> {
    line: BTreeMap<Ticket, Waiting>,
    next: Ticket,
    /// Whether somebody makes trips for this line.
    is_served: bool,
    denial: Option<Denial>,
    memory: Vec<Memory>,
    spare: Spare,
    /// Permits that came for somebody who had left.
    unwanted: u32,
    pub(super) insurance: Option<Insurance<P::State>>,
    /// Of those for whom something has come: to be woken when no lock is held.
    wakes: Vec<Waker>,
    binding: Option<usize>,
}

/// A limit in memory, for one outage.
#[derive(Debug)]
pub(super) struct Insurance<S> {
    pub(super) episode: u64,
    pub(super) state: S,
}

/// Those who go on a trip, in order.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) asked: Vec<(Ticket, u32)>,
    /// Since when the first of those waits who wants an answer.
    pub(super) since: Option<Tick>,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Step {
    Trip(Batch),
    GiveBack(u32),
    /// Nothing can pass for so long; and whether that was decided without Redis.
    Sleep(Duration, bool),
    End,
}

impl<P: Policy> Desk<P> {
    pub(super) fn new(limits: usize) -> Self {
        Self {
            line: BTreeMap::new(),
            next: 0,
            is_served: false,
            denial: None,
            memory: vec![Memory::default(); limits],
            spare: Spare::default(),
            unwanted: 0,
            insurance: None,
            wakes: Vec::new(),
            binding: None,
        }
    }

    pub(super) fn take_wakes(&mut self) -> Vec<Waker> {
        core::mem::take(&mut self.wakes)
    }

    /// Whether nobody makes trips for this line: whoever asks this does, from now on.
    pub(super) const fn is_to_be_served(&mut self) -> bool {
        !core::mem::replace(&mut self.is_served, true)
    }

    /// Whether there are permits to be given back.
    pub(super) const fn owes(&self) -> bool {
        self.unwanted > 0
    }

    /// Which of several limits was the last to refuse, from 0.
    pub(super) fn binding(&self) -> Option<usize> {
        self.binding
    }

    pub(super) fn memory(&self) -> &[Memory] {
        &self.memory
    }

    /// Whether nothing would be lost with it, but what is remembered.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_served && self.line.is_empty()
    }

    /// Asks, and stands in line while there is no answer.
    pub(super) fn ask(
        &mut self,
        now: Tick,
        place: &mut Option<Ticket>,
        cost: u32,
        manner: Manner,
        waker: &Waker,
    ) -> Poll<Result<Decision, ServerError>> {
        if let Some(answer) = place.and_then(|ticket| self.fetch(now, ticket, cost)) {
            *place = None;
            return Poll::Ready(answer);
        }
        let denied = self.denied(now, cost);
        let Some((ticket, waiting)) =
            place.and_then(|ticket| Some((ticket, self.line.get_mut(&ticket)?)))
        else {
            return self.join(now, place, cost, manner, waker);
        };
        if let (Some(retry_in), true) = (denied, manner == Manner::Tries && waiting.is_standing()) {
            self.line.remove(&ticket);
            *place = None;
            return Poll::Ready(Ok(Decision::Wait { retry_in }));
        }
        waiting.manner = manner;
        if !waiting.waker.will_wake(waker) {
            waiting.waker.clone_from(waker);
        }
        Poll::Pending
    }

    fn join(
        &mut self,
        now: Tick,
        place: &mut Option<Ticket>,
        cost: u32,
        manner: Manner,
        waker: &Waker,
    ) -> Poll<Result<Decision, ServerError>> {
        if self.line.is_empty() && self.spare.take(now, cost) {
            return Poll::Ready(Ok(Decision::Pass));
        }
        let fault = self.denial.as_ref().and_then(|denial| denial.fault(now));
        if let Some(fault) = fault.filter(|_| manner != Manner::Stands) {
            return Poll::Ready(Err(fault.clone()));
        }
        if manner == Manner::Tries {
            // What was denied is denied until then; and who stands in line is before them.
            let retry_in = match self.denied(now, cost) {
                Some(retry_in) => Some(retry_in),
                None if self.line.values().any(Waiting::stands) => {
                    Some(self.denied(now, u32::MAX).unwrap_or(SOON))
                }
                None => None,
            };
            if let Some(retry_in) = retry_in {
                return Poll::Ready(Ok(Decision::Wait { retry_in }));
            }
        }
        let ticket = self.next;
        self.next += 1;
        let waiting = Waiting {
            cost,
            manner,
            since: now,
            waker: waker.clone(),
            state: State::Standing,
        };
        self.line.insert(ticket, waiting);
        *place = Some(ticket);
        Poll::Pending
    }

    /// What has come for somebody in line, who leaves it then.
    fn fetch(
        &mut self,
        now: Tick,
        ticket: Ticket,
        cost: u32,
    ) -> Option<Result<Decision, ServerError>> {
        let waiting = self.line.get_mut(&ticket)?;
        if waiting.cost != cost {
            let before = core::mem::replace(&mut waiting.cost, cost);
            if matches!(waiting.state, State::Granted(at) if now.since(at) <= FRESH) {
                self.unwanted += before;
            }
            if !matches!(waiting.state, State::Sent) {
                waiting.state = State::Standing;
            }
            return None;
        }
        match &waiting.state {
            State::Standing | State::Sent => None,
            State::Granted(at) if now.since(*at) > FRESH => {
                waiting.state = State::Standing;
                None
            }
            State::Granted(_) => {
                self.line.remove(&ticket);
                Some(Ok(Decision::Pass))
            }
            State::Answered(_) => match self.line.remove(&ticket)?.state {
                State::Answered(answer) => Some(answer),
                _ => None,
            },
        }
    }

    /// Leaves the line.
    pub(super) fn leave(&mut self, now: Tick, ticket: Ticket) {
        let Some(waiting) = self.line.remove(&ticket) else {
            return;
        };
        if matches!(waiting.state, State::Granted(at) if now.since(at) <= FRESH) {
            self.unwanted += waiting.cost;
        }
    }

    pub(super) fn forget_denial(&mut self) {
        self.denial = None;
    }

    /// How long nothing of that cost can pass, as far as is known.
    pub(super) fn denied(&self, now: Tick, cost: u32) -> Option<Duration> {
        self.denial.as_ref()?.wait(now, cost)
    }

    /// Redis can be asked again: what was decided without it holds no longer.
    pub(super) fn back(&mut self) {
        self.denial.take_if(|denied| denied.by == By::Alone);
    }

    /// How many permits are there that were taken ahead.
    pub(super) fn spare(&mut self, now: Tick) -> u32 {
        self.spare.left(now)
    }

    /// What is to be done next for those in line.
    pub(super) fn next_step(&mut self, now: Tick) -> Step {
        self.hand_on(now);
        if self.unwanted > 0 {
            self.denial = None;
            return Step::GiveBack(core::mem::take(&mut self.unwanted));
        }
        let mut standing = self.line.values().filter(|waiting| waiting.is_standing());
        let Some(first) = standing.next() else {
            self.is_served = false;
            return Step::End;
        };
        let cost = first.cost;
        if let Some(wait) = self.denied(now, cost) {
            let is_alone = self
                .denial
                .as_ref()
                .is_some_and(|denial| denial.by == By::Alone);
            return Step::Sleep(wait, is_alone);
        }
        self.denial = None;
        let standing = self
            .line
            .iter_mut()
            .filter(|(_, waiting)| waiting.is_standing());
        let mut batch = Batch {
            asked: Vec::new(),
            since: None,
        };
        for (ticket, waiting) in standing.take(ON_A_TRIP) {
            waiting.state = State::Sent;
            batch.asked.push((*ticket, waiting.cost));
            if waiting.manner == Manner::Tries && batch.since.is_none() {
                // The first is the oldest.
                batch.since = Some(waiting.since);
            }
        }
        Step::Trip(batch)
    }

    /// Permits that somebody left behind, or that were taken ahead, are for the next in line.
    fn hand_on(&mut self, now: Tick) {
        for waiting in self
            .line
            .values_mut()
            .filter(|waiting| waiting.is_standing())
        {
            if let Some(left) = self.unwanted.checked_sub(waiting.cost) {
                self.unwanted = left;
            } else if !self.spare.take(now, waiting.cost) {
                return;
            }
            waiting.becomes(State::Granted(now), &mut self.wakes);
        }
    }

    /// What the script answered to those who went on a trip.
    pub(super) fn land(&mut self, now: Tick, batch: &Batch, reply: &Reply, lease: Duration) {
        self.memory.clone_from(&reply.memory);
        let passed = usize::try_from(reply.passed)
            .unwrap_or(usize::MAX)
            .min(batch.asked.len());
        for asked in &batch.asked[..passed] {
            self.grant(now, *asked);
        }
        if reply.ahead > 0 {
            self.spare.add(reply.ahead, now.after(lease));
        }
        if let Some((_, cost)) = batch.asked.get(passed) {
            self.binding = usize::try_from(reply.binding)
                .ok()
                .and_then(|number| number.checked_sub(1));
            self.denial = Some(Denial {
                until: now.after(reply.retry_in),
                cost: *cost,
                by: By::Redis,
            });
            // Some of the others may be cheaper than the one who was denied, but none is before them.
            let retry_in = reply.retry_in;
            self.deny(&batch.asked[passed..], &Ok(Decision::Wait { retry_in }));
        }
    }

    /// Something passes without Redis.
    pub(super) fn grant(&mut self, now: Tick, (ticket, cost): (Ticket, u32)) {
        match self.line.get_mut(&ticket) {
            Some(waiting) if waiting.cost == cost => {
                waiting.becomes(State::Granted(now), &mut self.wakes);
            }
            Some(waiting) => {
                waiting.state = State::Standing;
                self.unwanted += cost;
            }
            None => self.unwanted += cost,
        }
    }

    /// Tells those who want an answer, and lets the others stand.
    pub(super) fn deny(&mut self, asked: &[(Ticket, u32)], answer: &Result<Decision, ServerError>) {
        for (ticket, _) in asked {
            let Some(waiting) = self.line.get_mut(ticket) else {
                continue;
            };
            let wants_answer = match waiting.manner {
                Manner::Stands => false,
                Manner::StandsUnlessFault => answer.is_err(),
                Manner::Tries => true,
            };
            if wants_answer {
                waiting.becomes(State::Answered(answer.clone()), &mut self.wakes);
            } else {
                waiting.state = State::Standing;
            }
        }
    }

    /// Nothing that costs so much is to be asked for before that time, since Redis cannot be asked.
    pub(super) fn deny_alone(&mut self, now: Tick, cost: u32, retry_in: Duration) {
        self.denial = Some(Denial {
            until: now.after(retry_in),
            cost,
            by: By::Alone,
        });
    }

    /// The server refuses to answer, and is not asked again before that time.
    pub(super) fn rest(&mut self, now: Tick, time: Duration, fault: ServerError) {
        self.denial = Some(Denial {
            until: now.after(time),
            cost: 0,
            by: By::Fault(fault),
        });
    }

    /// Whoever served the line is gone: those in it ask again, and one of them finds another.
    pub(super) fn is_deserted(&mut self) {
        self.is_served = false;
        for waiting in self.line.values_mut() {
            if matches!(waiting.state, State::Sent) {
                waiting.state = State::Standing;
            }
            self.wakes.push(waiting.waker.clone());
        }
    }
}
