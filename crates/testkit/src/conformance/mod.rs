//! The rules that every stream adapter keeps, checked on any of them; those for sinks are in [`sink`],
//! and those for services with a limit in [`service`].
//!
//! A [`Subject`] describes an adapter by closures: how to build it over an [`Input`], and how to read its output. Every
//! [`Rule`] builds the adapter anew, runs it over many schedules of arrivals and kinds of consumers, and reports how the
//! adapter breaks the rule. All runs are in virtual time and deterministic.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use futures::StreamExt;
//! use testkit::conformance::Subject;
//!
//! // Items as they are, in groups, or as results, which carry the item either way …
//! Subject::new(|input| input.fuse())
//!     .into_parts(|adapter| (adapter.into_inner(), None::<u32>))
//!     .check()
//!     .await;
//! Subject::new(|input| input.ready_chunks(3).fuse()).check().await;
//!
//! // … or in any other form.
//! Subject::with_items(|input| input.enumerate().fuse(), |(_, item)| vec![item])
//!     .check()
//!     .await;
//! # }
//! ```
//!
//! If an undisturbed run loses or doubles items, the rules that count items ([`Rule::SizeHint`], [`Rule::CancelSafe`],
//! [`Rule::IntoParts`], [`Rule::LateWakeUp`]) are skipped. If [`Rule::KeepsAWaker`] is broken, [`Rule::CancelSafe`] is
//! skipped, because it moves the adapter from task to task.

mod delays;
mod input;
mod manner;
mod parcel;
mod rule;
mod rules;
mod run;
mod schedule;
pub mod service;
pub mod sink;
mod violation;

use std::{fmt, future::Future, panic::Location, time::Duration};

use futures_core::{FusedStream, Stream};

use self::{
    delays::Delays,
    input::Hint,
    manner::Manner,
    run::Run,
    schedule::Schedule,
    violation::{Found, assert_none},
};
pub use self::{
    input::{Input, Unmovable},
    parcel::Parcel,
    rule::Rule,
    violation::Violation,
};
use crate::{
    clock::{self, jump},
    patience::Patience,
    wakes::Driven,
};

type Build<A> = Box<dyn FnMut(Input) -> A>;
type Carried<T> = Box<dyn FnMut(T) -> Vec<u32>>;
type Split<A> = Box<dyn FnMut(Driven<A>) -> (Input, Vec<u32>)>;

/// The description of an adapter for the suite.
#[must_use = "a subject does nothing unless checked"]
pub struct Subject<A: Stream> {
    build: Build<A>,
    carried: Carried<A::Item>,
    split: Option<Split<A>>,
    delays: Delays,
    keeps: Keeps,
}

/// Which items an adapter emits, and in what order.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    All,
    /// All, in any order.
    Unordered,
    /// Some, in order.
    Some,
}

impl<A: FusedStream> Subject<A> {
    /// The adapter that `build` makes. `build` is called for every run, at its first instant.
    pub fn new(build: impl FnMut(Input) -> A + 'static) -> Self
    where
        A::Item: Parcel + 'static,
    {
        Self::with_items(build, Parcel::into_items)
    }

    /// The same for an output item that is no [`Parcel`]. `carried` returns the input items in it.
    pub fn with_items(
        build: impl FnMut(Input) -> A + 'static,
        carried: impl FnMut(A::Item) -> Vec<u32> + 'static,
    ) -> Self {
        Self {
            build: Box::new(build),
            carried: Box::new(carried),
            split: None,
            delays: Delays::default(),
            keeps: Keeps::All,
        }
    }

    /// Sets how to take the adapter apart: into the input and the items held. Without it [`Rule::IntoParts`] is skipped.
    pub fn into_parts<H: Parcel>(mut self, mut split: impl FnMut(A) -> (Input, H) + 'static) -> Self
    where
        A: Unpin,
    {
        self.split = Some(Box::new(move |adapter| {
            let (input, held) = split(adapter.into_inner());
            (input, held.into_items())
        }));
        self
    }

    /// Promises that two emissions are never closer than this, even if polls are late.
    pub fn spacing(mut self, spacing: Duration) -> Self {
        self.delays.spacing = Some(spacing);
        self
    }

    /// Sets how long the adapter's own delays are, so that arrivals are near them.
    ///
    /// The default is the spacing, or 10 ms without one. Above two minutes the gaps of the suite would look like a hang.
    pub fn scale(mut self, scale: Duration) -> Self {
        self.delays.scale = Some(scale);
        self
    }

    /// Allows the adapter to drop items. The others still have to be in order, and none doubled.
    pub fn lossy(mut self) -> Self {
        self.keeps = Keeps::Some;
        self
    }

    /// Allows items to overtake each other. None may be lost or doubled.
    pub fn unordered(mut self) -> Self {
        self.keeps = Keeps::Unordered;
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
    /// If the clock is not paused.
    pub async fn violations(mut self) -> Vec<Violation<Rule>> {
        // Panics at once if the clock is not paused.
        jump(Duration::ZERO).await;
        let subject = &mut self;
        let mut found = Found(Vec::new());

        let keeps_items = rules::nothing_lost(subject).await;
        let can_be_counted = keeps_items.is_ok();
        found.note(keeps_items);
        let wakes_its_task = rules::keeps_a_waker(subject).await;
        let can_be_moved = wakes_its_task.is_ok();
        found.note(wakes_its_task);
        found.note(rules::input_after_end(subject).await);
        found.note(rules::ends_on_time(subject).await);
        found.note(rules::terminated(subject).await);
        if can_be_counted {
            found.note(rules::size_hint(subject).await);
            found.note(rules::into_parts(subject).await);
            found.note(rules::late_wake_up(subject).await);
        }
        if can_be_counted && can_be_moved {
            found.note(rules::cancel_safe(subject).await);
        }
        found.0
    }

    /// Builds the adapter over a fresh input.
    fn start(&mut self, schedule: &Schedule, hint: Hint, manner: Manner) -> Run<'_, A> {
        let input = Input::new(schedule, hint, clock::now());
        let log = input.log();
        let adapter = (self.build)(input);
        Run::start(adapter, &mut self.carried, log, manner)
    }

    /// Takes the adapter apart, if `into_parts` was set.
    fn split(&mut self, adapter: Driven<A>) -> Option<(Input, Vec<u32>)> {
        let split = self.split.as_mut()?;
        Some(split(adapter))
    }

    /// Compares the output with the expected items.
    fn compare(&self, schedule: &Schedule, mut came: Vec<u32>) -> Result<(), String> {
        let whole = schedule.whole();
        let is_right = match self.keeps {
            Keeps::All => came == whole,
            Keeps::Unordered => {
                came.sort_unstable();
                came == whole
            }
            // The input ascends strictly, so every ascending row of its items is a subsequence.
            Keeps::Some => {
                came.is_sorted_by(|a, b| a < b) && came.iter().all(|item| whole.contains(item))
            }
        };
        if is_right {
            return Ok(());
        }
        Err(format!("{came:?} came of {whole:?}"))
    }
}

impl<A: Stream> fmt::Debug for Subject<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("delays", &self.delays)
            .field("keeps", &self.keeps)
            .finish_non_exhaustive()
    }
}

/// Checks that an adapter works over an input that is not `Unpin`, down to its end.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use futures::StreamExt;
/// use testkit::conformance;
///
/// conformance::check_unmovable(|input| input.skip(1)).await;
/// # }
/// ```
///
/// # Panics
///
/// When it hangs or spins. (That it compiles is most of the test.)
#[track_caller]
pub fn check_unmovable<A: Stream>(build: impl FnOnce(Unmovable) -> A) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let mut adapter = Box::pin(build(Unmovable::new(clock::now())));
        let mut patience = Patience::default();
        loop {
            match patience.next(adapter.as_mut()).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(stuck) => panic!("over an unmovable input, at {caller}, it {stuck}"),
            }
        }
    }
}
