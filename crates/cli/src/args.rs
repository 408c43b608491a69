//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use paceline::time::Rate;

/// Lines from standard input to standard output, at a rate
#[derive(Debug, Parser)]
#[command(
    name = "paceline",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) pace: Pace,
}

const AFTER_HELP: &str = "\
Policies: 30/s, '100/min burst 20', '100/min sliding 10 buckets', '100/min smooth', '100/min fixed', '5000/day aligned',
'every 50ms', '10/s margin 80ms', '10/s and 500/day', unlimited. A rate alone never passes more than that in any such time,
wherever it begins. With a margin no more than that arrive, if each line takes up to 80 ms.

Examples:
  cat urls | paceline 30/s --burst 5 | xargs -n1 curl
  paceline '10/s and 500/day' < numbers.csv
  paceline 1M/s --bytes < backup > /mnt/share/backup
  paceline plan 100/min --burst 20

Exit status: 0 when all lines are written; 1 after a failure; 2 if an argument is wrong; 130 after SIGINT, 143 after SIGTERM, and
141 if the reader closes the pipe before. A message on standard error counts lines that were read and not written.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what any window of a policy can hold, and how long lines wait
    Plan {
        #[command(flatten)]
        limit: Limit,

        /// Plan bytes in place of lines
        #[arg(long)]
        bytes: bool,
    },
    /// Print the completions of a shell, for a file that it reads
    Completions { shell: Shell },
    /// Print the manual page, for `man -l -`
    Man,
}

/// The policy.
#[derive(Args, Debug)]
pub(crate) struct Limit {
    /// How fast lines pass, such as 30/s, '100/min burst 20' or 'every 50ms'
    #[arg(value_name = "POLICY", required = true)]
    pub(crate) policy: Vec<String>,

    /// Pass N lines at once after a rest: short for 'burst N' in the policy
    #[arg(long, value_name = "N")]
    pub(crate) burst: Option<String>,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct Pace {
    #[command(flatten)]
    pub(crate) limit: Limit,

    /// Write groups of N lines: a group takes one permit, and is written whole
    #[arg(long, value_name = "N", conflicts_with_all = ["bytes", "by_key"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: Option<u32>,

    /// A group that is not full leaves this long after its first line, such as 20ms; without it, at the end of the input
    #[arg(long, value_name = "TIME", requires = "batch", value_parser = time)]
    pub(crate) within: Option<Duration>,

    /// Write an empty line after each group; without it nothing separates groups
    #[arg(long, requires = "batch")]
    pub(crate) separate: bool,

    /// Give each key a limit of its own: 'column 2' between spaces, or 'field 2 ,' between commas. Keys do not wait for each
    /// other, and lines of one key stay in order. Lines without that column share the key `-`
    #[arg(long, value_name = "KEY")]
    pub(crate) by_key: Option<KeyOf>,

    /// With --by-key: how many lines may wait, over all keys. Reading pauses while that many wait [default: 10000]
    #[arg(long, value_name = "N", requires = "by_key")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_waiting: Option<u32>,

    /// Copy bytes, without regard to lines, and spread a rate alone evenly. Numbers may end in K, M or G: 1K are 1024. With
    /// --by-key a line is written whole, and costs its bytes and its newline
    #[arg(long)]
    pub(crate) bytes: bool,

    /// Lines end in NUL in place of newline, as those of `find -print0` and `sort -z`
    #[arg(short = '0', long)]
    pub(crate) null: bool,

    /// If it ends early, write all input that was not written, also what was not read yet, to FILE. Of a pipe that is what is
    /// in it. If all is written, FILE is empty
    #[arg(long, value_name = "FILE")]
    pub(crate) rest: Option<PathBuf>,

    #[cfg(feature = "redis")]
    #[command(flatten)]
    pub(crate) redis: Redis,

    /// At the end, write statistics to standard error, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress. It is shown if standard error is a terminal and standard output is none
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl Pace {
    /// Whether bytes are copied without regard to lines.
    pub(crate) const fn copies(&self) -> bool {
        self.bytes && self.by_key.is_none()
    }

    /// What ends a line.
    pub(crate) const fn end_of_line(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// The limit of all processes that use its name.
#[cfg(feature = "redis")]
#[derive(Args, Debug)]
pub(crate) struct Redis {
    /// Keep the limit in this Redis, such as `redis://127.0.0.1`, for all processes that use its name
    #[arg(long = "redis", value_name = "URL", requires = "name")]
    pub(crate) url: Option<String>,

    /// The name of the limit in Redis
    #[arg(long, requires = "url")]
    pub(crate) name: Option<String>,

    /// What passes while Redis does not answer: everything (open), nothing (closed), or of N processes each its share (insured=N)
    #[arg(long, value_name = "POLICY", default_value = "closed", requires = "url", value_parser = outage)]
    pub(crate) outage: paceline_redis::OutagePolicy,
}

#[cfg(feature = "redis")]
fn outage(text: &str) -> Result<paceline_redis::OutagePolicy, String> {
    use paceline_redis::OutagePolicy;

    match (text, text.strip_prefix("insured=")) {
        ("open", _) => Ok(OutagePolicy::open()),
        ("closed", _) => Ok(OutagePolicy::closed()),
        (_, Some(replicas)) => {
            let replicas = replicas.parse();
            let replicas = replicas.map_err(|_| "write insured=3 for three processes")?;
            OutagePolicy::try_insured(replicas).map_err(|error| error.to_string())
        }
        _ => Err("write open, closed or insured=3".to_owned()),
    }
}

/// A time is written as in a rate.
fn time(text: &str) -> Result<Duration, String> {
    let rate: Result<Rate, _> = format!("1/{text}").parse();
    rate.map(Rate::period)
        .map_err(|_| "write a whole number and a unit, such as 20ms, 5s or 1min".to_owned())
}

/// Where a line has its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum KeyOf {
    /// A column between white space, from 0.
    Column(usize),
    /// A field between delimiters, from 0.
    Field(usize, u8),
}

/// The key of lines without one.
const NO_KEY: &[u8] = b"-";

impl KeyOf {
    /// The key of a line, with or without its end.
    pub(crate) fn key<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let line = line.strip_suffix(b"\0").unwrap_or(line).trim_ascii_end();
        let key = match self {
            Self::Column(n) => {
                let mut columns = line.split(u8::is_ascii_whitespace);
                columns.by_ref().filter(|it| !it.is_empty()).nth(*n)
            }
            Self::Field(n, delimiter) => line.split(|byte| byte == delimiter).nth(*n),
        };
        key.filter(|key| !key.is_empty()).unwrap_or(NO_KEY)
    }
}

impl FromStr for KeyOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = words.get(1).and_then(|number| number.parse().ok());
        let index = number.and_then(|number: usize| number.checked_sub(1));
        match (&words[..], index) {
            (["column", _], Some(n)) => Ok(Self::Column(n)),
            (["field", _] | ["field", _, "\\t"], Some(n)) => Ok(Self::Field(n, b'\t')),
            (["field", _, delimiter], Some(n)) if delimiter.len() == 1 => {
                Ok(Self::Field(n, delimiter.as_bytes()[0]))
            }
            _ => Err(
                "write 'column 2' for the second column between white space, 'field 2 ,' for the second field between commas, \
                 or 'field 2 \\t' between tabs; a delimiter is one byte"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(of: &str, line: &str) -> String {
        let of: KeyOf = of.parse().unwrap();
        String::from_utf8(of.key(line.as_bytes()).to_vec()).unwrap()
    }

    #[test]
    fn a_column_is_between_any_white_space() {
        assert_eq!(key("column 2", "a  b\tc\n"), "b");
        assert_eq!(key("column 1", "  a b\n"), "a");
        assert_eq!(key("column 3", "a b\r\n"), "-");
    }

    #[test]
    fn a_field_is_between_delimiters_and_may_have_spaces() {
        assert_eq!(key("field 2 ,", "a,b c,d\n"), "b c");
        assert_eq!(key("field 2 ,", "a,,d\n"), "-");
        assert_eq!(key("field 2", "a\tb c\n"), "b c");
        assert_eq!(key("field 2 \\t", "a\tb c"), "b c");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "column", "column 0", "column x", "field 2 ab", "row 2"] {
            assert!(text.parse::<KeyOf>().is_err(), "{text}");
        }
    }
}
