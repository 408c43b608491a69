//! The guide of `redis` has a chart, in the package's sources.

use std::fs;

#[test]
fn the_chart_of_the_guide_is_that_of_the_last_measurement() {
    let read = |path| fs::read_to_string(path).unwrap();
    let chart = read("src/redis/herd.svg");
    assert!(chart == read("docs/performance/redis-herd.svg"));
    // A blank line would end the picture in Markdown.
    assert!(chart.lines().all(|line| !line.trim().is_empty()));
}
