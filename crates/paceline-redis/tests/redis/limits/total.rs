//! A limit for each key and one over all keys, in one decision.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use paceline::policy::{All, Decision, Interval, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use super::keyed::end_queues;
use super::{MINUTE, counted_in, redis, wait_of};
use crate::servers::Server;

fn log(limit: u32) -> SlidingLog {
    SlidingLog::new(limit, MINUTE)
}

#[tokio::test]
async fn a_request_counts_for_its_key_and_in_the_total_or_for_neither() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", log(5)).unwrap();
    let users = users.with_total(log(8)).unwrap();

    assert_eq!(
        users.at("ann").unwrap().try_acquire(5).await,
        Ok(Decision::Pass)
    );
    assert!(wait_of(users.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
    let ann = users.at("ann").unwrap();
    assert_eq!(ann.binding(), Some(0));
    let bob = users.at("bob").unwrap();
    assert!(wait_of(bob.try_acquire(4).await) > MINUTE / 2);
    assert_eq!(bob.binding(), Some(1));
    assert_eq!(bob.try_acquire(3).await, Ok(Decision::Pass));

    let [own, total] = bob.keys() else {
        panic!("two keys")
    };
    assert_eq!(
        [own, total],
        [
            "paceline:{users}:each:{bob}:sliding_log:2",
            "paceline:{users}:total:sliding_log:2"
        ]
    );
    assert_eq!(ann.keys()[1], *total);
    assert_eq!(counted_in(&server, own).await, 3);
    assert_eq!(counted_in(&server, total).await, 8);
}

/// The same total is in one call many times.
#[tokio::test]
async fn a_herd_of_keys_of_several_processes_passes_what_the_total_allows() {
    let server = Server::start().await;
    let fleet = [redis(&server).await, redis(&server).await];
    let users = fleet.each_ref().map(|redis| {
        let users = redis.keyed("users", TokenBucket::new(Rate::per_hour(1), 2));
        users.unwrap().with_total(log(70)).unwrap()
    });
    let asked: FuturesUnordered<_> = (0..400)
        .map(|number: usize| {
            let users = &users[number % 2];
            async move {
                let user = users.at(&format!("u{}", number / 4)).unwrap();
                user.try_acquire(1).await
            }
        })
        .collect();
    let answers: Vec<_> = asked.collect().await;
    let passed = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(Decision::Pass)));
    assert_eq!(passed.count(), 70);
    let total = "paceline:{users}:total:sliding_log:2";
    assert_eq!(counted_in(&server, total).await, 70);
    assert_eq!(fleet.each_ref().map(|redis| redis.stats().faults), [0, 0]);
    assert_eq!(
        fleet.each_ref().map(|redis| redis.stats().lost_states),
        [0, 0]
    );
}

#[tokio::test]
async fn tiers_several_limits_and_settled_costs_go_with_a_total() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed_by("users", |user| match user {
        "ann" => All::new((log(50), Interval::every(MINUTE / 1_000))),
        _ => All::new((log(5), Interval::every(MINUTE / 1_000))),
    });
    let users = users.unwrap().with_total(log(60)).unwrap();
    let reserved = users.at("ann").unwrap().reserve(50).await.unwrap();
    assert!(wait_of(users.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert_eq!(
        users.at("bob").unwrap().try_acquire(6).await,
        Ok(Decision::Never { capacity: 5 })
    );
    reserved.settle(20).await.unwrap();

    let ann = users.at("ann").unwrap();
    assert_eq!(ann.keys().len(), 3);
    assert_eq!(counted_in(&server, &ann.keys()[0]).await, 20);
    assert_eq!(counted_in(&server, &ann.keys()[2]).await, 20);
    users.at("bob").unwrap().acquire(5).await.unwrap();
    assert_eq!(counted_in(&server, &ann.keys()[2]).await, 25);
}

#[tokio::test]
async fn a_pause_of_a_key_holds_as_without_a_total() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let plain = redis.limit("users", log(1)).unwrap();
    let users = redis.keyed("users", log(5)).unwrap();
    let users = users.with_total(log(8)).unwrap();

    users.at("ann").unwrap().pause_for(MINUTE).await.unwrap();
    assert!(wait_of(users.at("ann").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert_eq!(
        users.at("bob").unwrap().try_acquire(5).await,
        Ok(Decision::Pass)
    );
    assert_eq!(plain.paused_for(), None);
}

#[tokio::test]
async fn a_total_that_cannot_be_kept_is_refused() {
    let server = Server::start().await;
    let insured = Redis::open(&server.url(), OutagePolicy::insured(2)).unwrap();
    let refused = insured.keyed("users", log(8)).unwrap().with_total(log(8));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot be insured"), "{refused}");

    let redis = redis(&server).await;
    let users = redis.keyed("users", log(8)).unwrap();
    let users = users.with_total(log(8)).unwrap();
    let refused = users.clone().with_total(log(9)).unwrap_err().to_string();
    assert!(refused.contains("one total"), "{refused}");
    let users = redis.keyed("users", log(8)).unwrap();
    let refused = users.with_total(log(200_000)).unwrap_err().to_string();
    assert!(refused.contains("200000"), "{refused}");
}

#[tokio::test]
async fn a_total_leaves_the_number_of_keys_that_are_remembered() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", log(5)).unwrap();
    let users = users.with_max_keys(2).unwrap();
    let users = users.with_total(log(100)).unwrap();
    for user in 0..6 {
        let passed = users.at(&format!("u{user}")).unwrap().try_acquire(1).await;
        assert_eq!(passed, Ok(Decision::Pass));
        end_queues(&users).await;
        assert!(users.remembered() <= 2, "{}", users.remembered());
    }
}
