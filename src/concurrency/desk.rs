use core::task::Waker;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::line::{Asker, Call, Line, Place, Ticket, Waiter};
use crate::patience::{Next, Start, Watch, Watched};
use crate::time::{Clock, Tick};

use super::TooMany;
use super::stock::{Outlook, Stock};

/// What [`Permits`](super::Permits) lock: the stock, and the line of those who wait.
///
/// Only the first in line is served. Whoever leaves, releases or resizes sees to it that the one who is first then is
/// woken if that helps: that is [`After`].
#[derive(Debug)]
pub(super) struct Desk {
    clock: Clock,
    stock: Stock,
    line: Line,
    watch: Watch,
}

/// What one who asks is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Taken,
    /// You are the first, and have to wait that long.
    Wait(Duration),
    /// You will be woken.
    Stand,
    Refused(TooMany),
}

impl Desk {
    pub(super) fn new(limit: u32, watcher: Start) -> Self {
        Self {
            clock: Clock::new(),
            stock: Stock::new(limit),
            line: Line::new(),
            watch: Watch::new(watcher),
        }
    }

    pub(super) const fn stock(&self) -> &Stock {
        &self.stock
    }

    pub(super) fn set_cooldown(&mut self, cooldown: Duration) {
        self.stock.set_cooldown(cooldown);
    }

    /// Asks as one who stands in line, or joins it, as long as there is something to wait for.
    pub(super) fn ask_in_line(
        &mut self,
        place: &mut Option<Ticket>,
        count: u32,
        waker: &Waker,
        after: &mut After,
    ) -> Answer {
        let now = self.now();
        let is_turn = count == 0 || self.is_turn_of(*place);
        match self.stock.outlook(now, count) {
            Outlook::Now if is_turn => {
                self.stock.take(count);
                self.leave_at(now, place, after);
                Answer::Taken
            }
            Outlook::TooMany if is_turn || place.is_none() => {
                self.leave_at(now, place, after);
                Answer::Refused(TooMany::new(count, self.stock.limit()))
            }
            outlook => {
                self.stand(place, count, waker, after);
                if is_turn {
                    after.look = self.watch.expect_at(outlook.turn_at(now));
                }
                if self.line.is_anybody_behind() {
                    after.start = self.watch.begin(*place);
                }
                match outlook {
                    Outlook::At(due) if is_turn => Answer::Wait(due.since(now)),
                    _ => Answer::Stand,
                }
            }
        }
    }

    /// Takes so many if they are free and nobody waits. Nothing is left to do after that.
    #[inline]
    pub(super) fn takes_alone(&mut self, count: u32) -> bool {
        if count > 0 && !self.line.is_empty() {
            return false;
        }
        let now = self.now();
        let is_free = self.stock.outlook(now, count) == Outlook::Now;
        if is_free {
            self.stock.take(count);
        }
        is_free
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.line.is_empty()
    }

    /// Gives so many back if nobody waits. Nothing is left to do after that.
    #[inline]
    pub(super) fn releases_alone(&mut self, count: u32) -> bool {
        let is_alone = self.line.is_empty();
        if is_alone {
            let now = self.now();
            self.stock.release(now, count);
        }
        is_alone
    }

    pub(super) fn release(&mut self, count: u32, after: &mut After) {
        self.change(after, |stock, now| stock.release(now, count));
    }

    pub(super) fn resize(&mut self, limit: u32, after: &mut After) {
        self.change(after, |stock, _| stock.resize(limit));
    }

    /// Leaves the line. If the first does, the next one is called: if it has to wait, it sets a timer of its own.
    pub(super) fn leave(&mut self, place: &mut Option<Ticket>, after: &mut After) {
        let now = self.now();
        self.leave_at(now, place, after);
    }

    fn leave_at(&mut self, now: Tick, place: &mut Option<Ticket>, after: &mut After) {
        let Some(ticket) = place.take() else {
            return;
        };
        let was_first = self.line.is_first(ticket);
        after.drop = self.line.leave(ticket);
        if was_first {
            let outlook = self.outlook_of_first(now);
            self.call_first(outlook, now, after);
        }
        if self.line.is_empty() {
            after.look = self.watch.dismiss();
        }
    }

    fn lose_patience(&mut self, task: &Waker, after: &mut After) -> Next {
        if !self.line.is_anybody_behind() {
            let _ = self.watch.end();
            return Next::End;
        }
        let now = self.now();
        if self.watch.is_impatient(now) {
            self.line.set_first_aside();
            let outlook = self.outlook_of_first(now);
            self.call_first(outlook, now, after);
        }
        self.watch.look_again(now, task)
    }

    fn is_not_watched(&mut self, after: &mut After) {
        let starter = self.watch.end();
        after.wake = self.line.second_unless(starter);
    }

    /// Does something that may change what the first in line has to wait for.
    fn change(&mut self, after: &mut After, work: impl FnOnce(&mut Stock, Tick)) {
        let now = self.now();
        let before = self.outlook_of_first(now);
        work(&mut self.stock, now);
        let outlook = self.outlook_of_first(now);
        if outlook != before {
            self.call_first(outlook, now, after);
        }
    }

    /// Wakes the first in line, unless there is still nothing to be told.
    fn call_first(&mut self, outlook: Option<Outlook>, now: Tick, after: &mut After) {
        let Some(outlook) = outlook else { return };
        if outlook != Outlook::Unknown {
            let first = self.line.first();
            after.call = first.map(|first| first.call(now, Duration::ZERO));
        }
        after.look = self.watch.expect_at(outlook.turn_at(now));
        if self.line.is_anybody_behind() {
            after.start = self.watch.begin(None);
        }
    }

    fn outlook_of_first(&mut self, now: Tick) -> Option<Outlook> {
        let first = self.line.first()?;
        Some(self.stock.outlook(now, first.cost()))
    }

    fn is_turn_of(&self, place: Option<Ticket>) -> bool {
        let place = place.map_or(Place::Outside, Place::InLine);
        self.line.is_turn_of(place)
    }

    fn stand(&mut self, place: &mut Option<Ticket>, count: u32, waker: &Waker, after: &mut After) {
        if let Some(ticket) = *place {
            self.line.come_back(ticket);
            after.drop = self.line.ask_again(ticket, count, Asker::Told(waker));
        } else {
            *place = Some(self.line.join(Waiter::new(count, Asker::Told(waker))));
        }
    }

    /// Without a cool-down, and with nobody in line, nobody needs the time, and nobody looks at it.
    fn now(&mut self) -> Tick {
        if self.stock.keeps_time() || !self.line.is_empty() {
            self.clock.now()
        } else {
            Tick::ZERO
        }
    }
}

impl Watched for Mutex<Desk> {
    fn lose_patience(&self, task: &Waker) -> Next {
        locked(self, |desk, after| desk.lose_patience(task, after))
    }

    fn is_watched(&self) {
        locked(self, |desk, _| desk.watch.has_begun());
    }

    fn is_not_watched(&self) {
        locked(self, Desk::is_not_watched);
    }
}

/// What is left to do when the lock is released: a waker runs foreign code when it wakes and when it is dropped, and that
/// may ask for one of these very permits.
#[derive(Default)]
#[must_use = "somebody may have to be woken"]
pub(super) struct After {
    call: Option<Call>,
    look: Option<Waker>,
    start: Option<Start>,
    wake: Option<Waker>,
    drop: Option<Waiter>,
}

impl After {
    /// In place: most of the time there is little to do, and nothing worth to be moved.
    #[inline]
    fn run(&mut self) {
        drop(self.drop.take());
        self.look.take().into_iter().for_each(Waker::wake);
        self.start.take().into_iter().for_each(|start| start());
        self.wake.take().into_iter().for_each(Waker::wake);
        self.call.take().into_iter().for_each(Call::make);
    }
}

/// What is behind the lock.
pub(super) fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    // Nothing panics half-way in there but the clone of a foreign waker, and the sums are done by then.
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Under the lock wakers are cloned, but nobody is woken and nothing is dropped.
pub(super) fn work<T>(
    mut desk: MutexGuard<'_, Desk>,
    work: impl FnOnce(&mut Desk, &mut After) -> T,
) -> T {
    let mut after = After::default();
    let done = work(&mut desk, &mut after);
    drop(desk);
    after.run();
    done
}

/// Both.
pub(super) fn locked<T>(
    desk: &Mutex<Desk>,
    work_there: impl FnOnce(&mut Desk, &mut After) -> T,
) -> T {
    work(lock(desk), work_there)
}
