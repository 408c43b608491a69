//! What `wrk` says.

use std::io;
use std::process::Command;

/// What it counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) requests: u32,
    /// Answers that are no success.
    pub(super) refused: u32,
    pub(super) thousands_a_second: f64,
    /// Milliseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Runs it to its end.
pub(super) fn load(command: &mut Command) -> io::Result<Load> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let load = output.status.success().then(|| counted(&said));
    load.flatten()
        .ok_or_else(|| io::Error::other(format!("wrk fails: {said}")))
}

/// `None` if a connection failed.
fn counted(said: &str) -> Option<Load> {
    if said.contains("Socket errors") {
        return None;
    }
    let mut lines = said.lines().map(str::trim);
    let after = |start| {
        lines
            .clone()
            .find_map(|line: &str| line.strip_prefix(start))
    };
    let rate = after("Requests/sec:")?.trim().parse::<f64>().ok()?;
    let (p50, p99) = (millis(after("50%")?.trim())?, millis(after("99%")?.trim())?);
    let refused = after("Non-2xx or 3xx responses:").map_or(Some(0), |n| n.trim().parse().ok())?;
    let requests = lines.find_map(|line| line.split_once(" requests in "))?.0;
    Some(Load {
        requests: requests.parse().ok()?,
        refused,
        thousands_a_second: rate / 1e3,
        p50,
        p99,
    })
}

/// `12.34us`, `1.23ms` or `1.05s`.
fn millis(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 32 connections
  Latency Distribution
     50%  335.00us
     99%    1.25ms
  123456 requests in 2.00s, 14.01MB read
Requests/sec:  61728.00
Transfer/sec:      7.00MB
";

    #[test]
    fn what_wrk_says_is_understood() {
        let load = counted(SAID).expect("it is complete");
        assert_eq!(load.thousands_a_second.to_bits(), 61.728_f64.to_bits());
        assert_eq!(load.p50.to_bits(), (335.0 * 1e-3_f64).to_bits());
        assert_eq!(load.p99.to_bits(), 1.25_f64.to_bits());
        assert_eq!((load.requests, load.refused), (123_456, 0));
        assert_eq!(millis("2.00s"), Some(2_000.0));
    }

    #[test]
    fn refusals_are_counted_and_failures_are_no_load() {
        let refused = format!("{SAID}  Non-2xx or 3xx responses: 3\n");
        assert_eq!(counted(&refused).map(|load| load.refused), Some(3));
        let failed = format!("{SAID}  Socket errors: connect 1, read 0, write 0, timeout 0\n");
        assert!(counted(&failed).is_none());
    }
}
