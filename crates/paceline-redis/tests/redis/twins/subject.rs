use std::time::Duration;

use paceline::policy::{
    AnyPolicy, Decision, FixedWindow, Interval, Policy, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::time::{Rate, Tick};

/// A policy as both sides know it. Times without a type are in microseconds.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// The rate, and the burst.
    Bucket(Rate, u32),
    /// The same, with debt.
    Owing(Rate, u32),
    /// The time between two requests.
    Interval(Duration),
    /// The limit, and the window.
    Log(u32, u64),
    /// The limit, the time of a bucket, and how many there are in a window.
    Strict(u32, u64, u32),
    /// The limit, and the window.
    Smooth(u32, u64),
    /// The limit, and the window.
    Fixed(u32, u64),
    PerRequest(Box<Self>),
}

impl Subject {
    pub(super) const fn counts_requests(&self) -> bool {
        matches!(self, Self::PerRequest(_))
    }

    /// The burst, without debt.
    pub(super) fn burst(&self) -> u32 {
        match *self {
            Self::PerRequest(ref of) => of.burst(),
            Self::Interval(_) => 1,
            Self::Bucket(_, most)
            | Self::Owing(_, most)
            | Self::Log(most, _)
            | Self::Strict(most, ..)
            | Self::Smooth(most, _)
            | Self::Fixed(most, _) => most,
        }
    }

    /// The approximate time of one permit, or of one bucket of a counter.
    pub(super) fn grain(&self) -> u64 {
        match *self {
            Self::PerRequest(ref of) => of.grain(),
            Self::Bucket(..) | Self::Owing(..) | Self::Interval(_) => {
                let params = self.numbers().params;
                params[0].div_ceil(params[1])
            }
            Self::Strict(_, bucket, _) => bucket,
            Self::Log(_, window) | Self::Smooth(_, window) | Self::Fixed(_, window) => {
                window.div_ceil(4)
            }
        }
    }

    /// The policy of the library.
    fn policy(&self) -> AnyPolicy {
        match *self {
            Self::Bucket(rate, burst) => TokenBucket::new(rate, burst).into(),
            Self::Owing(rate, burst) => TokenBucket::new(rate, burst).with_debt().into(),
            Self::Interval(every) => Interval::every(every).into(),
            Self::Log(limit, window) => SlidingLog::new(limit, micros(window)).into(),
            Self::Strict(limit, bucket, buckets) => {
                let window = micros(bucket * u64::from(buckets));
                SlidingCounter::strict(limit, window, buckets).into()
            }
            Self::Smooth(limit, window) => SlidingCounter::smooth(limit, micros(window)).into(),
            Self::Fixed(limit, window) => FixedWindow::new(limit, micros(window)).into(),
            Self::PerRequest(ref of) => of.policy().per_request(),
        }
    }
}

/// One policy of each kind, with a burst of `limit` (1 for the interval) and a settling time of `window`, or twice that.
pub(super) fn of_every_kind(limit: u32, window: u64) -> [Subject; 6] {
    [
        Subject::Bucket(Rate::new(limit, micros(window)), limit),
        Subject::Interval(micros(window)),
        Subject::Log(limit, window),
        Subject::Strict(limit, window / 4, 4),
        Subject::Smooth(limit, window),
        Subject::Fixed(limit, window),
    ]
}

/// The largest burst that is counted permit by permit.
const MOST_COUNTED: u32 = 10_000;

/// A policy with its state in memory, on a clock of microseconds. Waits are rounded up.
#[derive(Clone, Debug)]
pub(super) struct Here {
    policy: AnyPolicy,
    state: <AnyPolicy as Policy>::State,
}

impl Here {
    /// The state of an unused limit.
    pub(super) fn new(subject: &Subject, now: u64) -> Self {
        Self::of(subject.policy(), now)
    }

    /// All of these limits as one.
    pub(super) fn all(subjects: &[Subject], now: u64) -> Self {
        let policies = subjects.iter().map(Subject::policy);
        Self::of(policies.reduce(AnyPolicy::and).unwrap(), now)
    }

    /// The state of a limit that was fully spent then.
    pub(super) fn spent(subject: &Subject, now: u64) -> Self {
        let mut here = Self::new(subject, now);
        assert_eq!(here.ask(now, subject.burst()), None);
        here
    }

    fn of(policy: AnyPolicy, now: u64) -> Self {
        let state = policy.fresh(at(now));
        Self { policy, state }
    }

    /// The wait of a request; `None` if it passes.
    pub(super) fn ask(&mut self, now: u64, cost: u32) -> Option<u64> {
        waits(self.policy.decide(&mut self.state, at(now), cost))
    }

    pub(super) fn peek(&self, now: u64, cost: u32) -> Option<u64> {
        waits(self.policy.peek(&self.state, at(now), cost))
    }

    pub(super) fn give_back(&mut self, now: u64, cost: u32) {
        self.policy.refund(&mut self.state, at(now), cost);
    }

    pub(super) fn charge(&mut self, now: u64, cost: u32) {
        self.policy.charge(&mut self.state, at(now), cost);
    }

    /// The same state under other parameters.
    pub(super) fn retuned(&self, subject: &Subject, now: u64) -> Self {
        let (policy, mut state) = (subject.policy(), self.state.clone());
        policy.retune(&self.policy, &mut state, at(now));
        Self { policy, state }
    }

    /// How many requests of cost 1 pass, of at most `burst`: by the policy, and by asking for all of them at once.
    pub(super) fn room(&self, now: u64, burst: u32) -> u32 {
        let (mut room, mut too_many) = (0, u64::from(burst) + 1);
        while u64::from(room) + 1 < too_many {
            let middle = u64::midpoint(room.into(), too_many);
            let cost = u32::try_from(middle).unwrap();
            if self.peek(now, cost).is_none() {
                room = cost;
            } else {
                too_many = middle;
            }
        }
        if burst <= MOST_COUNTED {
            assert_eq!(self.policy.room(&self.state, at(now)), room);
        }
        room
    }

    /// How many requests of cost 1 pass, by the policy.
    pub(super) fn peek_room(&self, now: u64) -> u32 {
        self.policy.room(&self.state, at(now))
    }

    pub(super) fn until(&self) -> u64 {
        let settled_at = self.policy.settled_at(&self.state);
        settled_at.as_nanos().div_ceil(1_000)
    }
}

fn at(micros: u64) -> Tick {
    Tick::from_nanos(micros * 1_000)
}

pub(super) fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn waits(decision: Decision) -> Option<u64> {
    match decision {
        Decision::Pass => None,
        Decision::Wait { retry_in } => {
            Some(u64::try_from(retry_in.as_nanos().div_ceil(1_000)).unwrap())
        }
        Decision::Never { capacity } => panic!("asked for more than {capacity}"),
    }
}
