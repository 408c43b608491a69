//! An [`AlignedWindow`] with a wall clock that runs as the ticks do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline::policy::states::AlignedWindowState;
use paceline::policy::{AlignedWindow, Alignment, Decision, Policy, Quota, Status};
use paceline::time::{Tick, WallClock};
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};

use super::super::model::Calendar;
use super::windows::limits;
use super::{Subject, Window, durations, nanos};

/// The windows, and the clock that they read.
#[derive(Clone, Debug)]
pub(crate) struct Aligned {
    pub(crate) window: AlignedWindow,
    /// The time since 1970, in nanoseconds.
    wall: Arc<AtomicU64>,
}

/// The wall clock is not before the creation of the state.
#[derive(Clone, Debug)]
pub(crate) struct AlignedState {
    start: Tick,
    state: AlignedWindowState,
}

const HOUR: Duration = Duration::from_secs(3_600);

impl Aligned {
    pub(crate) fn new(window: AlignedWindow) -> Self {
        let wall = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&wall);
        let clock = WallClock::new(move || Duration::from_nanos(read.load(Ordering::Relaxed)));
        Self {
            window: window.with_clock(clock),
            wall,
        }
    }

    /// The policy, when its wall clock shows this time.
    fn at(&self, state: &AlignedState, now: Tick) -> &AlignedWindow {
        let wall = now.max(state.start).as_nanos();
        self.wall.store(wall, Ordering::Relaxed);
        &self.window
    }

    /// The shortest of its windows.
    fn shortest(&self) -> Duration {
        match self.window.alignment() {
            Alignment::Month => Duration::from_secs(28 * 86_400),
            other => other.longest(),
        }
    }
}

impl Policy for Aligned {
    type State = AlignedState;

    fn fresh(&self, now: Tick) -> AlignedState {
        AlignedState {
            start: now,
            state: self.window.fresh(now),
        }
    }

    fn decide(&self, state: &mut AlignedState, now: Tick, cost: u32) -> Decision {
        self.at(state, now).decide(&mut state.state, now, cost)
    }

    /// The wall clock does not show it yet.
    fn foresee(&self, state: &mut AlignedState, then: Tick) {
        let started = state.start;
        self.at(state, started).foresee(&mut state.state, then);
    }

    fn credit(&self, state: &AlignedState, now: Tick) -> u32 {
        self.at(state, now).credit(&state.state, now)
    }

    fn room(&self, state: &AlignedState, now: Tick) -> u32 {
        self.at(state, now).room(&state.state, now)
    }

    fn quota(&self) -> Option<Quota> {
        self.window.quota()
    }

    fn status(&self, state: &AlignedState, now: Tick) -> Status {
        self.at(state, now).status(&state.state, now)
    }

    fn refund(&self, state: &mut AlignedState, now: Tick, cost: u32) {
        self.at(state, now).refund(&mut state.state, now, cost);
    }

    fn refund_from(&self, state: &mut AlignedState, now: Tick, spent_at: Tick, cost: u32) {
        let window = self.at(state, now);
        window.refund_from(&mut state.state, now, spent_at, cost);
    }

    fn charge(&self, state: &mut AlignedState, now: Tick, cost: u32) {
        self.at(state, now).charge(&mut state.state, now, cost);
    }

    fn retune(&self, old: &Self, state: &mut AlignedState, now: Tick) {
        let old = old.at(state, now);
        self.at(state, now).retune(old, &mut state.state, now);
    }

    fn settled_at(&self, state: &AlignedState) -> Tick {
        self.window.settled_at(&state.state)
    }

    fn is_settled(&self, state: &AlignedState, now: Tick) -> bool {
        self.at(state, now).is_settled(&state.state, now)
    }
}

impl Subject for Aligned {
    type Model = Calendar;

    fn any() -> BoxedStrategy<Self> {
        let alignment = prop_oneof![
            4 => (1..50u64).prop_map(|length| Alignment::Every(Duration::from_nanos(length))),
            2 => durations().prop_map(Alignment::Every),
            1 => Just(Alignment::Minute),
            1 => Just(Alignment::Hour),
            1 => Just(Alignment::Day),
            1 => Just(Alignment::Week),
            3 => Just(Alignment::Month),
        ];
        let offset = prop_oneof![
            2 => Just(0),
            2 => (-12..=14).prop_map(|hours| hours * 3_600),
            1 => -86_399..=86_399,
        ];
        let shortest = prop_oneof![(0..20u64).prop_map(Duration::from_nanos), Just(HOUR)];
        let margin = prop_oneof![
            3 => Just(Duration::ZERO),
            2 => (0..20u64).prop_map(Duration::from_nanos),
            1 => Just(HOUR),
        ];
        (limits(), alignment, offset, shortest, margin)
            .prop_map(|(limit, alignment, offset, shortest, margin)| {
                let window = AlignedWindow::new(limit, alignment).with_utc_offset(offset);
                let aligned = Self::new(window);
                let margin = margin.min(aligned.shortest().saturating_sub(Duration::from_nanos(1)));
                let delay = shortest..=shortest + margin;
                Self {
                    window: aligned.window.with_margin(delay),
                    wall: aligned.wall,
                }
            })
            .boxed()
    }

    fn grain(&self) -> u64 {
        nanos(self.shortest())
    }

    fn period(&self) -> u64 {
        nanos(self.window.alignment().longest())
    }

    fn burst(&self) -> u32 {
        self.window.limit()
    }

    /// Before the end of a window it is closed.
    fn sustains_its_quota(&self) -> bool {
        self.window
            .margin()
            .is_none_or(|delay| delay.start() == delay.end())
    }

    /// With a margin it resets at the end of the time for which it is closed, too.
    fn parts(&self, state: &AlignedState, now: Tick) -> Vec<Status> {
        vec![self.status(state, now)]
    }

    /// "31 days can hold 3 · n, with a whole February."
    fn quotas_in_a_window(&self) -> u128 {
        if self.window.alignment() == Alignment::Month {
            3
        } else {
            2
        }
    }

    /// "A half-open window of the same length that begins anywhere holds at most 2 · n. For months that length is 28 days."
    fn allows(&self, window: &Window) -> bool {
        let touched = u128::from(window.span) / self.shortest().as_nanos() + 1;
        window.total <= (touched + 1) * u128::from(self.window.limit())
    }
}
