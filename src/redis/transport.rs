//! The connection to a server or a cluster: what this folder needs of a client library, implemented with the `redis` crate.
//! No other file names that crate.

use core::any::Any;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

use super::error::Failure;
use super::health::ServerRun;

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
        let hash = || redis::Script::new(self.text).get_hash().to_owned();
        self.hash.get_or_init(hash)
    }
}

/// Opens connections to one server or one cluster.
#[derive(Clone)]
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
        // For example, `rustls` panics if it cannot choose between several crypto providers.
        let opened = unless_it_panics(self.open()).await;
        opened.unwrap_or_else(|why| {
            let why = format!("the client library panicked: {why}");
            Err(Failure::Unreachable(why.into()))
        })
    }

    async fn open(&self) -> Result<Transport, Failure> {
        match self {
            Self::Server(client) => open(client).await.map(Transport::Server),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(client) => {
                let connection = client.get_async_connection().await;
                connection
                    .map(Transport::Cluster)
                    .map_err(|error| failure(&error))
            }
        }
    }
}

async fn open(client: &Client) -> Result<MultiplexedConnection, Failure> {
    // The caller keeps both time limits.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    match connection.await {
        Ok(connection) => Ok(connection),
        Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
            Err(refusal(client, &config).await.unwrap_or(failure(&error)))
        }
        Err(error) => Err(failure(&error)),
    }
}

/// Why the server closes every new connection, if it has too many clients. Such a server writes an error before it reads anything.
/// The library takes the error for the reply to its own first command, ignores it, and then only sees the connection close.
async fn refusal(client: &Client, config: &AsyncConnectionConfig) -> Option<Failure> {
    // Without a login and the library's name, the first command is ours.
    let silent = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
    let server = client.get_connection_info().clone();
    let client = Client::open(server.set_redis_settings(silent)).ok()?;
    let connection = client.get_multiplexed_async_connection_with_config(config);
    let answer: RedisResult<()> = cmd("PING").query_async(&mut connection.await.ok()?).await;
    let failure = failure(&answer.err()?);
    matches!(failure, Failure::Unavailable(_)).then_some(failure)
}

/// The output of a future, or the message if it panics.
async fn unless_it_panics<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    // After a panic the future is not polled again, and dropped.
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(message(panic.as_ref()))),
        },
    )
    .await
}

fn message(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().copied();
    let text = || panic.downcast_ref::<String>().map(String::as_str);
    literal
        .or_else(text)
        .unwrap_or("it does not say why")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
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

#[cfg(test)]
mod tests {
    use core::future::ready;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error_with_its_message() {
        assert_eq!(unless_it_panics(ready(5)).await, Ok(5));
        let literal = async { panic!("no provider") };
        assert_eq!(
            unless_it_panics::<()>(literal).await,
            Err("no provider".into())
        );
        let formatted = async {
            tokio::task::yield_now().await;
            panic!("\n{} providers\n", 2)
        };
        assert_eq!(
            unless_it_panics::<()>(formatted).await,
            Err("2 providers".into())
        );
        let other = async { std::panic::panic_any(7) };
        assert_eq!(
            unless_it_panics::<()>(other).await,
            Err("it does not say why".into())
        );
    }
}
