use std::fmt::Debug;
use std::time::Duration;

use paceline::policy::{
    Decision, FixedWindow, Interval, PerRequest, Policy, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::time::{Rate, Tick};

use super::numbers::{self, Numbers};

/// A policy as both sides know it. All times but those of rates are in microseconds.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Bucket {
        rate: Rate,
        burst: u32,
        may_owe: bool,
    },
    Interval {
        every: Duration,
    },
    Log {
        limit: u32,
        window: u64,
    },
    Strict {
        limit: u32,
        bucket: u64,
        buckets: u32,
    },
    Smooth {
        limit: u32,
        window: u64,
    },
    Fixed {
        limit: u32,
        window: u64,
    },
    PerRequest(Box<Self>),
}

impl Subject {
    pub(super) const fn counts_requests(&self) -> bool {
        matches!(self, Self::PerRequest(_))
    }

    /// The parameters of the scripts.
    pub(super) fn numbers(&self) -> Numbers {
        match *self {
            Self::PerRequest(ref of) => numbers::per_request(of.numbers()),
            Self::Bucket {
                rate,
                burst,
                may_owe: false,
            } => numbers::bucket(rate, burst),
            Self::Bucket {
                rate,
                burst,
                may_owe: true,
            } => numbers::owing(rate, burst),
            Self::Interval { every } => numbers::interval(every),
            Self::Log { limit, window } => numbers::log(limit, window),
            Self::Strict {
                limit,
                bucket,
                buckets,
            } => numbers::strict(limit, bucket * u64::from(buckets), buckets),
            Self::Smooth { limit, window } => numbers::smooth(limit, window),
            Self::Fixed { limit, window } => numbers::fixed(limit, window),
        }
    }

    /// The approximate time of one permit, or of one bucket of a counter.
    pub(super) fn grain(&self) -> u64 {
        match *self {
            Self::PerRequest(ref of) => of.grain(),
            Self::Bucket { .. } | Self::Interval { .. } => {
                let params = self.numbers().params;
                params[0].div_ceil(params[1])
            }
            Self::Strict { bucket, .. } => bucket,
            Self::Log { window, .. } | Self::Smooth { window, .. } | Self::Fixed { window, .. } => {
                window.div_ceil(4)
            }
        }
    }

    /// The policy of the library.
    fn state(&self, now: Tick) -> State {
        match *self {
            Self::PerRequest(ref of) => State::of(PerRequest::new((**of).clone()), now),
            Self::Bucket {
                rate,
                burst,
                may_owe,
            } => {
                let bucket = TokenBucket::new(rate, burst);
                let owing = if may_owe { bucket.with_debt() } else { bucket };
                State::of(owing, now)
            }
            Self::Interval { every } => State::of(Interval::every(every), now),
            Self::Log { limit, window } => State::of(SlidingLog::new(limit, micros(window)), now),
            Self::Strict {
                limit,
                bucket,
                buckets,
            } => {
                let window = micros(bucket * u64::from(buckets));
                State::of(SlidingCounter::strict(limit, window, buckets), now)
            }
            Self::Smooth { limit, window } => {
                State::of(SlidingCounter::smooth(limit, micros(window)), now)
            }
            Self::Fixed { limit, window } => {
                State::of(FixedWindow::new(limit, micros(window)), now)
            }
        }
    }
}

/// A policy with its state.
#[derive(Debug)]
pub(super) struct State(Box<dyn AnyState>);

trait AnyState: Debug {
    fn decide(&mut self, now: Tick, cost: u32) -> Decision;
    fn refund(&mut self, now: Tick, cost: u32);
    fn charge(&mut self, now: Tick, cost: u32);
    fn settled_at(&self) -> Tick;
    fn room(&self, now: Tick) -> u32;
    fn boxed(&self) -> Box<dyn AnyState>;
}

impl State {
    fn of<P: Policy + Clone + Debug + 'static>(policy: P, now: Tick) -> Self {
        Self(Box::new(Here::new(policy, now)))
    }
}

impl Clone for State {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

impl<P: Policy + Clone + Debug + 'static> AnyState for Here<P> {
    fn decide(&mut self, now: Tick, cost: u32) -> Decision {
        self.policy.decide(&mut self.state, now, cost)
    }

    fn refund(&mut self, now: Tick, cost: u32) {
        self.policy.refund(&mut self.state, now, cost);
    }

    fn charge(&mut self, now: Tick, cost: u32) {
        self.policy.charge(&mut self.state, now, cost);
    }

    fn settled_at(&self) -> Tick {
        self.policy.settled_at(&self.state)
    }

    fn room(&self, now: Tick) -> u32 {
        self.policy.room(&self.state, now)
    }

    fn boxed(&self) -> Box<dyn AnyState> {
        Box::new(self.clone())
    }
}

impl Policy for Subject {
    type State = State;

    fn fresh(&self, now: Tick) -> State {
        self.state(now)
    }

    fn decide(&self, state: &mut State, now: Tick, cost: u32) -> Decision {
        state.0.decide(now, cost)
    }

    fn refund(&self, state: &mut State, now: Tick, cost: u32) {
        state.0.refund(now, cost);
    }

    fn charge(&self, state: &mut State, now: Tick, cost: u32) {
        state.0.charge(now, cost);
    }

    fn retune(&self, _: &Self, _: &mut State, _: Tick) {
        unreachable!("tests retune the policies themselves");
    }

    fn settled_at(&self, state: &State) -> Tick {
        state.0.settled_at()
    }

    fn room(&self, state: &State, now: Tick) -> u32 {
        state.0.room(now)
    }
}

/// The largest burst that is counted permit by permit.
const MOST_COUNTED: u32 = 10_000;

/// A policy with its state in memory, on a clock of microseconds. Waits are rounded up.
#[derive(Clone, Debug)]
pub(super) struct Here<P: Policy> {
    pub(super) policy: P,
    pub(super) state: P::State,
}

impl<P: Policy> Here<P> {
    /// The state of an unused limit.
    pub(super) fn new(policy: P, now: Tick) -> Self {
        let state = policy.fresh(now);
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
    pub(super) fn retuned(&self, policy: &P, now: u64) -> Self
    where
        P: Clone,
    {
        let mut state = self.state.clone();
        policy.retune(&self.policy, &mut state, at(now));
        Self {
            policy: policy.clone(),
            state,
        }
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

pub(super) fn at(micros: u64) -> Tick {
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

/// One policy of each kind, with a burst of `limit` (1 for the interval) and a settling time of `window`, or twice that.
pub(super) fn of_every_kind(limit: u32, window: u64) -> Vec<Subject> {
    let rate = Rate::new(limit, micros(window));
    vec![
        Subject::Bucket {
            rate,
            burst: limit,
            may_owe: false,
        },
        Subject::Interval {
            every: micros(window),
        },
        Subject::Log { limit, window },
        Subject::Strict {
            limit,
            bucket: window / 4,
            buckets: 4,
        },
        Subject::Smooth { limit, window },
        Subject::Fixed { limit, window },
    ]
}

impl Subject {
    /// The burst, without debt.
    pub(super) fn burst(&self) -> u32 {
        match *self {
            Self::PerRequest(ref of) => of.burst(),
            Self::Bucket { burst, .. } => burst,
            Self::Interval { .. } => 1,
            Self::Log { limit, .. }
            | Self::Strict { limit, .. }
            | Self::Smooth { limit, .. }
            | Self::Fixed { limit, .. } => limit,
        }
    }
}
