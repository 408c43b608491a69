use core::future::{Future, pending, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use paceline::time::{Clock, Tick, Timer};

use super::error::{CallError, Event, Failure, ServerError};
use super::health::{Breaker, ServerHealth, ServerRun, ServerStats};
use super::{LATE, Store};

/// The time limit of one attempt to connect, in deadlines: it takes several round trips. No caller waits that long.
const CONNECT_DEADLINES: u32 = 4;

/// It is at least [`LONGEST_PAUSE`], and at most this.
const LONGEST_CONNECT: Duration = Duration::from_secs(1);

/// The time from the start of an attempt to connect to the next. It doubles from the first value to the second.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Every call may meet the same fault. Its event is emitted no more often than this.
const FAULTS_APART: Duration = Duration::from_secs(1);

/// Owns the connection: opens it, notices that it no longer works, and replaces it.
///
/// The client library can reconnect by itself, but not after timeouts, and its callers wait meanwhile. Here each call has one
/// deadline, and a separate task connects.
pub(crate) struct Connection<S: Store> {
    pub(crate) store: S,
    deadline: Duration,
    clock: Clock,
    state: Mutex<ConnectionState<S>>,
    changed: Notify,
}

/// What is known about the connection. Its methods are given the time and the event.
struct ConnectionState<S: Store> {
    phase: Phase<S>,
    breaker: Breaker,
    health: ServerHealth,
    /// The pause before the next attempt to connect. It grows until a call on a new connection is answered.
    pause: Duration,
    stats: ServerStats,
    last_failure: Option<Failure>,
    /// When a fault was last reported.
    fault_reported: Option<Tick>,
    /// To be emitted after the lock is released.
    events: Vec<Event>,
    /// To be woken after the next attempt to connect.
    tasks: Vec<Waker>,
}

enum Phase<S: Store> {
    Idle,
    /// The first attempt ever, or the first after a connection broke, is under way. Calls wait for it.
    Connecting,
    Up(Arc<S::Connection>),
    /// Calls fail at once. Attempts to connect go on.
    Down,
    /// As `Down`, but the server works and refuses to let this client in. That is no outage.
    Refused(Failure),
}

impl<S: Store> Connection<S> {
    pub(crate) fn new(store: S, deadline: Duration) -> Self {
        let mut clock = Clock::new();
        // The first reading fixes the clock's origin, so that its clones agree.
        let _ = clock.now();
        Self {
            store,
            deadline,
            clock,
            state: Mutex::new(ConnectionState {
                phase: Phase::Idle,
                breaker: Breaker::default(),
                health: ServerHealth::default(),
                pause: Duration::ZERO,
                stats: ServerStats::default(),
                last_failure: None,
                fault_reported: None,
                events: Vec::new(),
                tasks: Vec::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// Waits for a connection as long as a call would.
    pub(crate) async fn connected_within(self: &Arc<Self>) -> Result<(), CallError> {
        let opened = self.within(self.deadline, self.opened()).await;
        match opened.unwrap_or(Err(CallError::failed(Failure::Timeout))) {
            Ok(_) => Ok(()),
            // A caller that only connects needs the cause, and not that the breaker is open.
            Err(error) if error.is_skipped() => {
                Err(self.last_failure().map_or(error, CallError::failed))
            }
            Err(error) => Err(error),
        }
    }

    /// The answer, or `None` if it takes longer. Time in which this process did not run does not count.
    pub(crate) async fn within<T>(
        &self,
        mut time: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            let until = self.now().after(time);
            if let Some(answer) = within(time, answer.as_mut()).await {
                return Some(answer);
            }
            time = self.now().since(until).min(time);
            if time <= LATE {
                return None;
            }
        }
    }

    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.clone().now()
    }

    pub(crate) fn health(&self) -> ServerHealth {
        self.locked().health.clone()
    }

    pub(crate) fn stats(&self) -> ServerStats {
        self.locked().stats
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut ServerStats)) {
        count(&mut self.locked().stats);
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.locked().phase, Phase::Up(_))
    }

    /// Whether calls fail at once.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.locked().phase, Phase::Down)
    }

    /// Why the server does not let this client in, as far as is known.
    pub(crate) fn refusal(&self) -> Option<ServerError> {
        match &self.locked().phase {
            Phase::Refused(why) => CallError::failed(why.clone()).server_error(),
            _ => None,
        }
    }

    pub(crate) fn last_failure(&self) -> Option<Failure> {
        self.locked().last_failure.clone()
    }

    /// How many connections have been made. The next attempt to make one wakes this task.
    pub(crate) fn connects(&self, task: &Waker) -> u64 {
        let mut state = self.locked();
        if !state.tasks.iter().any(|other| other.will_wake(task)) {
            state.tasks.push(task.clone());
        }
        state.stats.connects
    }

    /// Counts the failure of a part of a call that was answered.
    pub(crate) fn checked<T>(&self, reply: Result<T, Failure>) -> Result<T, CallError> {
        reply.map_err(|failure| {
            let now = self.now();
            let mut state = self.locked();
            state.count_failure(&failure);
            state.report_fault(now, &failure);
            emit(state);
            CallError::failed(failure)
        })
    }

    /// Nothing was answered for a deadline while that many calls were under way: one failure for the breaker.
    pub(crate) fn record_silence(self: &Arc<Self>, calls: u64) {
        let used = match &self.locked().phase {
            Phase::Up(opened) => Some(Arc::clone(opened)),
            _ => None,
        };
        self.count(|stats| stats.timeouts += calls - 1);
        self.record::<()>(used.as_ref(), &Err(CallError::failed(Failure::Timeout)));
    }

    /// The open connection. Waits for it only during the first attempt to make one.
    pub(crate) async fn opened(self: &Arc<Self>) -> Result<Arc<S::Connection>, CallError> {
        let mut has_started = false;
        loop {
            // It hears of every change from here on.
            let changed = self.changed.notified();
            let starts = {
                let mut state = self.locked();
                match &state.phase {
                    Phase::Up(opened) => return Ok(Arc::clone(opened)),
                    Phase::Down => return Err(CallError::CIRCUIT_OPEN),
                    Phase::Refused(why) => return Err(CallError::failed(why.clone())),
                    Phase::Connecting => false,
                    // The runtime is shutting down, and drops every new task.
                    Phase::Idle if has_started => return Err(CallError::CIRCUIT_OPEN),
                    Phase::Idle => {
                        state.phase = Phase::Connecting;
                        true
                    }
                }
            };
            if starts {
                has_started = true;
                self.start_to_connect();
            }
            changed.await;
        }
    }

    /// Records how a call ended. `used` is the connection that it used, if it did not end before there was one.
    pub(crate) fn record<T>(
        self: &Arc<Self>,
        used: Option<&Arc<S::Connection>>,
        answer: &Result<(u64, T), CallError>,
    ) {
        let now = self.now();
        let mut state = self.locked();
        let is_connecting = matches!(state.phase, Phase::Connecting);
        let answered_at = answer.as_ref().map(|(time, _)| *time);
        let is_given_up = state.record(now, used, answered_at);
        emit(state);
        if is_given_up && is_connecting {
            self.changed.notify_waiters();
        } else if is_given_up {
            self.start_to_connect();
        }
    }

    /// Spawns the task that connects. There is at most one: it runs from when the phase stops being [`Phase::Up`] until it is
    /// that again.
    ///
    /// Must not be called under the lock: a runtime that is shutting down drops the task, and with it the attempt, at once.
    fn start_to_connect(self: &Arc<Self>) {
        tokio::spawn(Connecting(Arc::downgrade(self)).run());
    }

    /// Opens a connection, and returns the server's run and time with it.
    async fn connect(&self) -> Result<(S::Connection, Option<ServerRun>, u64), Failure> {
        let time = self.deadline.saturating_mul(CONNECT_DEADLINES);
        let connect_within = time.clamp(LONGEST_PAUSE, LONGEST_CONNECT);
        let opened = within(connect_within, self.store.connect()).await;
        let opened = opened.unwrap_or(Err(Failure::Timeout))?;
        // A server that is too slow for this is too slow for calls.
        let time = self.within(self.deadline, S::server_time(&opened)).await;
        let time = time.unwrap_or(Err(Failure::Timeout))?;
        // Without an answer to this the server counts as restarted.
        let run = within(connect_within, S::server_run(&opened)).await;
        Ok((opened, run.flatten(), time))
    }

    fn locked(&self) -> MutexGuard<'_, ConnectionState<S>> {
        // No code under this lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> ConnectionState<S> {
    /// Records how a call ended, by the server's time of the answer, and returns whether it makes the connection useless.
    fn record(
        &mut self,
        now: Tick,
        used: Option<&Arc<S::Connection>>,
        answered_at: Result<u64, &CallError>,
    ) -> bool {
        // Whether the call says something about the present connection: it used it, or waited for it.
        let is_current = match (&self.phase, used) {
            (Phase::Up(opened), Some(used)) => Arc::ptr_eq(opened, used),
            (Phase::Connecting, None) => true,
            _ => false,
        };
        let failure = match answered_at.map_err(CallError::failure) {
            Ok(time) => {
                self.stats.answered += 1;
                if is_current {
                    self.call_succeeded();
                    self.health.answered(now, time);
                }
                return false;
            }
            Err(None) => {
                self.stats.skipped += 1;
                return false;
            }
            Err(Some(failure)) => failure,
        };
        self.count_failure(failure);
        if !is_current {
            return false;
        }
        if failure.is_fault() {
            self.report_fault(now, failure);
            self.call_succeeded();
            return false;
        }
        self.health.failed(now);
        if self.breaker.failed() {
            self.go_down(failure);
            true
        } else if matches!(failure, Failure::Unreachable(_)) {
            self.phase = Phase::Connecting;
            true
        } else {
            false
        }
    }

    fn count_failure(&mut self, failure: &Failure) {
        *self.stats.of(failure) += 1;
        self.last_failure = Some(failure.clone());
    }

    fn connected(&mut self, now: Tick, opened: S::Connection, run: Option<ServerRun>, time: u64) {
        if !matches!(self.phase, Phase::Connecting) {
            self.breaker = Breaker::half_open();
        }
        self.events.push(Event::Up);
        let evicts = run.as_ref().and_then(|run| run.evicts.clone());
        self.events.extend(evicts.map(Event::Evicts));
        self.phase = Phase::Up(Arc::new(opened));
        // It shrinks only when a call is answered.
        self.pause = longer(self.pause);
        self.health.reconnected(now, run, time);
        self.stats.connects += 1;
    }

    fn not_connected(&mut self, now: Tick, failure: Failure) {
        self.last_failure = Some(failure.clone());
        self.pause = longer(self.pause);
        if failure.is_fault() {
            self.report_fault(now, &failure);
            self.phase = Phase::Refused(failure);
        } else {
            self.health.failed(now);
            self.go_down(&failure);
        }
    }

    const fn call_succeeded(&mut self) {
        self.breaker.succeeded();
        self.pause = Duration::ZERO;
    }

    fn go_down(&mut self, cause: &Failure) {
        if !matches!(self.phase, Phase::Down) {
            self.phase = Phase::Down;
            self.stats.outages += 1;
            self.events.push(Event::Down(cause.clone()));
        }
    }

    fn report_fault(&mut self, now: Tick, cause: &Failure) {
        if self
            .fault_reported
            .is_none_or(|said| said.after(FAULTS_APART) <= now)
        {
            self.fault_reported = Some(now);
            self.events.push(Event::Fault(cause.clone()));
        }
    }
}

/// Releases the lock, and emits what happened.
fn emit<S: Store>(mut state: MutexGuard<'_, ConnectionState<S>>) {
    let events = mem::take(&mut state.events);
    drop(state);
    events.iter().for_each(Event::emit);
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE, LONGEST_PAUSE)
}

/// The task that connects: tries until there is a connection, or no handle is left to use it.
struct Connecting<S: Store>(Weak<Connection<S>>);

impl<S: Store> Connecting<S> {
    async fn run(mut self) {
        let mut took = Duration::ZERO;
        while let Some(pause) = self.0.upgrade().map(|connection| connection.locked().pause) {
            let pause = pause.saturating_sub(took);
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let Some(connection) = self.0.upgrade() else {
                return;
            };
            let began = connection.now();
            let result = caught(connection.connect()).await;
            let (now, is_connected) = (connection.now(), result.is_ok());
            took = now.since(began);
            let mut state = connection.locked();
            match result {
                Ok((opened, run, time)) => state.connected(now, opened, run, time),
                Err(failure) => state.not_connected(now, failure),
            }
            let tasks = mem::take(&mut state.tasks);
            emit(state);
            connection.changed.notify_waiters();
            tasks.into_iter().for_each(Waker::wake);
            if is_connected {
                self.0 = Weak::new();
            }
        }
    }
}

/// If its runtime has dropped the task, the next call starts another.
impl<S: Store> Drop for Connecting<S> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.upgrade() {
            connection.locked().phase = Phase::Idle;
            connection.changed.notify_waiters();
        }
    }
}

pub(crate) async fn sleep(time: Duration) {
    within(time, pending::<()>()).await;
}

/// The output of the future, or a failure if it panics: the client library may do so.
pub(super) async fn caught<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let why = format!("the client library panicked: {}", text.unwrap_or_default());
            Poll::Ready(Err(Failure::Unreachable(why.into())))
        })
    })
    .await
}

/// The output of the future, or `None` if it takes longer.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    // A future that is ready at once needs no timer.
    let mut timer = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => {
            let timer = timer.get_or_insert_with(|| {
                let mut timer = Timer::new();
                timer.arm(time);
                timer
            });
            timer.poll_elapsed(cx).map(|()| None)
        }
    })
    .await
}
