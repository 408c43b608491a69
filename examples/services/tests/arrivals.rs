//! The first example of the README with a real HTTP server that counts arrivals: with a margin it answers no 429.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a provider has a clock of its own, and its first connections are slow"
)]

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use futures::{StreamExt, stream};
use paceline::prelude::*;
use tokio::net::TcpListener;

const QUOTA: usize = 20;
const WINDOW: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_millis(500);

/// The number and the instant of each request that has arrived.
type Arrivals = Arc<Mutex<Vec<(u32, Instant)>>>;

/// Refuses a request if more than the quota have arrived in the window that ends with it.
async fn judge(State(arrivals): State<Arrivals>, Path(number): Path<u32>) -> StatusCode {
    if number < 3 {
        tokio::time::sleep(Duration::from_millis(150)).await; // the way of a new connection
    }
    let mut arrivals = arrivals.lock().unwrap();
    let now = Instant::now();
    arrivals.push((number, now));
    let inside = arrivals
        .iter()
        .filter(|(_, at)| now.duration_since(*at) < WINDOW);
    if inside.count() > QUOTA {
        return StatusCode::TOO_MANY_REQUESTS;
    }
    StatusCode::OK
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_margin_a_server_that_counts_arrivals_refuses_nothing() {
    let arrivals = Arrivals::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/{number}", get(judge));
    let app = app.with_state(Arc::clone(&arrivals));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();

    let spacing = Interval::from_rate(Rate::new(20, WINDOW)).with_margin(Duration::ZERO..=LONGEST);
    let start = Instant::now();
    let messages = stream::iter(0..45).pace(spacing.owned());
    let calls = messages.map(|number| client.get(format!("{url}/{number}")).send());
    let answers: Vec<_> = calls.buffer_unordered(45).collect().await;

    let codes = answers.into_iter().map(|answer| answer.unwrap().status());
    let refused = codes.filter(|code| !code.is_success()).count();
    // No request leaves earlier than its place in the row, so none was under way for longer than this.
    let arrivals = arrivals.lock().unwrap();
    let delays = arrivals
        .iter()
        .map(|(number, at)| at.duration_since(start + spacing.interval() * *number));
    let longest = delays.max().unwrap();
    assert_eq!(arrivals.len(), 45);
    assert!(
        refused == 0 || longest > LONGEST,
        "{refused} refused, none under way for longer than {longest:?}"
    );
}
