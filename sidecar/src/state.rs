//! What all requests, connections and the admin port share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use paceline::shed::CgroupError;
use tokio::time::Instant;

use crate::config::{Config, Source};
use crate::proxy::{Gate, Limit, Times};

/// One sidecar: its configuration, its limit, its counts.
#[derive(Debug)]
pub struct Sidecar {
    config: RwLock<Arc<Config>>,
    /// Where a reload reads the configuration.
    pub source: Arc<Source>,
    pub limit: Limit,
    gate: RwLock<Arc<Gate>>,
    pub counts: Counts,
    pub times: Times,
    pub started: Instant,
    /// Whether SIGTERM came: `/readyz` says 503.
    pub is_draining: AtomicBool,
}

/// Counts of the process. What is counted by client is in the limit.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections of clients now, upgraded ones included.
    pub connections: AtomicUsize,
    /// Connections closed at once, since there were too many.
    pub connections_refused: AtomicU64,
    /// Connections and streams cut, since the client was silent or read nothing for too long.
    pub connections_late: AtomicU64,
    pub refused: AtomicU64,
    pub anonymous: AtomicU64,
    pub bad_requests: AtomicU64,
    /// Refused with 503: too many requests under way, or shed.
    pub shed: AtomicU64,
    pub upstream_failed: AtomicU64,
    pub upstream_late: AtomicU64,
    pub retried: AtomicU64,
    pub reloads: AtomicU64,
    pub reloads_refused: AtomicU64,
}

impl Sidecar {
    /// # Errors
    ///
    /// If it is to shed by the processor time of its cgroup, and cannot read that.
    #[expect(
        clippy::disallowed_methods,
        reason = "the start of the process is no wait"
    )]
    pub fn new(config: Config, source: Source) -> Result<Self, CgroupError> {
        Ok(Self {
            limit: Limit::new(&config),
            gate: RwLock::new(Arc::new(Gate::new(&config)?)),
            times: Times::default(),
            config: RwLock::new(Arc::new(config)),
            source: Arc::new(source),
            counts: Counts::default(),
            started: Instant::now(),
            is_draining: AtomicBool::new(false),
        })
    }

    /// What protects the upstream. A request takes it once.
    #[must_use]
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration of now. A request reads it once.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        let config = self.config.read();
        Arc::clone(&config.unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration, after a reload.
    pub fn set_config(&self, config: Config) {
        let mut guarded = self.config.write().unwrap_or_else(PoisonError::into_inner);
        self.limit.retune(&config);
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        match gate.changed(&guarded, &config) {
            Ok(changed) => *gate = Arc::new(changed),
            Err(error) => tracing::error!(%error, "the shedder stays as it was"),
        }
        *guarded = Arc::new(config);
    }

    /// Changes a part of the configuration, and returns what holds now.
    pub fn change_config(&self, change: impl FnOnce(&mut Config)) -> Arc<Config> {
        let mut guarded = self.config.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut guarded));
        Arc::clone(&guarded)
    }

    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}
