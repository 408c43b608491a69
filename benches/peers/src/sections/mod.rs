//! What is measured: a file each.

mod adaptive;
mod contention;
mod fair;
mod gaps;
mod growth;
mod hot;
mod instructions;
mod keyed;
mod load;
mod pacing;
mod precision;
mod queues;
mod redis;
mod shed;
mod sidecar;
mod timers;
mod tower;
mod virtual_time;
mod wrk;

pub(crate) use self::redis::alone as alone_herd;
pub(crate) use instructions::{alone as alone_hot, ceilings as library_ceilings};
pub(crate) use sidecar::ceiling as sidecar_ceiling;
pub(crate) use virtual_time::alone as alone_virtual;

use clap::ValueEnum;

use crate::figures::Figure;
use crate::measure::Extent;

/// In the order in which they are reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Section {
    /// How near to the allowed rate, how late and how dear, from 100 ms down to 10 µs.
    Precision,
    /// The same while the machine is busy.
    Load,
    /// Gaps that are too short for a consumer that reads the clock after each element.
    Gaps,
    /// What a wait costs and how late it ends, beside tokio's own, with one timer and with ten thousand.
    Timers,
    /// What an element costs while the limit does not bind, and how many instructions it takes.
    Hot,
    /// A limit for each of a million keys: bytes, nanoseconds, and the memory that stays after they have settled.
    Keyed,
    /// Clients that share one capacity: what a decision, a new cycle and a client cost, and who pays for a greedy neighbour.
    Fair,
    /// What a permit costs when many tasks ask at once.
    Contention,
    /// A million seconds on tokio's paused clock.
    Virtual,
    /// What a queue is worth under overload, in virtual time.
    Queues,
    /// How the cost of each grows with the number of all.
    Growth,
    /// A service whose capacity falls to a third and comes back, behind limits that are fixed and limits that follow.
    Adaptive,
    /// Limits in Redis: what a decision costs, and what an outage does. It starts servers of its own.
    Redis,
    /// Layers for services: what a request costs, and a web server with a limit and without. Its load comes from `wrk`.
    Tower,
    /// A service with more requests than capacity, with and without a load shedder, on a paused clock.
    Shed,
    /// The sidecar beside nginx, as proxies in front of one service. It starts processes of its own.
    Sidecar,
}

impl Section {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Precision => "precision",
            Self::Load => "load",
            Self::Gaps => "gaps",
            Self::Timers => "timers",
            Self::Hot => "hot",
            Self::Keyed => "keyed",
            Self::Fair => "fair",
            Self::Contention => "contention",
            Self::Virtual => "virtual",
            Self::Queues => "queues",
            Self::Growth => "growth",
            Self::Adaptive => "adaptive",
            Self::Redis => "redis",
            Self::Tower => "tower",
            Self::Shed => "shed",
            Self::Sidecar => "sidecar",
        }
    }

    pub(crate) fn measure(self, extent: Extent) -> Vec<Figure> {
        match self {
            Self::Precision => precision::measure(extent),
            Self::Load => load::measure(extent),
            Self::Gaps => gaps::measure(extent),
            Self::Timers => timers::measure(extent),
            Self::Hot => hot::measure(extent),
            Self::Keyed => keyed::measure(extent),
            Self::Fair => fair::measure(extent),
            Self::Contention => contention::measure(extent),
            Self::Virtual => virtual_time::measure(extent),
            Self::Queues => queues::measure(extent),
            Self::Growth => growth::measure(extent),
            Self::Adaptive => adaptive::measure(extent),
            Self::Redis => redis::measure(extent),
            Self::Tower => tower::measure(extent),
            Self::Shed => shed::measure(extent),
            Self::Sidecar => sidecar::measure(extent),
        }
    }
}
