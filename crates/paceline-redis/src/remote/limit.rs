//! A limit on a server, as its users hold it: what a store offers them is this with its docs, and the parameters of the store.

use core::future::poll_fn;
use core::iter;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::Arc;

use tokio::task::coop::cooperative;

use paceline::config::ConfigError;
use paceline::limiter::{AcquireError, Event, Reporter, TooCostly};
use paceline::policy::{Decision, Status};
use paceline::time::{Tick, Timer};

use super::connection::{sleep, within};
use super::error::{CallError, ServerError};
use super::key_queue::KeyQueue;
use super::overrides::Change;
use super::request::{Decided, RequestId, WaitMode, without_fault, without_outage};
use super::{GRACE, LATE, LimitConfig, RemotePolicy, Return, Store, Task};

/// After this time a request that waits for any of several limits asks again: a pause or a fault may be over.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A handle with its own position in the queue of its process.
#[derive(Debug)]
pub(crate) struct RemoteLimit<P: RemotePolicy, S: Store> {
    pub(crate) queue: Arc<KeyQueue<P, S>>,
    pub(crate) reporter: Reporter,
    position: Option<RequestId>,
    /// Whether the last answer was none of the limit.
    is_undecided: bool,
    /// When the server counted the last request that passed, by its clock, if it did.
    counted_at: Option<u64>,
    /// Since when the present request waits for its answer, and the end of that, if it takes whatever answer there is.
    deadline: Option<Box<(Tick, Tick, Timer)>>,
}

impl<P: RemotePolicy, S: Store> RemoteLimit<P, S> {
    pub(crate) const fn new(queue: Arc<KeyQueue<P, S>>, reporter: Reporter) -> Self {
        Self {
            queue,
            reporter,
            position: None,
            is_undecided: false,
            counted_at: None,
            deadline: None,
        }
    }

    /// The same limit, which takes permits ahead.
    pub(crate) fn with_prefetch(&self, permits: u32, lasts: Duration) -> Result<Self, ConfigError> {
        let capacity = self.queue.config.capacity;
        if self.queue.config.counts_requests {
            return Err(ConfigError::new(
                "a limit that counts requests cannot be taken ahead: nobody knows how many requests will use it",
            ));
        }
        if permits == 0 || permits > capacity {
            return Err(ConfigError::new(format!(
                "a prefetch takes 1 to {capacity} permits here, got {permits}"
            )));
        }
        if lasts.is_zero() {
            return Err(ConfigError::new("a prefetch has to last longer than 0"));
        }
        let config = LimitConfig {
            prefetch: Some((permits, lasts)),
            ..LimitConfig::clone(&self.queue.config)
        };
        let queue = Arc::new(self.queue.with_config(config));
        Ok(Self::new(queue, self.reporter.clone()))
    }

    pub(crate) async fn wait(&mut self, cost: u32) -> Result<(), AcquireError<ServerError>> {
        let asked = poll_fn(|cx| self.poll_ask(cost, WaitMode::WaitFailFast, cx));
        let answer = cooperative(asked).await;
        match answer.map_err(AcquireError::of_limit)? {
            Decision::Never { capacity } => Err(TooCostly::new(cost, capacity).into()),
            _ => Ok(()),
        }
    }

    pub(crate) async fn wait_within(
        &mut self,
        cost: u32,
        time: Duration,
    ) -> Result<(), AcquireError<ServerError>> {
        let denied = self.queue.denied(cost);
        let known = denied.filter(|wait| cost > 0 && *wait > time);
        if known.is_none()
            && let Some(acquired) = within(time, self.wait(cost)).await
        {
            return acquired;
        }
        self.queue.leave(&mut self.position);
        // Also a denial of a higher cost: that request was before this one in the queue.
        let retry_in = known
            .or_else(|| self.queue.denied(u32::MAX))
            .unwrap_or(time);
        self.reporter.decided(cost, Decision::Wait { retry_in });
        Err(AcquireError::too_late(time, Some(retry_in)))
    }

    /// Asks one limit after the other, and all of them again when the first wait is over. A request that passes leaves no permit
    /// elsewhere, since the limit before has answered, or its permit comes too late and is given back.
    pub(crate) async fn wait_for_any(
        mut limits: Vec<Option<Self>>,
        cost: u32,
    ) -> Result<usize, AcquireError<ServerError>> {
        let mut capacity = 0;
        loop {
            let (mut retry_in, mut fault) = (None, None);
            for (number, limit) in limits.iter_mut().enumerate() {
                let Some(handle) = limit else { continue };
                let asked = poll_fn(|cx| {
                    let answer = handle.poll_unreported(cost, WaitMode::Try, cx);
                    handle.answered(cost, WaitMode::Wait, &answer);
                    answer
                });
                match asked.await {
                    Ok(Decision::Pass) => return Ok(number),
                    Ok(Decision::Wait { retry_in: wait }) => {
                        retry_in = Some(retry_in.map_or(wait, |first: Duration| first.min(wait)));
                    }
                    Ok(Decision::Never { capacity: most }) => {
                        (*limit, capacity) = (None, most.max(capacity));
                    }
                    Err(error) => fault = Some(error),
                }
            }
            match (retry_in, fault) {
                (Some(wait), _) => sleep(wait.min(ASK_AGAIN)).await,
                (None, Some(fault)) => return Err(AcquireError::of_limit(fault)),
                (None, None) => return Err(TooCostly::new(cost, capacity).into()),
            }
        }
    }

    pub(crate) async fn try_acquire_up_to(&self, most: u32) -> Result<u32, ServerError> {
        if most == 0 {
            return Ok(0);
        }
        // Bypasses the queue; reported like a queued request.
        let mut handle = self.clone();
        handle.answered(most, WaitMode::Try, &Poll::Pending);
        let taken = self.take_up_to(most).await;
        let (cost, answer) = match &taken {
            Ok(0) => {
                let retry_in = self.queue.denied(1).unwrap_or(Duration::MAX);
                (most, Ok(Decision::Wait { retry_in }))
            }
            Ok(taken) => (*taken, Ok(Decision::Pass)),
            Err(fault) => (most, Err(fault.clone())),
        };
        handle.answered(cost, WaitMode::Try, &Poll::Ready(answer));
        taken
    }

    async fn take_up_to(&self, most: u32) -> Result<u32, ServerError> {
        let known = self
            .queue
            .with_present_queue(|queue, now| queue.known_outside(now, 1, WaitMode::Try));
        if let Some(denial) = known {
            return without_outage(denial).map(|_| 0);
        }
        let asked = self.queue.call(Task::Ask, vec![], most, vec![]);
        let connection = &self.queue.batcher.connection;
        let time = connection.deadline().saturating_add(GRACE);
        let error = match connection.within(time, asked).await {
            Some(Ok(reply)) => return Ok(reply.extra),
            Some(Err(error)) => error,
            // The server answers others.
            None => return Ok(0),
        };
        if let Some(fault) = self.queue.to_return(error.server_error()) {
            return Err(fault);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (passed, ..) = self.queue.decide_locally(iter::repeat_n(1, most));
        Ok(u32::try_from(passed).unwrap_or(u32::MAX))
    }

    pub(crate) async fn peek(&self, cost: u32) -> Result<Decision, CallError> {
        if cost == 0 {
            return Ok(Decision::Pass);
        }
        let capacity = self.queue.with_queue(|queue| queue.config.capacity);
        if cost > capacity {
            return Ok(Decision::Never { capacity });
        }
        let reply = self
            .queue
            .call(Task::Peek, vec![(cost, 1)], 0, vec![])
            .await?;
        let denied = (reply.passed == 0).then_some(reply.retry_in);
        let retry_in = denied.max(self.queue.pause());
        Ok(retry_in.map_or(Decision::Pass, |retry_in| Decision::Wait { retry_in }))
    }

    pub(crate) async fn refund(&self, cost: u32) -> Result<(), CallError> {
        let reply = self.queue.call(Task::GiveBack, vec![], cost, vec![]).await;
        self.waiters_ask_again();
        reply.map(drop)
    }

    /// More may be available now than when a request was denied.
    fn waiters_ask_again(&self) {
        self.queue.with_queue(|queue| {
            queue.denial = None;
            queue.is_changed = true;
        });
    }

    pub(crate) fn status(&self) -> Option<Status> {
        let connection = &self.queue.batcher.connection;
        let now = connection.now();
        let health = connection.health();
        let server_time = health.server_time(now);
        self.queue.with_queue(|queue| {
            if let Some(since) = health.down_since {
                let status = queue.insured_status(now, since)?;
                return Some(paused(status, queue.pause(now)));
            }
            let server_time = server_time?;
            let remaining = queue.known.remaining;
            let remaining = remaining.saturating_add(queue.prefetched.available(now));
            let scarcest = queue.known.scarcest?.into();
            let memory = &queue.known.memory;
            let status = S::status(&queue.limit, scarcest, remaining, memory, server_time);
            Some(paused(status, queue.pause(now)))
        })
    }

    pub(crate) async fn fetch_status(&self) -> Result<Status, CallError> {
        let reply = self.queue.call(Task::Peek, vec![], 0, vec![]).await?;
        let connection = &self.queue.batcher.connection;
        let now = connection.now();
        let server_time = connection.health().server_time(now).unwrap_or(0);
        Ok(self.queue.with_queue(|queue| {
            let (scarcest, left) = (reply.scarcest, reply.remaining);
            let status = S::status(&queue.limit, scarcest, left, &reply.memory, server_time);
            paused(status, queue.pause(now))
        }))
    }

    /// Of two pauses the later end counts. The event has the duration in force.
    pub(crate) async fn pause_for(
        &self,
        time: Duration,
        event: impl FnOnce(Duration) -> Event,
    ) -> Result<(), CallError> {
        let event = event(time.max(self.queue.pause().unwrap_or_default()));
        self.change(Change::Pause(time), event).await
    }

    /// Goes on with these parameters, in all processes that made the limit with the same as this handle.
    pub(crate) async fn retune(&self, params: S::Params) -> Result<(), CallError> {
        let made_with = S::params(&self.queue.limit);
        let is_back = params == *made_with;
        let params = (!is_back).then(|| [made_with.clone(), params]);
        self.change(Change::Params(params), Event::Retuned).await
    }

    pub(crate) fn poll_ask(
        &mut self,
        cost: u32,
        mode: WaitMode,
        cx: &mut Context<'_>,
    ) -> Poll<Decided> {
        let answer = self.poll_unreported(cost, mode, cx);
        self.answered(cost, mode, &answer);
        answer
    }

    fn poll_unreported(
        &mut self,
        cost: u32,
        mode: WaitMode,
        cx: &mut Context<'_>,
    ) -> Poll<Decided> {
        self.counted_at = None;
        let (position, counted_at) = (&mut self.position, &mut self.counted_at);
        let asked = self.queue.poll_ask(position, cost, mode, cx, counted_at);
        self.is_undecided = matches!(asked, Poll::Ready(Err(_)));
        let mut answer = asked.map(without_outage);
        if mode == WaitMode::Try && answer.is_pending() {
            answer = self.poll_deadline(cost, cx);
            self.is_undecided |= matches!(answer, Poll::Ready(Err(_)));
        } else {
            self.deadline = None;
        }
        answer
    }

    /// Ends the wait for an answer that is not here after a deadline: the queue may be in another runtime, which is blocked, or the
    /// request has not had its turn.
    fn poll_deadline(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decided> {
        let connection = &self.queue.batcher.connection;
        let time = connection.deadline().saturating_add(GRACE);
        let deadline = self.deadline.get_or_insert_with(|| {
            let (now, mut timer) = (connection.now(), Timer::new());
            timer.arm(time);
            Box::new((now, now.after(time), timer))
        });
        let (since, until, timer) = &mut **deadline;
        loop {
            ready!(timer.poll_elapsed(cx));
            let now = connection.now();
            let late = now.since(*until).min(time);
            if late <= LATE {
                break;
            }
            // Time in which this process did not run does not count.
            *until = now.after(late);
            timer.arm(late);
        }
        let since = *since;
        self.deadline = None;
        let position = &mut self.position;
        Poll::Ready(self.queue.decide_after_timeout(position, since, cost))
    }

    /// Reports an answer: a wait is the end of a request that does not wait.
    fn answered(&mut self, cost: u32, mode: WaitMode, answer: &Poll<Decided>) {
        match answer.clone().map(without_fault) {
            _ if cost == 0 => {}
            Poll::Ready(Decision::Wait { .. }) if mode == WaitMode::Wait => self.reporter.waits(),
            Poll::Ready(decision) => self.reporter.decided(cost, decision),
            Poll::Pending => self.reporter.waits(),
        }
    }

    /// Changes the limit, in this process when it is first polled.
    pub(crate) async fn change(
        &self,
        change: Change<S::Params>,
        event: Event,
    ) -> Result<(), CallError> {
        self.reporter.report(event);
        self.queue.change(&change).await
    }

    /// Corrects an estimate that passed to what the request has cost.
    pub(crate) async fn settle(self, estimate: u32, actual: u32) -> Result<(), CallError> {
        if actual >= estimate {
            return self.queue.charge(actual - estimate).await;
        }
        let Some(counted_at) = self.counted_at else {
            return Ok(());
        };
        let unused = Return {
            cost: estimate - actual,
            requests: 0,
            counted_at,
        };
        let call = self.queue.call(Task::GiveBack, vec![], 0, vec![unused]);
        let returned = call.await;
        self.waiters_ask_again();
        returned.map(drop)
    }

    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.is_undecided || self.position.is_some() && self.queue.is_undecided()
    }

    pub(crate) fn give_up(&mut self) {
        self.queue.leave(&mut self.position);
        self.deadline = None;
        self.reporter.gave_up();
    }
}

/// What a pause leaves of it.
fn paused(status: Status, pause: Option<Duration>) -> Status {
    match pause {
        Some(pause) => status.paused_for(pause),
        None => status,
    }
}

/// Another handle of the same limit, with its own position in the queue.
impl<P: RemotePolicy, S: Store> Clone for RemoteLimit<P, S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.queue), self.reporter.clone())
    }
}

impl<P: RemotePolicy, S: Store> Drop for RemoteLimit<P, S> {
    fn drop(&mut self) {
        self.give_up();
    }
}
