use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::errand::{Answer, Class, Errand, Room};
use super::holds::Ticket;
use super::lease::Lease;
use super::roll::{Asker, Outcome, Replies, Roll, Told};
use super::service::Service;
use crate::redis::error::{CallError, ConfigError};
use crate::redis::keeper::Keeper;
use crate::redis::link::{Failure, NoAnswer};

/// A lease is at least so long, and at least so many deadlines, and at most so long.
const SHORTEST: Duration = Duration::from_millis(100);
const DEADLINES: u32 = 4;
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Leases in Redis, so many at once, as this process knows them: who asks, who holds, and who makes trips for them.
pub(super) struct Pool {
    pub(super) keeper: Arc<Keeper>,
    pub(super) lease: Duration,
    pub(super) classes: Vec<Terms>,
    pub(super) rooms: Vec<Room>,
    keys: Arc<[String]>,
    roll: Mutex<Roll>,
    /// Somebody came, or gave one back, while whoever makes the trips sleeps.
    pub(super) nudge: Notify,
}

/// What is fixed of one class of leases.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) key: String,
    pub(super) room: Room,
    pub(super) alone: Alone,
}

/// How many there may be without Redis.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alone {
    Open,
    Closed,
    /// So many, when all that others hold in Redis has ended.
    Share(u32),
}

impl Pool {
    pub(super) fn new(
        keeper: Arc<Keeper>,
        lease: Duration,
        classes: Vec<Terms>,
    ) -> Result<Self, ConfigError> {
        let shortest = SHORTEST.max(keeper.deadline().saturating_mul(DEADLINES));
        if lease < shortest || lease > LONGEST {
            return Err(ConfigError::new(format!(
                "a lease takes {shortest:?} to {LONGEST:?} with a deadline of {:?}, got {lease:?}",
                keeper.deadline()
            )));
        }
        // Nobody waits where there are several classes.
        let most = classes.first().map_or(0, |terms| terms.room.below);
        Ok(Self {
            roll: Mutex::new(Roll::new(lease, classes.len(), most)),
            rooms: classes.iter().map(|terms| terms.room).collect(),
            keys: classes.iter().map(|terms| terms.key.clone()).collect(),
            keeper,
            lease,
            classes,
            nudge: Notify::new(),
        })
    }

    /// Asks for a lease. Who stands waits until there is one.
    pub(super) async fn ask(self: &Arc<Self>, class: Class, stands: bool) -> Told {
        let since = self.keeper.now();
        loop {
            let (answer, told) = oneshot::channel();
            let asker = Asker {
                class,
                stands,
                since,
                answer,
            };
            self.work(|roll| roll.join(asker));
            self.serve();
            if let Ok(told) = told.await {
                return told;
            }
            // Whoever made the trips is gone with its runtime.
            tokio::task::yield_now().await;
        }
    }

    /// How many there are of each class.
    pub(super) async fn in_use(&self) -> Result<Vec<u32>, CallError> {
        let errand = Errand {
            lease: self.lease,
            rooms: &self.rooms,
            given_back: &[],
            renewed: &[],
            wanted: &[],
        };
        let answer = self.run(errand, self.keeper.deadline()).await;
        answer.map(|answer| answer.in_use).map_err(CallError::new)
    }

    /// How long it goes on, and who tells if it ends before; nothing if it is lost.
    pub(super) fn left(self: &Arc<Self>, ticket: Ticket) -> Option<(Duration, Arc<Notify>)> {
        self.work(|roll| {
            let now = self.keeper.now();
            let (end, told) = roll.holds.end_of(now, ticket)?;
            Some((end.since(now), told))
        })
    }

    pub(super) fn give_back(
        self: &Arc<Self>,
        ticket: Ticket,
        class: Class,
        done: Option<oneshot::Sender<()>>,
    ) {
        let done = self.work(|roll| {
            let now = self.keeper.now();
            roll.give_back(now, ticket, class, done)
        });
        if let Some(done) = done {
            // Whoever waited may be gone.
            let _ = done.send(());
        }
        self.serve_if_it_can();
    }

    pub(super) fn give_back_local(self: &Arc<Self>, class: Class) {
        self.work(|roll| roll.give_back_local(class));
        self.serve_if_it_can();
    }

    pub(super) fn deadline(&self) -> Duration {
        self.keeper.deadline()
    }

    /// Sees to it that somebody makes the trips, and looks what there is to do.
    pub(super) fn serve(self: &Arc<Self>) {
        let runtime = Handle::try_current();
        let runtime = runtime.expect("a lease in Redis needs a tokio runtime to wait in");
        self.serve_in(&runtime);
    }

    /// Outside a runtime the next one who asks does.
    fn serve_if_it_can(self: &Arc<Self>) {
        match Handle::try_current() {
            Ok(runtime) => self.serve_in(&runtime),
            Err(_) => self.nudge.notify_one(),
        }
    }

    fn serve_in(self: &Arc<Self>, runtime: &Handle) {
        if !self.work(Roll::is_to_be_served) {
            return self.nudge.notify_one();
        }
        let service = Service::new(Arc::clone(self), self.keeper.stats().connects);
        drop(runtime.spawn(service.run()));
    }

    pub(super) async fn run(
        &self,
        errand: Errand<'_>,
        deadline: Duration,
    ) -> Result<Answer, NoAnswer> {
        let call = errand.call(&self.keys);
        let numbers = self.keeper.call(&call, deadline).await?;
        errand.read(&numbers).ok_or_else(|| {
            NoAnswer::Failed(Failure::Fault(format!("an answer of {numbers:?}").into()))
        })
    }

    pub(super) fn tell(self: &Arc<Self>, replies: Replies) {
        for (asker, outcome) in replies {
            let class = asker.class;
            let told = match outcome {
                Outcome::Granted(ticket) => {
                    Ok(Some(Lease::remote(Arc::clone(self), class, ticket)))
                }
                Outcome::Local => Ok(Some(Lease::local(Arc::clone(self), class))),
                Outcome::Refused => Ok(None),
                Outcome::Fault(why) => Err(why),
            };
            // If nobody is there any more, what was granted is dropped, and so given back.
            drop(asker.answer.send(told));
        }
    }

    /// Works at the roll, and tells afterwards who has lost a lease.
    pub(super) fn work<T>(&self, work: impl FnOnce(&mut Roll) -> T) -> T {
        let mut roll = self.locked();
        let done = work(&mut roll);
        let told = roll.holds.take_told();
        drop(roll);
        if !told.is_empty() {
            let lost = told.len() as u64;
            self.keeper.count(|stats| stats.lost_leases += lost);
        }
        for told in told {
            told.notify_waiters();
        }
        done
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, Roll> {
        // Nothing under it leaves half a state behind.
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("keys", &self.keys)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
