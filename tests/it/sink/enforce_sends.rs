use std::error::Error;
use std::task::Poll;

use futures::{FutureExt, SinkExt};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use paceline::sink::{Exceeded, SendError};
use testkit::clock::jump;
use testkit::probe::{self, Broken};

use super::driven::{Steps, Told, over_all, taken_ms};
use crate::timed::ms;

fn refused(sent: Result<(), SendError<Broken, Exceeded<char>>>) -> Exceeded<char> {
    match sent {
        Err(SendError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn answers_at_once_and_gives_the_item_back() {
    let (handle, _, mut sink) = over_all(probe::Sink::enforce_sends);
    for (after, item, retry_in) in [(0, 'a', None), (30, 'b', Some(ms(70))), (70, 'c', None)] {
        jump(ms(after)).await;
        assert!(sink.ready().is_ready(), "whether or not the slot is open");
        let sent = sink.start(item);
        if retry_in.is_some() {
            let refused = refused(sent);
            assert_eq!((refused.retry_in(), refused.into_item()), (retry_in, item));
        } else {
            sent.unwrap();
        }
    }
    assert_eq!(taken_ms(&handle), [(0, 'a'), (100, 'c')]);
    assert_eq!(sink.into_inner().into_parts().1, None);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_refused_does_not_wait() {
    let limit = Interval::every(ms(100)).owned();
    let mut sink = futures::sink::drain().enforce_sends(limit);
    sink.send('a').now_or_never().unwrap().unwrap();
    let error = sink.send('b').now_or_never().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "rate limit exceeded, retry in 100ms");
}

#[tokio::test(start_paused = true)]
async fn holds_the_item_while_an_answer_is_under_way() {
    let limit = Told::default();
    let (handle, _, mut sink) = over_all(|sink, _| sink.enforce_sends(limit.clone()));
    for (item, answer) in [
        ('a', Decision::Pass),
        ('b', Decision::Wait { retry_in: ms(5) }),
        ('c', Decision::Never { capacity: 0 }),
    ] {
        limit.set(None);
        assert!(sink.ready().is_ready());
        sink.start(item).unwrap();
        assert!(sink.flush().is_pending() && sink.close().is_pending());
        assert!(sink.ready().is_pending());
        limit.set(Some(answer));
        match sink.flush() {
            Poll::Ready(Err(SendError::Refused(refused))) => {
                assert_eq!(refused.retry_in(), (item == 'b').then_some(ms(5)));
                assert_eq!(refused.into_item(), item);
            }
            sent => assert_eq!((item, sent), ('a', Poll::Ready(Ok(())))),
        }
    }
    assert_eq!(handle.taken(), ['a']);
    limit.set(None);
    assert!(sink.ready().is_ready());
    sink.start('d').unwrap();
    assert_eq!(sink.into_inner().into_parts().1, Some('d'));
}

#[test]
fn an_error_of_the_inner_sink_is_the_source() {
    let inner: SendError<Broken, Exceeded<char>> = SendError::Inner(Broken);
    assert_eq!(inner.to_string(), "the inner sink failed");
    assert_eq!(inner.source().unwrap().to_string(), Broken.to_string());
}
