//! A dark launch, a pause and an outage, as an operator sees them: in the log, and in what Prometheus collects.
//!
//! `cargo run -p watch`. `docs/watching.md` shows what it prints.
#![expect(
    clippy::disallowed_methods,
    reason = "stands in for work, and waits for a server"
)]

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use futures::StreamExt;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use paceline::concurrency::Permits;
use paceline::feedback::Feedback;
use paceline::limiter::{
    Event, Metrics, Mode, Observed, Observer, PolicyExt, Switch, TracingObserver,
};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};
use tokio::time::{sleep, timeout};

/// Metrics and a log at once.
struct Operator(Metrics, TracingObserver);

impl Operator {
    fn of(limit: &'static str) -> Self {
        Self(Metrics::new(limit), TracingObserver::new(limit))
    }
}

impl Observer for &Operator {
    fn observe(&mut self, event: Event) {
        (&self.0).observe(event);
        (&self.1).observe(event);
    }

    fn queued(&mut self) {
        (&self.0).queued();
    }

    fn dequeued(&mut self) {
        (&self.0).dequeued();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let prometheus = PrometheusBuilder::new()
        .set_buckets(&[0.001, 0.1, 1.0, 10.0])?
        .install_recorder()?;
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
        .with_ansi(false)
        .without_time()
        .init();

    dark_launch(&prometheus);
    pause(&prometheus);
    permits(&prometheus);
    outage(&prometheus)
}

/// A limit of 10 calls a second is only watched at first, and then enforced.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn dark_launch(prometheus: &PrometheusHandle) {
    let limit = TokenBucket::new(Rate::per_second(10), 5).shared();
    let (switch, operator) = (Switch::new(), Operator::of("checkout"));
    let limit = Observed::new(limit.switched(&switch), &operator);
    let traffic = || {
        let requests = futures::stream::iter(1..=20).min_interval(Duration::from_millis(50));
        requests.enforce(limit.clone()).count()
    };

    println!("## Dark launch");
    switch.set_mode(Mode::Shadow);
    traffic().await;
    scrape(prometheus, "in shadow mode", "checkout");

    sleep(Duration::from_secs(1)).await;
    switch.set_mode(Mode::Active);
    traffic().await;
    scrape(prometheus, "enforced", "checkout");
}

/// A provider answers 429 with `Retry-After: 2`.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn pause(prometheus: &PrometheusHandle) {
    let limit = Interval::every(Duration::from_millis(50)).shared();
    let limit = limit.with_observer(Operator::of("sms"));
    limit.acquire(1).await.unwrap_or_default();

    println!("## Pause");
    let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    limit.apply_feedback(&refused);
    let waiting: Vec<_> = (0..3)
        .map(|_| tokio::spawn(limit.acquire_owned(1)))
        .collect();
    sleep(Duration::from_secs(1)).await;
    scrape(prometheus, "one second later", "sms");

    futures::future::join_all(waiting).await;
    scrape(prometheus, "when it is over", "sms");
}

/// Two uploads at once.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn permits(prometheus: &PrometheusHandle) {
    let permits = Permits::new(2).with_observer(Metrics::for_permits("uploads"));
    let upload = |_| sleep(Duration::from_millis(100));
    let uploads = futures::stream::iter(0..5).concurrent(permits.clone(), upload);

    println!("## Permits");
    let uploads = tokio::spawn(uploads.count());
    sleep(Duration::from_millis(150)).await;
    scrape(prometheus, "while uploads are under way", "uploads");
    uploads.await.unwrap_or_default();
    scrape(prometheus, "when they are done", "uploads");
}

/// Redis is killed and started again, under a limit that lets everything pass meanwhile.
#[tokio::main(flavor = "current_thread")]
async fn outage(prometheus: &PrometheusHandle) -> Result<(), Box<dyn Error>> {
    println!("## Outage");
    let folder = env::temp_dir().join(format!("paceline-watch-{}", process::id()));
    fs::create_dir_all(&folder)?;
    let Ok(server) = Server::start(&folder) else {
        println!("there is no redis-server here");
        return Ok(());
    };
    let url = format!("unix://{}/redis.sock", folder.display());
    let redis = Redis::open(&url, OutagePolicy::open())?;
    let limit = redis.limit("watch", TokenBucket::new(Rate::per_second(1_000), 5))?;
    connected(&redis).await?;
    limit.acquire(1).await?;
    scrape(prometheus, "up", "remote");

    drop(server);
    while redis.is_up() {
        limit.acquire(1).await?;
    }
    scrape(prometheus, "killed", "remote");

    let server = Server::start(&folder)?;
    connected(&redis).await?;
    scrape(prometheus, "started again", "remote");
    drop(server);
    Ok(fs::remove_dir_all(&folder)?)
}

/// What Prometheus would collect now of this limit, without the buckets and the outcomes that no request had.
fn scrape(prometheus: &PrometheusHandle, when: &str, limit: &str) {
    println!("# {when}");
    let page = prometheus.render();
    let mut lines: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("paceline_") && line.contains(limit))
        .filter(|line| !line.contains("_bucket{"))
        .filter(|line| !(line.contains("outcome=") && line.ends_with(" 0")))
        .collect();
    lines.sort_unstable();
    for line in lines {
        println!("{line}");
    }
}

/// Waits until the server is up.
async fn connected(redis: &Redis) -> Result<(), Box<dyn Error>> {
    let connects = async {
        while redis.connect().await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    Ok(timeout(Duration::from_secs(10), connects).await?)
}

/// A Redis that is killed when it is dropped.
struct Server(Child);

impl Server {
    fn start(folder: &Path) -> std::io::Result<Self> {
        let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let mut server = Command::new(program);
        server.args(["--port", "0", "--save", "", "--unixsocket", "redis.sock"]);
        let child = server
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = child.map(Self)?;
        // Ten seconds at most.
        for _ in 0..1_000 {
            if UnixStream::connect(folder.join("redis.sock")).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
