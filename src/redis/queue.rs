use core::mem;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

use super::cache::{CachedDenial, DenialSource, SparePermits};
use super::error::ServerError;
use super::scripts::{DecideReply, RequestId, StateStamp};

/// The most requests of one round trip.
const MAX_BATCH: usize = 256;

/// A granted permit that its caller does not fetch within this time is void: nothing passes later than that after Redis counted
/// it.
const VOID_AFTER: Duration = Duration::from_millis(100);

/// The retry time for a `Try` request behind a waiter, if nothing else is known.
const SOON: Duration = Duration::from_millis(1);

pub(super) type Answer = Result<Decision, ServerError>;

/// The requests of this process for one limit, in order, and what is known about the limit.
///
/// Does no I/O: its methods are given the time and the replies.
#[derive(Debug)]
pub(super) struct RequestQueue<P: Policy> {
    requests: BTreeMap<RequestId, QueuedRequest>,
    next_id: RequestId,
    /// Whether a task sends the requests.
    pub(super) has_task: bool,
    pub(super) denial: Option<CachedDenial>,
    pub(super) stamps: Vec<StateStamp>,
    pub(super) prefetched: SparePermits,
    /// Permits of requests that were dropped or changed their cost meanwhile.
    pub(super) unclaimed: SparePermits,
    /// The insurance: the start of the outage for which it was made, and its state.
    pub(super) insurance: Option<(Tick, P::State)>,
    /// Callers with a result, to be woken after the lock is released.
    pub(super) wakes: Vec<Waker>,
    /// Whether a sleeping task has to check the queue again: its first request is another one, or has another cost.
    pub(super) is_changed: bool,
    /// Which limit was the last to deny a request, from 0.
    pub(super) binding: Option<usize>,
}

/// A request, until its caller fetches the result.
#[derive(Debug)]
struct QueuedRequest {
    cost: u32,
    mode: WaitMode,
    since: Tick,
    waker: Waker,
    state: RequestState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WaitMode {
    /// Stays in the queue until it passes.
    Wait,
    /// The same, but fails if the server refuses the call.
    WaitFailFast,
    /// Takes whatever answer there is.
    Try,
}

#[derive(Debug)]
enum RequestState {
    Queued,
    InFlight,
    /// What passed by the outage policy is not in Redis, and cannot be given back there.
    Granted {
        until: Tick,
        in_redis: bool,
    },
    Answered(Answer),
}

/// What the task does next. `oldest_try` says when the oldest queued request in mode `Try` was made.
#[derive(Debug)]
pub(super) enum FlushStep {
    Ask {
        asked: Vec<(RequestId, u32)>,
        oldest_try: Option<Tick>,
    },
    GiveBack {
        permits: u32,
        oldest_try: Option<Tick>,
    },
    /// No request can pass for this time.
    Sleep {
        time: Duration,
        by_fallback: bool,
    },
    End,
}

impl QueuedRequest {
    const fn is_queued(&self) -> bool {
        matches!(self.state, RequestState::Queued)
    }

    /// Whether requests behind this one have to wait for it.
    const fn blocks(&self) -> bool {
        !matches!(self.mode, WaitMode::Try)
            && matches!(self.state, RequestState::Queued | RequestState::InFlight)
    }

    fn finish(&mut self, state: RequestState, wakes: &mut Vec<Waker>) {
        self.state = state;
        wakes.push(self.waker.clone());
    }
}

/// For callers: to ask, fetch the result, and leave.
impl<P: Policy> RequestQueue<P> {
    pub(super) fn new(limits: usize) -> Self {
        Self {
            requests: BTreeMap::new(),
            next_id: 0,
            has_task: false,
            denial: None,
            stamps: vec![StateStamp::default(); limits],
            prefetched: SparePermits::default(),
            unclaimed: SparePermits::default(),
            insurance: None,
            wakes: Vec::new(),
            is_changed: false,
            binding: None,
        }
    }

    /// Fetches the result of a request, or queues a new one. `position` is the caller's request, if it has one.
    pub(super) fn poll(
        &mut self,
        now: Tick,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        waker: &Waker,
    ) -> Poll<Answer> {
        if let Some(answer) = position.and_then(|id| self.fetch(now, id, cost)) {
            *position = None;
            return Poll::Ready(answer);
        }
        let Some(id) = position.filter(|id| self.requests.contains_key(id)) else {
            return self.join(now, position, cost, mode, waker);
        };
        if let Some(answer) = self.known(now, cost, mode, id) {
            self.leave(id);
            *position = None;
            return Poll::Ready(answer);
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.mode = mode;
            request.waker.clone_from(waker);
        }
        Poll::Pending
    }

    /// The answer that needs no round trip, for a request that is not in the queue.
    pub(super) fn known_outside(&self, now: Tick, cost: u32, mode: WaitMode) -> Option<Answer> {
        self.known(now, cost, mode, self.next_id)
    }

    /// The answer that needs no round trip: a cached fault, and in mode `Try` a cached denial or an earlier waiter.
    fn known(&self, now: Tick, cost: u32, mode: WaitMode, id: RequestId) -> Option<Answer> {
        let request = self.requests.get(&id);
        if mode == WaitMode::Wait || request.is_some_and(|request| !request.is_queued()) {
            return None;
        }
        if let Some(fault) = self.denial.as_ref().and_then(|denial| denial.fault(now)) {
            return Some(Err(fault.clone()));
        }
        if mode != WaitMode::Try {
            return None;
        }
        let retry_in = match self.denied(now, cost) {
            Some(retry_in) => retry_in,
            None if self.is_behind_waiter(id) => self.denied(now, u32::MAX).unwrap_or(SOON),
            None => return None,
        };
        Some(Ok(Decision::Wait { retry_in }))
    }

    /// Looking at the last request before this one is enough, because a `Try` request joins only if no waiter is in the queue.
    /// (A `Try` request that has become a waiter since goes first on the same round trip.)
    fn is_behind_waiter(&self, id: RequestId) -> bool {
        let last = self.requests.range(..id).next_back();
        last.is_some_and(|(_, request)| request.blocks())
    }

    fn join(
        &mut self,
        now: Tick,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        waker: &Waker,
    ) -> Poll<Answer> {
        if self.requests.is_empty() && self.prefetched.take(now, cost).is_some() {
            return Poll::Ready(Ok(Decision::Pass));
        }
        if let Some(answer) = self.known_outside(now, cost, mode) {
            return Poll::Ready(answer);
        }
        let id = self.next_id;
        self.next_id += 1;
        let request = QueuedRequest {
            cost,
            mode,
            since: now,
            waker: waker.clone(),
            state: RequestState::Queued,
        };
        self.requests.insert(id, request);
        *position = Some(id);
        Poll::Pending
    }

    /// Removes a request that has a result, and returns the result.
    fn fetch(&mut self, now: Tick, id: RequestId, cost: u32) -> Option<Answer> {
        let request = self.requests.get_mut(&id)?;
        if request.cost != cost {
            let before = mem::replace(&mut request.cost, cost);
            if !matches!(request.state, RequestState::InFlight) {
                let state = mem::replace(&mut request.state, RequestState::Queued);
                self.reassign(before, &state);
            }
            self.is_changed = true;
            return None;
        }
        match &request.state {
            RequestState::Queued | RequestState::InFlight => None,
            RequestState::Granted { until, .. } if *until <= now => {
                request.state = RequestState::Queued;
                self.is_changed = true;
                None
            }
            RequestState::Granted { .. } => {
                self.requests.remove(&id);
                Some(Ok(Decision::Pass))
            }
            RequestState::Answered(answer) => {
                let answer = answer.clone();
                self.requests.remove(&id);
                Some(answer)
            }
        }
    }

    pub(super) fn leave(&mut self, id: RequestId) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        self.reassign(request.cost, &request.state);
        self.is_changed = true;
    }

    /// Keeps a permit for other requests that its own caller no longer wants.
    fn reassign(&mut self, cost: u32, state: &RequestState) {
        if let RequestState::Granted {
            until,
            in_redis: true,
        } = state
        {
            self.unclaimed.add(cost, *until);
        }
    }

    /// How long a request of that cost is known to be denied.
    pub(super) fn denied(&self, now: Tick, cost: u32) -> Option<Duration> {
        self.denial.as_ref()?.wait(now, cost)
    }

    /// Redis can be asked again: drops what the outage policy decided.
    pub(super) fn reconnected(&mut self) {
        self.denial
            .take_if(|denial| denial.source == DenialSource::Fallback);
    }

    /// Whether dropping the queue would lose nothing but what can be asked for again.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_task && self.requests.is_empty()
    }
}

/// For the task that sends the requests.
impl<P: Policy> RequestQueue<P> {
    /// Whether there is no task yet. If so, the caller has to start it.
    pub(super) const fn claim_task(&mut self) -> bool {
        !mem::replace(&mut self.has_task, true)
    }

    pub(super) fn next_step(&mut self, now: Tick) -> FlushStep {
        self.grant_locally(now);
        let permits = self.unclaimed.take_all(now);
        if permits > 0 {
            self.denial = None;
            let oldest_try = self.oldest_try();
            return FlushStep::GiveBack {
                permits,
                oldest_try,
            };
        }
        self.fail_denied_tries(now);
        let Some(first) = self.requests.values().find(|request| request.is_queued()) else {
            self.has_task = false;
            return FlushStep::End;
        };
        if let Some(denial) = &self.denial
            && let Some(time) = denial.wait(now, first.cost)
        {
            return FlushStep::Sleep {
                time,
                by_fallback: denial.source == DenialSource::Fallback,
            };
        }
        self.denial = None;
        let oldest_try = self.oldest_try();
        let queued = self.requests.iter_mut();
        let queued = queued.filter(|(_, request)| request.is_queued());
        let mut asked = Vec::new();
        for (id, request) in queued.take(MAX_BATCH) {
            request.state = RequestState::InFlight;
            asked.push((*id, request.cost));
        }
        FlushStep::Ask { asked, oldest_try }
    }

    fn oldest_try(&self) -> Option<Tick> {
        let mut queued = self.requests.values().filter(|request| request.is_queued());
        let oldest = queued.find(|request| request.mode == WaitMode::Try);
        oldest.map(|request| request.since)
    }

    /// Gives unclaimed and prefetched permits to the first requests.
    fn grant_locally(&mut self, now: Tick) {
        let queued = self.requests.values_mut();
        for request in queued.filter(|request| request.is_queued()) {
            let until = match self.unclaimed.take(now, request.cost) {
                Some(until) => until,
                None if self.prefetched.take(now, request.cost).is_some() => now.after(VOID_AFTER),
                None => return,
            };
            let granted = RequestState::Granted {
                until,
                in_redis: true,
            };
            request.finish(granted, &mut self.wakes);
        }
    }

    /// Answers queued `Try` requests if the cached denial covers their cost, or a waiter before them.
    fn fail_denied_tries(&mut self, now: Tick) {
        let Some(denial) = &self.denial else { return };
        let mut is_blocked = false;
        let queued = self.requests.values_mut();
        for request in queued.filter(|request| request.is_queued()) {
            let cost = if is_blocked { u32::MAX } else { request.cost };
            let answer = match (denial.fault(now), denial.wait(now, cost)) {
                (Some(fault), _) if request.mode != WaitMode::Wait => Err(fault.clone()),
                (None, Some(retry_in)) if request.mode == WaitMode::Try => {
                    Ok(Decision::Wait { retry_in })
                }
                (_, denied) => {
                    is_blocked |= denied.is_some();
                    continue;
                }
            };
            request.finish(RequestState::Answered(answer), &mut self.wakes);
        }
    }

    /// Applies the script's reply to the requests of a round trip.
    ///
    /// Redis may have counted as soon as the call was `sent`. The reply `came` within the deadline: a task that reads it later
    /// passes the end of the deadline.
    pub(super) fn apply_reply(
        &mut self,
        sent: Tick,
        came: Tick,
        asked: &[(RequestId, u32)],
        reply: &DecideReply,
        prefetch_lasts: Duration,
    ) {
        self.stamps.clone_from(&reply.stamps);
        let passed = usize::try_from(reply.passed).unwrap_or(usize::MAX);
        let (passed, denied) = asked.split_at(passed.min(asked.len()));
        self.grant(came, true, passed);
        if reply.extra > 0 {
            self.prefetched.add(reply.extra, sent.after(prefetch_lasts));
        }
        if let Some((_, cost)) = denied.first() {
            let binding = usize::try_from(reply.binding).ok();
            self.binding = binding.and_then(|number| number.checked_sub(1));
            let retry_in = reply.retry_in;
            self.cache_denial(came, retry_in, *cost, DenialSource::Redis);
            // A later request may cost less, but the denied one is before it.
            self.deny(denied, &Ok(Decision::Wait { retry_in }));
        }
    }

    /// These requests pass.
    pub(super) fn grant(&mut self, counted_at: Tick, in_redis: bool, asked: &[(RequestId, u32)]) {
        for (id, cost) in asked {
            let granted = RequestState::Granted {
                until: counted_at.after(VOID_AFTER),
                in_redis,
            };
            match self.requests.get_mut(id) {
                Some(request) if request.cost == *cost => {
                    request.finish(granted, &mut self.wakes);
                    continue;
                }
                Some(request) => request.state = RequestState::Queued,
                None => {}
            }
            self.reassign(*cost, &granted);
        }
    }

    /// Answers the requests with a mode that takes this answer, and puts the others back into the queue.
    pub(super) fn deny(&mut self, asked: &[(RequestId, u32)], answer: &Answer) {
        for (id, cost) in asked {
            let Some(request) = self.requests.get_mut(id) else {
                continue;
            };
            let takes_answer = match request.mode {
                _ if request.cost != *cost => false,
                WaitMode::Wait => false,
                WaitMode::WaitFailFast => answer.is_err(),
                WaitMode::Try => true,
            };
            if takes_answer {
                request.finish(RequestState::Answered(answer.clone()), &mut self.wakes);
            } else {
                request.state = RequestState::Queued;
            }
        }
    }

    /// For this time, requests of at least this cost are not sent.
    pub(super) fn cache_denial(
        &mut self,
        now: Tick,
        time: Duration,
        cost: u32,
        source: DenialSource,
    ) {
        self.denial = Some(CachedDenial {
            until: now.after(time),
            cost,
            source,
        });
    }

    /// The task was dropped with its runtime. Its callers poll again, and one of them starts another.
    pub(super) fn task_dropped(&mut self) {
        self.has_task = false;
        for request in self.requests.values_mut() {
            if matches!(request.state, RequestState::InFlight) {
                request.state = RequestState::Queued;
            }
            self.wakes.push(request.waker.clone());
        }
    }
}
