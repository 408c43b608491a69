use core::mem;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use paceline::policy::{Decision, Status};
use paceline::time::Tick;

use super::cache::{CachedDenial, DenialSource, KeyRecord, SparePermits};
use super::outage_policy::Fallback;
use super::overrides::Known;
use super::request::{
    Asked, QueuedRequest, RequestId, RequestState, Undecided, WaitMode, denied_for,
};
use super::source::{Stage, Step};
use super::{
    AFTER_FAILURE, Ask, LimitConfig, RemotePolicy, Reply, Return, SOON, Store, Task, WHILE_DOWN,
};

/// The most requests of one key in one call.
const MAX_BATCH: usize = 256;

/// The most calls of one key that are under way if its requests wait, and the limit has room for all of them.
const MOST_CALLS: usize = 4;

/// The pause of waiters that only a new connection helps, which ends the pause. If the runtime that connects has ended, one of
/// them starts anew.
const WHILE_CLOSED: Duration = Duration::from_secs(1);

/// A granted permit that its caller does not fetch within this time is void: nothing passes later than that after Redis counted
/// it.
const VOID_AFTER: Duration = Duration::from_millis(100);

/// How long permits that go back wait for a connection. A queue that waits keeps its connection trying.
const RETURN_WITHIN: Duration = Duration::from_secs(10);

/// The requests of this process for one key, in order, and what is known about the key's limit.
///
/// Does no I/O: its methods are given the time and the replies.
#[derive(Debug)]
pub(crate) struct RequestQueue<P: RemotePolicy, S: Store> {
    /// What is in force for the key.
    pub(crate) config: Arc<LimitConfig<P, S>>,
    pub(crate) limit: S::Limit,
    paused_until: Tick,
    /// Calls with smaller ids asked by other parameters.
    retuned_at: RequestId,
    /// When the overrides have to be read again. Until then prefetched permits can be used.
    pub(crate) read_at: Tick,
    overrides: watch::Receiver<Known<S::Params>>,
    pub(super) requests: BTreeMap<RequestId, QueuedRequest>,
    next_id: RequestId,
    pub(crate) stage: Stage,
    /// The calls under way: the id of each, and the requests that it asks for with their costs.
    calls: Vec<(RequestId, Vec<(RequestId, u32)>)>,
    pub(crate) denial: Option<CachedDenial>,
    pub(crate) known: KeyRecord<S::Memory>,
    pub(crate) prefetched: SparePermits,
    /// Permits of requests that were dropped or changed their cost meanwhile, each grant as a whole.
    pub(crate) unclaimed: SparePermits,
    /// The insurance: the start of the outage for which it was made, and its state.
    pub(crate) insurance: Option<(Tick, P::State)>,
    /// Whether this process may have another queue for the key. Then this one has no insurance, because each would have one.
    pub(crate) is_duplicate: bool,
    /// Callers with a result, to be woken after the lock is released.
    pub(crate) wakes: Vec<Waker>,
    /// To be dropped after the lock is released, because a waker may own a handle of this queue.
    pub(crate) dropped: Vec<Waker>,
    /// Whether the batcher has to look at the queue again.
    pub(crate) is_changed: bool,
}

/// For callers: to ask, fetch the result, and leave.
impl<P: RemotePolicy, S: Store> RequestQueue<P, S> {
    pub(crate) fn new(
        config: Arc<LimitConfig<P, S>>,
        limit: S::Limit,
        overrides: watch::Receiver<Known<S::Params>>,
    ) -> Self {
        Self {
            config,
            limit,
            paused_until: Tick::ZERO,
            retuned_at: 0,
            read_at: Tick::ZERO,
            overrides,
            requests: BTreeMap::new(),
            next_id: 0,
            stage: Stage::Idle,
            calls: Vec::new(),
            denial: None,
            known: KeyRecord::default(),
            prefetched: SparePermits::default(),
            unclaimed: SparePermits::default(),
            insurance: None,
            is_duplicate: false,
            wakes: Vec::new(),
            dropped: Vec::new(),
            is_changed: false,
        }
    }

    /// A question without requests.
    pub(crate) fn question(&self, task: Task) -> Ask<S> {
        Ask {
            task,
            limit: self.limit.clone(),
            memory: self.known.memory.clone(),
            is_insured: matches!(self.config.fallback, Fallback::Insured(_)),
            asked: Vec::new(),
            extra: 0,
            returns: Vec::new(),
        }
    }

    /// Fetches the result of a request, or queues a new one. `position` is the caller's request, if it has one. If it passes,
    /// `counted_at` becomes the server's time at which it was counted, if it was.
    pub(crate) fn poll(
        &mut self,
        now: Tick,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        waker: &Waker,
        counted_at: &mut Option<u64>,
    ) -> Poll<Asked> {
        let capacity = self.config.capacity;
        if cost > capacity {
            if let Some(id) = position.take() {
                self.leave(id);
            }
            return Poll::Ready(Ok(Decision::Never { capacity }));
        }
        if let Some(answer) = position.and_then(|id| self.fetch(now, id, cost, counted_at)) {
            *position = None;
            return Poll::Ready(answer);
        }
        let Some(id) = position.filter(|id| self.requests.contains_key(id)) else {
            return self.join(now, position, cost, mode, waker, counted_at);
        };
        if let Some(answer) = self.known(now, cost, mode, id) {
            self.leave(id);
            *position = None;
            return Poll::Ready(answer);
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.mode = mode;
            if !request.waker.will_wake(waker) {
                let before = mem::replace(&mut request.waker, waker.clone());
                self.dropped.push(before);
            }
            // The task of the batcher may have been dropped.
            self.is_changed |= self.stage == Stage::Idle && request.is_queued();
        }
        Poll::Pending
    }

    /// The answer that needs no round trip, for a request that is not in the queue.
    pub(crate) fn known_outside(&self, now: Tick, cost: u32, mode: WaitMode) -> Option<Asked> {
        self.known(now, cost, mode, self.next_id)
    }

    /// The answer that needs no round trip: a cached fault, and in mode `Try` a cached denial or an earlier waiter.
    fn known(&self, now: Tick, cost: u32, mode: WaitMode, id: RequestId) -> Option<Asked> {
        let request = self.requests.get(&id);
        if mode == WaitMode::Wait || request.is_some_and(|request| !request.is_queued()) {
            return None;
        }
        if let Some(fault) = self.denial.as_ref().and_then(|denial| denial.fault(now)) {
            return Some(Err(fault));
        }
        let is_undecided = self.is_undecided(now);
        // In an outage the waiter sleeps for longer than its denial.
        let turn = if is_undecided { WHILE_DOWN } else { SOON };
        let retry_in = match self.denied(now, cost) {
            _ if mode != WaitMode::Try => return None,
            Some(retry_in) => retry_in,
            None if self.is_behind_waiter(id) => self.denied(now, u32::MAX).unwrap_or(turn),
            None => return None,
        };
        Some(denied_for(retry_in, is_undecided))
    }

    /// Whether requests wait because the server did not answer, or refused the call.
    pub(crate) fn is_undecided(&self, now: Tick) -> bool {
        let denial = self.denial.as_ref();
        denial.is_some_and(CachedDenial::is_undecided) && self.pause(now).is_none()
    }

    /// Looking at the last request before this one is enough, because a `Try` request joins only if no waiter is in the queue.
    /// (A `Try` request that has become a waiter since goes first on the same round trip.)
    fn is_behind_waiter(&self, id: RequestId) -> bool {
        let last = self.requests.range(..id).next_back();
        last.is_some_and(|(_, request)| request.blocks())
    }

    /// Whether all requests are likely to pass, so that one more call does not overtake those under way.
    fn has_room_for_all(&self) -> bool {
        let costs = self.requests.values().map(|request| request.cost);
        self.calls.len() < MOST_CALLS
            && self.known.scarcest.is_some()
            && costs.fold(0, u32::saturating_add) <= self.known.remaining
    }

    fn join(
        &mut self,
        now: Tick,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        waker: &Waker,
        counted_at: &mut Option<u64>,
    ) -> Poll<Asked> {
        let may_take = self.requests.is_empty() && now < self.read_at && self.pause(now).is_none();
        if may_take && let Some((_, prefetched_at)) = self.prefetched.take(now, cost) {
            *counted_at = Some(prefetched_at);
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
            waker: waker.clone(),
            state: RequestState::Queued,
        };
        self.requests.insert(id, request);
        *position = Some(id);
        self.is_changed = true;
        Poll::Pending
    }

    /// Removes a request that has a result, and returns the result.
    fn fetch(
        &mut self,
        now: Tick,
        id: RequestId,
        cost: u32,
        counted_at: &mut Option<u64>,
    ) -> Option<Asked> {
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
            RequestState::Granted { until, .. } if *until <= now || now < self.paused_until => {
                let state = mem::replace(&mut request.state, RequestState::Queued);
                self.reassign(cost, &state);
                self.is_changed = true;
                None
            }
            RequestState::Granted {
                counted_at: granted_at,
                ..
            } => {
                *counted_at = *granted_at;
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

    pub(crate) fn is_in_flight(&self, id: RequestId) -> bool {
        let request = self.requests.get(&id);
        request.is_some_and(|request| matches!(request.state, RequestState::InFlight))
    }

    pub(crate) fn leave(&mut self, id: RequestId) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        self.reassign(request.cost, &request.state);
        self.dropped.push(request.waker);
        self.is_changed = true;
    }

    /// How long a request of that cost is known to be denied.
    pub(crate) fn denied(&self, now: Tick, cost: u32) -> Option<Duration> {
        let denial = self.denial.as_ref().and_then(|it| it.wait(now, cost));
        denial.max(self.pause(now))
    }

    /// Whether [`record`](Self::record) keeps everything that matters. `down_since` is the start of the present outage.
    pub(crate) fn is_idle(&self, now: Tick, down_since: Option<Tick>) -> bool {
        let is_insured = |(since, _): &(Tick, P::State)| Some(*since) == down_since;
        let (denial, denied) = (self.denial.as_ref(), self.denied(now, u32::MAX));
        self.requests.is_empty()
            && self.calls.is_empty()
            && self.stage == Stage::Idle
            && !self.insurance.as_ref().is_some_and(is_insured)
            && (denial.is_none_or(CachedDenial::is_of_server) || denied.is_none())
    }

    /// What to remember of the key when it is not in use.
    pub(crate) fn record(&self) -> KeyRecord<S::Memory> {
        let denial = self.denial.as_ref().filter(|denial| denial.is_of_server());
        KeyRecord {
            denied_until: denial.map_or(Tick::ZERO, |denial| denial.until),
            denied_cost: denial.map_or(0, |denial| denial.cost),
            ..self.known.clone()
        }
    }

    /// Continues where a queue of the same key has ended.
    pub(crate) fn resume(&mut self, known: KeyRecord<S::Memory>) {
        self.denial = (known.denied_until > Tick::ZERO).then_some(CachedDenial {
            until: known.denied_until,
            cost: known.denied_cost,
            source: DenialSource::Server,
        });
        self.known = known;
    }

    // For the batcher, which sends the requests.

    /// The next step now.
    pub(crate) fn next_step(&mut self, now: Tick, is_down: impl Fn() -> bool) -> Step<S> {
        self.stage = Stage::Idle;
        let pause = self.pause(now);
        let (prefetch, _) = self.config.prefetch.unwrap_or_default();
        // Only one call at a time takes permits ahead.
        let prefetch = if self.calls.is_empty() { prefetch } else { 0 };
        let extra = prefetch.saturating_sub(self.prefetched.available(now));
        if pause.is_none() {
            self.grant_locally(now);
        }
        let is_behind_call = !self.calls.is_empty() && self.is_behind_waiter(self.next_id);
        if is_behind_call && !self.has_room_for_all() {
            // A waiter's turn is decided by the call under way. Tries need not wait for each other.
            return Step::Idle;
        }
        // A call would fail at once, and the permits would stay counted.
        let are_returns_held = !self.unclaimed.batches.is_empty() && is_down();
        let returns = if are_returns_held {
            self.unclaimed.drop_expired(now.before(RETURN_WITHIN));
            self.unclaimed.batches.truncate(MAX_BATCH);
            Vec::new()
        } else {
            self.unclaimed.take_all()
        };
        if !returns.is_empty() {
            self.denial = None;
        }
        self.fail_denied_tries(now);
        let first = self.requests.values().find(|request| request.is_queued());
        if returns.is_empty() && (first.is_none() || pause.is_some()) {
            return match first {
                _ if are_returns_held => self.sleep(now.after(WHILE_CLOSED), true),
                None => Step::Idle,
                Some(_) => self.sleep(self.paused_until, false),
            };
        }
        if let (Some(first), Some(denial)) = (first, &self.denial)
            && pause.is_none()
            && denial.wait(now, first.cost).is_some()
        {
            let or_connected = denial.is_of_outage() || are_returns_held;
            let until = match denial.until {
                until if !or_connected => until,
                until if !is_down() => until.min(now.after(AFTER_FAILURE)),
                until if matches!(self.config.fallback, Fallback::Insured(_)) => until,
                until => until.max(now.after(WHILE_CLOSED)),
            };
            return self.sleep(until, or_connected);
        }
        self.denial = None;
        self.prefetched.drop_expired(now);
        let queued = self.requests.iter_mut();
        let queued = queued.filter(|(_, request)| request.is_queued());
        let capacity = self.config.capacity;
        let mut sent = Vec::new();
        for (id, request) in queued.take(if pause.is_some() { 0 } else { MAX_BATCH }) {
            if request.cost > capacity {
                // The limit was retuned since the request joined.
                let never = Ok(Decision::Never { capacity });
                request.finish(RequestState::Answered(never), &mut self.wakes);
                continue;
            }
            request.state = RequestState::InFlight;
            sent.push((*id, request.cost));
        }
        if sent.is_empty() && returns.is_empty() {
            // There may be more requests than were looked at.
            self.is_changed = true;
            return Step::Idle;
        }
        let question = Ask {
            extra: if sent.is_empty() { 0 } else { extra },
            asked: groups(&sent),
            returns,
            ..self.question(Task::Ask)
        };
        let call = self.next_id;
        self.next_id += 1;
        self.calls.push((call, sent));
        Step::Ask(call, question)
    }

    /// Whether the batcher has anything to do for the queue, if it looks again.
    pub(crate) fn has_work(&self) -> bool {
        self.stage != Stage::Idle
            || !self.unclaimed.batches.is_empty()
            || self.requests.values().any(QueuedRequest::is_queued)
    }

    const fn sleep(&mut self, until: Tick, or_connected: bool) -> Step<S> {
        self.stage = Stage::Sleeping(until);
        Step::Sleep {
            until,
            or_connected,
        }
    }

    /// Answers queued `Try` requests if the cached denial covers their cost, or a waiter before them.
    fn fail_denied_tries(&mut self, now: Tick) {
        let (denial, pause) = (self.denial.as_ref(), self.pause(now));
        if denial.is_none() && pause.is_none() {
            return;
        }
        let fault = denial.and_then(|denial| denial.fault(now));
        let is_undecided = self.is_undecided(now);
        let mut is_blocked = false;
        let queued = self.requests.values_mut();
        for request in queued.filter(|request| request.is_queued()) {
            let cost = if is_blocked { u32::MAX } else { request.cost };
            let denied = denial.and_then(|denial| denial.wait(now, cost)).max(pause);
            let answer = match (&fault, denied) {
                (Some(fault), _) if request.mode != WaitMode::Wait => Err(fault.clone()),
                (None, Some(retry_in)) if request.mode == WaitMode::Try => {
                    denied_for(retry_in, is_undecided)
                }
                (_, denied) => {
                    is_blocked |= denied.is_some();
                    continue;
                }
            };
            request.finish(RequestState::Answered(answer), &mut self.wakes);
        }
    }

    /// The batcher's task was dropped with its runtime. Callers poll again, and one of them starts another.
    pub(crate) fn task_dropped(&mut self) {
        self.stage = Stage::Idle;
        self.calls.clear();
        for request in self.requests.values_mut() {
            if matches!(request.state, RequestState::InFlight) {
                request.state = RequestState::Queued;
            }
            self.wakes.push(request.waker.clone());
        }
    }

    // What a reply means for the requests, and who uses the permits that it brings.

    /// The requests of a call that has ended.
    pub(crate) fn take_call(&mut self, call: RequestId) -> Vec<(RequestId, u32)> {
        let index = self.calls.iter().position(|(id, _)| *id == call);
        self.is_changed = true;
        index.map_or_else(Vec::new, |index| self.calls.swap_remove(index).1)
    }

    /// Applies the reply to the requests of a call. What was denied by other parameters is asked again.
    ///
    /// The server may have counted as soon as the call was `sent`. `answered_at` is within the deadline: if the reply is read later,
    /// the caller passes the end of the deadline.
    pub(crate) fn apply_reply(
        &mut self,
        call: RequestId,
        sent: Tick,
        answered_at: Tick,
        reply: &Reply<S>,
    ) {
        let asked = self.take_call(call);
        let passed = usize::try_from(reply.passed).unwrap_or(usize::MAX);
        let (passed, denied) = asked.split_at(passed.min(asked.len()));
        self.grant(answered_at, Some(reply.counted_at), passed);
        if reply.extra > 0 {
            let (_, lasts) = self.config.prefetch.unwrap_or_default();
            let until = sent.after(lasts);
            self.prefetched.add(reply.taken_on_top(), until);
        }
        if call < self.retuned_at {
            // The reply counts by the replaced parameters.
            self.known.scarcest = None;
            self.requeue(denied);
        } else if !denied.is_empty() {
            self.known.binding = reply.binding.and_then(|limit| limit.try_into().ok());
            self.deny(answered_at, reply.retry_in, denied, DenialSource::Server);
        }
    }

    pub(crate) fn remember(&mut self, reply: &Reply<S>) {
        // A reply may be older than the last one. A server whose clock was set back has lost the state.
        if reply.counted_at >= self.known.memory_from || reply.lost > 0 {
            self.known.memory_from = reply.counted_at;
            self.known.memory = reply.memory.clone();
            self.known.remaining = reply.remaining;
            self.known.scarcest = reply.scarcest.try_into().ok();
        }
    }

    /// Keeps the permits that were taken on top, for other requests or to be returned.
    pub(crate) fn keep_unclaimed(&mut self, answered_at: Tick, reply: &Reply<S>) {
        if reply.extra > 0 {
            let until = answered_at.after(VOID_AFTER);
            self.unclaimed.add(reply.taken_on_top(), until);
            self.is_changed = true;
        }
    }

    /// These requests pass. `counted_at` is `None` if the server does not know of it.
    pub(crate) fn grant(
        &mut self,
        answered_at: Tick,
        counted_at: Option<u64>,
        asked: &[(RequestId, u32)],
    ) {
        for (id, cost) in asked {
            let granted = RequestState::Granted {
                until: answered_at.after(VOID_AFTER),
                counted_at,
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

    /// Gives unclaimed and prefetched permits to the first requests.
    fn grant_locally(&mut self, now: Tick) {
        let queued = self.requests.values_mut();
        for request in queued.filter(|request| request.is_queued()) {
            let (until, counted_at) = match self.unclaimed.take_whole(now, request.cost) {
                Some(taken) => taken,
                None if self.read_at <= now => return,
                None => match self.prefetched.take(now, request.cost) {
                    Some((_, counted_at)) => (now.after(VOID_AFTER), counted_at),
                    None => return,
                },
            };
            let granted = RequestState::Granted {
                until,
                counted_at: Some(counted_at),
            };
            request.finish(granted, &mut self.wakes);
        }
    }

    /// Keeps a permit that its caller no longer wants: for other requests, or to return it.
    fn reassign(&mut self, cost: u32, state: &RequestState) {
        if let RequestState::Granted {
            until,
            counted_at: Some(counted_at),
        } = state
        {
            let permits = Return {
                cost,
                requests: 1,
                counted_at: *counted_at,
            };
            self.unclaimed.add(permits, *until);
            self.is_changed = true;
        }
    }

    fn requeue(&mut self, asked: &[(RequestId, u32)]) {
        for (id, _) in asked {
            if let Some(request) = self.requests.get_mut(id) {
                request.state = RequestState::Queued;
            }
        }
    }

    /// Denies these requests, and for this time any that costs as much as the first or more. A fault denies every request.
    ///
    /// Answers the requests with a mode that takes this answer, and puts the others back into the queue: also those that do not wait
    /// and cost less than the server has denied, because it did not look at them.
    pub(crate) fn deny(
        &mut self,
        now: Tick,
        time: Duration,
        denied: &[(RequestId, u32)],
        source: DenialSource,
    ) {
        let (cost, answer) = match (&source, denied.first()) {
            (DenialSource::Fault(fault), _) => (0, Err(Undecided::Fault(fault.clone()))),
            (_, None) => return,
            // A later request may cost less, but the first is before it.
            (_, Some((_, cost))) => {
                let is_undecided = source == DenialSource::Outage;
                (*cost, denied_for(time, is_undecided))
            }
        };
        let is_fault = matches!(source, DenialSource::Fault(_));
        let least = if source == DenialSource::Server {
            cost
        } else {
            0
        };
        self.denial = Some(CachedDenial {
            until: now.after(time),
            cost,
            source,
        });
        for (id, cost) in denied {
            let Some(request) = self.requests.get_mut(id) else {
                continue;
            };
            let takes_answer = match request.mode {
                WaitMode::Wait => false,
                WaitMode::WaitFailFast => is_fault,
                WaitMode::Try => *cost >= least,
            };
            if takes_answer && request.cost == *cost {
                request.finish(RequestState::Answered(answer.clone()), &mut self.wakes);
            } else {
                request.state = RequestState::Queued;
            }
        }
    }

    // What is in force: what the limit was made with, and overrides.

    /// Takes over overrides that have changed. `config` and `limit` are what the limit was made with.
    pub(crate) fn refresh(
        &mut self,
        config: &Arc<LimitConfig<P, S>>,
        limit: &S::Limit,
        now: impl FnOnce() -> Tick,
    ) {
        if !self.overrides.has_changed().unwrap_or(false) {
            return;
        }
        let known = self.overrides.borrow_and_update();
        self.read_at = known.read_at;
        let found = known.of(|| S::override_name(limit), S::params(limit));
        drop(known);
        let params = found
            .params
            .as_ref()
            .map_or(S::params(limit), |[_, new]| new);
        let in_force = S::params(&self.limit);
        let retuned = (params != in_force).then(|| {
            let (mut new, mut of) = (LimitConfig::clone(config), limit.clone());
            match (config.retune)(&mut new, &mut of, params) {
                Some(()) => (Arc::new(new), of),
                None => (Arc::clone(config), limit.clone()),
            }
        });
        let retuned = retuned.filter(|(_, limit)| S::params(limit) != in_force);
        if self.paused_until == found.paused_until && retuned.is_none() {
            return;
        }
        self.paused_until = found.paused_until;
        // During a pause it may be as long as the pause.
        self.denial.take_if(|denial| denial.is_of_outage());
        if let Some((config, limit)) = retuned {
            (self.config, self.limit) = (config, limit);
            self.retuned_at = self.next_id;
            // They were for other parameters.
            self.denial = None;
            self.known.scarcest = None;
            self.spend_insurance(now());
        }
        let waiting = self.requests.values();
        self.wakes
            .extend(waiting.map(|request| request.waker.clone()));
        self.is_changed = true;
    }

    /// Spends all of an insurance, which was made for other parameters.
    pub(crate) fn spend_insurance(&mut self, now: Tick) {
        self.insurance = match (&self.config.fallback, self.insurance.take()) {
            (Fallback::Insured(policy), Some((since, _))) => {
                Some((since, (self.config.spent)(policy, now)))
            }
            _ => None,
        };
    }

    /// Counts permits that were used already in the insurance, if the key has one.
    pub(crate) fn charge_insurance(&mut self, now: Tick, cost: u32) {
        if let (Fallback::Insured(policy), Some((_, state))) =
            (&self.config.fallback, &mut self.insurance)
        {
            policy.charge(state, now, cost);
        }
    }

    /// What the insurance of the outage that began then has left, if the key has one.
    pub(crate) fn insured_status(&self, now: Tick, since: Tick) -> Option<Status> {
        let (_, state) = self.insurance.as_ref().filter(|(of, _)| *of == since)?;
        match &self.config.fallback {
            Fallback::Insured(policy) => Some(policy.status(state, now)),
            Fallback::Open | Fallback::Closed => None,
        }
    }

    /// How long the limit is still paused.
    pub(crate) fn pause(&self, now: Tick) -> Option<Duration> {
        (now < self.paused_until).then(|| self.paused_until.since(now))
    }
}

/// Consecutive requests of equal cost, as a cost and a count.
fn groups(asked: &[(RequestId, u32)]) -> Vec<(u32, u32)> {
    let groups = asked.chunk_by(|(_, one), (_, other)| one == other);
    let count = |group: &[_]| u32::try_from(group.len()).unwrap_or(u32::MAX);
    groups.map(|group| (group[0].1, count(group))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_requests_of_equal_cost_form_one_group() {
        let asked = [(1, 1), (2, 1), (5, 3), (6, 1)];
        assert_eq!(groups(&asked), [(1, 2), (3, 1), (1, 1)]);
    }
}
