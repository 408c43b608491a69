//! What all requests, connections and the admin port share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use paceline::limiter::Shared;
use paceline::policy::Interval;
use paceline::shed::CgroupError;

use crate::config::{Config, Source};
use crate::proxy::{Gate, Limit, Times};
use crate::server::Places;

/// One sidecar: its configuration, its limit, its counts.
#[derive(Debug)]
pub(crate) struct Sidecar {
    config: RwLock<Arc<Config>>,
    /// Where a reload reads the configuration.
    pub(crate) source: Arc<Source>,
    pub(crate) limit: Limit,
    gate: RwLock<Arc<Gate>>,
    pub(crate) counts: Counts,
    pub(crate) times: Times,
    bad_requests: Complaints,
    pub(crate) places: Places,
    /// Whether SIGTERM came: `/readyz` says 503.
    pub(crate) is_draining: AtomicBool,
}

/// Counts of the process. What is counted by client is in the limit.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections of clients now, upgraded ones included.
    pub(crate) connections: AtomicUsize,
    /// Connections closed at once, since there were too many, and too many of one address.
    pub(crate) connections_refused: AtomicU64,
    pub(crate) address_refused: AtomicU64,
    /// Connections and streams cut, since the client was silent or read nothing for too long.
    pub(crate) connections_late: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) anonymous: AtomicU64,
    /// Without a valid id, and passed: the share is not enforced for them. They have another outcome, too.
    pub(crate) anonymous_passed: AtomicU64,
    /// The client left before the head of its response was there.
    pub(crate) cancelled: AtomicU64,
    pub(crate) bad_requests: AtomicU64,
    /// Refused with 503: too many requests under way, or shed.
    pub(crate) shed: AtomicU64,
    pub(crate) upstream_failed: AtomicU64,
    pub(crate) upstream_late: AtomicU64,
    /// The body of a response broke off, or stopped coming. Its head was answered before.
    pub(crate) responses_broken: AtomicU64,
    /// The log lines about these three.
    pub(crate) failures: Complaints,
    pub(crate) retried: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) reloads_refused: AtomicU64,
}

impl Sidecar {
    /// # Errors
    ///
    /// If it is to shed by the processor time of its cgroup, and cannot read that.
    pub(crate) fn new(config: Config, source: Source) -> Result<Self, CgroupError> {
        let limit = Limit::new(&config);
        Ok(Self {
            gate: RwLock::new(Arc::new(Gate::new(&config, &limit)?)),
            limit,
            times: Times::default(),
            bad_requests: Complaints::default(),
            places: Places::new(&config),
            config: RwLock::new(Arc::new(config)),
            source: Arc::new(source),
            counts: Counts::default(),
            is_draining: AtomicBool::new(false),
        })
    }

    /// What protects the upstream. A request takes it once.
    #[must_use]
    pub(crate) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration of now. A request reads it once.
    #[must_use]
    pub(crate) fn config(&self) -> Arc<Config> {
        let config = self.config.read();
        Arc::clone(&config.unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration, after a reload.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). Then nothing is changed.
    pub(crate) fn set_config(&self, config: Config) -> Result<(), CgroupError> {
        let mut guarded = self.config.write().unwrap_or_else(PoisonError::into_inner);
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        *gate = Arc::new(gate.changed(&guarded, &config, &self.limit)?);
        self.limit.retune(&config);
        *guarded = Arc::new(config);
        Ok(())
    }

    /// Changes a part of the configuration, and returns the present configuration.
    pub(crate) fn change_config(&self, change: impl FnOnce(&mut Config)) -> Arc<Config> {
        let mut guarded = self.config.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut guarded));
        Arc::clone(&guarded)
    }

    /// Counts a request that is the fault of its client, and logs it unless another one was logged within a second.
    pub(crate) fn bad_request(&self, peer: IpAddr, status: StatusCode, detail: &str) {
        let all = self.counts.bad_requests.fetch_add(1, Ordering::Relaxed) + 1;
        if self.bad_requests.may_be_logged() {
            let status = status.as_u16();
            tracing::info!(%peer, status, detail, all, "a bad request");
        }
    }

    #[must_use]
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

/// Log lines that a client can provoke: one a second.
#[derive(Debug)]
pub(crate) struct Complaints(Shared<Interval>);

impl Complaints {
    pub(crate) fn may_be_logged(&self) -> bool {
        self.0.try_acquire(1).is_pass()
    }
}

impl Default for Complaints {
    fn default() -> Self {
        Self(Shared::new(Interval::every(Duration::from_secs(1))))
    }
}
