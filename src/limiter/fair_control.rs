use core::borrow::Borrow;
use core::hash::Hash;
use core::time::Duration;

use crate::fair::FairShare;

use super::fair::{Fair, unlock, wake_all};
use super::{Event, Mode};

/// Changes while it is used.
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

    /// Makes the limit active, shadow or off: see [`Mode`]. It takes effect at once, for queued requests too.
    pub fn set_mode(&self, mode: Mode) {
        let mut clients = self.lock();
        clients.mode = mode;
        wake_all(clients);
        self.report(Event::ModeChanged { mode });
    }
}
