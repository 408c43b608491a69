use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::time::Tick;

use super::errand::Token;

/// One lease of this process.
pub(super) type Ticket = u64;

/// So many are renewed, and so many given back, on one trip at most.
const ON_A_TRIP: usize = 500;

/// How often it is tried to give one back. Then it lapses by itself.
const TRIES: u32 = 3;

/// The leases in Redis that guards of this process hold, and those that are to be given back.
///
/// It is told what time it is, and makes no trips.
///
/// A lease counts from *before* the call that granted or renewed it: so whoever holds it knows that it has ended before the
/// server lets another in.
#[derive(Debug)]
pub(super) struct Holds {
    lease: Duration,
    next: Ticket,
    held: BTreeMap<Ticket, Held>,
    /// Those that have not ended, by since when they run. All run equally long.
    running: BTreeSet<(Tick, Ticket)>,
    returns: Vec<Return>,
    /// What was granted or renewed before may have been forgotten.
    doubted: Tick,
    /// Of those that are lost, and have not been told yet.
    told: Vec<Arc<Notify>>,
}

#[derive(Debug)]
struct Held {
    token: Token,
    /// `None` when it has ended by the clock here. It may still be known there.
    since: Option<Tick>,
    told: Arc<Notify>,
}

/// A lease that nobody holds any more, and that Redis may still know.
#[derive(Debug)]
pub(super) struct Return {
    pub(super) token: Token,
    /// Until when it is worth a trip: then it has ended there too.
    until: Tick,
    tries: u32,
    /// Who waits until it is done.
    pub(super) done: Option<oneshot::Sender<()>>,
}

impl Holds {
    pub(super) const fn new(lease: Duration) -> Self {
        Self {
            lease,
            next: 0,
            held: BTreeMap::new(),
            running: BTreeSet::new(),
            returns: Vec::new(),
            doubted: Tick::ZERO,
            told: Vec::new(),
        }
    }

    /// Whether there is nothing to be renewed or given back.
    pub(super) fn is_at_rest(&self) -> bool {
        self.running.is_empty() && self.returns.is_empty()
    }

    /// Asked for at `sent`, and granted; nothing if that was so long ago that it has ended.
    pub(super) fn grant(&mut self, now: Tick, sent: Tick, token: Token) -> Option<Ticket> {
        if now >= sent.after(self.lease) {
            self.owe(now, token, None);
            return None;
        }
        self.next += 1;
        let held = Held {
            token,
            since: Some(sent),
            told: Arc::default(),
        };
        self.held.insert(self.next, held);
        self.running.insert((sent, self.next));
        Some(self.next)
    }

    /// When it ends, and who tells if it does before; nothing if it has.
    pub(super) fn end_of(&self, now: Tick, ticket: Ticket) -> Option<(Tick, Arc<Notify>)> {
        let held = self.held.get(&ticket)?;
        let end = held.since?.after(self.lease);
        (now < end).then(|| (end, Arc::clone(&held.told)))
    }

    /// When the first of them is to be renewed: a third of its time is over, or Redis may have forgotten it.
    pub(super) fn renewal(&self) -> Option<Tick> {
        let (since, _) = self.running.first()?;
        Some(if *since < self.doubted {
            self.doubted
        } else {
            since.after(self.lease / 3)
        })
    }

    /// Redis may have forgotten all of them: they are to be renewed now.
    pub(super) fn doubt(&mut self, now: Tick) {
        self.doubted = now;
    }

    /// When the first of them ends, or nothing more has to be given back.
    pub(super) fn first_end(&self) -> Option<Tick> {
        let held = self
            .running
            .first()
            .map(|(since, _)| since.after(self.lease));
        let returned = self.returns.iter().map(|due| due.until).min();
        held.into_iter().chain(returned).min()
    }

    /// Those whose sixth is over: one that is due takes along those that would be soon.
    pub(super) fn to_renew(&self, now: Tick) -> Vec<(Ticket, Token)> {
        let soon = |(since, _): &&(Tick, Ticket)| {
            *since < self.doubted || since.after(self.lease / 6) <= now
        };
        let running = self.running.iter().take_while(soon).take(ON_A_TRIP);
        running
            .filter_map(|(_, ticket)| Some((*ticket, self.held.get(ticket)?.token.clone())))
            .collect()
    }

    /// Redis was asked at `sent` to renew it, and did or has forgotten it.
    pub(super) fn renewed(&mut self, now: Tick, sent: Tick, ticket: Ticket, is_known: bool) {
        self.lapse(now);
        let Some(held) = self.held.get_mut(&ticket) else {
            return;
        };
        if !is_known {
            if let Some(since) = held.since {
                self.running.remove(&(since, ticket));
                self.told.push(Arc::clone(&held.told));
            }
            self.held.remove(&ticket);
            return;
        }
        // Who has been told that it is lost is not told otherwise later.
        let Some(since) = &mut held.since else { return };
        self.running.remove(&(*since, ticket));
        *since = sent;
        self.running.insert((sent, ticket));
    }

    /// Notices what has ended by the clock here.
    pub(super) fn lapse(&mut self, now: Tick) {
        while let Some((since, ticket)) = self.running.first().copied() {
            if now < since.after(self.lease) {
                break;
            }
            self.running.pop_first();
            if let Some(held) = self.held.get_mut(&ticket) {
                held.since = None;
                self.told.push(Arc::clone(&held.told));
            }
        }
        self.returns
            .retain(|due| now < due.until && due.tries < TRIES);
    }

    /// Its guard is gone. What is returned need not wait any more.
    pub(super) fn give_back(
        &mut self,
        now: Tick,
        ticket: Ticket,
        done: Option<oneshot::Sender<()>>,
    ) -> Option<oneshot::Sender<()>> {
        self.lapse(now);
        let Some(held) = self.held.remove(&ticket) else {
            return done;
        };
        if let Some(since) = held.since {
            self.running.remove(&(since, ticket));
        }
        self.owe(now, held.token, done);
        None
    }

    /// Redis may know it, and nobody holds it.
    pub(super) fn owe(&mut self, now: Tick, token: Token, done: Option<oneshot::Sender<()>>) {
        self.returns.push(Return {
            token,
            until: now.after(self.lease),
            tries: 0,
            done,
        });
    }

    pub(super) fn owes(&self) -> bool {
        !self.returns.is_empty()
    }

    pub(super) fn take_returns(&mut self) -> Vec<Return> {
        let many = self.returns.len().min(ON_A_TRIP);
        self.returns.drain(..many).collect()
    }

    /// They were not given back, as far as is known: `tries` more times.
    pub(super) fn put_back(&mut self, mut returns: Vec<Return>, tries: u32) {
        for due in &mut returns {
            due.tries += tries;
        }
        self.returns.splice(..0, returns);
    }

    /// Who can be told of each that is held.
    pub(super) fn holders(&self) -> Vec<Arc<Notify>> {
        let held = self.held.values();
        held.map(|held| Arc::clone(&held.told)).collect()
    }

    /// To be notified when no lock is held.
    pub(super) fn take_told(&mut self) -> Vec<Arc<Notify>> {
        core::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn token(id: &str) -> Token {
        Token {
            class: 0,
            id: id.into(),
        }
    }

    fn lease_of_600_ms() -> Holds {
        Holds::new(Duration::from_millis(600))
    }

    fn end(holds: &Holds, now: u64, ticket: Ticket) -> Option<Tick> {
        holds.end_of(at(now), ticket).map(|(end, _)| end)
    }

    #[test]
    fn a_lease_counts_from_when_it_was_asked_for() {
        let mut holds = lease_of_600_ms();
        let ticket = holds.grant(at(150), at(100), token("a")).unwrap();
        assert_eq!(end(&holds, 699, ticket), Some(at(700)));
        assert_eq!(end(&holds, 700, ticket), None);
    }

    #[test]
    fn one_that_ends_before_it_is_heard_of_is_given_back() {
        let mut holds = lease_of_600_ms();
        assert_eq!(holds.grant(at(700), at(100), token("a")), None);
        assert_eq!(holds.take_returns()[0].token, token("a"));
    }

    #[test]
    fn a_third_after_it_was_asked_for_it_is_renewed_and_takes_along_what_is_past_a_sixth() {
        let mut holds = lease_of_600_ms();
        let one = holds.grant(at(1), at(0), token("a")).unwrap();
        let two = holds.grant(at(100), at(100), token("b")).unwrap();
        holds.grant(at(101), at(101), token("c")).unwrap();
        assert_eq!(holds.renewal(), Some(at(200)));
        let due = holds.to_renew(at(200));
        assert_eq!(due, [(one, token("a")), (two, token("b"))]);

        for (ticket, _) in due {
            holds.renewed(at(230), at(200), ticket, true);
        }
        assert_eq!(end(&holds, 230, one), Some(at(800)));
        assert_eq!(holds.renewal(), Some(at(301)));
    }

    #[test]
    fn all_are_renewed_at_once_when_redis_may_have_forgotten_them() {
        let mut holds = lease_of_600_ms();
        let ticket = holds.grant(at(1), at(0), token("a")).unwrap();
        holds.doubt(at(10));
        assert_eq!(holds.renewal(), Some(at(10)));
        assert_eq!(holds.to_renew(at(10)).len(), 1);
        holds.renewed(at(12), at(10), ticket, true);
        assert_eq!(holds.renewal(), Some(at(210)));
        assert_eq!(holds.to_renew(at(12)), []);
    }

    #[test]
    fn what_redis_forgot_is_lost_and_not_given_back() {
        let mut holds = lease_of_600_ms();
        let ticket = holds.grant(at(0), at(0), token("a")).unwrap();
        holds.renewed(at(210), at(200), ticket, false);
        assert_eq!(end(&holds, 210, ticket), None);
        assert_eq!(holds.take_told().len(), 1);
        assert!(holds.give_back(at(220), ticket, None).is_none());
        assert!(holds.is_at_rest());
        assert!(holds.take_told().is_empty());
    }

    #[test]
    fn what_has_ended_here_stays_lost_whatever_is_heard_later() {
        let mut holds = lease_of_600_ms();
        let ticket = holds.grant(at(0), at(0), token("a")).unwrap();
        // Asked for in time, answered too late.
        holds.renewed(at(600), at(599), ticket, true);
        assert_eq!(end(&holds, 600, ticket), None);
        assert_eq!(holds.take_told().len(), 1);
        assert_eq!(holds.to_renew(at(900)), []);

        // Redis may have renewed it: so it is given back when its guard is gone, and not before.
        assert!(!holds.owes());
        holds.give_back(at(700), ticket, None);
        assert!(holds.owes());
    }

    #[test]
    fn what_cannot_be_given_back_is_tried_three_times() {
        let mut holds = lease_of_600_ms();
        holds.owe(at(0), token("a"), None);
        for _ in 0..3 {
            holds.lapse(at(1));
            let returns = holds.take_returns();
            assert_eq!(returns.len(), 1);
            holds.put_back(returns, 1);
        }
        holds.lapse(at(1));
        assert!(!holds.owes());
    }

    #[test]
    fn what_is_not_tried_is_given_up_when_it_has_lapsed_in_redis() {
        let mut holds = lease_of_600_ms();
        holds.owe(at(0), token("a"), None);
        for now in [100, 599] {
            holds.lapse(at(now));
            let returns = holds.take_returns();
            assert_eq!(returns.len(), 1);
            holds.put_back(returns, 0);
        }
        holds.lapse(at(600));
        assert!(!holds.owes());
    }
}
