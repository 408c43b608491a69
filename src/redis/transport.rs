//! The connection to a server or a cluster: what this folder needs of a client library, implemented with the `redis` crate.
//! No other file names that crate.

use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, Value,
};
use redis::{ServerErrorKind as Server, cmd};

use super::error::Failure;
use super::scripts::Script;

/// Opens connections to one server or one cluster.
pub(super) trait Connector: Send + Sync {
    /// Opens a new connection. The caller sets the time limit.
    fn connect(&self) -> Boxed<'_, Arc<dyn Transport>>;
}

/// An open connection that concurrent calls share.
///
/// If the future of a call is dropped, the server may or may not have run the script.
pub(super) trait Transport: Send + Sync {
    /// Runs a script once. A call that the server may have run is never repeated. The reply starts with the server's time.
    fn run_script<'a>(&'a self, call: &'a ScriptCall) -> Boxed<'a, Vec<i64>>;

    /// The server's clock in microseconds since 1970.
    fn server_time(&self) -> Boxed<'_, u64>;

    /// Identifies the server process. `None` for a cluster, and if the server does not say.
    fn server_run(&self) -> Boxed<'_, Option<ServerRun>>;
}

pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) script: &'static Script,
    pub(super) keys: Arc<[String]>,
    pub(super) args: Vec<Arg>,
}

/// One argument of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Arg {
    Number(u64),
    Word(&'static str),
    Text(Arc<str>),
}

impl Arg {
    pub(super) fn number(number: impl Into<u64>) -> Self {
        Self::Number(number.into())
    }
}

/// One server process, from its start to its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ServerRun {
    pub(super) id: String,
    /// In whole seconds.
    pub(super) uptime: u64,
}

/// A connector for one server. It does not connect yet.
pub(super) fn single_server(url: &str) -> RedisResult<Arc<dyn Connector>> {
    let server = url
        .into_connection_info()?
        .set_tcp_settings(without_delay());
    Ok(Arc::new(Client::open(server)?))
}

/// A connector for a cluster. It does not connect yet.
#[cfg(feature = "redis-cluster")]
pub(super) fn cluster(urls: &[&str]) -> RedisResult<Arc<dyn Connector>> {
    // With retries the library would also repeat calls that a node may have run.
    let client = redis::cluster::ClusterClientBuilder::new(urls.iter().copied())
        .retries(0)
        .tcp_settings(without_delay())
        .build()?;
    Ok(Arc::new(client))
}

/// Requests are small and frequent. With Nagle's algorithm a request can wait 40 ms for the acknowledgement of the one before.
fn without_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

impl Connector for Client {
    fn connect(&self) -> Boxed<'_, Arc<dyn Transport>> {
        Box::pin(async {
            // The caller keeps both time limits.
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let connection = self
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| failure(&error))?;
            Ok(Arc::new(connection) as Arc<dyn Transport>)
        })
    }
}

impl Transport for MultiplexedConnection {
    fn run_script<'a>(&'a self, call: &'a ScriptCall) -> Boxed<'a, Vec<i64>> {
        Box::pin(run_on(self.clone(), call))
    }

    fn server_time(&self) -> Boxed<'_, u64> {
        Box::pin(time_of(self.clone()))
    }

    fn server_run(&self) -> Boxed<'_, Option<ServerRun>> {
        let mut connection = self.clone();
        Box::pin(async move {
            let info = cmd("INFO").arg("server").query_async(&mut connection).await;
            info.map(|info: String| run_in(&info))
                .map_err(|error| failure(&error))
        })
    }
}

#[cfg(feature = "redis-cluster")]
impl Connector for redis::cluster::ClusterClient {
    fn connect(&self) -> Boxed<'_, Arc<dyn Transport>> {
        Box::pin(async {
            let connection = self
                .get_async_connection()
                .await
                .map_err(|error| failure(&error))?;
            Ok(Arc::new(connection) as Arc<dyn Transport>)
        })
    }
}

#[cfg(feature = "redis-cluster")]
impl Transport for redis::cluster_async::ClusterConnection {
    fn run_script<'a>(&'a self, call: &'a ScriptCall) -> Boxed<'a, Vec<i64>> {
        Box::pin(run_on(self.clone(), call))
    }

    fn server_time(&self) -> Boxed<'_, u64> {
        Box::pin(time_of(self.clone()))
    }

    /// Each node has its own.
    fn server_run(&self) -> Boxed<'_, Option<ServerRun>> {
        Box::pin(async { Ok(None) })
    }
}

/// How often a call is repeated after a reply that proves that it did not run: the script is unknown, or the key has moved.
const RETRIES: usize = 3;

/// Runs a script by its hash, and by its text if the server does not know the hash.
async fn run_on(
    mut connection: impl ConnectionLike,
    call: &ScriptCall,
) -> Result<Vec<i64>, Failure> {
    let hash = call
        .script
        .hash(|text| redis::Script::new(text).get_hash().to_owned());
    let mut answer = packed("EVALSHA", hash, call)
        .query_async(&mut connection)
        .await;
    for _ in 0..RETRIES {
        let Err(error) = &answer else { break };
        answer = match error.kind() {
            ErrorKind::Server(Server::NoScript) => packed("EVAL", call.script.text(), call),
            // The cluster connection has already updated its map of slots.
            ErrorKind::Server(Server::Moved | Server::Ask) => packed("EVALSHA", hash, call),
            _ => break,
        }
        .query_async(&mut connection)
        .await;
    }
    answer.map_err(|error| failure(&error))
}

fn packed(command: &str, script: &str, call: &ScriptCall) -> Cmd {
    let mut cmd = cmd(command);
    cmd.arg(script).arg(call.keys.len()).arg(&*call.keys);
    for arg in &call.args {
        match arg {
            Arg::Number(number) => cmd.arg(number),
            Arg::Word(word) => cmd.arg(word),
            Arg::Text(text) => cmd.arg(&**text),
        };
    }
    cmd
}

async fn time_of(mut connection: impl ConnectionLike) -> Result<u64, Failure> {
    let time: Value = cmd("TIME")
        .query_async(&mut connection)
        .await
        .map_err(|error| failure(&error))?;
    let (seconds, micros) =
        <(u64, u64)>::from_redis_value(time).map_err(|error| failure(&error.into()))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// Reads the reply to `INFO`.
fn run_in(info: &str) -> Option<ServerRun> {
    let field = |name| {
        info.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    Some(ServerRun {
        id: field("run_id:")?.to_owned(),
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
