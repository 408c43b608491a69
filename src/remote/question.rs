use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::policy::Policy;
use crate::time::Tick;

use super::batcher::{Answer, Source, Step};
use super::error::CallError;
use super::key_queue::KeyQueue;
use super::{Ask, Reply, Store, Task};

type Caller<S> = oneshot::Sender<Result<Reply<S>, CallError>>;

/// One question about a key outside its queue: a peek, a refund, or how many permits are available.
///
/// It waits in the batcher like a queue, so that a herd of questions is no outage.
#[derive(Debug)]
pub(super) struct Question<P: Policy, S: Store> {
    pub(super) queue: Arc<KeyQueue<P, S>>,
    pub(super) task: Task,
    pub(super) asked: Vec<(u32, u32)>,
    pub(super) extra: u32,
    pub(super) caller: Mutex<Option<Caller<S>>>,
}

impl<P: Policy, S: Store> Question<P, S> {
    fn take_caller(&self) -> Option<Caller<S>> {
        let mut caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        caller.take()
    }

    fn is_cancelled(&self) -> bool {
        let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        caller.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl<P, S> Source<S> for Question<P, S>
where
    P: Policy<State: Send> + Send + Sync + 'static,
    S: Store,
{
    fn next(self: Arc<Self>, _: Tick) -> Step<S> {
        if self.is_cancelled() {
            return Step::Idle;
        }
        let memory = self.queue.with_queue(|queue| queue.known.memory.clone());
        let ask = Ask {
            asked: self.asked.clone(),
            extra: self.extra,
            ..self.queue.question(self.task, memory)
        };
        Step::Ask(0, ask)
    }

    fn complete(self: Arc<Self>, _: u64, sent: Tick, answer: Result<Answer<S>, CallError>) {
        let answer = match answer {
            Ok(Answer::Leases(_)) => return,
            Ok(Answer::Decided(reply)) => {
                self.queue.answered(self.task, &reply);
                Ok(reply)
            }
            Err(error) => Err(error),
        };
        let Some(caller) = self.take_caller() else {
            return;
        };
        if let Err(Ok(reply)) = caller.send(answer)
            && self.task == Task::Ask
        {
            let came = self.queue.came(sent);
            self.queue
                .with_queue(|queue| queue.keep_unclaimed(came, &reply));
        }
    }

    fn task_dropped(self: Arc<Self>) {
        drop(self.take_caller());
    }
}
