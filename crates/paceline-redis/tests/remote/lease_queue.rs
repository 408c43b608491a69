//! The queue of a lease pool: what it asks for and when, without a server.

use tokio::sync::oneshot;

use super::*;
use crate::remote::lease_queue::{
    ClassConfig, LONGEST_PAUSE, LeaseOutcome, LeaseQueue, LeaseWaiter, SHORTEST_MARK,
};
use crate::remote::source::Step;
use crate::remote::{LeaseCall, LeaseId};

const LEASE: Duration = Duration::from_secs(10);

fn queue_of(limit: u32) -> LeaseQueue<()> {
    let class = ClassConfig::new("key".into(), limit, limit, OutagePolicy::closed());
    LeaseQueue::new("me".into(), LEASE, vec![class.unwrap()], Arc::new([]))
}

fn join(queue: &mut LeaseQueue<()>, waits: bool) -> oneshot::Receiver<()> {
    let (answer, answered) = oneshot::channel();
    let class = 0;
    queue.join(LeaseWaiter {
        class,
        waits,
        answer,
    });
    answered
}

/// A queue whose waiter has been asked for, and the waiter.
fn asked() -> (LeaseQueue<()>, oneshot::Receiver<()>) {
    let mut queue = queue_of(1);
    let answer = join(&mut queue, true);
    call(&mut queue, at(0));
    (queue, answer)
}

fn next_step(queue: &mut LeaseQueue<()>, now: Tick, is_down: bool) -> Step<Server<SlidingLog>> {
    queue.next_step(now, 1, is_down)
}

/// The call that is due now.
fn call(queue: &mut LeaseQueue<()>, now: Tick) -> LeaseCall {
    match next_step(queue, now, false) {
        Step::Lease(call) => call,
        step => panic!("{step:?}"),
    }
}

fn numbers(ids: &[LeaseId]) -> Vec<u64> {
    ids.iter().map(|id| id.number).collect()
}

/// Until when the queue has nothing to ask.
fn idle_until(queue: &mut LeaseQueue<()>, now: Tick) -> Tick {
    match next_step(queue, now, false) {
        Step::Sleep { until, .. } => until,
        step => panic!("{step:?}"),
    }
}

fn is_idle(queue: &mut LeaseQueue<()>, now: Tick, is_down: bool) -> bool {
    matches!(next_step(queue, now, is_down), Step::Idle)
}

/// Makes a call that takes no time, and returns how long its mark stands, and the pause until the next call.
fn refuse(queue: &mut LeaseQueue<()>, now: Tick, place: u64) -> (Duration, Duration) {
    let stands = call(queue, now).mark_stands;
    queue.complete(now, Ok(vec![1, 0, place, 2, 0]), None);
    (stands, idle_until(queue, now).since(now))
}

#[test]
fn a_call_wants_as_many_leases_for_waiters_as_can_be_granted_at_once() {
    let mut queue = queue_of(2);
    let answers = [(); 3].map(|()| join(&mut queue, true));
    let _try = join(&mut queue, false);
    let asked = call(&mut queue, at(0));
    assert_eq!((asked.waiting, asked.wanted_by_waiters), (Some(3), 2));
    assert_eq!(numbers(&asked.wanted), [1, 2, 3], "and the one that tries");
    queue.complete(at(0), Ok(vec![1, 0, 1, 2, 1, 1, 0]), None);
    assert_eq!(queue.answers.len(), 3);

    drop(answers);
    let (number, class) = (1, 0);
    let first = LeaseId { number, class };
    queue.release(at(1), Some(first), 0, None);
    let asked = call(&mut queue, at(1));
    assert_eq!((asked.waiting, asked.wanted.len()), (Some(0), 0));
    assert_eq!(asked.releases, [first]);
}

#[test]
fn a_call_without_requests_leaves_the_marks_alone() {
    let (mut queue, _answer) = asked();
    queue.complete(at(0), Ok(vec![1, 0, 0, 1, 1]), None);
    let renewal = at(0).after(LEASE / 3);
    assert_eq!(call(&mut queue, renewal).waiting, None);
}

#[test]
fn the_pause_grows_with_the_place_and_with_the_time_in_it() {
    let mut queue = queue_of(1);
    let _answer = join(&mut queue, true);
    assert_eq!(refuse(&mut queue, at(0), 3).1, ms(6));
    assert_eq!(refuse(&mut queue, at(6), 3).1, ms(6));
    assert_eq!(refuse(&mut queue, at(12), 1).1, ms(2));
    assert_eq!(refuse(&mut queue, at(60), 1).1, ms(3));
    assert_eq!(refuse(&mut queue, at(172), 1).1, ms(10));

    // A lease for one of two requests is a new beginning.
    let _other = join(&mut queue, true);
    call(&mut queue, at(200));
    queue.complete(at(200), Ok(vec![1, 0, 1, 1, 1]), None);
    assert_eq!(refuse(&mut queue, at(200), 1).1, ms(2));
}

#[test]
fn a_mark_stands_for_three_pauses_and_at_most_the_time_of_a_lease() {
    let mut queue = queue_of(1);
    let _answer = join(&mut queue, true);
    let mut now = at(0);
    let mut longest = Duration::ZERO;
    while now < at(3_600_000) {
        let (stands, pause) = refuse(&mut queue, now, 20);
        assert!(stands >= pause * 3 && stands <= LEASE);
        assert!(stands >= SHORTEST_MARK);
        longest = longest.max(pause);
        now = now.after(pause);
    }
    assert_eq!(longest, LONGEST_PAUSE);
}

#[test]
fn cancelled_waiters_take_their_mark_back_unless_redis_is_down() {
    let mut queue = queue_of(1);
    let mut answer = join(&mut queue, true);
    let (_, pause) = refuse(&mut queue, at(0), 1);
    answer.close();
    assert_eq!(idle_until(&mut queue, at(0)), at(0).after(pause));
    assert_eq!(call(&mut queue, at(0).after(pause)).waiting, Some(0));
    queue.complete(at(2), Ok(vec![1, 0, 0, 1]), None);
    assert!(is_idle(&mut queue, at(2), false));

    let mut answer = join(&mut queue, true);
    refuse(&mut queue, at(3), 1);
    answer.close();
    assert!(is_idle(&mut queue, at(9), true));
}

#[test]
fn what_redis_may_have_granted_to_a_dropped_task_is_released() {
    let (mut queue, _answer) = asked();
    let (waiters, _) = queue.task_dropped(at(1));
    assert_eq!(waiters.len(), 1);
    assert_eq!(numbers(&call(&mut queue, at(1)).releases), [1]);
}

#[test]
fn a_reply_of_another_shape_is_a_fault() {
    for reply in [&[][..], &[1, 0, 1], &[1, 0, 1, 1], &[1, 0, 1, 1, 1, 1]] {
        let (mut queue, _answer) = asked();
        queue.complete(at(0), Ok(reply.to_vec()), None);
        let (_, outcome) = queue.answers.pop().unwrap();
        assert!(matches!(outcome, LeaseOutcome::Failed(_)), "{outcome:?}");
    }
}

#[test]
fn all_who_count_leases_share_one_call_and_those_who_come_meanwhile_the_next() {
    let mut queue = queue_of(1);
    let first = [(); 2].map(|()| queue.count());
    let gone = queue.count();
    drop(gone);
    let asked = call(&mut queue, at(0));
    assert_eq!((asked.waiting, asked.wanted.len()), (None, 0));
    let mut later = queue.count();
    queue.complete(at(0), Ok(vec![1, 0, 0, 7]), None);
    for (counter, counted) in queue.counted.drain(..) {
        let _ = counter.send(counted);
    }
    for mut counted in first {
        assert_eq!(counted.try_recv(), Ok(Ok(vec![7])));
    }
    assert!(later.try_recv().is_err());

    call(&mut queue, at(0));
    queue.complete(at(0), Err(CallError::CIRCUIT_OPEN), None);
    let (_, counted) = queue.counted.pop().unwrap();
    assert!(counted.unwrap_err().is_skipped());
}
