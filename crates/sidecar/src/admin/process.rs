//! What the process uses, as `/proc` says, under the names that all client libraries of Prometheus give it.

use std::fmt::Error;
use std::fs;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::metrics::Families;

/// Writes what can be read.
pub(super) fn encode(families: &mut Families<'_>) -> Result<(), Error> {
    if let Some([cpu_seconds, resident_bytes, started_at]) = usage() {
        families.one(
            "process_cpu_seconds",
            "CPU time of the process, its own and that of the system for it.",
            &ConstCounter::new(cpu_seconds),
        )?;
        families.one(
            "process_resident_memory_bytes",
            "Memory of the process that is not swapped out.",
            &ConstGauge::new(resident_bytes),
        )?;
        families.one(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            &ConstGauge::new(started_at),
        )?;
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One is that of the directory.
        let open = open.count().saturating_sub(1);
        families.one(
            "process_open_fds",
            "Open file descriptors.",
            &ConstGauge::new(open),
        )?;
    }
    let most = getrlimit(Resource::Nofile).current;
    families.one(
        "process_max_fds",
        "The limit of open file descriptors.",
        &ConstGauge::new(most.map_or(f64::INFINITY, as_f64)),
    )
}

/// Seconds of CPU time, bytes of memory, and the second of the start.
fn usage() -> Option<[f64; 3]> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may have blanks. Field 3 is the first one after it.
    let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    let seconds = |ticks: u64| as_f64(ticks) / as_f64(clock_ticks_per_second());
    let of_system = fs::read_to_string("/proc/stat").ok()?;
    let mut lines = of_system.lines();
    let booted_at = lines.find_map(|line| line.strip_prefix("btime "))?;
    Some([
        seconds(field(14)? + field(15)?),
        as_f64(field(24)? * page_size() as u64),
        booted_at.parse::<f64>().ok()? + seconds(field(22)?),
    ])
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus has no other numbers"
)]
fn as_f64(number: u64) -> f64 {
    number as f64
}
