//! The command line.

use core::time::Duration;

use clap::{Parser, Subcommand};
use paceline::time::Rate;

use crate::{
    plan::{Lengths, Plan},
    policy::Policy,
    worker::Task,
};

/// Three worker processes share one quota in Redis, in front of one strict provider. A worker is killed, then Redis is,
/// and comes back without its data. The provider counts.
///
/// The provider is an HTTP server on loopback. It counts the requests in every possible window, with its own code,
/// and answers 429 to those above the quota, which count too. Each policy has its own redis-server, provider and three
/// workers. All policies run at the same time:
///
///   closed    while Redis is down nothing passes
/// insured   each worker continues with a third of the limit, after a first window in which nothing passes
///   open      everything passes
///
/// The limit in Redis has the quota's count and a longer window: a permit may be used up to 125 ms after it was counted
/// (100 ms, and the round trip to Redis), and one request may travel longer than another (--way). So two requests can be
/// closer at the provider than in Redis, by the sum of both. With the quota's own window there would be no margin for
/// that. The price is that part of the throughput.
///
/// Exit status: 0 if closed and insured kept the quota; 1 if one did not; 2 if the run failed; 130 after Ctrl-C.
#[derive(Debug, Parser)]
#[command(
    name = "redis_fleet",
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Option<Role>,

    /// The quota of the provider: a number of requests in any window, as in 60/s or 30/500ms.
    #[arg(long, value_name = "RATE", default_value = "60/s")]
    quota: Rate,

    /// How much longer than another a request may travel to the provider.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 75)]
    way: u16,

    /// Runs only these of closed, insured and open.
    #[arg(
        long = "policy",
        value_name = "POLICY",
        value_enum,
        value_delimiter = ',',
        default_value = "closed,insured,open"
    )]
    policies: Vec<Policy>,

    /// The length of the phase before the first failure.
    #[arg(long, value_name = "SECONDS", default_value = "2.4", value_parser = seconds)]
    before: Duration,

    /// How long Redis still runs after one worker has been killed.
    #[arg(long, value_name = "SECONDS", default_value = "2.4", value_parser = seconds)]
    worker_killed: Duration,

    /// How long Redis is down.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    redis_down: Duration,

    /// How long the run continues when Redis is back.
    #[arg(long, value_name = "SECONDS", default_value = "3.6", value_parser = seconds)]
    back: Duration,

    /// Decides which worker is killed, and where in a window the run begins. Random by default.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Prints one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The role of this process, if it does not start the others.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// One of the three workers. It ends when its standard input does.
    #[command(hide = true)]
    Worker(Task),
}

impl Args {
    /// The policies to run, each once, in the order of the table.
    pub(crate) fn policies(&self) -> Result<Vec<Policy>, String> {
        let mut policies = Vec::new();
        for policy in &self.policies {
            if policies.contains(policy) {
                return Err(format!("--policy names {} twice", policy.as_str()));
            }
            policies.push(*policy);
        }
        Ok(policies)
    }

    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let way = Duration::from_millis(self.way.into());
        let lengths = Lengths {
            before: self.before,
            worker_killed: self.worker_killed,
            redis_down: self.redis_down,
            back: self.back,
        };
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        Plan::new(self.quota, way, lengths, seed)
    }
}

/// The longest phase in seconds.
const LONGEST: f64 = 60.0;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=LONGEST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("a phase lasts 0.1 to {LONGEST} seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Duration, Policy, Role};
    use clap::{CommandFactory, Parser};

    fn parse(args: &[&str]) -> Args {
        Args::try_parse_from([&["redis_fleet"], args].concat()).unwrap()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn all_policies_run_unless_some_are_named() {
        let all = [Policy::Closed, Policy::Insured, Policy::Open];
        assert_eq!(parse(&[]).policies().unwrap(), all);
        let two = parse(&["--policy", "open,closed"]).policies();
        assert_eq!(two.unwrap(), [Policy::Open, Policy::Closed]);
        let twice = parse(&["--policy", "open,open"]).policies();
        assert_eq!(twice.unwrap_err(), "--policy names open twice");
    }

    #[test]
    fn the_limits_window_is_longer_by_a_late_permit_and_the_way() {
        let plan = parse(&["--quota", "30/500ms", "--way", "40"])
            .plan()
            .unwrap();
        assert_eq!(plan.requests, 30);
        assert_eq!(plan.window, Duration::from_millis(500));
        assert_eq!(plan.limit_window(), Duration::from_millis(665));
    }

    #[test]
    fn the_arguments_of_a_worker_are_parsed_back() {
        let plan = parse(&[]).plan().unwrap();
        let words = super::Task {
            policy: Policy::Insured,
            redis: "redis://127.0.0.1:1".into(),
            provider: "127.0.0.1:2".into(),
            number: 3,
            requests: plan.requests,
            window: 1_200_000,
        }
        .words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some(Role::Worker(task)) = parse(&words).role else {
            panic!("{words:?}");
        };
        assert_eq!(task.words(), words);
    }
}
