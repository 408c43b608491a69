//! A run of one adapter with one task.

use std::{task::Context, time::Duration};

use tokio::task::yield_now;

use super::{Rule, Violation, manner::Manner, scene::Scene};
use crate::{
    clock::{Stopwatch, sleep_until},
    patience::{Patience, Stuck},
    wakes::Driven,
};

/// An adapter in use: a stream that is drained, or a sink that is sent to.
pub(super) trait Play {
    /// Makes the next call on the adapter.
    fn turn(&mut self, cx: &mut Context<'_>, trace: &mut Trace) -> Next;

    /// Completes the record.
    fn record(&self, _: &mut Trace) {}

    /// Takes the adapter apart, if it can be: into the items that it held, and those that it left in its input.
    fn split(self: Box<Self>) -> Option<Vec<u32>>;
}

/// When the next turn is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    Now,
    /// The adapter is pending.
    WhenWoken,
    /// After a break, of a task that makes breaks.
    AfterABreak,
    /// In another task, of a task that gives up.
    Elsewhere,
    /// So long after the start.
    At(Duration),
    /// It has ended.
    Never,
}

/// The record of a run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The items that came with each emission of a stream, or with each send into the inner sink.
    pub(super) given: Vec<(Duration, Vec<u32>)>,
    /// The items that the adapter held when it was taken apart, and those that it left in its input.
    pub(super) held: Vec<u32>,
    /// The items that should have come.
    pub(super) due: Vec<u32>,
    /// The items that a sink returned in errors.
    pub(super) refused: Vec<u32>,
    /// The rules that were broken on the way, and how.
    pub(super) noted: Vec<(Rule, String)>,
    /// Whether the inner sink failed.
    pub(super) has_failed: bool,
}

impl Trace {
    pub(super) fn note(&mut self, rule: Rule, what: String) {
        self.noted.push((rule, what));
    }
}

/// A run in progress.
pub(super) struct Run<'s> {
    play: Driven<Box<dyn Play>>,
    scene: &'s Scene,
    manner: Manner,
    start: Stopwatch,
    patience: Patience,
    next: Next,
    trace: Trace,
}

impl<'s> Run<'s> {
    pub(super) fn start(play: Box<dyn Play>, scene: &'s Scene) -> Self {
        Self {
            play: Driven::new(play),
            scene,
            manner: scene.manner.clone(),
            start: Stopwatch::start(),
            patience: Patience::default(),
            next: Next::Now,
            trace: Trace::default(),
        }
    }

    /// Goes on to the end.
    pub(super) async fn finish(mut self) -> Result<Trace, Violation> {
        while !self.has_ended() {
            self.turn().await?;
        }
        self.play.get().record(&mut self.trace);
        Ok(self.trace)
    }

    /// The record so far, and of what was held, if the adapter can be taken apart.
    pub(super) fn split(mut self) -> Option<Trace> {
        self.play.get().record(&mut self.trace);
        self.trace.held = self.play.into_inner().split()?;
        Some(self.trace)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.next == Next::Never
    }

    /// Waits as long as the task does, then makes one turn.
    pub(super) async fn turn(&mut self) -> Result<(), Violation> {
        self.pause().await.map_err(|stuck| self.stuck(stuck))?;
        self.patience.polled().map_err(|stuck| self.stuck(stuck))?;
        let trace = &mut self.trace;
        self.next = self
            .play
            .poll_with(|play, cx| play.get_mut().turn(cx, trace));
        if self.next != Next::WhenWoken {
            return self.patience.given().map_err(|stuck| self.stuck(stuck));
        }
        if self.play.is_woken() || self.play.is_waker_kept() {
            return Ok(());
        }
        let what = format!("pending at {:?}, and nobody holds the waker", self.at());
        Err(self.scene.breaks(Rule::KeepsAWaker, &what))
    }

    async fn pause(&mut self) -> Result<(), Stuck> {
        match self.next {
            Next::Now | Next::Never => {}
            Next::AfterABreak => self.manner.dally().await,
            Next::Elsewhere => self.manner.give_up(&mut self.play),
            Next::At(at) => {
                if at > self.at() {
                    sleep_until(self.start.started() + at).await;
                }
            }
            // Other tasks may have to run before the answer changes, even if this one was woken already.
            Next::WhenWoken => {
                yield_now().await;
                self.manner.await_wake(&mut self.play).await?;
            }
        }
        Ok(())
    }

    fn at(&self) -> Duration {
        self.start.elapsed()
    }

    fn stuck(&self, stuck: Stuck) -> Violation {
        let at = self.at();
        if self.play.is_earlier_task_woken() {
            let what = format!("at {at:?} a task was woken that it had left, not the one it is in");
            return self.scene.breaks(Rule::KeepsAWaker, &what);
        }
        let what = format!("at {at:?} it {stuck}");
        self.scene.breaks(Rule::Alive, &what)
    }
}
