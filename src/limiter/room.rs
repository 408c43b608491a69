use core::task::Waker;
use core::time::Duration;

use crate::line::{Asker, Call, Line, Ticket, Waiter};
use crate::time::Tick;

/// After so long whoever waits for room asks again by themselves. And so long may the first of them let their turn go by
/// before others take it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The line of those whose keys have no room yet, in order of arrival.
///
/// It has no watcher as a limit has: all who stand here sleep on timers of their own, so that an idle first holds up the
/// others no longer than [`PATIENCE`].
#[derive(Debug)]
pub(super) struct Room {
    line: Line,
    /// From when on the first may find room, as they were told.
    turn_at: Tick,
}

/// Somebody who asks and would stand here.
pub(super) struct Guest<'a> {
    pub(super) place: &'a mut Option<Ticket>,
    pub(super) waker: &'a Waker,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self {
            line: Line::new(),
            turn_at: Tick::MAX,
        }
    }

    /// Whether one with this place may have room `now`, if there are `free` ones.
    pub(super) fn lets_in(&self, place: Option<Ticket>, free: usize, now: Tick) -> bool {
        let others = self.line.len() - usize::from(place.is_some());
        let is_first = place.is_some_and(|ticket| self.line.is_first(ticket));
        is_first || free > others || now >= self.turn_at.after(PATIENCE)
    }

    /// Stands here. Says after how long to ask again: whoever is first after `wait`, if that is not too long.
    pub(super) fn stand(
        &mut self,
        guest: &mut Guest<'_>,
        now: Tick,
        wait: Duration,
        after: &mut RoomAfter,
    ) -> Duration {
        let ticket = if let Some(ticket) = *guest.place {
            after.drop = self.line.ask_again(ticket, 1, Asker::Told(guest.waker));
            ticket
        } else {
            *guest
                .place
                .insert(self.line.join(Waiter::new(1, Asker::Told(guest.waker))))
        };
        if !self.line.is_first(ticket) {
            return PATIENCE;
        }
        self.turn_at = now.after(wait);
        wait.min(PATIENCE)
    }

    /// Has got room, or given up.
    pub(super) fn leave(&mut self, place: &mut Option<Ticket>, now: Tick, after: &mut RoomAfter) {
        let Some(ticket) = place.take() else { return };
        let was_first = self.line.is_first(ticket);
        after.drop = self.line.leave(ticket);
        if was_first {
            self.turn_at = Tick::MAX;
            self.call_first(now, after);
        }
    }

    /// There is room. Whoever is first is woken, once.
    pub(super) fn call_first(&mut self, now: Tick, after: &mut RoomAfter) {
        if now < self.turn_at {
            let first = self.line.first();
            self.turn_at = first.map_or(Tick::MAX, |_| now);
            after.call = first.map(|first| first.call(now, Duration::ZERO));
        }
    }

    /// Everybody may pass now.
    pub(super) fn wake_all(&self, after: &mut RoomAfter) {
        after.wake_all = self.line.wakers().collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

/// What is left to do when the lock is released: wakers run foreign code.
#[derive(Debug, Default)]
#[must_use = "somebody may have to be woken"]
pub(super) struct RoomAfter {
    call: Option<Call>,
    drop: Option<Waiter>,
    wake_all: Vec<Waker>,
}

impl RoomAfter {
    pub(super) fn run(&mut self) {
        drop(self.drop.take());
        self.call.take().into_iter().for_each(Call::make);
        self.wake_all.drain(..).for_each(Waker::wake);
    }
}
