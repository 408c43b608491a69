//! The command line.

use core::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Parser, ValueEnum, value_parser};

use crate::{
    codes::MESSAGES,
    provider::{Faults, Name},
};

/// Sends text messages through three providers with strict quotas, as fast as they allow and never faster.
///
/// The providers are HTTP servers on loopback that this program starts itself. Each counts what arrives with code of
/// its own, in every window, and bans a client that exceeds its quota for two seconds:
///
///   solo      one message a request, at least 50 ms apart
///   bulk      up to ten messages a request, at least 250 ms apart; half-way it lowers the quota without notice to
///             three requests in any second, and announces it with the next answer
///   segments  one message a request, at most 300 segments in any 10 s
///
/// With the rows that come with it, it also sends 400 one-time passwords and news, one each 50 ms, to a provider that
/// allows 40 a second, takes 12 for a while, says nothing of it, and fails now and then. A password has 5 s.
///
/// Exit status: 0 if all were sent; 1 if rows were bad (unless --skip-bad); 2 if nothing could be done; 3 if messages
/// are left unsent; 130 after Ctrl-C; 143 after SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "sms_dispatch", verbatim_doc_comment)]
pub(crate) struct Args {
    /// A CSV file with the header id,provider,to,text, or - for standard input. It is read to its end before the first
    /// message is sent. The default is a file with 2,085 messages and ten bad rows, which takes about half a minute.
    pub(crate) input: Option<PathBuf>,

    /// Take only the first N messages of each provider and ignore the others.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<NonZeroUsize>,

    /// Report bad rows without a change of the exit status.
    #[arg(long)]
    pub(crate) skip_bad: bool,

    /// The number of retries of a failed request. The first comes after 0.3 s, each later one after twice the time; 5 take
    /// about ten seconds. Then the provider is given up.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,

    /// The file for messages that were not sent, which can be the input of another run. An existing file is never
    /// overwritten.
    #[arg(long, value_name = "FILE", default_value = "unsent.csv")]
    pub(crate) unsent: PathBuf,

    /// Stop sending after this time. [default with --naive: 40]
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,

    /// Print one JSON object instead of the table: the sums, and the figures of each provider. A figure without a value
    /// is null.
    #[arg(long)]
    pub(crate) json: bool,

    /// Pace in a common way without the library, for comparison.
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "bucket", require_equals = false)]
    pub(crate) naive: Option<Naive>,

    /// This provider answers 503 to every request.
    #[arg(long, value_name = "PROVIDER")]
    down: Option<Name>,

    /// This provider accepts messages and loses every twentieth answer.
    #[arg(long, value_name = "PROVIDER")]
    lose_answers: Option<Name>,

    /// The share of its messages after which bulk lowers its quota. At 100 it never does.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = value_parser!(u8).range(..=100))]
    lower_quota_at: u8,

    /// Keep N threads busy during the run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) load: usize,
}

/// Pacing without the library.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Naive {
    /// A token bucket written by hand, with a burst of one second's worth.
    Bucket,
    /// `tokio_stream`'s throttle, at the quota's own gap.
    Throttle,
}

impl Args {
    /// The faults of the providers. `messages` is the number for the provider that lowers its quota.
    pub(crate) fn faults(&self, messages: usize) -> Faults {
        let percent = usize::from(self.lower_quota_at);
        Faults {
            down: self.down,
            lose_answers: self.lose_answers,
            lower_after: (percent < 100).then(|| messages.saturating_mul(percent) / 100),
        }
    }

    /// How many passwords and news are sent: with the rows that come with the example, and not in a naive way.
    pub(crate) fn codes(&self) -> u32 {
        if self.input.is_some() || self.naive.is_some() {
            return 0;
        }
        let limit = self.limit.map_or(u32::MAX, |limit| {
            u32::try_from(limit.get()).unwrap_or(u32::MAX)
        });
        MESSAGES.min(limit)
    }

    pub(crate) const fn mode(&self) -> &'static str {
        match self.naive {
            None => "paced",
            Some(Naive::Bucket) => "naive bucket",
            Some(Naive::Throttle) => "naive throttle",
        }
    }

    /// A naive run spends most of its time in bans, so it has a limit by default.
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
    fn a_quota_is_lowered_half_way_or_at_the_given_share_or_never() {
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
