//! Three providers. They count arrivals with code of their own, and share none with the library.

mod books;
mod codes;
mod judge;
mod server;
#[cfg(test)]
mod trial;

use core::{fmt, time::Duration};

use clap::ValueEnum;

use crate::message::Message;

pub(crate) use self::{
    books::Figures,
    codes::{CONTRACT, Codes, TAKES, Tally as CodesTally, Wire},
    server::{Faults, Provider, start},
};

/// A provider, by its name in a row.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ValueEnum)]
pub(crate) enum Name {
    /// Single messages, at least 50 ms apart.
    Solo,
    /// Batches of up to ten messages, at least 250 ms apart; later at most three in any second.
    Bulk,
    /// Single messages, at most 300 segments in any ten seconds.
    Segments,
}

/// A quota: at most `units` in any window of length `window`, wherever it begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Quota {
    pub(crate) units: u32,
    pub(crate) window: Duration,
    /// The most units that one request can cost.
    pub(crate) costliest: u32,
    /// The most messages in one request.
    pub(crate) batch: usize,
    /// The most segments of a text.
    pub(crate) max_segments: u32,
}

impl Quota {
    /// The highest rate that it allows, in the provider's [`unit`](Name::unit)s a second.
    pub(crate) fn per_second(self) -> f64 {
        let full = u32::try_from(self.batch).map_or(f64::INFINITY, f64::from);
        f64::from(self.units) * full / self.window.as_secs_f64()
    }
}

impl Name {
    pub(crate) const ALL: [Self; 3] = [Self::Solo, Self::Bulk, Self::Segments];

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Solo => "solo",
            Self::Bulk => "bulk",
            Self::Segments => "segments",
        }
    }

    pub(crate) const fn quota(self) -> Quota {
        match self {
            Self::Solo => Quota {
                units: 1,
                window: Duration::from_millis(50),
                costliest: 1,
                batch: 1,
                max_segments: 10,
            },
            Self::Bulk => Quota {
                units: 1,
                window: Duration::from_millis(250),
                costliest: 1,
                batch: 10,
                max_segments: 3,
            },
            Self::Segments => Quota {
                units: 300,
                window: Duration::from_secs(10),
                costliest: 4,
                batch: 1,
                max_segments: 4,
            },
        }
    }

    pub(crate) const fn quota_in_words(self) -> &'static str {
        match self {
            Self::Solo => "1 message, 50 ms apart",
            Self::Bulk => "1 batch of up to 10, 250 ms apart",
            Self::Segments => "300 segments in any 10 s",
        }
    }

    /// The lower quota that it may change to without notice, and a description.
    pub(crate) const fn lowered(self) -> Option<(Quota, &'static str)> {
        match self {
            Self::Bulk => {
                let quota = Quota {
                    units: 3,
                    window: Duration::from_secs(1),
                    ..self.quota()
                };
                Some((quota, "3 batches in any 1 s"))
            }
            Self::Solo | Self::Segments => None,
        }
    }

    /// The unit of its rates.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Solo | Self::Bulk => "message",
            Self::Segments => "segment",
        }
    }

    /// The cost of one request with these messages.
    pub(crate) fn cost(self, request: &[&Message]) -> u32 {
        match self {
            Self::Solo | Self::Bulk => 1,
            Self::Segments => request.iter().map(|message| message.segments).sum(),
        }
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Solo | Self::Segments => "/messages",
            Self::Bulk => "/batches",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
