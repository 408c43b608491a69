//! A web server on one thread, and `wrk` on another core. The sites take turns.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use cpu_time::ProcessTime;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::contenders::{SITES, Site};
use crate::figures::Notes;
use crate::measure::{Extent, median};

use super::super::wrk;
use super::runtime;

const RATE: &str = "thousand requests a second";
const SHARE: &str = "share of the rate without a limit";
const P99: &str = "ms a request, 99 %";
const CPU: &str = "µs of the server a request";
const CPU_SHARE: &str = "share of the server's time without a limit";

/// That many requests are under way.
const CONNECTIONS: u32 = 32;

/// What `wrk` counted, and the server's time meanwhile.
#[derive(Clone, Copy, Debug)]
struct Load {
    thousands_a_second: f64,
    p99: f64,
    cpu: f64,
}

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    if let Err(error) = wrk().arg("--version").stdout(Stdio::null()).status() {
        let why =
            format!("nothing was measured over HTTP, since \"wrk\" cannot be started: {error}");
        notes.add(RATE, "wrk", "measured", Err::<f64, _>(why));
        return;
    }
    let runtime = runtime(1);
    let sites: Vec<SocketAddr> = SITES.iter().map(|site| open(site, &runtime)).collect();
    let mut loads: Vec<Vec<Result<Load, String>>> = SITES.iter().map(|_| Vec::new()).collect();
    for round in 0..extent.pick(9, 1) {
        // None is always the first.
        for turn in 0..SITES.len() {
            let site = (round + turn) % SITES.len();
            let load = loaded(sites[site], extent.pick(2, 1));
            loads[site].push(load.map_err(|error| error.to_string()));
        }
    }
    runtime.shutdown_background();
    let case = &format!("{CONNECTIONS} connections");
    let loads: Vec<Result<Vec<Load>, String>> = loads
        .into_iter()
        .map(|loads| loads.into_iter().collect())
        .collect();
    for (site, of_site) in SITES.iter().zip(&loads) {
        let of = |of: fn(&Load) -> f64| {
            let loads = of_site.as_ref().map_err(Clone::clone)?;
            Ok::<_, String>(median(&loads.iter().map(of).collect::<Vec<_>>()))
        };
        notes.add(RATE, site.name, case, of(|load| load.thousands_a_second));
        notes.add(P99, site.name, case, of(|load| load.p99));
        notes.add(CPU, site.name, case, of(|load| load.cpu));
    }
    for (site, of_site) in SITES.iter().zip(&loads).skip(1) {
        if let (Ok(bare), Ok(loads)) = (&loads[0], of_site) {
            let share = |of: fn(&Load) -> f64| {
                let rounds = loads.iter().zip(bare);
                let shares: Vec<f64> = rounds.map(|(load, bare)| of(load) / of(bare)).collect();
                median(&shares)
            };
            notes.add(
                SHARE,
                site.name,
                case,
                share(|load| load.thousands_a_second),
            );
            notes.add(CPU_SHARE, site.name, case, share(|load| load.cpu));
        }
    }
}

fn open(site: &Site, runtime: &Runtime) -> SocketAddr {
    let router = (site.router)();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("a port is free");
    let at = listener.local_addr().expect("it is bound");
    runtime.spawn(async move { axum::serve(listener, router).await });
    at
}

fn wrk() -> Command {
    Command::new("wrk")
}

fn loaded(at: SocketAddr, seconds: u32) -> io::Result<Load> {
    let cpu = ProcessTime::now();
    let mut command = wrk();
    command
        .args(["--threads=1", "--latency", "--header=x-user: ann"])
        .arg(format!("--connections={CONNECTIONS}"))
        .arg(format!("--duration={seconds}s"))
        .arg(format!("http://{at}/"));
    let said = wrk::load(&mut command)?;
    let cpu = cpu.elapsed();
    if said.refused > 0 {
        return Err(io::Error::other(format!("{} are refused", said.refused)));
    }
    Ok(Load {
        thousands_a_second: said.thousands_a_second,
        p99: said.p99,
        cpu: cpu.as_secs_f64() * 1e6 / f64::from(said.requests),
    })
}
