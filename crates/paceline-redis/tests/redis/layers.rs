//! Limits in Redis go into every layer.

use std::convert::Infallible;

use paceline::limiter::{Observed, Switch, SwitchExt};
use paceline::policy::TokenBucket;
use paceline::shed::Class;
use paceline_redis::{
    FleetUsage, RedisKeyed, RedisKeyedPermits, RedisLimiter, RedisPermits, RedisReserved,
};
use paceline_tower::{ConcurrencyLayer, EnforceLayer, PaceLayer, ShedLayer};
use tower::{Layer, Service};

/// A service that answers with the request.
fn echo()
-> impl Service<u32, Response = u32, Error = Infallible, Future: Send> + Clone + Send + Sync {
    tower::service_fn(|n: u32| async move { Ok(n) })
}

fn is_service<S: Service<u32, Future: Send> + Clone + Send + Sync + 'static>(_: S) {}

#[test]
fn limits_in_redis_go_into_every_layer() {
    fn rates(one: RedisLimiter<TokenBucket>, users: RedisKeyed<TokenBucket>) {
        let user = |n: &u32| Some(n.to_string());
        is_service(EnforceLayer::new(one.clone()).layer(echo()));
        let switched = one.clone().switched(&Switch::new());
        is_service(EnforceLayer::new(Observed::new(switched, drop)).layer(echo()));
        let switched = users.clone().switched(&Switch::new());
        let layer = EnforceLayer::by_key(Observed::new(switched, drop), user);
        is_service(layer.layer(echo()));
        is_service(EnforceLayer::by_key(users.clone(), user).layer(echo()));
        is_service(PaceLayer::new(one).layer(echo()));
        is_service(PaceLayer::by_key(users, user).layer(echo()));
    }
    fn reserves(classes: RedisReserved) {
        let class = |n: &u32| Some(n.to_string());
        is_service(EnforceLayer::by_key(classes.clone(), class).layer(echo()));
        is_service(PaceLayer::by_key(classes, class).layer(echo()));
    }
    fn permits(one: RedisPermits, users: RedisKeyedPermits) {
        let user = |n: &u32| Some(n.to_string());
        let layer = ConcurrencyLayer::new(one);
        is_service(layer.until_response().layer(echo()));
        let layer = ConcurrencyLayer::by_key(users.clone(), user);
        is_service(layer.until_response().layer(echo()));
        let switched = users.switched(&Switch::new());
        let layer = ConcurrencyLayer::by_key(Observed::new(switched, drop), user);
        is_service(layer.until_response().layer(echo()));
    }
    fn usage(usage: FleetUsage) {
        let class = |_: &u32| Class::Sheddable(0);
        let layer = ShedLayer::new(usage.clone(), class).until_response();
        is_service(layer.layer(echo()));
        let switched = usage.switched(&Switch::new());
        let layer = ShedLayer::new(switched, class).until_response();
        is_service(layer.layer(echo()));
    }
    // That it compiles is the test.
    let _ = (rates, reserves, permits, usage);
}
