use core::convert::Infallible;
use core::future::{Future, poll_fn};
use core::iter;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::Arc;

use crate::remote::{
    CallError, Change, Decided, GRACE, KeyQueue, LimitConfig, RequestId, ServerError, Task,
    WaitMode, within, without_fault, without_outage,
};
use paceline::feedback::Feedback;
use paceline::limiter::future::Obeying;
use paceline::limiter::{AcquireError, Event, Limiter, Obey, Observer, Reporter, TooCostly};
use paceline::policy::{Decision, Status};

use super::config::config;
use super::connector::Connector;
use super::policy::RedisPolicy;
use super::script_params::{Params, ScriptParams};
use super::scripts::StateStamp;
use paceline::config::ConfigError;
use paceline::time::{Tick, Timer};

/// A limit with its state in Redis: one for all processes that use the same name.
///
/// Made by [`Redis::limit`](crate::Redis::limit) and [`RedisKeyed::at`](crate::RedisKeyed::at). It is a [`Limiter`]: `.pace(limit)` and
/// every other adapter take it. Clones share the limit, and one queue in their process, first come, first served. Between
/// processes, a permit goes to the one whose request comes first when it is available, so a far process gets
/// [few of them](crate#sizing) beside a near one.
///
/// * **Round trips**: requests made at the same time share one round trip, also those for other limits of the same
///   [`Redis`](crate::Redis). The time of the next permit, which Redis returns, is cached: Redis is not asked again before.
/// * **Time** is the server's. A permit is used at most 100 ms after Redis counted it, else it is void. A window at the provider
///   can be shorter than here by that, less the network's latency.
/// * **Fails safely**: [`try_acquire`](Self::try_acquire) returns within the deadline and 5 ms. While Redis does not answer,
///   [`OutagePolicy`](crate::OutagePolicy) decides what passes. If it answers others, and the request was not sent in time, the
///   answer is to wait.
/// * **A fleet** hears within a second of a pause or parameters that [one process sets](crate#a-fleet-hears-a-429). Shadow mode and
///   a kill switch are a [`Redis::switch`](crate::Redis::switch) around it.
/// * **A fault** in how Redis is used (the key holds another type, a permission is missing) is an error of these methods. Most
///   adapters cannot return it: there nothing passes, Redis is asked again each second, and
///   [`RedisStats::faults`](crate::RedisStats::faults) counts. [`fail_fast`](Self::fail_fast) makes it an error of the adapter too.
///
/// # Cancel safety
///
/// Dropping a future or a handle that has not passed leaves no trace. If Redis had already counted its permits, the next request
/// in the queue gets them, or they are given back. They are named by the time at which they were counted: a permit that passed
/// later stays counted, even if then the dropped one cannot be given back.
#[derive(Debug)]
pub struct RedisLimiter<P: RedisPolicy> {
    pub(super) queue: Arc<KeyQueue<P, Connector>>,
    position: Option<RequestId>,
    /// Whether the last answer was none of the limit.
    is_undecided: bool,
    /// When the server counted the last request that passed, by its clock, if it did.
    pub(super) counted_at: Option<u64>,
    /// Since when the present request waits for its answer, and the end of that, if it takes whatever answer there is.
    deadline: Option<Box<(Tick, Timer)>>,
    reporter: Reporter,
}

impl<P: RedisPolicy> RedisLimiter<P> {
    pub(super) const fn new(queue: Arc<KeyQueue<P, Connector>>, reporter: Reporter) -> Self {
        Self {
            queue,
            position: None,
            is_undecided: false,
            counted_at: None,
            deadline: None,
            reporter,
        }
    }

    /// Takes up to `permits` ahead on each round trip. They can be used without another one for as long as `lasts`, and are void
    /// after that. While they are used, Redis is still asked once a second: the limit may have been
    /// [paused](crate#a-fleet-hears-a-429).
    ///
    /// For limits that are asked often. The price: a permit may be used `lasts` after it was counted, so a window can hold
    /// `permits` more for each replica than the limit.
    ///
    /// Call it before cloning: earlier clones have another queue, and take nothing ahead.
    ///
    /// # Errors
    ///
    /// If `permits` or `lasts` is zero, or `permits` is more than can ever pass at once; or if a part of the policy is a
    /// [`PerRequest`](paceline::policy::PerRequest), because it is not known how many requests will use what was taken ahead.
    pub fn with_prefetch(self, permits: u32, lasts: Duration) -> Result<Self, ConfigError> {
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

    /// Reports to `observer` what becomes of each request made through this handle and its later clones, and what is done to the
    /// limit through them: as [`Shared::with_observer`](paceline::limiter::Shared::with_observer). To be called before it is cloned.
    ///
    /// * The time that a request waited includes its round trip, also if it did not wait for permits.
    /// * What [`OutagePolicy`](crate::OutagePolicy) lets pass during an outage is [`Passed`](Event::Passed) too. The outage
    ///   itself is [reported by the connection](crate#what-operators-hear).
    /// * A fault is [`Refused`](Event::Refused), with the second after which Redis is asked again. A stream that cannot return it
    ///   waits on.
    /// * [`try_acquire_up_to`](Self::try_acquire_up_to) is one request: of what it took, or of `most` if it took nothing.
    /// * What another process does to the limit is an event there.
    ///
    /// ```
    /// use paceline::limiter::Event;
    /// use paceline::policy::SlidingLog;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # // A busy machine may be late.
    /// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
    /// # let redis = redis.with_prefix(&format!("observer:{}", std::process::id()))?;
    /// let (sender, events) = mpsc::channel();
    /// let calls = redis.limit("calls", SlidingLog::new(1, Duration::from_secs(60)))?;
    /// let calls = calls.with_observer(move |event: Event| sender.send(event).unwrap());
    ///
    /// calls.acquire(1).await?;
    /// assert!(!calls.try_acquire(1).await?.is_pass());
    /// calls.pause_for(Duration::from_secs(2)).await?;
    ///
    /// assert!(matches!(events.recv(), Ok(Event::Passed { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Refused { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Paused { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer<O>(mut self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        self.reporter = Reporter::new(observer);
        self
    }

    /// Waits until `cost` permits have passed.
    ///
    /// # Errors
    ///
    /// If that many can never pass at once, or the server refuses the call. Nothing was counted.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted, or it is returned.
    pub fn acquire(
        &self,
        cost: u32,
    ) -> impl Future<Output = Result<(), AcquireError<ServerError>>> + Send + use<P> {
        let mut handle = self.clone();
        async move { handle.wait(cost).await }
    }

    /// Waits for one permit, which no limit refuses for ever.
    ///
    /// # Errors
    ///
    /// If the server refuses the call. Nothing was counted.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_one(&self) -> impl Future<Output = Result<(), ServerError>> + Send + use<P> {
        let acquire = self.acquire(1);
        async move { acquire.await.map_err(never_too_costly) }
    }

    pub(super) async fn wait(&mut self, cost: u32) -> Result<(), AcquireError<ServerError>> {
        let answer = poll_fn(|cx| self.poll_ask(cost, WaitMode::WaitFailFast, cx)).await;
        match answer.map_err(AcquireError::of_limit)? {
            Decision::Never { capacity } => Err(TooCostly::new(cost, capacity).into()),
            _ => Ok(()),
        }
    }

    /// Waits until `cost` permits have passed, but no longer than `time`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and if they did not pass in time: after `time` at the latest, and at once if Redis is
    /// known to have none before. Nothing was counted. The error says [when to ask again](AcquireError::retry_in).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_within(
        &self,
        cost: u32,
        time: Duration,
    ) -> impl Future<Output = Result<(), AcquireError<ServerError>>> + Send + use<P> {
        let mut handle = self.clone();
        async move { handle.wait_within(cost, time).await }
    }

    pub(super) async fn wait_within(
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

    /// Asks whether `cost` permits may pass now, and counts them if so. It never overtakes a waiter.
    ///
    /// # Errors
    ///
    /// If the server refuses the call. An outage is no error: [`OutagePolicy`](crate::OutagePolicy) decides then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(
        &self,
        cost: u32,
    ) -> impl Future<Output = Result<Decision, ServerError>> + Send + use<P> {
        let mut handle = self.clone();
        async move { poll_fn(|cx| handle.poll_ask(cost, WaitMode::Try, cx)).await }
    }

    /// Takes as many permits as are available, up to `most`, and returns their number. It takes none while a waiter is queued.
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
        let deadline = self.queue.batcher.connection.deadline();
        let asked = self.queue.call(Task::Ask, Vec::new(), most);
        let error = match within(deadline.saturating_add(GRACE), asked).await {
            Some(Ok(reply)) => return Ok(reply.extra),
            Some(Err(error)) => error,
            // The server answers others.
            None => return Ok(0),
        };
        if let Some(fault) = error.server_error() {
            return Err(fault);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (passed, ..) = self.queue.decide_locally(iter::repeat_n(1, most));
        Ok(u32::try_from(passed).unwrap_or(u32::MAX))
    }

    /// What [`try_acquire`](Self::try_acquire) would answer. Nothing is counted.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer.
    pub async fn peek(&self, cost: u32) -> Result<Decision, CallError> {
        if cost == 0 {
            return Ok(Decision::Pass);
        }
        let capacity = self.queue.with_queue(|queue| queue.config.capacity);
        if cost > capacity {
            return Ok(Decision::Never { capacity });
        }
        let reply = self.queue.call(Task::Peek, vec![(cost, 1)], 0).await?;
        let denied = (reply.passed == 0).then_some(reply.retry_in);
        let retry_in = denied.max(self.paused_for());
        Ok(retry_in.map_or(Decision::Pass, |retry_in| Decision::Wait { retry_in }))
    }

    /// Gives back `cost` permits that passed and were not used, the latest first. The limit never gets better than full.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer. The call is not repeated, because the server may have run it.
    pub async fn refund(&self, cost: u32) -> Result<(), CallError> {
        let reply = self.queue.call(Task::GiveBack, Vec::new(), cost).await;
        self.waiters_ask_again();
        reply.map(drop)
    }

    /// More may be available now than when a request was denied.
    pub(super) fn waiters_ask_again(&self) {
        self.queue.with_queue(|queue| {
            queue.denial = None;
            queue.is_changed = true;
        });
    }

    /// What the limit had left at the last round trip. Nothing is asked.
    ///
    /// Every answer of Redis brings it along, so after [`try_acquire`](Self::try_acquire) it describes the limit as that call
    /// left it, unless the answer was cached. It is as old as the last round trip of this process for the key: requests of
    /// other processes since then, and what has refilled, are not in `remaining`. Permits that were
    /// [taken ahead](Self::with_prefetch) are. `reset_in` counts down. While Redis does not answer, it is the status of an
    /// [insurance](crate::OutagePolicy::insured).
    ///
    /// `None` before the first answer, and while Redis does not answer and there is no insurance.
    /// [`fetch_status`](Self::fetch_status) asks for a fresh one.
    ///
    /// ```
    /// use paceline::policy::SlidingLog;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # let redis = redis.with_deadline(Duration::from_secs(10))?;
    /// # let redis = redis.with_prefix(&format!("status:{}", std::process::id()))?;
    /// let calls = redis.limit("calls", SlidingLog::new(10, Duration::from_secs(60)))?;
    /// assert_eq!(calls.status(), None);
    ///
    /// calls.try_acquire(3).await?;
    /// let status = calls.status().expect("there was an answer");
    /// assert_eq!(status.remaining, 7);
    /// assert!(status.reset_in <= Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> Option<Status> {
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
            let stamps = &queue.known.memory;
            let params = &queue.limit.params;
            let status = status(params, scarcest, remaining, stamps, server_time);
            Some(paused(status, queue.pause(now)))
        })
    }

    /// Asks Redis what the limit has left now. Nothing is counted, and [`status`](Self::status) does not change.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer.
    pub async fn fetch_status(&self) -> Result<Status, CallError> {
        let reply = self.queue.call(Task::Peek, Vec::new(), 0).await?;
        let connection = &self.queue.batcher.connection;
        let now = connection.now();
        let server_time = connection.health().server_time(now).unwrap_or(0);
        Ok(self.queue.with_queue(|queue| {
            let params = &queue.limit.params;
            let stamps = &reply.memory;
            let status = status(params, reply.scarcest, reply.remaining, stamps, server_time);
            paused(status, queue.pause(now))
        }))
    }

    /// Lets no request pass before `time` is over, in any process: after a provider has said "too many requests".
    ///
    /// It holds for waiters too, here at once and in other processes [soon](crate#a-fleet-hears-a-429). Of two pauses the later
    /// end counts. A request that can never pass is still refused, and cost 0 passes. A pause ends by itself, at the latest after
    /// 71 years.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer. Then the pause holds in this process, and others may not know of it.
    ///
    /// # Cancel safety
    ///
    /// This process has changed as soon as the future was polled. If the future is dropped before it is ready, other processes
    /// may not know.
    pub async fn pause_for(&self, time: Duration) -> Result<(), CallError> {
        let duration = time.max(self.paused_for().unwrap_or_default());
        let event = Event::paused(duration);
        self.change(Change::Pause(time), event).await
    }

    /// Pauses for as long as a provider asks, in all processes, and returns for how long; `None` if it asks for nothing.
    ///
    /// It is [`pause_for`](Self::pause_for) with [`Feedback::pause`]. Call it with every response: without a pause in it there is
    /// no call.
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for).
    pub async fn apply_feedback(&self, feedback: &Feedback) -> Result<Option<Duration>, CallError> {
        let Some(asked) = feedback.pause() else {
            return Ok(None);
        };
        let pause = asked.max(self.paused_for().unwrap_or_default());
        let event = Event::feedback_applied(pause);
        self.change(Change::Pause(asked), event).await?;
        Ok(Some(asked))
    }

    /// Ends every pause of this limit, in all processes. Waiters pass as soon as the policy allows it.
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for): the pause has ended in this process, and may hold in others.
    pub async fn resume(&self) -> Result<(), CallError> {
        self.change(Change::Resume, Event::Resumed).await
    }

    /// Goes on with other parameters, in all processes that made this limit with the parameters that this handle was made with. What
    /// was spent stays spent.
    ///
    /// **A process that makes the limit with other parameters is not affected**: a deploy with new parameters is not overruled by
    /// a retune from before. Such processes share what is spent, and each decides by its own parameters, as during any rollout.
    /// The retune stays until another one replaces it, also for processes that start later with the old parameters.
    /// A retune to the parameters that this handle was made with takes it back.
    ///
    /// # Errors
    ///
    /// * [`unfit`](CallError::unfit), if the parameters cannot be used in Redis, or cannot be divided among the replicas of an
    ///   insurance. Nothing has changed.
    /// * Any other, as [`pause_for`](Self::pause_for): it holds in this process, and others may not know of it.
    pub async fn retune(&self, policy: P) -> Result<(), CallError> {
        let (_, params) = config(policy, self.queue.config.outage_policy)?;
        let made_with = &self.queue.limit.params;
        let is_back = params == *made_with;
        let params = (!is_back).then(|| [Arc::clone(made_with), params]);
        self.change(Change::Params(params), Event::Retuned).await
    }

    /// How many requests of this process wait for an answer of Redis or for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// How long the limit is still paused, as far as this process knows; `None` if it is not.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.queue.pause()
    }

    /// The policy that this handle was made with. A [`retune`](Self::retune) does not change it.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.queue.config.policy
    }

    /// Which limit of an [`All`](paceline::policy::All) was the last to deny a request, from 0.
    #[must_use]
    pub fn binding(&self) -> Option<usize> {
        let binding = self.queue.with_queue(|queue| queue.known.binding);
        binding.map(usize::from)
    }

    /// The keys in Redis, one for each limit of an [`All`](paceline::policy::All).
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.queue.limit.keys
    }

    pub(super) fn poll_ask(
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
            answer = self.poll_deadline(cost, cx).map(Ok);
        } else {
            self.deadline = None;
        }
        self.answered(cost, mode, &answer);
        answer
    }

    /// Ends the wait for an answer that is not here after a deadline: the queue may be in another runtime, which is blocked, or the
    /// request has not had its turn.
    fn poll_deadline(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decision> {
        let connection = &self.queue.batcher.connection;
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut timer = Timer::new();
            timer.arm(connection.deadline().saturating_add(GRACE));
            Box::new((connection.now(), timer))
        });
        ready!(deadline.1.poll_elapsed(cx));
        let since = deadline.0;
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
    async fn change(&self, change: Change<Params>, event: Event) -> Result<(), CallError> {
        self.reporter.report(event);
        self.queue.change(&change).await
    }
}

impl<P: RedisPolicy> Limiter for RedisLimiter<P> {
    type Error = Infallible;

    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Infallible>> {
        self.poll_ask(cost, WaitMode::Wait, cx)
            .map(|answer| Ok(without_fault(answer)))
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        self.poll_ask(cost, WaitMode::Try, cx)
            .map(|answer| Ok(without_fault(answer)))
    }

    fn give_up(&mut self) {
        self.queue.leave(&mut self.position);
        self.deadline = None;
        self.reporter.gave_up();
    }

    fn is_out_of_reach(&self) -> bool {
        self.is_undecided || self.position.is_some() && self.queue.is_undecided()
    }

    fn status(&self) -> Option<Status> {
        Self::status(self)
    }
}

impl<P: RedisPolicy> Obey for RedisLimiter<P> {
    type Error = CallError;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<CallError>> {
        feedback.pause()?;
        let (limit, feedback) = (self.clone(), feedback.clone());
        Some(Box::pin(async move {
            limit.apply_feedback(&feedback).await.map(drop)
        }))
    }
}

/// The error of a request for one permit.
fn never_too_costly(error: AcquireError<ServerError>) -> ServerError {
    let other = |never| panic!("a limit must let cost 1 pass in the end, but: {never}");
    error.into_limit().unwrap_or_else(other)
}

/// The status at `server_time`, if the limit `scarcest` has only `remaining` permits and the states have these stamps.
fn status(
    params: &[ScriptParams],
    scarcest: usize,
    remaining: u32,
    stamps: &[StateStamp],
    server_time: u64,
) -> Status {
    let settles_at = stamps.get(scarcest).map_or(0, |stamp| stamp.settles_at);
    let reset_in = Duration::from_micros(settles_at.saturating_sub(server_time));
    let quota = params.get(scarcest).and_then(|params| params.quota);
    let status = Status::new(quota, remaining, reset_in);
    match params.len() {
        0 | 1 => status,
        _ => status.with_binding(scarcest),
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
impl<P: RedisPolicy> Clone for RedisLimiter<P> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.queue), self.reporter.clone())
    }
}

impl<P: RedisPolicy> Drop for RedisLimiter<P> {
    fn drop(&mut self) {
        self.give_up();
    }
}
