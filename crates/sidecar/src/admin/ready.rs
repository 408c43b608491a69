//! Whether the upstream accepts connections.

use std::time::Duration;

use paceline::time::{Clock, Tick};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::config::Config;

/// How long a result holds, so that many probes make few connections.
const FRESH: Duration = Duration::from_secs(1);

/// The last try to connect to the upstream.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    // Held while connecting: probes that come meanwhile share the result.
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    clock: Clock,
    result: Option<(Tick, Result<(), String>)>,
}

impl Readiness {
    /// Tries to connect, or returns the result of a moment ago. The error is the reason.
    pub(super) async fn check(&self, config: &Config) -> Result<(), String> {
        let mut last = self.last.lock().await;
        let now = last.clock.now();
        if let Some((at, result)) = &last.result
            && now.since(*at) < FRESH
        {
            return result.clone();
        }
        let result = connect(config).await;
        let now = last.clock.now();
        last.result = Some((now, result.clone()));
        result
    }
}

async fn connect(config: &Config) -> Result<(), String> {
    let authority = &config.upstream.authority;
    let host = authority.host().trim_matches(['[', ']']);
    let address = (host, authority.port_u16().unwrap_or(80));
    let within = config.timeouts.connect;
    match timeout(within, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!(
            "the upstream {authority} refuses connections: {error}"
        )),
        Err(_) => Err(format!(
            "the upstream {authority} did not accept a connection within {within:?}"
        )),
    }
}
