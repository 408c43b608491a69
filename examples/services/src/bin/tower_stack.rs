//! How do I put limits in front of an axum service, and change them while it runs?
//!
//! `/status` is free. `/data/{name}` is limited by API key, with a limit for each tier, and by address without a key. A second port
//! on loopback is for operators: it shows and changes whether the limit is active, and for which share of the callers.
//!
//! Without options the program is its own client for a moment, and checks what is answered. With `--listen` it serves until Ctrl-C:
//!
//! ```text
//! cargo run -p services --bin tower_stack -- --listen 127.0.0.1:8080 --admin 127.0.0.1:8081
//! curl -i -H 'x-api-key: key-of-ann' http://127.0.0.1:8080/data/north
//! curl -X PUT -d '{"mode": "shadow"}' http://127.0.0.1:8081/limit
//! ```

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{ConnectInfo, Extension, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use clap::{Parser, ValueEnum};
use paceline::config::ConfigError;
use paceline::limiter::{Keyed, Limiter, Limits, Mode, Share, Switch, Switched};
use paceline::policy::SlidingLog;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};
use paceline_tower::{Answers, BadKey, ClientIp, ClientKey, EnforceLayer, For};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

/// A service with a limit for each caller.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Serve here until Ctrl-C, as in 127.0.0.1:8080; without it the program is its own client for a moment
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Where operators see and change the limit: an address of loopback; port 0 is a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    admin: SocketAddr,
    /// The limit of each account of the free tier
    #[arg(long, default_value = "4/min")]
    free: Rate,
    /// The limit of each account of the paid tier
    #[arg(long, default_value = "100/min")]
    paid: Rate,
    /// The limit of all callers at one address that have no account
    #[arg(long, default_value = "40/min")]
    address: Rate,
    /// Keep the limits in Redis, for all replicas of the service
    #[arg(long)]
    redis: Option<String>,
    /// What passes while Redis is down
    #[arg(long, default_value = "open")]
    outage: Outage,
    /// How long an answer of Redis may take, in milliseconds
    #[arg(long, default_value_t = 25)]
    deadline: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Outage {
    /// Every request
    Open,
    /// No request
    Closed,
}

impl Options {
    /// At most the rate of the tier in any window. The key of a limit is the text of a [`Caller`].
    fn policy_of(&self, caller: &str) -> SlidingLog {
        SlidingLog::from_rate(match caller.split_once(' ') {
            Some(("free", _)) => self.free,
            Some(("paid", _)) => self.paid,
            _ => self.address,
        })
    }

    fn redis(&self) -> Result<Option<Redis>, ConfigError> {
        let outage = match self.outage {
            Outage::Open => OutagePolicy::open(),
            Outage::Closed => OutagePolicy::closed(),
        };
        let deadline = Duration::from_millis(self.deadline);
        let open = |url: &String| Redis::open(url, outage)?.with_deadline(deadline);
        self.redis.as_ref().map(open).transpose()
    }

    /// The public router and that of the operators.
    fn routers(&self) -> Result<(Router, Router), ConfigError> {
        let options = self.clone();
        let redis = self.redis()?;
        let site = Arc::new(Site {
            redis: redis.clone(),
            switch: Switch::new(),
            handled: AtomicU64::new(0),
        });
        let public = if let Some(redis) = redis {
            // A rate that does not fit is an error here, and not one for each request.
            for rate in [self.free, self.paid, self.address] {
                redis.limit("calls", SlidingLog::from_rate(rate))?;
            }
            let limits = redis.keyed_by("calls", move |caller| options.policy_of(caller))?;
            public(limits, &site)
        } else {
            // An address is chosen by the caller, so there is a bound on how many are remembered.
            let limits = Keyed::by(move |caller: &String| options.policy_of(caller));
            public(limits.with_max_keys(100_000), &site)
        };
        Ok((public, admin(site)))
    }
}

/// What the handlers share.
struct Site {
    redis: Option<Redis>,
    switch: Switch,
    /// How many requests the handler behind the limit has served.
    handled: AtomicU64,
}

/// A request for data passes from the last layer to the first.
fn public<M>(limits: M, site: &Arc<Site>) -> Router
where
    M: Limits<String, Error: Send + Sync> + Send + Sync + 'static,
    M::Limit: Limiter<Error: fmt::Display + Send> + Send + Sync + 'static,
{
    let limits = Switched::new(limits, site.switch.clone());
    // A request without a caller is refused, where `by_key` would let it pass.
    let limit = EnforceLayer::with_terms(For::each(move |request: &Request| {
        let caller = request.extensions().get::<Caller>().map(Caller::to_string);
        let limit = caller.and_then(|caller| limits.at(caller).ok());
        limit.map(Some).ok_or(BadKey::in_header(KEY))
    }));
    Router::new()
        .route("/data/{name}", get(data))
        .with_state(Arc::clone(site))
        .layer(limit.answering(Answers::new("calls").with_success_headers(true)))
        .layer(middleware::from_fn(authenticate))
        // What is added after a layer does not pass through it.
        .route("/status", get(async || "up\n"))
}

async fn data(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Response {
    if let Caller::Unknown(_) = caller {
        let scheme = [(header::WWW_AUTHENTICATE, "ApiKey")];
        return (
            StatusCode::UNAUTHORIZED,
            scheme,
            "no account has this key\n",
        )
            .into_response();
    }
    site.handled.fetch_add(1, Ordering::Relaxed);
    match caller {
        Caller::Account(account) => format!("all of {name} for {account}\n").into_response(),
        _ => format!("a sample of {name}\n").into_response(),
    }
}

/// Accounts by key: the tier and the name. A real service looks up the hash of a key.
const ACCOUNTS: [(&str, &str); 2] = [("key-of-ann", "free ann"), ("key-of-bob", "paid bob")];

const KEY: &str = "x-api-key";

/// Who sends a request. Its text is the key of its limit: never the API key, which is a secret.
#[derive(Clone)]
enum Caller {
    Account(&'static str),
    /// It has sent no key.
    Nobody(ClientKey),
    /// It has sent a key of no account. It has the limit of its address, so that keys cannot be guessed quickly.
    Unknown(ClientKey),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(account) => f.write_str(account),
            Self::Nobody(client) | Self::Unknown(client) => write!(f, "address {client}"),
        }
    }
}

/// Finds the caller. It stands in front of the limit, since a limit by keys that are not checked is none.
async fn authenticate(mut request: Request, next: Next) -> Response {
    // Behind proxies: `try_with_header`.
    let client = ClientIp::peer::<ConnectInfo<SocketAddr>>().key(&request);
    let caller = match request.headers().get(KEY).map(|key| key.to_str()) {
        None => Some(Caller::Nobody(client)),
        Some(Ok(key)) if !key.is_empty() => {
            let account = ACCOUNTS.iter().find(|(known, _)| *known == key);
            Some(account.map_or(Caller::Unknown(client), |(_, account)| {
                Caller::Account(account)
            }))
        }
        // Empty, or not printable.
        Some(_) => None,
    };
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// For operators. Listening on loopback is what protects it.
fn admin(site: Arc<Site>) -> Router {
    let limit = get(report).put(change);
    Router::new().route("/limit", limit).with_state(site)
}

#[derive(Serialize)]
struct Report {
    mode: &'static str,
    share: String,
    /// What was not limited, because of the mode or the share, and what of it would have been refused.
    shadowed: u64,
    would_refuse: u64,
    handled: u64,
    /// `None` if the limits are in memory.
    redis_is_up: Option<bool>,
}

async fn report(State(site): State<Arc<Site>>) -> Json<Report> {
    let stats = site.switch.stats();
    let mode = MODES.iter().find(|(_, mode)| *mode == site.switch.mode());
    Json(Report {
        mode: mode.map_or("", |(name, _)| name),
        share: site.switch.share().to_string(),
        shadowed: stats.shadowed,
        would_refuse: stats.held_back,
        handled: site.handled.load(Ordering::Relaxed),
        redis_is_up: site.redis.as_ref().map(Redis::is_up),
    })
}

/// What is not named stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    mode: Option<String>,
    share: Option<String>,
}

const MODES: [(&str, Mode); 3] = [
    ("active", Mode::Active),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];

/// Changes both or nothing.
async fn change(site: State<Arc<Site>>, change: String) -> Result<Json<Report>, Nonsense> {
    let change: Change = serde_json::from_str(&change)?;
    let (mut mode, mut share) = (site.switch.mode(), site.switch.share());
    if let Some(name) = change.mode {
        let known = MODES.iter().find(|(known, _)| *known == name);
        (_, mode) =
            *known.ok_or_else(|| format!("`{name}` is not a mode: write active, shadow or off"))?;
    }
    if let Some(text) = change.share {
        share = text.parse::<Share>()?;
    }
    site.switch.set(mode, share);
    Ok(report(site).await)
}

/// A change that names no setting: 400, with the value.
struct Nonsense(String);

impl<E: ToString> From<E> for Nonsense {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl IntoResponse for Nonsense {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, self.0 + "\n").into_response()
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Err(error) = run().await {
        eprintln!("tower_stack: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if !options.admin.ip().is_loopback() {
        return Err(format!("--admin {} is not an address of loopback", options.admin).into());
    }
    let (public, admin) = options.routers()?;
    let listen = options.listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    let (listen, operators) = (
        TcpListener::bind(listen).await?,
        TcpListener::bind(options.admin).await?,
    );
    let site = format!("http://{}", listen.local_addr()?);
    let operate = format!("http://{}/limit", operators.local_addr()?);
    println!("{site}, operators: {operate}");

    let public = public.into_make_service_with_connect_info::<SocketAddr>();
    let public = axum::serve(listen, public);
    let admin = axum::serve(operators, admin);
    tokio::select! {
        served = public.into_future() => served?,
        served = admin.into_future() => served?,
        told = ctrl_c(), if options.listen.is_some() => told?,
        shown = show(&options, &site, &operate), if options.listen.is_none() => shown?,
    }
    Ok(())
}

/// What callers and an operator see: a line for each, with the number of each answer.
async fn show(options: &Options, site: &str, operate: &str) -> Result<(), Box<dyn Error>> {
    let [free, paid, address] = [options.free, options.paid, options.address].map(Rate::permits);
    let client = Client::new();
    let data = &format!("{site}/data/north");
    let [ann, bob, guess] = ["key-of-ann", "key-of-bob", "a guess"].map(Some);
    println!("{:<48} {:>5} {:>5} {:>5}", "", 200, 401, 429);
    let expect = async |who: &str, url: &str, key: Option<&str>, expected: [u32; 3]| {
        let sent = expected.iter().sum();
        let answers = answers(&client, url, key, sent).await?;
        let [passed, unknown, refused] = answers;
        println!("{who:<48} {passed:>5} {unknown:>5} {refused:>5}");
        assert_eq!(answers, expected, "{who}: 200, 401, 429");
        Ok::<_, reqwest::Error>(())
    };

    expect(
        "/status, free for all",
        &format!("{site}/status"),
        None,
        [200, 0, 0],
    )
    .await?;
    expect("free tier", data, ann, [free, 0, 2]).await?;
    expect("paid tier", data, bob, [paid, 0, 2]).await?;
    expect("a key of no account", data, guess, [0, 1, 0]).await?;
    expect("no key, the same address", data, None, [address - 1, 0, 2]).await?;
    expect("a key of no account", data, guess, [0, 0, 1]).await?;
    for (change, expected) in [
        (r#"{"mode": "shadow"}"#, [2, 0, 0]),
        (r#"{"mode": "active", "share": "0%"}"#, [2, 0, 0]),
        (r#"{"share": "100%"}"#, [0, 0, 2]),
        (r#"{"mode": "off"}"#, [2, 0, 0]),
    ] {
        let changed = client.put(operate).body(change).send().await?;
        assert_eq!(changed.status(), StatusCode::OK);
        expect(&format!("free tier, {change}"), data, ann, expected).await?;
    }
    println!("{}", client.get(operate).send().await?.text().await?);

    let nonsense = client
        .put(operate)
        .body(r#"{"share": "101%"}"#)
        .send()
        .await?;
    assert_eq!(nonsense.status(), StatusCode::BAD_REQUEST);
    print!("{}", nonsense.text().await?);
    Ok(())
}

/// How many of these requests are answered 200, 401 and 429.
async fn answers(
    client: &Client,
    url: &str,
    key: Option<&str>,
    sent: u32,
) -> Result<[u32; 3], reqwest::Error> {
    let mut answers = [0; 3];
    for _ in 0..sent {
        let request = key
            .iter()
            .fold(client.get(url), |request, key| request.header(KEY, *key));
        let status = request.send().await?.status().as_u16();
        let place = [200, 401, 429].iter().position(|known| *known == status);
        answers[place.unwrap_or_else(|| panic!("{url} is answered {status}"))] += 1;
    }
    Ok(answers)
}
