use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use paceline::time::Tick;
use tokio::runtime::Handle;

use super::batcher::Batcher;
use super::error::{CallError, Failure};
use super::key_queue::KeyQueue;
use super::source::{Answer, Source, Stage, Step};
use super::{Ask, GRACE, RemotePolicy, Reply, Return, Store, Task};

type Caller<S> = oneshot::Sender<Result<Reply<S>, CallError>>;

/// One question about a key outside its queue: a peek, a refund, a charge, or how many permits are available.
///
/// It waits in the batcher like a queue, so that a herd of questions is no outage.
#[derive(Debug)]
struct Question<P: RemotePolicy, S: Store> {
    queue: Arc<KeyQueue<P, S>>,
    task: Task,
    asked: Vec<(u32, u32)>,
    extra: u32,
    returns: Vec<Return>,
    caller: Mutex<Option<Caller<S>>>,
}

impl<S: Store> Batcher<S> {
    /// Waits for a reply for as long as the server answers others.
    pub(super) async fn reply<T>(
        &self,
        mut reply: oneshot::Receiver<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let connection = &self.connection;
        let mut since = connection.now();
        let time = connection.deadline().saturating_add(GRACE);
        loop {
            if let Some(reply) = connection.within(time, &mut reply).await {
                let ended = |_| Failure::Unreachable("the runtime has ended".into());
                return reply.map_err(ended).map_err(CallError::failed)?;
            }
            if !connection.health().has_answered_since(since) {
                connection.count(|stats| stats.timeouts += 1);
                return Err(CallError::failed(Failure::Timeout));
            }
            since = connection.now();
        }
    }
}

impl<P: RemotePolicy, S: Store> KeyQueue<P, S> {
    /// Asks once, outside the queue. It waits for as long as the server answers others.
    ///
    /// Permits of a future that is dropped before the reply comes go to the next request, or are returned.
    pub(crate) async fn call(
        self: &Arc<Self>,
        task: Task,
        asked: Vec<(u32, u32)>,
        extra: u32,
        returns: Vec<Return>,
    ) -> Result<Reply<S>, CallError> {
        Handle::try_current().expect("a call needs a tokio runtime");
        let (caller, reply) = oneshot::channel();
        let question = Question {
            queue: Arc::clone(self),
            task,
            asked,
            extra,
            returns,
            caller: Mutex::new(Some(caller)),
        };
        self.batcher.push(Arc::new(question), Stage::Idle);
        self.batcher.reply(reply).await
    }
}

impl<P: RemotePolicy, S: Store> Question<P, S> {
    fn caller(&self) -> MutexGuard<'_, Option<Caller<S>>> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: RemotePolicy, S: Store> Source<S> for Question<P, S> {
    fn next(self: Arc<Self>, _: Tick) -> Step<S> {
        if self.caller().as_ref().is_none_or(Caller::<S>::is_closed) {
            return Step::Idle;
        }
        let ask = Ask {
            asked: self.asked.clone(),
            extra: self.extra,
            returns: self.returns.clone(),
            ..self.queue.with_queue(|queue| queue.question(self.task))
        };
        Step::Ask(0, ask)
    }

    fn complete(self: Arc<Self>, _: u64, sent: Tick, answer: Result<Answer<S>, CallError>) {
        let answer = match answer {
            Ok(Answer::Leases(_)) => return,
            Ok(Answer::Decided(mut reply)) => {
                if self.task != Task::Peek {
                    self.queue.answered(&reply, |_| ());
                }
                if self.task == Task::Ask && self.queue.pause().is_some() {
                    // Permits that the server counted before this process knew of the pause.
                    self.queue.keep_unclaimed(sent, &reply);
                    reply.extra = 0;
                }
                Ok(reply)
            }
            Err(error) => Err(error),
        };
        let Some(caller) = self.caller().take() else {
            return;
        };
        if let Err(Ok(reply)) = caller.send(answer)
            && self.task == Task::Ask
        {
            self.queue.keep_unclaimed(sent, &reply);
        }
    }

    fn answered_late(self: Arc<Self>, reply: &Reply<S>) {
        if self.task == Task::Ask {
            Arc::clone(&self.queue).answered_late(reply);
        }
    }

    fn task_dropped(self: Arc<Self>) {
        drop(self.caller().take());
    }
}
