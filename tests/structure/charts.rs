//! The charts of the measurements: those of the page, and the one in the guide of `redis`.

use std::fs;

#[test]
fn the_chart_of_the_guide_is_that_of_the_last_measurement() {
    let read = |path| fs::read_to_string(path).unwrap();
    let chart = read("crates/paceline-redis/src/herd.svg");
    assert!(chart == read("docs/performance/redis-herd.svg"));
    // A blank line would end the picture in Markdown.
    assert!(chart.lines().all(|line| !line.trim().is_empty()));
}

#[test]
fn every_chart_beside_the_page_of_measurements_is_on_it() {
    let page = fs::read_to_string("docs/performance/README.md").unwrap();
    let files = fs::read_dir("docs/performance").unwrap();
    let files = files.map(|file| file.unwrap().path());
    let charts = files.filter(|path| path.extension().is_some_and(|end| end == "svg"));
    let names = charts.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let charts: Vec<String> = names.collect();
    let unused = charts
        .iter()
        .filter(|name| !page.contains(&format!("]({name})")));
    assert_eq!(unused.collect::<Vec<_>>(), [""; 0]);
    assert!(!charts.is_empty(), "there are charts");
}
