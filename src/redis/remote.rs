use core::convert::Infallible;
use core::future::poll_fn;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use crate::limiter::Limiter;
use crate::policy::Decision;

use super::error::{AcquireError, CallError, ConfigError, ServerError};
use super::keeper::within;
use super::limit::Limit;
use super::link::{Failure, NoAnswer};
use super::plan::Lease;
use super::reply::{ASK, GIVE_BACK, PEEK, Question};
use super::twin::RedisPolicy;
use super::waiting::{Manner, Ticket};

/// Whoever makes the trips keeps the deadline, and is so much quicker than who waits for an answer; unless their runtime stands
/// still, where there are several.
const GRACE: Duration = Duration::from_millis(5);

/// A limit whose state is in Redis: one for all processes that name it alike.
///
/// Made by [`Redis::limit`](super::Redis::limit) and [`Keyed::at`](super::Keyed::at). It is a [`Limiter`] like any other:
/// `.pace(limit)` and every other adapter take it. Clones share the limit, and stand in one line in their process, first come,
/// first served; between processes Redis serves whoever asks first when there is something.
///
/// * **Trips**: those who ask at the same time go on one trip together. What Redis said of the next permit is remembered, and it is
///   not asked before that has come.
/// * **Time** is the server's. A permit is used at most 100 ms after Redis counted it, else it is void: a window at the
///   provider can be that much shorter than here, less the time on the way.
/// * **Fails safely**: no trip takes longer than the deadline, and who [tries](Self::try_acquire) is answered within it. While
///   Redis does not answer, [`OutagePolicy`](super::OutagePolicy) says what passes; who stands in line may have waited for the trip
///   before as well.
/// * **A fault** of how it is used (the key holds something else, a permission is missing) is an error of the methods here. An
///   adapter cannot tell of it: nothing passes there, it asks again each second, and [`Stats::faults`](super::Stats::faults)
///   counts.
///
/// # Cancel safety
///
/// Who leaves before they were let pass leaves no trace. What Redis counted for somebody who left is handed on to the next in
/// line, or given back.
#[derive(Debug)]
pub struct RedisLimiter<P: RedisPolicy> {
    limit: Arc<Limit<P>>,
    place: Option<Ticket>,
}

impl<P: RedisPolicy> RedisLimiter<P> {
    pub(super) const fn new(limit: Arc<Limit<P>>) -> Self {
        Self { limit, place: None }
    }

    /// Takes up to `permits` ahead on each trip, and uses them without one for as long as `lasts`; what is left then is void.
    ///
    /// Call it before cloning: clones made before stand in another line, and take nothing ahead.
    ///
    /// For limits that are asked often. The price: what was counted is used up to `lasts` later. So a window can hold
    /// `permits` more for each replica than the limit says.
    ///
    /// # Errors
    ///
    /// If `permits` or `lasts` is zero, or `permits` more than the limit ever lets pass at once.
    pub fn prefetch(self, permits: u32, lasts: Duration) -> Result<Self, ConfigError> {
        let capacity = self.limit.plan.capacity();
        if permits == 0 || permits > capacity {
            return Err(ConfigError::new(format!(
                "a lease has 1 to {capacity} permits here, got {permits}"
            )));
        }
        if lasts.is_zero() {
            return Err(ConfigError::new("a lease has to last longer than 0"));
        }
        let plan = self.limit.plan.with_lease(Lease { permits, lasts });
        let limit = self.limit.with_plan(plan);
        Ok(Self::new(Arc::new(limit)))
    }

    /// Waits until `cost` permits have passed.
    ///
    /// # Errors
    ///
    /// If so many can never pass at once, or the server refuses to answer. Nothing was counted.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn acquire(&self, cost: u32) -> Result<(), AcquireError> {
        let mut place = self.another();
        match poll_fn(|cx| place.poll_ask(cost, Manner::StandsUnlessFault, cx)).await? {
            Decision::Never { capacity } => Err(AcquireError::too_costly(cost, capacity)),
            _ => Ok(()),
        }
    }

    /// Waits until `cost` permits have passed, but no longer than that.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and if they did not pass in time: at the end of that time at the latest, and at once if
    /// Redis is known to have none before. Nothing was counted.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn acquire_within(&self, cost: u32, time: Duration) -> Result<(), AcquireError> {
        if self.limit.denied(cost).is_some_and(|wait| wait > time) {
            return Err(AcquireError::too_late(time));
        }
        let acquired = within(time, self.acquire(cost)).await;
        acquired.unwrap_or(Err(AcquireError::too_late(time)))
    }

    /// Asks whether `cost` permits may pass now, and counts them if so. It never overtakes those who stand in line.
    ///
    /// # Errors
    ///
    /// If the server refuses to answer. That it cannot be reached is no error: then [`OutagePolicy`](super::OutagePolicy) decides.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn try_acquire(&self, cost: u32) -> Result<Decision, ServerError> {
        let mut place = self.another();
        let asked = poll_fn(|cx| place.poll_ask(cost, Manner::Tries, cx));
        let time = self.limit.keeper.deadline().saturating_add(GRACE);
        let Some(answer) = within(time, asked).await else {
            place.give_up();
            return Ok(self.limit.decide_one_alone(cost));
        };
        answer
    }

    /// Takes as many permits as there are, up to `most`: how many. None while somebody stands in line.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn try_acquire_up_to(&self, most: u32) -> Result<u32, ServerError> {
        if most == 0 {
            return Ok(0);
        }
        if let Some(none) = self.limit.none() {
            return none.map(|_| 0);
        }
        let question = Question {
            task: ASK,
            asked: &[],
            ahead: most,
        };
        match self.limit.ask_once(question).await {
            Ok(reply) => Ok(reply.ahead),
            Err(NoAnswer::Failed(Failure::Fault(why))) => Err(ServerError::new(why)),
            Err(_) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let (passed, _) = self.limit.decide_alone(core::iter::repeat_n(1, most));
                Ok(u32::try_from(passed).unwrap_or(u32::MAX))
            }
        }
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    ///
    /// # Errors
    ///
    /// If the server refuses to answer, or does not answer at all.
    pub async fn peek(&self, cost: u32) -> Result<Decision, CallError> {
        let capacity = self.limit.plan.capacity();
        if cost > capacity {
            return Ok(Decision::Never { capacity });
        }
        let question = Question {
            task: PEEK,
            asked: &[(0, cost)],
            ahead: 0,
        };
        if cost == 0 {
            return Ok(Decision::Pass);
        }
        let reply = self
            .limit
            .ask_once(question)
            .await
            .map_err(CallError::new)?;
        Ok(match reply.passed {
            0 => Decision::Wait {
                retry_in: reply.retry_in,
            },
            _ => Decision::Pass,
        })
    }

    /// Gives back `cost` permits that passed and were not used, the latest first. The limit never becomes better than full.
    ///
    /// # Errors
    ///
    /// If the server refuses to answer, or does not answer at all. It is not tried again, since it may have been counted.
    pub async fn refund(&self, cost: u32) -> Result<(), CallError> {
        let question = Question {
            task: GIVE_BACK,
            asked: &[],
            ahead: cost,
        };
        let reply = self.limit.ask_once(question).await.map_err(CallError::new);
        self.limit.forget_denial();
        reply.map(|_| ())
    }

    /// The policy that decides.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.limit.plan.policy
    }

    /// Which limit of an [`All`](crate::policy::All) was the last to let nothing pass, from 0.
    #[must_use]
    pub fn binding(&self) -> Option<usize> {
        self.limit.binding()
    }

    /// The keys in Redis, one for each limit of an [`All`](crate::policy::All).
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.limit.keys
    }

    fn another(&self) -> Self {
        Self::new(Arc::clone(&self.limit))
    }

    fn poll_ask(
        &mut self,
        cost: u32,
        manner: Manner,
        cx: &Context<'_>,
    ) -> Poll<Result<Decision, ServerError>> {
        self.limit.poll_ask(&mut self.place, cost, manner, cx)
    }
}

impl<P: RedisPolicy> Limiter for RedisLimiter<P> {
    type Error = Infallible;

    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Infallible>> {
        self.poll_ask(cost, Manner::Stands, cx)
            .map(|answer| Ok(never_a_fault(answer)))
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        self.poll_ask(cost, Manner::Tries, cx)
            .map(|answer| Ok(never_a_fault(answer)))
    }

    fn give_up(&mut self) {
        self.limit.leave(&mut self.place);
    }
}

/// Where a fault cannot be told: as if nothing could pass.
fn never_a_fault(answer: Result<Decision, ServerError>) -> Decision {
    const RETRY_IN: Duration = Duration::from_secs(1);
    answer.unwrap_or(Decision::Wait { retry_in: RETRY_IN })
}

/// Another place in line, for the same limit.
impl<P: RedisPolicy> Clone for RedisLimiter<P> {
    fn clone(&self) -> Self {
        self.another()
    }
}

impl<P: RedisPolicy> Drop for RedisLimiter<P> {
    fn drop(&mut self) {
        self.give_up();
    }
}
