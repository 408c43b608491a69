use core::convert::Infallible;
use core::task::{Context, Poll};
use std::sync::{Arc, Mutex};

use crate::concurrency::{Admit, Admitted};
use crate::time::{OutOfRange, or_panic};

use super::{Class, InUse, lock};

/// Sheds load by the number of requests under way, with a reserve for critical work. Clones share the count.
///
/// With a capacity of C and a reserve of R, a sheddable request is admitted if with it no more than C − R sheddable requests and
/// no more than C requests of both kinds are under way. A critical request is always admitted, and counted.
///
/// | capacity 5, reserve 2; asked | admitted |
/// |---|---|
/// | `sssss` | `sss--`: the capacity without the reserve |
/// | `ssscc` | `ssscc`: critical requests may use the reserve |
/// | `ccccss` | `ccccs-`: and take from the rest |
/// | `cccccccs` | `ccccccc-`: also beyond the capacity |
///
/// ```
/// use paceline::shed::{Class, FleetUsage};
///
/// # async fn answer() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let usage = FleetUsage::new(100, 20);
///
/// match usage.admit(Class::Sheddable(0)) {
///     Some(_under_way) => answer().await,
///     None => println!("503 Service Unavailable"),
/// }
/// assert_eq!(usage.in_use().sheddable, 0);
/// # }
/// ```
///
/// An admitted request holds a [`UsagePermit`] until its answer is sent. This count is of one process. The one of `paceline-redis` decides
/// the same from the count of a whole fleet.
#[derive(Clone, Debug)]
#[doc(alias("load shedding", "concurrent requests limiter"))]
pub struct FleetUsage {
    usage: Arc<Usage>,
}

#[derive(Debug)]
struct Usage {
    capacity: u32,
    reserved: u32,
    in_use: Mutex<InUse>,
}

impl FleetUsage {
    /// Room for `capacity` requests at once, of which `reserved` are for critical ones.
    ///
    /// # Panics
    ///
    /// If the reserve is not below the capacity; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(capacity: u32, reserved: u32) -> Self {
        or_panic(Self::try_new(capacity, reserved))
    }

    /// [`new`](Self::new), for numbers from a configuration.
    ///
    /// ```
    /// use paceline::shed::FleetUsage;
    ///
    /// let error = FleetUsage::try_new(5, 5).unwrap_err();
    /// assert_eq!(error.to_string(), "the reserve must be less than the capacity, got 5 and 5");
    /// ```
    ///
    /// # Errors
    ///
    /// If the reserve is not below the capacity.
    pub fn try_new(capacity: u32, reserved: u32) -> Result<Self, OutOfRange> {
        if reserved >= capacity {
            let message = "the reserve must be less than the capacity";
            let error = OutOfRange::new("reserved", message);
            return Err(error.got_counts(reserved, capacity));
        }
        let usage = Usage {
            capacity,
            reserved,
            in_use: Mutex::default(),
        };
        Ok(Self {
            usage: Arc::new(usage),
        })
    }

    /// Admits a request until the permit is dropped; `None` if it is to be shed.
    #[must_use = "a permit that is dropped at once limits nothing"]
    pub fn admit(&self, class: Class) -> Option<UsagePermit> {
        let Usage {
            capacity, reserved, ..
        } = *self.usage;
        let mut in_use = lock(&self.usage.in_use);
        let total = in_use.critical.saturating_add(in_use.sheddable);
        let has_room = in_use.sheddable < capacity - reserved && total < capacity;
        if class != Class::Critical && !has_room {
            return None;
        }
        *of(&mut in_use, class) += 1;
        drop(in_use);
        Some(UsagePermit {
            usage: Arc::clone(&self.usage),
            class,
        })
    }

    /// How many requests are under way.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        *lock(&self.usage.in_use)
    }
}

/// There is no queue: `None` is a request to be shed.
impl Admit<Class> for FleetUsage {
    type Guard = UsagePermit;
    type Error = Infallible;

    fn poll_admit(&mut self, class: Class, _: &mut Context<'_>) -> Admitted<UsagePermit> {
        Poll::Ready(Ok(self.admit(class)))
    }

    fn give_up(&mut self) {}
}

/// An admitted request of a [`FleetUsage`], which is under way until this is dropped.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once limits nothing: call it `_permit`, since `let _ =` drops it too"]
pub struct UsagePermit {
    usage: Arc<Usage>,
    class: Class,
}

impl Drop for UsagePermit {
    fn drop(&mut self) {
        *of(&mut lock(&self.usage.in_use), self.class) -= 1;
    }
}

/// The count of one kind.
const fn of(in_use: &mut InUse, class: Class) -> &mut u32 {
    match class {
        Class::Critical => &mut in_use.critical,
        Class::Sheddable(_) => &mut in_use.sheddable,
    }
}
