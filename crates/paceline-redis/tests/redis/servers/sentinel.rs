use std::collections::HashMap;

use super::{Server, until};

/// The name of every master that a sentinel watches.
pub(crate) const MASTER: &str = "mymaster";

/// Sentinel.
impl Server {
    /// A sentinel that watches the master on this port, and fails over without asking others.
    pub(crate) async fn start_sentinel_of(port: u16) -> Self {
        let sentinel = Self::start_with(&["--sentinel"]).await;
        let port = port.to_string();
        let watched = ["SENTINEL", "MONITOR", MASTER, "127.0.0.1", &port, "1"];
        sentinel.cli::<()>(&watched).await;
        // A failover that finds no replica fit is tried again after twice this time.
        sentinel.set_of_master("failover-timeout", "1000").await;
        // By default it asks replicas each ten seconds, and demotes an old master after eight. Redis 6 has no choice.
        let mut often = redis::cmd("SENTINEL");
        often.arg(&["DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "100"]);
        let _ = sentinel.try_command::<()>(&often).await;
        sentinel
    }

    pub(crate) async fn set_of_master(&self, option: &str, value: &str) {
        let set = ["SENTINEL", "SET", MASTER, option, value];
        self.cli::<()>(&set).await;
    }

    /// Waits until the sentinel knows that many replicas.
    pub(crate) async fn knows_replicas(&self, count: usize) {
        until("a sentinel knows the replicas", async || {
            let master: HashMap<String, String> = self.cli(&["SENTINEL", "MASTER", MASTER]).await;
            master["num-slaves"] == count.to_string()
        })
        .await;
    }

    /// Has the sentinel promote a replica, and waits until it names that one.
    pub(crate) async fn fail_over_to(&self, replica: &Self) {
        let mut start = redis::cmd("SENTINEL");
        start.arg("FAILOVER").arg(MASTER);
        // It is refused until the sentinel has heard from the replica.
        until("a failover starts", async || {
            self.try_command::<()>(&start).await.is_ok()
        })
        .await;
        until("a sentinel names another master", async || {
            let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
            let (_, port): (String, u16) = self.cli(&ask).await;
            port == replica.port()
        })
        .await;
    }
}
