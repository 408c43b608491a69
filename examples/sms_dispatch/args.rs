//! The command line.

use core::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::provider::{Faults, Name};

/// Sends text messages through three providers with strict quotas, as fast as they allow and never faster.
///
/// The providers are HTTP servers on loopback that this program starts itself. Each counts what arrives with code of
/// its own, in every window there is, and bans who brings too much for two seconds:
///
///   solo      one message a request, at least 50 ms apart
///   bulk      up to ten messages a request, at least 250 ms apart
///   segments  one message a request, at most 300 segments in any 10 s
///
/// Exit status: 0 if all were sent; 1 if rows were bad (unless --skip-bad); 2 if nothing could be done; 3 if messages
/// are left unsent; 130 after Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "sms_dispatch", verbatim_doc_comment)]
pub(crate) struct Args {
    /// Rows of id,provider,to,text, with that header: a CSV file, or - for standard input, which is read to its end
    /// before anything is sent. By default a file with 2,085 messages and ten bad rows; they take about half a minute.
    pub(crate) input: Option<PathBuf>,

    /// Take only the first N messages of each provider, as if the input held no more.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<NonZeroUsize>,

    /// Bad rows are reported, but do not change the exit status.
    #[arg(long)]
    pub(crate) skip_bad: bool,

    /// How often a request that failed is tried again, from 0.3 s on and each time after twice as long; 5 are about ten
    /// seconds. Then the provider is given up.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,

    /// Where messages are written that were not sent, to be fed in again. A file that is there is never overwritten.
    #[arg(long, value_name = "FILE", default_value = "unsent.csv")]
    pub(crate) unsent: PathBuf,

    /// Stop taking new messages after so many seconds. [default with --naive: 40]
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,

    /// One JSON object on standard output instead of the table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Pace as it is often done, without the library, to see what comes of it.
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "bucket", require_equals = false)]
    pub(crate) naive: Option<Naive>,

    /// This provider answers 503 throughout.
    #[arg(long, value_name = "PROVIDER")]
    down: Option<Name>,

    /// This provider takes the messages and loses every twentieth answer.
    #[arg(long, value_name = "PROVIDER")]
    lose_answers: Option<Name>,

    /// Keep N threads busy meanwhile.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) load: usize,
}

/// How others do it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Naive {
    /// A token bucket written by hand, with a burst of one second's worth.
    Bucket,
    /// `tokio_stream`'s throttle, at the quota's own gap.
    Throttle,
}

impl Args {
    pub(crate) const fn faults(&self) -> Faults {
        Faults {
            down: self.down,
            lose_answers: self.lose_answers,
        }
    }

    pub(crate) const fn mode(&self) -> &'static str {
        match self.naive {
            None => "paced",
            Some(Naive::Bucket) => "naive bucket",
            Some(Naive::Throttle) => "naive throttle",
        }
    }

    /// Naive, it would take a quarter of an hour in the ban.
    pub(crate) fn time_limit(&self) -> Option<u64> {
        self.seconds.or(self.naive.map(|_| 40))
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Naive};
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn naive_alone_is_the_bucket() {
        let args = Args::parse_from(["sms_dispatch", "--naive"]);
        assert_eq!(args.naive, Some(Naive::Bucket));
        assert_eq!(args.time_limit(), Some(40));
    }
}
