//! A service on loopback, with a capacity that falls to a third and comes back, behind a fixed limit and behind one that follows.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{Response, StatusCode, Uri};
use axum::routing::get;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use paceline::concurrency::{Adaptive, Aimd, Controller, Gradient, Outcome, Permits};
use paceline_tower::future::{ByStatus, Classify};
use paceline_tower::{AdaptiveLayer, ConcurrencyLayer, Refusal};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::figures::{Figure, Notes};
use crate::measure::{Extent, quantile};

use super::pacing::{Flavour, caught};

const GOODPUT: &str = "answers in time a second";
const SHARE: &str = "share of the best fixed limit's answers in time";
const P99: &str = "ms to an answer, 99 %";
/// Drawn, and in no table.
const GOODPUT_THEN: &str = "answers in time in this second";
const LIMIT: &str = "requests at once";

/// Of the service: how many requests it works on, and for how long.
const WORKERS: u32 = 12;
const WORK: Duration = Duration::from_millis(20);

/// How many workers are gone while it has a third of its capacity.
const GONE: u32 = WORKERS / 3 * 2;

/// The service refuses a request while this many wait for a worker.
const PLACES: usize = 60;

/// Requests a second: between a third of the capacity and the whole.
const OFFERED: f64 = 450.0;

/// An answer that comes later is of no use.
const IN_TIME: Duration = Duration::from_millis(100);

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A request waits for its permit for so long.
const WITHIN: Duration = Duration::from_millis(20);

/// For a classifier that takes a slow answer as a drop.
const SLOW: Duration = Duration::from_millis(60);

/// Between two readings of the limit.
const READING: Duration = Duration::from_millis(250);

const PHASES: [&str; 3] = ["whole capacity", "a third", "whole again"];

/// What is in front of the service.
#[derive(Clone, Copy, Debug)]
enum Front {
    Nothing,
    Fixed(u32),
    /// A 503 is a drop.
    Aimd,
    /// And a slow answer, too.
    AimdAndSlow,
    Gradient,
}

const FOLLOWING: [Front; 3] = [Front::Aimd, Front::AimdAndSlow, Front::Gradient];

impl Front {
    fn name(self) -> String {
        match self {
            Self::Nothing => "bare service".to_owned(),
            Self::Fixed(limit) => format!("fixed limit of {limit}"),
            Self::Aimd => "paceline Aimd".to_owned(),
            Self::AimdAndSlow => "paceline Aimd, slow is dropped".to_owned(),
            Self::Gradient => "paceline Gradient".to_owned(),
        }
    }
}

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("adaptive");
    let phase = extent.pick(Duration::from_secs(6), Duration::from_millis(500));
    let fixed = extent.pick(&[2, 4, 8, 16, 32, 64][..], &[8, 16][..]);
    let measured = |front: Front| match caught(|| run(front, phase)) {
        Ok(Ok(run)) => Ok((front, run)),
        Ok(Err(error)) => Err((front, error.to_string())),
        Err(why) => Err((front, why)),
    };
    let fixed = fixed.iter().map(|&limit| Front::Fixed(limit));
    let fronts = [Front::Nothing].into_iter().chain(fixed).chain(FOLLOWING);
    let mut runs = Vec::new();
    for front in fronts {
        match measured(front) {
            Ok((front, run)) => {
                add_phases(&mut notes, front, &run);
                runs.push((front, run));
            }
            Err((front, why)) => notes.add(GOODPUT, &front.name(), "all", Err::<f64, _>(why)),
        }
    }
    add_comparison(&mut notes, &runs);
    notes.figures
}

fn add_phases(notes: &mut Notes, front: Front, run: &Run) {
    let name = front.name();
    for (number, phase) in PHASES.into_iter().enumerate() {
        notes.add(GOODPUT, &name, phase, run.goodput_in(number));
        notes.add(P99, &name, phase, run.p99_in(number));
    }
    notes.add(GOODPUT, &name, "all", run.goodput());
}

/// Beside the best and the worst fixed limit, which are known afterwards.
fn add_comparison(notes: &mut Notes, runs: &[(Front, Run)]) {
    let (fixed, others): (Vec<_>, Vec<_>) = runs
        .iter()
        .partition(|(front, _)| matches!(front, Front::Fixed(_)));
    let by_goodput =
        |a: &&&(Front, Run), b: &&&(Front, Run)| a.1.goodput().total_cmp(&b.1.goodput());
    let best = fixed.iter().max_by(by_goodput);
    let worst = fixed.iter().min_by(by_goodput);
    let (Some(&best), Some(&worst)) = (best, worst) else {
        return;
    };
    for (front, run) in runs {
        let share = run.goodput() / best.1.goodput();
        notes.add(SHARE, &front.name(), "all", share);
    }
    for (front, run) in [worst, best].into_iter().chain(others) {
        add_seconds(notes, *front, run);
    }
}

fn add_seconds(notes: &mut Notes, front: Front, run: &Run) {
    let name = front.name();
    for (second, goodput) in run.goodput_by_second() {
        notes.add_at(GOODPUT_THEN, &name, (&second.to_string(), second), goodput);
    }
    for (at, limit) in &run.limits {
        notes.add_at(LIMIT, &name, (&format!("{at:.2}"), *at), f64::from(*limit));
    }
}

/// What clients saw, and what the limit was.
#[derive(Debug)]
struct Run {
    phase: Duration,
    answers: Vec<Answer>,
    /// With the seconds since the start.
    limits: Vec<(f64, u32)>,
}

/// A request that was not refused: when it was sent, and how long its answer took.
#[derive(Clone, Copy, Debug)]
struct Answer {
    sent: Duration,
    took: Duration,
}

impl Run {
    /// Answers in time, a second.
    fn goodput(&self) -> f64 {
        let in_time = self.in_time().count() as f64;
        in_time / self.phase.as_secs_f64() / PHASES.len() as f64
    }

    fn goodput_in(&self, number: usize) -> f64 {
        let in_time = self
            .in_time()
            .filter(|answer| self.phase_of(answer) == number);
        in_time.count() as f64 / self.phase.as_secs_f64()
    }

    fn p99_in(&self, number: usize) -> f64 {
        let answers = self.answers.iter();
        let of_phase = answers.filter(|answer| self.phase_of(answer) == number);
        let took: Vec<f64> = of_phase
            .map(|answer| answer.took.as_secs_f64() * 1e3)
            .collect();
        quantile(&took, 0.99)
    }

    /// At the middle of each second.
    fn goodput_by_second(&self) -> Vec<(f64, f64)> {
        let seconds = (self.phase * 3).as_secs();
        let goodput = |second| {
            let of_it = self
                .in_time()
                .filter(|answer| answer.sent.as_secs() == second);
            (second as f64 + 0.5, of_it.count() as f64)
        };
        (0..seconds).map(goodput).collect()
    }

    fn in_time(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(|answer| answer.took <= IN_TIME)
    }

    fn phase_of(&self, answer: &Answer) -> usize {
        let is_past = |end: &u32| answer.sent >= self.phase * *end;
        (1..3).filter(is_past).count()
    }
}

/// The service has a thread, and its clients have another one.
fn run(front: Front, phase: Duration) -> io::Result<Run> {
    let (stop, stopped) = oneshot::channel();
    let (bound, address) = mpsc::channel();
    let service = thread::spawn(move || {
        let runtime = Flavour::OneThread.runtime();
        runtime.block_on(serve(front, phase, bound, stopped))
    });
    let answers = match address.recv() {
        Ok(address) => Flavour::OneThread
            .runtime()
            .block_on(offer(address, phase * 3)),
        Err(_) => Vec::new(),
    };
    drop(stop);
    let limits = service.join().expect("the service does not panic")?;
    Ok(Run {
        phase,
        answers,
        limits,
    })
}

/// Returns the limits over time.
async fn serve(
    front: Front,
    phase: Duration,
    bound: mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<Vec<(f64, u32)>> {
    let desk = Desk {
        workers: Arc::new(Semaphore::new(WORKERS as usize)),
        places: Arc::new(Semaphore::new(PLACES)),
    };
    let workers = Arc::clone(&desk.workers);
    let router = Router::new().route("/", get(work)).with_state(desk);
    let (router, permits) = behind(front, router);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let _ = bound.send(listener.local_addr()?);
    let phases = tokio::spawn(async move {
        sleep(phase).await;
        let gone = workers.acquire_many(GONE).await;
        sleep(phase).await;
        drop(gone);
    });
    let mut limits = Vec::new();
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served?,
        () = read(permits, &mut limits) => {}
        _ = stopped => {}
    }
    phases.abort();
    Ok(limits)
}

async fn read(permits: Option<Permits>, limits: &mut Vec<(f64, u32)>) {
    let start = Instant::now();
    let Some(permits) = permits else {
        return std::future::pending().await;
    };
    loop {
        limits.push((start.elapsed().as_secs_f64(), permits.limit()));
        sleep(READING).await;
    }
}

/// With the permits, if it has some.
fn behind(front: Front, router: Router) -> (Router, Option<Permits>) {
    let (controller, slow): (Box<dyn Controller + Send>, _) = match front {
        Front::Nothing => return (router, None),
        Front::Fixed(limit) => {
            let permits = Permits::new(limit);
            let layer = ConcurrencyLayer::new(permits.clone()).within(WITHIN);
            return (router.layer(layer.answering_with(refused)), Some(permits));
        }
        Front::Aimd => (Box::new(Aimd::new(1, 200)), Duration::MAX),
        Front::AimdAndSlow => (Box::new(Aimd::new(1, 200)), SLOW),
        Front::Gradient => {
            let gradient = Gradient::new(4, 200).with_window(Duration::from_millis(100));
            (Box::new(gradient), Duration::MAX)
        }
    };
    let adaptive = Adaptive::new(controller);
    let permits = adaptive.permits().clone();
    let layer = AdaptiveLayer::new(adaptive).within(WITHIN).classifying(
        move |result: &Result<Response<Body>, Infallible>, latency| {
            if latency > slow {
                return Outcome::Dropped;
            }
            ByStatus::default().outcome(result, latency)
        },
    );
    (router.layer(layer.answering_with(refused)), Some(permits))
}

fn refused(_: &Parts, _: &Refusal) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

#[derive(Clone)]
struct Desk {
    workers: Arc<Semaphore>,
    /// For requests that wait for a worker.
    places: Arc<Semaphore>,
}

async fn work(State(desk): State<Desk>) -> StatusCode {
    let Ok(place) = desk.places.try_acquire() else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    let worker = desk.workers.acquire().await;
    drop(place);
    sleep(WORK).await;
    drop(worker);
    StatusCode::OK
}

/// Sends requests at random times, which do not wait for the answers.
async fn offer(service: SocketAddr, during: Duration) -> Vec<Answer> {
    let uri: Uri = format!("http://{service}/").parse().expect("it is a URI");
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut rng = fastrand::Rng::with_seed(7);
    let (start, mut sent) = (tokio::time::Instant::now(), Duration::ZERO);
    let mut requests = JoinSet::new();
    loop {
        sent += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / OFFERED);
        if sent >= during {
            break;
        }
        sleep_until(start + sent).await;
        requests.spawn(ask(client.clone(), uri.clone(), sent));
    }
    requests.join_all().await.into_iter().flatten().collect()
}

/// `None` if it was refused. A client that gives up counts as if it was answered then.
async fn ask(client: Client<HttpConnector, Body>, uri: Uri, sent: Duration) -> Option<Answer> {
    let start = Instant::now();
    let answer = timeout(PATIENCE, client.get(uri)).await;
    let is_refusal = |response: &Response<_>| response.status() != StatusCode::OK;
    let is_refused = matches!(&answer, Ok(Ok(response)) if is_refusal(response));
    let took = match answer {
        Ok(Ok(_)) => start.elapsed(),
        Ok(Err(_)) | Err(_) => PATIENCE,
    };
    (!is_refused).then_some(Answer { sent, took })
}
