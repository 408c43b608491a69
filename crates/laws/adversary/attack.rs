//! Random bursts around the end of every window, for parameters that are too large for a full search.

use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use proptest::collection::vec;
use proptest::prelude::Strategy;

use super::super::bounds::allows_every_window;
use super::super::subject::Subject;
use super::super::trace::{Ask, check, starts};

/// After an idle time, at a multiple of grains and periods and up to 1 ns off, request a part of the most that can pass.
#[derive(Clone, Copy, Debug)]
struct Move {
    idle: bool,
    grains: u64,
    periods: u64,
    off: i64,
    part: u32,
}

pub(crate) fn no_window_of_an_attack_exceeds_the_bound_in_the_docs<S: Subject>() {
    let moves = (0..8u8, 0..12u64, 0..4u64, -1..2i64, 0..5u32);
    let moves = moves.prop_map(|(idle, grains, periods, off, part)| Move {
        idle: idle == 0,
        grains,
        periods: periods % 3,
        off,
        part,
    });
    check::<S, _>((S::any(), starts(), vec(moves, 1..25)), |attack| {
        let (policy, start, moves) = attack;
        allows_every_window(&policy, &booty(&policy, start, &moves))
    });
}

/// The requests that passed.
fn booty<S: Subject>(policy: &S, start: Tick, moves: &[Move]) -> Vec<Ask> {
    let mut state = policy.fresh(start);
    let mut passed = Vec::new();
    let (mut begun, mut now) = (start, start);
    for step in moves {
        let settled = policy.settled_at(&state);
        if step.idle && settled < Tick::MAX {
            now = now.max(settled);
            begun = now;
        }
        // The windows begin at the first request that still counts.
        let grains = step.grains.saturating_mul(policy.grain());
        let periods = step.periods.saturating_mul(policy.period());
        let edge = begun.after(Duration::from_nanos(grains.saturating_add(periods)));
        let nanos = edge.as_nanos().saturating_add_signed(step.off);
        now = now.max(Tick::from_nanos(nanos));

        let all = all_that_passes(policy, &state, now);
        let cost = match step.part {
            0 => 1,
            1 => all / 2,
            2 => all.saturating_sub(1),
            _ => all,
        };
        if let Decision::Wait { retry_in } = policy.peek(&state, now, cost) {
            now = now.after(retry_in);
        }
        if now == Tick::MAX {
            break;
        }
        if policy.decide(&mut state, now, cost).is_pass() && cost > 0 {
            passed.push(Ask { at: now, cost });
        }
    }
    passed
}

fn all_that_passes<S: Subject>(policy: &S, state: &S::State, now: Tick) -> u32 {
    let (mut passes, mut beyond) = (0, u64::from(policy.burst()) + 1);
    while beyond - passes > 1 {
        let middle = u64::midpoint(passes, beyond);
        let cost = u32::try_from(middle).unwrap_or(u32::MAX);
        if policy.peek(state, now, cost).is_pass() {
            passes = middle;
        } else {
            beyond = middle;
        }
    }
    u32::try_from(passes).unwrap_or(u32::MAX)
}
