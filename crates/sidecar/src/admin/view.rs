//! What operators see of the share: the cycle and its clients.

use std::time::Duration;

use paceline::limiter::{ClientShare, Share};
use serde::{Deserialize, Serialize};

use crate::config::{Config, Mode};
use crate::proxy::{Cycle, Limit};
use crate::state::Sidecar;

/// The clients of an event. The live page has no room for more.
const BUSIEST: usize = 50;

/// All clients beyond the largest number of clients. The space makes sure that no client has this id.
const OTHERS: &str = "(other clients)";

/// The share at one instant.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct View {
    /// How many cycles were before this one.
    pub(super) cycle: u64,
    /// How long the cycle lasts, and how much of it is over.
    pub(super) cycle_ms: u64,
    pub(super) elapsed_ms: u64,
    pub(super) capacity: u32,
    pub(super) mode: Mode,
    /// The part of the clients for which the share is enforced, in percent.
    pub(super) enforced: f64,
    pub(super) is_draining: bool,
    /// The number of clients that are known, and their sums. `clients` may have fewer.
    pub(super) known: usize,
    pub(super) sums: Sums,
    pub(crate) clients: Vec<ClientView>,
}

/// The sums over all clients.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Sums {
    size: u64,
    demand: u64,
    used: u64,
    refused: u64,
    lent: u64,
    borrowed: u64,
    waiting: u64,
}

/// One client in it. Counts are requests.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ClientView {
    pub(crate) client: String,
    /// What it may pass in this cycle.
    pub(crate) size: u32,
    /// What it attempted in the last cycle.
    pub(super) demand: u32,
    /// Permits passed and refused in this cycle.
    pub(crate) used: u32,
    pub(crate) refused: u64,
    pub(super) lent: u32,
    pub(super) borrowed: u32,
    pub(super) waiting: u64,
    /// Permits passed and refused since the client came.
    pub(super) passed_total: u64,
    pub(super) refused_total: u64,
}

impl View {
    pub(super) fn of(sidecar: &Sidecar) -> Self {
        let config = sidecar.config();
        let (cycle, clients) = read(&sidecar.limit, &config);
        Self {
            cycle: cycle.number,
            cycle_ms: millis(cycle.began_ago + cycle.ends_in),
            elapsed_ms: millis(cycle.began_ago),
            capacity: config.fair.capacity,
            mode: config.mode,
            enforced: percent(config.enforced),
            is_draining: sidecar.is_draining(),
            known: clients.len(),
            sums: Sums::of(&clients),
            clients,
        }
    }

    /// The time until the next cycle.
    pub(crate) fn until_next(&self) -> Duration {
        Duration::from_millis(self.cycle_ms.saturating_sub(self.elapsed_ms))
    }

    /// The same with the busiest clients only, busiest first.
    pub(super) fn of_the_busiest(mut self) -> Self {
        let business = |client: &ClientView| {
            let attempted = u64::from(client.used) + client.refused + client.waiting;
            attempted.max(u64::from(client.demand))
        };
        let clients = &mut self.clients;
        clients.sort_by(|a, b| (business(b), &a.client).cmp(&(business(a), &b.client)));
        clients.truncate(BUSIEST);
        self
    }
}

/// The cycle and the shares of its clients. The limit is locked twice, and a cycle may begin in between.
fn read(limit: &Limit, config: &Config) -> (Cycle, Vec<ClientView>) {
    let mut cycle = limit.cycle(config);
    let mut shares = limit.shares(config);
    let after = limit.cycle(config);
    if after.number != cycle.number {
        (cycle, shares) = (after, limit.shares(config));
    }
    (cycle, shares.into_iter().map(ClientView::from).collect())
}

/// Of ten thousandths, which a configuration may have.
pub(super) fn percent(share: Share) -> f64 {
    f64::from(share.ten_thousandths()) / 100.0
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<ClientShare<String>> for ClientView {
    fn from(share: ClientShare<String>) -> Self {
        Self {
            client: share.key.unwrap_or_else(|| OTHERS.to_owned()),
            size: share.size,
            demand: share.demand,
            used: share.used,
            refused: share.refused,
            lent: share.lent,
            borrowed: share.borrowed,
            waiting: share.waiting,
            passed_total: share.requests_passed,
            refused_total: share.requests_refused,
        }
    }
}

impl Sums {
    fn of(clients: &[ClientView]) -> Self {
        let mut sums = Self::default();
        for client in clients {
            sums.size += u64::from(client.size);
            sums.demand += u64::from(client.demand);
            sums.used += u64::from(client.used);
            sums.refused += client.refused;
            sums.lent += u64::from(client.lent);
            sums.borrowed += u64::from(client.borrowed);
            sums.waiting += client.waiting;
        }
        sums
    }
}
