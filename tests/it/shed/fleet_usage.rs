use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use paceline::concurrency::Admit;
use paceline::shed::{Class, FleetUsage, UsagePermit};
use proptest::prelude::*;

use super::fleet_cases::CASES;
use super::{importance, in_use};

#[test]
fn admission_follows_the_table() {
    for (capacity, reserved, asked, expected) in CASES {
        let usage = FleetUsage::new(capacity, reserved);
        let mut held = Vec::new();
        let mut answers = String::new();
        for kind in asked.chars() {
            let permit = usage.admit(importance(kind));
            answers.push(if permit.is_some() { kind } else { '-' });
            held.extend(permit);
        }
        assert_eq!(
            answers, expected,
            "of {asked} with {capacity} and {reserved}"
        );
        let count = |kind| u32::try_from(answers.matches(kind).count()).unwrap();
        assert_eq!(in_use(&usage), (count('c'), count('s')));
        drop(held);
        assert_eq!(in_use(&usage), (0, 0));
    }
}

#[test]
fn clones_count_together_and_a_permit_may_be_dropped_in_another_thread() {
    let usage = FleetUsage::new(1, 0);
    let other = usage.clone();
    let permit = other.admit(Class::Sheddable(0)).unwrap();
    assert!(usage.admit(Class::Sheddable(0)).is_none());
    thread::spawn(move || drop(permit)).join().unwrap();
    assert!(usage.admit(Class::Sheddable(0)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_handle_admits_by_importance_and_never_queues() {
    async fn ask<A>(handle: &mut A, importance: Class) -> Option<UsagePermit>
    where
        A: Admit<Class, Guard = UsagePermit, Error = Infallible> + ?Sized,
    {
        let Ok(admitted) = poll_fn(|cx| handle.poll_admit(importance, cx)).await;
        admitted
    }
    let usage = FleetUsage::new(2, 1);
    let mut other: Box<dyn Admit<Class, Guard = UsagePermit, Error = Infallible>> =
        Box::new(usage.clone());
    let sheddable = ask(&mut usage.clone(), Class::Sheddable(0)).await;
    assert!(sheddable.is_some());
    assert!(ask(&mut *other, Class::Sheddable(0)).await.is_none());
    let tried = poll_fn(|cx| other.poll_try_admit(Class::Sheddable(0), cx)).await;
    assert!(tried.unwrap().is_none());
    other.give_up();
    assert!(ask(&mut *other, Class::Critical).await.is_some());
}

#[test]
fn a_reserve_that_leaves_nothing_is_refused_and_named() {
    for (capacity, reserved) in [(5, 5), (5, 6), (0, 0)] {
        let error = FleetUsage::try_new(capacity, reserved).unwrap_err();
        assert_eq!(error.parameter(), "reserved");
    }
    assert!(FleetUsage::try_new(u32::MAX, u32::MAX - 1).is_ok());
}

#[test]
#[should_panic(expected = "the reserve must be less than the capacity, got 6 and 5")]
fn a_panic_has_both_numbers() {
    let _ = FleetUsage::new(5, 6);
}

#[test]
fn threads_never_exceed_the_bounds_together() {
    let usage = FleetUsage::new(4, 1);
    let (sheddable, most) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if let Some(_permit) = usage.admit(Class::Sheddable(0)) {
                        let now = sheddable.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        sheddable.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&most.into_inner()));
    assert_eq!(in_use(&usage), (0, 0));
}

proptest! {
    /// Begins and ends requests in any order, beside two plain counters.
    #[test]
    fn decides_as_two_counters_do(
        capacity in 1..8_u32,
        reserve in 0..8_u32,
        steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0..8_usize), 0..60),
    ) {
        let reserved = reserve.min(capacity - 1);
        let usage = FleetUsage::new(capacity, reserved);
        let mut held: Vec<(bool, UsagePermit)> = Vec::new();
        for (is_end, is_critical, which) in steps {
            if is_end {
                if which < held.len() {
                    drop(held.swap_remove(which));
                }
                continue;
            }
            let count = |of| u32::try_from(held.iter().filter(|(one, _)| *one == of).count()).unwrap();
            let (critical, sheddable) = (count(true), count(false));
            prop_assert_eq!(in_use(&usage), (critical, sheddable));
            let fits = sheddable < capacity - reserved && critical + sheddable < capacity;
            let kind = importance(if is_critical { 'c' } else { 's' });
            let permit = usage.admit(kind);
            prop_assert_eq!(permit.is_some(), is_critical || fits);
            held.extend(permit.map(|permit| (is_critical, permit)));
        }
    }
}
