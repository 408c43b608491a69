mod pace_read;
mod pace_write;

use paceline::policy::TokenBucket;
use paceline::time::Rate;

/// A hundred bytes at once, then one each millisecond.
fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1_000), 100)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(count).collect()
}
