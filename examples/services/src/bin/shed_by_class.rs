//! How do I shed the least important requests first when a worker has too much to do?
//!
//! Behind the shedder are a few workers, and each request needs one for some time. Four kinds of requests together need more workers
//! than there are: test traffic, reads, writes, and payments, which are critical. The shedder sees how many workers are busy.
//!
//! Without options the program is under load by four `wrk` for some seconds, and prints what became of each class. By default a
//! `WorkerUtilization` is slow: shedding begins after 28 s, and all is shed 120 s later. So that there is something to see, the delay
//! is 1 s here and the ramp 4 s. Do not copy these.
//!
//! ```text
//! cargo run -p services --bin shed_by_class
//! cargo run -p services --bin shed_by_class -- --mode shadow --client own
//! cargo run -p services --bin shed_by_class -- --listen 127.0.0.1:8080 --delay 28s --ramp 120s --period 1s
//! curl http://127.0.0.1:8080/stats
//! ```

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the work and the load have a clock of their own"
)]

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, io, process};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::routing::{any, get};
use axum::{Json, Router};
use clap::{Parser, ValueEnum};
use futures::future::try_join_all;
use paceline::concurrency::Permits;
use paceline::limiter::{Mode, Share, Switch, Switched};
use paceline::shed::{BusyPermits, WorkerUtilization};
use paceline::time::OutOfRange;
use paceline_tower::{Answers, ShedLayer, http_class};
use reqwest::Client;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::signal::ctrl_c;
use tokio::time::sleep;

/// A service that sheds the least important requests first.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Serve here until Ctrl-C, as in 127.0.0.1:8080; without it the program is under load for some seconds
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// What the switch of the shedder says
    #[arg(long, default_value = "active")]
    mode: Setting,
    /// The share of the requests that can be shed while the mode is active
    #[arg(long, default_value = "100%")]
    share: Share,
    /// How long all workers are busy before shedding begins; in production 28s
    #[arg(long, value_parser = time, default_value = "1s")]
    delay: Duration,
    /// How long it takes from there until all is shed; in production 120s
    #[arg(long, value_parser = time, default_value = "4s")]
    ramp: Duration,
    /// How often the shedder looks at the workers; in production 1s
    #[arg(long, value_parser = time, default_value = "200ms")]
    period: Duration,
    /// How many requests are worked on at once; the others wait
    #[arg(long, default_value_t = 20)]
    workers: u32,
    /// How long a worker needs for a request
    #[arg(long, value_parser = time, default_value = "100ms")]
    work: Duration,
    /// Which program sends the requests
    #[arg(long, default_value = "wrk")]
    client: Sender,
    /// How many seconds the load lasts; it is repeated until something is shed
    #[arg(long, default_value_t = 8)]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Setting {
    /// Requests are shed
    Active,
    /// No request is shed; what would be is counted
    Shadow,
    /// The shedder is not asked
    Off,
}

impl Setting {
    const fn mode(self) -> Mode {
        match self {
            Self::Active => Mode::Active,
            Self::Shadow => Mode::Shadow,
            Self::Off => Mode::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sender {
    /// Four processes `wrk`, one for each class
    Wrk,
    /// Tasks of this program
    Own,
}

/// A time in seconds or milliseconds.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit): (_, fn(u64) -> Duration) = match text.strip_suffix("ms") {
        Some(number) => (number, Duration::from_millis),
        None => (text.strip_suffix('s').unwrap_or(""), Duration::from_secs),
    };
    let number = number.parse();
    number
        .map(unit)
        .map_err(|_| "write it as in 200ms or 4s".to_owned())
}

/// What the handlers share.
#[derive(Clone)]
struct Site {
    workers: Permits,
    work: Duration,
    shedder: WorkerUtilization,
    switch: Switch,
}

impl Site {
    fn new(options: &Options) -> Result<Self, OutOfRange> {
        let workers = Permits::try_new(options.workers)?;
        let shedder = WorkerUtilization::new(BusyPermits::new(workers.clone()))
            .with_classes(3)
            .try_with_delay(options.delay)?
            .try_with_ramp(options.ramp)?
            .try_with_period(options.period)?;
        let switch = Switch::new().with_share(options.share);
        Ok(Self {
            workers,
            work: options.work,
            shedder,
            switch: switch.with_mode(options.mode.mode()),
        })
    }

    fn router(&self) -> Router {
        let shedder = Switched::new(self.shedder.clone(), self.switch.clone());
        let class = http_class(
            |request: &Request| request.uri().path() == "/payments",
            // It can only make a request less important, so any caller may say it.
            |request| request.headers().contains_key(IS_TEST),
        );
        let shed = ShedLayer::new(shedder, class).answering(Answers::new("workers"));
        Router::new()
            .route("/orders", any(work))
            .route("/payments", any(work))
            .layer(shed)
            // What is added after a layer does not pass through it.
            .route("/stats", get(report))
            .with_state(Arc::new(self.clone()))
    }
}

async fn work(State(site): State<Arc<Site>>) -> &'static str {
    let _worker = site.workers.acquire().await;
    sleep(site.work).await;
    "done\n"
}

#[derive(Serialize)]
struct Report {
    mode: String,
    /// 0 where shedding begins, 1 where all is shed.
    amount: f64,
    /// The busy workers, as a share of all; `None` before the first request.
    utilization: Option<f64>,
    /// Requests that passed only because of the switch.
    would_be_shed: u64,
    classes: Vec<OfClass>,
}

#[derive(Serialize)]
struct OfClass {
    name: &'static str,
    admitted: u64,
    shed: u64,
    /// The share that is shed now.
    share: f64,
}

async fn report(State(site): State<Arc<Site>>) -> Json<Report> {
    let stats = site.shedder.stats().into_iter();
    let classes = CLASSES.iter().zip(stats).map(|(kind, class)| OfClass {
        name: kind.name,
        admitted: class.admitted,
        shed: class.shed,
        share: site.shedder.share_shed(class.class),
    });
    Json(Report {
        mode: format!("{:?}", site.switch.mode()).to_lowercase(),
        amount: site.shedder.amount(),
        utilization: site.shedder.utilization(),
        would_be_shed: site.switch.stats().held_back,
        classes: classes.collect(),
    })
}

/// Requests of one class.
struct Kind {
    name: &'static str,
    method: Method,
    path: &'static str,
    is_test: bool,
}

impl Kind {
    const fn new(name: &'static str, method: Method, path: &'static str, is_test: bool) -> Self {
        Self {
            name,
            method,
            path,
            is_test,
        }
    }
}

const IS_TEST: &str = "x-test";

/// The least important first, as in the statistics of the shedder.
static CLASSES: [Kind; 4] = [
    Kind::new("test traffic", Method::GET, "/orders", true),
    Kind::new("reads", Method::GET, "/orders", false),
    Kind::new("writes", Method::POST, "/orders", false),
    Kind::new("critical", Method::POST, "/payments", false),
];

/// For each class. With 20 workers and 100 ms of work a class needs a third of the workers.
const CONNECTIONS: u32 = 10;
/// How long a connection pauses after an answer.
const PAUSE: Duration = Duration::from_millis(50);

/// What a client has seen of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    answered: u64,
    refused: u64,
    /// Neither 200 nor 503.
    other: u64,
}

impl Seen {
    fn count(&mut self, status: u16) {
        self.answered += 1;
        self.refused += u64::from(status == 503);
        self.other += u64::from(![200, 503].contains(&status));
    }

    const fn and(self, more: Self) -> Self {
        Self {
            answered: self.answered + more.answered,
            refused: self.refused + more.refused,
            other: self.other + more.other,
        }
    }
}

type Failure = Box<dyn Error>;

impl Sender {
    /// The load of one class.
    async fn send(self, kind: &Kind, url: &str, seconds: u64) -> Result<Seen, Failure> {
        match self {
            Self::Wrk => wrk(kind, url, seconds).await,
            Self::Own => own(kind, url, seconds).await,
        }
    }
}

/// Counts the answers by status, which `wrk` itself does not print.
const SCRIPT: &str = r#"
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(arguments)
  wrk.method, pause = arguments[1], tonumber(arguments[2])
  if arguments[3] then wrk.headers[arguments[3]] = "1" end
  answered, refused, other = 0, 0, 0
end
function delay() return pause end
function response(status)
  answered = answered + 1
  if status == 503 then refused = refused + 1 elseif status ~= 200 then other = other + 1 end
end
function done()
  for _, thread in ipairs(threads) do
    print("seen", thread:get("answered"), thread:get("refused"), thread:get("other"))
  end
end
"#;

/// A file that is removed with its handle.
struct Script(PathBuf);

impl Script {
    fn write(name: &str) -> io::Result<Self> {
        let name = format!("shed-by-class-{}-{name}.lua", process::id());
        let script = Self(env::temp_dir().join(name));
        fs::write(&script.0, SCRIPT)?;
        Ok(script)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn wrk(kind: &Kind, url: &str, seconds: u64) -> Result<Seen, Failure> {
    let script = Script::write(kind.name)?;
    let mut command = Command::new("wrk");
    command
        .args(["-t1", "--timeout", "60s"])
        .args([format!("-c{CONNECTIONS}"), format!("-d{seconds}s")])
        .arg("-s")
        .arg(&script.0)
        .args([url, "--", kind.method.as_str()])
        .arg(PAUSE.as_millis().to_string())
        .args(kind.is_test.then_some(IS_TEST))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            "the load needs wrk (package wrk of Debian); or use --client own".to_owned()
        }
        _ => format!("wrk: {error}"),
    })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let counted = printed.lines().find_map(|line| line.strip_prefix("seen"));
    let counted = counted.and_then(|line| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Seen {
            answered: next()?,
            refused: next()?,
            other: next()?,
        })
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    counted.ok_or_else(|| format!("wrk has failed: {printed}{stderr}").into())
}

async fn own(kind: &Kind, url: &str, seconds: u64) -> Result<Seen, Failure> {
    let client = Client::new();
    let mut headers = HeaderMap::new();
    if kind.is_test {
        headers.insert(IS_TEST, "1".parse()?);
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let connection = async || {
        let mut seen = Seen::default();
        while Instant::now() < end {
            let request = client.request(kind.method.clone(), url);
            let answer = request.headers(headers.clone()).send().await?;
            seen.count(answer.status().as_u16());
            answer.bytes().await?;
            sleep(PAUSE).await;
        }
        Ok::<_, reqwest::Error>(seen)
    };
    let seen = try_join_all((0..CONNECTIONS).map(|_| connection())).await?;
    Ok(seen.into_iter().fold(Seen::default(), Seen::and))
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Err(error) = run().await {
        eprintln!("shed_by_class: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn run() -> Result<(), Failure> {
    let options = Options::parse();
    let site = Site::new(&options)?;
    let listen = options.listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    let listen = TcpListener::bind(listen).await?;
    let url = format!("http://{}", listen.local_addr()?);
    println!("{url}");
    let serving = axum::serve(listen, site.router());
    tokio::select! {
        served = serving.into_future() => served?,
        told = ctrl_c(), if options.listen.is_some() => told?,
        shown = show(&options, &site, &url), if options.listen.is_none() => shown?,
    }
    Ok(())
}

/// How often the load is repeated before the program gives up: the machine may be too busy to take samples in time.
const ROUNDS: u32 = 15;

async fn show(options: &Options, site: &Site, url: &str) -> Result<(), Failure> {
    let mut seen = [Seen::default(); CLASSES.len()];
    for _ in 0..ROUNDS {
        let urls = CLASSES
            .iter()
            .map(|kind| (kind, url.to_owned() + kind.path));
        let loads =
            urls.map(async |(kind, url)| options.client.send(kind, &url, options.seconds).await);
        for (seen, more) in seen.iter_mut().zip(try_join_all(loads).await?) {
            *seen = seen.and(more);
        }
        let is_shed = match options.mode {
            Setting::Active => seen[0].refused > 0,
            Setting::Shadow => site.shedder.stats()[0].shed > 0,
            Setting::Off => true,
        };
        if is_shed {
            return check(options, site, &seen);
        }
        println!("nothing is shed yet");
    }
    Err("nothing was shed: it takes fewer workers, or a shorter delay".into())
}

/// Prints what became of each class, and checks it.
fn check(options: &Options, site: &Site, seen: &[Seen]) -> Result<(), Failure> {
    let would = match options.mode {
        Setting::Active => "",
        Setting::Shadow => "would be ",
        Setting::Off => "not asked: ",
    };
    let [admitted, shed] = ["admitted", "shed"].map(|what| format!("{would}{what}"));
    println!(
        "{:<14} {:>10} {admitted:>20} {shed:>20} {:>10}",
        "", "answered", "503"
    );
    let stats = site.shedder.stats();
    for ((kind, seen), class) in CLASSES.iter().zip(seen).zip(&stats) {
        let Seen {
            answered, refused, ..
        } = seen;
        let (name, admitted, shed) = (kind.name, class.admitted, class.shed);
        println!("{name:<14} {answered:>10} {admitted:>20} {shed:>20} {refused:>10}");
    }
    println!(
        "at the end: amount {:.2}; passed only because of the switch: {}",
        site.shedder.amount(),
        site.switch.stats().held_back
    );

    for (seen, class) in seen.iter().zip(&stats) {
        assert_eq!(
            seen.other,
            0,
            "{seen:?}: each answer is 200 or {}",
            StatusCode::SERVICE_UNAVAILABLE
        );
        // A client that has gone does not see its last answers.
        assert!(seen.refused <= class.shed, "{seen:?}, {class:?}");
    }
    let [.., critical] = &stats[..] else {
        return Err("the shedder has no classes".into());
    };
    assert_eq!(critical.shed, 0, "critical requests are never shed");
    // a / b >= c / d, without a division.
    for pair in stats.windows(2) {
        let [less, more] = [&pair[0], &pair[1]].map(|class| {
            let (shed, all) = (class.shed, class.shed + class.admitted);
            (u128::from(shed), u128::from(all))
        });
        let in_order = less.0 * more.1 >= more.0 * less.1;
        assert!(in_order, "the less important are shed first: {pair:?}");
    }
    if options.mode != Setting::Active {
        assert!(seen.iter().all(|seen| seen.refused == 0), "{seen:?}");
    }
    Ok(())
}
