//! The picture of fair queueing: the backlogs of two tenants in one queue, and taking turns.
#![expect(
    clippy::disallowed_methods,
    reason = "requests of its own, which share nothing with the timers under test"
)]

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use futures::future::join_all;
use paceline::limiter::FairQueue;
use paceline::prelude::*;
use tokio::time::{Instant, sleep};

use super::{BLUE, Picture, RED, check};

const LARGE: &str = "large";
const SMALL: &str = "small";

/// A request: its tenant, when it comes and when it passes, in milliseconds.
type Request = (&'static str, usize, usize);

/// The large tenant makes 24 requests at once, the small one makes one every 300 ms.
fn coming() -> impl Iterator<Item = (&'static str, u64)> {
    let small = (1..7).map(|n| (SMALL, n * 300 + 20));
    [(LARGE, 0); 24].into_iter().chain(small)
}

/// The requests in the order in which they pass.
async fn passed<F: Future>(acquire: impl Fn(&'static str) -> F) -> Vec<Request> {
    let (start, passed) = (Instant::now(), RefCell::new(Vec::new()));
    let millis = || usize::try_from(start.elapsed().as_millis()).unwrap();
    let requests = coming().map(async |(tenant, at)| {
        sleep(Duration::from_millis(at)).await;
        let came = millis();
        acquire(tenant).await;
        passed.borrow_mut().push((tenant, came, millis()));
    });
    join_all(requests).await;
    passed.into_inner()
}

#[tokio::test(start_paused = true)]
async fn the_picture_of_two_backlogs_is_that_of_a_run() {
    let policy = Interval::every(Duration::from_millis(100));
    let shared = policy.shared();
    let one_queue = passed(|_| shared.acquire_one()).await;
    let turns = FairQueue::new(policy);
    let turns = passed(|tenant| turns.acquire_one(tenant)).await;
    assert_eq!((one_queue.len(), turns.len()), (30, 30));
    check("docs/turns.svg", &draw(&one_queue, &turns));
}

/// Of a side: 3 s.
const WIDTH: usize = 390;
const LEFT: usize = 20;
const RIGHT: usize = LEFT + WIDTH + 50;
const TOP: usize = 46;
const ROW: usize = 6;

fn draw(one_queue: &[Request], turns: &[Request]) -> String {
    let label = "The requests of two tenants in one queue and taking turns, from when they come to when they pass";
    let height = TOP + ROW * one_queue.len() + 30;
    let mut picture = Picture::new(RIGHT + WIDTH + 20, height, label);
    draw_side(&mut picture, LEFT, "one queue", one_queue);
    draw_side(&mut picture, RIGHT, "taking turns, at the same rate", turns);
    picture.done()
}

fn draw_side(picture: &mut Picture, left: usize, title: &str, requests: &[Request]) {
    picture.write(left, 14, r#"font-size="14" font-weight="bold""#, title);
    let waits = requests.iter().filter(|request| request.0 == SMALL);
    let longest = waits.map(|(_, came, passed)| passed - came).max().unwrap();
    let claim = format!("the small tenant (red) waits at most {longest} ms");
    picture.write(left, 32, "", &claim);
    for (tenant, color) in [(LARGE, BLUE), (SMALL, RED)] {
        let rows = requests.iter().enumerate();
        let rows = rows.filter(|(_, request)| request.0 == tenant);
        let lines = rows.map(|(row, (_, came, passed))| {
            let (from, to) = (left + came * 13 / 100, left + passed * 13 / 100);
            format!("M{from} {}H{}", TOP + ROW * row + 3, to.max(from + 2))
        });
        let line = format!(r#"stroke="{color}" stroke-width="4""#);
        picture.path(&line, &lines.collect::<String>());
    }
    let base = TOP + ROW * requests.len() + 4;
    let seconds = (0..=3).map(|second| format!("M{} {base}v5", left + second * 130));
    let axis = format!("M{left} {base}H{}", left + WIDTH) + &seconds.collect::<String>();
    picture.path(r#"stroke="currentColor""#, &axis);
    picture.write_seconds(left, 130, 3, base + 20);
}
