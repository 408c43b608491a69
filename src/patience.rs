use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use crate::time::{Tick, Timer};

/// How long whoever is first in line may let their turn go by before others pass.
///
/// A task that runs at all comes within microseconds of its turn, so this is long enough; and a line whose first waiter was
/// forgotten stands still no longer than this. It is waited in two halves, the second one from when the first was noticed to
/// be over: where the whole runtime is late, nobody is overtaken for it.
const PATIENCE: Duration = Duration::from_millis(10);

/// A line behind its lock, and the [`Watch`] over it.
pub(super) trait Watched: Send + Sync + 'static {
    /// If the first in line has let their turn go by for too long, they step aside and the next one is called.
    fn lose_patience(&self, task: &Waker) -> Next;

    /// The task has been started, and will say so if it is dropped.
    fn is_watched(&self);

    /// The task that watched is gone before its time. Whoever stands second asks again, and starts another where they are.
    fn is_not_watched(&self);
}

/// What the task does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    LookIn(Duration),
    /// Nobody knows when the turn of the first one comes. There is no timer until then: it would move a paused clock.
    WaitForCall,
    /// Nobody is kept waiting by another.
    End,
}

/// Keeps an eye on the first in line, while there is somebody behind.
///
/// The watching itself is done by a small task, since it must go on when none of those in line is polled. A task and not a
/// bare timer, since a task ends with its runtime in peace; the next one who comes starts another.
pub(super) struct Watch {
    /// Since when the first could have passed.
    turn_at: Tick,
    /// When the first half of the patience was found to be over.
    noticed_at: Option<Tick>,
    is_watched: bool,
    /// The ticket of who is just starting the task.
    starter: Option<u64>,
    /// When the task looks again, and how to make it look earlier.
    looks_at: Tick,
    task: Option<Waker>,
    start: Start,
}

/// Starts the task. Not to be called under the lock of the line.
pub(super) type Start = Arc<dyn Fn() + Send + Sync>;

impl Watch {
    pub(super) fn new(start: Start) -> Self {
        Self {
            turn_at: Tick::MAX,
            noticed_at: None,
            is_watched: false,
            starter: None,
            looks_at: Tick::MAX,
            task: None,
            start,
        }
    }

    /// The first in line, maybe another one than before, could pass from this instant on. Gives back the waker of the task, if
    /// it has to look earlier than it meant to.
    pub(super) fn expect_at(&mut self, turn_at: Tick) -> Option<Waker> {
        self.turn_at = turn_at;
        self.noticed_at = None;
        let is_too_late = self.turn_at.after(PATIENCE / 2) < self.looks_at;
        self.task.take_if(|_| is_too_late)
    }

    /// Somebody stands behind the first. Gives back what starts the task, if there is none and here is a runtime for it.
    ///
    /// `starter` is the ticket of who asks, if it is one of those in line.
    pub(super) fn begin(&mut self, starter: Option<u64>) -> Option<Start> {
        if self.is_watched || Handle::try_current().is_err() {
            return None;
        }
        self.is_watched = true;
        self.starter = starter;
        Some(Arc::clone(&self.start))
    }

    /// The line is empty. Gives back the waker of the task, which has nothing to wait for any more.
    pub(super) fn dismiss(&mut self) -> Option<Waker> {
        self.task.take()
    }

    /// The task has been started.
    pub(super) fn has_begun(&mut self) {
        self.starter = None;
    }

    /// There is no task any more. Gives back who could not even start it: a runtime that has ended drops a task at once, and if
    /// they asked again there, the next one would be dropped too, over and over.
    pub(super) fn end(&mut self) -> Option<u64> {
        self.is_watched = false;
        self.task = None;
        self.looks_at = Tick::MAX;
        self.starter.take()
    }

    /// Whether the first in line has let their turn go by for too long.
    pub(super) fn is_impatient(&mut self, now: Tick) -> bool {
        self.look(now).is_zero()
    }

    /// When `task` has to look again.
    pub(super) fn look_again(&mut self, now: Tick, task: &Waker) -> Next {
        let left = self.look(now);
        self.looks_at = now.after(left);
        self.task = Some(task.clone());
        if self.looks_at == Tick::MAX {
            Next::WaitForCall
        } else {
            Next::LookIn(left)
        }
    }

    /// How long to look away `now`.
    fn look(&mut self, now: Tick) -> Duration {
        let first_half = self.turn_at.after(PATIENCE / 2);
        if now < first_half {
            return first_half.since(now);
        }
        let second_half = self.noticed_at.get_or_insert(now).after(PATIENCE / 2);
        second_half.since(now)
    }
}

/// The line is gone, and with it what the task is for.
impl Drop for Watch {
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("turn_at", &self.turn_at)
            .field("is_watched", &self.is_watched)
            .finish_non_exhaustive()
    }
}

/// What starts a task that watches this line.
pub(super) fn watcher<W: Watched>(line: &Weak<W>) -> Start {
    let line = Weak::clone(line);
    Arc::new(move || {
        let watcher = Watcher {
            line: Weak::clone(&line),
            timer: Timer::new(),
            is_missed: true,
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(watcher);
        }
        if let Some(line) = line.upgrade() {
            line.is_watched();
        }
    })
}

/// The task. It ends when nobody stands behind the first, when the line is gone, or with its runtime.
struct Watcher<W: Watched> {
    line: Weak<W>,
    timer: Timer,
    /// Whether another one has to watch if this one is dropped.
    is_missed: bool,
}

impl<W: Watched> Future for Watcher<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let next = this.line.upgrade();
            match next.map_or(Next::End, |line| line.lose_patience(cx.waker())) {
                Next::LookIn(left) => this.timer.arm(left),
                Next::WaitForCall => {
                    this.timer.disarm();
                    return Poll::Pending;
                }
                Next::End => {
                    this.is_missed = false;
                    return Poll::Ready(());
                }
            }
            ready!(this.poll_elapsed(cx));
        }
    }
}

impl<W: Watched> Watcher<W> {
    /// In a runtime without timers this panics, and the next one that is started here would fare no better.
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.is_missed = false;
        let elapsed = self.timer.poll_elapsed(cx);
        self.is_missed = true;
        elapsed
    }
}

/// Also when it could not be started, or its runtime ended.
impl<W: Watched> Drop for Watcher<W> {
    fn drop(&mut self) {
        if let Some(line) = self.line.upgrade().filter(|_| self.is_missed) {
            line.is_not_watched();
        }
    }
}
