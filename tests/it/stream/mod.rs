mod concurrent;
mod conformance;
mod enforce;
mod grouped_within;
mod pace;
mod pace_batches;
mod pace_by_cost;
mod shed;
