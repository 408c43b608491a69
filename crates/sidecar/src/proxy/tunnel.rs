use std::io;

use bytes::Bytes;
use http::Response;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::body::{Answered, Body};
use super::failure::{Causes, Failure};
use super::fields;

/// The upstream has switched protocols, as `asked` by the client: what each side sends goes to the other one, until both have ended.
pub(super) fn open(
    asked: Option<(HeaderValue, OnUpgrade)>,
    mut response: Response<Answered>,
) -> Result<Response<Body>, Failure> {
    let switched = response.headers().get(UPGRADE).cloned();
    let (Some((asked, client)), Some(switched)) = (asked, switched) else {
        return Err(Failure::Switched);
    };
    if !asked.as_bytes().eq_ignore_ascii_case(switched.as_bytes()) {
        return Err(Failure::Switched);
    }
    fields::for_client(&mut response);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, switched);
    let (parts, answered) = response.into_parts();
    let Answered::Http1(exchange, _) = answered else {
        return Err(Failure::Switched);
    };
    let (upstream, received) = exchange.into_parts().ok_or(Failure::Switched)?;
    spawn_local(run(client, upstream, received));
    Ok(Response::from_parts(parts, Body::text(String::new())))
}

/// `received` was read of the upstream with the head of its response.
async fn run(client: OnUpgrade, mut upstream: TcpStream, received: Bytes) {
    let tunneled = async {
        let mut client = TokioIo::new(client.await.map_err(io::Error::other)?);
        client.write_all(&received).await?;
        drop(received);
        copy_bidirectional(&mut client, &mut upstream).await
    };
    if let Err(error) = tunneled.await {
        tracing::debug!(cause = %Causes(&error), "an upgraded connection broke");
    }
}
