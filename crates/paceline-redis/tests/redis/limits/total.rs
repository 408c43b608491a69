//! A limit for each key and one over all keys, in one decision.

use futures::future::join_all;
use paceline::policy::{All, Decision, Interval, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use super::keyed::end_queues;
use super::{MINUTE, counted_in, denied, log, passed, redis};
use crate::servers::Server;

#[tokio::test]
async fn a_request_counts_for_its_key_and_in_the_total_or_for_neither() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", log(5)).unwrap();
    let users = users.with_total(log(8)).unwrap();

    let [ann, bob] = ["ann", "bob"].map(|user| users.at(user).unwrap());
    passed(ann.try_acquire(5).await);
    denied(ann.try_acquire(1).await);
    assert_eq!(ann.binding(), Some(0));
    denied(bob.try_acquire(4).await);
    assert_eq!(bob.binding(), Some(1));
    passed(bob.try_acquire(3).await);

    let [own, total] = bob.keys() else {
        panic!("two keys")
    };
    assert_eq!(own, "paceline:{users}:each:{bob}:sliding_log:2");
    assert_eq!(total, "paceline:{users}:total:sliding_log:2");
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
    let asked = (0..400).map(|number: usize| {
        let user = users[number % 2].at(&format!("u{}", number / 4)).unwrap();
        async move { user.try_acquire(1).await }
    });
    let answers = join_all(asked).await;
    let is_passed = |answer: &&_| matches!(answer, Ok(Decision::Pass));
    assert_eq!(answers.iter().filter(is_passed).count(), 70);
    let total = "paceline:{users}:total:sliding_log:2";
    assert_eq!(counted_in(&server, total).await, 70);
    for redis in &fleet {
        let stats = redis.stats();
        assert_eq!((stats.faults, stats.lost_states), (0, 0));
    }
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
    let [ann, bob] = ["ann", "bob"].map(|user| users.at(user).unwrap());
    let reserved = ann.reserve(50).await.unwrap();
    denied(ann.try_acquire(1).await);
    let never = Decision::Never { capacity: 5 };
    assert_eq!(bob.try_acquire(6).await, Ok(never));
    reserved.settle(20).await.unwrap();

    assert_eq!(ann.keys().len(), 3);
    assert_eq!(counted_in(&server, &ann.keys()[0]).await, 20);
    assert_eq!(counted_in(&server, &ann.keys()[2]).await, 20);
    bob.acquire(5).await.unwrap();
    assert_eq!(counted_in(&server, &ann.keys()[2]).await, 25);
}

#[tokio::test]
async fn a_pause_of_a_key_holds_as_without_a_total() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let plain = redis.limit("users", log(1)).unwrap();
    let users = redis.keyed("users", log(5)).unwrap();
    let users = users.with_total(log(8)).unwrap();

    let [ann, bob] = ["ann", "bob"].map(|user| users.at(user).unwrap());
    ann.pause_for(MINUTE).await.unwrap();
    denied(ann.try_acquire(1).await);
    passed(bob.try_acquire(5).await);
    assert_eq!(plain.paused_for(), None);
}

#[test]
fn a_total_that_cannot_be_kept_is_refused() {
    let of = |when_down| {
        let redis = Redis::open("redis://127.0.0.1/", when_down).unwrap();
        redis.keyed("users", log(8)).unwrap()
    };
    let (insured, users) = (of(OutagePolicy::insured(2)), of(OutagePolicy::closed()));
    let twice = users.clone().with_total(log(8)).unwrap();
    for (refused, why) in [
        (insured.with_total(log(8)).err(), "cannot be insured"),
        (twice.with_total(log(9)).err(), "one total"),
        (users.with_total(log(200_000)).err(), "200000"),
    ] {
        let refused = refused.unwrap().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn a_total_leaves_the_number_of_keys_that_are_remembered() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let users = redis.keyed("users", log(5)).unwrap();
    let users = users.with_max_keys(2).unwrap();
    let users = users.with_total(log(100)).unwrap();
    for user in 0..6 {
        passed(users.at(&format!("u{user}")).unwrap().try_acquire(1).await);
        end_queues(&users).await;
        assert!(users.remembered() <= 2, "{}", users.remembered());
    }
}
