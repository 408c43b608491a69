//! The rules, one function each.

use super::{
    Rule, Subject, Violation,
    manner::Manner,
    run::{Run, Trace},
    scene::{Room, Scene},
    schedule::{Dice, Schedule},
};

/// How many random schedules are tried.
const SEEDS: u64 = 24;

/// The same for the rules that try more around each of them.
const FEW: u64 = 6;

type Outcome = Result<(), Violation>;

/// Every item comes once, in order, to an eager task and to a lazy one. Returns what the runs noted of other rules.
pub(super) async fn nothing_lost(subject: &Subject) -> Result<Vec<Violation>, Violation> {
    let mut noted = Vec::new();
    for scene in subject.scenes(SEEDS) {
        let lazy = Manner::Lazy(Dice::new(scene.seed), subject.gaps());
        for scene in [scene.clone(), scene.with(lazy)] {
            let trace = subject.run(&scene).await?;
            scene.check(Rule::NothingLost, scene.compare(&trace))?;
            noted.extend(scene.noted(&trace));
        }
    }
    Ok(noted)
}

/// Every poll has a new waker. The adapter keeps it, and wakes that one.
pub(super) async fn keeps_a_waker(subject: &Subject) -> Outcome {
    for scene in subject.scenes(FEW) {
        subject.run(&scene.with(Manner::Wandering)).await?;
    }
    Ok(())
}

/// Waits that are given up, each in a task of its own, have no effect. Nor have tasks that only call `poll_ready`.
pub(super) async fn cancel_safe(subject: &Subject) -> Outcome {
    for scene in subject.scenes(FEW) {
        let calm = scene.with(Manner::Hopeful);
        let restless = scene.with(Manner::Restless(subject.patience()));
        same(subject, Rule::CancelSafe, &calm, &restless).await?;
    }
    Ok(())
}

/// Extra `poll_ready` calls before each item do not move the instants of the sends.
pub(super) async fn asking_is_free(subject: &Subject) -> Outcome {
    for once in subject.scenes(FEW) {
        let thrice = Scene {
            asks: 3,
            ..once.clone()
        };
        same(subject, Rule::AskingIsFree, &once, &thrice).await?;
    }
    Ok(())
}

/// Taken apart after any number of turns, the adapter accounts for all items.
pub(super) async fn into_parts(subject: &Subject) -> Outcome {
    for (seed, schedule) in (0..).zip(Schedule::cases(subject.gaps(), FEW)) {
        let scene = subject.scene(seed, schedule);
        for turns in 0.. {
            let mut run = subject.start(&scene);
            for _ in 0..turns {
                run.turn().await?;
            }
            let has_ended = run.has_ended();
            let Some(trace) = run.split() else {
                return Ok(());
            };
            let found = scene.compare(&trace);
            let found = found.map_err(|what| format!("after {turns} turns {what}"));
            scene.check(Rule::IntoParts, found)?;
            if has_ended {
                break;
            }
        }
    }
    Ok(())
}

/// Late polls lose nothing and bring no two emissions or sends too close.
pub(super) async fn late_wake_up(subject: &Subject) -> Outcome {
    let gaps = subject.gaps();
    for seed in 0..SEEDS / 2 {
        // In a burst there is always something due, so that every leap skips an instant.
        let scenes = [
            subject.scene(seed, Schedule::random(seed, gaps)),
            subject.scene(seed, Schedule::burst()),
        ];
        for scene in scenes {
            let lazy = scene.with(Manner::Lazy(Dice::new(seed), gaps));
            let late = scene.with(Manner::Late(Dice::new(seed), gaps));
            for scene in [scene, lazy, late] {
                let trace = subject.run(&scene).await?;
                let found = scene.compare(&trace).and_then(|()| subject.spaced(&trace));
                scene.check(Rule::LateWakeUp, found)?;
            }
        }
    }
    Ok(())
}

/// Sends keep their spacing, however slow the inner sink is.
pub(super) async fn permit_last(subject: &Subject) -> Outcome {
    for seed in 0..SEEDS {
        let mut scene = subject.scene(seed, Schedule::burst());
        scene.room = Room::Slow(seed, subject.gaps());
        let trace = subject.run(&scene).await?;
        scene.check(Rule::PermitLast, subject.spaced(&trace))?;
    }
    Ok(())
}

/// A failure of any call on the inner sink is reported once, and the sink goes on.
pub(super) async fn inner_errors(subject: &Subject) -> Outcome {
    for seed in 0..FEW {
        let mut scene = subject.scene(seed, Schedule::random(seed, subject.gaps()));
        for call in 0.. {
            scene.fails_at = Some(call);
            let trace = subject.run_or_break(Rule::InnerErrors, &scene).await?;
            let mut noted = scene.noted(&trace).into_iter();
            if let Some(wrong) = noted.find(|noted| noted.rule == Rule::InnerErrors) {
                return Err(wrong);
            }
            scene.check(Rule::InnerErrors, scene.compare(&trace))?;
            if !trace.has_failed {
                break;
            }
        }
    }
    Ok(())
}

/// Whether the same comes at the same instants in two scenes, and the same is refused.
async fn same(subject: &Subject, rule: Rule, calm: &Scene, disturbed: &Scene) -> Outcome {
    let due = subject.run(calm).await?;
    let came = subject.run_or_break(rule, disturbed).await?;
    if came.given == due.given && came.refused == due.refused {
        return Ok(());
    }
    let what = format!(
        "{:?}, refused {:?}, instead of {:?}, refused {:?}",
        came.given, came.refused, due.given, due.refused
    );
    Err(disturbed.breaks(rule, &what))
}

impl Subject {
    fn start<'s>(&self, scene: &'s Scene) -> Run<'s> {
        Run::start((self.start)(scene), scene)
    }

    async fn run(&self, scene: &Scene) -> Result<Trace, Violation> {
        self.start(scene).finish().await
    }

    /// If the adapter gets stuck only in such a scene, this is the rule that it breaks.
    async fn run_or_break(&self, rule: Rule, scene: &Scene) -> Result<Trace, Violation> {
        let trace = self.run(scene).await;
        trace.map_err(|stuck| Violation::new(rule, stuck.detail))
    }
}
