use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use redis::aio::MultiplexedConnection;
use redis::{Arg, AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};

use super::place::Place;
use super::process::Process;
use super::{PATIENCE, TRIES, a_moment, soon};

/// The time at which a key expires, in milliseconds since 1970, as `PEXPIRETIME` in version 7 and later. A script, with one key. Where
/// the clock moves on between the two commands, their sum is too small.
pub(crate) const EXPIRES_AT: &str = r"
local latest = 0
for _ = 1, 20 do
  local now = redis.call('TIME')
  local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)
  latest = math.max(latest, milliseconds + redis.call('PTTL', KEYS[1]))
end
return latest";

/// An empty server. Dropping it ends the process and removes its files.
#[derive(Debug)]
pub(crate) struct Server {
    /// `None` after `kill`. Dropped before the place is freed.
    process: Option<Process>,
    place: Place,
    options: Vec<String>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A server with these additional command-line options.
    pub(crate) async fn start_with(options: &[&str]) -> Self {
        Self::start_at(None, options).await
    }

    /// A server whose clock [`set_clock`](Self::set_clock) moves.
    pub(crate) async fn start_with_clock() -> Self {
        Self::start_at(Some(0), &[]).await
    }

    async fn start_at(seconds_ahead: Option<i64>, options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        let mut log_of_last = String::new();
        for _ in 0..TRIES {
            let mut server = Self {
                process: None,
                place: Place::reserve(),
                options: options.clone(),
            };
            if let Some(seconds) = seconds_ahead {
                server.set_clock(seconds);
            }
            match server.run().await {
                Ok(()) => return server,
                Err(log) => log_of_last = log,
            }
        }
        panic!(
            "no server came up in {TRIES} tries with {options:?}; log of the last:
{log_of_last}"
        );
    }

    /// `redis://127.0.0.1:port`
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.place.address()
    }

    pub(crate) fn port(&self) -> u16 {
        self.address().port()
    }

    /// The directory of its files and its log.
    pub(crate) fn dir(&self) -> &Path {
        self.place.dir()
    }

    pub(crate) async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        connect(&self.url()).await
    }

    /// The reply to a command, on a new connection.
    pub(crate) async fn try_command<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection().await?).await
    }

    /// The same, for commands that must succeed.
    ///
    /// # Panics
    ///
    /// If there is no connection, or the reply is an error or not a `T`.
    pub(crate) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let answer = self.try_command(command).await;
        answer.unwrap_or_else(|error| panic!("{}: {error}", in_words(command)))
    }

    /// The same, with the arguments of `redis-cli`.
    pub(crate) async fn cli<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        self.command(&command).await
    }

    /// The server's clock in microseconds since 1970.
    pub(crate) async fn time_us(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.cli(&["TIME"]).await;
        seconds * 1_000_000 + micros
    }

    /// Sets the clock of a server that was started with a clock of its own: seconds ahead of the system's. The time that the
    /// server measures by itself, such as its own timers, goes on evenly.
    pub(crate) fn set_clock(&self, seconds_ahead: i64) {
        let clock = self.place.clock();
        let new = clock.with_extension("new");
        fs::write(&new, format!("{seconds_ahead:+}s\n")).expect("the directory is ours");
        // The server never reads half of it.
        fs::rename(new, clock).expect("the directory is ours");
    }

    pub(crate) async fn flush_all(&self) {
        self.cli::<()>(&["FLUSHALL"]).await;
    }

    /// Makes the server forget all scripts, so that they have to be sent again.
    pub(crate) async fn flush_scripts(&self) {
        self.cli::<()>(&["SCRIPT", "FLUSH"]).await;
    }

    /// Kills the process. The port stays reserved.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the server on the same port, without its data.
    ///
    /// # Panics
    ///
    /// If it has not been killed, or does not start.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.process.is_none(), "{} still runs", self.url());
        if let Err(log) = self.run().await {
            panic!("{} did not come up again:\n{log}", self.url());
        }
    }

    /// Suspends the process. Requests wait until it is thawed.
    ///
    /// # Panics
    ///
    /// If it is killed.
    pub(crate) fn freeze(&mut self) {
        self.running().freeze();
    }

    /// # Panics
    ///
    /// If it is killed.
    pub(crate) fn thaw(&mut self) {
        self.running().thaw();
    }

    fn running(&mut self) -> &mut Process {
        let port = self.port();
        let process = self.process.as_mut();
        process.unwrap_or_else(|| panic!("the server on port {port} is killed"))
    }

    /// Starts the process and waits until it answers. If it ends instead, for example because its port is taken, the error is its log.
    async fn run(&mut self) -> Result<(), String> {
        let mut process = Process::spawn(&self.place, &self.options);
        let answered = async {
            while !process.has_ended() {
                if self.is_answered_by(process.id()).await {
                    return true;
                }
                a_moment().await;
            }
            false
        };
        if !soon("a server answers", answered).await {
            return Err(fs::read_to_string(self.place.log()).unwrap_or_default());
        }
        self.process = Some(process);
        Ok(())
    }

    /// Whether this process answers: another program may have taken the port.
    async fn is_answered_by(&self, process: u32) -> bool {
        let id = self.try_info("server", "process_id").await;
        id.is_ok_and(|id| id == process.to_string())
    }

    /// The value of one line of `INFO`; empty if there is none.
    pub(crate) async fn info(&self, section: &str, name: &str) -> String {
        let line = self.try_info(section, name).await;
        line.unwrap_or_else(|error| panic!("INFO {section}: {error}"))
    }

    async fn try_info(&self, section: &str, name: &str) -> RedisResult<String> {
        let lines: String = self.try_command(redis::cmd("INFO").arg(section)).await?;
        let values = lines.lines().filter_map(|line| line.split_once(':'));
        let mut values = values.filter(|(named, _)| *named == name);
        Ok(values.next().unwrap_or_default().1.to_owned())
    }
}

/// A connection that does not reconnect, with timeouts that are long enough for a busy machine.
pub(crate) async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = Client::open(url)?;
    // Boxed, because it would make every future around it large.
    Box::pin(client.get_multiplexed_async_connection_with_config(&patient)).await
}

fn in_words(command: &Cmd) -> String {
    let words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => String::from_utf8_lossy(word),
        _ => "?".into(),
    });
    words.collect::<Vec<_>>().join(" ")
}
