//! Random traces: the requests to a limit, and their times.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof};

use super::SECOND;

/// A request, and the time since the one before.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) gap: Gap,
    pub(super) task: Task,
    /// Whether a key that may have expired is deleted.
    pub(super) forgets: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Gap {
    Micros(u64),
    /// A number of grains, plus or minus some microseconds.
    Grains(u64, i64),
    /// The wait of the last answer, plus or minus some microseconds.
    LimitArgs(i64),
    /// A number of tenths of the settling time.
    Tenths(u64),
}

#[derive(Clone, Debug)]
pub(super) enum Task {
    Ask {
        groups: Vec<(Cost, u32)>,
        ahead: u32,
    },
    Peek(Cost),
    GiveBack(Cost),
    Charge(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    Of(u32),
    /// The burst, less this number.
    AllBut(u32),
    /// The largest cost, divided by this number; it may be a debt.
    Part(u32),
}

/// The scales of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) grain: u64,
    pub(super) settles_in: u64,
    pub(super) burst: u32,
    pub(super) capacity: u32,
}

impl Gap {
    /// In microseconds.
    pub(super) fn of(self, scale: Scale, last_wait: u64) -> u64 {
        match self {
            Self::Micros(micros) => micros,
            Self::Grains(grains, off) => (grains * scale.grain).saturating_add_signed(off),
            Self::LimitArgs(off) => last_wait.saturating_add_signed(off),
            Self::Tenths(parts) => scale.settles_in / 10 * parts,
        }
    }
}

impl Cost {
    pub(super) fn of(self, scale: Scale) -> u32 {
        let cost = match self {
            Self::Of(cost) => cost,
            Self::AllBut(left) => scale.burst.saturating_sub(left),
            Self::Part(parts) => scale.capacity / parts,
        };
        cost.clamp(1, scale.capacity)
    }
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (gap(), task(), proptest::bool::ANY);
    let step = step.prop_map(|(gap, task, forgets)| Step { gap, task, forgets });
    vec(step, 1..30)
}

/// Many of them in a second.
pub(super) fn many_steps() -> impl Strategy<Value = Vec<Step>> {
    let short = (0..25_000_u64).prop_map(Gap::Micros);
    let gap = prop_oneof![60 => short, 1 => gap()];
    let ask = (1..4_u32, 0..3_u32).prop_map(|(cost, ahead)| Task::Ask {
        groups: vec![(Cost::Of(cost), 1)],
        ahead,
    });
    let step = (gap, prop_oneof![20 => ask, 1 => task()]);
    let step = step.prop_map(|(gap, task)| Step {
        gap,
        task,
        forgets: false,
    });
    vec(step, 50..200)
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        2 => Just(Gap::Micros(0)),
        1 => (1..4_u64).prop_map(Gap::Micros),
        4 => (0..4_u64, -1..2_i64).prop_map(|(grains, off)| Gap::Grains(grains, off)),
        3 => (-1..2_i64).prop_map(Gap::LimitArgs),
        1 => (0..20 * SECOND).prop_map(Gap::Micros),
        1 => (0..13_u64).prop_map(Gap::Tenths),
    ]
}

fn task() -> impl Strategy<Value = Task> {
    let groups = vec((cost(), 1..5_u32), 1..3);
    let ahead = prop_oneof![3 => Just(0), 1 => 1..40_u32];
    prop_oneof![
        6 => (groups, ahead).prop_map(|(groups, ahead)| Task::Ask { groups, ahead }),
        1 => (1..40_u32).prop_map(|ahead| Task::Ask { groups: vec![], ahead }),
        2 => cost().prop_map(Task::Peek),
        2 => cost().prop_map(Task::GiveBack),
        2 => (1..20_u32).prop_map(Task::Charge),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        3 => Just(Cost::Of(1)),
        3 => (1..7_u32).prop_map(Cost::Of),
        1 => (0..3_u32).prop_map(Cost::AllBut),
        1 => (1..5_u32).prop_map(Cost::Part),
    ]
}
