use std::fs;

use super::Server;
use super::place::Place;

/// A certificate and its key, as PEM texts.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A server that also takes connections by TLS, on a port of its own.
#[derive(Debug)]
pub(crate) struct TlsServer {
    pub(crate) server: Server,
    /// The port for TLS, and the files with the certificates.
    place: Place,
}

impl TlsServer {
    /// It asks for client certificates of this authority, and by default refuses connections without.
    pub(crate) async fn start(identity: &Identity, authority: &str, options: &[&str]) -> Self {
        let place = Place::reserve();
        let file = |name: &str, text: &str| {
            let path = place.dir().join(name);
            fs::write(&path, text).expect("the directory is ours");
            path.display().to_string()
        };
        let certificate = file("certificate", &identity.certificate);
        let key = file("key", &identity.key);
        let authority = file("authority", authority);
        let port = place.address().port().to_string();
        let tls = [
            ["--tls-port", &port],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &authority],
        ];
        let server = Server::start_with(&[tls.as_flattened(), options].concat()).await;
        Self { server, place }
    }

    /// `rediss://127.0.0.1:port`
    pub(crate) fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.place.address().port()
    }

    pub(crate) fn authority_file(&self) -> std::path::PathBuf {
        self.place.dir().join("authority")
    }
}
