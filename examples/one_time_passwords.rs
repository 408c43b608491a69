//! How do I send what has a deadline first, and know in time what would be late?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::future::join_all;
use paceline::prelude::*;
use tokio::time::{Instant, sleep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let ms = Duration::from_millis;

    // One connection for all messages. A newsletter has no deadline: half a minute is usual.
    let connection = Interval::every(ms(250)).shared().by_deadline(ms(30_000));
    let connection = &connection;

    let newsletters = (1..=20).map(|number| async move {
        connection.acquire_one().await;
        let waited = start.elapsed();
        println!("newsletter {number} waited {} ms", waited.as_millis());
        waited
    });

    // Ten people log in while the newsletters wait. A password is of use for two seconds.
    let log_in = start + ms(1_100);
    let passwords = (1..=10).map(|number| async move {
        sleep(log_in - start).await;
        let passed = connection.acquire_by(1, log_in + ms(2_000)).await;
        let waited = log_in.elapsed();
        match passed {
            Ok(()) => println!("password {number} waited {} ms", waited.as_millis()),
            Err(late) => println!("password {number} {late}: call instead"),
        }
        passed.map(|()| waited).map_err(|_| waited)
    });

    let (newsletters, passwords) = tokio::join!(join_all(newsletters), join_all(passwords));
    let sent = (0..8).map(|number| Ok(ms(150 + 250 * number)));
    // That the others would be late is known at once.
    assert!(passwords.into_iter().eq(sent.chain([Err(ms(0)); 2])));
    // The last newsletter is behind 19 others and 8 passwords.
    assert_eq!(newsletters.into_iter().max(), Some(ms(27 * 250)));
}
