//! One planted fault after the other, and the one rule that it breaks; and right adapters, which break none.

mod paced;
mod service;

use std::{convert::identity, future, panic::AssertUnwindSafe, task::Poll, time::Duration};

use futures::{
    FutureExt, SinkExt, StreamExt,
    stream::{self, Fuse},
};
use testkit::{
    clock::Stopwatch,
    conformance::{
        self, Input, Rule, Subject,
        sink::{self, Failure, Inner, InnerError, Unmovable},
    },
};
use tokio::time::timeout;

use self::paced::{Fault, INTERVAL, Paced};

fn stream(fault: Fault) -> Subject {
    Subject::stream_in_parts(move |input| Paced::new(input, fault), Paced::into_parts)
        .spacing(INTERVAL)
}

fn sink(fault: Fault) -> Subject {
    let build = move |inner: Inner<u32>| Paced::new(inner, fault);
    Subject::sink_in_parts(build, Failure::Inner, Paced::into_parts).spacing(INTERVAL)
}

fn fuse(input: Input) -> Fuse<Input> {
    StreamExt::fuse(input)
}

async fn broken(subject: Subject) -> Vec<Rule> {
    let violations = subject.violations().await;
    violations.into_iter().map(|found| found.rule).collect()
}

async fn after_an_interval(item: u32) -> u32 {
    let never = timeout(INTERVAL, future::pending::<()>());
    never.await.unwrap_err();
    item
}

/// Faults of streams and of sinks.
const FAULTS: [(Fault, Rule); 12] = [
    (Fault::HangsAfterTwo, Rule::Alive),
    (Fault::SpinsAfterTwo, Rule::Alive),
    (Fault::DropsTheWaker, Rule::KeepsAWaker),
    (Fault::WakesItsFirstTask, Rule::KeepsAWaker),
    (Fault::LosesTheThird, Rule::NothingLost),
    (Fault::DoublesTheThird, Rule::NothingLost),
    (Fault::SwapsTheFirstTwo, Rule::NothingLost),
    (Fault::LosesTheHeldInAnotherTask, Rule::CancelSafe),
    (Fault::WaitsAgainAtEveryPoll, Rule::CancelSafe),
    (Fault::ForgetsTheHeldInParts, Rule::IntoParts),
    (Fault::KeepsToAGrid, Rule::LateWakeUp),
    (Fault::LosesWhatIsLate, Rule::LateWakeUp),
];

const FAULTS_OF_STREAMS: [(Fault, Rule); 6] = [
    (Fault::PollsItsInputAfterTheEnd, Rule::InputAfterEnd),
    (Fault::EndsOneIntervalLate, Rule::EndsOnTime),
    (Fault::IsNeverTerminated, Rule::Terminated),
    (Fault::IsTerminatedWhileItHolds, Rule::Terminated),
    (Fault::HintsWithoutTheHeld, Rule::SizeHint),
    (Fault::HintsOneTooMany, Rule::SizeHint),
];

const FAULTS_OF_SINKS: [(Fault, Rule); 15] = [
    (Fault::DoesNotAsk, Rule::AsksFirst),
    (Fault::SpendsWhenAsked, Rule::AskingIsFree),
    (Fault::SpendsWhenItIsLeft, Rule::CancelSafe),
    (Fault::TakesThePermitBeforeTheRoom, Rule::PermitLast),
    (Fault::FlushWaitsForASlot, Rule::Prompt),
    (Fault::CloseWaitsForASlot, Rule::Prompt),
    (Fault::FlushForgetsTheHeld, Rule::Flushes),
    (Fault::FlushForgetsTheInner, Rule::Flushes),
    (Fault::ClosesBeforeTheHeldIsSent, Rule::Closes),
    (Fault::CloseForgetsTheInner, Rule::Closes),
    (Fault::ClosesTwice, Rule::Closes),
    (Fault::SwallowsAnError, Rule::InnerErrors),
    (Fault::TellsAnErrorLate, Rule::InnerErrors),
    (Fault::LosesTheHeldWhenTheInnerFails, Rule::InnerErrors),
    (Fault::HangsAfterAnError, Rule::InnerErrors),
];

#[tokio::test(start_paused = true)]
async fn each_planted_fault_of_a_stream_breaks_its_rule_and_no_other() {
    for (fault, rule) in FAULTS.into_iter().chain(FAULTS_OF_STREAMS) {
        assert_eq!(broken(stream(fault)).await, [rule], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_planted_fault_of_a_sink_breaks_its_rule_and_no_other() {
    for (fault, rule) in FAULTS.into_iter().chain(FAULTS_OF_SINKS) {
        assert_eq!(broken(sink(fault)).await, [rule], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_adapter_breaks_no_rule() {
    assert_eq!(stream(Fault::None).violations().await, []);
    assert_eq!(sink(Fault::None).violations().await, []);
    for none_at_all in [
        Subject::stream(|input| input.ready_chunks(3).fuse()),
        Subject::sink(identity::<Inner<u32>>, Failure::Inner),
        Subject::sink(|inner: Inner<u32>| inner.buffer(3), Failure::Inner),
    ] {
        assert_eq!(none_at_all.violations().await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_alive_hangs_or_spins_or_goes_on() {
    let endless = Subject::stream(|_| stream::repeat(0).then(after_an_interval).fuse());
    for (subject, what) in [
        (stream(Fault::HangsAfterTwo), "hangs"),
        (stream(Fault::SpinsAfterTwo), "spins"),
        (endless, "goes on"),
    ] {
        let violations = subject.violations().await;
        assert_eq!(violations.len(), 1, "{what}: {violations:?}");
        assert_eq!(violations[0].rule, Rule::Alive, "{what}");
        assert!(violations[0].detail.contains(what), "{}", violations[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn asking_again_until_another_task_is_done_is_no_spin() {
    let subject = Subject::stream(|input| {
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
async fn an_empty_group_at_the_end_is_seen() {
    let subject = Subject::stream(|input| {
        let groups = input.ready_chunks(3);
        groups.chain(stream::iter([vec![]])).fuse()
    });

    assert_eq!(broken(subject).await, [Rule::EndsOnTime]);
}

#[tokio::test(start_paused = true)]
async fn a_spacing_longer_than_kept_is_seen() {
    let found = broken(stream(Fault::None).spacing(INTERVAL * 2)).await;
    assert_eq!(found, [Rule::LateWakeUp]);

    let found = broken(sink(Fault::None).spacing(INTERVAL * 2)).await;
    assert_eq!(found, [Rule::PermitLast, Rule::LateWakeUp]);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_made_up_is_seen() {
    let other = |error: InnerError| {
        let mut other = error;
        other.call += 1;
        Failure::Inner(other)
    };
    let subject = Subject::sink(identity::<Inner<u32>>, other);

    assert_eq!(broken(subject).await, [Rule::InnerErrors]);
}

#[tokio::test(start_paused = true)]
async fn dropping_is_allowed_to_the_lossy_alone_and_overtaking_to_the_unordered_alone() {
    let evens = || {
        Subject::stream(|input| {
            let evens = input.filter(|item| future::ready(item % 2 == 0));
            evens.fuse()
        })
    };
    let sent_evens = || {
        let even = |item: u32| stream::iter(item.is_multiple_of(2).then_some(Ok(item)));
        Subject::sink(
            move |inner: Inner<u32>| inner.with_flat_map(even),
            Failure::Inner,
        )
    };
    let overtaking = || {
        Subject::stream(|input| {
            let slow = |item| async move {
                let never = timeout(INTERVAL / (1 + item % 3), future::pending::<()>());
                never.await.unwrap_err();
                item
            };
            input.map(slow).buffer_unordered(4)
        })
    };
    for (name, subject) in [
        ("lossy", evens().lossy()),
        ("lossy sink", sent_evens().lossy()),
        ("unordered", overtaking().unordered()),
    ] {
        assert_eq!(broken(subject).await, [], "{name}");
    }
    let unknown = Subject::stream(|input| input.map(|item| item + 100).fuse());
    for (name, subject) in [
        ("dropping", evens()),
        ("dropping sink", sent_evens()),
        ("lossy, doubling", stream(Fault::DoublesTheThird).lossy()),
        ("lossy, swapping", stream(Fault::SwapsTheFirstTwo).lossy()),
        ("lossy sink, doubling", sink(Fault::DoublesTheThird).lossy()),
        ("lossy, making up", unknown.lossy()),
        ("overtaking", overtaking()),
        (
            "unordered, losing",
            stream(Fault::LosesTheThird).unordered(),
        ),
        (
            "unordered, doubling",
            stream(Fault::DoublesTheThird).unordered(),
        ),
    ] {
        assert_eq!(broken(subject).await, [Rule::NothingLost], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_names_the_rule_and_the_line_of_the_caller() {
    let line = line!() + 1;
    let check = stream(Fault::EndsOneIntervalLate).check();
    let panic = AssertUnwindSafe(check).catch_unwind().await.unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();

    let place = format!("does not conform, at {}:{line}:", file!());
    assert!(message.starts_with(&place), "{message}");
    assert!(
        message.ends_with(
            "EndsOnTime: ended at 20ms instead of 0ns, in Scene { schedule: Schedule { items: [], end: 0ns }, seed: 0, \
             manner: Eager, keeps: All, hint: Exact, room: Always, fails_at: None, asks: 1 }"
        ),
        "{message}"
    );
}

#[tokio::test]
#[should_panic(expected = "time is not frozen")]
async fn a_running_clock_is_refused() {
    stream(Fault::None).check().await;
}

#[tokio::test(start_paused = true)]
async fn arrivals_scale_with_the_delays_of_the_adapter() {
    let mut took = Vec::new();
    // The gaps of the last one are almost an hour, and no hang.
    for scale in [10, 1000, 170_000].map(Duration::from_millis) {
        let watch = Stopwatch::start();
        Subject::stream(fuse).scale(scale).check().await;
        took.push(watch.elapsed());
    }

    assert_eq!([took[0] * 100, took[0] * 17_000], [took[1], took[2]]);
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

#[tokio::test(start_paused = true)]
#[should_panic(expected = "closed 0 times")]
async fn an_adapter_that_does_not_close_an_unmovable_inner_sink_is_seen() {
    let build = |inner: Unmovable<u32>| Paced::new(Box::pin(inner), Fault::CloseForgetsTheInner);
    sink::check_unmovable(build, Failure::Inner).await;
}
