use core::convert::Infallible;
use core::future::{Future, poll_fn};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use crate::remote::{
    CallError, Change, KeyQueue, RemoteLimit, ServerError, WaitMode, without_fault,
};
use paceline::config::ConfigError;
use paceline::feedback::Feedback;
use paceline::limiter::future::Obeying;
use paceline::limiter::{AcquireError, Event, Limiter, Obey, Observer, Reporter};
use paceline::policy::{Decision, Status};

use super::config::config;
use super::connector::Connector;
use super::policy::RedisPolicy;
use super::script_params::{Params, ScriptParams};

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
///   With [`OutagePolicy::always_open`](crate::OutagePolicy::always_open) it is no error, and requests pass.
///
/// # Cancel safety
///
/// Dropping a future or a handle that has not passed leaves no trace in Redis. If Redis had already counted its permits, the next
/// request in the queue gets them if it costs as much, or they are given back. They are named by the time at which they were
/// counted: a permit that passed later stays counted, even if then the dropped one cannot be given back. So do permits that Redis
/// has counted in an outage, if it answers too late: see [`timeouts`](crate::RedisStats::timeouts).
///
/// Other processes may have been denied meanwhile. They ask again at the time that they were told, up to a window later.
#[derive(Clone, Debug)]
pub struct RedisLimiter<P: RedisPolicy> {
    pub(super) handle: RemoteLimit<P, Connector>,
}

impl<P: RedisPolicy> RedisLimiter<P> {
    pub(super) const fn new(queue: Arc<KeyQueue<P, Connector>>, reporter: Reporter) -> Self {
        Self {
            handle: RemoteLimit::new(queue, reporter),
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
        let handle = self.handle.with_prefetch(permits, lasts)?;
        Ok(Self { handle })
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
        self.handle.reporter = Reporter::new(observer);
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
        let mut handle = self.handle.clone();
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
        let law = "a limit lets cost 1 pass in the end";
        async move {
            acquire
                .await
                .map_err(|refused| refused.into_limit().expect(law))
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
        let mut handle = self.handle.clone();
        async move { handle.wait_within(cost, time).await }
    }

    /// Waits until `cost` permits of one of `limits` have passed, and returns its number: such as that of one API key of many. The limits
    /// may be on several servers.
    ///
    /// It asks one limit after the other, without being queued, and takes from the first that has room, so write first what you prefer.
    /// If none has room, it asks all of them again when the first wait is over, and after a second at the latest, since a pause may have
    /// ended. (A wait that is known needs no round trip.)
    ///
    /// * **Order**: the requests that wait for one limit alone come first. There is no order between those for any of several.
    /// * **No bound of the wait**: Redis has no queue. So a request for any of several limits, and each request of a high cost, also one
    ///   that waits for one limit alone, can wait without end beside requests of other processes. A request of cost 3 for a bucket of
    ///   10/s with a burst of 3 got nothing in 25 s while two other processes asked for 1 at a time.
    /// * An **outage** of a server is left to the [`OutagePolicy`](crate::OutagePolicy) of its limit. A limit that lets requests pass then
    ///   gets all that reach it.
    /// * A limit whose server **refuses the call** is passed over. One that can never pass that many is left out until the request
    ///   ends, even if it gets other parameters.
    ///
    /// [`AnyOf`](paceline::limiter::AnyOf) does this for limits in memory, where a request is queued at all of them.
    ///
    /// ```
    /// use paceline::policy::SlidingLog;
    /// use paceline_redis::{OutagePolicy, Redis, RedisLimiter};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # let redis = redis.with_deadline(Duration::from_secs(10))?;
    /// # let redis = redis.with_prefix(&format!("any:{}", std::process::id()))?;
    /// let minute = |calls| SlidingLog::new(calls, Duration::from_secs(60));
    /// let limits = [redis.limit("key-1", minute(1))?, redis.limit("key-2", minute(100))?];
    ///
    /// assert_eq!(RedisLimiter::acquire_any(&limits, 1).await?, 0);
    /// assert_eq!(RedisLimiter::acquire_any(&limits, 1).await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// At once, if no limit can ever pass that many; and if the servers of all others refuse the call. Nothing was counted.
    ///
    /// # Panics
    ///
    /// If there is no limit. Outside a tokio runtime, when it is polled.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    #[doc(alias("select", "pool", "failover", "load balancing"))]
    pub fn acquire_any(
        limits: &[Self],
        cost: u32,
    ) -> impl Future<Output = Result<usize, AcquireError<ServerError>>> + Send + use<P> {
        assert!(
            !limits.is_empty(),
            "any of several limits needs at least 1, got 0"
        );
        let limits = limits.iter().map(|limit| Some(limit.handle.clone()));
        RemoteLimit::wait_for_any(limits.collect(), cost)
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
        let mut handle = self.handle.clone();
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
        self.handle.try_acquire_up_to(most).await
    }

    /// What [`try_acquire`](Self::try_acquire) would answer. Nothing is counted.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer.
    pub async fn peek(&self, cost: u32) -> Result<Decision, CallError> {
        self.handle.peek(cost).await
    }

    /// Gives back `cost` permits that passed and were not used, the latest first. The limit never gets better than full.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer. The call is not repeated, because the server may have run it.
    pub async fn refund(&self, cost: u32) -> Result<(), CallError> {
        self.handle.refund(cost).await
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
        self.handle.status()
    }

    /// Asks Redis what the limit has left now. Nothing is counted, and [`status`](Self::status) does not change.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer.
    pub async fn fetch_status(&self) -> Result<Status, CallError> {
        self.handle.fetch_status().await
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
        self.handle.pause_for(time, Event::paused).await
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
        let Some(pause) = feedback.pause() else {
            return Ok(None);
        };
        self.handle
            .pause_for(pause, Event::feedback_applied)
            .await?;
        Ok(Some(pause))
    }

    /// Ends every pause of this limit, in all processes. Waiters pass as soon as the policy allows it.
    ///
    /// # Errors
    ///
    /// As [`pause_for`](Self::pause_for): the pause has ended in this process, and may hold in others.
    pub async fn resume(&self) -> Result<(), CallError> {
        self.handle.change(Change::Resume, Event::Resumed).await
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
    ///   insurance, or are those of an [`AnyPolicy`](paceline::policy::AnyPolicy) of other kinds, whose states other keys have.
    ///   Nothing has changed.
    /// * Any other, as [`pause_for`](Self::pause_for): it holds in this process, and others may not know of it.
    pub async fn retune(&self, policy: P) -> Result<(), CallError> {
        let queue = &self.handle.queue;
        let (_, params) = config(policy, queue.config.outage_policy)?;
        let kinds = |params: &Params| params.iter().map(ScriptParams::key_suffix).collect();
        let [before, after]: [Vec<_>; 2] = [&queue.limit.params, &params].map(kinds);
        if before != after {
            return Err(ConfigError::new(format!(
                "a limit in Redis stays of its kinds, {}, when it is retuned: got {}",
                before.join(" and "),
                after.join(" and "),
            ))
            .into());
        }
        self.handle.retune(params).await
    }

    /// How many requests of this process wait for an answer of Redis or for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.handle.queue.waiting()
    }

    /// How long the limit is still paused, as far as this process knows; `None` if it is not.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.handle.queue.pause()
    }

    /// The policy that this handle was made with. A [`retune`](Self::retune) does not change it.
    #[must_use]
    pub fn policy(&self) -> &P {
        &self.handle.queue.config.policy
    }

    /// Which limit of an [`All`](paceline::policy::All) was the last to deny a request, from 0.
    #[must_use]
    pub fn binding(&self) -> Option<usize> {
        let binding = self.handle.queue.with_queue(|queue| queue.known.binding);
        binding.map(usize::from)
    }

    /// The keys in Redis, one for each limit of an [`All`](paceline::policy::All).
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.handle.queue.limit.keys
    }
}

impl<P: RedisPolicy> Limiter for RedisLimiter<P> {
    type Error = Infallible;

    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Infallible>> {
        let answer = self.handle.poll_ask(cost, WaitMode::Wait, cx);
        answer.map(|answer| Ok(without_fault(answer)))
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        let answer = self.handle.poll_ask(cost, WaitMode::Try, cx);
        answer.map(|answer| Ok(without_fault(answer)))
    }

    fn give_up(&mut self) {
        self.handle.give_up();
    }

    fn is_out_of_reach(&self) -> bool {
        self.handle.is_out_of_reach()
    }

    fn status(&self) -> Option<Status> {
        Self::status(self)
    }
}

impl<P: RedisPolicy> Obey for RedisLimiter<P> {
    type Error = CallError;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<CallError>> {
        let (handle, pause) = (self.handle.clone(), feedback.pause()?);
        Some(Box::pin(async move {
            handle.pause_for(pause, Event::feedback_applied).await
        }))
    }
}
