use futures::{FutureExt, SinkExt, StreamExt, stream};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::probe::{self, Broken};
use testkit::wakes::Driven;

use super::driven::{Steps, Told, taken_ms};
use crate::timed::ms;

#[tokio::test(start_paused = true)]
async fn drops_and_counts_items_that_are_sent_too_soon() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let mut sink = sink.shed_sends(Interval::every(ms(100)).owned());
    for (after, item) in [(0, 1), (0, 2), (99, 3), (1, 4), (180, 5), (99, 6)] {
        jump(ms(after)).await;
        sink.send(item).now_or_never().unwrap().unwrap();
    }
    assert_eq!(taken_ms(&handle), [(0, 1), (100, 4), (280, 5)]);
    assert_eq!(sink.shed_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_full_inner_sink_and_fails_with_it() {
    let (handle, sink) = probe::sink();
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(sink.shed_sends(limit.clone()));
    assert!(sink.ready().is_pending());
    handle.accept(1);
    assert!(sink.ready().is_ready());
    sink.start(1).unwrap();
    assert!(
        sink.ready().is_pending(),
        "shed what is too soon, not what is too much"
    );
    handle.fail_next();
    assert_eq!(sink.ready(), std::task::Poll::Ready(Err(Broken)));
    assert_eq!(sink.get().shed_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn holds_the_item_while_an_answer_is_under_way() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let limit = Told::default();
    let mut sink = Driven::new(sink.shed_sends(limit.clone()));
    for (item, answer) in [
        ('a', Decision::Pass),
        ('b', Decision::Wait { retry_in: ms(5) }),
    ] {
        limit.set(None);
        assert!(sink.ready().is_ready());
        sink.start(item).unwrap();
        assert!(
            sink.flush().is_pending() && sink.close().is_pending() && sink.ready().is_pending()
        );
        limit.set(Some(answer));
        assert!(sink.flush().is_ready());
    }
    assert_eq!(handle.taken(), ['a']);
    assert_eq!(sink.get().shed_count(), 1);
}
