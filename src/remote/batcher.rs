use core::fmt;
use core::future::{Future, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinSet, yield_now};

use crate::time::{Tick, Timer};

use super::connection::{Connection, OnDrop};
use super::error::{CallError, Failure};
use super::window::Window;
use super::{Ask, Replies, Reply, Store};

/// How long an incomplete call waits for more keys while another call is under way.
const GATHER: Duration = Duration::from_millis(1);

/// After this many deadlines a call has failed even if others are answered: one node of a cluster may be down.
const LONGEST_CALL: u32 = 4;

/// How long the reply to a call that has failed is waited for, so that the permits that it took can be returned.
const LATEST_REPLY: Duration = Duration::from_secs(1);

/// A queue of requests that the batcher sends: of one key, or of a lease pool.
///
/// Its [`Stage`] is under its own lock.
pub(crate) trait Source<S: Store>: Send + Sync {
    /// The next step now. Called when the source was pushed, and when its sleep is over. An extra call does no harm.
    fn next(self: Arc<Self>, now: Tick) -> Step<S>;

    /// Takes the answer to the question with the id `call`, which was `sent` at that time. If there is more to do, the source
    /// pushes itself.
    fn complete(self: Arc<Self>, call: u64, sent: Tick, answer: Result<Answer<S>, CallError>);

    /// Takes the reply to a question that has failed before.
    ///
    /// Provided: does nothing.
    fn came_late(self: Arc<Self>, reply: &Reply<S>) {
        let _ = reply;
    }

    /// The batcher's task was dropped with its runtime. Callers have to ask again.
    fn task_dropped(self: Arc<Self>);
}

type AnySource<S> = Arc<dyn Source<S>>;

/// The answer to what a source asked.
#[derive(Debug)]
pub(crate) enum Answer<S: Store> {
    Decided(Reply<S>),
    Leases(Vec<i64>),
}

#[derive(Debug)]
pub(crate) enum Step<S: Store> {
    /// The id of a question, and the question.
    Ask(u64, Ask<S>),
    /// A question about leases. It is a call of its own.
    Lease(S::Leases),
    /// Nothing to ask before `until`, or before a new connection if `or_connected`.
    Sleep {
        until: Tick,
        or_connected: bool,
    },
    Idle,
}

/// Where a source is in the schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Not in the schedule. Its call may be under way.
    Idle,
    /// In the queue of sources that the batcher asks for their next step.
    Ready,
    Sleeping(Tick),
}

impl Stage {
    /// The stage before, with which the source has to be pushed. `None` if the source is ready already.
    #[must_use]
    pub(crate) fn make_ready(&mut self) -> Option<Self> {
        let before = mem::replace(self, Self::Ready);
        (before != Self::Ready).then_some(before)
    }
}

/// Merges what many keys ask at the same time into few calls of one connection.
///
/// * A call is sent at once if none is under way. Otherwise keys gather until a call is full, or for a millisecond.
/// * Each key stands in the schedule once. How many keys are under way is bounded by what the server was measured to answer in
///   time, so a herd of keys waits here and not at the server, where it would look like an outage.
/// * A call fails if the server answers nothing for a deadline. The time in the schedule does not count.
pub(crate) struct Batcher<S: Store> {
    pub(crate) connection: Arc<Connection<S>>,
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
}

/// The address identifies a source while the schedule holds it.
fn address<S: Store>(source: &AnySource<S>) -> usize {
    Arc::as_ptr(source).cast::<()>() as usize
}

impl<S: Store> Batcher<S> {
    pub(crate) fn new(connection: Arc<Connection<S>>) -> Self {
        Self {
            connection,
            schedule: Mutex::new(Schedule {
                ready: VecDeque::new(),
                sleeping: BTreeMap::new(),
                has_task: false,
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
        let mut calls = Calls::new(Arc::clone(&self.connection));
        let mut timer = Timer::new();
        loop {
            let now = self.connection.now();
            self.wake_sleepers(now, &mut calls);
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
            let Some(until) = self.next_event(now, &calls) else {
                return on_drop.disarm();
            };
            timer.arm(until.since(now));
            let mut changed = pin!(self.changed.notified());
            let mut connected = pin!(self.connection.connected_more_often_than(calls.connects));
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

    /// Makes each source ready whose sleep is over. A new connection also ends a sleep with `or_connected`.
    fn wake_sleepers(&self, now: Tick, calls: &mut Calls<S>) {
        let connects = self.connection.stats().connects;
        let is_new = mem::replace(&mut calls.connects, connects) != connects;
        let mut schedule = self.locked();
        let Schedule {
            ready, sleeping, ..
        } = &mut *schedule;
        while let Some(entry) = sleeping.first_entry()
            && entry.key().0 <= now
        {
            ready.push_back(entry.remove().0);
        }
        if is_new {
            sleeping.retain(|_, (source, or_connected)| {
                if *or_connected {
                    ready.push_back(Arc::clone(source));
                }
                !*or_connected
            });
        }
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
        let events = [gathered, wakes, calls.silent_at(), calls.late_until()];
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

/// The calls under way.
struct Calls<S: Store> {
    connection: Arc<Connection<S>>,
    tasks: JoinSet<Ended<S>>,
    under_way: HashMap<Id, Call<S>>,
    /// Calls that have failed by silence, and may still be answered.
    late: HashMap<Id, Call<S>>,
    window: Window,
    last_sent: Tick,
    last_answer: Tick,
    /// How many connections had been made when the task looked last.
    connects: u64,
}

/// The connection that a call used, and its reply.
type Ended<S> = (Option<Arc<<S as Store>::Connection>>, Outcome<S>);

type Outcome<S> = Result<Replies<Answer<S>>, CallError>;

struct Call<S: Store> {
    task: AbortHandle,
    sent: Tick,
    was_alone: bool,
    /// The id of each question, and its source, in the order of the call.
    sources: Vec<(u64, AnySource<S>)>,
}

impl<S: Store> Calls<S> {
    fn new(connection: Arc<Connection<S>>) -> Self {
        Self {
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
            late: HashMap::new(),
            window: Window::new(connection.deadline(), connection.store.keys_per_call()),
            last_sent: Tick::ZERO,
            last_answer: Tick::ZERO,
            connects: connection.stats().connects,
            connection,
        }
    }

    fn room(&self) -> usize {
        self.window.per_call.min(self.window.room())
    }

    /// Whether a call may be sent now. `ready` is the number of sources that are ready.
    fn may_send(&self, now: Tick, ready: usize) -> bool {
        let is_full = ready >= self.room();
        let has_gathered = self.under_way.is_empty() || self.last_sent.after(GATHER) <= now;
        ready > 0 && self.window.room() > 0 && (is_full || has_gathered)
    }

    fn send(&mut self, now: Tick, sources: Vec<(u64, AnySource<S>)>, asks: Vec<Ask<S>>) {
        let connection = Arc::clone(&self.connection);
        self.last_sent = now;
        self.spawn(now, sources, |opened| async move {
            let health = connection.health();
            let (time, replies) = S::decide(&opened, &health, &asks).await?;
            let answers = replies.into_iter().map(|reply| reply.map(Answer::Decided));
            Ok((time, answers.collect()))
        });
    }

    fn spawn<F>(
        &mut self,
        sent: Tick,
        sources: Vec<(u64, AnySource<S>)>,
        work: impl FnOnce(Arc<S::Connection>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Replies<Answer<S>>, Failure>> + Send,
    {
        let connection = Arc::clone(&self.connection);
        let task = self.tasks.spawn(async move {
            match connection.opened().await {
                Ok(opened) => {
                    let outcome = work(Arc::clone(&opened)).await;
                    (Some(opened), outcome.map_err(CallError::failed))
                }
                Err(error) => (None, Err(error)),
            }
        });
        let was_alone = self.window.sent(sources.len());
        let id = task.id();
        let call = Call {
            task,
            sent,
            was_alone,
            sources,
        };
        self.under_way.insert(id, call);
    }

    fn lease(&mut self, now: Tick, source: AnySource<S>, leases: S::Leases) {
        self.spawn(now, vec![(0, source)], |opened| async move {
            let (time, reply) = S::lease(&opened, &leases).await?;
            Ok((time, vec![Ok(Answer::Leases(reply))]))
        });
    }

    /// Gives the replies that have come to their sources. Ready if there was one.
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut done = Poll::Pending;
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next_with_id(cx) {
            done = Poll::Ready(());
            let (id, used, outcome) = match ended {
                Ok((id, (used, outcome))) => (id, used, outcome),
                // The client library panicked, and may do so again on this connection.
                Err(error) => {
                    let used = self.connection.current();
                    let why = Failure::Unreachable(error.to_string().into());
                    (error.id(), used, Err(CallError::failed(why)))
                }
            };
            if let Some(call) = self.under_way.remove(&id) {
                self.ended(&call, used.as_ref(), outcome);
            } else if let (Some(call), Ok((_, replies))) = (self.late.remove(&id), outcome) {
                for ((_, source), reply) in call.sources.into_iter().zip(replies) {
                    if let Ok(Answer::Decided(reply)) = reply {
                        source.came_late(&reply);
                    }
                }
            }
        }
        done
    }

    fn ended(&mut self, call: &Call<S>, used: Option<&Arc<S::Connection>>, outcome: Outcome<S>) {
        let now = self.connection.now();
        if outcome.is_ok() {
            self.last_answer = now;
        }
        let took = outcome.is_ok().then(|| now.since(call.sent));
        let sent = (call.sent, call.was_alone);
        self.window.ended(sent, now, call.sources.len(), took);
        self.connection.record(used, &outcome);
        self.hand_on(call, outcome);
    }

    fn hand_on(&self, call: &Call<S>, outcome: Outcome<S>) {
        let mut outcome = outcome.map(|(_, replies)| replies.into_iter());
        let no_reply = || Err(Failure::Fault("no reply".into()));
        for (number, source) in &call.sources {
            let reply = match &mut outcome {
                Ok(replies) => {
                    let reply = replies.next().unwrap_or_else(no_reply);
                    self.connection.checked(reply)
                }
                Err(error) => Err(error.clone()),
            };
            Arc::clone(source).complete(*number, call.sent, reply);
        }
    }

    /// When calls under way have failed, if nothing is answered before.
    fn silent_at(&self) -> Option<Tick> {
        let deadline = self.connection.deadline();
        let first = self.under_way.values().map(|call| call.sent).min()?;
        let silent = first.max(self.last_answer).after(deadline);
        Some(silent.min(first.after_times(deadline, LONGEST_CALL)))
    }

    /// Fails all calls if nothing was answered in time, and otherwise those that are under way for too long.
    fn fail_silent(&mut self, now: Tick) {
        let deadline = self.connection.deadline();
        let ends_by = |call: &Call<S>| call.sent.after_times(deadline, LONGEST_CALL);
        let first = self.under_way.values().map(|call| call.sent).min();
        let is_silent =
            first.is_some_and(|first| first.max(self.last_answer).after(deadline) <= now);
        let (failed, others): (HashMap<_, _>, _) = mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(_, call)| is_silent || ends_by(call) <= now);
        self.under_way = others;
        if failed.is_empty() {
            return;
        }
        self.connection.record_silence(failed.len() as u64);
        if is_silent {
            self.window.silent(now);
        }
        for (id, call) in failed {
            let sent = (call.sent, call.was_alone);
            self.window.ended(sent, now, call.sources.len(), None);
            self.hand_on(&call, Err(CallError::failed(Failure::Timeout)));
            self.late.insert(id, call);
        }
    }

    /// When the first of the late calls is given up.
    fn late_until(&self) -> Option<Tick> {
        let first = self.late.values().map(|call| call.sent).min();
        first.map(|sent| sent.after(LATEST_REPLY))
    }

    fn drop_late(&mut self, now: Tick) {
        self.late.retain(|_, call| {
            let is_kept = now < call.sent.after(LATEST_REPLY);
            if !is_kept {
                call.task.abort();
            }
            is_kept
        });
    }
}

/// The calls under way when the task is dropped.
impl<S: Store> Drop for Calls<S> {
    fn drop(&mut self) {
        let calls = mem::take(&mut self.under_way).into_values();
        for (_, source) in calls.flat_map(|call| call.sources) {
            source.task_dropped();
        }
    }
}
