use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use paceline::time::Tick;
use tokio::runtime::Handle;

use super::batcher::Batcher;
use super::connection::within;
use super::error::{CallError, Failure};
use super::key_queue::KeyQueue;
use super::source::{Answer, Source, Stage, Step};
use super::{Ask, GRACE, RemotePolicy, Reply, Return, Store, Task};

type Caller<T> = oneshot::Sender<Result<T, CallError>>;

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
    caller: Mutex<Option<Caller<Reply<S>>>>,
}

/// One question about leases outside their queue: how many there are.
#[derive(Debug)]
struct LeaseQuestion<S: Store> {
    leases: Mutex<Option<S::Leases>>,
    caller: Mutex<Option<Caller<Vec<i64>>>>,
}

impl<S: Store> Batcher<S> {
    /// Asks once about leases. It waits for as long as the server answers others.
    pub(crate) async fn ask_leases(
        self: &Arc<Self>,
        leases: S::Leases,
    ) -> Result<Vec<i64>, CallError> {
        let ask = |caller| LeaseQuestion {
            leases: Mutex::new(Some(leases)),
            caller: Mutex::new(Some(caller)),
        };
        self.ask_once(ask).await
    }

    /// Pushes the question that is made for a caller, and waits for the reply. Panics outside a runtime.
    async fn ask_once<T, Q: Source<S> + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(Caller<T>) -> Q,
    ) -> Result<T, CallError> {
        Handle::try_current().expect("a call needs a tokio runtime");
        let connection = &self.connection;
        let mut since = connection.now();
        let (caller, mut reply) = oneshot::channel();
        self.push(Arc::new(ask(caller)), Stage::Idle);
        let time = connection.deadline().saturating_add(GRACE);
        loop {
            if let Some(reply) = within(time, &mut reply).await {
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
    ) -> Result<Reply<S>, CallError> {
        self.call_with(task, asked, extra, Vec::new()).await
    }

    /// Returns permits of one grant.
    pub(crate) async fn return_permits(
        self: &Arc<Self>,
        unused: Return,
    ) -> Result<Reply<S>, CallError> {
        self.call_with(Task::GiveBack, Vec::new(), 0, vec![unused])
            .await
    }

    async fn call_with(
        self: &Arc<Self>,
        task: Task,
        asked: Vec<(u32, u32)>,
        extra: u32,
        returns: Vec<Return>,
    ) -> Result<Reply<S>, CallError> {
        let ask = |caller| Question {
            queue: Arc::clone(self),
            task,
            asked,
            extra,
            returns,
            caller: Mutex::new(Some(caller)),
        };
        self.batcher.ask_once(ask).await
    }
}

fn take<T>(kept: &Mutex<Option<T>>) -> Option<T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn is_gone<T>(caller: &Mutex<Option<Caller<T>>>) -> bool {
    let caller = caller.lock().unwrap_or_else(PoisonError::into_inner);
    caller.as_ref().is_none_or(oneshot::Sender::is_closed)
}

impl<P: RemotePolicy, S: Store> Source<S> for Question<P, S> {
    fn next(self: Arc<Self>, _: Tick) -> Step<S> {
        if is_gone(&self.caller) {
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
        let Some(caller) = take(&self.caller) else {
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
        drop(take(&self.caller));
    }
}

impl<S: Store> Source<S> for LeaseQuestion<S> {
    fn next(self: Arc<Self>, _: Tick) -> Step<S> {
        let leases = take(&self.leases).filter(|_| !is_gone(&self.caller));
        leases.map_or(Step::Idle, Step::Lease)
    }

    fn complete(self: Arc<Self>, _: u64, _: Tick, answer: Result<Answer<S>, CallError>) {
        if let Some(caller) = take(&self.caller) {
            // The caller may be gone.
            let _ = caller.send(answer.map(Answer::into_numbers));
        }
    }

    fn task_dropped(self: Arc<Self>) {
        drop(take(&self.caller));
    }
}
