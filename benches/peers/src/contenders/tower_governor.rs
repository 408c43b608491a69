//! `tower_governor`, with the same key as the others.

use core::time::Duration;

use ::governor::middleware::NoOpMiddleware;
use ::tower::Layer;
use ::tower_governor::GovernorLayer;
use ::tower_governor::errors::GovernorError;
use ::tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use ::tower_governor::key_extractor::{GlobalKeyExtractor, KeyExtractor};
use axum::body::Body;
use http::Request;

use super::crowd::Contended;
use super::hot::{Hot, Part};
use super::served::{
    A_FEW, HOUR, Hello, KeyedService, LARGE, USER, anonymous, by_key, contended, direct, hot,
    of_ann, passed, refused,
};
use super::sites::{Site, hello};

const NAME: &str = "tower_governor";
const BY_KEY: &str = "tower_governor, by key";

/// The value of the header.
#[derive(Clone, Copy, Debug)]
struct ByUser;

impl KeyExtractor for ByUser {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let user = request.headers().get(USER);
        let user = user.and_then(|user| user.to_str().ok());
        user.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

type Governed<K> = GovernorLayer<K, NoOpMiddleware, Body>;

fn layer<K: KeyExtractor>(key: K, period: Duration, burst: u32) -> Governed<K> {
    let mut config = GovernorConfigBuilder::default().key_extractor(key);
    let config: Option<GovernorConfig<K, _>> = config.period(period).burst_size(burst).finish();
    GovernorLayer::new(config.expect("neither is zero"))
}

fn loose<K: KeyExtractor>(key: K) -> Governed<K> {
    layer(key, Duration::from_millis(1), LARGE)
}

fn tight<K: KeyExtractor>(key: K) -> Governed<K> {
    layer(key, HOUR, 1)
}

pub(super) const ALL: &[Hot] = &[
    hot(Part::Direct, NAME, |n| {
        passed(n, loose(GlobalKeyExtractor).layer(Hello), anonymous)
    }),
    hot(Part::DirectRefused, NAME, |n| {
        refused(n, tight(GlobalKeyExtractor).layer(Hello), anonymous)
    }),
    hot(Part::ByKey, NAME, |n| {
        passed(n, loose(ByUser).layer(Hello), of_ann)
    }),
    hot(Part::ByKey, "tower_governor, all headers", |n| {
        let mut config = GovernorConfigBuilder::default().key_extractor(ByUser);
        let mut config = config.use_headers();
        let config = config.per_millisecond(1).burst_size(LARGE).finish();
        let layer = GovernorLayer::new(config.expect("neither is zero"));
        passed(n, layer.layer(Hello), of_ann)
    }),
    hot(Part::ByKeyRefused, NAME, |n| {
        refused(n, tight(ByUser).layer(Hello), of_ann)
    }),
];

pub(crate) const AT_ONCE: Contended = contended(NAME, |crowd, _| {
    direct(crowd, loose(GlobalKeyExtractor).layer(Hello))
});

pub(crate) const BY_KEY_AT_ONCE: Contended =
    contended(BY_KEY, |crowd, _| by_key(crowd, loose(ByUser).layer(Hello)));

pub(crate) const KEYED: KeyedService = KeyedService {
    name: NAME,
    new: || {
        let layer = layer(ByUser, Duration::from_secs(60), A_FEW);
        Box::new(layer.layer(Hello))
    },
};

pub(crate) const SITE: Site = Site {
    name: BY_KEY,
    router: || hello().layer(loose(ByUser)),
};
