//! How the task behaves that uses an adapter: the consumer of a stream, or the producer of a sink.

use std::{fmt, time::Duration};

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

/// As in "the task is eager".
impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eager => "the task is eager",
            Self::Wandering => "the task changes at each poll",
            Self::Hopeful => "the task asks for more than it sends",
            Self::Restless(_) => "the task gives up waiting and comes back as another",
            Self::Lazy(..) => "the task is lazy",
            Self::Late(..) => "the clock leaps",
        })
    }
}
