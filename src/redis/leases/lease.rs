use core::fmt;
use core::future::pending;
use core::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::errand::Class;
use super::holds::Ticket;
use super::pool::Pool;
use crate::redis::error::CallError;
use crate::redis::keeper::within;
use crate::redis::link::{Failure, NoAnswer};

/// One of so many at once, in Redis and for a time: dropping it gives it back.
///
/// [`RedisPermits`](super::RedisPermits) and [`FleetUsage`](super::FleetUsage) give it. As long as this guard lives, a task
/// renews it whenever a third of its time is over. (It runs in the runtime of one of those who asked. Should that end, the next
/// who asks, or who waits for [`lost`](Self::lost), starts it anew.) Should the process end without a word, it lapses by itself, and another
/// gets in. (The idea is of C. Gray and D. Cheriton, *Leases: an efficient fault-tolerant mechanism for distributed file cache
/// consistency*, SOSP 1989.)
///
/// # It can be lost
///
/// If Redis cannot be reached until its time is over, or Redis has forgotten it (it was flushed, or a replica without it took
/// over), or the process stood still for so long, the lease is **lost**: somebody else may have it by now. [`is_lost`](
/// Self::is_lost) says so, and [`lost`](Self::lost) waits for it. A lease that is lost stays lost.
///
/// **Whoever holds one has to stop when it is lost.** Who does not listen goes on beside the next holder, and there are more
/// at once than the limit says. Its time is counted from before the call that granted or renewed it was sent, so that the
/// holder knows no later than Redis forgets, whatever the network does. Two things it cannot know at once: that Redis lost its
/// data, and that the server's clock leapt ahead; of these the next renewal tells, at the latest after a third of its time.
/// And a machine that sleeps may not count the time for which it slept.
///
/// ```
/// use paceline::redis::{Redis, OutagePolicy};
/// use std::time::Duration;
///
/// # async fn convert() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
/// let permits = redis.permits("conversions", 3, Duration::from_secs(10))?;
///
/// let lease = permits.acquire().await?;
/// tokio::select! {
///     () = convert() => println!("done"),
///     () = lease.lost() => println!("stopped: somebody else may convert now"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// # Given back
///
/// Dropping it does not wait. A task tells Redis, all that were dropped meanwhile in one call; if that fails it is tried twice
/// more, which does no harm if Redis had heard it after all, and then the lease lapses by itself. A program that ends right
/// after takes that task with it: [`release`](Self::release) waits until Redis knows. A guard that is leaked is renewed until
/// the process ends.
#[must_use = "a lease that is dropped at once limits nothing"]
pub struct Lease {
    pool: Arc<Pool>,
    class: Class,
    /// `None` if it is not in Redis.
    ticket: Option<Ticket>,
    /// Whether it has been given back.
    is_over: bool,
}

impl Lease {
    pub(super) const fn remote(pool: Arc<Pool>, class: Class, ticket: Ticket) -> Self {
        Self {
            pool,
            class,
            ticket: Some(ticket),
            is_over: false,
        }
    }

    pub(super) const fn local(pool: Arc<Pool>, class: Class) -> Self {
        Self {
            pool,
            class,
            ticket: None,
            is_over: false,
        }
    }

    /// Whether it is not in Redis: it was granted by [`OutagePolicy`](crate::redis::OutagePolicy) while Redis did not answer.
    ///
    /// Such a lease has no end, is never lost, and stays what it is when Redis is back. Until then and until it is dropped
    /// only this process knows of it, and counts it when it asks Redis for more.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.ticket.is_none()
    }

    /// Whether somebody else may have it by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.ticket
            .is_some_and(|ticket| self.pool.left(ticket).is_none())
    }

    /// Waits until it is lost: for ever if all is well.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it changes nothing, and the next one says the same.
    pub async fn lost(&self) {
        let Some(ticket) = self.ticket else {
            return pending().await;
        };
        while let Some((left, told)) = self.pool.left(ticket) {
            self.pool.serve();
            let mut told = pin!(told.notified());
            told.as_mut().enable();
            // It may have been told in between.
            if self.pool.left(ticket).is_some() {
                let _ = within(left, told).await;
            }
        }
    }

    /// Gives it back, and waits until Redis knows, up to the deadline.
    ///
    /// # Errors
    ///
    /// If Redis did not answer in time. It is given back all the same, or lapses by itself.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// It is given back, whether this is polled to its end or not at all.
    pub async fn release(mut self) -> Result<(), CallError> {
        self.is_over = true;
        let Some(ticket) = self.ticket else {
            self.pool.give_back_local(self.class);
            return Ok(());
        };
        let (done, is_done) = oneshot::channel();
        self.pool.give_back(ticket, self.class, Some(done));
        match within(self.pool.deadline(), is_done).await {
            Some(Ok(())) => Ok(()),
            _ => Err(CallError::new(NoAnswer::Failed(Failure::Timeout))),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        match self.ticket {
            Some(ticket) => self.pool.give_back(ticket, self.class, None),
            None => self.pool.give_back_local(self.class),
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("is_local", &self.is_local())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
