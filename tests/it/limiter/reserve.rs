//! A reserve in a rate: 20 of 100 a second are for payments, and all other classes share the rest.

use futures::StreamExt;
use paceline::fair::{ClientTerms, GuaranteedShare};
use paceline::limiter::Fair;
use paceline::prelude::*;

use super::spawned;
use crate::timed::{ms, sleep};

type Classes = Fair<&'static str, GuaranteedShare>;

fn classes() -> Classes {
    let share = GuaranteedShare::new(100, ms(1_000));
    Fair::new(share.try_with_reserve(2_000).unwrap()).with_terms(|class| match *class {
        "payments" => ClientTerms::new()
            .with_own_share(true)
            .try_with_weight(2_000)
            .unwrap(),
        _ => ClientTerms::new(),
    })
}

/// How many single permits pass until one is refused.
fn take(classes: &Classes, class: &'static str) -> usize {
    let passed = (0..1_000).take_while(|_| classes.try_acquire(&class, 1).is_pass());
    passed.count()
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_there_although_the_rest_has_flooded() {
    let classes = classes();
    for _ in 0..100 {
        take(&classes, "analytics");
        sleep(100).await;
    }
    take(&classes, "analytics");
    assert_eq!(take(&classes, "payments"), 20);
    sleep(1_000).await;
    assert_eq!(take(&classes, "payments"), 20);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_pass_20_to_80() {
    let classes = classes();
    for class in ["payments", "analytics", "search"] {
        take(&classes, class);
    }
    let count = |class| {
        let requests = futures::stream::iter(0..1_000).pace(classes.at(class));
        requests.take_until(Box::pin(sleep(10_010))).count()
    };
    let (payments, rest) = (count("payments"), count("search"));
    let (payments, rest) = tokio::join!(payments, rest);
    assert!((199..=202).contains(&payments), "{payments}");
    assert!((798..=802).contains(&rest), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn a_class_alone_has_the_whole_rate() {
    let classes = classes();
    take(&classes, "analytics");
    let waits = (0..100).map(|_| classes.acquire("analytics", 1));
    let passed = spawned(waits).await;
    assert_eq!(passed.last(), Some(&1_000));
}
