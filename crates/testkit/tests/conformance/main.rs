//! One planted fault after the other, and the one rule that it breaks; and right adapters, which break none.

mod paced;
mod service;
mod sink;

use std::{future, panic::AssertUnwindSafe, task::Poll, time::Duration};

use futures::{
    FutureExt, StreamExt,
    stream::{self, FusedStream},
};
use testkit::{
    clock::Stopwatch,
    conformance::{self, Input, Rule, Subject},
};
use tokio::time::timeout;

use self::paced::{Fault, INTERVAL, Paced};

fn paced(fault: Fault) -> Subject<Paced<Input>> {
    Subject::new(move |input| Paced::new(input, fault))
        .into_parts(Paced::into_parts)
        .spacing(INTERVAL)
}

async fn broken<A: FusedStream>(subject: Subject<A>) -> Vec<Rule> {
    let violations = subject.violations().await;
    violations.into_iter().map(|found| found.rule).collect()
}

async fn after_an_interval(item: u32) -> u32 {
    let never = timeout(INTERVAL, future::pending::<()>());
    never.await.unwrap_err();
    item
}

#[tokio::test(start_paused = true)]
async fn a_right_adapter_breaks_no_rule() {
    assert_eq!(paced(Fault::None).violations().await, []);
}

/// Faults, and the rule that each breaks, and no other.
#[tokio::test(start_paused = true)]
async fn each_planted_fault_breaks_its_rule() {
    for (fault, rule) in [
        (Fault::HangsAfterTwo, Rule::Alive),
        (Fault::DropsTheWaker, Rule::KeepsAWaker),
        (Fault::WakesItsFirstTask, Rule::KeepsAWaker),
        (Fault::LosesTheThird, Rule::NothingLost),
        (Fault::DoublesTheThird, Rule::NothingLost),
        (Fault::SwapsTheFirstTwo, Rule::NothingLost),
        (Fault::PollsItsInputAfterTheEnd, Rule::InputAfterEnd),
        (Fault::EndsOneIntervalLate, Rule::EndsOnTime),
        (Fault::IsNeverTerminated, Rule::Terminated),
        (Fault::IsTerminatedWhileItHolds, Rule::Terminated),
        (Fault::HintsWithoutTheHeld, Rule::SizeHint),
        (Fault::HintsOneTooMany, Rule::SizeHint),
        (Fault::LosesTheHeldInAnotherTask, Rule::CancelSafe),
        (Fault::WaitsAgainAtEveryPoll, Rule::CancelSafe),
        (Fault::ForgetsTheHeldInParts, Rule::IntoParts),
        (Fault::KeepsToAGrid, Rule::LateWakeUp),
        (Fault::LosesWhatIsLate, Rule::LateWakeUp),
    ] {
        let violations = paced(fault).violations().await;
        let rules: Vec<Rule> = violations.iter().map(|found| found.rule).collect();
        assert_eq!(rules, [rule], "{fault:?}: {violations:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waking_oneself_for_ever_is_a_spin() {
    let violations = paced(Fault::SpinsAfterTwo).violations().await;

    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].rule, Rule::Alive);
    assert!(violations[0].detail.contains("spins"), "{}", violations[0]);
}

#[tokio::test(start_paused = true)]
async fn asking_again_until_another_task_is_done_is_no_spin() {
    let subject = Subject::new(|input| {
        let busy = |item| {
            let task = tokio::spawn(async {});
            future::poll_fn(move |cx| {
                if task.is_finished() {
                    return Poll::Ready(item);
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        };
        input.then(busy).fuse()
    });

    assert_eq!(broken(subject).await, []);
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_never_stops_giving_is_not_alive() {
    let subject = Subject::new(|_| stream::repeat(0).then(after_an_interval).fuse());

    let violations = subject.violations().await;

    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].rule, Rule::Alive);
    assert!(
        violations[0].detail.contains("goes on"),
        "{}",
        violations[0]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_group_at_the_end_is_seen() {
    let subject = Subject::new(|input| {
        let groups = input.ready_chunks(3);
        groups.chain(stream::iter([vec![]])).fuse()
    });

    assert_eq!(broken(subject).await, [Rule::EndsOnTime]);
}

#[tokio::test(start_paused = true)]
async fn a_spacing_longer_than_kept_is_seen() {
    let subject = paced(Fault::None).spacing(INTERVAL * 2);

    assert_eq!(broken(subject).await, [Rule::LateWakeUp]);
}

#[tokio::test(start_paused = true)]
async fn dropping_is_allowed_to_the_lossy_alone() {
    let evens = || {
        Subject::new(|input| {
            let evens = input.filter(|item| future::ready(item % 2 == 0));
            evens.fuse()
        })
    };

    assert_eq!(broken(evens().lossy()).await, []);
    assert_eq!(broken(evens()).await, [Rule::NothingLost]);
}

#[tokio::test(start_paused = true)]
async fn the_lossy_may_neither_double_nor_reorder() {
    for fault in [Fault::DoublesTheThird, Fault::SwapsTheFirstTwo] {
        assert_eq!(broken(paced(fault).lossy()).await, [Rule::NothingLost]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_was_not_in_the_input_is_detected_in_lossy_adapters_too() {
    let subject = Subject::new(|input| input.map(|item| item + 100).fuse()).lossy();

    assert_eq!(broken(subject).await, [Rule::NothingLost]);
}

#[tokio::test(start_paused = true)]
async fn overtaking_is_allowed_to_the_unordered_alone() {
    let overtaking = || {
        Subject::new(|input| {
            let slow = |item| async move {
                let never = timeout(INTERVAL / (1 + item % 3), future::pending::<()>());
                never.await.unwrap_err();
                item
            };
            input.map(slow).buffer_unordered(4)
        })
    };

    assert_eq!(broken(overtaking().unordered()).await, []);
    assert_eq!(broken(overtaking()).await, [Rule::NothingLost]);
}

#[tokio::test(start_paused = true)]
async fn the_unordered_may_neither_lose_nor_double() {
    for fault in [Fault::LosesTheThird, Fault::DoublesTheThird] {
        assert_eq!(broken(paced(fault).unordered()).await, [Rule::NothingLost]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_names_the_rule_and_the_line_of_the_caller() {
    let line = line!() + 1;
    let check = paced(Fault::EndsOneIntervalLate).check();
    let panic = AssertUnwindSafe(check).catch_unwind().await.unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();

    let place = format!("does not conform, at {}:{line}:", file!());
    assert!(message.starts_with(&place), "{message}");
    assert!(
        message.ends_with(
            "EndsOnTime (the end is not delayed): ended at 20ms instead of 0ns, input |@0ns"
        ),
        "{message}"
    );
}

#[tokio::test]
#[should_panic(expected = "time is not frozen")]
async fn a_running_clock_is_refused() {
    paced(Fault::None).check().await;
}

#[tokio::test(start_paused = true)]
async fn arrivals_scale_with_the_delays_of_the_adapter() {
    let mut took = Vec::new();
    for scale in [10, 1000].map(Duration::from_millis) {
        let watch = Stopwatch::start();
        let subject = Subject::new(<Input as StreamExt>::fuse).scale(scale);
        subject.check().await;
        took.push(watch.elapsed());
    }

    assert_eq!(took[0] * 100, took[1]);
}

#[tokio::test(start_paused = true)]
async fn gaps_of_almost_an_hour_are_no_hang() {
    let subject = Subject::new(<Input as StreamExt>::fuse).scale(Duration::from_secs(170));

    assert_eq!(broken(subject).await, []);
}

#[tokio::test(start_paused = true)]
async fn an_unmovable_input_is_played_to_its_end() {
    conformance::check_unmovable(StreamExt::fuse).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "goes on")]
async fn an_adapter_that_goes_on_over_an_unmovable_input_is_seen() {
    let endless = stream::repeat(0).then(after_an_interval);
    conformance::check_unmovable(|input| input.chain(endless)).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "hangs")]
async fn an_adapter_that_hangs_over_an_unmovable_input_is_seen() {
    conformance::check_unmovable(|input| input.chain(stream::pending())).await;
}
