//! How the task behaves that uses an adapter: the consumer of a stream, or the producer of a sink.

use std::time::Duration;

use tokio::time::timeout;

use super::schedule::Dice;
use crate::{
    clock::{jump, sleep},
    patience::{Stuck, wait},
    wakes::Driven,
};

/// How a consumer or a producer behaves.
#[derive(Clone, Debug)]
pub(super) enum Manner {
    /// Polls as soon as it can.
    Eager,
    /// The same, from another task at every poll.
    Wandering,
    /// A producer that polls once more for readiness after each item, and sends nothing then.
    Hopeful,
    /// Gives up a wait after this long, and comes back in another task.
    Restless(Duration),
    /// Works for a while between items.
    Lazy(Dice, Duration),
    /// The same, and sometimes the clock leaps while it waits.
    Late(Dice, Duration),
}

impl Manner {
    /// Works for a while, if that is its manner.
    pub(super) async fn dally(&mut self) {
        if let Self::Lazy(dice, scale) | Self::Late(dice, scale) = self {
            let span = dice.gap(*scale);
            if !span.is_zero() {
                sleep(span).await;
            }
        }
    }

    /// Goes on in another task, if that is its manner.
    pub(super) fn give_up<T>(&self, adapter: &mut Driven<T>) {
        if let Self::Restless(_) = self {
            adapter.change_task();
        }
    }

    /// Waits after a `Pending`.
    pub(super) async fn await_wake<T>(&mut self, adapter: &mut Driven<T>) -> Result<(), Stuck> {
        match self {
            Self::Eager | Self::Hopeful | Self::Lazy(..) => wait(adapter.woken()).await,
            Self::Wandering => {
                wait(adapter.woken()).await?;
                adapter.change_task();
                Ok(())
            }
            Self::Restless(patience) => {
                // It comes back, woken or not.
                let _ = timeout(*patience, adapter.woken()).await;
                adapter.change_task();
                Ok(())
            }
            Self::Late(dice, scale) => {
                if dice.below(2) == 0 {
                    return wait(adapter.woken()).await;
                }
                jump(dice.span(*scale)).await;
                Ok(())
            }
        }
    }
}
