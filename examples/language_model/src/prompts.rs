//! The prompts: short ones, which exhaust the requests, and then long ones, which exhaust the tokens.

use core::iter;

use crate::provider::Prompt;

/// The most tokens of a completion.
pub(crate) const LONGEST: u32 = 400;

/// The tokens of a completion on average.
pub(crate) const TYPICAL: u32 = 140;

/// The same prompts for the same seed.
pub(crate) fn prompts(calls: u32, seed: u64) -> Vec<Prompt> {
    let mut random = fastrand::Rng::with_seed(seed);
    let prompt = |id| {
        let words = if id < calls / 2 {
            random.usize(20..=80)
        } else {
            random.usize(200..=400)
        };
        Prompt {
            id,
            text: iter::repeat_n("word", words).collect::<Vec<_>>().join(" "),
            max_tokens: LONGEST,
        }
    };
    (0..calls).map(prompt).collect()
}
