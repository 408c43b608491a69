//! Runs each fuzz function on the seeds and on thousands of random inputs, which are the same each time.

use std::fs;
use std::path::Path;

use fastrand::Rng;

/// The number of random inputs for each function.
const TIMES: u64 = 3_000;

#[test]
fn policies_keep_their_laws() {
    run_many("policies", paceline_fuzz::policies, 600);
}

#[test]
fn a_shared_limit_behaves_as_a_plain_queue() {
    run_many("shared", paceline_fuzz::shared, 400);
}

#[test]
fn every_key_behaves_as_if_none_were_ever_forgotten() {
    run_many("keyed", paceline_fuzz::keyed, 400);
}

#[test]
fn a_displayed_rate_parses_to_the_same_rate() {
    run_many("rate", paceline_fuzz::rate, 24);
}

#[test]
fn values_in_headers_stay_within_the_caps() {
    run_many("feedback", paceline_fuzz::feedback, 200);
}

fn run_many(name: &str, body: fn(&[u8]), longest: usize) {
    let seeds = seeds(name);
    for seed in &seeds {
        body(seed);
    }
    for n in 0..TIMES {
        let mut rng = Rng::with_seed(n);
        let mut input = match rng.choice(&seeds) {
            Some(seed) if n % 2 == 0 => seed.clone(),
            _ => (0..rng.usize(..longest)).map(|_| rng.u8(..)).collect(),
        };
        for _ in 0..rng.usize(..8) {
            change(&mut input, &mut rng);
        }
        // If the function panics, this names the input: the same number makes the same bytes.
        println!("{name} {n}");
        body(&input);
    }
}

/// Inserts, removes or replaces a byte, or repeats a part.
fn change(input: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    match rng.u8(..4) {
        0 => input.insert(at, rng.u8(..)),
        1 if at < input.len() => drop(input.remove(at)),
        2 if at < input.len() => input[at] = rng.u8(..),
        _ => {
            let end = (at + rng.usize(..16)).min(input.len());
            input.extend_from_within(at..end);
        }
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(name);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("a folder of seeds for each body")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds of {name}");
    let read = |file| fs::read(file).expect("it can be read");
    files.into_iter().map(read).collect()
}
