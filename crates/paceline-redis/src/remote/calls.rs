use core::future::{Future, poll_fn};
use core::mem;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use paceline::time::Tick;

use super::connection::{Connection, caught, within};
use super::error::{CallError, Failure};
use super::overrides::{Changes, Overrides};
use super::source::{Answer, AnySource};
use super::window::Window;
use super::{Ask, LATE, LeaseCall, Replies, Store};

/// How long an incomplete call waits for more keys while another call is under way.
pub(super) const GATHER: Duration = Duration::from_millis(1);

/// After this many deadlines a call has failed even if others are answered: one node of a cluster may be down.
const LONGEST_CALL: u32 = 4;

/// How often the task looks within a deadline, to notice that this process did not run.
const LOOKS: u32 = 4;

/// How long the reply to a call that has failed is waited for, so that the permits that it took can be returned.
const LATEST_REPLY: Duration = Duration::from_secs(1);

/// The calls under way. The batcher's task makes them itself.
pub(super) struct Calls<S: Store> {
    connection: Arc<Connection<S>>,
    overrides: Arc<Overrides<S>>,
    /// Roughly in the order in which they were sent.
    all: Vec<Call<S>>,
    pub(super) window: Window,
    pub(super) last_sent: Tick,
    /// Moves on, as [`Call::waits_from`], by the time in which this process did not run.
    last_answer: Tick,
    /// When the task is polled at the latest while calls are under way, if this process runs.
    polled_by: Tick,
}

/// The connection that a call used, its reply, and the overrides that were read with it.
type Ended<S> = (
    Option<Arc<<S as Store>::Connection>>,
    Result<Replies<Answer<S>>, CallError>,
    Read<S>,
);

/// `None` if nothing was read in time.
type Read<S> = Option<Result<Changes<<S as Store>::Params>, Failure>>;

struct Call<S: Store> {
    work: Pin<Box<dyn Future<Output = Ended<S>> + Send>>,
    sent: Tick,
    /// From when on silence counts.
    waits_from: Tick,
    was_alone: bool,
    /// Whether the call reads the overrides too.
    reads: bool,
    /// The id of each question, and its source, in the order of the call.
    sources: Vec<(u64, AnySource<S>)>,
    /// Whether the call has failed by silence. It may still be answered.
    is_late: bool,
}

impl<S: Store> Calls<S> {
    pub(super) fn new(connection: Arc<Connection<S>>, overrides: Arc<Overrides<S>>) -> Self {
        let window = Window::new(connection.deadline(), connection.store.keys_per_call());
        Self {
            connection,
            overrides,
            all: Vec::new(),
            window,
            last_sent: Tick::ZERO,
            last_answer: Tick::ZERO,
            polled_by: Tick::ZERO,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that have not failed.
    fn under_way(&self) -> impl Iterator<Item = &Call<S>> {
        self.all.iter().filter(|call| !call.is_late)
    }

    pub(super) fn room(&self) -> usize {
        self.window.per_call.min(self.window.room())
    }

    /// Whether a call may be sent now. `ready` is the number of sources that are ready.
    pub(super) fn may_send(&self, now: Tick, ready: usize) -> bool {
        let is_full = ready >= self.room();
        let has_gathered =
            || self.under_way().next().is_none() || self.last_sent.after(GATHER) <= now;
        ready > 0 && self.window.room() > 0 && (is_full || has_gathered())
    }

    pub(super) fn send(&mut self, now: Tick, sources: Vec<(u64, AnySource<S>)>, asks: Vec<Ask<S>>) {
        let (connection, overrides) = (Arc::clone(&self.connection), Arc::clone(&self.overrides));
        let reads = self.overrides.read_at().is_some_and(|at| at <= now);
        self.last_sent = now;
        self.start(now, sources, reads, |opened| async move {
            let health = connection.health();
            let known = *overrides.epoch();
            let (namespace, mut epoch) = (&overrides.namespace, known);
            let decided = S::decide(&opened, namespace, &mut epoch, &health, &asks);
            let (time, replies) = decided.await?;
            if epoch != known {
                *overrides.epoch() = epoch;
            }
            let answers = replies.into_iter().map(|reply| reply.map(Answer::Decided));
            Ok((time, answers.collect()))
        });
    }

    pub(super) fn lease(&mut self, now: Tick, source: AnySource<S>, leases: LeaseCall) {
        let sources = vec![(0, source)];
        self.start(now, sources, false, |opened| async move {
            let (time, reply) = S::lease(&opened, &leases).await?;
            Ok((time, vec![Ok(Answer::Leases(reply))]))
        });
    }

    /// Reads the overrides while nothing is asked.
    pub(super) fn read(&mut self, now: Tick) {
        self.start(now, Vec::new(), true, |opened| async move {
            Ok((S::server_time(&opened).await?, Vec::new()))
        });
    }

    /// The next [`poll_done`](Self::poll_done) sends the call.
    fn start<F>(
        &mut self,
        sent: Tick,
        sources: Vec<(u64, AnySource<S>)>,
        reads: bool,
        work: impl FnOnce(Arc<S::Connection>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Replies<Answer<S>>, Failure>> + Send,
    {
        let connection = Arc::clone(&self.connection);
        let overrides = Arc::clone(&self.overrides);
        let work = Box::pin(async move {
            let opened = match connection.opened().await {
                Ok(opened) => opened,
                Err(error) => return (None, Err(error), None),
            };
            let both = async {
                let work = work(Arc::clone(&opened));
                if !reads {
                    return Ok((work.await, None));
                }
                let read = overrides.exchange(&connection, &opened, None);
                let until = sent.after(connection.deadline());
                // In a box, because few calls need the memory.
                Ok(Box::pin(beside(work, read, || until.since(connection.now()) / 2)).await)
            };
            let (outcome, read) = caught(both).await.unwrap_or_else(|why| (Err(why), None));
            (Some(opened), outcome.map_err(CallError::failed), read)
        });
        self.all.push(Call {
            work,
            sent,
            waits_from: sent,
            was_alone: self.window.sent(sources.len()),
            reads,
            sources,
            is_late: false,
        });
    }

    /// Whether a call that reads the overrides is under way.
    pub(super) fn is_reading(&self) -> bool {
        self.under_way().any(|call| call.reads)
    }

    /// Gives the replies that have come to their sources. Ready if there was one.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (mut done, mut index) = (Poll::Pending, 0);
        while let Some(call) = self.all.get_mut(index) {
            let Poll::Ready(ended) = call.work.as_mut().poll(cx) else {
                index += 1;
                continue;
            };
            done = Poll::Ready(());
            let call = self.all.remove(index);
            if !call.is_late {
                self.ended(&call, ended);
            } else if let (_, Ok((_, replies)), _) = ended {
                for ((_, source), reply) in call.sources.into_iter().zip(replies) {
                    if let Ok(Answer::Decided(reply)) = reply {
                        source.answered_late(&reply);
                    }
                }
            }
        }
        done
    }

    fn ended(&mut self, call: &Call<S>, (used, outcome, read): Ended<S>) {
        let now = self.connection.now();
        if outcome.is_ok() {
            self.last_answer = now;
        }
        // A decision may have waited for the read beside it.
        let is_measured = outcome.is_ok() && !call.reads;
        let took = is_measured.then(|| now.since(call.sent));
        let sent = (call.sent, call.was_alone);
        self.window.ended(sent, now, call.sources.len(), took);
        self.connection.record(used.as_ref(), &outcome);
        call.hand_on(&self.connection, &self.overrides, outcome, read);
    }

    /// Time in which this process did not run is no silence of the server: the calls under way get that much more.
    pub(super) fn skip_stall(&mut self, now: Tick) {
        if now < self.polled_by {
            return;
        }
        let late = now.since(self.polled_by);
        if late > LATE {
            self.last_answer = self.last_answer.after(late);
            for call in &mut self.all {
                call.waits_from = call.waits_from.after(late);
            }
        }
        self.polled_by = now.after(self.window.deadline / LOOKS);
    }

    /// When all calls under way have failed, if nothing is answered before, and when the first of them has failed even so.
    fn fails_at(&self) -> Option<(Tick, Tick)> {
        let first = self.under_way().map(|call| call.waits_from).min()?;
        let silent = first.max(self.last_answer).after(self.window.deadline);
        Some((
            silent,
            first.after_times(self.window.deadline, LONGEST_CALL),
        ))
    }

    /// When a call under way has failed, if nothing is answered before.
    pub(super) fn silent_at(&self) -> Option<Tick> {
        self.fails_at().map(|(silent, longest)| silent.min(longest))
    }

    /// When the task has to look at the calls under way.
    pub(super) fn look_at(&self) -> Option<Tick> {
        self.silent_at().map(|at| at.min(self.polled_by))
    }

    /// Fails all calls if nothing was answered in time, and otherwise the calls under way for too long.
    pub(super) fn fail_silent(&mut self, now: Tick) {
        let deadline = self.window.deadline;
        let ends_by = |call: &Call<S>| call.waits_from.after_times(deadline, LONGEST_CALL);
        let is_silent = self.fails_at().is_some_and(|(silent, _)| silent <= now);
        let (failed, others): (Vec<_>, Vec<_>) = mem::take(&mut self.all)
            .into_iter()
            .partition(|call| !call.is_late && (is_silent || ends_by(call) <= now));
        self.all = others;
        if failed.is_empty() {
            return;
        }
        self.connection.record_silence(failed.len() as u64);
        if is_silent {
            self.window.silent(now);
        }
        for call in failed {
            let sent = (call.sent, call.was_alone);
            self.window.ended(sent, now, call.sources.len(), None);
            call.hand_on(
                &self.connection,
                &self.overrides,
                Err(CallError::failed(Failure::Timeout)),
                None,
            );
            self.all.push(Call {
                is_late: true,
                ..call
            });
        }
    }

    /// When the first of the late calls is given up.
    pub(super) fn late_until(&self) -> Option<Tick> {
        let late = self.all.iter().filter(|call| call.is_late);
        let first = late.map(|call| call.sent).min();
        first.map(|sent| sent.after(LATEST_REPLY))
    }

    pub(super) fn drop_late(&mut self, now: Tick) {
        self.all
            .retain(|call| !call.is_late || now < call.sent.after(LATEST_REPLY));
    }

    /// Drops the calls, and returns the sources that wait for a reply.
    pub(super) fn take_sources(&mut self) -> impl Iterator<Item = AnySource<S>> {
        let calls = mem::take(&mut self.all).into_iter();
        let under_way = calls.filter(|call| !call.is_late);
        under_way.flat_map(|call| call.sources.into_iter().map(|(_, source)| source))
    }
}

impl<S: Store> Call<S> {
    /// Gives the sources their replies. The overrides are taken first, so that no permit passes a limit that is paused.
    fn hand_on(
        &self,
        connection: &Connection<S>,
        overrides: &Overrides<S>,
        outcome: Result<Replies<Answer<S>>, CallError>,
        read: Read<S>,
    ) {
        if self.reads {
            if let Some(Err(failure)) = &read {
                let _ = connection.checked::<()>(Err(failure.clone()));
            }
            overrides.accept(connection.now(), self.sent, read);
        }
        let mut outcome = outcome.map(|(_, replies)| replies.into_iter());
        let no_reply = || Err(Failure::Fault("no reply".into()));
        for (number, source) in &self.sources {
            let reply = match &mut outcome {
                Ok(replies) => connection.checked(replies.next().unwrap_or_else(no_reply)),
                Err(error) => Err(error.clone()),
            };
            Arc::clone(source).complete(*number, self.sent, reply);
        }
    }
}

/// Waits for the work and for the read beside it. When the work is done, the read gets that much time at most.
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
