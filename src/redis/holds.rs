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

    /// To be notified when no lock is held.
    pub(super) fn take_told(&mut self) -> Vec<Arc<Notify>> {
        core::mem::take(&mut self.told)
    }
}
