//! 50 tasks call three hosts with one client. Each host counts what arrives, and one of them refuses everything for two seconds.
//!
//! `cargo run -p services --bin outbound`

#![expect(
    clippy::disallowed_types,
    reason = "a host has a clock of its own; sharing the library's would share its mistakes"
)]

#[path = "../../../strict/site.rs"]
mod site;
#[path = "../../../strict/sliding.rs"]
mod sliding;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{Extension, Router, http::Uri, response::IntoResponse};
use futures::future::try_join_all;
use http::{Request, Response, StatusCode};
use paceline::{concurrency::KeyedPermits, policy::Interval, prelude::*};
use paceline_tower::{ConcurrencyLayer, PaceLayer, host_key};
use reqwest::{Body, redirect, retry};
use tower::{BoxError, Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{
    site::{Arrival, in_background, listen, refused, serve},
    sliding::Sliding,
};

/// What a host allows in any window, counted on arrival. Refused requests count too.
const QUOTA: u32 = 5;
const WINDOW: Duration = Duration::from_millis(500);

/// How long the first host refuses everything, and after how many arrivals it begins.
const REFUSES_FOR: Duration = Duration::from_secs(2);
const REFUSES_AFTER: u32 = 2;

/// How many tasks call each host.
const HOSTS: [(&str, u32); 3] = [("refusing", 30), ("calm", 10), ("quiet", 10)];

type Client = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let hosts = start_hosts()?;
    let client = limited_client()?;
    let started = Instant::now();

    let all = hosts.iter().map(|host| {
        let client = client.clone();
        async move {
            let uris = (0..host.tasks).map(|task| format!("http://{}/{task}", host.address));
            let tasks = uris.map(|uri| tokio::spawn(call(client.clone(), uri)));
            for task in try_join_all(tasks).await? {
                task?;
            }
            Ok::<_, BoxError>(started.elapsed())
        }
    });
    let done = try_join_all(all).await?;

    let refused_until = lock(&hosts[0].judge).refuses_until.expect("it refused");
    println!(
        "host      tasks  arrivals  meanwhile  refused  above the quota  too early  done after"
    );
    for (host, done) in hosts.iter().zip(&done) {
        let judge = lock(&host.judge);
        let arrivals = count(judge.arrivals.len());
        // While the first host refused.
        let meanwhile = judge.arrivals.iter().filter(|at| **at < refused_until);
        let meanwhile = count(meanwhile.count());
        println!(
            "{:<8} {:>6} {arrivals:>9} {meanwhile:>10} {:>8} {:>16} {:>10} {:>8.1} s",
            host.name,
            host.tasks,
            judge.refused,
            judge.above_quota,
            judge.too_early,
            done.as_secs_f64()
        );
        assert_eq!(
            judge.above_quota, 0,
            "{}: windows above the quota",
            host.name
        );
        assert_eq!(
            judge.too_early, 0,
            "{}: retries during the pause",
            host.name
        );
        assert_eq!(arrivals, host.tasks + judge.refused, "{}", host.name);
        let has_gone_on = host.name == HOSTS[0].0 || meanwhile >= host.tasks / 2;
        assert!(
            has_gone_on,
            "{}: the pause of another host held it up",
            host.name
        );
    }
    let refused = |host: usize| lock(&hosts[host].judge).refused;
    // What was under way when the host began to refuse. Each had a permit.
    assert!((1..=QUOTA).contains(&refused(0)), "{}", refused(0));
    assert_eq!((refused(1), refused(2)), (0, 0));
    assert!(done[0] >= REFUSES_FOR);
    assert!(
        done[1].max(done[2]) < done[0],
        "the pause of one host held up another"
    );
    Ok(())
}

/// The client with the limits of each host.
fn limited_client() -> Result<Client, reqwest::Error> {
    // Each host allows 5 requests in 500 ms. They are spread evenly, and wait as long as their host asks.
    let rates = Interval::every(WINDOW / QUOTA).keyed();
    let rates = PaceLayer::by_key(rates, host_key()).obeying();

    // A host counts arrivals, and a request can be under way for long or short. A response proves that its request has arrived. So a
    // permit that comes back one window after the response keeps the quota at the host exactly, without a margin.
    let permits = KeyedPermits::new(QUOTA).with_cooldown(WINDOW);
    let arrivals = ConcurrencyLayer::by_key(permits, host_key()).until_response();

    // Every attempt has to wait for the limits, so `reqwest` neither retries nor follows redirects by itself.
    let reqwest = reqwest::Client::builder()
        .retry(retry::never())
        .redirect(redirect::Policy::none())
        .no_proxy()
        .build()?;
    let client = service_fn(move |request: Request<Body>| {
        let reqwest = reqwest.clone();
        async move {
            reqwest
                .execute(request.try_into()?)
                .await
                .map(Response::from)
        }
    });
    let client = (arrivals, rates).layer(client);
    Ok(Client::new(client.map_err(Into::into)))
}

/// Calls until the host does not refuse. The wait is in the client.
async fn call(client: Client, uri: String) -> Result<(), BoxError> {
    loop {
        let request = Request::get(&uri).body(Body::default())?;
        let response = client.clone().oneshot(request).await?;
        match response.status() {
            StatusCode::OK => return Ok(()),
            StatusCode::TOO_MANY_REQUESTS => {}
            other => return Err(format!("{uri}: {other}").into()),
        }
    }
}

struct Host {
    name: &'static str,
    tasks: u32,
    address: SocketAddr,
    judge: Arc<Mutex<Judge>>,
}

/// What a host has seen.
struct Judge {
    sliding: Sliding,
    refuses_after: u32,
    refuses_until: Option<Instant>,
    /// When each request was refused last.
    refused_at: HashMap<String, Instant>,
    arrivals: Vec<Instant>,
    refused: u32,
    above_quota: u32,
    too_early: u32,
}

impl Judge {
    fn new(refuses_after: u32) -> Self {
        Self {
            sliding: Sliding::new(QUOTA, WINDOW),
            refuses_after,
            refuses_until: None,
            refused_at: HashMap::new(),
            arrivals: Vec::new(),
            refused: 0,
            above_quota: 0,
            too_early: 0,
        }
    }

    /// Counts a request, and returns whether it is refused.
    fn refuses(&mut self, request: &str, at: Instant) -> bool {
        let is_early = |refused: &Instant| at.saturating_duration_since(*refused) < REFUSES_FOR;
        self.too_early += u32::from(self.refused_at.get(request).is_some_and(is_early));
        self.above_quota += u32::from(self.sliding.is_over(at, 1));
        self.arrivals.push(at);
        if count(self.arrivals.len()) == self.refuses_after + 1 {
            self.refuses_until = Some(at + REFUSES_FOR);
        }
        let refuses = self.refuses_until.is_some_and(|until| at < until);
        if refuses {
            self.refused += 1;
            self.refused_at.insert(request.to_owned(), at);
        }
        refuses
    }
}

/// Starts a server for each host. Only the first one refuses.
fn start_hosts() -> io::Result<Vec<Host>> {
    let refuses_after = [REFUSES_AFTER, u32::MAX - 1, u32::MAX - 1];
    HOSTS
        .into_iter()
        .zip(refuses_after)
        .map(|((name, tasks), refuses_after)| {
            let listener = listen()?;
            let address = listener.local_addr()?;
            let judge = Arc::new(Mutex::new(Judge::new(refuses_after)));
            in_background(serve(listener, routes(Arc::clone(&judge))))?;
            Ok(Host {
                name,
                tasks,
                address,
                judge,
            })
        })
        .collect()
}

fn routes(judge: Arc<Mutex<Judge>>) -> Router {
    let answer = async move |uri: Uri, Extension(Arrival(at)): Extension<Arrival>| {
        if lock(&judge).refuses(uri.path(), at) {
            refused(REFUSES_FOR)
        } else {
            StatusCode::OK.into_response()
        }
    };
    Router::new().fallback(answer)
}

fn count(n: usize) -> u32 {
    n.try_into().expect("few requests")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
