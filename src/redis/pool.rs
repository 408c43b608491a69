use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::time::Tick;

use super::errand::{Answer, Class, Errand, Room, Token};
use super::error::{CallError, ServerError, Unfit};
use super::holds::Ticket;
use super::keeper::{Keeper, NoAnswer, slept};
use super::lease::Lease;
use super::link::Failure;
use super::roll::{Asker, Outcome, Replies, Roll, Step, Told, Trip};

/// A lease is at least so long, and at least so many deadlines, and at most so long.
const SHORTEST: Duration = Duration::from_millis(100);
const DEADLINES: u32 = 4;
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Leases in Redis, so many at once, as this process knows them: who asks, who holds, and who makes trips for them.
pub(super) struct Pool {
    keeper: Arc<Keeper>,
    lease: Duration,
    classes: Vec<Terms>,
    rooms: Vec<Room>,
    keys: Arc<[String]>,
    roll: Mutex<Roll>,
    /// Somebody came, or gave one back, while whoever makes the trips sleeps.
    nudge: Notify,
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
    ) -> Result<Self, Unfit> {
        let shortest = SHORTEST.max(keeper.deadline().saturating_mul(DEADLINES));
        if lease < shortest || lease > LONGEST {
            return Err(Unfit::new(format!(
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
            self.is_served();
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
        self.is_served_if_it_can();
    }

    pub(super) fn give_back_local(self: &Arc<Self>, class: Class) {
        self.work(|roll| roll.give_back_local(class));
        self.is_served_if_it_can();
    }

    pub(super) fn deadline(&self) -> Duration {
        self.keeper.deadline()
    }

    /// Sees to it that somebody makes the trips, and looks what there is to do.
    pub(super) fn is_served(self: &Arc<Self>) {
        let runtime = Handle::try_current();
        let runtime = runtime.expect("a lease in Redis needs a tokio runtime to wait in");
        self.serve(&runtime);
    }

    /// Outside a runtime the next one who asks does.
    fn is_served_if_it_can(self: &Arc<Self>) {
        match Handle::try_current() {
            Ok(runtime) => self.serve(&runtime),
            Err(_) => self.nudge.notify_one(),
        }
    }

    fn serve(self: &Arc<Self>, runtime: &Handle) {
        if !self.work(Roll::is_to_be_served) {
            return self.nudge.notify_one();
        }
        let service = Service {
            pool: Arc::clone(self),
            connects: self.keeper.stats().connects,
            has_ended: false,
        };
        drop(runtime.spawn(service.run()));
    }

    async fn run(&self, errand: Errand<'_>, deadline: Duration) -> Result<Answer, NoAnswer> {
        let call = errand.call(&self.keys);
        let numbers = self.keeper.call(&call, deadline).await?;
        errand.read(&numbers).ok_or_else(|| {
            NoAnswer::Failed(Failure::Fault(format!("an answer of {numbers:?}").into()))
        })
    }

    fn tell(self: &Arc<Self>, replies: Replies) {
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
    fn work<T>(&self, work: impl FnOnce(&mut Roll) -> T) -> T {
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

    fn locked(&self) -> MutexGuard<'_, Roll> {
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

/// Makes the trips of a pool, for as long as anything is waited for, held or to be given back. One at a time: whatever comes
/// up meanwhile goes on the next.
struct Service {
    pool: Arc<Pool>,
    /// How often a connection had been made when it looked last.
    connects: u64,
    has_ended: bool,
}

impl Service {
    async fn run(mut self) {
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
        if !self.has_ended {
            drop(self.pool.work(Roll::is_deserted));
        }
    }
}
