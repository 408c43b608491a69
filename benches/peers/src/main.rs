//! Measures `paceline` beside other crates, and draws what it measured.

#![expect(
    clippy::cast_precision_loss,
    reason = "figures are read by people: 53 bits of a count are enough"
)]

mod contenders;
mod figures;
mod machine;
mod measure;
mod report;
mod sections;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use figures::Figures;
use machine::Machine;
use measure::{Extent, timed};
use sections::Section;

/// Measures paceline beside other crates.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures everything, and writes a page with tables and plots.
    Report {
        /// A little of everything, in seconds, to see that it runs. The figures mean nothing.
        #[arg(long, requires = "into")]
        quick: bool,
        /// Where the page is written.
        #[arg(long, default_value = PAGE)]
        into: PathBuf,
    },
    /// Measures one section and prints its tables.
    Section {
        section: Section,
        #[arg(long)]
        quick: bool,
        /// A page in which it takes the place of what was measured before.
        #[arg(long, conflicts_with = "quick")]
        into: Option<PathBuf>,
    },
    /// One contender on a paused clock: the `virtual` section starts it.
    #[command(hide = true)]
    AloneVirtual { contender: String, count: usize },
    /// One contender alone: the `hot` and `tower` sections start it, to have its instructions counted.
    #[command(hide = true)]
    AloneHot {
        part: String,
        contender: String,
        count: u64,
    },
    /// Many keys in Redis, asked by one client: the `redis` section starts it.
    #[command(hide = true)]
    AloneHerd {
        url: String,
        keys: u32,
        seconds: f64,
        policy: String,
    },
    /// Counts the instructions that the sidecar takes for a request, and fails if they are more than its ceiling.
    Ceiling {
        /// Those of the library, and not that of the sidecar. This program has to be built with `--release` for that.
        #[arg(long)]
        library: bool,
    },
    /// Draws a page again from its stored figures.
    Draw {
        #[arg(long, default_value = PAGE)]
        into: PathBuf,
    },
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/performance");

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> io::Result<()> {
    match command {
        Command::Report { quick, into } => {
            let mut figures = Figures::default();
            for &section in Section::value_variants() {
                measure(section, extent(quick), &mut figures);
            }
            figures.machine = Machine::this_one();
            report::write(&figures, &into)
        }
        Command::Section {
            section,
            quick,
            into,
        } => {
            let mut figures = into.as_deref().map(stored).transpose()?.unwrap_or_default();
            measure(section, extent(quick), &mut figures);
            figures.machine = Machine::this_one();
            if let Some(into) = into {
                report::write(&figures, &into)?;
            }
            println!("{}", report::tables(section, &figures));
            Ok(())
        }
        Command::AloneVirtual { contender, count } => sections::alone_virtual(&contender, count),
        Command::AloneHot {
            part,
            contender,
            count,
        } => sections::alone_hot(&part, &contender, count),
        Command::AloneHerd {
            url,
            keys,
            seconds,
            policy,
        } => sections::alone_herd(&url, keys, seconds, &policy),
        Command::Ceiling { library: true } => sections::library_ceilings(),
        Command::Ceiling { library: false } => sections::sidecar_ceiling(),
        Command::Draw { into } => report::write(&stored(&into)?, &into),
    }
}

const fn extent(quick: bool) -> Extent {
    if quick { Extent::Quick } else { Extent::Full }
}

fn stored(folder: &Path) -> io::Result<Figures> {
    let path = folder.join(report::STORED);
    Figures::load(&path).map_err(|error| {
        let path = path.display();
        let what = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("{path} is not there; `report` measures everything and writes it")
            }
            _ => format!("{path}: {error}"),
        };
        io::Error::new(error.kind(), what)
    })
}

fn measure(section: Section, extent: Extent, figures: &mut Figures) {
    eprintln!("{}:", section.name());
    let (took, measured) = timed(|| section.measure(extent));
    figures.replace(section.name(), took.as_secs_f64(), measured);
}
