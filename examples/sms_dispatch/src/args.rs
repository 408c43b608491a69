//! The command line.

use core::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum, value_parser};

use crate::provider::{Faults, Name};

/// Sends text messages through three providers with strict quotas, as fast as they allow and never faster.
///
/// The providers are HTTP servers on loopback that this program starts itself. Each counts what arrives with code of
/// its own, in every window there is, and bans who brings too much for two seconds:
///
///   solo      one message a request, at least 50 ms apart
///   bulk      up to ten messages a request, at least 250 ms apart; half-way it lowers that, without notice, to
///             three requests in any second, and tells it with the next answer
///   segments  one message a request, at most 300 segments in any 10 s
///
/// Exit status: 0 if all were sent; 1 if rows were bad (unless --skip-bad); 2 if nothing could be done; 3 if messages
/// are left unsent; 130 after Ctrl-C; 143 after SIGTERM.
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

    /// One JSON object on standard output instead of the table: the sums, and the table's figures by provider; null
    /// where there is nothing to tell.
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

    /// When this share of its messages was accepted, bulk lowers its quota. At 100 it never does.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = value_parser!(u8).range(..=100))]
    lower_quota_at: u8,

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
    /// What is to go wrong, where so many messages are meant for the provider that lowers its quota.
    pub(crate) fn faults(&self, messages: usize) -> Faults {
        let percent = usize::from(self.lower_quota_at);
        Faults {
            down: self.down,
            lose_answers: self.lose_answers,
            lower_after: (percent < 100).then(|| messages.saturating_mul(percent) / 100),
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

    #[test]
    fn a_quota_is_lowered_half_way_or_where_it_is_said_or_never() {
        let lower_after = |args: &[&str], messages| {
            let args = Args::parse_from([&["sms_dispatch"], args].concat());
            args.faults(messages).lower_after
        };
        assert_eq!(lower_after(&[], 205), Some(102));
        assert_eq!(lower_after(&["--lower-quota-at", "0"], 205), Some(0));
        assert_eq!(lower_after(&["--lower-quota-at", "99"], 205), Some(202));
        assert_eq!(lower_after(&["--lower-quota-at", "100"], 205), None);
    }
}
