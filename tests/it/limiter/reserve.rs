//! A reserve in a rate: 20 of 100 a second are for payments, and all other classes share the rest.

use futures::StreamExt;
use paceline::fair::{ClientTerms, GuaranteedShare};
use paceline::limiter::{Fair, Share};
use paceline::prelude::*;

use super::spawned;
use crate::timed::{ms, sleep};

type Classes = Fair<&'static str, GuaranteedShare>;

fn classes() -> Classes {
    let rate = GuaranteedShare::new(100, ms(1_000));
    Fair::reserved(rate, [("payments", Share::percent(20))])
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

#[tokio::test(start_paused = true)]
async fn a_new_rate_keeps_the_reserve() {
    let classes = classes();
    take(&classes, "analytics");
    classes.retune(GuaranteedShare::new(200, ms(1_000)));
    let quota = |class| classes.status(&class).unwrap().quota.unwrap().permits;
    assert_eq!(["payments", "search"].map(quota), [40, 160]);
    take(&classes, "search");
    assert_eq!(take(&classes, "payments"), 20, "its bucket grows with time");
    sleep(1_000).await;
    take(&classes, "analytics");
    assert_eq!(take(&classes, "payments"), 40);
}

#[tokio::test(start_paused = true)]
async fn terms_that_are_set_later_change_no_part_of_the_reserve() {
    let classes = classes().with_terms(|_| ClientTerms::new().try_with_weight(3).unwrap());
    classes.retune(GuaranteedShare::new(200, ms(1_000)));
    let quota = |class| classes.status(&class).unwrap().quota.unwrap().permits;
    assert_eq!(["payments", "search"].map(quota), [40, 160]);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_was_idle_for_long_finds_its_whole_part() {
    let classes = classes();
    assert_eq!(take(&classes, "payments"), 20 + 25);
    for _ in 0..200 {
        take(&classes, "analytics");
        sleep(100).await;
    }
    take(&classes, "analytics");
    assert_eq!(take(&classes, "payments"), 20);
    assert_eq!(classes.len(), 2);
}
