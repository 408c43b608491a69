use core::future::{Future, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinSet};

use crate::time::Tick;

use super::connection::{Connection, within};
use super::error::{CallError, Failure};
use super::overrides::{Changes, Overrides};
use super::source::{Answer, AnySource};
use super::window::Window;
use super::{Ask, Replies, Store};

/// How long an incomplete call waits for more keys while another call is under way.
pub(super) const GATHER: Duration = Duration::from_millis(1);

/// After this many deadlines a call has failed even if others are answered: one node of a cluster may be down.
const LONGEST_CALL: u32 = 4;

/// How long the reply to a call that has failed is waited for, so that the permits that it took can be returned.
const LATEST_REPLY: Duration = Duration::from_secs(1);

/// The calls under way.
pub(super) struct Calls<S: Store> {
    connection: Arc<Connection<S>>,
    overrides: Arc<Overrides<S>>,
    tasks: JoinSet<Ended<S>>,
    under_way: HashMap<Id, Call<S>>,
    /// Calls that have failed by silence, and may still be answered.
    late: HashMap<Id, Call<S>>,
    pub(super) window: Window,
    pub(super) last_sent: Tick,
    last_answer: Tick,
}

/// The connection that a call used, its reply, and the overrides that were read with it.
type Ended<S> = (Option<Arc<<S as Store>::Connection>>, Outcome<S>, Read<S>);

/// `None` if nothing was read in time.
type Read<S> = Option<Result<Changes<<S as Store>::Params>, Failure>>;

type Outcome<S> = Result<Replies<Answer<S>>, CallError>;

struct Call<S: Store> {
    task: AbortHandle,
    sent: Tick,
    was_alone: bool,
    /// Whether the call reads the overrides too.
    reads: bool,
    /// The id of each question, and its source, in the order of the call.
    sources: Vec<(u64, AnySource<S>)>,
}

impl<S: Store> Calls<S> {
    pub(super) fn new(connection: Arc<Connection<S>>, overrides: Arc<Overrides<S>>) -> Self {
        Self {
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
            late: HashMap::new(),
            window: Window::new(connection.deadline(), connection.store.keys_per_call()),
            last_sent: Tick::ZERO,
            last_answer: Tick::ZERO,
            overrides,
            connection,
        }
    }

    pub(super) fn room(&self) -> usize {
        self.window.per_call.min(self.window.room())
    }

    /// Whether a call may be sent now. `ready` is the number of sources that are ready.
    pub(super) fn may_send(&self, now: Tick, ready: usize) -> bool {
        let is_full = ready >= self.room();
        let has_gathered = self.under_way.is_empty() || self.last_sent.after(GATHER) <= now;
        ready > 0 && self.window.room() > 0 && (is_full || has_gathered)
    }

    pub(super) fn send(&mut self, now: Tick, sources: Vec<(u64, AnySource<S>)>, asks: Vec<Ask<S>>) {
        let connection = Arc::clone(&self.connection);
        let reads = self.overrides.read_at().is_some_and(|at| at <= now);
        self.last_sent = now;
        self.spawn(now, sources, reads, |opened| async move {
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
        reads: bool,
        work: impl FnOnce(Arc<S::Connection>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Replies<Answer<S>>, Failure>> + Send,
    {
        let (connection, overrides) = (Arc::clone(&self.connection), Arc::clone(&self.overrides));
        let task = self.tasks.spawn(async move {
            let opened = match connection.opened().await {
                Ok(opened) => opened,
                Err(error) => return (None, Err(error), None),
            };
            let work = work(Arc::clone(&opened));
            let (outcome, read) = if reads {
                let read = overrides.exchange(&connection, &opened, None);
                let until = sent.after(connection.deadline());
                // In a box, because few calls need the memory.
                Box::pin(beside(work, read, || until.since(connection.now()) / 2)).await
            } else {
                (work.await, None)
            };
            (Some(opened), outcome.map_err(CallError::failed), read)
        });
        let was_alone = self.window.sent(sources.len());
        let id = task.id();
        let call = Call {
            task,
            sent,
            was_alone,
            reads,
            sources,
        };
        self.under_way.insert(id, call);
    }

    pub(super) fn lease(&mut self, now: Tick, source: AnySource<S>, leases: S::Leases) {
        self.spawn(now, vec![(0, source)], false, |opened| async move {
            let (time, reply) = S::lease(&opened, &leases).await?;
            Ok((time, vec![Ok(Answer::Leases(reply))]))
        });
    }

    /// Whether a call that reads the overrides is under way.
    pub(super) fn is_reading(&self) -> bool {
        self.under_way.values().any(|call| call.reads)
    }

    /// Reads the overrides while nothing is asked.
    pub(super) fn read(&mut self, now: Tick) {
        self.spawn(now, Vec::new(), true, |opened| async move {
            Ok((S::server_time(&opened).await?, Vec::new()))
        });
    }

    /// Gives the replies that have come to their sources. Ready if there was one.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut done = Poll::Pending;
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next_with_id(cx) {
            done = Poll::Ready(());
            let (id, used, outcome, read) = match ended {
                Ok((id, (used, outcome, read))) => (id, used, outcome, read),
                // The client library panicked, and may do so again on this connection.
                Err(error) => {
                    let used = self.connection.current();
                    let why = Failure::Unreachable(error.to_string().into());
                    (error.id(), used, Err(CallError::failed(why)), None)
                }
            };
            if let Some(call) = self.under_way.remove(&id) {
                self.ended(&call, used.as_ref(), outcome, read);
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

    fn ended(
        &mut self,
        call: &Call<S>,
        used: Option<&Arc<S::Connection>>,
        outcome: Outcome<S>,
        read: Read<S>,
    ) {
        let now = self.connection.now();
        if outcome.is_ok() {
            self.last_answer = now;
        }
        // A decision may have waited for the read beside it.
        let is_measured = outcome.is_ok() && !call.reads;
        let took = is_measured.then(|| now.since(call.sent));
        let sent = (call.sent, call.was_alone);
        self.window.ended(sent, now, call.sources.len(), took);
        self.connection.record(used, &outcome);
        self.end_read(call, read);
        self.hand_on(call, outcome);
    }

    /// Before the sources get their replies, so that no permit passes a limit that is paused.
    fn end_read(&self, call: &Call<S>, read: Read<S>) {
        if !call.reads {
            return;
        }
        if let Some(Err(failure)) = &read {
            let _ = self.connection.checked::<()>(Err(failure.clone()));
        }
        self.overrides
            .accept(self.connection.now(), call.sent, read);
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

    /// When all calls under way have failed, if nothing is answered before, and when the first of them has failed even so.
    fn fails_at(&self) -> Option<(Tick, Tick)> {
        let deadline = self.connection.deadline();
        let first = self.under_way.values().map(|call| call.sent).min()?;
        let silent = first.max(self.last_answer).after(deadline);
        Some((silent, first.after_times(deadline, LONGEST_CALL)))
    }

    /// When a call under way has failed, if nothing is answered before.
    pub(super) fn silent_at(&self) -> Option<Tick> {
        self.fails_at().map(|(silent, longest)| silent.min(longest))
    }

    /// Fails all calls if nothing was answered in time, and otherwise those that are under way for too long.
    pub(super) fn fail_silent(&mut self, now: Tick) {
        let deadline = self.connection.deadline();
        let ends_by = |call: &Call<S>| call.sent.after_times(deadline, LONGEST_CALL);
        let is_silent = self.fails_at().is_some_and(|(silent, _)| silent <= now);
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
            self.end_read(&call, None);
            self.hand_on(&call, Err(CallError::failed(Failure::Timeout)));
            self.late.insert(id, call);
        }
    }

    /// When the first of the late calls is given up.
    pub(super) fn late_until(&self) -> Option<Tick> {
        let first = self.late.values().map(|call| call.sent).min();
        first.map(|sent| sent.after(LATEST_REPLY))
    }

    pub(super) fn drop_late(&mut self, now: Tick) {
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

/// Waits for the work, and for what is read at the same time. When the work is done, the read gets that much time at most.
async fn beside<A, B>(
    work: impl Future<Output = A>,
    read: impl Future<Output = B>,
    time: impl FnOnce() -> Duration,
) -> (A, Option<B>) {
    let (mut work, mut read, mut was_read) = (pin!(work), pin!(read), None);
    let done = poll_fn(|cx| {
        let done = work.as_mut().poll(cx);
        if was_read.is_none()
            && let Poll::Ready(reply) = read.as_mut().poll(cx)
        {
            was_read = Some(reply);
        }
        done
    });
    let done = done.await;
    if was_read.is_none() {
        was_read = within(time(), read).await;
    }
    (done, was_read)
}
