//! The rules that every sink adapter keeps, checked on any of them.
//!
//! A [`Subject`] describes an adapter by closures: how to build it over an [`Inner`] sink, and what its errors mean. Every
//! [`Rule`] builds the adapter anew, sends numbers into it in many manners, over inner sinks that are fast, slow or failing,
//! and reports how the adapter breaks the rule. All runs are in virtual time and deterministic.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::future::ready;
//!
//! use futures::SinkExt;
//! use testkit::conformance::sink::{Failure, Inner, InnerError, Subject};
//!
//! // Items as they are …
//! Subject::new(|inner: Inner<u32>| inner.buffer(3), Failure::Inner)
//!     .check()
//!     .await;
//!
//! // … or some of them, in groups.
//! let build = |inner: Inner<Vec<u32>>| {
//!     Box::pin(inner.with(|item| ready(Ok::<_, InnerError>(vec![item]))))
//! };
//! Subject::new(build, Failure::Inner).check().await;
//! # }
//! ```
//!
//! If an undisturbed run loses or doubles items, the rules that count items are skipped. If [`Rule::KeepsAWaker`] is broken,
//! [`Rule::CancelSafe`] is skipped, because it moves the adapter from task to task.

mod inner;
mod manner;
mod rule;
mod rules;
mod run;

use std::{fmt, future::Future, panic::Location, sync::Arc, time::Duration};

use futures_sink::Sink;

use self::{
    inner::Room,
    manner::{Flushes, Sending},
    run::{Run, Trace},
};
pub use self::{
    inner::{Inner, InnerError, Unmovable},
    rule::Rule,
};
use super::{
    Parcel, Violation,
    delays::Delays,
    manner::Manner,
    schedule::Schedule,
    violation::{Found, assert_none},
};
use crate::{
    clock::{self, jump},
    wakes::Driven,
};

type Build<A, T> = Box<dyn FnMut(Inner<T>) -> A>;
type Judge<E> = Box<dyn FnMut(E) -> Failure>;
type Split<A> = Box<dyn FnMut(Driven<A>) -> Vec<u32>>;

/// The meaning of an adapter's error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "either the inner sink was asked or the item was refused"
)]
pub enum Failure {
    /// The inner sink failed with this error.
    Inner(InnerError),
    /// The adapter refused this item and returned it.
    Refused(u32),
}

/// The description of an adapter for the suite.
#[must_use = "a subject does nothing unless checked"]
pub struct Subject<A: Sink<u32>, T> {
    build: Build<A, T>,
    judge: Judge<A::Error>,
    split: Option<Split<A>>,
    delays: Delays,
    is_lossy: bool,
}

impl<A: Sink<u32>, T: Parcel> Subject<A, T> {
    /// The adapter that `build` makes. `build` is called for every run, at its first instant. `judge` returns the meaning of
    /// an error of the adapter.
    ///
    /// The compiler checks one rule: the adapter is `Send` and `Sync`, as an [`Inner`] is.
    pub fn new(
        build: impl FnMut(Inner<T>) -> A + 'static,
        judge: impl FnMut(A::Error) -> Failure + 'static,
    ) -> Self
    where
        A: Send + Sync,
    {
        Self {
            build: Box::new(build),
            judge: Box::new(judge),
            split: None,
            delays: Delays::default(),
            is_lossy: false,
        }
    }

    /// Sets how to take the adapter apart: into the inner sink and the items held. Without it [`Rule::IntoParts`] is skipped.
    pub fn into_parts<H: Parcel>(
        mut self,
        mut split: impl FnMut(A) -> (Inner<T>, H) + 'static,
    ) -> Self
    where
        A: Unpin,
    {
        self.split = Some(Box::new(move |adapter| {
            split(adapter.into_inner()).1.into_items()
        }));
        self
    }

    /// Promises that two sends are never closer than this, even if polls are late or the inner sink is slow.
    pub fn spacing(mut self, spacing: Duration) -> Self {
        self.delays.spacing = Some(spacing);
        self
    }

    /// Sets how long the adapter's own delays are, so that items are sent near them.
    ///
    /// The default is the spacing, or 10 ms without one. Above two minutes the gaps of the suite would look like a hang.
    pub fn scale(mut self, scale: Duration) -> Self {
        self.delays.scale = Some(scale);
        self
    }

    /// Allows the adapter to drop items; it may hold none then. The others still have to be in order, and none doubled.
    pub fn lossy(mut self) -> Self {
        self.is_lossy = true;
        self
    }

    /// Checks every rule.
    ///
    /// # Panics
    ///
    /// With the list of violations and the caller's line, if there are any; and as [`violations`](Self::violations)
    /// does.
    #[track_caller]
    pub fn check(self) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move { assert_none(&self.violations().await, caller) }
    }

    /// Checks every rule. Returns one violation for each rule that is broken.
    ///
    /// # Panics
    ///
    /// When the clock is not paused.
    pub async fn violations(mut self) -> Vec<Violation<Rule>> {
        // It says so at once if the clock is not paused.
        jump(Duration::ZERO).await;
        let subject = &mut self;
        let mut found = Found(Vec::new());

        let keeps_items = rules::nothing_lost(subject).await;
        let can_be_counted = keeps_items.is_ok();
        match keeps_items {
            Ok(noted) => noted.into_iter().for_each(|noted| found.note(Err(noted))),
            Err(lost) => found.note(Err(lost)),
        }
        let wakes_its_task = rules::keeps_a_waker(subject).await;
        let can_be_moved = wakes_its_task.is_ok();
        found.note(wakes_its_task);
        if can_be_counted {
            found.note(rules::asking_is_free(subject).await);
            found.note(rules::permit_last(subject).await);
            found.note(rules::late_wake_up(subject).await);
            found.note(rules::inner_errors(subject).await);
            found.note(rules::into_parts(subject).await);
        }
        if can_be_counted && can_be_moved {
            found.note(rules::cancel_safe(subject).await);
        }
        found.0
    }

    /// Builds the adapter over a fresh inner sink.
    fn start(
        &mut self,
        schedule: &Schedule,
        manner: Sending,
        fails_at: Option<usize>,
    ) -> Run<'_, A, A::Error> {
        let inner = Inner::new(manner.room, fails_at, clock::now());
        let log = inner.log();
        let adapter = (self.build)(inner);
        Run::start(
            adapter,
            &mut self.judge,
            self.is_lossy,
            log,
            schedule,
            manner,
        )
    }

    /// The items that the adapter held, if `into_parts` was set.
    fn split(&mut self, adapter: Driven<A>) -> Option<Vec<u32>> {
        let split = self.split.as_mut()?;
        Some(split(adapter))
    }

    /// Compares the items sent and held with the expected ones.
    fn compare(&self, trace: &Trace, held: &[u32]) -> Result<(), String> {
        let taken = trace.taken.iter().flat_map(|(_, items)| items);
        let came: Vec<u32> = taken.chain(held).copied().collect();
        let is_gone = |item: &u32| trace.refused.contains(item) || trace.spoiled.contains(item);
        let due: Vec<u32> = trace
            .sent
            .iter()
            .copied()
            .filter(|item| !is_gone(item))
            .collect();
        let is_right = if self.is_lossy {
            // What was sent is strictly ascending, so its subsequences are the ascending rows of its items.
            came.is_sorted_by(|a, b| a < b) && came.iter().all(|item| due.contains(item))
        } else {
            came == due
        };
        if is_right {
            return Ok(());
        }
        Err(format!("{came:?} came of {due:?}"))
    }
}

impl<A: Sink<u32>, T> fmt::Debug for Subject<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("delays", &self.delays)
            .field("is_lossy", &self.is_lossy)
            .finish_non_exhaustive()
    }
}

/// Checks that an adapter works over an inner sink that is not `Unpin`: it sends four items and closes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use futures::SinkExt;
/// use testkit::conformance::sink::{self, Failure, Unmovable};
///
/// let build = |inner: Unmovable<u32>| inner.buffer(3);
/// sink::check_unmovable(build, Failure::Inner).await;
/// # }
/// ```
///
/// # Panics
///
/// When it hangs or spins, or does not close the inner sink. (That it compiles is most of the test.)
#[track_caller]
pub fn check_unmovable<A: Sink<u32>, T: Parcel>(
    build: impl FnOnce(Unmovable<T>) -> A,
    mut judge: impl FnMut(A::Error) -> Failure,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let inner = Unmovable::new(clock::now());
        let log = inner.log();
        let schedule = Schedule {
            items: vec![Duration::ZERO; 4],
            end: Duration::from_millis(10),
        };
        let manner = Sending::new(Manner::Eager, Flushes::Always).over(Room::Always);
        let adapter = build(inner);
        let run = Run::start(
            adapter,
            &mut judge,
            false,
            Arc::clone(&log),
            &schedule,
            manner,
        );
        if let Err(stuck) = run.finish().await {
            panic!("over an unmovable inner sink, at {caller}: {stuck}");
        }
        let closed = log.entries().closed;
        assert!(
            closed == 1,
            "over an unmovable inner sink, at {caller}: it was closed {closed} times"
        );
    }
}
