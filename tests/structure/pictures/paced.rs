//! The picture of the README: the same requests without a limit and paced, as a provider counts them.

use std::time::Duration;

use futures::Stream;
use paceline::stream::PaceStreamExt;
use testkit::marble;

use super::{BLUE, END, Picture, RED, check};

const LIMIT: usize = 20;
const INTERVAL: Duration = Duration::from_millis(50);

/// Bursts of requests, one every 20 ms: when each begins, in milliseconds, and how many it has.
const BURSTS: [(usize, usize); 4] = [(0, 26), (700, 14), (1_700, 12), (2_400, 8)];

/// The row of the bursts. A tick is 10 ms.
fn row() -> String {
    let mut row = String::new();
    for (begins, count) in BURSTS {
        row.push_str(&"-".repeat(begins / 10 - row.len()));
        row.push_str(&"a-".repeat(count));
    }
    row + "|"
}

/// When the requests arrive, in milliseconds.
async fn arrivals(stream: impl Stream<Item = char>) -> Vec<usize> {
    let row = marble::run(stream).await;
    let items = row.things().filter(|(_, mark)| *mark == "a");
    items
        .map(|(at, _)| usize::try_from(at.as_millis()).unwrap())
        .collect()
}

/// How many arrive in the second that ends with each pixel: the second is half-open.
fn counts(arrivals: &[usize]) -> Vec<usize> {
    let counted = |end: usize| {
        let within = |&&at: &&usize| at <= end && end < at + 1_000;
        arrivals.iter().filter(within).count()
    };
    (0..WIDTH).map(|pixel| counted(pixel * 10)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_picture_of_the_readme_is_that_of_a_run() {
    let unpaced = arrivals(marble::source(&row())).await;
    let paced = arrivals(marble::source(&row()).min_interval(INTERVAL)).await;
    assert_eq!((unpaced.len(), paced.len()), (60, 60));
    check("docs/paced.svg", &draw(&unpaced, &paced));
}

/// Of a side: 4 s.
const WIDTH: usize = 400;
const LEFT: usize = 30;
const RIGHT: usize = LEFT + WIDTH + 46;
const BASE: usize = 222;
/// Of one request in the count.
const UNIT: usize = 4;

fn draw(unpaced: &[usize], paced: &[usize]) -> String {
    let label = "The same 60 requests without a limit and paced, counted in any second";
    let mut picture = Picture::new(RIGHT + WIDTH + 14, BASE + 24, label);
    let most = |arrivals| counts(arrivals).into_iter().max().unwrap();
    let title = format!(
        "60 requests as they come: {} within a second",
        most(unpaced)
    );
    draw_side(&mut picture, LEFT, &title, unpaced);
    let title = format!("the same, paced: never more than {}", most(paced));
    draw_side(&mut picture, RIGHT, &title, paced);
    picture.done()
}

fn draw_side(picture: &mut Picture, left: usize, title: &str, arrivals: &[usize]) {
    picture.write(left, 14, r#"font-size="14" font-weight="bold""#, title);
    let each = arrivals
        .iter()
        .map(|at| format!("M{}.5 26v14", left + at / 10));
    picture.path(r#"stroke="currentColor""#, &each.collect::<String>());

    let counts = counts(arrivals);
    let within: Vec<_> = counts.iter().map(|count| LIMIT.min(*count)).collect();
    picture.path(&format!(r#"fill="{BLUE}""#), &area(left, 0, &within));
    if counts.iter().any(|count| *count > LIMIT) {
        picture.path(&format!(r#"fill="{RED}""#), &area(left, LIMIT, &counts));
    }

    let (y, end) = (BASE - LIMIT * UNIT, left + WIDTH);
    let line = r#"stroke="currentColor" stroke-width="2" stroke-dasharray="6 4""#;
    picture.path(line, &format!("M{left} {y}H{end}"));
    let seconds = (0..=4).map(|second| format!("M{} {BASE}v5", left + second * 100));
    let axis = format!("M{left} {BASE}H{end}") + &seconds.collect::<String>();
    picture.path(r#"stroke="currentColor""#, &axis);
    picture.write_seconds(left, 100, 4, BASE + 18);
    for count in [LIMIT, 2 * LIMIT] {
        let y = BASE - count * UNIT + 4;
        picture.write(left - 6, y, END, &count.to_string());
    }
    picture.write(end, 66, END, "requests in the last second");
    let limit = format!("limit: {LIMIT} in any second");
    picture.write(end, y - 6, END, &limit);
}

/// The area between `floor` and the counts above it, as a path of steps.
fn area(left: usize, floor: usize, counts: &[usize]) -> String {
    let base = BASE - floor * UNIT;
    let y = counts.iter().map(|count| BASE - count.max(&floor) * UNIT);
    let y: Vec<_> = y.collect();
    let steps = y.chunk_by(|a, b| a == b);
    let steps = steps.map(|same| format!("V{}h{}", same[0], same.len()));
    format!("M{left} {base}{}V{base}Z", steps.collect::<String>())
}
