//! The same for sinks: one planted fault after the other, and the one rule that it breaks.

mod paced;

use std::{convert, panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, SinkExt, stream};
use testkit::{
    clock::Stopwatch,
    conformance::{
        Parcel,
        sink::{self, Failure, Inner, InnerError, Rule, Subject, Unmovable},
    },
};

use self::paced::{Fault, INTERVAL, Paced};

fn paced(fault: Fault) -> Subject<Paced<Inner<u32>>, u32> {
    Subject::new(move |inner| Paced::new(inner, fault), Failure::Inner)
        .into_parts(Paced::into_parts)
        .spacing(INTERVAL)
}

async fn broken<A: futures::Sink<u32>, T: Parcel>(subject: Subject<A, T>) -> Vec<Rule> {
    let violations = subject.violations().await;
    violations.into_iter().map(|found| found.rule).collect()
}

#[tokio::test(start_paused = true)]
async fn a_right_adapter_breaks_no_rule() {
    assert_eq!(paced(Fault::None).violations().await, []);
}

#[tokio::test(start_paused = true)]
async fn nor_does_none_at_all() {
    let none = Subject::new(convert::identity::<Inner<u32>>, Failure::Inner);
    assert_eq!(none.violations().await, []);
}

/// Faults, and the rule that each breaks, and no other.
async fn break_one_rule(rule: Rule, faults: &[Fault]) {
    for fault in faults {
        let violations = paced(*fault).violations().await;
        let rules: Vec<Rule> = violations.iter().map(|found| found.rule).collect();
        assert_eq!(rules, [rule], "{fault:?}: {violations:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_and_a_spin_are_seen() {
    break_one_rule(Rule::Alive, &[Fault::HangsAfterTwo, Fault::SpinsAfterTwo]).await;
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_is_dropped_or_not_the_latest_is_seen() {
    let faults = [Fault::DropsTheWaker, Fault::WakesItsFirstTask];
    break_one_rule(Rule::KeepsAWaker, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_lost_doubled_or_overtaken_is_seen() {
    let faults = [
        Fault::LosesTheThird,
        Fault::DoublesTheThird,
        Fault::SwapsTheFirstTwo,
    ];
    break_one_rule(Rule::NothingLost, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn an_inner_sink_that_is_not_asked_is_seen() {
    break_one_rule(Rule::AsksFirst, &[Fault::DoesNotAsk]).await;
}

#[tokio::test(start_paused = true)]
async fn readiness_that_costs_a_slot_is_seen() {
    break_one_rule(Rule::AskingIsFree, &[Fault::SpendsWhenAsked]).await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_taken_before_there_is_room_is_seen() {
    break_one_rule(Rule::PermitLast, &[Fault::TakesThePermitBeforeTheRoom]).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_waits_for_a_slot_with_nothing_to_send_is_seen() {
    let faults = [Fault::FlushWaitsForASlot, Fault::CloseWaitsForASlot];
    break_one_rule(Rule::Prompt, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_leaves_something_behind_is_seen() {
    let faults = [Fault::FlushForgetsTheHeld, Fault::FlushForgetsTheInner];
    break_one_rule(Rule::Flushes, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn an_inner_sink_closed_too_soon_never_or_twice_is_seen() {
    let faults = [
        Fault::ClosesBeforeTheHeldIsSent,
        Fault::CloseForgetsTheInner,
        Fault::ClosesTwice,
    ];
    break_one_rule(Rule::Closes, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_kept_or_costs_more_than_itself_is_seen() {
    let faults = [
        Fault::SwallowsAnError,
        Fault::TellsAnErrorLate,
        Fault::LosesTheHeldWhenTheInnerFails,
        Fault::HangsAfterAnError,
    ];
    break_one_rule(Rule::InnerErrors, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_made_up_is_seen() {
    let other = |error: InnerError| {
        let mut other = error;
        other.call += 1;
        Failure::Inner(other)
    };
    let subject = Subject::new(convert::identity::<Inner<u32>>, other);

    assert_eq!(broken(subject).await, [Rule::InnerErrors]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_given_up_and_left_a_trace_is_seen() {
    let faults = [
        Fault::LosesTheHeldInAnotherTask,
        Fault::WaitsAgainAtEveryPoll,
        Fault::SpendsWhenItIsLeft,
    ];
    break_one_rule(Rule::CancelSafe, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn a_held_item_missing_from_the_parts_is_seen() {
    break_one_rule(Rule::IntoParts, &[Fault::ForgetsTheHeldInParts]).await;
}

#[tokio::test(start_paused = true)]
async fn items_too_close_or_lost_after_a_leap_are_detected() {
    let faults = [Fault::KeepsToAGrid, Fault::LosesWhatIsLate];
    break_one_rule(Rule::LateWakeUp, &faults).await;
}

#[tokio::test(start_paused = true)]
async fn a_spacing_longer_than_kept_is_seen() {
    let subject = paced(Fault::None).spacing(INTERVAL * 2);

    assert_eq!(broken(subject).await, [Rule::PermitLast, Rule::LateWakeUp]);
}

#[tokio::test(start_paused = true)]
async fn a_lossy_sink_may_drop_but_neither_double_nor_reorder() {
    let evens = || {
        let build = |inner: Inner<u32>| {
            let even = |item: u32| stream::iter(item.is_multiple_of(2).then_some(Ok(item)));
            inner.with_flat_map(even)
        };
        Subject::new(build, Failure::Inner)
    };

    assert_eq!(broken(evens().lossy()).await, []);
    assert_eq!(broken(evens()).await, [Rule::NothingLost]);
    for fault in [Fault::DoublesTheThird, Fault::SwapsTheFirstTwo] {
        assert_eq!(broken(paced(fault).lossy()).await, [Rule::NothingLost]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_names_the_rule_and_the_line_of_the_caller() {
    let line = line!() + 1;
    let check = paced(Fault::CloseForgetsTheInner).check();
    let panic = AssertUnwindSafe(check).catch_unwind().await.unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();

    let place = format!("does not conform, at {}:{line}:", file!());
    assert!(message.starts_with(&place), "{message}");
    assert!(
        message.ends_with(
            "Closes (the inner sink is closed once, and last): it said so with 0 items held, the inner sink closed \
             0 times (the task is eager, flushes never, over a fast inner sink)"
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
async fn items_come_around_the_delays_of_the_adapter() {
    let mut took = Vec::new();
    for scale in [10, 1000].map(Duration::from_millis) {
        let watch = Stopwatch::start();
        let subject = Subject::new(convert::identity::<Inner<u32>>, Failure::Inner);
        subject.scale(scale).check().await;
        took.push(watch.elapsed());
    }

    assert_eq!(took[0] * 100, took[1]);
}

#[tokio::test(start_paused = true)]
async fn an_unmovable_inner_sink_is_sent_to_and_closed() {
    sink::check_unmovable(|inner: Unmovable<u32>| inner.buffer(2), Failure::Inner).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "closed 0 times")]
async fn one_that_is_not_closed_is_seen() {
    let build = |inner: Unmovable<u32>| Paced::new(Box::pin(inner), Fault::CloseForgetsTheInner);
    sink::check_unmovable(build, Failure::Inner).await;
}
