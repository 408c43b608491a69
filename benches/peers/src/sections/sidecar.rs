//! The sidecar beside nginx: same service, same generator, one processor each. They take turns.

use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::contenders::{Bind, PROXIES, Place, Proxy, Running, service};
use crate::figures::{Figure, Notes};
use crate::measure::{Extent, median};

use super::instructions::collected;
use super::wrk;

const PER_CPU: &str = "thousand requests a second of its processor";
const SHARE: &str = "requests for each one of nginx in the same processor time";
const RATE: &str = "thousand requests a second, proxied";
const ADDED: &str = "ms added, half of the requests";
const ADDED_99: &str = "ms added, 99 %";
const MEMORY: &str = "MB of memory";
const MEMORY_EACH: &str = "kB of memory a connection";
const INSTRUCTIONS: &str = "instructions a request";

/// The processor of the proxy; the service and the generator have the other one.
const PROXY_CORE: &str = "1";
const OTHER_CORE: &str = "0";

/// What is sent.
struct Case {
    name: &'static str,
    path: &'static str,
    clients: u32,
    connections: u32,
    bind: Bind,
}

const CASES: &[Case] = &[
    case("1 kB, 16 connections", "1k", 4, 16),
    case("1 kB, 100 connections", "1k", 4, 100),
    case("1 kB, 1,000 connections", "1k", 4, 1_000),
    case("1 kB, 1,000 clients", "1k", 1_000, 100),
    case("1 MB, 16 connections", "1m", 4, 16),
    case("1 MB, 100 connections", "1m", 4, 100),
    Case {
        bind: Bind::Always,
        ..case("refused", "1k", 4, 16)
    },
];

const fn case(name: &'static str, path: &'static str, clients: u32, connections: u32) -> Case {
    Case {
        name,
        path,
        clients,
        connections,
        bind: Bind::Never,
    }
}

/// One turn of one proxy.
struct Turn {
    /// Thousand requests a second of the clock.
    rate: f64,
    /// Thousand requests a second of its processor.
    per_cpu: f64,
    /// Milliseconds more than without a proxy: the median, and 99 of a hundred.
    added: (f64, f64),
}

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("sidecar");
    let measured = Folder::new().and_then(|folder| {
        let service = service(&folder.0)?;
        for case in &CASES[..extent.pick(CASES.len(), 1)] {
            if let Err(error) = turns(&mut notes, case, &folder.0, &service, extent) {
                let why = format!("not measured: {error}");
                notes.add(PER_CPU, "paceline-sidecar", case.name, Err::<f64, _>(why));
            }
        }
        if extent == Extent::Full {
            for proxy in PROXIES {
                let counted = instructions(proxy, &folder.0, &service, Bind::Never);
                let counted = counted.map_err(|error| error.to_string());
                notes.add(INSTRUCTIONS, proxy.name, "1 kB", counted);
            }
        }
        Ok(())
    });
    if let Err(error) = measured {
        let why = format!("nothing was measured: {error}");
        notes.add(PER_CPU, "paceline-sidecar", "measured", Err::<f64, _>(why));
    }
    notes.figures
}

fn turns(
    notes: &mut Notes,
    case: &Case,
    folder: &Path,
    service: &Running,
    extent: Extent,
) -> io::Result<()> {
    let script = script(folder, case.clients)?;
    let place = Place {
        folder: folder.to_owned(),
        service: service.at,
        bind: case.bind,
        under: words(&["taskset", "--cpu-list", PROXY_CORE]),
    };
    let has_to_refuse = case.bind == Bind::Always;
    let measured = PROXIES
        .iter()
        .filter(|proxy| proxy.limits || !has_to_refuse);
    let measured: Vec<&Proxy> = measured.collect();
    let proxies: io::Result<Vec<Running>> =
        measured.iter().map(|proxy| proxy.start(&place)).collect();
    let proxies = proxies?;
    let before: io::Result<Vec<f64>> = proxies.iter().map(Running::memory).collect();
    let before = before?;
    let seconds = extent.pick(2, 1);
    for proxy in &proxies {
        // Connections are made, files are in the cache.
        load(proxy.at, case, &script, 1)?;
    }
    let mut all: Vec<Vec<Turn>> = measured.iter().map(|_| Vec::new()).collect();
    for round in 0..extent.pick(5, 1) {
        let bare = load(service.at, case, &script, seconds)?;
        for turn in 0..proxies.len() {
            let of = (round + turn) % proxies.len();
            let before = proxies[of].cpu()?;
            let said = load(proxies[of].at, case, &script, seconds)?;
            let cpu = proxies[of].cpu()?.saturating_sub(before);
            if (said.refused > 0) != has_to_refuse {
                let name = measured[of].name;
                let (refused, requests) = (said.refused, said.requests);
                return Err(io::Error::other(format!(
                    "{name} refuses {refused} of {requests}"
                )));
            }
            all[of].push(Turn {
                rate: said.thousands_a_second,
                per_cpu: f64::from(said.requests) / cpu.as_secs_f64() / 1e3,
                added: (said.p50 - bare.p50, said.p99 - bare.p99),
            });
        }
    }
    let ended = measured.iter().zip(&all).zip(proxies.iter().zip(before));
    for ((proxy, turns), (running, before)) in ended {
        let of = |of: fn(&Turn) -> f64| median(&turns.iter().map(of).collect::<Vec<_>>());
        notes.add(PER_CPU, proxy.name, case.name, of(|turn| turn.per_cpu));
        notes.add(RATE, proxy.name, case.name, of(|turn| turn.rate));
        if !has_to_refuse {
            notes.add(ADDED, proxy.name, case.name, of(|turn| turn.added.0));
            notes.add(ADDED_99, proxy.name, case.name, of(|turn| turn.added.1));
        }
        let memory = running.memory()?;
        notes.add(MEMORY, proxy.name, case.name, memory);
        if case.connections >= 1_000 {
            let each = (memory - before) * 1e3 / f64::from(case.connections);
            notes.add(MEMORY_EACH, proxy.name, case.name, each);
        }
        let shares = turns.iter().zip(&all[0]);
        let shares: Vec<f64> = shares
            .map(|(own, nginx)| own.per_cpu / nginx.per_cpu)
            .collect();
        if proxy.name != measured[0].name {
            notes.add(SHARE, proxy.name, case.name, median(&shares));
        }
    }
    Ok(())
}

/// What `wrk` says, from the other processor.
fn load(at: SocketAddr, case: &Case, script: &Path, seconds: u32) -> io::Result<wrk::Load> {
    let mut command = Command::new("taskset");
    command
        .args([
            "--cpu-list",
            OTHER_CORE,
            "wrk",
            "--threads=1",
            "--latency",
            "--timeout=10s",
        ])
        .arg(format!("--connections={}", case.connections))
        .arg(format!("--duration={seconds}s"))
        .arg("--script")
        .arg(script)
        .arg(format!("http://{at}/{}", case.path));
    wrk::load(&mut command)
}

/// Requests of one client after the other.
fn script(folder: &Path, clients: u32) -> io::Result<PathBuf> {
    let path = folder.join(format!("{clients}.lua"));
    let text = format!(
        "local requests, at = {{}}, 0
         init = function()
           for client = 1, {clients} do
             requests[client] = wrk.format(nil, nil, {{['x-client-id'] = 'client-' .. client}})
           end
         end
         request = function() at = at % {clients} + 1 return requests[at] end\n"
    );
    fs::write(&path, text)?;
    Ok(path)
}

/// A regression is more than this, with a little room above what was measured when it was set.
const CEILINGS: [(&str, Bind, f64); 2] = [
    ("an admitted request", Bind::Never, 32_000.0),
    ("a refused request", Bind::Always, 17_000.0),
];

/// The sidecar with everything on, as shipped.
pub(crate) fn ceiling() -> io::Result<()> {
    let folder = Folder::new()?;
    let service = service(&folder.0)?;
    let sidecar = PROXIES
        .iter()
        .find(|proxy| proxy.name == "paceline-sidecar");
    let sidecar = sidecar.expect("it is in the list");
    for (what, bind, ceiling) in CEILINGS {
        let counted = instructions(sidecar, &folder.0, &service, bind)?;
        println!("{counted:.0} instructions for {what}, at most {ceiling:.0}");
        if counted > ceiling {
            return Err(io::Error::other(format!(
                "{counted:.0} instructions are too many"
            )));
        }
    }
    Ok(())
}

/// Fewer and more requests: what is done once falls out of the difference.
fn instructions(proxy: &Proxy, folder: &Path, service: &Running, bind: Bind) -> io::Result<f64> {
    const FEW: u32 = 2_000;
    const MANY: u32 = 12_000;
    let few = counted(proxy, folder, service, bind, FEW)?;
    let many = counted(proxy, folder, service, bind, MANY)?;
    Ok((many - few) / f64::from(MANY - FEW))
}

fn counted(
    proxy: &Proxy,
    folder: &Path,
    service: &Running,
    bind: Bind,
    count: u32,
) -> io::Result<f64> {
    let place = Place {
        folder: folder.to_owned(),
        service: service.at,
        bind,
        under: words(&[
            "valgrind",
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
        ]),
    };
    let running = proxy.start(&place)?;
    let sent = Command::new("h2load")
        .args(["--h1", "--clients=16", "--header=x-client-id: client-1"])
        .arg(format!("--requests={count}"))
        .arg(format!("http://{}/1k", running.at))
        .stdout(Stdio::null())
        .status()?;
    let said = running.ended()?;
    let collected = collected(&said).filter(|_| sent.success());
    collected.ok_or_else(|| io::Error::other(format!("nothing was counted: {said}")))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let path = env::temp_dir().join(format!("peers-sidecar-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
