//! Connections by TLS. The server program has to be built with TLS.

use std::env;
use std::process::Command;
use std::time::Duration;

use paceline::config::ConfigError;
use paceline::policy::Interval;
use paceline_redis::{OutagePolicy, Redis, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use crate::failing::{DEADLINE, until_up};
use crate::limits::{MINUTE, client, pause};
use crate::servers::{Identity, Server, TlsServer};

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        // Authorities of one name would be taken for one with a broken signature.
        let name = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        Self { issuer }
    }

    fn certificate(&self) -> String {
        self.issuer.pem()
    }

    fn identity(&self, name: &str) -> Identity {
        self.identity_of(&CertificateParams::new([name.to_owned()]).unwrap())
    }

    fn identity_of(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Has the clients trust this authority.
    fn trusted(&self) -> Tls {
        Tls::new().with_root_certificate(self.certificate())
    }
}

/// A server that asks for no client certificates.
async fn start(authority: &Authority) -> TlsServer {
    start_as(&authority.identity("127.0.0.1"), authority).await
}

async fn start_as(identity: &Identity, authority: &Authority) -> TlsServer {
    let options = ["--tls-auth-clients", "no"];
    TlsServer::start(identity, &authority.certificate(), &options).await
}

fn by_tls(redis: Result<Redis, ConfigError>, tls: &Tls) -> Redis {
    let redis = redis.unwrap().with_deadline(2 * DEADLINE).unwrap();
    redis.with_tls(tls).unwrap()
}

fn opened(url: &str, tls: &Tls) -> Redis {
    by_tls(Redis::open(url, OutagePolicy::closed()), tls)
}

async fn works(redis: &Redis) {
    until_up(redis).await;
    // After an outage a longer limit would count as spent.
    let limit = redis.limit("a", Interval::every(Duration::from_millis(1)));
    let limit = limit.unwrap();
    limit.acquire(1).await.unwrap();
}

/// Why there is no connection.
async fn failure(redis: &Redis) -> String {
    while redis.last_failure().is_none() {
        redis.connect().await.unwrap_err();
    }
    assert_eq!(redis.stats().connects, 0);
    redis.last_failure().unwrap()
}

#[tokio::test]
async fn a_limit_works_by_tls_and_comes_back_after_the_server_was_away() {
    let authority = Authority::new();
    let mut server = start(&authority).await;
    let redis = opened(&server.url(), &authority.trusted());
    works(&redis).await;
    server.server.kill();
    while redis.is_up() {
        let limit = redis.limit("b", Interval::every(MINUTE)).unwrap();
        assert!(!limit.try_acquire(1).await.unwrap().is_pass());
    }
    server.server.start_again().await;
    until_up(&redis).await;
    assert_eq!(redis.stats().connects, 2);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_trusted_is_named() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let mut expired = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    expired.not_after = date_time_ymd(2020, 1, 1);
    let expired = authority.identity_of(&expired);
    let here = authority.identity("127.0.0.1");
    let elsewhere = authority.identity("127.0.0.2");
    for (identity, trusted, why) in [
        (here, &other, "UnknownIssuer"),
        (elsewhere, &authority, "not valid for name"),
        (expired, &authority, "certificate expired"),
    ] {
        let server = start_as(&identity, &authority).await;
        let said = failure(&opened(&server.url(), &trusted.trusted())).await;
        let place = server.url().replace("rediss://", "cannot be reached: ");
        assert!(said.starts_with(&place), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn a_server_can_ask_for_a_client_certificate() {
    let authority = Authority::new();
    let identity = authority.identity("127.0.0.1");
    let server = TlsServer::start(&identity, &authority.certificate(), &[]).await;
    let tls = authority.trusted();
    let with = |client: Identity| {
        let Identity { certificate, key } = client;
        tls.clone().with_client_certificate(certificate, key)
    };
    let client = authority.identity("client");
    let mixed = Identity {
        certificate: client.certificate.clone(),
        key: authority.identity("client").key,
    };
    works(&opened(&server.url(), &with(client))).await;
    for (tls, why) in [
        (tls.clone(), "CertificateRequired"),
        (with(Authority::new().identity("client")), "UnknownCA"),
        (with(mixed), "KeyMismatch"),
    ] {
        let said = failure(&opened(&server.url(), &tls)).await;
        assert!(said.contains(why), "{said}");
    }
}

/// The URL of a server, for a copy of this test in a process with root certificates of its own.
const URL: &str = "PACELINE_TEST_TLS_URL";

#[tokio::test]
async fn without_certificates_those_of_the_system_are_trusted() {
    if let Ok(url) = env::var(URL) {
        works(&client(&url, OutagePolicy::closed(), 2 * DEADLINE)).await;
        return;
    }
    let authority = Authority::new();
    let server = start(&authority).await;
    let said = failure(&opened(&server.url(), &Tls::new())).await;
    assert!(said.contains("UnknownIssuer"), "{said}");

    let this = "tls::without_certificates_those_of_the_system_are_trusted";
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", this])
        .env(URL, server.url())
        .env("SSL_CERT_FILE", server.authority_file())
        .spawn()
        .unwrap();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => pause(Duration::from_millis(20)).await,
        }
    };
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn a_cluster_and_a_master_that_sentinel_names_are_reached_by_tls() {
    let authority = Authority::new();
    let options = [
        ["--tls-auth-clients", "no"],
        ["--cluster-enabled", "yes"],
        // Otherwise it names its other port to clients.
        ["--tls-cluster", "yes"],
        ["--cluster-announce-ip", "127.0.0.1"],
    ];
    let identity = authority.identity("127.0.0.1");
    let certificate = authority.certificate();
    let node = TlsServer::start(&identity, &certificate, options.as_flattened()).await;
    let slots = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    node.server.cli::<()>(&slots).await;
    let master = start(&authority).await;
    let sentinel = Server::start_sentinel_of(master.port()).await;
    let closed = OutagePolicy::closed;
    for redis in [
        Redis::open_cluster(&[&node.url()], closed()),
        Redis::open_sentinel(&[&sentinel.url()], "rediss://mymaster", closed()),
    ] {
        works(&by_tls(redis, &authority.trusted())).await;
    }
}

#[test]
fn certificates_that_cannot_be_read_or_are_not_used_are_refused() {
    let authority = Authority::new();
    let Identity { certificate, key } = authority.identity("client");
    let of_client =
        |certificate: &str, key: &str| Tls::new().with_client_certificate(certificate, key);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
    let trusted = authority.trusted();
    let none = Tls::new().with_root_certificate("");
    let and_broken = trusted.clone().with_root_certificate(broken);
    for (scheme, tls, why) in [
        ("redis", trusted, "no URL begins with rediss://"),
        ("rediss", none, "no certificate"),
        ("rediss", and_broken, "trust anchors"),
        ("rediss", of_client(&key, &key), "no certificate"),
        ("rediss", of_client(&certificate, ""), "private key"),
    ] {
        let url = format!("{scheme}://127.0.0.1");
        let redis = Redis::open(&url, OutagePolicy::closed()).unwrap();
        let said = redis.with_tls(&tls).unwrap_err().to_string();
        assert!(said.starts_with("cannot connect by TLS: "), "{said}");
        assert!(said.contains(why), "{said}");
        let debug = format!("{tls:?}");
        let is_secret = !debug.contains("BEGIN") && !debug.contains("45, 45");
        assert!(is_secret, "{debug}");
    }
}
