use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::Handle;

use crate::policy::Policy;
use crate::time::{Tick, Timer};

use super::desk::{Desk, locked};

/// How long whoever is first in line may let their turn go by before others pass.
///
/// A task that runs at all comes within microseconds of its turn, so this is long enough; and a limit whose first waiter was
/// forgotten stands still no longer than this. It is waited in two halves, the second one from when the first was noticed to
/// be over: where the whole runtime is late, nobody is overtaken for it.
const PATIENCE: Duration = Duration::from_millis(10);

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
    /// When the task looks again, and how to make it look earlier.
    looks_at: Tick,
    task: Option<Waker>,
    start: Start,
}

/// Starts the task. Not to be called under a lock of the limit.
pub(super) type Start = Arc<dyn Fn() + Send + Sync>;

impl Watch {
    pub(super) fn new(start: Start) -> Self {
        Self {
            turn_at: Tick::MAX,
            noticed_at: None,
            is_watched: false,
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

    /// Somebody stands behind the first. Gives back what starts the task, if there is none.
    pub(super) fn begin(&mut self) -> Option<Start> {
        let was_watched = core::mem::replace(&mut self.is_watched, true);
        (!was_watched).then(|| Arc::clone(&self.start))
    }

    /// There is no task any more.
    pub(super) fn end(&mut self) {
        self.is_watched = false;
        self.task = None;
        self.looks_at = Tick::MAX;
    }

    /// How long to look away `now`: nothing, if the first in line has let their turn go by for too long.
    pub(super) fn look(&mut self, now: Tick) -> Duration {
        let first_half = self.turn_at.after(PATIENCE / 2);
        if now < first_half {
            return first_half.since(now);
        }
        let second_half = self.noticed_at.get_or_insert(now).after(PATIENCE / 2);
        second_half.since(now)
    }

    pub(super) fn look_again_at(&mut self, looks_at: Tick, task: &Waker) {
        self.looks_at = looks_at;
        self.task = Some(task.clone());
    }
}

/// The limit is gone, and with it what the task is for.
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

/// What starts a task that watches this desk.
pub(super) fn watcher<P>(desk: &Weak<Mutex<Desk<P>>>) -> Start
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    let desk = Weak::clone(desk);
    Arc::new(move || {
        let watcher = Watcher {
            desk: Weak::clone(&desk),
            timer: Timer::new(),
            is_done: false,
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(watcher);
        }
    })
}

/// The task. It ends when nobody stands behind the first, when the limit is gone, or with its runtime.
struct Watcher<P: Policy> {
    desk: Weak<Mutex<Desk<P>>>,
    timer: Timer,
    /// Another one may watch by now.
    is_done: bool,
}

impl<P: Policy> Future for Watcher<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let left = this.desk.upgrade().and_then(|desk| {
                locked(&desk, |desk, after| desk.lose_patience(cx.waker(), after))
            });
            let Some(left) = left else {
                this.is_done = true;
                return Poll::Ready(());
            };
            this.timer.arm(left);
            ready!(this.timer.poll_elapsed(cx));
        }
    }
}

/// Also when it could not be started, or its runtime ended.
impl<P: Policy> Drop for Watcher<P> {
    fn drop(&mut self) {
        if let Some(desk) = self.desk.upgrade().filter(|_| !self.is_done) {
            locked(&desk, Desk::is_not_watched);
        }
    }
}
