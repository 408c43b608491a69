//! The redis crate behind [`Store`] and [`Link`]. Nothing else here knows of it.

use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, Value,
};
use redis::{ServerErrorKind as Server, cmd};

use super::link::{Arg, Boxed, Call, Failure, Hello, Link, Run, Store};

/// One server.
#[derive(Debug)]
pub(super) struct One {
    client: Client,
}

impl One {
    /// Does not connect.
    pub(super) fn new(url: &str) -> RedisResult<Self> {
        let server = url.into_connection_info()?.set_tcp_settings(at_once());
        Client::open(server).map(|client| Self { client })
    }
}

/// Questions are small and many. Held back for others to fill up a packet, one would wait for as long as 40 ms, until the server
/// acknowledges the one before.
fn at_once() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

impl Store for One {
    fn connect(&self) -> Boxed<'_, Arc<dyn Link>> {
        Box::pin(async {
            // Both times are kept by whoever calls.
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| failure(&error))?;
            Ok(Arc::new(OpenOne { connection }) as Arc<dyn Link>)
        })
    }
}

struct OpenOne {
    connection: MultiplexedConnection,
}

impl Link for OpenOne {
    fn call<'a>(&'a self, call: &'a Call) -> Boxed<'a, Vec<i64>> {
        Box::pin(run(self.connection.clone(), call))
    }

    fn hello(&self) -> Boxed<'_, Hello> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let time = time_of(&mut connection).await?;
            // A server that does not tell is one that may have been started anew.
            let info: RedisResult<String> =
                cmd("INFO").arg("server").query_async(&mut connection).await;
            Ok(Hello {
                run: info.ok().as_deref().and_then(run_of),
                time,
            })
        })
    }
}

#[cfg(feature = "redis-cluster")]
pub(super) use cluster::Many;

#[cfg(feature = "redis-cluster")]
mod cluster {
    use redis::cluster::{ClusterClient, ClusterClientBuilder};
    use redis::cluster_async::ClusterConnection;

    use super::{
        Arc, Boxed, Call, Hello, Link, RedisResult, Store, at_once, failure, run, time_of,
    };

    /// A cluster.
    pub(in crate::redis) struct Many {
        client: ClusterClient,
    }

    impl Many {
        /// Does not connect.
        pub(in crate::redis) fn new(urls: &[&str]) -> RedisResult<Self> {
            // The library would also try again what may have been carried out.
            let client = ClusterClientBuilder::new(urls.iter().copied())
                .retries(0)
                .tcp_settings(at_once())
                .build()?;
            Ok(Self { client })
        }
    }

    impl std::fmt::Debug for Many {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Many").finish_non_exhaustive()
        }
    }

    impl Store for Many {
        fn connect(&self) -> Boxed<'_, Arc<dyn Link>> {
            Box::pin(async {
                let connection = self
                    .client
                    .get_async_connection()
                    .await
                    .map_err(|error| failure(&error))?;
                Ok(Arc::new(OpenMany { connection }) as Arc<dyn Link>)
            })
        }
    }

    struct OpenMany {
        connection: ClusterConnection,
    }

    impl Link for OpenMany {
        fn call<'a>(&'a self, call: &'a Call) -> Boxed<'a, Vec<i64>> {
            Box::pin(run(self.connection.clone(), call))
        }

        fn hello(&self) -> Boxed<'_, Hello> {
            let mut connection = self.connection.clone();
            Box::pin(async move {
                let time = time_of(&mut connection).await?;
                Ok(Hello { run: None, time })
            })
        }
    }
}

/// How often it is tried again where a server said that it did nothing: the script is unknown, the key elsewhere, or both.
const TRIES: usize = 3;

/// By its hash, and by its text where the server does not know it.
async fn run(mut connection: impl ConnectionLike, call: &Call) -> Result<Vec<i64>, Failure> {
    let hash = call
        .script
        .hash(|text| redis::Script::new(text).get_hash().to_owned());
    let mut answer = packed("EVALSHA", hash, call)
        .query_async(&mut connection)
        .await;
    for _ in 0..TRIES {
        let Err(error) = &answer else { break };
        answer = match error.kind() {
            ErrorKind::Server(Server::NoScript) => packed("EVAL", call.script.text(), call),
            // A cluster's connection has learnt meanwhile where the key is now.
            ErrorKind::Server(Server::Moved | Server::Ask) => packed("EVALSHA", hash, call),
            _ => break,
        }
        .query_async(&mut connection)
        .await;
    }
    answer.map_err(|error| failure(&error))
}

fn packed(command: &str, script: &str, call: &Call) -> Cmd {
    let mut cmd = cmd(command);
    cmd.arg(script).arg(call.keys.len()).arg(&*call.keys);
    for arg in &call.args {
        match arg {
            Arg::Number(number) => cmd.arg(number),
            Arg::Text(text) => cmd.arg(&**text),
        };
    }
    cmd
}

async fn time_of(connection: &mut impl ConnectionLike) -> Result<u64, Failure> {
    let time: Value = cmd("TIME")
        .query_async(connection)
        .await
        .map_err(|error| failure(&error))?;
    let (seconds, micros) =
        <(u64, u64)>::from_redis_value(time).map_err(|error| failure(&error.into()))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// What `INFO` tells of the run of the server.
fn run_of(info: &str) -> Option<Run> {
    let field = |name| {
        info.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    Some(Run {
        id: field("run_id:")?.to_owned(),
        uptime: field("uptime_in_seconds:")?.parse().ok()?,
    })
}

/// Codes of a server that cannot serve, and may again: what it is asked is not at fault. The library has no names for them.
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
        // It has no code of its own.
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
