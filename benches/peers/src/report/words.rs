//! What the page says around the figures. No numbers: those are measured.

mod adaptive;
mod own;
mod pacing;
mod rates;
mod redis;
mod shed;
mod sidecar;
mod tower;

use crate::sections::Section;

use super::plot::Drawing;

/// A subject of the page: one question, and one table or plot.
pub(super) struct Words {
    pub(super) title: &'static str,
    pub(super) question: &'static str,
    /// In the order in which their tables are printed. The page says where another contender is ahead in any of them.
    pub(super) metrics: &'static [Metric],
    /// What the page shows.
    pub(super) shown: Shown,
    /// Why it is as it is, also where another is ahead.
    pub(super) why: &'static str,
}

pub(super) enum Shown {
    /// Of one of the metrics, and of one part of the section.
    Table {
        metric: &'static str,
        part: &'static str,
    },
    Plot(Drawing),
}

pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) heading: &'static str,
    pub(super) better: Better,
}

const fn metric(name: &'static str, heading: &'static str, better: Better) -> Metric {
    Metric {
        name,
        heading,
        better,
    }
}

#[derive(Clone, Copy)]
pub(super) enum Better {
    Less,
    More,
    Neither,
}

pub(super) const INTRODUCTION: &str = "\
# Performance

What `paceline` costs and how exact it is, beside other crates. All of it is measured by one command on one machine:

```text
scripts/measure
```

Others may have worked on the machine meanwhile: compare the figures of a table with each other, not with those of other machines.
The best of each column is in bold. A section has one table or plot, says where another crate is ahead, and why.
[All tables](tables.md) are in a file of their own.
";

pub(super) const TABLES: &str = "\
# All tables

What was measured for [*Performance*](README.md), written by `scripts/measure`. The best of each column is in bold.

";

/// The subjects of a section.
pub(super) const fn of(section: Section) -> &'static [Words] {
    match section {
        Section::Precision => &[pacing::PRECISION],
        Section::Load => &[pacing::LOAD],
        Section::Gaps => &[pacing::GAPS],
        Section::Timers => &[own::TIMERS],
        Section::Hot => &[rates::HOT],
        Section::Keyed => &[rates::KEYED],
        Section::Fair => own::FAIR,
        Section::Contention => &[rates::CONTENTION],
        Section::Virtual => &[pacing::VIRTUAL],
        Section::Queues => &[own::QUEUES],
        Section::Growth => &[own::GROWTH],
        Section::Adaptive => &[adaptive::ADAPTIVE],
        Section::Redis => redis::REDIS,
        Section::Tower => &[tower::TOWER],
        Section::Shed => &[shed::SHED],
        Section::Sidecar => &[sidecar::SIDECAR],
    }
}
