use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use paceline::time::Tick;

/// Identifies a lease. Its name on the server is that of the queue and the number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LeaseId {
    pub(crate) number: u64,
    /// From 0.
    pub(crate) class: usize,
}

/// The most leases that one round trip renews, and the most that it releases.
const MAX_BATCH: usize = 500;

/// How often a release is tried. After that the lease expires by itself.
const RELEASE_ATTEMPTS: u32 = 3;

/// The leases in Redis that guards of this process hold, and those to be released.
///
/// Does no I/O: its methods are given the time.
///
/// The time of a lease starts *before* the call that granted or renewed it. So a holder knows that its lease has ended before
/// the server grants another.
#[derive(Debug)]
pub(super) struct LeaseTable {
    lease: Duration,
    entries: BTreeMap<LeaseId, LeaseEntry>,
    /// The leases that have not ended, by their start. All last equally long.
    running: BTreeSet<(Tick, LeaseId)>,
    releases: Vec<PendingRelease>,
    /// Redis may have forgotten every lease that was granted or renewed before this time.
    unconfirmed_before: Tick,
    /// Holders to notify after the lock is released: their lease is lost.
    pub(super) lost: Vec<Arc<Notify>>,
    /// Callers of `Lease::release` to notify after the lock is released.
    pub(super) released: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct LeaseEntry {
    /// `None` after the lease has ended by the local clock. Redis may still have it.
    since: Option<Tick>,
    lost: Arc<Notify>,
}

/// A lease without a guard that Redis may still have.
#[derive(Debug)]
pub(super) struct PendingRelease {
    pub(super) id: LeaseId,
    /// When the lease has ended in Redis too.
    until: Tick,
    attempts: u32,
    /// Completes a call of `Lease::release`.
    pub(super) done: Option<oneshot::Sender<()>>,
}

impl LeaseTable {
    pub(super) const fn new(lease: Duration) -> Self {
        Self {
            lease,
            entries: BTreeMap::new(),
            running: BTreeSet::new(),
            releases: Vec::new(),
            unconfirmed_before: Tick::ZERO,
            lost: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Whether there is no lease to renew or to release.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.releases.is_empty()
    }

    /// Adds a lease that was asked for at `sent`. Returns whether it has not ended since.
    pub(super) fn grant(&mut self, now: Tick, sent: Tick, id: LeaseId) -> bool {
        if now >= sent.after(self.lease) {
            self.queue_release(now, id, None);
            return false;
        }
        let entry = LeaseEntry {
            since: Some(sent),
            lost: Arc::default(),
        };
        self.entries.insert(id, entry);
        self.running.insert((sent, id));
        true
    }

    /// When the lease ends, and the notification in case it is lost before; `None` if it has ended.
    pub(super) fn end_of(&self, now: Tick, id: LeaseId) -> Option<(Tick, Arc<Notify>)> {
        let entry = self.entries.get(&id)?;
        let end = entry.since?.after(self.lease);
        (now < end).then(|| (end, Arc::clone(&entry.lost)))
    }

    /// When the first lease has to be renewed: after a third of its time, or at once if Redis may have forgotten it.
    pub(super) fn renewal(&self) -> Option<Tick> {
        let (since, _) = self.running.first()?;
        Some(if *since < self.unconfirmed_before {
            self.unconfirmed_before
        } else {
            since.after(self.lease / 3)
        })
    }

    /// Redis may have forgotten all leases: they have to be renewed now.
    pub(super) fn mark_unconfirmed(&mut self, now: Tick) {
        self.unconfirmed_before = now;
    }

    /// When the first lease ends, or the first pending release becomes pointless.
    pub(super) fn first_end(&self) -> Option<Tick> {
        let held = self
            .running
            .first()
            .map(|(since, _)| since.after(self.lease));
        let released = self.releases.iter().map(|release| release.until).min();
        held.into_iter().chain(released).min()
    }

    /// The leases past a sixth of their time: a due renewal takes along the leases due soon.
    pub(super) fn to_renew(&self, now: Tick) -> Vec<LeaseId> {
        let is_soon = |(since, _): &&(Tick, LeaseId)| {
            *since < self.unconfirmed_before || since.after(self.lease / 6) <= now
        };
        let running = self.running.iter().take_while(is_soon).take(MAX_BATCH);
        running.map(|(_, id)| *id).collect()
    }

    /// Applies the reply to a renewal that was sent at `sent`. A lease that Redis does not know is lost.
    pub(super) fn renewed(&mut self, now: Tick, sent: Tick, id: LeaseId, is_known: bool) {
        self.expire(now);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if !is_known {
            if let Some(since) = entry.since {
                self.running.remove(&(since, id));
                self.lost.push(Arc::clone(&entry.lost));
            }
            self.entries.remove(&id);
            return;
        }
        // A lease that was reported as lost stays lost.
        let Some(since) = &mut entry.since else {
            return;
        };
        self.running.remove(&(*since, id));
        *since = sent;
        self.running.insert((sent, id));
    }

    /// Ends leases and drops pending releases when their time is over by the local clock.
    pub(super) fn expire(&mut self, now: Tick) {
        while let Some((since, id)) = self.running.first().copied() {
            if now < since.after(self.lease) {
                break;
            }
            self.running.pop_first();
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.since = None;
                self.lost.push(Arc::clone(&entry.lost));
            }
        }
        self.releases
            .retain(|release| now < release.until && release.attempts < RELEASE_ATTEMPTS);
    }

    /// The guard is gone.
    pub(super) fn release(&mut self, now: Tick, id: LeaseId, done: Option<oneshot::Sender<()>>) {
        self.expire(now);
        let Some(entry) = self.entries.remove(&id) else {
            return self.released.extend(done);
        };
        if let Some(since) = entry.since {
            self.running.remove(&(since, id));
        }
        self.queue_release(now, id, done);
    }

    /// Redis may have a lease that has no guard here.
    pub(super) fn queue_release(
        &mut self,
        now: Tick,
        id: LeaseId,
        done: Option<oneshot::Sender<()>>,
    ) {
        self.releases.push(PendingRelease {
            id,
            until: now.after(self.lease),
            attempts: 0,
            done,
        });
    }

    pub(super) fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    pub(super) fn take_releases(&mut self) -> Vec<PendingRelease> {
        let count = self.releases.len().min(MAX_BATCH);
        self.releases.drain(..count).collect()
    }

    /// The releases may not have reached Redis. Each counts `attempts` more.
    pub(super) fn put_back(&mut self, mut releases: Vec<PendingRelease>, attempts: u32) {
        for release in &mut releases {
            release.attempts += attempts;
        }
        self.releases.splice(..0, releases);
    }

    /// The notifications of all holders.
    pub(super) fn holders(&self) -> Vec<Arc<Notify>> {
        let entries = self.entries.values();
        entries.map(|entry| Arc::clone(&entry.lost)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    const A: LeaseId = LeaseId {
        number: 1,
        class: 0,
    };

    const B: LeaseId = LeaseId { number: 2, ..A };

    const C: LeaseId = LeaseId { number: 3, ..A };

    fn lease_of_600_ms() -> LeaseTable {
        LeaseTable::new(Duration::from_millis(600))
    }

    /// A table with a lease that was asked for and granted at 0.
    fn with_a() -> LeaseTable {
        let mut table = lease_of_600_ms();
        assert!(table.grant(at(0), at(0), A));
        table
    }

    /// The only release is taken, and fails after so many attempts.
    fn release_fails(table: &mut LeaseTable, now: u64, tries: u32) {
        table.expire(at(now));
        let releases = table.take_releases();
        assert_eq!(releases.len(), 1);
        table.put_back(releases, tries);
    }

    fn end(table: &LeaseTable, now: u64, id: LeaseId) -> Option<Tick> {
        table.end_of(at(now), id).map(|(end, _)| end)
    }

    #[test]
    fn the_time_of_a_lease_starts_when_it_is_asked_for() {
        let mut table = lease_of_600_ms();
        assert!(table.grant(at(150), at(100), A));
        assert_eq!(end(&table, 699, A), Some(at(700)));
        assert_eq!(end(&table, 700, A), None);
    }

    #[test]
    fn a_lease_that_ends_before_its_grant_arrives_is_released() {
        let mut table = lease_of_600_ms();
        assert!(!table.grant(at(700), at(100), A));
        assert_eq!(table.take_releases()[0].id, A);
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_of_its_time_together_with_those_past_a_sixth() {
        let mut table = with_a();
        assert!(table.grant(at(100), at(100), B));
        assert!(table.grant(at(101), at(101), C));
        assert_eq!(table.renewal(), Some(at(200)));
        let due = table.to_renew(at(200));
        assert_eq!(due, [A, B]);

        for id in due {
            table.renewed(at(230), at(200), id, true);
        }
        assert_eq!(end(&table, 230, A), Some(at(800)));
        assert_eq!(table.renewal(), Some(at(301)));
    }

    #[test]
    fn all_leases_are_renewed_at_once_if_redis_may_have_forgotten_them() {
        let mut table = with_a();
        table.mark_unconfirmed(at(10));
        assert_eq!(table.renewal(), Some(at(10)));
        assert_eq!(table.to_renew(at(10)).len(), 1);
        table.renewed(at(12), at(10), A, true);
        assert_eq!(table.renewal(), Some(at(210)));
        assert_eq!(table.to_renew(at(12)), []);
    }

    #[test]
    fn a_lease_that_redis_forgot_is_lost_and_not_released() {
        let mut table = with_a();
        table.renewed(at(210), at(200), A, false);
        assert_eq!(end(&table, 210, A), None);
        assert_eq!(table.lost.len(), 1);
        table.release(at(220), A, None);
        assert!(table.is_idle());
        assert_eq!(table.lost.len(), 1);
    }

    #[test]
    fn a_lease_that_ended_here_stays_lost_even_if_a_renewal_arrives_later() {
        let mut table = with_a();
        // The renewal is sent in time, and its reply arrives too late.
        table.renewed(at(600), at(599), A, true);
        assert_eq!(end(&table, 600, A), None);
        assert_eq!(table.lost.len(), 1);
        assert_eq!(table.to_renew(at(900)), []);

        // Redis may have renewed the lease, so it is released when its guard is dropped, and not before.
        assert!(!table.has_releases());
        table.release(at(700), A, None);
        assert!(table.has_releases());
    }

    #[test]
    fn a_release_that_fails_is_tried_three_times() {
        let mut table = lease_of_600_ms();
        table.queue_release(at(0), A, None);
        for _ in 0..3 {
            release_fails(&mut table, 1, 1);
        }
        table.expire(at(1));
        assert!(!table.has_releases());
    }

    #[test]
    fn a_release_that_is_not_tried_is_dropped_when_the_lease_has_expired_in_redis() {
        let mut table = lease_of_600_ms();
        table.queue_release(at(0), A, None);
        for now in [100, 599] {
            release_fails(&mut table, now, 0);
        }
        table.expire(at(600));
        assert!(!table.has_releases());
    }
}
