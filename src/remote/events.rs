//! What operators have to hear of, as `tracing` events and in the `metrics` facade, with the features of these names. The target is
//! `paceline`, as for limits.

use super::error::Failure;

/// Emitted after the lock is released, because a subscriber may ask for the state.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "metrics only count")
)]
pub(crate) enum Event {
    /// Calls failed, and none is made until the server is back.
    Down(Failure),
    /// There is a new connection.
    Up,
    /// The server refuses calls. Said once a second at most.
    Fault(Failure),
    /// So many leases ended before they were given back.
    LeasesLost(u64),
    /// So many states were lost, and their limits count as spent.
    StatesLost(u64),
}

impl Event {
    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        expect(clippy::unused_self, reason = "there is nothing to emit to")
    )]
    pub(crate) fn emit(&self) {
        #[cfg(feature = "tracing")]
        match self {
            Self::Down(cause) => {
                tracing::warn!(target: "paceline", %cause, "the server of limits is down");
            }
            Self::Up => tracing::info!(target: "paceline", "the server of limits is up"),
            Self::Fault(cause) => {
                tracing::warn!(target: "paceline", %cause, "the server refuses calls of limits");
            }
            Self::LeasesLost(count) => tracing::warn!(target: "paceline", count, "leases are lost"),
            Self::StatesLost(count) => {
                tracing::warn!(target: "paceline", count, "the server has lost states of limits");
            }
        }
        #[cfg(feature = "metrics")]
        match self {
            Self::Down(_) => {
                metrics::gauge!("paceline_remote_up").set(0);
                metrics::counter!("paceline_remote_outages_total").increment(1);
            }
            Self::Up => metrics::gauge!("paceline_remote_up").set(1),
            Self::Fault(_) => metrics::counter!("paceline_remote_faults_total").increment(1),
            Self::LeasesLost(count) => {
                metrics::counter!("paceline_remote_lost_leases_total").increment(*count);
            }
            Self::StatesLost(count) => {
                metrics::counter!("paceline_remote_lost_states_total").increment(*count);
            }
        }
    }
}
