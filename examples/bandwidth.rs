//! How do I limit the bandwidth of a transfer?

use std::time::Duration;

use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> std::io::Result<()> {
    #![expect(clippy::disallowed_methods, reason = "looks at the clock to show it")]
    let start = Instant::now();
    // A megabyte a second, and 64 KiB at once. Transfers with a clone share the limit.
    let limit = TokenBucket::new(Rate::per_second(1_000_000), 65_536).shared();

    let (upload, mut server) = duplex(16 * 1024);
    let mut upload = upload.pace_writes(limit.clone());
    let sending = tokio::spawn(async move {
        upload.write_all(&vec![7; 3_065_536]).await?;
        upload.shutdown().await
    });

    let mut received = Vec::new();
    server.read_to_end(&mut received).await?;
    sending.await??;

    println!("{} bytes in {:?}", received.len(), start.elapsed());
    assert_eq!(received.len(), 3_065_536);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    Ok(())
}
