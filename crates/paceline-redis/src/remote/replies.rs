//! What a reply means for the requests of a key, and who uses the permits that it brings.

use core::time::Duration;

use paceline::time::Tick;

use super::cache::{CachedDenial, DenialSource};
use super::queue::{RequestQueue, VOID_AFTER};
use super::request::{RequestId, RequestState, Undecided, WaitMode, denied_for};
use super::{RemotePolicy, Reply, Return, Store};

impl<P: RemotePolicy, S: Store> RequestQueue<P, S> {
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
    pub(super) fn grant_locally(&mut self, now: Tick) {
        if self.config.counts_requests {
            return;
        }
        let queued = self.requests.values_mut();
        for request in queued.filter(|request| request.is_queued()) {
            let (until, counted_at) = match self.unclaimed.take(now, request.cost) {
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
    pub(super) fn reassign(&mut self, cost: u32, state: &RequestState) {
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
    /// Answers the requests with a mode that takes this answer, and puts the others back into the queue.
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
                WaitMode::Try => true,
            };
            if takes_answer && request.cost == *cost {
                request.finish(RequestState::Answered(answer.clone()), &mut self.wakes);
            } else {
                request.state = RequestState::Queued;
            }
        }
    }
}
