//! Load shedding by fleet usage: admission, the keys in Redis, and outages. In real time.

use std::future::poll_fn;

use futures::poll;
use paceline::concurrency::Admit;
use paceline::shed::Class;
use paceline_redis::{FleetUsage, Lease, OutagePolicy, Redis};

use crate::failing::DEADLINE;
use crate::fleet_cases::CASES;
use crate::limits::client;
use crate::permits::{LONG, SHORT, STEADY, process, steady};
use crate::servers::{Server, until};

const CRITICAL: &str = "paceline:{api}:usage:critical";
const SHEDDABLE: &str = "paceline:{api}:usage:sheddable";

fn usage(redis: &Redis, capacity: u32, reserved: u32) -> FleetUsage {
    redis.fleet_usage("api", capacity, reserved, LONG).unwrap()
}

async fn connected(server: &Server) -> Redis {
    let redis = process(&server.url());
    redis.connect().await.unwrap();
    redis
}

/// A process whose server has answered, and is gone.
async fn without_its_server(when_down: OutagePolicy) -> Redis {
    let server = Server::start().await;
    let redis = client(&server.url(), when_down, DEADLINE);
    redis.connect().await.unwrap();
    redis
}

async fn admitted(usage: &FleetUsage, importance: Class) -> Option<Lease> {
    usage.admit(importance).await.unwrap()
}

async fn nothing_is_under_way(server: &Server) {
    until("nothing is under way", async || {
        server.cli::<u32>(&["EXISTS", CRITICAL, SHEDDABLE]).await == 0
    })
    .await;
}

/// Sends requests from two processes in turn, and returns the admitted ones, with `-` for a refusal.
async fn case(capacity: u32, reserved: u32, asked: &str) -> String {
    let server = Server::start().await;
    let fleet = [connected(&server).await, connected(&server).await];
    let mut held = Vec::new();
    let mut answers = String::new();
    for (number, kind) in asked.chars().enumerate() {
        let usage = usage(&fleet[number % 2], capacity, reserved);
        let importance = match kind {
            'c' => Class::Critical,
            _ => Class::Sheddable(0),
        };
        let lease = admitted(&usage, importance).await;
        answers.push(if lease.is_some() { kind } else { '-' });
        held.push(lease);
    }
    let in_use = usage(&fleet[0], capacity, reserved).in_use().await.unwrap();
    let count = |kind| answers.chars().filter(|one| *one == kind).count();
    assert_eq!(in_use.critical as usize, count('c'));
    assert_eq!(in_use.sheddable as usize, count('s'));
    answers
}

#[tokio::test]
async fn admission_follows_the_table() {
    for (capacity, reserved, asked, expected) in CASES {
        let answers = case(capacity, reserved, asked).await;
        assert_eq!(
            answers, expected,
            "of {asked} with {capacity} and {reserved}"
        );
    }
}

#[tokio::test]
async fn finished_requests_free_capacity_and_leave_no_keys_behind() {
    let server = Server::start().await;
    let usage = usage(&connected(&server).await, 2, 1);
    let critical = admitted(&usage, Class::Critical).await.unwrap();
    let sheddable = admitted(&usage, Class::Sheddable(0)).await.unwrap();
    assert!(admitted(&usage, Class::Sheddable(0)).await.is_none());

    drop(sheddable);
    let again = admitted(&usage, Class::Sheddable(0)).await.unwrap();
    assert!(!again.is_local() && !critical.is_local());
    drop(again);
    critical.release().await.unwrap();
    nothing_is_under_way(&server).await;
}

#[tokio::test]
async fn both_classes_are_renewed_in_one_round_trip() {
    let server = Server::start().await;
    let redis = steady(&server.url());
    redis.connect().await.unwrap();
    let usage = redis.fleet_usage("api", 4, 1, STEADY).unwrap();
    let held = [
        admitted(&usage, Class::Critical).await.unwrap(),
        admitted(&usage, Class::Sheddable(0)).await.unwrap(),
    ];
    let before = redis.stats().answered;

    tokio::time::timeout(STEADY * 2, held[0].lost())
        .await
        .unwrap_err();
    let asked = redis.stats().answered - before;

    assert!(held.iter().all(|lease| !lease.is_lost()));
    // One call for each third of a lease, not one for each class.
    assert!((3..=8).contains(&asked), "{asked}");
}

#[tokio::test]
async fn during_an_outage_critical_work_passes_and_the_outage_policy_decides_the_rest() {
    for (when_down, sheddable_passes) in [
        (OutagePolicy::open(), true),
        (OutagePolicy::closed(), false),
    ] {
        let usage = usage(&without_its_server(when_down).await, 1, 0);
        let mut held = Vec::new();

        for _ in 0..3 {
            let critical = admitted(&usage, Class::Critical).await.unwrap();
            assert!(critical.is_local());
            let sheddable = admitted(&usage, Class::Sheddable(0)).await;
            assert_eq!(sheddable.is_some(), sheddable_passes);
            held.push((critical, sheddable));
        }
    }
}

#[tokio::test]
async fn an_insurance_divides_the_capacity_without_the_reserve() {
    let redis = without_its_server(OutagePolicy::insured(2)).await;
    let usage = redis.fleet_usage("api", 6, 2, SHORT).unwrap();
    let _critical = admitted(&usage, Class::Critical).await.unwrap();

    let one = std::cell::RefCell::new(None);
    until("the first is let in", async || {
        one.replace(admitted(&usage, Class::Sheddable(0)).await);
        one.borrow().is_some()
    })
    .await;
    let _two = admitted(&usage, Class::Sheddable(0)).await.unwrap();
    assert!(admitted(&usage, Class::Sheddable(0)).await.is_none());
    assert!(admitted(&usage, Class::Critical).await.is_some());
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error() {
    let server = Server::start().await;
    let usage = usage(&connected(&server).await, 2, 1);

    for key in [CRITICAL, SHEDDABLE] {
        server.cli::<()>(&["SET", key, "mine"]).await;
        for importance in [Class::Critical, Class::Sheddable(0)] {
            let answers = usage.admit(importance).await.unwrap_err().to_string();
            assert!(
                answers.contains("WRONGTYPE") && answers.contains(key),
                "{answers}"
            );
        }
        server.flush_all().await;
    }
}

#[test]
fn values_outside_the_bounds_are_refused_and_named() {
    let redis = client(
        "redis://127.0.0.1:1/",
        OutagePolicy::insured(3),
        LONG / 10_000,
    );
    let refused = |capacity, reserved| {
        let refused = redis.fleet_usage("api", capacity, reserved, LONG);
        refused.unwrap_err().to_string()
    };
    for all in [5, 0] {
        let nothing = format!("a reserve of {all} leaves nothing of a capacity of {all}");
        assert_eq!(refused(all, all), nothing);
    }
    let too_few = "2 permits cannot be divided among 3 replicas: each needs at least 1";
    assert_eq!(refused(5, 3), too_few);
    assert!(redis.fleet_usage("api", 5, 2, LONG).is_ok());
    assert!(redis.fleet_usage("api", 5, 2, LONG * 1000).is_err());
}

#[tokio::test]
async fn a_handle_admits_by_class_and_never_queues() {
    async fn ask(handle: &mut impl Admit<Class, Guard = Lease>, class: Class) -> Option<Lease> {
        let admitted = poll_fn(|cx| handle.poll_admit(class, cx)).await;
        admitted.ok().expect("the server answers")
    }
    let server = Server::start().await;
    let mut handle = usage(&connected(&server).await, 2, 1);
    let mut other: Box<dyn Admit<Class, Guard = Lease, Error = _>> = Box::new(handle.clone());

    let sheddable = ask(&mut handle, Class::Sheddable(0)).await.unwrap();
    assert!(ask(&mut other, Class::Sheddable(0)).await.is_none());
    let tried = poll_fn(|cx| other.poll_try_admit(Class::Sheddable(0), cx)).await;
    assert!(tried.unwrap().is_none());
    let critical = ask(&mut other, Class::Critical).await;
    drop(sheddable);
    let again = ask(&mut &mut handle, Class::Sheddable(0)).await;
    assert!(critical.is_some() && again.is_some());
}

#[tokio::test]
async fn a_request_of_another_class_replaces_the_one_before_and_one_given_up_leaves_no_trace() {
    let server = Server::start().await;
    let usage = usage(&connected(&server).await, 2, 1);
    let mut handle = usage.clone();
    let sheddable = poll!(poll_fn(|cx| handle.poll_admit(Class::Sheddable(0), cx)));
    assert!(sheddable.is_pending());
    let critical = poll_fn(|cx| handle.poll_admit(Class::Critical, cx)).await;
    let critical = critical.unwrap().unwrap();
    until("only the second request is under way", async || {
        let in_use = usage.in_use().await.unwrap();
        (in_use.critical, in_use.sheddable) == (1, 0)
    })
    .await;

    assert!(poll!(poll_fn(|cx| handle.poll_admit(Class::Sheddable(0), cx))).is_pending());
    handle.give_up();
    drop(critical);
    nothing_is_under_way(&server).await;
}
