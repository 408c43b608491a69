//! The URL of the service.

use std::net::IpAddr;

use http::uri::{Authority, Uri};

use super::Upstream;
use super::value::Value;

impl Value for Upstream {
    const PLACEHOLDER: &'static str = "URL";

    fn read(text: &str) -> Result<Self, String> {
        if let Some((user, host)) = text.rsplit_once('@') {
            let scheme = user.split_once("://").map_or("http", |(scheme, _)| scheme);
            return Err(format!(
                "`{scheme}://***@{host}` has a user or a password, which the service does not get: write {scheme}://{host}"
            ));
        }
        let wrong = |why: &str| Err(format!("`{text}` {why}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            let is_host = text.parse().is_ok_and(|authority| is_host(&authority));
            if !is_host || text.parse::<u16>().is_ok() {
                return wrong(EXAMPLE);
            }
            let right = format!("write http://{text}, or h2c://{text} for HTTP/2");
            return wrong(&format!("has no scheme: {right}"));
        };
        let is_h2c = match scheme {
            "http" => false,
            "h2c" => true,
            "https" => {
                let why = "asks for TLS, which is not spoken to the upstream";
                return wrong(&format!("{why}: write http://{rest}"));
            }
            _ => return wrong("has an unknown scheme: write http:// or h2c://"),
        };
        let uri: Option<Uri> = format!("http://{rest}").parse().ok();
        let authority = uri.as_ref().and_then(Uri::authority);
        let Some(authority) = authority.filter(|authority| is_host(authority)) else {
            return wrong(EXAMPLE);
        };
        let path = &rest[authority.as_str().len()..];
        if !path.is_empty() && path != "/" {
            return wrong(&format!(
                "has a path, `{path}`, but requests keep their own: write {scheme}://{authority}"
            ));
        }
        let authority = authority.clone();
        Ok(Self { authority, is_h2c })
    }

    fn text(&self) -> String {
        let scheme = if self.is_h2c { "h2c" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

const EXAMPLE: &str = "is not an upstream: write a host and a port, as in http://127.0.0.1:8080";

/// Whether it is a host, maybe with a port from 1 on.
fn is_host(authority: &Authority) -> bool {
    let host = authority.host();
    let port = authority.port_u16();
    let whole = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    authority.as_str() == whole && port != Some(0) && !host.is_empty()
}

impl Upstream {
    pub(super) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(80)
    }

    /// The addresses that its host is for sure. A name is not resolved.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let host = self.authority.host();
        let name = host.trim_end_matches('.');
        if name.eq_ignore_ascii_case("localhost") {
            return vec![
                IpAddr::from([127, 0, 0, 1]),
                IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            ];
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.parse().into_iter().collect()
    }
}
