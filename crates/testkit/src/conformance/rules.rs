//! The rules, one function each.

use futures_core::FusedStream;

use super::{
    Rule, Subject, Violation,
    input::Hint,
    manner::Manner,
    run::{Run, Trace},
    schedule::{Dice, SEEDS, Schedule},
};

type Outcome = Result<(), Violation<Rule>>;

/// Every item is emitted once, in order, to an eager consumer and to a lazy one.
pub(super) async fn nothing_lost<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for seed in 0..SEEDS {
        let schedule = Schedule::random(&mut Dice::new(seed), subject.delays.gaps());
        let lazy = Manner::Lazy(Dice::new(seed), subject.delays.gaps());
        for manner in [Manner::Eager, lazy] {
            let case = format!("seed {seed}, input {schedule}, {manner}");
            let trace = subject.run(&schedule, manner).await?;
            subject
                .compare(&schedule, trace.items())
                .map_err(|found| Rule::NothingLost.broken(format!("{case}: {found}")))?;
        }
    }
    Ok(())
}

/// Every poll has a new waker. The adapter keeps it, and wakes that one.
pub(super) async fn keeps_a_waker<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for schedule in Schedule::cases(subject.delays.gaps()) {
        subject.run(&schedule, Manner::Wandering).await?;
    }
    Ok(())
}

/// The input is not polled after its end, even if the adapter is.
pub(super) async fn input_after_end<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for schedule in Schedule::cases(subject.delays.gaps()) {
        let mut run = subject.start(&schedule, Hint::Exact, Manner::Eager);
        while !run.has_ended() {
            run.turn().await?;
        }
        run.poll_again();
        run.poll_again();

        let polls = run.input_polls_after_end();
        if polls > 0 {
            return Err(Rule::InputAfterEnd.broken(format!(
                "polled {polls} times after its end, input {schedule}"
            )));
        }
    }
    Ok(())
}

/// The end comes with the last emission or with the input's end. An empty input gives no emission.
pub(super) async fn ends_on_time<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for schedule in Schedule::cases(subject.delays.gaps()) {
        let trace = subject.run(&schedule, Manner::Eager).await?;
        let last = trace.emitted.last().map(|(at, _)| *at);
        let due = last.unwrap_or_default().max(schedule.end);
        if trace.ended_at != Some(due) {
            return Err(Rule::EndsOnTime.broken(format!(
                "ended at {:?} instead of {due:?}, input {schedule}",
                trace.ended_at.unwrap_or_default()
            )));
        }
        if schedule.items.is_empty() && last.is_some() {
            return Err(Rule::EndsOnTime.broken("an empty input gave an item"));
        }
    }
    Ok(())
}

/// `is_terminated` is right before every poll.
pub(super) async fn terminated<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for schedule in Schedule::cases(subject.delays.gaps()) {
        let trace = subject.run(&schedule, Manner::Eager).await?;
        let total = trace.emitted.len();
        if let Some(said) = trace
            .said
            .iter()
            .find(|said| said.is_terminated && said.emitted < total)
        {
            return Err(Rule::Terminated.broken(format!(
                "true with {} still to come, input {schedule}",
                total - said.emitted
            )));
        }
        if !trace.is_terminated {
            return Err(Rule::Terminated.broken(format!("false after the end, input {schedule}")));
        }
    }
    Ok(())
}

/// `size_hint` is right before every poll, however precise that of the input is.
pub(super) async fn size_hint<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for schedule in Schedule::cases(subject.delays.gaps()) {
        for hint in Hint::ALL {
            let run = subject.start(&schedule, hint, Manner::Eager);
            let trace = run.finish().await?;
            for said in &trace.said {
                let left = trace.emitted.len() - said.emitted;
                let (lower, upper) = said.hint;
                if left < lower || upper.is_some_and(|upper| left > upper) {
                    return Err(Rule::SizeHint.broken(format!(
                        "{:?} with {left} still to come after {}, input {schedule} hinting {hint:?}",
                        said.hint, said.emitted
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Waits that are given up, each in a task of its own, have no effect.
pub(super) async fn cancel_safe<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    let patience = subject.delays.patience();
    for schedule in Schedule::cases(subject.delays.gaps()) {
        let calm = subject.run(&schedule, Manner::Eager).await?;
        // If the adapter hangs only when it is disturbed, this is the rule that it breaks.
        let disturbed = subject.run(&schedule, Manner::Restless(patience)).await;
        let disturbed = disturbed.map_err(|stuck| Rule::CancelSafe.broken(stuck.detail))?;
        if disturbed.emitted != calm.emitted {
            return Err(Rule::CancelSafe.broken(format!(
                "{:?} instead of {:?}, input {schedule}",
                disturbed.emitted, calm.emitted
            )));
        }
    }
    Ok(())
}

/// Taken apart after any number of polls, the adapter accounts for the whole input.
pub(super) async fn into_parts<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    for schedule in Schedule::cases(subject.delays.gaps()) {
        for polls in 0.. {
            let mut run = subject.start(&schedule, Hint::Exact, Manner::Eager);
            for _ in 0..polls {
                if !run.has_ended() {
                    run.turn().await?;
                }
            }
            let has_ended = run.has_ended();
            let (adapter, out) = run.stop();
            let Some((input, held)) = subject.split(adapter) else {
                return Ok(());
            };
            let parts = format!("out {out:?}, held {held:?}");
            subject
                .compare(&schedule, input.join(out, held))
                .map_err(|found| {
                    Rule::IntoParts.broken(format!(
                        "after {polls} polls, {parts}: {found}, input {schedule}"
                    ))
                })?;
            if has_ended {
                break;
            }
        }
    }
    Ok(())
}

/// Late polls lose nothing and bring no two emissions too close.
pub(super) async fn late_wake_up<A: FusedStream>(subject: &mut Subject<A>) -> Outcome {
    let scale = subject.delays.gaps();
    for seed in 0..SEEDS {
        let schedule = match seed % 2 {
            0 => Schedule::random(&mut Dice::new(seed), scale),
            // There is always something due, so that every leap skips an instant.
            _ => Schedule::burst(),
        };
        let lazy = Manner::Lazy(Dice::new(seed), scale);
        let late = Manner::Late(Dice::new(seed), scale);
        for manner in [Manner::Eager, lazy, late] {
            let case = format!("seed {seed}, input {schedule}, {manner}");
            let trace = subject.run(&schedule, manner).await?;
            subject
                .compare(&schedule, trace.items())
                .and_then(|()| {
                    let at = trace.emitted.iter().map(|(at, _)| *at);
                    subject.delays.are_kept("emissions", at)
                })
                .map_err(|found| Rule::LateWakeUp.broken(format!("{case}: {found}")))?;
        }
    }
    Ok(())
}

impl<A: FusedStream> Subject<A> {
    async fn run(&mut self, schedule: &Schedule, manner: Manner) -> Result<Trace, Violation<Rule>> {
        let run: Run<'_, A> = self.start(schedule, Hint::Exact, manner);
        run.finish().await
    }
}
