//! The picture of the policies: what each lets through of the same requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use paceline::policy::{
    AlignedWindow, Alignment, FixedWindow, Interval, Policy, Ramp, SlidingCounter, SlidingLog,
    TokenBucket, Unlimited,
};
use paceline::time::{Rate, Tick, WallClock};

use super::{BLUE, END, Picture, RED, check};

const LIMIT: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Milliseconds, and the requests in them.
type Requests = Vec<(usize, usize)>;

/// One at first, a burst at 0.9 s, then one every 20 ms.
fn requests() -> Requests {
    let steady = (920..3_000).step_by(20).map(|at| (at, 1));
    [(0, 1), (900, 30)].into_iter().chain(steady).collect()
}

/// The wall clock of the run: its seconds begin half a second after those of the picture.
#[derive(Clone, Default)]
struct Wall(Arc<Mutex<Duration>>);

impl Wall {
    fn set(&self, at: Duration) {
        *self.0.lock().unwrap() = at + SECOND / 2;
    }

    fn clock(&self) -> WallClock {
        let now = Arc::clone(&self.0);
        WallClock::new(move || *now.lock().unwrap())
    }

    /// What passes. What does not pass is refused, and does not come again.
    fn row<P: Policy>(&self, name: &'static str, policy: &P) -> (&'static str, Requests) {
        self.set(Duration::ZERO);
        let mut state = policy.fresh(Tick::ZERO);
        let mut passed = Vec::new();
        for (at, count) in requests() {
            let since = Duration::from_millis(at.try_into().unwrap());
            self.set(since);
            let now = Tick::ZERO.after(since);
            let granted = (0..count).filter(|_| policy.decide(&mut state, now, 1).is_pass());
            passed.push((at, granted.count()));
        }
        passed.retain(|(_, count)| *count > 0);
        (name, passed)
    }
}

/// The most in a half-open second, wherever it begins.
fn most_in_a_second(requests: &Requests) -> usize {
    let in_second_from = |begin: usize| -> usize {
        let within = |&&(at, _): &&(usize, usize)| begin <= at && at < begin + 1_000;
        requests.iter().filter(within).map(|(_, count)| count).sum()
    };
    let seconds = requests.iter().map(|(begin, _)| in_second_from(*begin));
    seconds.max().unwrap()
}

#[test]
fn the_picture_of_the_policies_is_what_they_let_through() {
    let wall = Wall::default();
    let calendar = AlignedWindow::new(LIMIT, Alignment::Every(SECOND)).with_clock(wall.clock());
    let rows = [
        wall.row("Unlimited", &Unlimited),
        wall.row("Interval, 100 ms", &Interval::every(SECOND / LIMIT)),
        wall.row(
            "Ramp, from 2 in 2 s",
            &Ramp::new(Rate::per_second(2), Rate::per_second(LIMIT), 2 * SECOND),
        ),
        wall.row(
            "TokenBucket, burst 10",
            &TokenBucket::new(Rate::per_second(LIMIT), LIMIT),
        ),
        wall.row("SlidingLog", &SlidingLog::new(LIMIT, SECOND)),
        wall.row(
            "SlidingCounter::strict, 5 buckets",
            &SlidingCounter::strict(LIMIT, SECOND, 5),
        ),
        wall.row(
            "SlidingCounter::smooth",
            &SlidingCounter::smooth(LIMIT, SECOND),
        ),
        wall.row("FixedWindow", &FixedWindow::new(LIMIT, SECOND)),
        wall.row("AlignedWindow, to 0.5 s, 1.5 s …", &calendar),
    ];
    check("src/policy/bursts.svg", &draw(&rows));
}

const LEFT: usize = 218;
/// Of a pixel, in milliseconds: the picture has 3 s.
const PIXEL: usize = 5;
const WIDTH: usize = 3_000 / PIXEL;
const HEIGHT: usize = 36;
const TOP: usize = 24;

fn draw(rows: &[(&str, Requests)]) -> String {
    let label = "What each policy lets through of one request, a burst of 30, and one every 20 ms";
    let bottom = TOP + rows.len() * HEIGHT + 4;
    let right = LEFT + WIDTH;
    let mut picture = Picture::new(right + 132, bottom + 22, label);
    picture.write(0, 14, "", "10 in a second, as");
    picture.write(right + 50, 14, END, "passed");
    picture.write(right + 130, 14, END, "most in 1 s");
    for (row, (name, requests)) in rows.iter().enumerate() {
        let base = TOP + (row + 1) * HEIGHT;
        picture.write(0, base - 6, "", name);
        draw_row(&mut picture, base, requests);
        let passed: usize = requests.iter().map(|(_, count)| count).sum();
        picture.write(right + 50, base - 6, END, &passed.to_string());
        let most = most_in_a_second(requests);
        let is_over = most > usize::try_from(LIMIT).unwrap();
        let bold = format!(r#"{END} font-weight="bold" fill="{RED}""#);
        let attributes = if is_over { &bold } else { END };
        picture.write(right + 130, base - 6, attributes, &most.to_string());
    }
    picture.write_seconds(LEFT, 1_000 / PIXEL, 3, bottom + 14);
    picture.done()
}

/// A bar for each instant, as high as the number in it; above one its number, too.
fn draw_row(picture: &mut Picture, base: usize, requests: &Requests) {
    let x = |at: usize| LEFT + at / PIXEL;
    let line = r#"stroke="currentColor" stroke-opacity=".4""#;
    picture.path(line, &format!("M{LEFT} {base}h{WIDTH}"));
    let bars = requests
        .iter()
        .map(|(at, count)| format!("M{} {base}v-{}", x(*at), 7 + count * 2 / 3));
    let line = format!(r#"stroke="{BLUE}" stroke-width="2""#);
    picture.path(&line, &bars.collect::<String>());
    for (at, count) in requests.iter().filter(|(_, count)| *count > 1) {
        let attributes = r#"text-anchor="end" font-size="11""#;
        picture.write(x(*at) - 4, base - 6, attributes, &count.to_string());
    }
}
