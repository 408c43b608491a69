use core::fmt;
use core::future::poll_fn;
use core::mem;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::{Handle, Id};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use paceline::limiter::Switch;
use paceline::time::{Tick, Timer};

use super::Store;
use super::calls::{Calls, GATHER};
use super::connection::Connection;
use super::error::{CallError, Failure};
use super::overrides::{Change, Overrides};
use super::source::{AnySource, Stage, Step, address};

/// Merges what many keys ask at the same time into few calls of one connection.
///
/// * A call is sent at once if none is under way. Otherwise keys gather until a call is full, or for a millisecond.
/// * Each key stands in the schedule once. How many keys are under way is bounded by what the server was measured to answer in
///   time, so a herd of keys waits here and not at the server, where it would look like an outage.
/// * A call fails if the server answers nothing for a deadline. The time in the schedule does not count.
/// * While limits are in use, it reads once a second which overrides have changed: together with a call, or alone while all
///   sources sleep.
/// * One task does all this, and makes the calls itself: a decision spawns no task. It ends with the last handle of the batcher.
pub(crate) struct Batcher<S: Store> {
    pub(crate) connection: Arc<Connection<S>>,
    pub(crate) overrides: Arc<Overrides<S>>,
    schedule: Mutex<Schedule<S>>,
    /// A turn for each change of an override that may be under way.
    changes: Semaphore,
}

/// How many changes of overrides are under way at most: as many as a server answers well within a deadline. A provider may refuse
/// thousands of keys at the same time.
const MOST_CHANGES: usize = 16;

/// What the task has to look at.
///
/// Each runtime that uses the batcher has a task of its own, and only one of them is at work: until it has nothing left to do.
/// So callers never depend on an idle task in a runtime that stands still.
struct Schedule<S: Store> {
    /// Sources that were made ready, and the stage of each before.
    pushed: Vec<(AnySource<S>, Stage)>,
    /// Whether overrides are due although nothing is asked.
    wants_overrides: bool,
    /// The runtime of the task that is at work.
    at_work: Option<Id>,
    /// The tasks, by their runtime. The waker is `None` if the task was woken.
    tasks: Vec<(Id, Option<Waker>)>,
}

impl<S: Store> Batcher<S> {
    /// The limits of a namespace have their overrides in common.
    pub(crate) fn new(connection: Arc<Connection<S>>, namespace: Arc<str>) -> Self {
        Self {
            connection,
            overrides: Arc::new(Overrides::new(namespace)),
            schedule: Mutex::new(Schedule {
                pushed: Vec::new(),
                wants_overrides: false,
                at_work: None,
                tasks: Vec::new(),
            }),
            changes: Semaphore::new(MOST_CHANGES),
        }
    }

    /// Adds a source that was made ready, by its stage before.
    ///
    /// Outside a runtime the source waits for the next caller that is in one.
    pub(crate) fn push(self: &Arc<Self>, source: AnySource<S>, before: Stage) {
        self.look_again(|schedule| schedule.pushed.push((source, before)));
    }

    /// Reads the overrides although there is nothing to ask, if there is a connection.
    pub(crate) fn read_overrides(self: &Arc<Self>) {
        if self.connection.is_up() {
            self.look_again(|schedule| schedule.wants_overrides = true);
        }
    }

    /// The switch of that name. A request behind it has the overrides read if they are due, and connects for that.
    pub(crate) fn switch(self: &Arc<Self>, name: &str) -> Switch {
        self.overrides.switch(name, || {
            let batcher = Arc::downgrade(self);
            Switch::with_refresh(move || {
                if let Some(batcher) = batcher.upgrade() {
                    let connection = &batcher.connection;
                    let read_at = batcher.overrides.read_at();
                    if read_at.is_some_and(|at| at <= connection.now()) && !connection.is_down() {
                        batcher.look_again(|schedule| schedule.wants_overrides = true);
                    }
                }
            })
        })
    }

    /// Changes an override in this process at once, and on the server.
    pub(crate) async fn change(
        self: &Arc<Self>,
        name: &str,
        change: &Change<S::Params>,
    ) -> Result<(), CallError> {
        let (connection, overrides) = (&self.connection, &self.overrides);
        overrides.apply(connection.now(), name, change);
        // Waiters may be able to pass.
        self.look_again(|_| ());
        // Never closed.
        let _turn = self.changes.acquire().await;
        let sent = connection.now();
        let mut used = None;
        let answer = connection.within(connection.deadline(), async {
            let opened = used.insert(connection.opened().await?);
            let reply = overrides.exchange(connection, opened, Some((name, change)));
            let reply = reply.await.map_err(CallError::failed)?;
            Ok((reply.time, reply))
        });
        let answer = answer.await;
        let answer = answer.unwrap_or(Err(CallError::failed(Failure::Timeout)));
        connection.record(used.as_ref(), &answer);
        let (_, reply) = answer?;
        overrides.accept(connection.now(), sent, Some(Ok(reply)));
        self.look_again(|_| ());
        Ok(())
    }

    /// Has this runtime's task work off the sources pushed outside a runtime, if any.
    pub(crate) fn start_task(self: &Arc<Self>) {
        if self.locked().at_work.is_none() {
            self.look_again(|_| ());
        }
    }

    /// Changes the schedule, and wakes the task that is at work. If there is none, the task of this runtime goes to work.
    fn look_again(self: &Arc<Self>, change: impl FnOnce(&mut Schedule<S>)) {
        let runtime = Handle::try_current().ok();
        let mut schedule = self.locked();
        change(&mut schedule);
        let here = runtime.as_ref().map(Handle::id);
        schedule.at_work = schedule.at_work.or(here);
        let Some(at_work) = schedule.at_work else {
            return;
        };
        if let Some((_, waker)) = schedule.tasks.iter_mut().find(|(of, _)| *of == at_work) {
            let waker = waker.take();
            drop(schedule);
            waker.into_iter().for_each(Waker::wake);
        } else if let Some(runtime) = runtime {
            schedule.tasks.push((at_work, None));
            drop(schedule);
            drop(runtime.spawn(BatcherTask::new(self, at_work).run()));
        }
    }

    fn locked(&self) -> MutexGuard<'_, Schedule<S>> {
        // No code under this lock can leave the schedule half changed.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last handle is gone, and nothing is under way: the tasks end.
impl<S: Store> Drop for Batcher<S> {
    fn drop(&mut self) {
        let tasks = mem::take(&mut self.locked().tasks);
        let wakers = tasks.into_iter().filter_map(|(_, waker)| waker);
        wakers.for_each(Waker::wake);
    }
}

impl<S: Store> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher")
            .field("is_up", &self.connection.is_up())
            .finish_non_exhaustive()
    }
}

/// The task of one runtime. What it holds keeps the batcher alive; a task without work does not.
struct BatcherTask<S: Store> {
    batcher: Weak<Batcher<S>>,
    runtime: Id,
    ready: VecDeque<AnySource<S>>,
    /// By the end of the sleep and the address of the source. The `bool` is `or_connected`.
    sleeping: BTreeMap<(Tick, usize), (AnySource<S>, bool)>,
    /// How many connections had been made when the sleepers were last looked at, and how many changes of overrides.
    seen: (u64, u64),
    calls: Calls<S>,
    timer: Timer,
}

impl<S: Store> BatcherTask<S> {
    fn new(batcher: &Arc<Batcher<S>>, runtime: Id) -> Self {
        Self {
            batcher: Arc::downgrade(batcher),
            runtime,
            ready: VecDeque::new(),
            sleeping: BTreeMap::new(),
            seen: (0, 0),
            calls: Calls::new(
                Arc::clone(&batcher.connection),
                Arc::clone(&batcher.overrides),
            ),
            timer: Timer::new(),
        }
    }

    async fn run(mut self) {
        while let Some(now) = poll_fn(|cx| self.poll_turn(cx)).await {
            // The reply may have come while this process, and not the server, was late.
            yield_now().await;
            let _ = poll_fn(|cx| Poll::Ready(self.calls.poll_done(cx))).await;
            self.calls.fail_silent(now);
        }
    }

    /// One turn. Ready when a call under way was not answered in time, and with `None` when no handle is left.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Tick>> {
        let Some(batcher) = self.batcher.upgrade() else {
            return Poll::Ready(None);
        };
        let _ = self.calls.poll_done(cx);
        let (is_at_work, wants_overrides) = self.take_pushed(&batcher, cx.waker());
        let now = batcher.connection.now();
        self.wake_sleepers(&batcher, now);
        self.calls.skip_stall(now);
        if self.calls.silent_at().is_some_and(|at| at <= now) {
            return Poll::Ready(Some(now));
        }
        self.calls.drop_late(now);
        while self.calls.may_send(now, self.ready.len()) {
            self.send(now);
        }
        let may_read = wants_overrides || !self.sleeping.is_empty() && batcher.connection.is_up();
        let read_at = batcher.overrides.read_at();
        if may_read && !self.calls.is_reading() && read_at.is_some_and(|at| at <= now) {
            self.calls.read(now);
        }
        if self.has_event(&batcher, now, cx) || is_at_work && self.is_idle() {
            // The next turn is another poll, so that other tasks run in between.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.sleeping.is_empty() && self.calls.is_empty()
    }

    /// Takes the sources that were pushed, and has the next push wake this task. Returns whether it is at work, and whether
    /// overrides are wanted. Without work it is not at work any more.
    fn take_pushed(&mut self, batcher: &Batcher<S>, waker: &Waker) -> (bool, bool) {
        let mut schedule = batcher.locked();
        let mut tasks = schedule.tasks.iter_mut();
        if let Some((_, task)) = tasks.find(|(of, _)| *of == self.runtime) {
            task.get_or_insert_with(|| waker.clone());
        }
        if schedule.at_work != Some(self.runtime) {
            return (false, false);
        }
        let wants_overrides = mem::take(&mut schedule.wants_overrides);
        if self.is_idle() && schedule.pushed.is_empty() && !wants_overrides {
            schedule.at_work = None;
            return (false, false);
        }
        for (source, before) in schedule.pushed.drain(..) {
            if let Stage::Sleeping(until) = before {
                self.sleeping.remove(&(until, address(&source)));
            }
            self.ready.push_back(source);
        }
        (true, wants_overrides)
    }

    /// Makes each source ready whose sleep is over. A new connection also ends a sleep with `or_connected`, and a changed override
    /// ends every sleep.
    fn wake_sleepers(&mut self, batcher: &Batcher<S>, now: Tick) {
        if self.sleeping.is_empty() {
            return;
        }
        let connects = batcher.connection.stats().connects;
        let seen = (connects, batcher.overrides.changes());
        let before = mem::replace(&mut self.seen, seen);
        let (is_new, has_changed) = (before.0 != seen.0, before.1 != seen.1);
        while let Some(entry) = self.sleeping.first_entry()
            && entry.key().0 <= now
        {
            self.ready.push_back(entry.remove().0);
        }
        if is_new || has_changed {
            self.sleeping.retain(|_, (source, or_connected)| {
                let wakes = has_changed || *or_connected;
                if wakes {
                    self.ready.push_back(Arc::clone(source));
                }
                !wakes
            });
        }
    }

    /// When the overrides have to be read, if a source asks nothing before.
    fn next_read(&self, batcher: &Batcher<S>) -> Option<Tick> {
        let read_at = batcher.overrides.read_at();
        read_at.filter(|_| !self.calls.is_reading() && batcher.connection.is_up())
    }

    /// Takes sources until a call is full or none is ready, and sends the call.
    fn send(&mut self, now: Tick) {
        let most = self.calls.room().min(self.ready.len());
        let (mut sources, mut asks) = (Vec::with_capacity(most), Vec::with_capacity(most));
        // A call for leases takes its part of the room at once.
        while asks.len() < self.calls.room()
            && let Some(source) = self.ready.pop_front()
        {
            match Arc::clone(&source).next(now) {
                Step::Ask(call, ask) => {
                    asks.push(ask);
                    sources.push((call, source));
                }
                Step::Sleep {
                    until,
                    or_connected,
                } => {
                    let key = (until, address(&source));
                    self.sleeping.insert(key, (source, or_connected));
                }
                Step::Lease(leases) => self.calls.lease(now, source, leases),
                Step::Idle => {}
            }
        }
        if !asks.is_empty() {
            self.calls.send(now, sources, asks);
        }
    }

    /// Polls the calls, and arms the timer for the next event. Returns whether there is something to do at once.
    fn has_event(&mut self, batcher: &Batcher<S>, now: Tick, cx: &mut Context<'_>) -> bool {
        let is_done = self.calls.poll_done(cx).is_ready();
        let wakes = self.sleeping.keys().next().map(|(until, _)| *until);
        let is_connected = wakes.is_some() && batcher.connection.connects(cx.waker()) > self.seen.0;
        // Ready sources are sent even if their call is not full, unless nothing more may be under way.
        let is_gathering = !self.ready.is_empty() && self.calls.window.room() > 0;
        let events = [
            is_gathering.then(|| self.calls.last_sent.after(GATHER).max(now)),
            wakes,
            wakes.and_then(|_| self.next_read(batcher)),
            self.calls.look_at(),
            self.calls.late_until(),
        ];
        let Some(until) = events.into_iter().flatten().min() else {
            self.timer.disarm();
            return is_done;
        };
        self.timer.arm(until.since(now));
        self.timer.poll_elapsed(cx).is_ready() || is_done || is_connected
    }
}

/// The runtime has dropped the task, or no handle is left. Callers ask again, and the next one starts another task.
impl<S: Store> Drop for BatcherTask<S> {
    fn drop(&mut self) {
        let Some(batcher) = self.batcher.upgrade() else {
            return;
        };
        let mut schedule = batcher.locked();
        schedule.tasks.retain(|(of, _)| *of != self.runtime);
        let at_work = schedule.at_work.take_if(|of| *of == self.runtime);
        let pushed = at_work.map_or_else(Vec::new, |_| mem::take(&mut schedule.pushed));
        drop(schedule);
        let pushed = pushed.into_iter().map(|(source, _)| source);
        let sleeping = mem::take(&mut self.sleeping).into_values();
        let sources = pushed
            .chain(self.ready.drain(..))
            .chain(sleeping.map(|(source, _)| source))
            .chain(self.calls.take_sources());
        for source in sources {
            source.task_dropped();
        }
    }
}
