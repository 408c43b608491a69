//! Listeners, bound before the sidecar says that it is ready.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::SockRef;
use tokio::net::TcpSocket;

/// Connections that the kernel keeps until they are accepted, at most `net.core.somaxconn`. It ignores the next ones, which try
/// again after 1 s.
const BACKLOG: u32 = 4096;

/// Bytes that the kernel takes for a client beyond what is on the way. It asks for more when less than a half is left, so that a
/// client is seen to read each few kilobytes, where a buffer of megabytes hides for half a minute that it does.
const UNSENT: u32 = 128 * 1024;

/// Why the sidecar cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub(super) struct CannotListen {
    address: SocketAddr,
    #[source]
    cause: io::Error,
}

/// Binds `count` listeners to one address, for that many threads. With port 0 all have the port of the first.
pub(super) fn bind(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, CannotListen> {
    bind_all(address, count).map_err(|cause| CannotListen { address, cause })
}

fn bind_all(mut address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    if count > 1 {
        // A port that is shared between threads would also be shared with a second sidecar. Alone it is refused.
        address = socket(address, false)?.local_addr()?;
    }
    (0..count)
        .map(|_| socket(address, count > 1)?.listen(BACKLOG)?.into_std())
        .collect()
}

/// Accepted connections inherit the options.
fn socket(address: SocketAddr, is_shared: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // A restart does not wait for the last connections of the process before.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(is_shared)?;
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    #[cfg(target_os = "linux")]
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT)?;
    socket.bind(address)?;
    Ok(socket)
}
