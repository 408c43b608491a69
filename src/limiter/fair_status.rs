use core::borrow::Borrow;
use core::hash::Hash;
use core::time::Duration;

use crate::fair::{Accounts, FairShare};
use crate::policy::{Decision, Quota, Status};
use crate::time::Tick;
use crate::wait::Intent;

use super::fair::{Fair, unlock};
use super::fair_clients::FairClients;
use super::{Mode, Stats};

/// What one client of a [`Fair`](super::Fair) limit may use and has used in this cycle, in permits.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientShare<K> {
    /// The client. `None` for all those together that are beyond the largest number of clients.
    pub key: Option<K>,
    /// What it may use in this cycle.
    pub size: u32,
    /// What it asked for in the cycle before, or on average, what was refused and what waited included: its size is made of that.
    pub demand: u32,
    /// What has passed in this cycle.
    pub used: u32,
    /// What was refused in this cycle; in [`Mode::Shadow`], what would have been.
    pub refused: u64,
    /// What waits now.
    pub waiting: u64,
    /// By how much its size is below its default share.
    pub lent: u32,
    /// By how much its size is above its default share.
    pub borrowed: u32,
    /// How many requests have passed since it is remembered.
    pub requests_passed: u64,
    /// How many requests were refused since it is remembered.
    pub requests_refused: u64,
}

/// The cycle of a [`Fair`](super::Fair) limit that is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FairCycle {
    /// How many cycles were before it, those without a request included.
    pub number: u64,
    /// The permits of a cycle.
    pub capacity: u32,
    /// How many of them are spent.
    pub spent: u32,
    /// How long ago it began.
    pub began_ago: Duration,
    /// When it ends, unless a new client ends it before.
    pub ends_in: Duration,
}

/// What it has left and what its clients have.
impl<K> Fair<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted, and no client is remembered.
    pub fn peek<Q>(&self, key: &Q, cost: u32) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.try_decide(key, cost, Intent::Peek, &mut None)
    }

    /// How long the pause still lasts; `None` if there is none.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.lock().paused_for()
    }

    /// The mode of the limit: see [`set_mode`](Self::set_mode).
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// The parameters, as of the last [`retune`](Self::retune).
    #[must_use]
    pub fn share(&self) -> FairShare {
        *self.lock().share()
    }

    /// What all clients have done so far, those that are forgotten included.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// What this client has left now; `None` in [`Mode::Off`].
    ///
    /// The quota is its size in this cycle, and the reset the end of the cycle. A client that is not remembered is not kept for it.
    pub fn status<Q>(&self, key: &Q) -> Option<Status>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.lock().status(key)
    }

    /// What each client has in this cycle, the oldest first. It goes through all of them, and begins the cycles that are due.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let cycle = Duration::from_secs(10);
    /// let tenants = Fair::new(FairShare::new(40, cycle));
    /// assert!(tenants.try_acquire(&"ann", 25).is_pass());
    /// assert!(tenants.try_acquire(&"bob", 5).is_pass());
    /// tokio::time::sleep(cycle).await;
    ///
    /// for client in tenants.shares() {
    ///     println!("{:?}: {} of {} used", client.key, client.used, client.size);
    /// }
    /// let ann = &tenants.shares()[0];
    /// assert_eq!((ann.key, ann.demand, ann.borrowed), (Some("ann"), 25, ann.size - 20));
    /// # }
    /// ```
    #[must_use]
    pub fn shares(&self) -> Vec<ClientShare<K>> {
        let mut clients = self.lock();
        let shares = clients.shares();
        unlock(clients);
        shares
    }

    /// The cycle that is under way. It begins the cycles that are due.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tenants = Fair::new(FairShare::new(40, Duration::from_secs(10)));
    /// assert!(tenants.try_acquire(&"ann", 25).is_pass());
    /// tokio::time::sleep(Duration::from_secs(3)).await;
    ///
    /// let cycle = tenants.cycle();
    /// assert_eq!((cycle.number, cycle.spent, cycle.capacity), (0, 25, 40));
    /// assert_eq!(cycle.ends_in, Duration::from_secs(7));
    /// # }
    /// ```
    #[must_use]
    pub fn cycle(&self) -> FairCycle {
        let mut clients = self.lock();
        let cycle = clients.cycle();
        unlock(clients);
        cycle
    }

    /// How many clients are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no client is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq + Clone> FairClients<K> {
    fn shares(&mut self) -> Vec<ClientShare<K>> {
        self.enter();
        let slots = self.accounts.slots().iter();
        let share_of = |slot: &u32| {
            let share = self.accounts.client(*slot);
            ClientShare {
                key: self.clients[*slot as usize].key.clone(),
                size: share.size,
                demand: share.demand,
                used: share.used,
                refused: share.refused,
                waiting: share.waiting,
                lent: share.lent,
                borrowed: share.borrowed,
                requests_passed: share.requests_passed,
                requests_refused: share.requests_refused,
            }
        };
        slots.map(share_of).collect()
    }

    fn cycle(&mut self) -> FairCycle {
        let now = self.enter();
        let cycle = self.accounts.cycle();
        FairCycle {
            number: cycle.number,
            capacity: cycle.capacity,
            spent: cycle.spent,
            began_ago: now.since(cycle.start),
            ends_in: cycle.end.since(now),
        }
    }

    fn len(&mut self) -> usize {
        self.enter();
        self.accounts.slots().len()
    }

    fn status<Q>(&mut self, key: &Q) -> Option<Status>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if self.mode == Mode::Off {
            return None;
        }
        // The clock of an unused limit does not start.
        let now = self.clock.clone().now();
        self.enter_at(now);
        let status = self.look(key, |accounts, slot| status_of(accounts, slot, now));
        if now < self.paused_until {
            return Some(status.paused_for(self.paused_until.since(now)));
        }
        Some(status)
    }
}

/// The quota is the size in this cycle, and the reset its end.
fn status_of(accounts: &Accounts, slot: u32, now: Tick) -> Status {
    let quota = Quota {
        permits: accounts.client(slot).size,
        window: accounts.share().cycle(),
    };
    let reset_in = accounts.cycle().end.since(now);
    Status::new(Some(quota), room(accounts, slot, now), reset_in)
}

/// How many requests of cost 1 would pass now.
fn room(accounts: &Accounts, slot: u32, now: Tick) -> u32 {
    let share = accounts.client(slot);
    let default = share.size + share.lent - share.borrowed;
    let is_open = |cost: u32| accounts.peek(slot, cost, now).is_pass();
    if accounts.share().paces() {
        return u32::from(is_open(1));
    }
    // Up to here a request that passes also does so in parts.
    let most = share.size.max(default).saturating_sub(share.used).max(1);
    if is_open(most) {
        return most;
    }
    let (mut passed, mut refused) = (0, most);
    while passed + 1 < refused {
        let cost = passed + (refused - passed) / 2;
        if is_open(cost) {
            passed = cost;
        } else {
            refused = cost;
        }
    }
    passed
}
