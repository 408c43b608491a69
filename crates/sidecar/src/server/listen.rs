//! Listeners, bound before the sidecar says that it is ready.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use socket2::SockRef;
use tokio::net::TcpSocket;

/// Connections that the kernel keeps until they are accepted, at most `net.core.somaxconn`. It ignores the next ones, which try
/// again after 1 s.
const BACKLOG: u32 = 4096;

/// Bytes that the kernel takes beyond what is on the way.
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
    take_little_ahead(&socket)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Has the kernel ask for more as soon as a peer has read a few kilobytes. A send buffer of megabytes costs memory, and hides for half
/// a minute that a slow peer reads.
fn take_little_ahead(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT)?;
    Ok(())
}
