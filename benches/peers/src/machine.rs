//! Where it was measured, and what.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

/// What the figures depend on. The machine's name is left out.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) system: String,
    pub(crate) rustc: String,
    /// The server in which limits are kept; empty where there is none.
    #[serde(default)]
    pub(crate) server: String,
    /// Name and version of everything that is measured.
    pub(crate) packages: Vec<(String, String)>,
}

/// The report states the version of these packages.
const MEASURED: [&str; 12] = [
    "async-speed-limit",
    "axum",
    "governor",
    "leaky-bucket",
    "paceline",
    "redis",
    "stream_throttle",
    "tokio",
    "tokio-stream",
    "tower",
    "tower-resilience-ratelimiter",
    "tower_governor",
];

/// What the versions are read from, as it was when this was compiled.
const LOCK: &str = include_str!("../../../Cargo.lock");

impl Machine {
    pub(crate) fn this_one() -> Self {
        Self {
            processor: processor(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            system: format!(
                "{} {}",
                said_by("uname", &["-s"]),
                release(&said_by("uname", &["-r"]))
            ),
            rustc: said_by("rustc", &["--version"]),
            server: server(&said_by(redis_server(), &["--version"])),
            packages: packages(LOCK),
        }
    }
}

/// The program that is a Redis, or one that is named in the variable.
pub(crate) fn redis_server() -> OsString {
    env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

fn said_by(program: impl AsRef<OsStr>, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// The numbers of `6.1.0-of-somebody`.
fn release(release: &str) -> &str {
    release.split('-').next().unwrap_or_default()
}

/// The name and number of `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 …`.
fn server(said: &str) -> String {
    let mut words = said.split_whitespace();
    let name = words.next();
    let version = words.find_map(|word| word.strip_prefix("v="));
    match (name, version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        _ => String::new(),
    }
}

fn packages(lock: &str) -> Vec<(String, String)> {
    let mut packages = Vec::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(value) = quoted(line, "name = ") {
            name = value;
        } else if let Some(version) = quoted(line, "version = ")
            && MEASURED.contains(&name)
        {
            packages.push((name.to_owned(), version.to_owned()));
        }
    }
    packages
}

fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_everything_that_is_measured_is_known() {
        let packages = packages(LOCK);
        let names: Vec<&str> = packages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, MEASURED);
    }

    #[test]
    fn what_a_server_says_of_its_version_is_understood() {
        let said = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(server(said), "Redis 7.0.15");
        assert_eq!(server("unknown"), "");
    }
}
