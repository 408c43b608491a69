use futures::{Stream, StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;

use crate::timed::ms;

#[tokio::test(start_paused = true)]
async fn counts_what_it_drops_and_says_that_all_may_come_and_none_need() {
    let mut shed = stream::iter(0..3).shed(Interval::every(ms(100)).owned());
    assert_eq!(shed.size_hint(), (0, Some(3)));
    assert_eq!(shed.by_ref().collect::<Vec<_>>().await, [0]);
    assert_eq!(shed.shed_count(), 2);
}
