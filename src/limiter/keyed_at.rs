use core::fmt;
use core::hash::Hash;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::convert::Infallible;

use crate::line::Ticket;
use crate::policy::{Decision, Policy};
use crate::time::Precision;

use super::acquire::Foresee;
use super::forecast::retry_in;
use super::keys::Reply;
use super::limit::Ask;
use super::parts::work_on;
use super::room::Guest;
use super::{Answer, Keyed, Limiter, Shared};

/// The limit of one key, and a place in its line. Made by [`Keyed::at`]. A clone is another place in the same line.
pub struct KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    keyed: Keyed<K, P>,
    key: K,
    /// While there is no room for the key.
    room: Option<Ticket>,
    precision: Precision,
    /// While it stands there.
    line: Option<Shared<P>>,
}

impl<K, P> KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) const fn new(keyed: Keyed<K, P>, key: K, precision: Precision) -> Self {
        Self {
            keyed,
            key,
            room: None,
            precision,
            line: None,
        }
    }

    fn ask_in_line(
        &mut self,
        ask: Ask,
        cost: u32,
        waker: &Waker,
        poll: impl FnOnce(&mut Shared<P>) -> Answer,
    ) -> Answer {
        if self.line.is_none() {
            match self.find_line(ask, cost, waker) {
                Reply::Now(decision) => return Poll::Ready(Ok(decision)),
                Reply::NoRoom(retry_in) => return Poll::Ready(Ok(Decision::Wait { retry_in })),
                Reply::AskThere(limit) => self.line.insert(limit).precision = self.precision,
            }
        }
        let Some(line) = &mut self.line else {
            return Poll::Pending;
        };
        let answer = poll(line);
        let has_left = matches!(
            answer,
            Poll::Ready(Ok(Decision::Pass | Decision::Never { .. }))
        );
        // Who was only let look keeps the place.
        if has_left && !line.keeps_a_place() {
            self.give_up();
        }
        answer
    }

    fn find_line(&mut self, ask: Ask, cost: u32, waker: &Waker) -> Reply<P> {
        let (key, place) = (&self.key, &mut self.room);
        let mut keys = self.keyed.parts().lock(key);
        if place.is_none() {
            let known = keys.ask_known(key, ask, cost);
            if let Some(pass) = known.filter(|known| known.is_pass()) {
                return Reply::Now(pass);
            }
        }
        let guest = Guest { place, waker };
        work_on(keys, |keys, after| {
            keys.ask_in_line(key, ask, cost, guest, after)
        })
    }
}

impl<K, P> Foresee for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn forecast(&self, cost: u32) -> Duration {
        retry_in(self.keyed.peek(&self.key, cost))
    }

    fn was_too_late(&self) {
        self.keyed.locked(&self.key, |keys, _| keys.refused());
    }
}

impl<K, P> Limiter for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToPass, cost, cx.waker(), |line| {
            line.poll_decide(cost, cx)
        })
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        match &mut self.line {
            Some(line) if cost > 0 => {
                let answer = line.poll_try(cost, cx);
                if matches!(answer, Poll::Ready(Ok(Decision::Pass))) {
                    self.give_up();
                }
                answer
            }
            _ => Poll::Ready(Ok(self.keyed.try_acquire(&self.key, cost))),
        }
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToLook, cost, cx.waker(), |line| {
            line.poll_open(cost, cx)
        })
    }

    fn give_up(&mut self) {
        let (key, place) = (&self.key, &mut self.room);
        if place.is_some() {
            self.keyed
                .locked(key, |keys, after| keys.left_room(place, after));
        }
        if self.line.take().is_some() {
            self.keyed.locked(key, |keys, after| keys.left(key, after));
        }
    }

    fn be_precise(&mut self) {
        self.precision = Precision::BEST;
        if let Some(line) = &mut self.line {
            line.be_precise();
        }
    }
}

impl<K, P> Clone for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn clone(&self) -> Self {
        Self::new(self.keyed.clone(), self.key.clone(), self.precision)
    }
}

/// Leaves the line.
impl<K, P> Drop for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Says nothing of the key: it may be secret.
impl<K, P> fmt::Debug for KeyedAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedAt")
            .field("in_line", &self.line.is_some())
            .finish_non_exhaustive()
    }
}
