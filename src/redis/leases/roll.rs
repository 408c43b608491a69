use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::time::Tick;

use super::errand::{Answer, Class, Room, Token};
use super::holds::{Holds, Return, Ticket};
use super::lease::Lease;
use crate::redis::error::ServerError;

/// So many ask on one trip at most.
const ON_A_TRIP: usize = 64;

/// When there was none, how long it waits before it asks again: at first, and at most.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The shortest pause: the first lease may be about to end, and be renewed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// How long nothing is tried after the server refused: it will again.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// How long after an outage's sign that is not known to be one.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// What one who asks is told.
pub(super) type Told = Result<Option<Lease>, ServerError>;

/// Of one pool, as this process knows it: who waits for a lease, who holds one, which are to be given back.
///
/// It is told what time it is and what came of a trip; it makes none itself.
#[derive(Debug)]
pub(super) struct Roll {
    pub(super) holds: Holds,
    /// Those who wait for one, in order.
    line: VecDeque<Asker>,
    /// From which length on those who have left are looked for.
    tidied: usize,
    /// Those who want an answer.
    tries: VecDeque<Asker>,
    /// Guards of leases in Redis, of each class; also those whose lease is lost.
    guards: Vec<u32>,
    /// Guards of leases that are in no Redis.
    local: Vec<u32>,
    is_served: bool,
    /// So many of those who wait ask on one trip.
    on_a_trip: usize,
    /// When those who wait are to ask.
    ask_at: Tick,
    pause: Duration,
    /// Until when nothing is tried.
    rests_until: Tick,
}

/// Somebody who asks.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) class: Class,
    /// Waits until there is one.
    pub(super) stands: bool,
    pub(super) since: Tick,
    pub(super) answer: oneshot::Sender<Told>,
}

/// What one trip carries.
#[derive(Debug)]
pub(super) struct Trip {
    pub(super) askers: Vec<Asker>,
    /// Those who want an answer while others stand in line who do not go on this trip.
    pub(super) turned_away: Vec<Asker>,
    pub(super) renewals: Vec<(Ticket, Token)>,
    pub(super) returns: Vec<Return>,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Step {
    Trip(Trip),
    Sleep(Duration),
    End,
}

/// What is to be told to whom when no lock is held.
pub(super) type Replies = Vec<(Asker, Outcome)>;

#[derive(Debug)]
pub(super) enum Outcome {
    Granted(Ticket),
    /// Without Redis.
    Local,
    Refused,
    Fault(ServerError),
}

impl Roll {
    /// `most`: how many there may be in Redis of those that are waited for.
    pub(super) fn new(lease: Duration, classes: usize, most: u64) -> Self {
        Self {
            holds: Holds::new(lease),
            on_a_trip: usize::try_from(most).map_or(ON_A_TRIP, |most| most.min(ON_A_TRIP)),
            line: VecDeque::new(),
            tidied: ON_A_TRIP,
            tries: VecDeque::new(),
            guards: vec![0; classes],
            local: vec![0; classes],
            is_served: false,
            ask_at: Tick::ZERO,
            pause: PAUSE,
            rests_until: Tick::ZERO,
        }
    }

    pub(super) fn join(&mut self, asker: Asker) {
        if !asker.stands {
            return self.tries.push_back(asker);
        }
        if self.line.is_empty() {
            self.ask_soon();
        }
        self.line.push_back(asker);
        if self.line.len() > self.tidied {
            self.line.retain(|asker| !asker.answer.is_closed());
            self.tidied = ON_A_TRIP.max(self.line.len() * 2);
        }
    }

    /// Whether somebody must be found to make trips: then it is whoever asks.
    pub(super) fn is_to_be_served(&mut self) -> bool {
        !core::mem::replace(&mut self.is_served, true)
    }

    /// Whoever made the trips does no more: who asks, and who can be told that they hold something.
    pub(super) fn is_deserted(&mut self) -> (VecDeque<Asker>, Vec<Arc<Notify>>) {
        self.is_served = false;
        let mut askers = core::mem::take(&mut self.line);
        askers.append(&mut self.tries);
        (askers, self.holds.holders())
    }

    pub(super) fn next_step(&mut self, now: Tick, is_down: bool) -> Step {
        self.holds.lapse(now);
        for line in [&mut self.line, &mut self.tries] {
            while line.front().is_some_and(|asker| asker.answer.is_closed()) {
                line.pop_front();
            }
        }
        let asks = (!self.line.is_empty()).then_some(self.ask_at);
        let tends = if self.holds.owes() {
            Some(now)
        } else {
            self.holds.renewal()
        };
        // While Redis is down these can wait. Those who ask cannot: they may be let in without it.
        let due = [asks, tends.filter(|_| !is_down)]
            .into_iter()
            .flatten()
            .min();
        let due = due.map(|due| due.max(self.rests_until));
        if !self.tries.is_empty() || due.is_some_and(|due| due <= now) {
            return Step::Trip(self.trip(now));
        }
        let wakes = [due, self.holds.first_end()].into_iter().flatten().min();
        if self.line.is_empty() && self.holds.is_at_rest() {
            self.is_served = false;
            return Step::End;
        }
        Step::Sleep(wakes.map_or(LONGEST_PAUSE, |wakes| wakes.since(now)))
    }

    fn trip(&mut self, now: Tick) -> Trip {
        let many = self.line.len().min(self.on_a_trip);
        let mut askers: Vec<_> = self.line.drain(..many).collect();
        let many = self.tries.len().min(ON_A_TRIP);
        let mut tries: Vec<_> = self.tries.drain(..many).collect();
        if self.line.is_empty() {
            askers.append(&mut tries);
        }
        askers.retain(|asker| !asker.answer.is_closed());
        Trip {
            askers,
            turned_away: tries,
            renewals: self.holds.to_renew(now),
            returns: self.holds.take_returns(),
        }
    }

    /// Of these, as Redis can know: here there may be others.
    pub(super) fn rooms(&self, rooms: &[Room]) -> Vec<Room> {
        let in_all: u64 = self.local.iter().copied().map(u64::from).sum();
        let left = |(room, local): (&Room, &u32)| Room {
            below: room.below.saturating_sub(u64::from(*local)),
            below_in_all: room.below_in_all.saturating_sub(in_all),
        };
        rooms.iter().zip(&self.local).map(left).collect()
    }

    /// It was answered. `ids` are those that were wanted.
    pub(super) fn land(
        &mut self,
        now: Tick,
        sent: Tick,
        askers: Vec<Asker>,
        ids: Vec<Token>,
        renewals: &[(Ticket, Token)],
        answer: &Answer,
    ) -> Replies {
        for ((ticket, _), is_known) in renewals.iter().zip(&answer.renewed) {
            self.holds.renewed(now, sent, *ticket, *is_known);
        }
        let mut answers = ids.into_iter().zip(&answer.granted);
        let outcomes = askers.into_iter().map(|asker| {
            let granted = answers.next().filter(|(_, granted)| **granted);
            let ticket = granted.and_then(|(id, _)| self.holds.grant(now, sent, id));
            let outcome = match ticket {
                None => Outcome::Refused,
                Some(ticket) => {
                    self.guards[asker.class] += 1;
                    Outcome::Granted(ticket)
                }
            };
            (asker, outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let is_granted = |(_, outcome): &(Asker, Outcome)| matches!(outcome, Outcome::Granted(_));
        if outcomes.iter().any(is_granted) {
            self.pause = PAUSE;
        }
        let pause = match answer.first_end_in {
            Duration::ZERO => self.pause,
            first_end => SHORTEST_PAUSE.max(first_end.min(self.pause)),
        };
        self.stay(outcomes, now, pause)
    }

    /// It was not answered, and those who asked are let in or not without Redis. `alone` says how many of a class there may be.
    pub(super) fn land_alone(
        &mut self,
        now: Tick,
        askers: Vec<Asker>,
        alone: impl Fn(Class) -> u32,
    ) -> Replies {
        let outcomes = askers.into_iter().map(|asker| {
            let class = asker.class;
            if self.guards[class].saturating_add(self.local[class]) >= alone(class) {
                return (asker, Outcome::Refused);
            }
            self.local[class] += 1;
            (asker, Outcome::Local)
        });
        let outcomes = outcomes.collect();
        self.stay(outcomes, now, self.pause)
    }

    /// Who stands goes back into the line where nothing came of it.
    fn stay(&mut self, outcomes: Replies, now: Tick, pause: Duration) -> Replies {
        let stays = |(asker, outcome): &(Asker, Outcome)| {
            asker.stands && matches!(outcome, Outcome::Refused)
        };
        let (stay, replies): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(stays);
        if !stay.is_empty() {
            self.ask_at = now.after(pause);
            self.pause = LONGEST_PAUSE.min(self.pause * 2);
        }
        for (asker, _) in stay.into_iter().rev() {
            self.line.push_front(asker);
        }
        replies
    }

    /// No answer, and none that could be known.
    pub(super) fn failed(&mut self, now: Tick, ids: Vec<Token>, returns: Vec<Return>) {
        for id in ids {
            self.holds.owe(now, id, None);
        }
        self.holds.put_back(returns, 1);
        self.holds.doubt(now);
        self.rests_until = now.after(AFTER_FAILURE);
    }

    /// The server refused.
    pub(super) fn faulted(
        &mut self,
        now: Tick,
        askers: Vec<Asker>,
        returns: Vec<Return>,
        why: &ServerError,
    ) -> Replies {
        self.holds.put_back(returns, 1);
        self.rests_until = now.after(AFTER_FAULT);
        let outcomes = askers
            .into_iter()
            .map(|asker| (asker, Outcome::Fault(why.clone())));
        outcomes.collect()
    }

    /// There is a new connection: what Redis may have missed is due, and what it may have forgotten unless it is the first.
    pub(super) fn back(&mut self, now: Tick, is_first: bool) {
        if !is_first {
            self.holds.doubt(now);
        }
        self.rests_until = now;
        self.ask_soon();
    }

    /// There may be one now.
    fn ask_soon(&mut self) {
        self.ask_at = Tick::ZERO;
        self.pause = PAUSE;
    }

    /// The guard of a lease in Redis is gone.
    pub(super) fn give_back(
        &mut self,
        now: Tick,
        ticket: Ticket,
        class: Class,
        done: Option<oneshot::Sender<()>>,
    ) -> Option<oneshot::Sender<()>> {
        self.guards[class] -= 1;
        self.ask_soon();
        self.holds.give_back(now, ticket, done)
    }

    /// The guard of another is gone.
    pub(super) fn give_back_local(&mut self, class: Class) {
        self.local[class] -= 1;
        self.ask_soon();
    }
}
