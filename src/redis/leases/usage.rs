use core::time::Duration;
use std::sync::Arc;

use super::errand::{Class, Room};
use super::lease::Lease;
use super::permits::alone;
use super::pool::{Alone, Pool, Terms};
use crate::redis::error::{CallError, ConfigError, ServerError};
use crate::redis::keeper::Keeper;
use crate::redis::when_down::OutagePolicy;

/// More than there can ever be.
const ANY: u64 = 1 << 53;

const CRITICAL: Class = 0;
const SHEDDABLE: Class = 1;

/// Sheds load by how much a whole fleet has under way, with a reserve for critical work. Made by
/// [`Redis::fleet_usage`](crate::redis::Redis::fleet_usage).
///
/// With a capacity of C, of which R are reserved, a sheddable request is let in if with it no more than C − R sheddable ones
/// and no more than C of all are under way. A critical one is always let in, and counted. All in whole numbers, by one script
/// that sees both counts at once.
///
/// ```
/// use paceline::redis::{Importance, Redis, OutagePolicy};
/// use std::time::Duration;
///
/// # async fn answer() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::open())?;
/// let usage = redis.fleet_usage("api", 100, 20, Duration::from_secs(10))?;
///
/// match usage.admit(Importance::Sheddable).await? {
///     Some(_under_way) => answer().await,
///     None => println!("503 Service Unavailable"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// What is let in holds a [`Lease`] until its answer is out. A request whose lease is [lost](Lease#it-can-be-lost) is under way
/// and not counted; nothing else follows from it, so nobody has to listen.
///
/// **While Redis does not answer**, critical work passes, with a [local](Lease::is_local) lease, and so does the rest with
/// [`OutagePolicy::open`]. With [`closed`](OutagePolicy::closed) the rest is refused. With [`insured`](OutagePolicy::insured) it is let in up
/// to (C − R) / replicas at once, when the outage has lasted as long as a lease. No trip takes longer than the deadline.
#[derive(Clone, Debug)]
pub struct FleetUsage {
    pool: Arc<Pool>,
}

/// Whether a request may be shed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "one reserve divides requests into two kinds"
)]
pub enum Importance {
    /// Always let in.
    Critical,
    /// Let in while there is room beside the reserve.
    Sheddable,
}

/// How much is under way in the fleet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct InUse {
    /// Of critical requests.
    pub critical: u32,
    /// Of all others.
    pub sheddable: u32,
}

impl FleetUsage {
    pub(in crate::redis) fn new(
        keeper: Arc<Keeper>,
        name: &str,
        capacity: u32,
        reserved: u32,
        lease: Duration,
        when_down: OutagePolicy,
    ) -> Result<Self, ConfigError> {
        let sheddable = capacity.checked_sub(reserved).filter(|left| *left > 0);
        let Some(sheddable) = sheddable else {
            return Err(ConfigError::new(format!(
                "a reserve of {reserved} leaves nothing of a capacity of {capacity}"
            )));
        };
        // In the order of the classes.
        let classes = vec![
            Terms {
                key: format!("{name}:usage:critical"),
                room: Room {
                    below: ANY,
                    below_in_all: ANY,
                },
                alone: Alone::Open,
            },
            Terms {
                key: format!("{name}:usage:sheddable"),
                room: Room {
                    below: sheddable.into(),
                    below_in_all: capacity.into(),
                },
                alone: alone(sheddable, when_down)?,
            },
        ];
        let pool = Arc::new(Pool::new(keeper, lease, classes)?);
        Ok(Self { pool })
    }

    /// Lets a request in, until the lease is dropped; `None` if it is to be shed.
    ///
    /// # Errors
    ///
    /// If the server refuses to answer, since a key holds something else or a permission is missing; also of critical work.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// What was let in for one who has left is given back.
    pub async fn admit(&self, importance: Importance) -> Result<Option<Lease>, ServerError> {
        let class = match importance {
            Importance::Critical => CRITICAL,
            Importance::Sheddable => SHEDDABLE,
        };
        self.pool.ask(class, false).await
    }

    /// How much is under way, as Redis knows it.
    ///
    /// # Errors
    ///
    /// If Redis does not answer.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn in_use(&self) -> Result<InUse, CallError> {
        let in_use = self.pool.in_use().await?;
        Ok(InUse {
            critical: in_use[CRITICAL],
            sheddable: in_use[SHEDDABLE],
        })
    }
}
