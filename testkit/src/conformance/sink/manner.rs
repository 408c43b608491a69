//! The ways to send into a sink.

use std::{fmt, time::Duration};

use super::inner::Room;
use crate::conformance::schedule::Dice;

/// How the producer behaves, and which inner sink it has.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) producer: Producer,
    pub(super) flushes: Flushes,
    /// How often it calls `poll_ready` until it is ready, before each item.
    pub(super) asks: usize,
    pub(super) room: Room,
}

/// The behavior of the producer.
#[derive(Clone, Debug)]
pub(super) enum Producer {
    /// Sends as soon as it can.
    Eager,
    /// The same, from another task at every poll.
    Wandering,
    /// Polls once more for readiness after each item, and sends nothing then.
    Hopeful,
    /// Sends as soon as it can, but gives up a wait after this long, and comes back in another task.
    Restless(Duration),
    /// Delays each send after the sink is ready.
    Lazy(Dice, Duration),
    /// The same, and sometimes the clock leaps while it waits.
    Late(Dice, Duration),
}

/// After which items it flushes.
#[derive(Clone, Debug)]
pub(super) enum Flushes {
    /// As `feed` does.
    Never,
    /// As `send` does.
    Always,
    Sometimes(Dice),
}

impl Flushes {
    /// Each kind in turn.
    pub(super) fn of(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Never,
            1 => Self::Always,
            _ => Self::Sometimes(Dice::new(seed)),
        }
    }
}

impl Manner {
    pub(super) fn new(producer: Producer, flushes: Flushes) -> Self {
        Self {
            producer,
            flushes,
            asks: 1,
            room: Room::Always,
        }
    }

    pub(super) fn over(self, room: Room) -> Self {
        Self { room, ..self }
    }

    pub(super) fn asking(self, asks: usize) -> Self {
        Self { asks, ..self }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let producer = match self.producer {
            Producer::Eager => "an eager producer",
            Producer::Wandering => "a producer that changes tasks",
            Producer::Hopeful => "a producer that asks for more than it sends",
            Producer::Restless(_) => "a producer that gives up waiting and comes back",
            Producer::Lazy(..) => "a lazy producer",
            Producer::Late(..) => "a leaping clock",
        };
        let flushes = match self.flushes {
            Flushes::Never => "never",
            Flushes::Always => "always",
            Flushes::Sometimes(_) => "sometimes",
        };
        write!(f, "{producer} that flushes {flushes}, over {}", self.room)
    }
}
