use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use crate::policy::Decision;
use crate::time::Tick;

use super::desk::{Batch, Desk, Step};
use super::error::ServerError;
use super::keeper::slept;
use super::limit::Limit;
use super::link::{Failure, NoAnswer};
use super::reply::{ASK, GIVE_BACK, Question};
use super::twin::RedisPolicy;
use super::waiting::Granted;

/// How long nothing is tried after the server refused: it will again.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// How long after an outage's sign that is not known to be one.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Makes the trips for a line, for as long as somebody stands in it. One at a time: whoever asks meanwhile goes on the next.
pub(super) struct Service<P: RedisPolicy> {
    limit: Arc<Limit<P>>,
    has_ended: bool,
}

impl<P: RedisPolicy> Service<P> {
    pub(super) const fn new(limit: Arc<Limit<P>>) -> Self {
        Self {
            limit,
            has_ended: false,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let now = self.limit.keeper.now();
            match self.limit.work(|desk| desk.next_step(now)) {
                Step::Trip(batch) => self.trip(now, &batch).await,
                Step::GiveBack(unwanted, since) => self.give_back(now, unwanted, since).await,
                Step::Sleep(time, is_alone) => self.sleep(time, is_alone).await,
                Step::End => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    async fn trip(&self, now: Tick, batch: &Batch) {
        let limit = &*self.limit;
        let lease = limit.plan.lease;
        let ahead = lease.map_or(0, |lease| {
            lease
                .permits
                .saturating_sub(limit.work(|desk| desk.spare(now)))
        });
        let question = Question {
            task: ASK,
            asked: &batch.asked,
            ahead,
        };
        let left = self.left(now, batch.since);
        if left.is_zero() {
            limit.keeper.count(|stats| stats.timeouts += 1);
            return self.alone(batch);
        }
        match limit.ask_within(question, left).await {
            Ok(reply) => {
                let sent = now;
                let came = limit.keeper.now().min(sent.after(limit.keeper.deadline()));
                let lasts = lease.map_or(Duration::ZERO, |lease| lease.lasts);
                limit.work(|desk| desk.land(sent, came, batch, &reply, lasts));
            }
            Err(NoAnswer::Failed(Failure::Fault(why))) => {
                let fault = ServerError::new(why);
                let now = limit.keeper.now();
                limit.work(|desk| {
                    desk.deny(&batch.asked, &Err(fault.clone()));
                    desk.rest(now, AFTER_FAULT, fault);
                });
            }
            Err(_) => self.alone(batch),
        }
    }

    /// Redis is slow or gone.
    fn alone(&self, batch: &Batch) {
        let limit = &*self.limit;
        let costs = batch.asked.iter().map(|(_, cost)| *cost);
        let (passed, retry_in) = limit.decide_alone(costs);
        let now = limit.keeper.now();
        limit.work(|desk| {
            let is_counted = false;
            for asked in &batch.asked[..passed] {
                desk.grant(
                    Granted {
                        at: now,
                        is_counted,
                    },
                    *asked,
                );
            }
            if let (Some((_, cost)), Some(retry_in)) = (batch.asked.get(passed), retry_in) {
                desk.deny(&batch.asked[passed..], &Ok(Decision::Wait { retry_in }));
                desk.deny_alone(now, *cost, retry_in);
            }
        });
    }

    /// Nobody has to know whether it was carried out: if not, fewer pass.
    async fn give_back(&self, now: Tick, unwanted: u32, since: Option<Tick>) {
        let question = Question {
            task: GIVE_BACK,
            asked: &[],
            ahead: unwanted,
        };
        let left = self.left(now, since);
        let _ = self.limit.ask_within(question, left).await;
    }

    /// Whoever wants an answer has been waiting for it since they came.
    fn left(&self, now: Tick, since: Option<Tick>) -> Duration {
        let waited = since.map_or(Duration::ZERO, |since| now.since(since));
        self.limit.keeper.deadline().saturating_sub(waited)
    }

    /// Until the time is over or somebody leaves; where Redis could not be asked, also until it can be.
    async fn sleep(&self, time: Duration, is_alone: bool) {
        let limit = &*self.limit;
        let waits_for_redis = is_alone && limit.keeper.is_down();
        let time = if is_alone && !waits_for_redis {
            time.min(AFTER_FAILURE)
        } else {
            time
        };
        let mut nudged = pin!(limit.nudge.notified());
        let mut back = pin!(limit.keeper.back());
        let mut slept = pin!(slept(time));
        poll_fn(|cx| {
            let is_back = waits_for_redis && back.as_mut().poll(cx).is_ready();
            if is_back || nudged.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            slept.as_mut().poll(cx)
        })
        .await;
        if !limit.keeper.is_down() {
            limit.work(Desk::back);
        }
    }
}

/// With its runtime, maybe: others go on.
impl<P: RedisPolicy> Drop for Service<P> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.limit.work(Desk::is_deserted);
        }
    }
}
