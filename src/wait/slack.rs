//! Several waiters pass at one wake-up, where many wait: to be woken for each permit alone costs more than to pass.
//!
//! The head of a crowd is woken later than its permits are due. That is for a limit which saves up permits meanwhile and loses none,
//! so its rate stays the same. Half of the time is left for a wake-up that comes late.

use core::time::Duration;

use crate::time::Tick;

/// From this number of waiters on there is a crowd.
const CROWD: usize = 16;

const MOST: Duration = Duration::from_micros(500);

/// How much later to wake the head of so many waiters than its permits are `due`. Permits that no request takes are saved up to
/// `saves_until`.
pub(super) fn slack(waiters: usize, due: Tick, saves_until: Tick) -> Duration {
    if waiters < CROWD {
        return Duration::ZERO;
    }
    MOST.min(saves_until.since(due) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        AnyPolicy, Decision, FixedWindow, Interval, PerRequest, Policy, SlidingCounter, SlidingLog,
        TokenBucket,
    };
    use crate::time::Rate;

    const MS: Duration = Duration::from_millis(1);

    const fn at(micros: u64) -> Tick {
        Tick::from_nanos(micros * 1_000)
    }

    #[test]
    fn a_crowd_of_16_waits_half_of_the_time_until_permits_are_lost() {
        assert_eq!(slack(15, at(100), at(700)), Duration::ZERO);
        assert_eq!(slack(16, at(100), at(700)), Duration::from_micros(300));
        assert_eq!(slack(16, at(700), at(700)), Duration::ZERO);
    }

    #[test]
    fn it_waits_at_most_500_microseconds_longer() {
        let most = Duration::from_micros(500);
        assert_eq!(slack(16, at(100), at(1_100)), most);
        assert_eq!(slack(usize::MAX, at(100), at(1_101)), most);
        assert_eq!(slack(16, Tick::ZERO, Tick::MAX), most);
    }

    #[test]
    fn it_does_not_wait_for_permits_that_are_saved_up_already() {
        assert_eq!(slack(16, at(701), at(700)), Duration::ZERO, "a pause ends");
        assert_eq!(slack(16, Tick::MAX, at(700)), Duration::ZERO);
    }

    /// The wait of the next request after a full burst, and the slack of a crowd behind it.
    fn waits<P: Policy>(policy: &P, cost: u32) -> Option<(Duration, Duration)> {
        let mut state = policy.fresh(Tick::ZERO);
        while policy.decide(&mut state, Tick::ZERO, 1).is_pass() {}
        let wait = policy.peek(&state, Tick::ZERO, cost).retry_in()?;
        let due = Tick::ZERO.after(wait);
        Some((wait, slack(16, due, policy.saves_until(&state))))
    }

    #[test]
    fn a_bucket_gives_half_of_the_time_in_which_the_rest_of_its_burst_comes() {
        let bucket = |burst| TokenBucket::new(Rate::new(10, MS), burst);
        let micros =
            |wait, slack| Some((Duration::from_micros(wait), Duration::from_micros(slack)));
        assert_eq!(waits(&bucket(1), 1), micros(100, 0));
        assert_eq!(waits(&bucket(2), 1), micros(100, 50));
        assert_eq!(waits(&bucket(10), 1), micros(100, 450));
        assert_eq!(waits(&bucket(10), 4), micros(400, 300));
        assert_eq!(waits(&bucket(10), 10), micros(1_000, 0));
        assert_eq!(waits(&bucket(10).with_debt(), 11), micros(1_000, 0));
        assert_eq!(waits(&bucket(10).with_start(3), 1), micros(100, 450));
        assert_eq!(waits(&bucket(100), 1), micros(100, 500));
        assert_eq!(waits(&PerRequest::new(bucket(10)), 4), micros(100, 450));
        assert_eq!(waits(&AnyPolicy::from(bucket(10)), 1), micros(100, 450));
    }

    #[test]
    fn no_other_policy_gives_any() {
        fn slack_of<P: Policy>(policy: &P) -> Option<Duration> {
            waits(policy, 1).map(|(_, slack)| slack)
        }
        let none = Some(Duration::ZERO);
        assert_eq!(slack_of(&Interval::every(MS)), none);
        assert_eq!(slack_of(&SlidingLog::new(10, MS)), none);
        assert_eq!(slack_of(&SlidingCounter::smooth(10, MS)), none);
        assert_eq!(slack_of(&FixedWindow::new(10, MS)), none);
        let two: AnyPolicy = "10000/s burst 10 and 1000000/h".parse().unwrap();
        assert_eq!(slack_of(&two), none);
    }

    /// All that are due pass at each wake-up, which comes on time or as late as half of the room allows.
    #[test]
    fn a_crowd_passes_at_the_full_rate_and_no_permit_is_lost() {
        for (permits, burst, cost) in [(10, 10, 1), (10, 10, 5), (10, 10, 10), (3, 1_000, 7)] {
            for lateness in [0, 1] {
                let bucket = TokenBucket::new(Rate::new(permits, MS), burst);
                let mut now = Tick::ZERO;
                let mut state = bucket.fresh(now);
                let mut passed = 0;
                while now < at(1_000_000) {
                    let retry_in = loop {
                        match bucket.decide(&mut state, now, cost) {
                            Decision::Wait { retry_in } => break retry_in,
                            _ => passed += u64::from(cost),
                        }
                    };
                    let arrived = now.as_nanos() * u64::from(permits) / 1_000_000;
                    let all = u64::from(burst) + arrived;
                    assert_eq!(passed, all - all % u64::from(cost), "{bucket:?} {now:?}");
                    let due = now.after(retry_in);
                    let slack = slack(16, due, bucket.saves_until(&state));
                    now = due.after(slack).after(slack * lateness);
                }
            }
        }
    }
}
