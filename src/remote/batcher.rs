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
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, yield_now};

use crate::time::{Tick, Timer};

use super::connection::{Connection, OnDrop};
use super::error::{CallError, Failure};
use super::window::Window;
use super::{Ask, Replies, Reply, Store};

/// How long an incomplete call waits for more keys while another call is under way.
const GATHER: Duration = Duration::from_millis(1);

/// After this many deadlines a call has failed even if others are answered: one node of a cluster may be down.
const LONGEST_CALL: u32 = 4;

/// Something that asks the server about one key when the batcher lets it: a queue of requests.
///
/// Its [`Stage`] is under its own lock.
pub(crate) trait Source<S: Store>: Send + Sync {
    /// What there is to do now. Called when the source was pushed, and when its sleep is over. An extra call does no harm.
    fn next(self: Arc<Self>, now: Tick) -> Step<S>;

    /// Takes the answer to the question of that name, which was `sent` at that time. If there is more to do, it pushes itself.
    fn complete(self: Arc<Self>, call: u64, sent: Tick, answer: Result<Answer<S>, CallError>);

    /// The batcher's task was dropped with its runtime. Callers have to ask again.
    fn task_dropped(self: Arc<Self>);
}

/// The answer to what a source asked.
#[derive(Debug)]
pub(crate) enum Answer<S: Store> {
    Decided(Reply<S>),
    Leases(S::LeasesReply),
}

#[derive(Debug)]
pub(crate) enum Step<S: Store> {
    /// A question, and its name.
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
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Nowhere. Its request may be under way.
    #[default]
    Idle,
    /// It was pushed, and is asked for its next step.
    Ready,
    Sleeping(Tick),
}

/// Obliges its holder to push the source that was made ready.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wake {
    sleeping_until: Option<Tick>,
}

impl Stage {
    /// `None` if the source is ready already.
    pub(crate) const fn make_ready(&mut self) -> Option<Wake> {
        let sleeping_until = match mem::replace(self, Self::Ready) {
            Self::Ready => return None,
            Self::Idle => None,
            Self::Sleeping(until) => Some(until),
        };
        Some(Wake { sleeping_until })
    }
}

/// Merges what many keys ask at the same time into few calls of one connection.
///
/// * A call is sent at once if none is under way. Otherwise keys gather until a call is full, or for a millisecond.
/// * Each key stands in the schedule once. How many keys are under way is bounded by what the server was measured to answer in
///   time, so a herd of keys waits here and not at the server, where it would look like an outage.
/// * A call has failed when nothing was answered for a deadline. The time in the schedule does not count.
pub(crate) struct Batcher<S: Store> {
    pub(crate) connection: Arc<Connection<S>>,
    schedule: Mutex<Schedule<S>>,
    /// Wakes the task.
    changed: Notify,
}

/// One task sends the calls. It ends when there is nothing to do.
struct Schedule<S: Store> {
    ready: VecDeque<Arc<dyn Source<S>>>,
    /// By when the sleep ends, and the address of the source.
    sleeping: BTreeMap<(Tick, usize), Sleeper<S>>,
    has_task: bool,
}

struct Sleeper<S: Store> {
    source: Arc<dyn Source<S>>,
    or_connected: bool,
}

/// The address identifies a source while the schedule holds it.
fn address<S: Store>(source: &Arc<dyn Source<S>>) -> usize {
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

    /// Adds a source that was made ready, and starts the task if there is none.
    ///
    /// Outside a runtime the source waits for the next caller that is in one.
    pub(crate) fn push(self: &Arc<Self>, source: Arc<dyn Source<S>>, wake: Wake) {
        let mut schedule = self.locked();
        if let Some(until) = wake.sleeping_until {
            schedule.sleeping.remove(&(until, address(&source)));
        }
        schedule.ready.push_back(source);
        drop(schedule);
        self.changed.notify_one();
        if let Ok(runtime) = Handle::try_current() {
            self.start_task(&runtime);
        }
    }

    /// Adds a source that asks once.
    pub(crate) fn push_once(self: &Arc<Self>, source: Arc<dyn Source<S>>) {
        let wake = Wake {
            sleeping_until: None,
        };
        self.push(source, wake);
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
        let sleeping = sleeping.into_values().map(|sleeper| sleeper.source);
        for source in ready.into_iter().chain(sleeping) {
            source.task_dropped();
        }
    }

    fn locked(&self) -> MutexGuard<'_, Schedule<S>> {
        // No code under this lock can leave the schedule half changed.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, on_drop: OnDrop<impl FnOnce()>) {
        let mut calls = Calls::new(&self);
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
                let is_done = calls.poll_done(cx).is_ready();
                let has_event = changed.as_mut().poll(cx).is_ready()
                    | connected.as_mut().poll(cx).is_ready()
                    | timer.poll_elapsed(cx).is_ready();
                if is_done || has_event {
                    return Poll::Ready(());
                }
                Poll::Pending
            })
            .await;
        }
    }

    /// Makes sources ready whose sleep is over. A new connection ends the sleep of those that wait for one.
    fn wake_sleepers(&self, now: Tick, calls: &mut Calls<'_, S>) {
        let connects = self.connection.stats().connects;
        let is_new = mem::replace(&mut calls.connects, connects) != connects;
        let mut schedule = self.locked();
        let Schedule {
            ready, sleeping, ..
        } = &mut *schedule;
        while let Some(entry) = sleeping.first_entry()
            && entry.key().0 <= now
        {
            ready.push_back(entry.remove().source);
        }
        if is_new {
            sleeping.retain(|_, sleeper| {
                if sleeper.or_connected {
                    ready.push_back(Arc::clone(&sleeper.source));
                }
                !sleeper.or_connected
            });
        }
    }

    /// Takes sources until a call is full or none is ready, and sends the call.
    fn send(&self, now: Tick, calls: &mut Calls<'_, S>) {
        let most = calls.room();
        let (mut sources, mut asks) = (Vec::new(), Vec::new());
        while asks.len() < most {
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
                    let sleeper = Sleeper {
                        source,
                        or_connected,
                    };
                    let key = (until, address(&sleeper.source));
                    self.locked().sleeping.insert(key, sleeper);
                }
                Step::Lease(leases) => calls.lease(now, source, leases),
                Step::Idle => {}
            }
        }
        if !asks.is_empty() {
            calls.send(now, sources, asks);
        }
    }

    /// When the task has to look again by itself. `None` if there is nothing to do: then there is no task any more.
    fn next_event(&self, now: Tick, calls: &Calls<'_, S>) -> Option<Tick> {
        let mut schedule = self.locked();
        let gathered = (!schedule.ready.is_empty()).then(|| calls.gathers_until(now));
        let wakes = schedule.sleeping.first_key_value();
        let wakes = wakes.map(|((until, _), _)| *until);
        let events = [gathered.flatten(), wakes, calls.silent_at()];
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
struct Calls<'a, S: Store> {
    batcher: &'a Arc<Batcher<S>>,
    tasks: JoinSet<Ended<S>>,
    under_way: HashMap<Id, Call<S>>,
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
    /// The questions by their names, in order.
    sources: Vec<(u64, Arc<dyn Source<S>>)>,
}

impl<'a, S: Store> Calls<'a, S> {
    fn new(batcher: &'a Arc<Batcher<S>>) -> Self {
        let connection = &batcher.connection;
        Self {
            batcher,
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
            window: Window::new(connection.deadline(), connection.store().keys_per_call()),
            last_sent: Tick::ZERO,
            last_answer: Tick::ZERO,
            connects: connection.stats().connects,
        }
    }

    fn room(&self) -> usize {
        self.window.per_call.min(self.window.room())
    }

    /// Whether a call may be sent now, with so many sources ready.
    fn may_send(&self, now: Tick, ready: usize) -> bool {
        let is_full = ready >= self.room();
        let has_gathered = self.under_way.is_empty() || self.last_sent.after(GATHER) <= now;
        ready > 0 && self.window.room() > 0 && (is_full || has_gathered)
    }

    /// When ready sources are sent even if their call is not full. `None` while nothing more may be under way.
    fn gathers_until(&self, now: Tick) -> Option<Tick> {
        (self.window.room() > 0).then(|| self.last_sent.after(GATHER).max(now))
    }

    fn send(&mut self, now: Tick, sources: Vec<(u64, Arc<dyn Source<S>>)>, asks: Vec<Ask<S>>) {
        let connection = Arc::clone(&self.batcher.connection);
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
        sources: Vec<(u64, Arc<dyn Source<S>>)>,
        work: impl FnOnce(Arc<S::Connection>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Replies<Answer<S>>, Failure>> + Send,
    {
        let connection = Arc::clone(&self.batcher.connection);
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

    fn lease(&mut self, now: Tick, source: Arc<dyn Source<S>>, leases: S::Leases) {
        self.spawn(now, vec![(0, source)], |opened| async move {
            let (time, reply) = S::lease(&opened, &leases).await?;
            Ok((time, vec![Ok(Answer::Leases(reply))]))
        });
    }

    /// Hands on the replies that have come. Ready if there was one.
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut done = Poll::Pending;
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next_with_id(cx) {
            self.ended(ended);
            done = Poll::Ready(());
        }
        done
    }

    fn ended(&mut self, ended: Result<(Id, Ended<S>), JoinError>) {
        let (id, used, outcome) = match ended {
            Ok((id, (used, outcome))) => (id, used, outcome),
            // The client library panicked, and may do so again on this connection.
            Err(error) => {
                let used = self.batcher.connection.current();
                let why = Failure::Unreachable(error.to_string().into());
                (error.id(), used, Err(CallError::failed(why)))
            }
        };
        let Some(call) = self.under_way.remove(&id) else {
            return;
        };
        let now = self.batcher.connection.now();
        if outcome.is_ok() {
            self.last_answer = now;
        }
        let took = outcome.is_ok().then(|| now.since(call.sent));
        let sent = (call.sent, call.was_alone);
        self.window.ended(sent, now, call.sources.len(), took);
        self.batcher.connection.record(used.as_ref(), &outcome);
        self.hand_on(call, outcome);
    }

    fn hand_on(&self, call: Call<S>, outcome: Outcome<S>) {
        let mut outcome = outcome.map(|(_, replies)| replies.into_iter());
        let no_reply = || Err(Failure::Fault("no reply".into()));
        for (number, source) in call.sources {
            let reply = match &mut outcome {
                Ok(replies) => {
                    let reply = replies.next().unwrap_or_else(no_reply);
                    self.batcher.connection.checked(reply)
                }
                Err(error) => Err(error.clone()),
            };
            source.complete(number, call.sent, reply);
        }
    }

    /// When calls under way have failed, if nothing is answered before.
    fn silent_at(&self) -> Option<Tick> {
        let deadline = self.batcher.connection.deadline();
        let first = self.under_way.values().map(|call| call.sent).min()?;
        let silent = first.max(self.last_answer).after(deadline);
        Some(silent.min(first.after_times(deadline, LONGEST_CALL)))
    }

    /// Fails all calls if nothing was answered in time, and otherwise those that are under way for too long.
    fn fail_silent(&mut self, now: Tick) {
        let deadline = self.batcher.connection.deadline();
        let longest_since = |call: &Call<S>| call.sent.after_times(deadline, LONGEST_CALL);
        let first = self.under_way.values().map(|call| call.sent).min();
        let is_silent =
            first.is_some_and(|first| first.max(self.last_answer).after(deadline) <= now);
        let (failed, others): (HashMap<_, _>, _) = mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(_, call)| is_silent || longest_since(call) <= now);
        self.under_way = others;
        if failed.is_empty() {
            return;
        }
        self.batcher.connection.record_silence(failed.len() as u64);
        if is_silent {
            self.window.silent(now);
        }
        for call in failed.into_values() {
            call.task.abort();
            let sent = (call.sent, call.was_alone);
            self.window.ended(sent, now, call.sources.len(), None);
            self.hand_on(call, Err(CallError::failed(Failure::Timeout)));
        }
    }
}

/// The calls under way when the task is dropped.
impl<S: Store> Drop for Calls<'_, S> {
    fn drop(&mut self) {
        let calls = mem::take(&mut self.under_way).into_values();
        for (_, source) in calls.flat_map(|call| call.sources) {
            source.task_dropped();
        }
    }
}
