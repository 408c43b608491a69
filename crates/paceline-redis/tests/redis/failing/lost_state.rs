use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, stream};
use paceline::policy::SlidingLog;
use paceline::prelude::*;
use paceline_redis::{OutagePolicy, Redis};

use super::{DEADLINE, a_minute_of, redis, until_up};
use crate::failing;
use crate::limits::{Passed, denied, log, passed, pause};
use crate::servers::{Relay, Server};

#[tokio::test]
async fn flushing_all_keys_mid_stream_passes_nothing_extra() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let window = 3 * DEADLINE;
    let limit = redis.limit("a", SlidingLog::new(5, window)).unwrap();

    let mut paced = stream::iter(0..20).pace(limit);
    let mut passed = Passed::default();
    for item in 0..20 {
        if item % 5 == 4 {
            server.flush_all().await;
        }
        assert_eq!(paced.next().await, Some(item));
        passed.note();
    }
    // Half of the window is for permits that are used late, by up to the deadline and 100 ms.
    assert!(passed.most_in(window / 2) <= 5, "{passed:?}");
    assert!(redis.stats().lost_states >= 3, "{:?}", redis.stats());
}

/// Only another process remembers the key, or none does.
#[tokio::test]
async fn a_flush_is_noticed_by_a_process_that_did_not_use_the_key() {
    let server = Server::start().await;
    let url = server.url();
    let clients = [(); 2].map(|()| redis(&url, OutagePolicy::closed()));
    let [one, other]: [Redis; 2] = join_all(clients).await.try_into().unwrap();
    let of = |redis: &Redis, user| redis.keyed("users", log(3)).unwrap().at(user).unwrap();
    passed(of(&other, "bob").try_acquire(3).await);
    passed(of(&one, "ann").try_acquire(2).await);

    server.flush_all().await;
    denied(of(&other, "ann").try_acquire(1).await);
    denied(of(&one, "ann").try_acquire(1).await);
    denied(of(&one, "eve").try_acquire(1).await);
    let later = redis(&url, OutagePolicy::closed()).await;
    denied(of(&later, "dan").try_acquire(1).await);
    assert_eq!(other.stats().lost_states, 1);
}

/// That process remembers the key, and would not have to know of the flush to refuse it.
#[tokio::test]
async fn a_flush_is_noticed_by_a_process_that_starts_after_another_has_asked() {
    let server = Server::start().await;
    let url = server.url();
    let users = async || {
        let redis = redis(&url, OutagePolicy::closed()).await;
        redis.keyed("users", log(3)).unwrap()
    };
    let one = users().await;
    let ann = one.at("ann").unwrap();
    passed(ann.try_acquire(2).await);
    passed(one.at("bob").unwrap().try_acquire(3).await);

    server.flush_all().await;
    denied(ann.try_acquire(1).await);
    let later = users().await;
    denied(later.at("bob").unwrap().try_acquire(1).await);
}

/// That process takes the server for a new one.
#[tokio::test]
async fn a_flush_is_noticed_though_a_process_that_has_just_started_asks_first() {
    let server = Server::start().await;
    let url = server.url();
    let client = || redis(&url, OutagePolicy::closed());
    let of = |redis: &Redis, user| redis.keyed("users", log(3)).unwrap().at(user).unwrap();
    let first = client().await;
    passed(of(&first, "ann").try_acquire(3).await);
    let one = client().await;
    // A state that is there, of which nothing has to be lost.
    denied(of(&one, "ann").try_acquire(1).await);

    server.flush_all().await;
    let new = client().await;
    passed(of(&new, "bob").try_acquire(1).await);
    denied(of(&one, "eve").try_acquire(1).await);
    denied(of(&new, "dan").try_acquire(1).await);
    passed(of(&new, "bob").try_acquire(2).await);
}

#[tokio::test]
async fn an_empty_server_a_key_that_is_deleted_and_one_of_another_type_are_no_loss() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let wrong = redis.limit("wrong", log(3)).unwrap();
    let key = &wrong.keys()[0];
    server.cli::<()>(&["SET", key, "of another type"]).await;
    assert!(wrong.try_acquire(1).await.is_err());
    passed(redis.limit("c", log(3)).unwrap().try_acquire(3).await);
    let of = async |name| {
        let redis = failing::redis(&server.url(), OutagePolicy::closed()).await;
        redis.limit(name, log(3)).unwrap()
    };
    let (one, other) = (of("a").await, of("b").await);
    passed(one.try_acquire(3).await);
    passed(other.try_acquire(3).await);
    server.cli::<()>(&["DEL", &one.keys()[0]]).await;
    passed(of("a").await.try_acquire(3).await);
}

#[tokio::test]
async fn flushing_the_scripts_mid_stream_has_no_effect() {
    let (server, redis, limit) = a_minute_of(100, OutagePolicy::closed()).await;

    for _ in 0..10 {
        server.flush_scripts().await;
        passed(limit.try_acquire(1).await);
    }
    assert_eq!((redis.stats().answered, redis.stats().faults), (10, 0));
}

#[tokio::test]
async fn after_a_failover_to_old_state_nothing_more_passes() {
    let mut master = Server::start().await;
    let relay = Relay::start(master.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", log(5)).unwrap();
    limit.acquire(1).await.unwrap();
    let replica = Server::start_replica_of(&master).await;
    replica.cut_off().await;
    limit.acquire(3).await.unwrap();

    // The replica has received one of the four permits.
    master.kill();
    replica.promote().await;
    relay.switch_to(replica.address()).await;
    pause(Duration::from_millis(50)).await;
    until_up(&redis).await;
    while limit.peek(1).await.is_err() {
        pause(Duration::from_millis(10)).await;
    }
    denied(limit.try_acquire(1).await);
    assert_eq!(redis.stats().lost_states, 1);
}
