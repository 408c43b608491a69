use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

use super::error::ServerError;
use super::reply::{Memory, Reply};

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
    denied: Option<Denied>,
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

#[derive(Debug)]
struct Waiting {
    cost: u32,
    manner: Manner,
    since: Tick,
    waker: Waker,
    state: State,
}

/// How somebody asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Manner {
    /// Stands in line until it passes.
    Stands,
    /// The same, unless the server refuses to answer.
    StandsUnlessFault,
    /// Wants an answer.
    Tries,
}

#[derive(Debug)]
enum State {
    Standing,
    /// On a trip.
    Sent,
    Granted(Tick),
    Answered(Result<Decision, ServerError>),
}

/// What costs no less than this one need not be asked for before then.
#[derive(Clone, Debug)]
struct Denied {
    until: Tick,
    cost: u32,
    by: By,
}

/// Who denied it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum By {
    Redis,
    /// The insurance, or since Redis is down.
    Alone,
    /// The server refuses to answer.
    Fault(ServerError),
}

/// Permits that were taken ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Spare {
    permits: u32,
    until: Tick,
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
    Sleep(Duration),
    End,
}

impl<P: Policy> Desk<P> {
    pub(super) fn new(limits: usize) -> Self {
        Self {
            line: BTreeMap::new(),
            next: 0,
            is_served: false,
            denied: None,
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
        let Some(waiting) = place.and_then(|ticket| self.line.get_mut(&ticket)) else {
            return self.join(now, place, cost, manner, waker);
        };
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
        let is_alone = self.line.is_empty();
        if is_alone && self.take_spare(now, cost) {
            return Poll::Ready(Ok(Decision::Pass));
        }
        if let Some(fault) = self.fault(now).filter(|_| manner != Manner::Stands) {
            return Poll::Ready(Err(fault));
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
            let (before, state) = (
                waiting.cost,
                core::mem::replace(&mut waiting.state, State::Standing),
            );
            waiting.cost = cost;
            match state {
                State::Granted(at) if now.since(at) <= FRESH => self.unwanted += before,
                State::Sent => waiting.state = State::Sent,
                _ => {}
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
        self.denied = None;
    }

    /// How long nothing of that cost can pass, as far as is known.
    pub(super) fn denied(&self, now: Tick, cost: u32) -> Option<Duration> {
        let denied = self.denied.as_ref()?;
        (now < denied.until && denied.cost <= cost).then(|| denied.until.since(now))
    }

    /// Redis can be asked again: what was decided without it holds no longer.
    pub(super) fn back(&mut self) {
        self.denied.take_if(|denied| denied.by == By::Alone);
    }

    fn take_spare(&mut self, now: Tick, cost: u32) -> bool {
        if now >= self.spare.until || self.spare.permits < cost {
            return false;
        }
        self.spare.permits -= cost;
        true
    }

    /// How many permits are there that were taken ahead.
    pub(super) fn spare(&self, now: Tick) -> u32 {
        if now < self.spare.until {
            self.spare.permits
        } else {
            0
        }
    }

    /// What is to be done next for those in line.
    pub(super) fn next_step(&mut self, now: Tick) -> Step {
        self.hand_on(now);
        if self.unwanted > 0 {
            self.denied = None;
            return Step::GiveBack(core::mem::take(&mut self.unwanted));
        }
        let mut standing = self
            .line
            .iter_mut()
            .filter(|(_, waiting)| matches!(waiting.state, State::Standing));
        let Some((_, first)) = standing.next() else {
            self.is_served = false;
            return Step::End;
        };
        let cost = first.cost;
        if let Some(wait) = self.denied(now, cost) {
            return Step::Sleep(wait);
        }
        self.denied = None;
        let standing = self
            .line
            .iter_mut()
            .filter(|(_, waiting)| matches!(waiting.state, State::Standing));
        let mut batch = Batch {
            asked: Vec::new(),
            since: None,
        };
        for (ticket, waiting) in standing.take(ON_A_TRIP) {
            waiting.state = State::Sent;
            batch.asked.push((*ticket, waiting.cost));
            if waiting.manner == Manner::Tries {
                batch.since = Some(
                    batch
                        .since
                        .map_or(waiting.since, |since| since.min(waiting.since)),
                );
            }
        }
        Step::Trip(batch)
    }

    /// Permits that somebody left behind are for the next in line.
    fn hand_on(&mut self, now: Tick) {
        let spare = self.spare(now);
        let mut left = self.unwanted + spare;
        if left == 0 {
            return;
        }
        for waiting in self.line.values_mut() {
            if !matches!(waiting.state, State::Standing) {
                continue;
            }
            let Some(rest) = left.checked_sub(waiting.cost) else {
                break;
            };
            left = rest;
            waiting.becomes(State::Granted(now), &mut self.wakes);
        }
        self.unwanted = left.saturating_sub(spare);
        self.spare.permits = left - self.unwanted;
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
            self.spare = Spare {
                permits: self.spare(now) + reply.ahead,
                until: now.after(lease),
            };
        }
        if let Some((_, cost)) = batch.asked.get(passed) {
            self.binding = usize::try_from(reply.binding)
                .ok()
                .and_then(|number| number.checked_sub(1));
            self.denied = Some(Denied {
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
        self.denied = Some(Denied {
            until: now.after(retry_in),
            cost,
            by: By::Alone,
        });
    }

    /// The server refuses to answer, and is not asked again before that time.
    pub(super) fn rest(&mut self, now: Tick, time: Duration, fault: ServerError) {
        self.denied = Some(Denied {
            until: now.after(time),
            cost: 0,
            by: By::Fault(fault),
        });
    }

    fn fault(&self, now: Tick) -> Option<ServerError> {
        match self.denied.as_ref().filter(|denied| now < denied.until)?.by {
            By::Fault(ref fault) => Some(fault.clone()),
            By::Redis | By::Alone => None,
        }
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

impl Waiting {
    /// Whether it is in line until it passes, and has not.
    const fn stands(&self) -> bool {
        !matches!(self.manner, Manner::Tries) && matches!(self.state, State::Standing | State::Sent)
    }

    fn becomes(&mut self, state: State, wakes: &mut Vec<Waker>) {
        self.state = state;
        wakes.push(self.waker.clone());
    }
}
