use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::policy::Decision;
use crate::time::Tick;

use super::desk::{Batch, Desk, Insurance, Step, Ticket};
use super::error::ServerError;
use super::keeper::{Keeper, NoAnswer, slept};
use super::link::Failure;
use super::plan::{Alone, Plan};
use super::reply::{ASK, GIVE_BACK, PEEK, Question, Reply};
use super::twin::InRedis;
use super::waiting::Manner;

/// One limit in Redis, as this process knows it: its line, and who makes trips for it.
#[derive(Debug)]
pub(super) struct Limit<P: InRedis> {
    pub(super) keeper: Arc<Keeper>,
    pub(super) plan: Arc<Plan<P>>,
    pub(super) keys: Arc<[String]>,
    desk: Mutex<Desk<P>>,
    /// Whether another of the same key may be made: then no insurance may be taken out, or each would have one.
    is_one_of_many: bool,
    /// Somebody came or left while whoever makes the trips sleeps.
    nudge: Notify,
}

/// How long nothing is tried after the server refused: it will again.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// How long after an outage's sign that is not known to be one.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// What one who wants an answer is told while nothing passes without Redis.
const WHILE_CLOSED: Duration = Duration::from_millis(100);

impl<P: InRedis> Limit<P> {
    pub(super) fn new(keeper: Arc<Keeper>, plan: Arc<Plan<P>>, name: &str) -> Self {
        let keys = plan.keys(name);
        let desk = Mutex::new(Desk::new(plan.twins.len()));
        Self {
            keeper,
            plan,
            keys,
            desk,
            is_one_of_many: false,
            nudge: Notify::new(),
        }
    }

    /// A limit that its process does not remember.
    pub(super) fn one_of_many(self) -> Self {
        Self {
            is_one_of_many: true,
            ..self
        }
    }

    /// Asks, or goes on waiting for the answer.
    pub(super) fn poll_ask(
        self: &Arc<Self>,
        place: &mut Option<Ticket>,
        cost: u32,
        manner: Manner,
        cx: &Context<'_>,
    ) -> Poll<Result<Decision, ServerError>> {
        if cost == 0 {
            self.leave(place);
            return Poll::Ready(Ok(Decision::Pass));
        }
        let capacity = self.plan.capacity();
        if cost > capacity {
            self.leave(place);
            return Poll::Ready(Ok(Decision::Never { capacity }));
        }
        let now = self.keeper.now();
        let is_up = self.keeper.is_up();
        let (answer, starts) = self.work(|desk| {
            if is_up {
                desk.back();
            }
            let answer = desk.ask(now, place, cost, manner, cx.waker());
            let starts = answer.is_pending() && desk.is_to_be_served();
            (answer, starts)
        });
        if starts {
            let runtime = Handle::try_current();
            self.start(&runtime.expect("a limit in Redis needs a tokio runtime to wait in"));
        }
        answer
    }

    pub(super) fn leave(self: &Arc<Self>, place: &mut Option<Ticket>) {
        let Some(ticket) = place.take() else { return };
        let now = self.keeper.now();
        // Outside a runtime nothing can be given back now: the next one who asks will.
        let runtime = Handle::try_current().ok();
        let starts = self.work(|desk| {
            desk.leave(now, ticket);
            runtime.filter(|_| desk.owes() && desk.is_to_be_served())
        });
        match starts {
            Some(runtime) => self.start(&runtime),
            None => self.nudge.notify_one(),
        }
    }

    /// Whether nothing would be lost with it that another of the same key would need.
    pub(super) fn is_idle(&self) -> bool {
        let dark = self.keeper.view().dark;
        self.work(|desk| {
            let insured = desk.insurance.as_ref().map(|insurance| insurance.episode);
            desk.is_idle() && (insured.is_none() || insured != dark.map(|dark| dark.episode))
        })
    }

    /// The same limit under another plan, and with a line of its own.
    pub(super) fn with_plan(&self, plan: Plan<P>) -> Self {
        Self {
            keeper: Arc::clone(&self.keeper),
            desk: Mutex::new(Desk::new(plan.twins.len())),
            plan: Arc::new(plan),
            keys: Arc::clone(&self.keys),
            is_one_of_many: self.is_one_of_many,
            nudge: Notify::new(),
        }
    }

    /// How long nothing of that cost can pass, as far as is known.
    pub(super) fn denied(&self, cost: u32) -> Option<Duration> {
        let now = self.keeper.now();
        self.work(|desk| desk.denied(now, cost))
    }

    /// There may be more now than when something was denied.
    pub(super) fn forget_denial(&self) {
        self.work(Desk::forget_denial);
        self.nudge.notify_one();
    }

    /// Which of several limits was the last to refuse, from 0.
    pub(super) fn binding(&self) -> Option<usize> {
        self.work(|desk| desk.binding())
    }

    /// Asks without standing in line, and without memory of it.
    pub(super) async fn ask_once(&self, question: Question<'_>) -> Result<Reply, NoAnswer> {
        self.ask_within(question, self.keeper.deadline()).await
    }

    async fn ask_within(
        &self,
        question: Question<'_>,
        deadline: Duration,
    ) -> Result<Reply, NoAnswer> {
        let limits = self.plan.twins.len();
        let call = {
            let view = self.keeper.view();
            let id = self.keeper.new_id();
            self.work(|desk| question.call(&self.keys, &self.plan.twins, desk.memory(), view, &id))
        };
        let numbers = self.keeper.call(&call, deadline).await?;
        let Some(reply) = Reply::read(&numbers, limits) else {
            return Err(NoAnswer::Failed(Failure::Fault(
                format!("an answer of {numbers:?}").into(),
            )));
        };
        if reply.lost > 0 && question.task != PEEK {
            self.keeper.count(|stats| stats.lost_states += reply.lost);
        }
        Ok(reply)
    }

    /// Decides in memory: how many of these pass, and how long the next has to wait.
    pub(super) fn decide_alone(
        &self,
        costs: impl Iterator<Item = u32>,
    ) -> (usize, Option<Duration>) {
        let now = self.keeper.now();
        let (policy, dark) = match (&self.plan.alone, self.keeper.view().dark) {
            (Alone::Open, _) => return (costs.count(), None),
            (Alone::Insured(policy), Some(dark)) if !self.is_one_of_many => (policy, dark),
            // Without an outage an insurance has nothing to give.
            (Alone::Insured(_) | Alone::Closed, _) => return (0, Some(WHILE_CLOSED)),
        };
        self.work(|desk| {
            let insurance = match desk.insurance.take() {
                Some(insurance) if insurance.episode == dark.episode => insurance,
                _ => Insurance {
                    episode: dark.episode,
                    state: policy.spent(dark.since),
                },
            };
            let insurance = desk.insurance.insert(insurance);
            let mut passed = 0;
            for cost in costs {
                match policy.decide(&mut insurance.state, now, cost) {
                    Decision::Pass => passed += 1,
                    Decision::Wait { retry_in } => return (passed, Some(retry_in)),
                    // More than this part of the limit ever lets pass.
                    Decision::Never { .. } => return (passed, Some(WHILE_CLOSED)),
                }
            }
            (passed, None)
        })
    }

    fn start(self: &Arc<Self>, runtime: &Handle) {
        let service = Service {
            limit: Arc::clone(self),
            has_ended: false,
        };
        drop(runtime.spawn(service.run()));
    }

    /// Works at the desk, and wakes whom that concerns afterwards.
    fn work<T>(&self, work: impl FnOnce(&mut Desk<P>) -> T) -> T {
        let mut desk = self.locked();
        let done = work(&mut desk);
        let wakes = desk.take_wakes();
        drop(desk);
        wakes.into_iter().for_each(Waker::wake);
        done
    }

    fn locked(&self) -> MutexGuard<'_, Desk<P>> {
        // A policy cannot panic half-way, and nothing else under it leaves half a state behind.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the trips for a line, for as long as somebody stands in it. One at a time: whoever asks meanwhile goes on the next.
struct Service<P: InRedis> {
    limit: Arc<Limit<P>>,
    has_ended: bool,
}

impl<P: InRedis> Service<P> {
    async fn run(mut self) {
        loop {
            let now = self.limit.keeper.now();
            match self.limit.work(|desk| desk.next_step(now)) {
                Step::Trip(batch) => self.trip(now, &batch).await,
                Step::GiveBack(unwanted) => self.give_back(unwanted).await,
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
        // Whoever wants an answer has been waiting for it since they came.
        let waited = batch.since.map_or(Duration::ZERO, |since| now.since(since));
        let left = limit.keeper.deadline().saturating_sub(waited);
        if left.is_zero() {
            limit.keeper.count(|stats| stats.timeouts += 1);
            return self.alone(batch);
        }
        match limit.ask_within(question, left).await {
            Ok(reply) => {
                let now = limit.keeper.now();
                let lasts = lease.map_or(Duration::ZERO, |lease| lease.lasts);
                limit.work(|desk| desk.land(now, batch, &reply, lasts));
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
        limit
            .keeper
            .count(|stats| stats.passed_alone += passed as u64);
        let now = limit.keeper.now();
        limit.work(|desk| {
            for asked in &batch.asked[..passed] {
                desk.grant(now, *asked);
            }
            if let (Some((_, cost)), Some(retry_in)) = (batch.asked.get(passed), retry_in) {
                desk.deny(&batch.asked[passed..], &Ok(Decision::Wait { retry_in }));
                desk.deny_alone(now, *cost, retry_in);
            }
        });
    }

    /// Nobody has to know whether it was carried out: if not, fewer pass.
    async fn give_back(&self, unwanted: u32) {
        let question = Question {
            task: GIVE_BACK,
            asked: &[],
            ahead: unwanted,
        };
        let _ = self.limit.ask_once(question).await;
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
impl<P: InRedis> Drop for Service<P> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.limit.work(Desk::is_deserted);
        }
    }
}
