use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::policy::Decision;
use crate::time::Tick;

use super::desk::{Desk, Insurance};
use super::error::ServerError;
use super::keeper::Keeper;
use super::link::{Failure, NoAnswer};
use super::plan::{Alone, Plan};
use super::reply::{PEEK, Question, Reply};
use super::service::Service;
use super::twin::RedisPolicy;
use super::waiting::{Manner, Ticket};

/// One limit in Redis, as this process knows it: its line, and who makes trips for it.
#[derive(Debug)]
pub(super) struct Limit<P: RedisPolicy> {
    pub(super) keeper: Arc<Keeper>,
    pub(super) plan: Arc<Plan<P>>,
    pub(super) keys: Arc<[String]>,
    desk: Mutex<Desk<P>>,
    /// Whether another of the same key may be made: then no insurance may be taken out, or each would have one.
    is_one_of_many: bool,
    /// Something has changed while whoever makes the trips sleeps.
    pub(super) nudge: Notify,
}

/// What one who wants an answer is told while nothing passes without Redis.
const WHILE_CLOSED: Duration = Duration::from_millis(100);

impl<P: RedisPolicy> Limit<P> {
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
        let (answer, is_deserted) = self.work(|desk| {
            if is_up {
                desk.back();
            }
            let answer = desk.ask(now, place, cost, manner, cx.waker());
            let is_deserted = answer.is_pending() && !desk.is_served();
            (answer, is_deserted)
        });
        if is_deserted {
            // Where there is no runtime, it is left to others to start it in theirs.
            let runtime = Handle::try_current();
            let runtime = runtime.expect("a limit in Redis needs a tokio runtime to wait in");
            if self.work(Desk::is_to_be_served) {
                self.start(&runtime);
            }
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
        if let Some(runtime) = starts {
            self.start(&runtime);
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

    /// How long nothing of that cost can pass, as far as is known. Not while the server refuses: that is to be told.
    pub(super) fn denied(&self, cost: u32) -> Option<Duration> {
        self.look(|desk, now| {
            let is_fault = desk
                .known_outside(now, cost, Manner::StandsUnlessFault)
                .is_some();
            desk.denied(now, cost).filter(|_| !is_fault)
        })
    }

    /// What one who wants to know how many there are is told without a trip: that there are none, or that the server refuses.
    pub(super) fn none(&self) -> Option<Result<Decision, ServerError>> {
        self.look(|desk, now| desk.known_outside(now, 1, Manner::Tries))
    }

    fn look<T>(&self, look: impl FnOnce(&Desk<P>, Tick) -> T) -> T {
        let now = self.keeper.now();
        let is_up = self.keeper.is_up();
        self.work(|desk| {
            if is_up {
                desk.back();
            }
            look(desk, now)
        })
    }

    /// There may be more now than when something was denied.
    pub(super) fn forget_denial(&self) {
        self.work(Desk::forget_denial);
    }

    /// Which of several limits was the last to refuse, from 0.
    pub(super) fn binding(&self) -> Option<usize> {
        self.work(|desk| desk.binding())
    }

    /// Asks without standing in line, and without memory of it.
    pub(super) async fn ask_once(&self, question: Question<'_>) -> Result<Reply, NoAnswer> {
        self.ask_within(question, self.keeper.deadline()).await
    }

    pub(super) async fn ask_within(
        &self,
        question: Question<'_>,
        deadline: Duration,
    ) -> Result<Reply, NoAnswer> {
        let limits = self.plan.twins.len();
        let call = {
            let mut view = self.keeper.view();
            if !self.plan.is_insured() {
                view = view.without_insurance();
            }
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
        let (passed, retry_in) = self.decide_in_memory(costs);
        self.keeper
            .count(|stats| stats.passed_alone += passed as u64);
        (passed, retry_in)
    }

    /// The same for one who has had no answer.
    pub(super) fn decide_one_alone(&self, cost: u32) -> Decision {
        self.keeper.count(|stats| stats.timeouts += 1);
        match self.decide_alone(core::iter::once(cost)) {
            (0, retry_in) => Decision::Wait {
                retry_in: retry_in.unwrap_or(WHILE_CLOSED),
            },
            _ => Decision::Pass,
        }
    }

    fn decide_in_memory(&self, costs: impl Iterator<Item = u32>) -> (usize, Option<Duration>) {
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
        let service = Service::new(Arc::clone(self));
        drop(runtime.spawn(service.run()));
    }

    /// Works at the desk, and wakes whom that concerns afterwards.
    pub(super) fn work<T>(&self, work: impl FnOnce(&mut Desk<P>) -> T) -> T {
        let mut desk = self.locked();
        let done = work(&mut desk);
        let wakes = desk.take_wakes();
        let is_changed = desk.take_change();
        drop(desk);
        wakes.into_iter().for_each(Waker::wake);
        if is_changed {
            self.nudge.notify_one();
        }
        done
    }

    fn locked(&self) -> MutexGuard<'_, Desk<P>> {
        // A policy cannot panic half-way, and nothing else under it leaves half a state behind.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
