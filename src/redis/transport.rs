//! The connection to a server or a cluster: what this folder needs of a client library, implemented with the `redis` crate.
//! No other file names that crate.

use std::sync::{Arc, OnceLock};

use redis::aio::MultiplexedConnection;
#[cfg(feature = "redis-cluster")]
use redis::cluster::{ClusterClient, ClusterClientBuilder};
#[cfg(feature = "redis-cluster")]
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult,
};
use redis::{ServerErrorKind as Server, cmd};

use crate::remote::{Failure, ServerRun};

/// The text of a script, and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    pub(super) const fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: OnceLock::new(),
        }
    }

    /// The hash under which a server caches the script.
    fn hash(&self) -> &str {
        self.hash.get_or_init(|| sha1(self.text))
    }
}

/// In 40 hexadecimal digits.
pub(super) fn sha1(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// Opens connections to one server or one cluster.
#[derive(Clone, Debug)]
pub(super) enum Connector {
    Server(Client),
    #[cfg(feature = "redis-cluster")]
    Cluster(Box<ClusterClient>),
}

impl Connector {
    /// For one server. It does not connect yet.
    pub(super) fn server(url: &str) -> RedisResult<Self> {
        let server = url
            .into_connection_info()?
            .set_tcp_settings(without_delay());
        Client::open(server).map(Self::Server)
    }

    /// For a cluster. It does not connect yet.
    #[cfg(feature = "redis-cluster")]
    pub(super) fn cluster(urls: &[&str]) -> RedisResult<Self> {
        // With retries the library would also repeat calls that a node may have run.
        let client = ClusterClientBuilder::new(urls.iter().copied())
            .retries(0)
            .tcp_settings(without_delay());
        Ok(Self::Cluster(Box::new(client.build()?)))
    }

    /// Opens a new connection. The caller sets the time limit.
    pub(super) async fn connect(&self) -> Result<Transport, Failure> {
        let connection = match self {
            Self::Server(client) => {
                // The caller keeps both time limits.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None);
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                connection.await.map(Transport::Server)
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(client) => client.get_async_connection().await.map(Transport::Cluster),
        };
        connection.map_err(|error| failure(&error))
    }
}

/// Requests are small and frequent. With Nagle's algorithm a request can wait 40 ms for the acknowledgement of the one before.
fn without_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// An open connection that concurrent calls share.
///
/// If the future of a call is dropped, the server may or may not have run the script.
pub(super) enum Transport {
    Server(MultiplexedConnection),
    #[cfg(feature = "redis-cluster")]
    Cluster(ClusterConnection),
}

/// How often a call is repeated after a reply that proves that it did not run: the script is unknown, or the key has moved.
const RETRIES: usize = 3;

impl Transport {
    /// Runs a script once, by its hash, and by its text if the server does not know the hash. A call that the server may have run
    /// is never repeated. The reply starts with the server's time.
    pub(super) async fn run_script(
        &self,
        script: &Script,
        keys: &[String],
        args: &[String],
    ) -> Result<Vec<i64>, Failure> {
        let call = |command, script| {
            let mut call = cmd(command);
            call.arg(script).arg(keys.len()).arg(keys).arg(args);
            call
        };
        let mut answer = self.query(&call("EVALSHA", script.hash())).await;
        for _ in 0..RETRIES {
            let Err(error) = &answer else { break };
            let again = match error.kind() {
                ErrorKind::Server(Server::NoScript) => call("EVAL", script.text),
                // The cluster connection has already updated its map of slots.
                ErrorKind::Server(Server::Moved | Server::Ask) => call("EVALSHA", script.hash()),
                _ => break,
            };
            answer = self.query(&again).await;
        }
        answer.map_err(|error| failure(&error))
    }

    /// Loads scripts into the server's cache, and does not wait. If the server refuses, or is a cluster, the first call with a
    /// script sends the text.
    pub(super) fn load(&self, scripts: [&'static Script; 2]) {
        let Self::Server(connection) = self else {
            return;
        };
        let mut connection = connection.clone();
        tokio::spawn(async move {
            for script in scripts {
                let mut load = cmd("SCRIPT");
                load.arg("LOAD").arg(script.text);
                let _: RedisResult<String> = load.query_async(&mut connection).await;
            }
        });
    }

    /// The server's clock in microseconds since 1970.
    pub(super) async fn server_time(&self) -> Result<u64, Failure> {
        let time: RedisResult<(u64, u64)> = self.query(&cmd("TIME")).await;
        let (seconds, micros) = time.map_err(|error| failure(&error))?;
        Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }

    /// Identifies the server process. `None` for a cluster, where each node has its own, and if the server does not say.
    pub(super) async fn server_run(&self) -> Option<ServerRun> {
        if !matches!(self, Self::Server(_)) {
            return None;
        }
        let info: RedisResult<String> = self.query(cmd("INFO").arg("server")).await;
        run_in(&info.ok()?)
    }

    async fn query<T: FromRedisValue>(&self, cmd: &Cmd) -> RedisResult<T> {
        match self {
            Self::Server(connection) => cmd.query_async(&mut connection.clone()).await,
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => cmd.query_async(&mut connection.clone()).await,
        }
    }
}

/// Reads the reply to `INFO`.
fn run_in(info: &str) -> Option<ServerRun> {
    let field = |name| {
        info.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    Some(ServerRun {
        id: field("run_id:")?.into(),
        uptime: field("uptime_in_seconds:")?.parse().ok()?,
    })
}

/// Error codes of a server that cannot serve now and may serve later, for which the library has no names.
const UNAVAILABLE: [&str; 7] = [
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "UNBLOCKED",
    "NOGOODSLAVE",
    "NOQUORUM",
];

fn failure(error: &RedisError) -> Failure {
    let why = Arc::from(error.to_string());
    match error.kind() {
        ErrorKind::Server(
            Server::BusyLoading
            | Server::ClusterDown
            | Server::MasterDown
            | Server::ReadOnly
            | Server::TryAgain
            | Server::Moved
            | Server::Ask,
        ) => Failure::Unavailable(why),
        _ if error.code().is_some_and(|code| UNAVAILABLE.contains(&code)) => {
            Failure::Unavailable(why)
        }
        // This one has no code of its own.
        ErrorKind::Server(Server::ResponseError) if why.contains("max number of clients") => {
            Failure::Unavailable(why)
        }
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound if error.is_timeout() => {
            Failure::Timeout
        }
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => Failure::Unreachable(why),
        _ if error.is_io_error() => Failure::Unreachable(why),
        _ => Failure::Fault(why),
    }
}
