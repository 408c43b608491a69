//! Places for connections: as many as the settings and the descriptors of the process allow.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admin;
use crate::config::Config;
use crate::state::Sidecar;

/// Descriptors for listeners, files and connections that are about to close, and those of each thread.
const PROCESS: usize = 32;
const THREAD: usize = 4;

/// The places of one sidecar.
#[derive(Debug)]
pub(crate) struct Places {
    /// The connections of clients for which there are descriptors.
    most: usize,
    /// The same for the admin port, at most an eighth of all descriptors.
    pub(crate) admin: usize,
    /// Requests that may come now: one for each connection of HTTP/1, and the streams of HTTP/2.
    requests: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, u32>>,
}

impl Places {
    /// Raises the limit of open files as far as it goes, and derives the places from it. Shells and service managers start processes
    /// with a limit of 1,024, for programs that use `select`.
    pub(crate) fn new(config: &Config) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
        let files = getrlimit(Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |files| files.try_into().unwrap_or(usize::MAX));
        let admin = (files / 8).clamp(1, admin::CONNECTIONS);
        // A connection to the service for each client, and idle ones of threads that have no clients now.
        let sides = 1 + config.cores;
        let most = files.saturating_sub(PROCESS + THREAD * config.cores + admin) / sides;
        let most = most.max(1);
        let wanted = config.bounds.connections;
        if most < wanted {
            tracing::warn!(
                files,
                "max-connections is {most} and not {wanted}: there are too few open files for more"
            );
        }
        Self {
            most,
            admin,
            requests: AtomicUsize::new(0),
            by_address: Mutex::default(),
        }
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Full {
    All,
    Address,
}

/// The place of a connection, also of an upgraded one, or of a stream of HTTP/2. It is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    sidecar: Arc<Sidecar>,
    /// The address of a connection.
    address: Option<IpAddr>,
    has_request: bool,
}

impl Place {
    pub(super) fn of_connection(sidecar: &Arc<Sidecar>, address: IpAddr) -> Result<Self, Full> {
        Self::take(sidecar, Some(network(address)))
    }

    /// A request over HTTP/2 needs what one over a connection of its own does.
    pub(super) fn of_stream(sidecar: &Arc<Sidecar>) -> Result<Self, Full> {
        Self::take(sidecar, None)
    }

    fn take(sidecar: &Arc<Sidecar>, address: Option<IpAddr>) -> Result<Self, Full> {
        let Sidecar { counts, places, .. } = &**sidecar;
        let mut before = places.requests.fetch_add(1, Relaxed);
        let mut of_address = 0;
        if let Some(address) = address {
            before = before.max(counts.connections.fetch_add(1, Relaxed));
            let mut by_address = places.by_address();
            let count = by_address.entry(address).or_default();
            *count += 1;
            of_address = *count;
        }
        let place = Self {
            sidecar: Arc::clone(sidecar),
            address,
            has_request: true,
        };
        let bounds = &sidecar.config().bounds;
        if before >= bounds.connections.min(places.most) {
            Err(Full::All)
        } else if bounds.of_address.is_some_and(|most| of_address > most) {
            Err(Full::Address)
        } else {
            Ok(place)
        }
    }

    /// The connection speaks HTTP/2: its streams take places for their requests.
    pub(super) fn has_streams(&mut self) {
        self.has_request = false;
        self.sidecar.places.requests.fetch_sub(1, Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Sidecar { counts, places, .. } = &*self.sidecar;
        if self.has_request {
            places.requests.fetch_sub(1, Relaxed);
        }
        let Some(address) = self.address else { return };
        counts.connections.fetch_sub(1, Relaxed);
        let mut by_address = places.by_address();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// One client has a whole /64 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}
