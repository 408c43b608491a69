//! How do I deploy a rate limit that several replicas of a service share, with its settings in a file and variables over them?
//!
//! `/` is limited for each client by a sliding window in Redis, in all replicas together. `/healthz` and `/metrics` are free. Whatever
//! is wrong with Redis, requests pass; rules in `deploy/prometheus` alert then.
//!
//! ```text
//! export REDIS_URI=redis://localhost:6379/0
//! LIMITER_LIMIT=3 cargo run -p services --bin sliding_window -- --config examples/services/sliding_window.toml
//! curl -i http://127.0.0.1:8080/
//! ```

mod settings;

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::routing::get;
use clap::Parser;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use paceline::config::ConfigError;
use paceline::limiter::{Metrics, Mode, Switch, Switched};
use paceline_redis::{OutagePolicy, Redis};
use paceline_tower::{Answers, ClientIp, EnforceLayer};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;
use tracing_subscriber::filter::LevelFilter;

use settings::{PREFIX, Settings, load};

/// A service with a limit for each client, in Redis.
#[derive(Parser)]
struct Options {
    /// The file with the settings
    #[arg(long)]
    config: PathBuf,
    /// How long an answer of Redis may take, in milliseconds
    #[arg(long, default_value_t = 25)]
    deadline: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Err(error) = run(&Options::parse()).await {
        eprintln!("sliding_window: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let path = options.config.display();
    let text = fs::read_to_string(&options.config).map_err(|error| format!("{path}: {error}"))?;
    let variables: HashMap<_, _> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let settings: Settings =
        load(&text, PREFIX, &variables).map_err(|error| format!("{path}: {error}"))?;
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_writer(std::io::stderr)
        .init();
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    let redis = Redis::open(&settings.redis, OutagePolicy::always_open())?;
    let redis = redis.with_deadline(Duration::from_millis(options.deadline))?;
    let router = router(&settings, &redis, prometheus)?;

    let listener = TcpListener::bind((settings.host, settings.port)).await?;
    println!("http://{}", listener.local_addr()?);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async { _ = ctrl_c().await })
        .await?;
    Ok(())
}

fn router(
    settings: &Settings,
    redis: &Redis,
    prometheus: PrometheusHandle,
) -> Result<Router, ConfigError> {
    let clients = redis.keyed("window", settings.policy()?)?;
    let clients = clients.with_observer(Metrics::new("window"));
    let mode = if settings.enabled {
        Mode::Active
    } else {
        Mode::Off
    };
    let clients = Switched::new(clients, Switch::new().with_mode(mode));
    // Behind proxies: `try_with_header`.
    let client = ClientIp::peer::<ConnectInfo<SocketAddr>>();
    let limit = EnforceLayer::by_key(clients, move |request: &Request| {
        Some(client.key(request).to_string())
    });
    Ok(Router::new()
        .route("/", get(async || "passed\n"))
        .layer(limit.answering(Answers::new("window").with_success_headers(true)))
        // What is added after a layer does not pass through it.
        .route("/healthz", get(async || "up\n"))
        .route("/metrics", get(async move || prometheus.render())))
}
