//! A run of one adapter with one inner sink and one producer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_sink::Sink;
use tokio::{task::yield_now, time::Instant};

use super::{
    Failure, Rule,
    inner::{InnerError, Log},
    manner::{Flushes, Sending},
};
use crate::{
    clock::{now, sleep_until},
    conformance::{Violation, manner::Manner, schedule::Schedule},
    patience::{Patience, Stuck},
    wakes::Driven,
};

/// The record of a run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The items that the inner sink was given, with their instants.
    pub(super) taken: Vec<(Duration, Vec<u32>)>,
    /// The items that the inner sink was given when it failed.
    pub(super) spoiled: Vec<u32>,
    /// The items that the adapter was given.
    pub(super) sent: Vec<u32>,
    /// The items that were returned in errors.
    pub(super) refused: Vec<u32>,
    /// The violations that were seen on the way.
    pub(super) noted: Vec<Violation<Rule>>,
    /// Whether the inner sink failed.
    pub(super) has_failed: bool,
}

/// A run in progress.
pub(super) struct Run<'s, A, E> {
    adapter: Driven<A>,
    judge: &'s mut dyn FnMut(E) -> Failure,
    is_lossy: bool,
    log: Arc<Log>,
    start: Instant,
    arrivals: Vec<Duration>,
    end: Duration,
    patience: Patience,
    sending: Sending,
    step: Step,
    is_pending: bool,
    trace: Trace,
}

/// `poll_ready`, `poll_flush` or `poll_close`.
type PollOf<A, E> = fn(Pin<&mut A>, &mut Context<'_>) -> Poll<Result<(), E>>;

/// What the producer does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// Waits until the next item is there, or the end.
    Arrive,
    /// Polls whether the sink is ready. The number says how often it was ready already.
    Ready(usize),
    Flush,
    Close,
    Done,
}

impl<'s, A, E> Run<'s, A, E>
where
    A: Sink<u32, Error = E>,
{
    pub(super) fn start(
        adapter: A,
        judge: &'s mut dyn FnMut(E) -> Failure,
        is_lossy: bool,
        log: Arc<Log>,
        schedule: &Schedule,
        sending: Sending,
    ) -> Self {
        Self {
            adapter: Driven::new(adapter),
            judge,
            is_lossy,
            log,
            start: now(),
            arrivals: schedule.items.clone(),
            end: schedule.end,
            patience: Patience::default(),
            sending,
            step: Step::Arrive,
            is_pending: false,
            trace: Trace::default(),
        }
    }

    /// Sends everything and closes.
    pub(super) async fn finish(mut self) -> Result<Trace, Violation<Rule>> {
        while !self.has_ended() {
            self.turn().await?;
        }
        Ok(self.stop().1)
    }

    /// The adapter, and the record so far.
    pub(super) fn stop(mut self) -> (Driven<A>, Trace) {
        let entries = self.log.entries();
        self.trace.taken.clone_from(&entries.taken);
        self.trace.spoiled.clone_from(&entries.spoiled);
        if !entries.sent_unasked.is_empty() {
            let items = &entries.sent_unasked;
            let what = format!("{items:?} sent when it had not said that it is ready");
            self.trace.noted.push(Rule::AsksFirst.broken(what));
        }
        if !entries.sent_too_late.is_empty() {
            let items = &entries.sent_too_late;
            let what = format!("{items:?} sent when it was being closed");
            self.trace.noted.push(Rule::Closes.broken(what));
        }
        drop(entries);
        (self.adapter, self.trace)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.step == Step::Done
    }

    /// Waits as long as the producer does, then makes one step.
    pub(super) async fn turn(&mut self) -> Result<(), Violation<Rule>> {
        if self.is_pending {
            // Others may have to run before the answer changes, also when it was woken already.
            yield_now().await;
            let woken = self.sending.manner.await_wake(&mut self.adapter).await;
            woken.map_err(|stuck| self.stuck(stuck))?;
        }
        self.patience.polled().map_err(|stuck| self.stuck(stuck))?;
        match self.step {
            Step::Arrive => {
                self.arrive().await;
                Ok(())
            }
            Step::Ready(heard) => {
                let polled = self.poll(A::poll_ready)?;
                if polled && heard + 1 < self.sending.asks {
                    self.go_to(Step::Ready(heard + 1))?;
                } else if polled {
                    self.sending.manner.dally().await;
                    self.send()?;
                }
                Ok(())
            }
            Step::Flush => {
                if self.poll(A::poll_flush)? {
                    self.note_unflushed();
                    self.go_to(Step::Arrive)?;
                }
                Ok(())
            }
            Step::Close => {
                if self.poll(A::poll_close)? {
                    self.note_unclosed();
                    self.go_to(Step::Done)?;
                }
                Ok(())
            }
            Step::Done => Ok(()),
        }
    }

    async fn arrive(&mut self) {
        let next = self.arrivals.get(self.trace.sent.len());
        let due = self.start + next.copied().unwrap_or(self.end);
        if due > now() {
            sleep_until(due).await;
        }
        self.step = match next {
            Some(_) => Step::Ready(0),
            None => Step::Close,
        };
    }

    /// Sends the next item, which is its own number.
    fn send(&mut self) -> Result<(), Violation<Rule>> {
        let item = u32::try_from(self.trace.sent.len()).unwrap_or(u32::MAX);
        self.trace.sent.push(item);
        self.log.entries().forget_the_last_poll();
        let sent = self
            .adapter
            .poll_with(|adapter, _| adapter.start_send(item));
        self.heard("start_send", sent);
        self.ask_in_vain();
        let flushes = match &mut self.sending.flushes {
            Flushes::Never => false,
            Flushes::Always => true,
            Flushes::Sometimes(dice) => dice.below(2) == 0,
        };
        self.go_to(if flushes { Step::Flush } else { Step::Arrive })
    }

    /// Polls for readiness as if to send one more item, maybe from another task, and then sends none.
    fn ask_in_vain(&mut self) {
        match self.sending.manner {
            Manner::Hopeful => {}
            Manner::Restless(_) => self.adapter.change_task(),
            _ => return,
        }
        self.log.entries().forget_the_last_poll();
        if let Poll::Ready(result) = self.adapter.poll_with(A::poll_ready) {
            self.heard("a poll", result);
        }
        if let Manner::Restless(_) = self.sending.manner {
            self.adapter.change_task();
        }
    }

    /// Makes one of the three polls. Returns whether it was ready without an error.
    fn poll(&mut self, poll: PollOf<A, E>) -> Result<bool, Violation<Rule>> {
        self.log.entries().forget_the_last_poll();
        let polled = self.adapter.poll_with(poll);
        self.is_pending = polled.is_pending();
        match polled {
            Poll::Ready(result) => Ok(self.heard("a poll", result)),
            Poll::Pending => {
                self.heard("a pending poll", Ok(()));
                self.pending().map(|()| false)
            }
        }
    }

    /// Records an answer. Returns whether it was no error.
    fn heard(&mut self, what: &str, result: Result<(), E>) -> bool {
        let raised = self.log.entries().raised();
        self.trace.has_failed |= raised.is_some();
        let is_well = result.is_ok();
        let passed_on = match result.map_err(&mut self.judge) {
            Ok(()) => None,
            Err(Failure::Inner(error)) => Some(error),
            Err(Failure::Refused(item)) => {
                self.trace.refused.push(item);
                None
            }
        };
        if raised != passed_on {
            self.note_error(what, raised, passed_on);
        }
        is_well
    }

    fn pending(&mut self) -> Result<(), Violation<Rule>> {
        let at = self.start.elapsed();
        if !self.adapter.is_woken() && !self.adapter.is_waker_kept() {
            return Err(Rule::KeepsAWaker.broken(format!(
                "pending at {at:?}, and nobody holds the waker ({})",
                self.sending
            )));
        }
        let is_asked = matches!(self.step, Step::Ready(_));
        let waits_for_inner = self.log.entries().was_pending();
        if !is_asked && !waits_for_inner && self.held() == 0 {
            let what = format!(
                "{:?} was pending at {at:?}, for nothing ({})",
                self.step, self.sending
            );
            self.trace.noted.push(Rule::Prompt.broken(what));
        }
        Ok(())
    }

    /// How many items are neither at the inner sink nor refused. For a lossy adapter this is not known.
    fn held(&self) -> usize {
        if self.is_lossy {
            return 0;
        }
        let gone = self.log.entries().given() + self.trace.refused.len();
        self.trace.sent.len().saturating_sub(gone)
    }

    fn note_unflushed(&mut self) {
        let (held, is_flushed) = (self.held(), self.log.entries().is_flushed);
        if held > 0 || !is_flushed {
            let what = format!(
                "it said so with {held} items held, the inner sink flushed: {is_flushed} ({})",
                self.sending
            );
            self.trace.noted.push(Rule::Flushes.broken(what));
        }
    }

    fn note_unclosed(&mut self) {
        let (held, closed) = (self.held(), self.log.entries().closed);
        if held > 0 || closed != 1 {
            let what = format!(
                "it said so with {held} items held, the inner sink closed {closed} times ({})",
                self.sending
            );
            self.trace.noted.push(Rule::Closes.broken(what));
        }
    }

    fn note_error(
        &mut self,
        what: &str,
        raised: Option<InnerError>,
        passed_on: Option<InnerError>,
    ) {
        let what = format!(
            "{:?}: {what} passed on {passed_on:?} when the inner sink said {raised:?} ({})",
            self.step, self.sending
        );
        self.trace.noted.push(Rule::InnerErrors.broken(what));
    }

    fn go_to(&mut self, step: Step) -> Result<(), Violation<Rule>> {
        self.step = step;
        self.patience.given().map_err(|stuck| self.stuck(stuck))
    }

    fn stuck(&self, stuck: Stuck) -> Violation<Rule> {
        let at = self.start.elapsed();
        if self.adapter.is_earlier_task_woken() {
            return Rule::KeepsAWaker.broken(format!(
                "at {at:?} a task was woken that it had left, not the one it is in"
            ));
        }
        let step = self.step;
        Rule::Alive.broken(format!("at {at:?} {step:?} {stuck} ({})", self.sending))
    }
}
