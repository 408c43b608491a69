//! How do tenants share one provider quota, and lend each other what they do not need?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::join;
use paceline::fair::FairShare;
use paceline::limiter::Fair;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

type Tenants = Fair<&'static str>;

/// Sends messages as fast as the share of the tenant allows, and says how long that took. All of them wait, so all are demand.
async fn send(tenants: &Tenants, tenant: &'static str, messages: u32) -> Duration {
    let start = Instant::now();
    let calls: JoinSet<()> = (0..messages).map(|_| tenants.acquire_one(tenant)).collect();
    calls.join_all().await;
    start.elapsed()
}

fn show(tenants: &Tenants) -> Vec<u32> {
    let shares = tenants.shares();
    for share in &shares {
        println!("{:?} may send {} a second", share.key, share.size);
    }
    shares.iter().map(|share| share.size).collect()
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // The provider allows 30 calls a second. Of its third, a tenant keeps a tenth although it does not need it.
    let second = Duration::from_secs(1);
    let tenants = Tenants::new(
        FairShare::new(30, second)
            .try_with_reservation(1_000)
            .unwrap(),
    );

    // All three send a little: nobody waits.
    let took = join!(
        send(&tenants, "shop", 5),
        send(&tenants, "bank", 5),
        send(&tenants, "club", 2)
    );
    assert_eq!(took, (Duration::ZERO, Duration::ZERO, Duration::ZERO));

    // The shop has a campaign. What it waits for is demand, and the others lend what they do not need.
    let campaign = tokio::spawn({
        let tenants = tenants.clone();
        async move { send(&tenants, "shop", 90).await }
    });
    sleep(second).await;
    assert_eq!(show(&tenants), [23, 5, 2]);
    assert_eq!(send(&tenants, "club", 2).await, Duration::ZERO);

    // The bank needs its third again, and has it when the next cycle begins.
    assert_eq!(send(&tenants, "bank", 12).await, second);
    assert_eq!(show(&tenants), [18, 10, 2]);

    // With its third alone, the shop would have needed nine seconds.
    assert_eq!(campaign.await.unwrap(), Duration::from_secs(4));
}
