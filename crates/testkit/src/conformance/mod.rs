//! The rules that every adapter keeps, of streams and of sinks, checked on any of them; those for services with a limit
//! are in [`service`].
//!
//! A [`Subject`] describes an adapter by closures: how to build it over an [`Input`] or an [`Inner`](sink::Inner) sink, how to take it
//! apart, and what the errors of a sink mean. Every [`Rule`] builds the adapter anew, has it used by many kinds of tasks, over
//! inputs and inner sinks that are fast, slow or failing, and reports how the adapter breaks the rule. All runs are in virtual
//! time and deterministic.
//!
//! If an undisturbed run loses or doubles items, or does not end, the other rules are skipped. If [`Rule::KeepsAWaker`] is
//! broken, [`Rule::CancelSafe`] is skipped, because it moves the adapter from task to task.

mod manner;
mod parcel;
mod rule;
mod rules;
mod run;
mod scene;
mod schedule;
pub mod service;
pub mod sink;
mod stream;

use std::{fmt, future::Future, panic::Location, time::Duration};

pub use self::{
    parcel::Parcel,
    rule::{Rule, Violation},
    stream::{Input, Unmovable, check_unmovable},
};
use self::{
    rule::assert_none,
    run::{Play, Trace},
    scene::{Hint, Keeps, Room, Scene},
    schedule::{Schedule, whole_ms},
};
use crate::clock::jump;

/// The typical gap in a schedule, if the subject says nothing else.
const SCALE: Duration = Duration::from_millis(10);

/// Builds the adapter anew, over what is in the scene.
type Start = dyn Fn(&Scene) -> Box<dyn Play>;

/// The description of an adapter for the suite.
#[must_use = "a subject does nothing unless checked"]
pub struct Subject {
    start: Box<Start>,
    is_sink: bool,
    spacing: Duration,
    scale: Option<Duration>,
    keeps: Keeps,
}

impl Subject {
    fn new(is_sink: bool, start: impl Fn(&Scene) -> Box<dyn Play> + 'static) -> Self {
        Self {
            start: Box::new(start),
            is_sink,
            spacing: Duration::ZERO,
            scale: None,
            keeps: Keeps::All,
        }
    }

    /// Promises that two emissions or sends are never closer than this, even if polls are late or the inner sink is slow.
    pub fn spacing(mut self, spacing: Duration) -> Self {
        self.spacing = spacing;
        self
    }

    /// Sets how long the adapter's own delays are, so that arrivals are near them.
    ///
    /// The default is the spacing, or 10 ms without one. Above two minutes the gaps of the suite would look like a hang.
    pub fn scale(mut self, scale: Duration) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Allows the adapter to drop items; a sink may hold none then. The others still have to be in order, and none doubled.
    pub fn lossy(mut self) -> Self {
        self.keeps = Keeps::Some;
        self
    }

    /// Allows items to overtake each other. None may be lost or doubled.
    pub fn unordered(mut self) -> Self {
        self.keeps = Keeps::Unordered;
        self
    }

    /// Checks every rule. Panics with the list of violations and the caller's line, if there are any.
    #[track_caller]
    pub fn check(self) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move { assert_none(&self.violations().await, caller) }
    }

    /// Checks every rule, on a paused clock. Returns one violation for each rule that is broken.
    pub async fn violations(self) -> Vec<Violation> {
        // Panics at once if the clock is not paused.
        jump(Duration::ZERO).await;
        let noted = match rules::nothing_lost(&self).await {
            Ok(noted) => noted,
            Err(violation) => return vec![violation],
        };
        let mut outcomes = vec![
            rules::keeps_a_waker(&self).await,
            rules::into_parts(&self).await,
        ];
        if outcomes[0].is_ok() {
            outcomes.push(rules::cancel_safe(&self).await);
        }
        if self.is_sink {
            outcomes.push(rules::asking_is_free(&self).await);
            outcomes.push(rules::permit_last(&self).await);
            outcomes.push(rules::inner_errors(&self).await);
        }
        outcomes.push(rules::late_wake_up(&self).await);

        let mut found: Vec<Violation> = Vec::new();
        let broken = outcomes.into_iter().filter_map(Result::err);
        for violation in noted.into_iter().chain(broken) {
            if found.iter().all(|known| known.rule != violation.rule) {
                found.push(violation);
            }
        }
        found
    }

    /// The typical gap in a schedule, in whole milliseconds, which tokio's timers keep exactly.
    fn gaps(&self) -> Duration {
        let spacing = Some(self.spacing).filter(|spacing| !spacing.is_zero());
        let asked = self.scale.or(spacing).unwrap_or(SCALE);
        whole_ms(asked).max(Duration::from_millis(1))
    }

    /// After this long a consumer or a producer gives up a wait.
    fn patience(&self) -> Duration {
        (self.gaps() / 4).max(Duration::from_millis(1))
    }

    fn scene(&self, seed: u64, schedule: Schedule) -> Scene {
        Scene {
            keeps: self.keeps,
            ..Scene::new(seed, schedule)
        }
    }

    /// The cases that matter and some random ones, over each kind of input or inner sink.
    fn scenes(&self, random: u64) -> Vec<Scene> {
        let mut scenes = Vec::new();
        for (seed, schedule) in (0..).zip(Schedule::cases(self.gaps(), random)) {
            let scene = self.scene(seed, schedule);
            for hint in Hint::ALL.into_iter().filter(|_| !self.is_sink) {
                scenes.push(Scene {
                    hint,
                    ..scene.clone()
                });
            }
            let rooms = [Room::Always, Room::Slow(seed, self.gaps())];
            for room in rooms.into_iter().filter(|_| self.is_sink) {
                scenes.push(Scene {
                    room,
                    ..scene.clone()
                });
            }
        }
        scenes
    }

    /// Whether no two emissions or sends are closer than the spacing.
    fn spaced(&self, trace: &Trace) -> Result<(), String> {
        let spacing = self.spacing;
        let instants: Vec<Duration> = trace.given.iter().map(|(at, _)| *at).collect();
        let mut pairs = instants.windows(2);
        match pairs.find(|pair| pair[1].saturating_sub(pair[0]) < spacing) {
            Some(pair) => Err(format!("{pair:?} are closer than {spacing:?}")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("is_sink", &self.is_sink)
            .field("keeps", &self.keeps)
            .finish_non_exhaustive()
    }
}
