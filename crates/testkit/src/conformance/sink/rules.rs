//! The rules, one function each.

use futures_sink::Sink;

use super::{
    Rule, Subject,
    inner::Room,
    manner::{Flushes, Sending},
    run::Trace,
};
use crate::conformance::{
    Parcel, Violation,
    manner::Manner,
    schedule::{Dice, SEEDS, Schedule},
};

type Outcome = Result<(), Violation<Rule>>;

/// Every item is sent once, in order. Returns violations of other rules too, so that those need no run of their own.
pub(super) async fn nothing_lost<A, T>(
    subject: &mut Subject<A, T>,
) -> Result<Vec<Violation<Rule>>, Violation<Rule>>
where
    A: Sink<u32>,
    T: Parcel,
{
    let mut noted = Vec::new();
    for seed in 0..SEEDS {
        let schedule = Schedule::random(&mut Dice::new(seed), subject.delays.gaps());
        let slow = Room::Slow(seed, subject.delays.gaps());
        let lazy = Manner::Lazy(Dice::new(seed), subject.delays.gaps());
        for producer in [Manner::Eager, lazy] {
            for room in [Room::Always, slow] {
                let manner = Sending::new(producer.clone(), Flushes::of(seed)).over(room);
                let case = format!("seed {seed}, items {schedule}, {manner}");
                let trace = subject.run(&schedule, manner).await?;
                subject
                    .compare(&trace, &[])
                    .map_err(|found| Rule::NothingLost.broken(format!("{case}: {found}")))?;
                noted.extend(trace.noted);
            }
        }
    }
    Ok(noted)
}

/// Every poll has a new waker. The adapter keeps it, and wakes that one.
pub(super) async fn keeps_a_waker<A: Sink<u32>, T: Parcel>(subject: &mut Subject<A, T>) -> Outcome {
    for (seed, schedule) in (0..).zip(Schedule::cases(subject.delays.gaps())) {
        for room in [Room::Always, Room::Slow(seed, subject.delays.gaps())] {
            let manner = Sending::new(Manner::Wandering, Flushes::of(seed));
            subject.run(&schedule, manner.over(room)).await?;
        }
    }
    Ok(())
}

/// Extra `poll_ready` calls before each item do not move the instants of the sends.
pub(super) async fn asking_is_free<A: Sink<u32>, T: Parcel>(
    subject: &mut Subject<A, T>,
) -> Outcome {
    for (seed, schedule) in (0..).zip(Schedule::cases(subject.delays.gaps())) {
        let manner = Sending::new(Manner::Eager, Flushes::of(seed));
        let once = subject.run(&schedule, manner.clone()).await?;
        let thrice = subject.run(&schedule, manner.asking(3)).await;
        let thrice = thrice.map_err(|stuck| Rule::AskingIsFree.broken(stuck.detail))?;
        same(&once, &thrice)
            .map_err(|found| Rule::AskingIsFree.broken(format!("{found}, items {schedule}")))?;
    }
    Ok(())
}

/// Sends keep their spacing, however slow the inner sink is.
pub(super) async fn permit_last<A: Sink<u32>, T: Parcel>(subject: &mut Subject<A, T>) -> Outcome {
    for seed in 0..SEEDS {
        let schedule = Schedule::burst();
        let room = Room::Slow(seed, subject.delays.gaps());
        let manner = Sending::new(Manner::Eager, Flushes::of(seed)).over(room);
        let case = format!("seed {seed}, items {schedule}, {manner}");
        let trace = subject.run(&schedule, manner).await?;
        spaced(subject, &trace)
            .map_err(|found| Rule::PermitLast.broken(format!("{case}: {found}")))?;
    }
    Ok(())
}

/// Late polls lose nothing and bring no two sends too close.
pub(super) async fn late_wake_up<A: Sink<u32>, T: Parcel>(subject: &mut Subject<A, T>) -> Outcome {
    let scale = subject.delays.gaps();
    for seed in 0..SEEDS {
        let schedule = match seed % 2 {
            0 => Schedule::random(&mut Dice::new(seed), scale),
            // Something is always due, so that every leap passes over an instant.
            _ => Schedule::burst(),
        };
        let lazy = Manner::Lazy(Dice::new(seed), scale);
        let late = Manner::Late(Dice::new(seed), scale);
        for producer in [Manner::Eager, lazy, late] {
            let manner = Sending::new(producer, Flushes::of(seed / 2));
            let case = format!("seed {seed}, items {schedule}, {manner}");
            let trace = subject.run(&schedule, manner).await?;
            subject
                .compare(&trace, &[])
                .and_then(|()| spaced(subject, &trace))
                .map_err(|found| Rule::LateWakeUp.broken(format!("{case}: {found}")))?;
        }
    }
    Ok(())
}

/// Waits that are given up, each in a task of its own, have no effect. Nor have tasks that only call `poll_ready`.
pub(super) async fn cancel_safe<A: Sink<u32>, T: Parcel>(subject: &mut Subject<A, T>) -> Outcome {
    let patience = subject.delays.patience();
    for (seed, schedule) in (0..).zip(Schedule::cases(subject.delays.gaps())) {
        for room in [Room::Always, Room::Slow(seed, subject.delays.gaps())] {
            let calm = Sending::new(Manner::Hopeful, Flushes::of(seed)).over(room);
            let restless = Manner::Restless(patience);
            let restless = Sending::new(restless, Flushes::of(seed)).over(room);
            let calm = subject.run(&schedule, calm).await?;
            // If it only gets stuck when it is disturbed, that is what it is guilty of.
            let disturbed = subject.run(&schedule, restless).await;
            let disturbed = disturbed.map_err(|stuck| Rule::CancelSafe.broken(stuck.detail))?;
            same(&calm, &disturbed)
                .map_err(|found| Rule::CancelSafe.broken(format!("{found}, items {schedule}")))?;
        }
    }
    Ok(())
}

/// A failure of any call on the inner sink is reported once, and the sink goes on.
pub(super) async fn inner_errors<A: Sink<u32>, T: Parcel>(subject: &mut Subject<A, T>) -> Outcome {
    for seed in 0..6 {
        let schedule = Schedule::random(&mut Dice::new(seed), subject.delays.gaps());
        for call in 0.. {
            let manner = Sending::new(Manner::Eager, Flushes::of(seed));
            let case = format!("call {call} failed, items {schedule}, {manner}");
            let failing = subject.run_failing(&schedule, manner, Some(call)).await;
            // If it only gets stuck when the inner sink fails, that is what it is guilty of.
            let trace = failing.map_err(|stuck| Rule::InnerErrors.broken(stuck.detail))?;
            let wrong = trace
                .noted
                .iter()
                .find(|noted| noted.rule == Rule::InnerErrors);
            if let Some(wrong) = wrong {
                return Err(wrong.clone());
            }
            subject
                .compare(&trace, &[])
                .map_err(|found| Rule::InnerErrors.broken(format!("{case}: {found}")))?;
            if !trace.has_failed {
                break;
            }
        }
    }
    Ok(())
}

/// Taken apart after any number of polls, the adapter accounts for all items sent.
pub(super) async fn into_parts<A: Sink<u32>, T: Parcel>(subject: &mut Subject<A, T>) -> Outcome {
    for (seed, schedule) in (0..).zip(Schedule::cases(subject.delays.gaps())) {
        for polls in 0.. {
            let manner = Sending::new(Manner::Eager, Flushes::of(seed));
            let mut run = subject.start(&schedule, manner, None);
            for _ in 0..polls {
                run.turn().await?;
            }
            let has_ended = run.has_ended();
            let (adapter, trace) = run.stop();
            let Some(held) = subject.split(adapter) else {
                return Ok(());
            };
            subject.compare(&trace, &held).map_err(|found| {
                let parts = format!("after {polls} polls, held {held:?}");
                Rule::IntoParts.broken(format!("{parts}: {found}, items {schedule}"))
            })?;
            if has_ended {
                break;
            }
        }
    }
    Ok(())
}

/// Whether the inner sink was given the same items at the same instants, and the same items were refused.
fn same(calm: &Trace, disturbed: &Trace) -> Result<(), String> {
    if calm.taken == disturbed.taken && calm.refused == disturbed.refused {
        return Ok(());
    }
    Err(format!(
        "{:?}, refused {:?}, instead of {:?}, refused {:?}",
        disturbed.taken, disturbed.refused, calm.taken, calm.refused
    ))
}

/// Whether no two sends are closer than the spacing.
fn spaced<A: Sink<u32>, T>(subject: &Subject<A, T>, trace: &Trace) -> Result<(), String> {
    let at = trace.taken.iter().map(|(at, _)| *at);
    subject.delays.are_kept("sends", at)
}

impl<A, T> Subject<A, T>
where
    A: Sink<u32>,
    T: Parcel,
{
    async fn run(
        &mut self,
        schedule: &Schedule,
        manner: Sending,
    ) -> Result<Trace, Violation<Rule>> {
        self.run_failing(schedule, manner, None).await
    }

    async fn run_failing(
        &mut self,
        schedule: &Schedule,
        manner: Sending,
        call: Option<usize>,
    ) -> Result<Trace, Violation<Rule>> {
        self.start(schedule, manner, call).finish().await
    }
}
