use core::borrow::Borrow;
use core::hash::Hash;
use core::time::Duration;

use crate::fair::FairShare;
use crate::policy::Status;

use super::fair::{unlock, wake_all};
use super::fair_report::{ClientShare, FairCycle};
use super::{Event, Fair, Mode, Stats};

/// Changes of the limit, and what can be read of it.
impl<K> Fair<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    /// Gives back `cost` permits of this client that passed in this cycle and were not used; waiters may pass sooner.
    ///
    /// What passed in an earlier cycle reduces only what the client owes: see [`fair`](crate::fair).
    pub fn refund<Q>(&self, key: &Q, cost: u32)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut clients = self.lock();
        clients.refund(key, cost);
        unlock(clients);
    }

    /// Goes on with other parameters, and asks for the terms of all clients again. The clients stay, and what was spent in this cycle
    /// stays spent. The change takes effect at once, for queued requests too.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use paceline::limiter::Fair;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tenants = Fair::new(FairShare::new(40, Duration::from_secs(10)));
    /// assert!(tenants.try_acquire(&"ann", 40).is_pass());
    ///
    /// tenants.retune(tenants.share().with_reservation(500));
    /// assert!(!tenants.try_acquire(&"ann", 1).is_pass());
    /// tenants.retune(FairShare::new(50, Duration::from_secs(10)));
    /// assert!(tenants.try_acquire(&"ann", 10).is_pass());
    /// # }
    /// ```
    pub fn retune(&self, share: FairShare) {
        let mut clients = self.lock();
        clients.retune(share);
        // A request that is too costly now is refused, wherever it is queued.
        wake_all(clients);
        self.report(Event::Retuned);
    }

    /// Lets no request pass before `duration` is over, whatever the client: see
    /// [`Shared::pause_for`](super::Shared::pause_for). The cycles go on.
    pub fn pause_for(&self, duration: Duration) {
        let duration = self.lock().pause_for(duration);
        self.report(Event::Paused { duration });
    }

    /// Ends every pause.
    pub fn resume(&self) {
        let mut clients = self.lock();
        clients.resume();
        unlock(clients);
        self.report(Event::Resumed);
    }

    /// How long the pause still lasts; `None` if there is none.
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.lock().paused_for()
    }

    /// Makes the limit active, shadow or off: see [`Mode`]. It takes effect at once, for queued requests too.
    pub fn set_mode(&self, mode: Mode) {
        let mut clients = self.lock();
        clients.mode = mode;
        wake_all(clients);
        self.report(Event::ModeChanged { mode });
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
