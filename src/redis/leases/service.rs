use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use crate::time::Tick;

use super::errand::{Answer, Class, Errand, Token};
use super::pool::{Alone, Pool};
use super::roll::{Asker, Outcome, Replies, Roll, Step, Trip};
use crate::redis::error::ServerError;
use crate::redis::keeper::slept;
use crate::redis::link::{Failure, NoAnswer};

/// Makes the trips of a pool, for as long as anything is waited for, held or to be given back. One at a time: whatever comes
/// up meanwhile goes on the next.
pub(super) struct Service {
    pool: Arc<Pool>,
    /// How often a connection had been made when it looked last.
    connects: u64,
    has_ended: bool,
}

impl Service {
    pub(super) const fn new(pool: Arc<Pool>, connects: u64) -> Self {
        Self {
            pool,
            connects,
            has_ended: false,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            self.look_who_is_there();
            let now = self.pool.keeper.now();
            let is_down = self.pool.keeper.is_down();
            match self.pool.work(|roll| roll.next_step(now, is_down)) {
                Step::Trip(trip) => self.trip(trip).await,
                Step::Sleep(time) => self.sleep(time).await,
                Step::End => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    /// Another connection may lead to a server that knows nothing.
    fn look_who_is_there(&mut self) {
        let connects = self.pool.keeper.stats().connects;
        if connects > self.connects {
            let is_first = self.connects == 0;
            self.connects = connects;
            let now = self.pool.keeper.now();
            self.pool.work(|roll| roll.back(now, is_first));
        }
    }

    async fn trip(&self, trip: Trip) {
        let Trip {
            askers,
            turned_away,
            renewals,
            returns,
        } = trip;
        let pool = &self.pool;
        pool.tell(refused(turned_away));
        let id = |asker: &Asker| Token {
            class: asker.class,
            id: pool.keeper.new_id().into(),
        };
        let ids: Vec<_> = askers.iter().map(id).collect();
        let given_back: Vec<_> = returns.iter().map(|due| due.token.clone()).collect();
        let renewed: Vec<_> = renewals.iter().map(|(_, token)| token.clone()).collect();
        let rooms = pool.locked().rooms(&pool.rooms);
        let errand = Errand {
            lease: pool.lease,
            rooms: &rooms,
            given_back: &given_back,
            renewed: &renewed,
            wanted: &ids,
        };
        let sent = pool.keeper.now();
        let replies = match self.sent(errand, &askers, sent).await {
            Ok(answer) => {
                for done in returns.into_iter().filter_map(|due| due.done) {
                    let _ = done.send(());
                }
                pool.work(|roll| {
                    let now = pool.keeper.now();
                    roll.land(now, sent, askers, ids, &renewals, &answer)
                })
            }
            Err(NoAnswer::Failed(Failure::Fault(why))) => {
                let why = ServerError::new(why);
                let now = pool.keeper.now();
                pool.work(|roll| roll.faulted(now, askers, returns, &why))
            }
            Err(NoAnswer::Failed(_)) => {
                let now = pool.keeper.now();
                pool.work(|roll| roll.failed(now, ids, returns));
                self.alone(askers)
            }
            Err(NoAnswer::Skipped) => {
                pool.work(|roll| roll.holds.put_back(returns, 0));
                self.alone(askers)
            }
        };
        pool.tell(replies);
    }

    /// Whoever wants an answer has been waiting for it since they came.
    async fn sent(
        &self,
        errand: Errand<'_>,
        askers: &[Asker],
        now: Tick,
    ) -> Result<Answer, NoAnswer> {
        let keeper = &self.pool.keeper;
        let tries = askers.iter().filter(|asker| !asker.stands);
        let since = tries.map(|asker| asker.since).min();
        let waited = since.map_or(Duration::ZERO, |since| now.since(since));
        let left = keeper.deadline().saturating_sub(waited);
        if left.is_zero() {
            keeper.count(|stats| stats.timeouts += 1);
            return Err(NoAnswer::Skipped);
        }
        self.pool.run(errand, left).await
    }

    /// Redis is slow or gone.
    fn alone(&self, askers: Vec<Asker>) -> Replies {
        let pool = &self.pool;
        let now = pool.keeper.now();
        let dark = pool.keeper.view().dark;
        let is_dark_for_a_lease = dark.is_some_and(|dark| dark.since.after(pool.lease) <= now);
        let most = |class: Class| match pool.classes[class].alone {
            Alone::Open => u32::MAX,
            Alone::Share(share) if is_dark_for_a_lease => share,
            Alone::Share(_) | Alone::Closed => 0,
        };
        let replies = pool.work(|roll| roll.land_alone(now, askers, most));
        let is_local = |(_, outcome): &&(Asker, Outcome)| matches!(outcome, Outcome::Local);
        let passed = replies.iter().filter(is_local).count() as u64;
        pool.keeper.count(|stats| stats.passed_alone += passed);
        replies
    }

    /// Until the time is over, somebody comes or gives one back, or there is a new connection.
    async fn sleep(&self, time: Duration) {
        let Pool { nudge, keeper, .. } = &*self.pool;
        let mut nudged = pin!(nudge.notified());
        let mut connected = pin!(keeper.connected_more_often_than(self.connects));
        let mut slept = pin!(slept(time));
        poll_fn(|cx| {
            if nudged.as_mut().poll(cx).is_ready() || connected.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            slept.as_mut().poll(cx)
        })
        .await;
    }
}

fn refused(askers: Vec<Asker>) -> Replies {
    let refused = |asker| (asker, Outcome::Refused);
    askers.into_iter().map(refused).collect()
}

/// With its runtime, maybe: others go on.
impl Drop for Service {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (askers, holders) = self.pool.work(Roll::is_deserted);
        // Those who ask begin anew, and those who wait for a loss find somebody else.
        drop(askers);
        for holder in holders {
            holder.notify_waiters();
        }
    }
}
