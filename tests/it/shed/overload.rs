//! A service at one and a half times its capacity for ten minutes, in virtual time.

use std::time::Duration;

use super::simulation::{CLASSES, Protection, SERVICE_TIME, Second, simulate, turns};

const WORKERS: u32 = 16;
const CAPACITY: f64 = 16.0 / SERVICE_TIME;
const PHASES: [(usize, f64); 3] = [(60, 0.6), (600, 1.5), (360, 0.6)];
const SEED: u64 = 7;

const SHEDDER: Protection = Protection::WorkerUtilization {
    delay: Duration::from_secs(28),
    ramp: Duration::from_secs(120),
};

/// Five times the average time of a request.
const DEADLINE: f64 = 0.25;

async fn run(protection: Protection) -> Vec<Second> {
    simulate(WORKERS, &PHASES, protection, SEED).await
}

fn overload(seconds: &[Second]) -> &[Second] {
    &seconds[60..660]
}

fn sum_of(counts: impl Iterator<Item = [u32; 4]>) -> [u32; 4] {
    counts.fold([0; 4], |sum, add| [0, 1, 2, 3].map(|n| sum[n] + add[n]))
}

/// Turns of the share of all requests that is shed.
fn turns_of(seconds: &[Second], band: f64) -> u32 {
    turns(seconds.iter().map(Second::share_of_all), band)
}

/// Answers in time, as a share of what the service can answer.
fn goodput(seconds: &[Second]) -> f64 {
    let in_time = seconds
        .iter()
        .map(|second| second.answered_within(DEADLINE));
    let in_time = u32::try_from(in_time.sum::<usize>()).unwrap();
    f64::from(in_time) / (CAPACITY * f64::from(u32::try_from(seconds.len()).unwrap()))
}

fn utilization(seconds: &[Second]) -> f64 {
    let sum: f64 = seconds.iter().map(|second| second.utilization).sum();
    sum / f64::from(u32::try_from(seconds.len()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn no_critical_request_is_shed_and_a_class_only_after_all_less_important_ones() {
    let seconds = run(SHEDDER).await;
    let shed = sum_of(seconds.iter().map(|second| second.shed));
    let asked = sum_of(seconds.iter().map(|second| second.asked));
    assert_eq!(shed[3], 0, "critical, of {}", asked[3]);
    assert!(asked[3] > 0 && shed[..3].iter().all(|count| *count > 0));
    for second in &seconds {
        for less in 0..3 {
            let is_all = second.share_shed[less].to_bits() == 1_f64.to_bits();
            let (more, share) = (CLASSES[less + 1].0, second.share_shed[less + 1]);
            assert!(is_all || share <= 0.0, "{share} of {more}");
            assert!(is_all || second.shed[less + 1] == 0, "{more}");
            assert!(!is_all || second.shed[less] == second.asked[less]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_overload_is_shed_until_the_workers_are_between_good_and_bad() {
    let seconds = run(SHEDDER).await;
    assert!(utilization(&seconds[..60]) < 0.7);
    assert!(utilization(&seconds[60..88]) > 0.95, "nothing is shed yet");
    assert!((0.7..0.8).contains(&utilization(&seconds[460..660])));
    let calm = &seconds[960..];
    assert!(calm.iter().all(|second| second.shed == [0; 4]));
}

#[tokio::test(start_paused = true)]
async fn the_shed_share_does_not_flap_where_that_of_a_threshold_does() {
    let (shedder, threshold) = (run(SHEDDER).await, run(Protection::Threshold(0.8)).await);
    let (shedder, threshold) = (overload(&shedder), overload(&threshold));
    // It rises, and falls back once from where it has worked off the queue of the first minutes.
    assert_eq!(turns_of(shedder, 0.05), 1);
    assert!(turns_of(threshold, 0.05) > 400);
    // Chance turns it too, and more seldom.
    assert!(turns_of(shedder, 0.0) * 4 < turns_of(threshold, 0.0));
}

#[tokio::test(start_paused = true)]
async fn more_is_answered_in_time_than_with_a_threshold_or_without_shedding() {
    let shedder = run(SHEDDER).await;
    let threshold = run(Protection::Threshold(0.8)).await;
    let nothing = run(Protection::Nothing).await;
    let [ours, theirs, none] = [&shedder, &threshold, &nothing].map(|run| goodput(overload(run)));
    assert!(ours > theirs, "{ours} and {theirs}");
    assert!(none < 0.05, "{none}");
    // The queue outlives the overload.
    assert!(goodput(&nothing[760..]) <= 0.0);
    assert!(goodput(&shedder[760..]) > 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_simulation_is_the_same_again() {
    let again = || simulate(4, &[(10, 0.6), (100, 1.5)], SHEDDER, SEED);
    let one = again().await;
    assert!(one.iter().any(|second| second.shed[0] > 0));
    assert!(one == again().await);
}

#[test]
fn turns_are_counted_from_the_farthest_point() {
    let curve = [0.0, 0.5, 0.45, 0.55, 0.44, 0.5, 0.4, 0.51, 0.9];
    assert_eq!(turns(curve, 0.0), 6);
    assert_eq!(turns(curve, 0.1), 2);
    assert_eq!(turns(curve, 0.2), 0);
    assert_eq!(turns([0.0, 1.0].repeat(30), 0.5), 58);
}
