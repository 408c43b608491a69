//! The layers of `paceline` for services.

use core::time::Duration;

use ::paceline::concurrency::Permits;
use ::paceline::limiter::{KeyedAt, Shared};
use ::paceline::policy::TokenBucket;
use ::paceline::prelude::*;
use ::paceline::time::Rate;
use ::paceline_tower::{Answers, ConcurrencyLayer, EnforceLayer, For, PaceLayer, Refusal};
use ::tower::Layer;
use axum::Router;
use axum::body::Body;
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Request, Response, StatusCode};

use super::crowd::Contended;
use super::hot::{Hot, Part};
use super::served::{
    A_FEW, Hello, KeyedService, USER, anonymous, by_key, contended, direct, hot, loose, of_ann,
    passed, refused, tight,
};
use super::sites::{Site, hello};

const ENFORCE: &str = "paceline EnforceLayer";
const ENFORCE_BY_KEY: &str = "paceline EnforceLayer, by key";

/// Too small to prefetch from: each request is one reading of the clock.
fn small() -> Shared<TokenBucket> {
    TokenBucket::new(Rate::new(1_000, Duration::from_nanos(1)), 100).shared()
}

fn users<B>(policy: TokenBucket) -> For<Request<B>, KeyedAt<String, TokenBucket>> {
    For::header(policy.keyed(), USER)
}

/// The response that `tower_governor` gives.
fn too_many(_: &Parts, refusal: &Refusal) -> Response<Body> {
    let seconds = refusal.retry_in().unwrap_or_default().as_secs() + 1;
    let body = format!("Too Many Requests! Wait for {seconds}s");
    let response = Response::builder().status(StatusCode::TOO_MANY_REQUESTS);
    let response = response.header(RETRY_AFTER, seconds);
    let response = response.header("x-ratelimit-after", seconds);
    response.body(body.into()).expect("they are valid headers")
}

pub(super) const ALL: &[Hot] = &[
    hot(Part::Direct, ENFORCE, |n| {
        let layer = EnforceLayer::new(loose().shared());
        passed(n, layer.layer(Hello), anonymous)
    }),
    hot(Part::Direct, "paceline EnforceLayer, burst 100", |n| {
        passed(n, EnforceLayer::new(small()).layer(Hello), anonymous)
    }),
    hot(
        Part::Direct,
        "paceline EnforceLayer, Answers, all headers",
        |n| {
            let answers = Answers::new("api").with_success_headers(true);
            let layer = EnforceLayer::new(loose().shared()).answering(answers);
            passed(n, layer.layer(Hello), anonymous)
        },
    ),
    hot(Part::Direct, "paceline PaceLayer", |n| {
        let layer = PaceLayer::new(loose().shared());
        passed(n, layer.layer(Hello), anonymous)
    }),
    hot(
        Part::DirectRefused,
        "paceline EnforceLayer, an error",
        |n| {
            let layer = EnforceLayer::new(tight().shared());
            refused(n, layer.layer(Hello), anonymous)
        },
    ),
    hot(Part::DirectRefused, "paceline EnforceLayer, a text", |n| {
        let layer = EnforceLayer::new(tight().shared()).answering_with(too_many);
        refused(n, layer.layer(Hello), anonymous)
    }),
    hot(Part::DirectRefused, "paceline EnforceLayer, Answers", |n| {
        let layer = EnforceLayer::new(tight().shared()).answering(Answers::new("api"));
        refused(n, layer.layer(Hello), anonymous)
    }),
    hot(Part::ByKey, ENFORCE, |n| {
        let layer = EnforceLayer::with_terms(users(loose()));
        passed(n, layer.layer(Hello), of_ann)
    }),
    hot(
        Part::ByKey,
        "paceline EnforceLayer, Answers, all headers",
        |n| {
            let answers = Answers::new("api").with_success_headers(true);
            let layer = EnforceLayer::with_terms(users(loose())).answering(answers);
            passed(n, layer.layer(Hello), of_ann)
        },
    ),
    hot(Part::ByKey, "paceline PaceLayer", |n| {
        let layer = PaceLayer::with_terms(users(loose()));
        passed(n, layer.layer(Hello), of_ann)
    }),
    hot(Part::ByKeyRefused, "paceline EnforceLayer, an error", |n| {
        let layer = EnforceLayer::with_terms(users(tight()));
        refused(n, layer.layer(Hello), of_ann)
    }),
    hot(Part::ByKeyRefused, "paceline EnforceLayer, a text", |n| {
        let layer = EnforceLayer::with_terms(users(tight())).answering_with(too_many);
        refused(n, layer.layer(Hello), of_ann)
    }),
    hot(Part::ByKeyRefused, "paceline EnforceLayer, Answers", |n| {
        let layer = EnforceLayer::with_terms(users(tight())).answering(Answers::new("api"));
        refused(n, layer.layer(Hello), of_ann)
    }),
    hot(
        Part::UnderWay,
        "paceline ConcurrencyLayer, until the response",
        |n| {
            let layer = ConcurrencyLayer::new(Permits::new(10)).until_response();
            passed(n, layer.layer(Hello), anonymous)
        },
    ),
    hot(
        Part::UnderWay,
        "paceline ConcurrencyLayer, until the body",
        |n| {
            let layer = ConcurrencyLayer::new(Permits::new(10));
            passed(n, layer.layer(Hello), anonymous)
        },
    ),
    hot(
        Part::UnderWayRefused,
        "paceline ConcurrencyLayer, at_once",
        |n| {
            let permits = Permits::new(1);
            let taken = permits.try_acquire();
            let layer = ConcurrencyLayer::new(permits).at_once();
            Box::pin(async move {
                refused(n, layer.layer(Hello), anonymous).await;
                drop(taken);
            })
        },
    ),
];

pub(crate) const AT_ONCE: Contended = contended(ENFORCE, |crowd, _| {
    direct(crowd, EnforceLayer::new(loose().shared()).layer(Hello))
});

pub(crate) const SMALL_AT_ONCE: Contended =
    contended("paceline EnforceLayer, burst 100", |crowd, _| {
        direct(crowd, EnforceLayer::new(small()).layer(Hello))
    });

pub(crate) const PACE_AT_ONCE: Contended = contended("paceline PaceLayer", |crowd, _| {
    direct(crowd, PaceLayer::new(loose().shared()).layer(Hello))
});

pub(crate) const BY_KEY_AT_ONCE: Contended = contended(ENFORCE_BY_KEY, |crowd, _| {
    by_key(crowd, EnforceLayer::with_terms(users(loose())).layer(Hello))
});

pub(crate) const KEYED: KeyedService = KeyedService {
    name: ENFORCE,
    new: || {
        let each = TokenBucket::new(Rate::per_minute(1), A_FEW);
        Box::new(EnforceLayer::with_terms(users(each)).layer(Hello))
    },
};

pub(crate) const DIRECT_SITE: Site = Site {
    name: ENFORCE,
    router: || {
        let layer = EnforceLayer::new(loose().shared());
        hello().layer(layer.answering(Answers::new("api")))
    },
};

pub(crate) const BY_KEY_SITE: Site = Site {
    name: ENFORCE_BY_KEY,
    router: || {
        let layer = EnforceLayer::with_terms(users(loose()));
        hello().layer(layer.answering(Answers::new("api")))
    },
};

/// Each response says what is left.
pub(crate) const HEADERS_SITE: Site = Site {
    name: "paceline EnforceLayer, by key, all headers",
    router: || {
        let answers = Answers::new("api").with_success_headers(true);
        let layer = EnforceLayer::with_terms(users(loose()));
        hello().layer(layer.answering(answers))
    },
};

pub(crate) const CONCURRENCY_SITE: Site = Site {
    name: "paceline ConcurrencyLayer",
    router: || -> Router {
        let layer = ConcurrencyLayer::new(Permits::new(1_000));
        hello().layer(layer.answering(Answers::new("api")))
    },
};
