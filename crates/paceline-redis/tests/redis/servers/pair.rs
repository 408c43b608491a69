use super::{Server, until};

/// Replication.
///
/// For a failover that loses writes: `catch_up_with` the master, `cut_off`, write to the master, `kill` it, `promote`.
impl Server {
    /// A replica of `master` with a full copy. It refuses writes.
    pub(crate) async fn start_replica_of(master: &Self) -> Self {
        let of = master.port().to_string();
        let replica = Self::start_with(&["--replicaof", "127.0.0.1", &of]).await;
        replica.catch_up_with(master).await;
        replica
    }

    /// Waits until the replica has everything the master has now.
    pub(crate) async fn catch_up_with(&self, master: &Self) {
        let goal = master.offset("master_repl_offset").await;
        until("a replica has caught up", async || {
            self.info("replication", "master_link_status").await == "up"
                && self.offset("slave_repl_offset").await >= goal
        })
        .await;
    }

    /// Stops replication. The server stays a replica, with the data it has.
    pub(crate) async fn cut_off(&self) {
        // No server listens on this port.
        self.cli::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    }

    /// Makes the replica a master, with the data it has.
    pub(crate) async fn promote(&self) {
        self.cli::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    }

    async fn offset(&self, name: &str) -> u64 {
        let offset = self.info("replication", name).await;
        let read = offset.parse();
        read.unwrap_or_else(|error| panic!("{name} is {offset:?}: {error}"))
    }
}
