//! The connection to a server or a cluster: what this folder needs of a client library, implemented with the `redis` crate.
//! Only this file and `connector.rs` name that crate.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
#[cfg(feature = "cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ToRedisArgs};
use redis::{ServerErrorKind as Server, cmd};

use crate::remote::{Failure, ServerRun};

/// The text of a script, and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    /// A server caches the script under this.
    hash: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        let hash = sha1(text);
        Self { text, hash }
    }
}

/// In 40 hexadecimal digits.
pub(super) fn sha1(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// An open connection that concurrent calls share.
///
/// If the future of a call is dropped, the server may or may not have run the script.
pub(super) enum Transport {
    Server(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
}

/// How often a call is repeated after a reply that proves that it did not run: the script is unknown, or the key has moved.
const RETRIES: usize = 3;

impl Transport {
    /// Runs a script once, by its hash, and by its text if the server does not know the hash. A call that the server may have run
    /// is never repeated. The reply starts with the server's time.
    pub(super) async fn run_script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[impl AsRef<str>],
        args: impl ToRedisArgs,
    ) -> Result<T, Failure> {
        let call = |command: &str, script: &str| {
            // About what a decision takes for each key, so that the buffers do not grow.
            let mut call = Cmd::with_capacity(keys.len() + 5, 128 + 160 * keys.len());
            call.arg(command).arg(script).arg(keys.len());
            for key in keys {
                call.arg(key.as_ref());
            }
            call.arg(&args);
            call
        };
        let mut answer = self.query(&call("EVALSHA", &script.hash)).await;
        for _ in 0..RETRIES {
            let Err(error) = &answer else { break };
            let again = match error.kind() {
                ErrorKind::Server(Server::NoScript) => call("EVAL", script.text),
                // The cluster connection has already updated its map of slots.
                ErrorKind::Server(Server::Moved | Server::Ask) => call("EVALSHA", &script.hash),
                _ => break,
            };
            answer = self.query(&again).await;
        }
        Ok(answer?)
    }

    /// Loads scripts into the server's cache, and does not wait. If the server refuses, or is a cluster, the first call with a
    /// script sends the text.
    pub(super) fn load(&self, scripts: [&'static Script; 2]) {
        let mut connection = match self {
            Self::Server(connection) => connection.clone(),
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => return,
        };
        tokio::spawn(async move {
            for script in scripts {
                let mut load = cmd("SCRIPT");
                load.arg("LOAD").arg(script.text);
                let _: RedisResult<String> = load.query_async(&mut connection).await;
            }
        });
    }

    /// Whether it is a server, and not a cluster.
    pub(super) const fn is_one_server(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// The server's clock in microseconds since 1970.
    pub(super) async fn server_time(&self) -> Result<u64, Failure> {
        let (seconds, micros): (u64, u64) = self.query(&cmd("TIME")).await?;
        Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }

    /// Identifies the server process. `None` for a cluster, where each node has its own, and if the server does not say.
    pub(super) async fn server_run(&self) -> Option<ServerRun> {
        if !self.is_one_server() {
            return None;
        }
        // Before version 7 it takes one section at most.
        let info: RedisResult<String> = self.query(&cmd("INFO")).await;
        run_in(&info.ok()?)
    }

    async fn query<T: FromRedisValue>(&self, cmd: &Cmd) -> RedisResult<T> {
        match self {
            Self::Server(connection) => cmd.query_async(&mut connection.clone()).await,
            #[cfg(feature = "cluster")]
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
    let policy = field("maxmemory_policy:").filter(|policy| *policy != "noeviction");
    let is_limited = field("maxmemory:").is_some_and(|most| most != "0");
    Some(ServerRun {
        id: field("run_id:")?.into(),
        uptime: field("uptime_in_seconds:")?.parse().ok()?,
        evicts: policy.filter(|_| is_limited).map(Arc::from),
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

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
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
            ) => Self::Unavailable(why),
            _ if error.code().is_some_and(|code| UNAVAILABLE.contains(&code)) => {
                Self::Unavailable(why)
            }
            // These have no code of their own.
            ErrorKind::Server(Server::ResponseError)
                if why.contains("max number of clients") || is_unavailable_to_a_script(&why) =>
            {
                Self::Unavailable(why)
            }
            // Of a cluster, where no node lets this client in.
            ErrorKind::Io if why.contains("AuthenticationFailed") => Self::Fault(why),
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound if error.is_timeout() => {
                Self::Timeout
            }
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => Self::Unreachable(why),
            _ if error.is_io_error() => Self::Unreachable(why),
            _ => Self::Fault(why),
        }
    }
}

/// Before version 7, a server puts the error that a script meets into the text of another: `Error running script (call to f_…):
/// @user_script:66: @user_script: 66: -READONLY You can't write against a read only replica.`
fn is_unavailable_to_a_script(why: &str) -> bool {
    let met = why.split_once("Error running script");
    let met = met.and_then(|(_, place)| place.split_once(": -"));
    met.is_some_and(|(_, met)| {
        let code = met.split(' ').next().unwrap_or_default();
        ["READONLY", "MASTERDOWN"].contains(&code) || UNAVAILABLE.contains(&code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_of(reply: &str) -> Failure {
        let reply = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        reply.extract_error().unwrap_err().into()
    }

    #[test]
    fn an_error_inside_a_script_is_an_outage_if_it_would_be_one_outside() {
        let place =
            "ERR Error running script (call to f_2f6c): @user_script:66: @user_script: 66: ";
        for error in [
            "-READONLY You can't write against a read only replica.",
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "-NOREPLICAS Not enough good replicas to write.",
        ] {
            for reply in [error[1..].to_owned(), format!("{place}{error}")] {
                let failure = failure_of(&reply);
                assert!(matches!(failure, Failure::Unavailable(_)), "{failure}");
            }
        }
        let error = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for reply in [
            error.to_owned(),
            format!("{place}{error}"),
            format!("{place}-{error}"),
        ] {
            assert!(failure_of(&reply).is_fault(), "{reply}");
        }
    }
}
