use core::task::Waker;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

use super::denial::{By, Denial};
use super::error::ServerError;
use super::leftover::Leftover;
use super::reply::{Memory, Reply};
use super::spare::Spare;
use super::waiting::{FRESH, Granted, Manner, State, Ticket, Waiting};

mod asking;

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
    leftover: Leftover,
    pub(super) insurance: Option<Insurance<P::State>>,
    /// Of those for whom something has come: to be woken when no lock is held.
    wakes: Vec<Waker>,
    /// Whether whoever sleeps until something can pass has to look again: the first in line is another, or wants less.
    is_changed: bool,
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
    /// And since when the first waits who wants an answer.
    GiveBack(u32, Option<Tick>),
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
            leftover: Leftover::default(),
            insurance: None,
            wakes: Vec::new(),
            is_changed: false,
            binding: None,
        }
    }

    pub(super) fn take_wakes(&mut self) -> Vec<Waker> {
        core::mem::take(&mut self.wakes)
    }

    /// Whether whoever makes the trips has to look again.
    pub(super) const fn take_change(&mut self) -> bool {
        core::mem::replace(&mut self.is_changed, false)
    }

    pub(super) const fn is_served(&self) -> bool {
        self.is_served
    }

    /// Whether nobody makes trips for this line: whoever asks this does, from now on.
    pub(super) const fn is_to_be_served(&mut self) -> bool {
        !core::mem::replace(&mut self.is_served, true)
    }

    /// Whether there are permits to be given back.
    pub(super) const fn owes(&self) -> bool {
        !self.leftover.is_empty()
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
        self.leftover.forget_after(now, FRESH);
        self.hand_on(now);
        if self.owes() {
            self.denial = None;
            let since = self.since();
            return Step::GiveBack(self.leftover.take_all(), since);
        }
        self.turn_away(now);
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
        let since = self.since();
        let standing = self
            .line
            .iter_mut()
            .filter(|(_, waiting)| waiting.is_standing());
        let mut asked = Vec::new();
        for (ticket, waiting) in standing.take(ON_A_TRIP) {
            waiting.state = State::Sent;
            asked.push((*ticket, waiting.cost));
        }
        Step::Trip(Batch { asked, since })
    }

    /// Since when the first of those stands who want an answer.
    fn since(&self) -> Option<Tick> {
        let mut standing = self.line.values().filter(|waiting| waiting.is_standing());
        // The first is the oldest.
        let first = standing.find(|waiting| waiting.manner == Manner::Tries);
        first.map(|first| first.since)
    }

    /// Those who want an answer do not wait for what was denied while they were not on the trip, nor behind who does.
    fn turn_away(&mut self, now: Tick) {
        let Some(denial) = &self.denial else { return };
        let mut is_held_up = false;
        let mut answers = Vec::new();
        for (ticket, waiting) in self.line.iter().filter(|(_, other)| other.is_standing()) {
            let cost = if is_held_up { u32::MAX } else { waiting.cost };
            let answer = match (denial.fault(now), denial.wait(now, cost)) {
                (Some(fault), _) if waiting.manner != Manner::Stands => Err(fault.clone()),
                (None, Some(retry_in)) if waiting.manner == Manner::Tries => {
                    Ok(Decision::Wait { retry_in })
                }
                (_, denied) => {
                    is_held_up |= denied.is_some();
                    continue;
                }
            };
            answers.push((*ticket, answer));
        }
        for (ticket, answer) in answers {
            if let Some(waiting) = self.line.get_mut(&ticket) {
                waiting.becomes(State::Answered(answer), &mut self.wakes);
            }
        }
    }

    /// Permits that somebody left behind, or that were taken ahead, are for the next in line.
    fn hand_on(&mut self, now: Tick) {
        for waiting in self
            .line
            .values_mut()
            .filter(|waiting| waiting.is_standing())
        {
            let at = match self.leftover.take(waiting.cost) {
                Some(at) => at,
                None if self.spare.take(now, waiting.cost) => now,
                None => return,
            };
            let is_counted = true;
            waiting.becomes(State::Granted(Granted { at, is_counted }), &mut self.wakes);
        }
    }

    /// What the script answered to those who went on a trip.
    ///
    /// It may have counted as soon as the question was `sent`. The answer `came` within the deadline, or counts as if it had, however
    /// late it was read.
    pub(super) fn land(
        &mut self,
        sent: Tick,
        came: Tick,
        batch: &Batch,
        reply: &Reply,
        lease: Duration,
    ) {
        self.memory.clone_from(&reply.memory);
        let passed = usize::try_from(reply.passed)
            .unwrap_or(usize::MAX)
            .min(batch.asked.len());
        let granted = Granted {
            at: came,
            is_counted: true,
        };
        for asked in &batch.asked[..passed] {
            self.grant(granted, *asked);
        }
        if reply.ahead > 0 {
            self.spare.add(reply.ahead, sent.after(lease));
        }
        if let Some((_, cost)) = batch.asked.get(passed) {
            self.binding = usize::try_from(reply.binding)
                .ok()
                .and_then(|number| number.checked_sub(1));
            self.denial = Some(Denial {
                until: came.after(reply.retry_in),
                cost: *cost,
                by: By::Redis,
            });
            // Some of the others may be cheaper than the one who was denied, but none is before them.
            let retry_in = reply.retry_in;
            self.deny(&batch.asked[passed..], &Ok(Decision::Wait { retry_in }));
        }
    }

    /// Something passes.
    pub(super) fn grant(&mut self, granted: Granted, (ticket, cost): (Ticket, u32)) {
        match self.line.get_mut(&ticket) {
            Some(waiting) if waiting.cost == cost => {
                return waiting.becomes(State::Granted(granted), &mut self.wakes);
            }
            Some(waiting) => waiting.state = State::Standing,
            None => {}
        }
        self.leave_over(granted.at, cost, &State::Granted(granted));
    }

    /// Tells those who want an answer, and lets the others stand.
    pub(super) fn deny(&mut self, asked: &[(Ticket, u32)], answer: &Result<Decision, ServerError>) {
        for (ticket, cost) in asked {
            let Some(waiting) = self.line.get_mut(ticket) else {
                continue;
            };
            let wants_answer = match waiting.manner {
                _ if waiting.cost != *cost => false,
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
