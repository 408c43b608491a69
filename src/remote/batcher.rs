use core::fmt;
use core::future::{Future, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::Poll;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::time::{Tick, Timer};

use super::Store;
use super::calls::{Calls, GATHER};
use super::connection::{Connection, OnDrop};
use super::error::CallError;
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
pub(crate) struct Batcher<S: Store> {
    pub(crate) connection: Arc<Connection<S>>,
    pub(crate) overrides: Arc<Overrides<S>>,
    schedule: Mutex<Schedule<S>>,
    /// Wakes the task.
    changed: Notify,
}

/// One task sends the calls. It ends when there is nothing to do.
struct Schedule<S: Store> {
    ready: VecDeque<AnySource<S>>,
    /// By the end of the sleep and the address of the source. The `bool` is `or_connected`.
    sleeping: BTreeMap<(Tick, usize), (AnySource<S>, bool)>,
    has_task: bool,
    /// Whether overrides are due although nothing is asked.
    wants_overrides: bool,
    /// How many connections had been made when the task looked last, and how many changes of overrides.
    seen: (u64, u64),
}

impl<S: Store> Batcher<S> {
    /// The limits of a namespace have their overrides in common.
    pub(crate) fn new(connection: Arc<Connection<S>>, namespace: Arc<str>) -> Self {
        Self {
            connection,
            overrides: Arc::new(Overrides::new(namespace)),
            schedule: Mutex::new(Schedule {
                ready: VecDeque::new(),
                sleeping: BTreeMap::new(),
                has_task: false,
                wants_overrides: false,
                seen: (0, 0),
            }),
            changed: Notify::new(),
        }
    }

    /// Adds a source that was made ready, by its stage before, and starts the task if there is none.
    ///
    /// Outside a runtime the source waits for the next caller that is in one.
    pub(crate) fn push(self: &Arc<Self>, source: AnySource<S>, before: Stage) {
        let mut schedule = self.locked();
        if let Stage::Sleeping(until) = before {
            schedule.sleeping.remove(&(until, address(&source)));
        }
        schedule.ready.push_back(source);
        drop(schedule);
        self.changed.notify_one();
        if let Ok(runtime) = Handle::try_current() {
            self.start_task(&runtime);
        }
    }

    /// Reads the overrides although there is nothing to ask. Outside a runtime it does nothing.
    pub(crate) fn read_overrides(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current()
            && !self.connection.is_down()
        {
            self.locked().wants_overrides = true;
            self.changed.notify_one();
            self.start_task(&runtime);
        }
    }

    /// Changes an override in this process at once, and on the server.
    pub(crate) async fn change(
        &self,
        name: &str,
        change: &Change<S::Params>,
    ) -> Result<(), CallError> {
        let (connection, overrides) = (&self.connection, &self.overrides);
        let sent = connection.now();
        overrides.apply(sent, name, change);
        // Waiters may be able to pass.
        self.changed.notify_one();
        let reply = connection.call(|opened| async move {
            let change = Some((name, change));
            let reply = overrides.exchange(connection, &opened, change).await?;
            Ok((reply.time, reply))
        });
        let reply = reply.await?;
        overrides.accept(connection.now(), sent, Some(Ok(reply)));
        self.changed.notify_one();
        Ok(())
    }

    /// Starts the task if there is none. Callers that wait for an answer do so, because a source may have been pushed outside a
    /// runtime.
    pub(crate) fn start_task(self: &Arc<Self>, runtime: &Handle) {
        if mem::replace(&mut self.locked().has_task, true) {
            return;
        }
        let batcher = Arc::clone(self);
        let on_drop = OnDrop::new(move || batcher.task_dropped());
        drop(runtime.spawn(Arc::clone(self).run(on_drop)));
    }

    /// A runtime that shuts down dropped the task. The next caller starts another.
    fn task_dropped(&self) {
        let mut schedule = self.locked();
        schedule.has_task = false;
        let ready = mem::take(&mut schedule.ready);
        let sleeping = mem::take(&mut schedule.sleeping);
        drop(schedule);
        let sleeping = sleeping.into_values().map(|(source, _)| source);
        for source in ready.into_iter().chain(sleeping) {
            source.task_dropped();
        }
    }

    fn locked(&self) -> MutexGuard<'_, Schedule<S>> {
        // No code under this lock can leave the schedule half changed.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, on_drop: OnDrop<impl FnOnce()>) {
        let mut calls = Calls::new(Arc::clone(&self.connection), Arc::clone(&self.overrides));
        let mut timer = Timer::new();
        loop {
            let now = self.connection.now();
            let connects = self.wake_sleepers(now);
            if calls.silent_at().is_some_and(|silent_at| silent_at <= now) {
                // The reply may have come while this process, and not the server, was late.
                yield_now().await;
                let _ = poll_fn(|cx| Poll::Ready(calls.poll_done(cx))).await;
                calls.fail_silent(now);
            }
            calls.drop_late(now);
            while calls.may_send(now, self.locked().ready.len()) {
                self.send(now, &mut calls);
            }
            if self.must_read(now, &calls) {
                calls.read(now);
            }
            let Some(until) = self.next_event(now, &calls) else {
                return on_drop.disarm();
            };
            timer.arm(until.since(now));
            let mut changed = pin!(self.changed.notified());
            let mut connected = pin!(self.connection.connected_more_often_than(connects));
            poll_fn(|cx| {
                let has_event = calls.poll_done(cx).is_ready()
                    | changed.as_mut().poll(cx).is_ready()
                    | connected.as_mut().poll(cx).is_ready()
                    | timer.poll_elapsed(cx).is_ready();
                if has_event {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
    }

    /// Makes each source ready whose sleep is over. A new connection also ends a sleep with `or_connected`, and a changed override
    /// ends every sleep. Returns how many connections had been made.
    fn wake_sleepers(&self, now: Tick) -> u64 {
        let seen = (self.connection.stats().connects, self.overrides.changes());
        let mut schedule = self.locked();
        let before = mem::replace(&mut schedule.seen, seen);
        let (is_new, has_changed) = (before.0 != seen.0, before.1 != seen.1);
        let Schedule {
            ready, sleeping, ..
        } = &mut *schedule;
        while let Some(entry) = sleeping.first_entry()
            && entry.key().0 <= now
        {
            ready.push_back(entry.remove().0);
        }
        if is_new || has_changed {
            sleeping.retain(|_, (source, or_connected)| {
                let wakes = has_changed || *or_connected;
                if wakes {
                    ready.push_back(Arc::clone(source));
                }
                !wakes
            });
        }
        seen.0
    }

    /// Whether the overrides have to be read by a call of their own.
    fn must_read(&self, now: Tick, calls: &Calls<S>) -> bool {
        let mut schedule = self.locked();
        let is_wanted = mem::take(&mut schedule.wants_overrides) || !schedule.sleeping.is_empty();
        drop(schedule);
        let is_due = |read_at| read_at <= now;
        is_wanted && self.next_read(calls).is_some_and(is_due)
    }

    /// When the overrides have to be read, if a source asks nothing before.
    fn next_read(&self, calls: &Calls<S>) -> Option<Tick> {
        let read_at = self.overrides.read_at();
        read_at.filter(|_| !calls.is_reading() && self.connection.is_up())
    }

    /// Takes sources until a call is full or none is ready, and sends the call.
    fn send(&self, now: Tick, calls: &mut Calls<S>) {
        let (mut sources, mut asks) = (Vec::new(), Vec::new());
        // A call for leases takes its part of the room at once.
        while asks.len() < calls.room() {
            let Some(source) = self.locked().ready.pop_front() else {
                break;
            };
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
                    self.locked().sleeping.insert(key, (source, or_connected));
                }
                Step::Lease(leases) => calls.lease(now, source, leases),
                Step::Idle => {}
            }
        }
        if !asks.is_empty() {
            calls.send(now, sources, asks);
        }
    }

    /// When the task has to look again. `None` if there is nothing to do: then the task ends.
    fn next_event(&self, now: Tick, calls: &Calls<S>) -> Option<Tick> {
        let mut schedule = self.locked();
        // Ready sources are sent even if their call is not full, unless nothing more may be under way.
        let is_gathering = !schedule.ready.is_empty() && calls.window.room() > 0;
        let gathered = is_gathering.then(|| calls.last_sent.after(GATHER).max(now));
        let wakes = schedule.sleeping.first_key_value();
        let wakes = wakes.map(|((until, _), _)| *until);
        let next_read = wakes.and_then(|_| self.next_read(calls));
        let events = [
            gathered,
            wakes,
            next_read,
            calls.silent_at(),
            calls.late_until(),
        ];
        let first = events.into_iter().flatten().min();
        if first.is_none() {
            schedule.has_task = false;
        }
        first
    }
}

impl<S: Store> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
