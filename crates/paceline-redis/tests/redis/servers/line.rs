use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::relay::Rules;

type Obeyed = watch::Receiver<Rules>;

/// The bytes of one read, and its time. No bytes stand for the end.
type Reply = (Instant, Vec<u8>);

/// Forwards one connection until one side closes it. The relay closes it by dropping the future.
pub(super) async fn carry(mut client: TcpStream, mut rules: Obeyed) {
    open(&mut rules).await;
    let server = rules.borrow().server;
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    for end in [&client, &server] {
        // Without this, small replies would be delayed and merged.
        let _ = end.set_nodelay(true);
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::select! {
        () = requests(from_client, to_server, rules.clone()) => {}
        () = read_replies(from_server, sender) => {}
        () = write_replies(receiver, to_client, rules) => {}
    }
}

/// Ends when the client has closed its side, and the network delivers that.
async fn requests(mut client: ReadHalf<'_>, mut server: WriteHalf<'_>, mut rules: Obeyed) {
    let mut bytes = [0; 8192];
    loop {
        let count = client.read(&mut bytes).await.unwrap_or(0);
        open(&mut rules).await;
        if count == 0 {
            return;
        }
        if server.write_all(&bytes[..count]).await.is_err() {
            // The server has closed. The client learns that after the replies in flight.
            pending::<()>().await;
        }
    }
}

/// Never ends: `write_replies` ends after the last reply.
async fn read_replies(mut server: ReadHalf<'_>, sender: mpsc::UnboundedSender<Reply>) {
    loop {
        let mut bytes = vec![0; 8192];
        let count = server.read(&mut bytes).await.unwrap_or(0);
        bytes.truncate(count);
        let sent = sender.send((Instant::now(), bytes));
        if count == 0 || sent.is_err() {
            pending::<()>().await;
        }
    }
}

async fn write_replies(
    mut receiver: mpsc::UnboundedReceiver<Reply>,
    mut client: WriteHalf<'_>,
    mut rules: Obeyed,
) {
    while let Some((read, bytes)) = receiver.recv().await {
        due(read, &mut rules).await;
        if bytes.is_empty() {
            return;
        }
        let dropped = rules.borrow().drops_replies;
        if !dropped && client.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Waits while the network is cut.
async fn open(rules: &mut Obeyed) {
    if rules.wait_for(|rules| rules.cut.is_none()).await.is_err() {
        gone().await;
    }
}

/// Waits until bytes read at that time may arrive, by the present rules.
async fn due(read: Instant, rules: &mut Obeyed) {
    loop {
        open(rules).await;
        let delay = rules.borrow_and_update().delay;
        tokio::select! {
            biased;
            changed = rules.changed() => if changed.is_err() { gone().await },
            () = sleep_until(read + delay) => return,
        }
    }
}

/// The relay is gone, and will drop this future.
async fn gone() {
    pending::<()>().await;
}
