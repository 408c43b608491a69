mod cancelling;
mod concurrent;
mod conformance;
mod debounce;
mod enforce;
mod grouped_weighted_within;
mod grouped_within;
mod out_of_range;
mod pace;
mod pace_batches;
mod pace_by_cost;
mod pace_by_deadline;
pub(crate) mod pace_by_key;
mod pace_by_key_and_cost;
mod retry;
mod sample;
mod shed;
pub(crate) mod shed_by;
mod throttle_first;
mod try_grouped_weighted_within;
mod try_grouped_within;
mod try_pace;

/// Timelines: below each claim, indented, rows of the input and of the output.
fn rows(timelines: &str) -> Vec<(&str, &str)> {
    let rows = timelines.lines().filter_map(|line| line.strip_prefix("  "));
    let rows: Vec<_> = rows.collect();
    rows.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}
