use std::task::Poll;

use futures::SinkExt;
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use testkit::probe::{self, Broken};
use testkit::wakes::Driven;

use super::driven::{Steps, Told, over_all};
use crate::timed::ms;

#[tokio::test(start_paused = true)]
async fn counts_what_it_drops() {
    let (handle, _, sink) = over_all(probe::Sink::shed_sends);
    let mut sink = sink.into_inner();
    for item in 1..=3 {
        sink.send(item).await.unwrap();
    }
    assert_eq!(handle.taken(), [1]);
    assert_eq!(sink.shed_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_full_inner_sink_and_fails_with_it() {
    let (handle, sink) = probe::sink();
    let mut sink = Driven::new(sink.shed_sends(Interval::every(ms(100)).owned()));
    assert!(sink.ready().is_pending());
    handle.accept(1);
    assert!(sink.ready().is_ready());
    sink.start(1).unwrap();
    let what_is_too_much_is_not_shed = sink.ready();
    assert!(what_is_too_much_is_not_shed.is_pending());
    handle.fail_next();
    assert_eq!(sink.ready(), Poll::Ready(Err(Broken)));
    assert_eq!(sink.get().shed_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn holds_the_item_while_an_answer_is_under_way() {
    let limit = Told::default();
    let (handle, _, mut sink) = over_all(|sink, _| sink.shed_sends(limit.clone()));
    let too_soon = Decision::Wait { retry_in: ms(5) };
    for (item, answer) in [('a', Decision::Pass), ('b', too_soon)] {
        limit.set(None);
        assert!(sink.ready().is_ready());
        sink.start(item).unwrap();
        assert!(sink.flush().is_pending() && sink.close().is_pending());
        assert!(sink.ready().is_pending());
        limit.set(Some(answer));
        assert!(sink.flush().is_ready());
    }
    assert_eq!(handle.taken(), ['a']);
    assert_eq!(sink.get().shed_count(), 1);
}
