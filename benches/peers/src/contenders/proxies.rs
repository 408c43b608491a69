//! Proxies in front of a service: processes of their own, and nginx as the service behind them.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How a client's limit is set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Bind {
    /// It never binds.
    Never,
    /// It is used up at once.
    Always,
}

/// A way from a client to the service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    /// Whether it has a limit.
    pub(crate) limits: bool,
    start: fn(&Place) -> io::Result<Running>,
}

/// Where and for what a proxy is started.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) service: SocketAddr,
    pub(crate) bind: Bind,
    /// What counts its instructions, and runs it on one processor.
    pub(crate) under: Vec<String>,
}

/// A proxy, or the service. It is ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) at: SocketAddr,
}

pub(super) const ALL: &[Proxy] = &[
    Proxy {
        name: "nginx",
        limits: true,
        start: nginx,
    },
    Proxy {
        name: "paceline-sidecar",
        limits: true,
        start: |place| sidecar(place, &[]),
    },
    Proxy {
        name: "paceline-sidecar, off",
        limits: false,
        start: |place| sidecar(place, &["--mode", "off"]),
    },
];

impl Proxy {
    pub(crate) fn start(&self, place: &Place) -> io::Result<Running> {
        (self.start)(place)
    }
}

impl Running {
    /// Processor time by now, of all its threads.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let mut nanos = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let times = fs::read_to_string(task?.path().join("schedstat"))?;
            let first = times
                .split(' ')
                .next()
                .and_then(|on| on.parse::<u64>().ok());
            nanos += first.ok_or_else(|| io::Error::other(format!("schedstat is {times:?}")))?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// The memory that it has, in MB.
    pub(crate) fn memory(&self) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let kilobytes = kilobytes.and_then(|number| number.parse::<f64>().ok());
        kilobytes
            .map(|kilobytes| kilobytes / 1e3)
            .ok_or_else(|| io::Error::other("no VmRSS"))
    }

    /// Ends it in order, and returns what it has written to standard error.
    pub(crate) fn ended(mut self) -> io::Result<String> {
        self.stop()?;
        let stderr = self.child.stderr.take();
        let mut said = String::new();
        if let Some(mut stderr) = stderr {
            io::Read::read_to_string(&mut stderr, &mut said)?;
        }
        self.child.wait()?;
        Ok(said)
    }

    /// The second signal ends a sidecar at once.
    fn stop(&self) -> io::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)?;
        thread::sleep(Duration::from_millis(100));
        let _ = kill_process(pid, Signal::TERM);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service with the files `1k` and `1m`.
pub(crate) fn service(folder: &Path) -> io::Result<Running> {
    fs::write(folder.join("1k"), vec![b'x'; 1_000])?;
    fs::write(folder.join("1m"), vec![b'x'; 1_000_000])?;
    let root = folder.display();
    let site = format!("root {root};\nlocation / {{ }}\n");
    started(&[], folder, "service", "", &site)
}

/// One worker, which limits by the same header.
fn nginx(place: &Place) -> io::Result<Running> {
    let Place {
        folder,
        service,
        bind,
        under,
    } = place;
    let (rate, burst) = match bind {
        Bind::Never => ("1000000r/s", 1_000_000),
        Bind::Always => ("1r/m", 1),
    };
    let http = format!(
        "limit_req_zone $http_x_client_id zone=clients:10m rate={rate};
         upstream service {{ server {service}; keepalive 1024; keepalive_requests 1000000000; }}\n"
    );
    let site = format!(
        "location / {{
            limit_req zone=clients burst={burst} nodelay;
            limit_req_status 429;
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
         }}\n"
    );
    started(under, folder, "proxy", &http, &site)
}

fn started(
    under: &[String],
    folder: &Path,
    name: &str,
    http: &str,
    site: &str,
) -> io::Result<Running> {
    let at = free_port()?;
    let own = folder.join(name);
    fs::create_dir_all(&own)?;
    let files = own.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {files}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {files}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\n{paths}{http}\
         server {{\nlisten {at};\nkeepalive_requests 1000000000;\n{site}}}\n}}\n"
    );
    let config = own.join("nginx.conf");
    fs::write(&config, text)?;
    let mut command = wrapped(under, "nginx");
    command.args(["-p".as_ref(), own.as_os_str(), "-c".as_ref()]);
    let child = command.arg(&config).stderr(Stdio::piped()).spawn()?;
    let running = Running { child, at };
    let start = Instant::now();
    while TcpStream::connect(at).is_err() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err(io::Error::other(format!("nginx: {}", running.ended()?)));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

fn sidecar(place: &Place, flags: &[&str]) -> io::Result<Running> {
    let capacity = match place.bind {
        Bind::Never => "4000000000",
        Bind::Always => "1",
    };
    let mut child = wrapped(&place.under, &binary()?.to_string_lossy())
        .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .arg(format!("--upstream=http://{}", place.service))
        .args(["--capacity", capacity, "--cycle", "10m"])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line)?;
    let at = line
        .strip_prefix("listening on ")
        .and_then(|rest| rest.split(',').next()?.parse().ok());
    match at {
        Some(at) => Ok(Running { child, at }),
        None => Err(io::Error::other(format!("the sidecar says {line:?}"))),
    }
}

/// The one in the variable `SIDECAR`, or the one beside this program.
fn binary() -> io::Result<PathBuf> {
    let named = std::env::var_os("SIDECAR").map(PathBuf::from);
    let beside = std::env::current_exe()?.with_file_name("paceline-sidecar");
    let binary = named.unwrap_or(beside);
    if binary.exists() {
        return Ok(binary);
    }
    let binary = binary.display();
    Err(io::Error::other(format!(
        "there is no {binary}: build it, or name one in SIDECAR"
    )))
}

fn wrapped(under: &[String], program: &str) -> Command {
    let mut words = under.iter().map(String::as_str).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
