use core::task::{Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::line::{Behind, Place};
use crate::patience::{Next, Watched, watcher};
use crate::policy::{Decision, Policy};

use super::credit::Credit;
use super::desk::{After, Desk};
use super::limit::{Ask, Limit};

/// A [`Desk`] behind its lock; and before it, within reach without that, some permits that may pass on credit.
///
/// There is credit only while nobody stands in line, but for those set aside, whom others pass anyway. Whoever locks the desk calls
/// it in first, and so sees all that has passed; and looks at the clock after that.
#[derive(Debug)]
pub(super) struct Booth<P: Policy> {
    credit: Credit,
    desk: Mutex<Desk<P>>,
}

impl<P> Booth<P>
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new(limit: Limit<P>) -> Arc<Self> {
        Arc::new_cyclic(|booth| Self {
            credit: Credit::none(),
            desk: Mutex::new(Desk::new(limit, watcher(booth))),
        })
    }
}

impl<P: Policy> Booth<P> {
    /// Asks as one who stands in line, or joins it, as long as there is something to wait for.
    #[inline]
    pub(super) fn ask_in_line(
        &self,
        ask: Ask,
        place: &mut Place,
        cost: u32,
        asker: Behind<'_>,
    ) -> Poll<Decision> {
        if self.passes_on_credit(ask, *place, cost) {
            return Poll::Ready(Decision::Pass);
        }
        match self.passes_alone(ask, *place, cost) {
            Ok(()) => Poll::Ready(Decision::Pass),
            Err(desk) => work(desk, |desk, after| {
                desk.ask_in_line(ask, place, cost, asker, after)
            }),
        }
    }

    /// Asks without joining the line.
    #[inline]
    pub(super) fn ask_aside(&self, ask: Ask, place: &mut Place, cost: u32) -> Decision {
        if self.passes_on_credit(ask, *place, cost) {
            return Decision::Pass;
        }
        match self.passes_alone(ask, *place, cost) {
            Ok(()) => Decision::Pass,
            Err(desk) => work(desk, |desk, after| desk.ask_aside(ask, place, cost, after)),
        }
    }

    /// The way of most: nobody stands in line, and there is credit.
    #[inline]
    fn passes_on_credit(&self, ask: Ask, place: Place, cost: u32) -> bool {
        let passes = |cost| match ask {
            Ask::ToPass => self.credit.take(cost),
            Ask::ToLook => self.credit.is_left(cost),
        };
        matches!(place, Place::Outside) && passes(cost)
    }

    /// The next best way: nobody stands in line, and whoever asks passes. Else the desk that was locked for it.
    fn passes_alone(
        &self,
        ask: Ask,
        place: Place,
        cost: u32,
    ) -> Result<(), MutexGuard<'_, Desk<P>>> {
        let mut desk = self.lock();
        match desk.passes_alone(ask, place, cost) {
            None => Err(desk),
            Some(0) => Ok(()),
            Some(credit) => {
                self.credit.give(credit);
                Ok(())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Desk<P>> {
        // A policy must not panic; should one do, its state is as it left it, and the line is whole.
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.call_in(&self.credit);
        desk
    }

    /// Works at the desk, and does what is left to do then.
    pub(super) fn work<T>(&self, work_there: impl FnOnce(&mut Desk<P>, &mut After) -> T) -> T {
        work(self.lock(), work_there)
    }

    /// The same, where that is for somebody else to do: under other locks.
    pub(super) fn work_later(&self, work_there: impl FnOnce(&mut Desk<P>, &mut After)) -> After {
        let mut after = After::default();
        work_there(&mut self.lock(), &mut after);
        after
    }
}

/// Under the lock, wakers are cloned and the policy is asked, but nobody is woken and nothing is dropped: a waker may ask
/// this very limit when that happens.
fn work<P: Policy, T>(
    mut desk: MutexGuard<'_, Desk<P>>,
    work: impl FnOnce(&mut Desk<P>, &mut After) -> T,
) -> T {
    let mut after = After::default();
    let done = work(&mut desk, &mut after);
    drop(desk);
    after.run();
    done
}

impl<P> Watched for Booth<P>
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn lose_patience(&self, task: &Waker) -> Next {
        self.work(|desk, after| desk.lose_patience(task, after))
    }

    fn is_watched(&self) {
        self.work(|desk, _| desk.is_watched());
    }

    fn is_not_watched(&self) {
        self.work(Desk::is_not_watched);
    }
}
