use redis::cmd;

use super::{Server, until};

const SLOTS: u16 = 16_384;
const MASTERS: u16 = 3;

/// Three masters that share all slots evenly, in order.
///
/// A cluster takes two seconds to start: a master waits that long before it reports the cluster as up.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let (a, b, c) = tokio::join!(node(), node(), node());
        let cluster = Self {
            nodes: vec![a, b, c],
        };
        for (number, slots) in shares().enumerate() {
            let node = &cluster.nodes[number];
            let mut add = cmd("CLUSTER");
            add.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>());
            node.command::<()>(&add).await;
            // Of nodes with equal epochs the old owner of a slot that was moved may take it back.
            let epoch = (number + 1).to_string();
            let set_epoch = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            node.cli::<()>(&set_epoch).await;
            let meet = ["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()];
            cluster.nodes[0].cli::<()>(&meet).await;
        }
        cluster.is_well().await;
        cluster
    }

    /// The URLs of all nodes.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub(crate) fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The node that owns this key in the initial layout.
    pub(crate) async fn owner_of(&mut self, key: &str) -> &mut Server {
        let slot: u16 = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]).await;
        let owner = shares().position(|slots| slots.contains(&slot));
        &mut self.nodes[owner.expect("every slot has an owner")]
    }

    /// Waits until every node knows every other node and all slots.
    pub(crate) async fn is_well(&self) {
        for node in &self.nodes {
            until("a cluster is well", async || sees_all(node).await).await;
        }
    }
}

async fn node() -> Server {
    Server::start_with(&[
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
        // Long enough for a busy machine. The cluster is up after two seconds, whatever this value is.
        "--cluster-node-timeout",
        "2000",
    ])
    .await
}

/// The slots of each node.
fn shares() -> impl Iterator<Item = std::ops::Range<u16>> {
    let edge = |node: u16| node * (SLOTS / MASTERS) + node.min(SLOTS % MASTERS);
    (0..MASTERS).map(move |node| edge(node)..edge(node + 1))
}

async fn sees_all(node: &Server) -> bool {
    let info: String = node.cli(&["CLUSTER", "INFO"]).await;
    let expected = [
        "cluster_state:ok".to_owned(),
        format!("cluster_slots_ok:{SLOTS}"),
        format!("cluster_known_nodes:{MASTERS}"),
        format!("cluster_size:{MASTERS}"),
    ];
    expected
        .iter()
        .all(|line| info.lines().any(|present| present == line))
}
