//! A run of one adapter with one input and one consumer.

use std::{sync::Arc, task::Poll, time::Duration};

use futures_core::FusedStream;
use tokio::task::yield_now;

use super::{
    Rule, Violation,
    input::{Input, Log},
    manner::Manner,
};
use crate::{
    clock::Stopwatch,
    patience::{Patience, Stuck},
    wakes::Driven,
};

/// The record of a run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The input items that each emission carried.
    pub(super) emitted: Vec<(Duration, Vec<u32>)>,
    /// The hints of the adapter before each poll.
    pub(super) said: Vec<Said>,
    pub(super) ended_at: Option<Duration>,
    pub(super) is_terminated: bool,
}

impl Trace {
    /// The input items that came out.
    pub(super) fn items(&self) -> Vec<u32> {
        let items = self.emitted.iter().flat_map(|(_, items)| items);
        items.copied().collect()
    }
}

/// The hints of the adapter before a poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// How many emissions there had been.
    pub(super) emitted: usize,
    pub(super) hint: (usize, Option<usize>),
    pub(super) is_terminated: bool,
}

/// A run in progress.
pub(super) struct Run<'s, A: FusedStream> {
    adapter: Driven<A>,
    carried: &'s mut dyn FnMut(A::Item) -> Vec<u32>,
    log: Arc<Log>,
    watch: Stopwatch,
    patience: Patience,
    manner: Manner,
    last: Last,
    trace: Trace,
}

/// The result of the poll before this one.
enum Last {
    Nothing,
    Pending,
    Item,
    End,
}

impl<'s, A: FusedStream> Run<'s, A> {
    pub(super) fn start(
        adapter: A,
        carried: &'s mut dyn FnMut(A::Item) -> Vec<u32>,
        log: Arc<Log>,
        manner: Manner,
    ) -> Self {
        let watch = Stopwatch::start();
        Self {
            adapter: Driven::new(adapter),
            carried,
            log,
            watch,
            patience: Patience::default(),
            manner,
            last: Last::Nothing,
            trace: Trace::default(),
        }
    }

    /// Polls until the end.
    pub(super) async fn finish(mut self) -> Result<Trace, Violation<Rule>> {
        while !self.has_ended() {
            self.turn().await?;
        }
        Ok(self.trace)
    }

    /// The adapter, and the items that came out of it.
    pub(super) fn stop(self) -> (Driven<A>, Vec<u32>) {
        let items = self.trace.items();
        (self.adapter, items)
    }

    /// Waits as long as the consumer does, then polls once.
    pub(super) async fn turn(&mut self) -> Result<(), Violation<Rule>> {
        self.pause().await?;
        self.patience.polled().map_err(|stuck| self.stuck(stuck))?;
        let adapter = self.adapter.get();
        self.trace.said.push(Said {
            emitted: self.trace.emitted.len(),
            hint: adapter.size_hint(),
            is_terminated: adapter.is_terminated(),
        });
        match self.adapter.poll_next() {
            Poll::Pending => self.pending(),
            Poll::Ready(Some(item)) => self.item(item),
            Poll::Ready(None) => {
                self.trace.ended_at = Some(self.watch.elapsed());
                self.trace.is_terminated = self.adapter.get().is_terminated();
                self.last = Last::End;
                Ok(())
            }
        }
    }

    /// Polls after the end, and ignores the result.
    pub(super) fn poll_again(&mut self) {
        let _ = self.adapter.poll_next();
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.last, Last::End)
    }

    pub(super) fn input_polls_after_end(&self) -> usize {
        self.log.polls_after_end()
    }

    fn pending(&mut self) -> Result<(), Violation<Rule>> {
        self.last = Last::Pending;
        if self.adapter.is_woken() || self.adapter.is_waker_kept() {
            return Ok(());
        }
        let at = self.watch.elapsed();
        Err(Rule::KeepsAWaker.broken(format!(
            "pending at {at:?}, and nobody holds the waker ({})",
            self.manner
        )))
    }

    fn item(&mut self, item: A::Item) -> Result<(), Violation<Rule>> {
        self.last = Last::Item;
        let items = (self.carried)(item);
        self.trace.emitted.push((self.watch.elapsed(), items));
        self.patience.given().map_err(|stuck| self.stuck(stuck))
    }

    async fn pause(&mut self) -> Result<(), Violation<Rule>> {
        match self.last {
            Last::Nothing | Last::End => Ok(()),
            Last::Item => {
                self.manner.dally().await;
                Ok(())
            }
            // Other tasks may have to run before the answer changes, even if this one was woken already.
            Last::Pending => {
                yield_now().await;
                let woken = self.manner.await_wake(&mut self.adapter).await;
                woken.map_err(|stuck| self.stuck(stuck))
            }
        }
    }

    fn stuck(&self, stuck: Stuck) -> Violation<Rule> {
        let at = self.watch.elapsed();
        if self.adapter.is_earlier_task_woken() {
            return Rule::KeepsAWaker.broken(format!(
                "at {at:?} a task was woken that it had left, not the one it is in"
            ));
        }
        Rule::Alive.broken(format!("at {at:?} it {stuck} ({})", self.manner))
    }
}

impl Input {
    /// The items that came out, those that are held, and those still here, in one row.
    pub(super) fn join(self, out: Vec<u32>, held: Vec<u32>) -> Vec<u32> {
        out.into_iter()
            .chain(held)
            .chain(self.into_rest())
            .collect()
    }
}
