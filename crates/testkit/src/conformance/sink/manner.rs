//! The ways to send into a sink.

use std::fmt;

use super::inner::Room;
use crate::conformance::{manner::Manner, schedule::Dice};

/// How the producer behaves, and which inner sink it has.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) manner: Manner,
    pub(super) flushes: Flushes,
    /// How often it calls `poll_ready` until it is ready, before each item.
    pub(super) asks: usize,
    pub(super) room: Room,
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

impl Sending {
    pub(super) fn new(manner: Manner, flushes: Flushes) -> Self {
        Self {
            manner,
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

impl fmt::Display for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flushes = match self.flushes {
            Flushes::Never => "never",
            Flushes::Always => "always",
            Flushes::Sometimes(_) => "sometimes",
        };
        write!(f, "{}, flushes {flushes}, over {}", self.manner, self.room)
    }
}
