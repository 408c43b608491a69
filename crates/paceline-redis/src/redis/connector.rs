//! Opens connections with the `redis` crate: to a server, to the master that sentinels name, or to a cluster, by TLS or not.

use redis::aio::MultiplexedConnection;
#[cfg(feature = "cluster")]
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, Role, cmd,
};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};
#[cfg(feature = "tls")]
use rustls::crypto::CryptoProvider;
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::task::JoinSet;

use crate::remote::Failure;

use super::transport::Transport;

/// The certificates for connections by TLS: see [`Redis::with_tls`](crate::Redis::with_tls).
///
/// Without any, the server's certificate is checked with the root certificates of the system.
///
/// ```
/// use paceline_redis::{OutagePolicy, Redis, Tls};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // From a file, it would be `std::fs::read("ca.pem")?`.
/// let ca = "-----BEGIN CERTIFICATE-----
/// MIIBfDCCASOgAwIBAgIUe4Y90mKylsvzW/eBIE/KSKxLVpYwCgYIKoZIzj0EAwIw
/// EzERMA8GA1UEAwwIUmVkaXMgQ0EwIBcNMjYxMTIyMDc0ODEzWhgPMjEyNjEwMjkw
/// NzQ4MTNaMBMxETAPBgNVBAMMCFJlZGlzIENBMFkwEwYHKoZIzj0CAQYIKoZIzj0D
/// AQcDQgAEMDEZ7EElNaTmyibg9FU5VifOdn9KXxfmzWRYxgUdVoA5qvdhiW2stkk5
/// 1GuSnnJ41WY73Ehb/BvNpEM6sT6aFqNTMFEwHQYDVR0OBBYEFB6hOWONewMnEyLe
/// PgrAoSroLxPsMB8GA1UdIwQYMBaAFB6hOWONewMnEyLePgrAoSroLxPsMA8GA1Ud
/// EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgQc0Or7w/yYUZEm/oR9XsO+Ka
/// ZS8a8pT1BFmgqVLXIKoCIAkh7Zr2TWglVbU7LsBfNEguAdu9Pt81bNSpU3kpJpL/
/// -----END CERTIFICATE-----";
/// let tls = Tls::new().with_root_certificate(ca);
/// let redis = Redis::open("rediss://redis.internal", OutagePolicy::closed())?.with_tls(&tls)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct Tls {
    /// Its `Debug` prints neither certificates nor keys.
    certificates: TlsCertificates,
}

#[cfg(feature = "tls")]
impl Tls {
    /// The root certificates of the system, and no client certificate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            certificates: TlsCertificates {
                client_tls: None,
                root_cert: None,
            },
        }
    }

    /// Trusts the certificates in this PEM text, and those of earlier calls, in place of the system's.
    #[must_use]
    pub fn with_root_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        let roots = self.certificates.root_cert.get_or_insert_default();
        roots.extend_from_slice(pem.as_ref());
        roots.push(b'\n');
        self
    }

    /// Shows the server this certificate (with its chain, if it has one) and proves it with the key. Both are PEM texts.
    #[must_use]
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client_tls = Some(ClientTlsConfig {
            client_cert: certificate.into(),
            client_key: key.into(),
        });
        self
    }

    /// The library takes a text without any certificate for an empty list, with which no connection can be made.
    fn checked(&self) -> RedisResult<TlsCertificates> {
        let TlsCertificates {
            client_tls,
            root_cert,
        } = &self.certificates;
        let client = client_tls.as_ref().map(|client| &client.client_cert);
        for pem in root_cert.iter().chain(client) {
            if CertificateDer::pem_slice_iter(pem).next().is_none() {
                return Err(misconfigured("a PEM text has no certificate"));
            }
        }
        Ok(self.certificates.clone())
    }
}

#[cfg(feature = "tls")]
impl Default for Tls {
    fn default() -> Self {
        Self::new()
    }
}

/// Opens connections to one server, to the master that sentinels name, or to one cluster.
#[derive(Clone, Debug)]
pub(super) enum Connector {
    Server(Client),
    Sentinels {
        sentinels: Vec<Client>,
        /// With the master's name as its host.
        master: ConnectionInfo,
    },
    #[cfg(feature = "cluster")]
    Cluster {
        client: Box<ClusterClient>,
        #[cfg(feature = "tls")]
        nodes: Vec<ConnectionInfo>,
    },
}

impl Connector {
    /// For one server. It does not connect yet.
    pub(super) fn server(url: &str) -> RedisResult<Self> {
        Client::open(server_at(url)?).map(Self::Server)
    }

    /// For the master of that name, or of the URL with that name as its host. It does not connect yet.
    pub(super) fn sentinels(urls: &[&str], master: &str) -> RedisResult<Self> {
        if urls.is_empty() {
            return Err(misconfigured("there is no sentinel"));
        }
        let sentinels = urls.iter().map(|url| Client::open(server_at(url)?));
        let scheme = if master.contains("://") {
            ""
        } else {
            "redis://"
        };
        Ok(Self::Sentinels {
            sentinels: sentinels.collect::<RedisResult<_>>()?,
            master: server_at(&format!("{scheme}{master}"))?,
        })
    }

    /// For a cluster. It does not connect yet.
    #[cfg(feature = "cluster")]
    pub(super) fn cluster(urls: &[&str]) -> RedisResult<Self> {
        let nodes: RedisResult<Vec<_>> = urls.iter().map(|url| server_at(url)).collect();
        Self::cluster_of(&nodes?, |client| client)
    }

    #[cfg(feature = "cluster")]
    fn cluster_of(
        nodes: &[ConnectionInfo],
        configure: impl FnOnce(ClusterClientBuilder) -> ClusterClientBuilder,
    ) -> RedisResult<Self> {
        // With retries the library would also repeat calls that a node may have run.
        let client = ClusterClientBuilder::new(nodes.to_vec())
            .retries(0)
            .tcp_settings(without_delay());
        let client = Box::new(configure(client).build()?);
        Ok(Self::Cluster {
            client,
            #[cfg(feature = "tls")]
            nodes: nodes.to_vec(),
        })
    }

    /// The same, with these certificates for each URL that begins with `rediss://`.
    #[cfg(feature = "tls")]
    pub(super) fn with_tls(&self, tls: &Tls) -> RedisResult<Self> {
        if !self.uses_tls() {
            return Err(misconfigured("no URL begins with rediss://"));
        }
        let certificates = tls.checked()?;
        let secured = |server: &ConnectionInfo| {
            let server = server.clone();
            if is_tls(&server) {
                Client::build_with_tls(server, certificates.clone())
            } else {
                Client::open(server)
            }
        };
        Ok(match self {
            Self::Server(client) => Self::Server(secured(client.get_connection_info())?),
            Self::Sentinels { sentinels, master } => {
                let sentinels = sentinels.iter().map(Client::get_connection_info);
                Self::Sentinels {
                    sentinels: sentinels.map(&secured).collect::<RedisResult<_>>()?,
                    master: secured(master)?.get_connection_info().clone(),
                }
            }
            #[cfg(feature = "cluster")]
            Self::Cluster { nodes, .. } => {
                Self::cluster_of(nodes, |client| client.certs(certificates))?
            }
        })
    }

    #[cfg(feature = "tls")]
    fn uses_tls(&self) -> bool {
        match self {
            Self::Server(client) => is_tls(client.get_connection_info()),
            Self::Sentinels { sentinels, master } => {
                let sentinels = sentinels.iter().map(Client::get_connection_info);
                sentinels.chain([master]).any(is_tls)
            }
            #[cfg(feature = "cluster")]
            Self::Cluster { nodes, .. } => nodes.iter().any(is_tls),
        }
    }

    /// Opens a new connection. The caller sets the time limit.
    pub(super) async fn open(&self) -> Result<Transport, Failure> {
        #[cfg(feature = "tls")]
        if self.uses_tls() && CryptoProvider::get_default().is_none() {
            // It fails if another thread has installed one meanwhile, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        match self {
            Self::Server(client) => {
                let place = client.get_connection_info().addr();
                let opened = open(client).await.map(Transport::Server);
                opened.map_err(|failure| failure.at(&place.to_string()))
            }
            Self::Sentinels { sentinels, master } => {
                open_master(sentinels, master).await.map(Transport::Server)
            }
            #[cfg(feature = "cluster")]
            Self::Cluster { client, .. } => {
                Ok(Transport::Cluster(client.get_async_connection().await?))
            }
        }
    }
}

/// Requests are small and frequent. With Nagle's algorithm a request can wait 40 ms for the acknowledgement of the one before.
fn without_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn server_at(url: &str) -> RedisResult<ConnectionInfo> {
    let server = url.into_connection_info()?;
    Ok(server.set_tcp_settings(without_delay()))
}

#[cfg(feature = "tls")]
fn is_tls(server: &ConnectionInfo) -> bool {
    matches!(server.addr(), ConnectionAddr::TcpTls { .. })
}

fn misconfigured(why: &'static str) -> RedisError {
    (ErrorKind::InvalidClientConfig, why).into()
}

async fn open(client: &Client) -> Result<MultiplexedConnection, Failure> {
    // The caller keeps both time limits.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    match connection.await {
        Ok(connection) => Ok(connection),
        Err(error) if error.is_connection_dropped() && !error.is_connection_refusal() => {
            Err(refusal(client, &config).await.unwrap_or(error.into()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Asks all sentinels at once, and returns the first connection to a master. A sentinel that is down or behind delays nothing.
async fn open_master(
    sentinels: &[Client],
    master: &ConnectionInfo,
) -> Result<MultiplexedConnection, Failure> {
    let mut attempts = JoinSet::new();
    for sentinel in sentinels {
        attempts.spawn(open_master_by(sentinel.clone(), master.clone()));
    }
    let mut failures = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(failure)) => failures.push(failure),
            Err(died) => failures.push((false, Failure::Unreachable(died.to_string().into()))),
        }
    }
    // The master knows better than a sentinel. A sentinel that cannot be reached may know better than one that refuses.
    let failures = failures.into_iter();
    let likeliest = failures.max_by_key(|(by_master, failure)| (*by_master, !failure.is_fault()));
    Err(likeliest.map_or(Failure::Timeout, |(_, failure)| failure))
}

/// Connects to the master that this sentinel names. A failure says whether it comes from the master.
async fn open_master_by(
    sentinel: Client,
    master: ConnectionInfo,
) -> Result<MultiplexedConnection, (bool, Failure)> {
    let place = sentinel.get_connection_info().addr();
    let named = named_by(&sentinel, master.addr().clone()).await;
    let address = named.map_err(|failure| (false, failure.at(&format!("sentinel {place}"))))?;
    let place = format!("master {address}");
    let server = master.set_addr(address);
    let connection = async {
        let client = Client::open(server)?;
        let mut connection = open(&client).await?;
        // A user without the right to ask has to take the sentinel's word.
        match cmd("ROLE").query_async(&mut connection).await {
            Ok(Role::Replica { .. }) => Err(Failure::Unavailable("it is a replica".into())),
            _ => Ok(connection),
        }
    };
    connection
        .await
        .map_err(|failure| (true, failure.at(&place)))
}

/// The address of the master, whose name is the host of this one.
async fn named_by(
    sentinel: &Client,
    mut master: ConnectionAddr,
) -> Result<ConnectionAddr, Failure> {
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = &mut master
    else {
        return Err(Failure::Fault("a socket has no name".into()));
    };
    let mut connection = open(sentinel).await?;
    let mut ask = cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&*host);
    let address: Option<(String, u16)> = ask.query_async(&mut connection).await?;
    let Some(address) = address else {
        let why = format!("it knows no master {host:?}");
        return Err(Failure::Fault(why.into()));
    };
    (*host, *port) = address;
    Ok(master)
}

/// Why the server closes every new connection, if it has too many clients. Such a server writes an error before it reads anything.
/// The library takes the error for the reply to its own first command, ignores it, and then only sees the connection close.
async fn refusal(client: &Client, config: &AsyncConnectionConfig) -> Option<Failure> {
    // Without a login and the library's name, the first command is ours.
    let silent = RedisConnectionInfo::default().set_skip_set_lib_name();
    let server = client.get_connection_info().clone();
    let client = Client::open(server.set_redis_settings(silent)).ok()?;
    let connection = client.get_multiplexed_async_connection_with_config(config);
    let answer: RedisResult<()> = cmd("PING").query_async(&mut connection.await.ok()?).await;
    let failure = answer.err()?.into();
    matches!(failure, Failure::Unavailable(_)).then_some(failure)
}
