//! The functions of this crate between the poll of a stream and the policy that decides.

use std::backtrace::Backtrace;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{Decision, Interval, IntervalState, Policy};
use paceline::prelude::*;
use paceline::time::Tick;
use tokio::runtime::Builder;

use crate::measures::Measure;

/// An interval that keeps the longest list of frames on which it was asked.
struct Traced {
    policy: Interval,
    longest: Arc<Mutex<Vec<String>>>,
}

impl Policy for Traced {
    type State = IntervalState;

    fn fresh(&self, now: Tick) -> IntervalState {
        self.policy.fresh(now)
    }

    fn decide(&self, state: &mut IntervalState, now: Tick, cost: u32) -> Decision {
        let frames = frames_of_this_crate(&Backtrace::force_capture().to_string());
        let mut longest = self.longest.lock().unwrap();
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

/// The frames from the stream down to the policy. In a backtrace the numbered lines have functions, the others have files.
fn frames_of_this_crate(backtrace: &str) -> Vec<String> {
    let names = backtrace
        .lines()
        .filter_map(|line| line.trim_start().split_once(": "));
    let names = names.filter(|(number, _)| number.parse::<u32>().is_ok());
    let mut frames: Vec<String> = names
        .map(|(_, name)| name)
        .filter(|name| name.trim_start_matches('<').starts_with("paceline::"))
        .map(str::to_owned)
        .collect();
    frames.reverse();
    frames
}

/// One element passes at once, and two wait first. The longest list counts.
pub(crate) fn to_the_policy() -> Measure {
    let longest = Arc::default();
    let limit = Traced {
        policy: Interval::every(Duration::from_millis(10)),
        longest: Arc::clone(&longest),
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
    let frames = longest.lock().unwrap().clone();
    assert!(
        !frames.is_empty(),
        "the backtrace names no function of this crate"
    );
    Measure::of_places(frames)
}

#[test]
fn frames_of_other_crates_do_not_count() {
    let backtrace = "   0: std::backtrace::Backtrace::force_capture\n\
                        1: <structure::frames::Traced as paceline::policy::Policy>::decide\n\
                                at ./tests/structure/frames.rs:28:31\n\
                        2: paceline::limiter::limit::Limit<P>::decide\n\
                        3: core::option::Option<T>::map\n\
                        4: <paceline::stream::pace::Pace<S,L> as futures_core::stream::Stream>::poll_next\n\
                        5: structure::main";
    assert_eq!(
        frames_of_this_crate(backtrace),
        [
            "<paceline::stream::pace::Pace<S,L> as futures_core::stream::Stream>::poll_next",
            "paceline::limiter::limit::Limit<P>::decide",
        ]
    );
}
