//! The functions of this crate between the poll of a stream and the clock.

use std::backtrace::Backtrace;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::states::IntervalState;
use paceline::policy::{Decision, Interval, Policy};
use paceline::prelude::*;
use paceline::time::Tick;
use tokio::runtime::Builder;

use crate::measures::Measure;

/// An interval that keeps the longest list of frames on which it was asked.
struct Traced {
    policy: Interval,
    frames: Arc<Mutex<Vec<String>>>,
}

impl Policy for Traced {
    type State = IntervalState;

    fn fresh(&self, now: Tick) -> IntervalState {
        self.policy.fresh(now)
    }

    /// Called by the function that has read the clock before.
    fn decide(&self, state: &mut IntervalState, now: Tick, cost: u32) -> Decision {
        let frames = frames_of_src(&Backtrace::force_capture().to_string());
        let mut longest = self.frames.lock().unwrap();
        if frames.len() > longest.len() {
            *longest = frames;
        }
        self.policy.decide(state, now, cost)
    }

    fn peek(&self, state: &IntervalState, now: Tick, cost: u32) -> Decision {
        self.policy.peek(state, now, cost)
    }

    fn refund(&self, state: &mut IntervalState, now: Tick, cost: u32) {
        self.policy.refund(state, now, cost);
    }

    fn retune(&self, old: &Self, state: &mut IntervalState, now: Tick) {
        self.policy.retune(&old.policy, state, now);
    }

    fn settled_at(&self, state: &IntervalState) -> Tick {
        self.policy.settled_at(state)
    }
}

/// The functions whose code is in `src/`, from the stream down. In a backtrace a line with a name is followed by one with a file.
/// A closure is part of its function.
fn frames_of_src(backtrace: &str) -> Vec<String> {
    let lines: Vec<&str> = backtrace.lines().map(str::trim).collect();
    let frames = lines.windows(2).filter_map(|pair| {
        let (_, name) = pair[0].split_once(": ")?;
        let is_here = pair[1].starts_with("at ./src/");
        (is_here && !name.contains("closure")).then(|| name.to_owned())
    });
    let mut frames: Vec<String> = frames.collect();
    frames.reverse();
    frames
}

/// One element passes at once, and two wait first. The longest list counts. The function that asks the policy is as deep as the one
/// that reads the clock.
pub(crate) fn to_the_clock() -> Measure {
    let frames = Arc::default();
    let limit = Traced {
        policy: Interval::every(Duration::from_millis(10)),
        frames: Arc::clone(&frames),
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let paced = stream::iter(0..3).pace(limit.shared());
        assert_eq!(paced.count().await, 3);
    });
    let frames = frames.lock().unwrap().clone();
    assert!(
        !frames.is_empty(),
        "the backtrace names no function of this crate"
    );
    Measure::of_places(frames)
}

#[test]
fn frames_of_other_crates_and_closures_do_not_count() {
    let backtrace = "   0: std::backtrace::Backtrace::force_capture\n\
                             at /rustc/1/library/std/src/backtrace.rs:1:1\n\
                        1: <structure::frames::Traced as paceline::policy::Policy>::fresh\n\
                             at ./tests/structure/frames.rs:28:31\n\
                        2: paceline::limiter::limit::now::{{closure}}\n\
                             at ./src/limiter/limit.rs:2:2\n\
                        3: now<Interval>\n\
                             at ./src/limiter/limit.rs:1:1\n\
                        4: core::option::Option<T>::map\n\
                             at /rustc/1/library/core/src/option.rs:1:1\n\
                        5: <paceline::stream::pace::Pace<S,L> as futures_core::stream::Stream>::poll_next\n\
                             at ./src/stream/pace.rs:1:1\n\
                        6: structure::main";
    assert_eq!(
        frames_of_src(backtrace),
        [
            "<paceline::stream::pace::Pace<S,L> as futures_core::stream::Stream>::poll_next",
            "now<Interval>",
        ]
    );
}
