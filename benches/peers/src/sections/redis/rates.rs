//! Decisions a second, how long one takes, and what it costs on both sides.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

use crate::contenders::{Caller, Keys, Meeting, STORED, Stored};
use crate::figures::{Notes, Value};
use crate::measure::{Extent, median, quantile};

use super::super::pacing::Flavour;
use super::run;
use super::servers::Server;

struct Case {
    name: &'static str,
    connections: usize,
    callers: usize,
    keys: Keys,
}

/// One caller waits for each answer: what counts is how long the way is. The others keep the connection, or the server, busy.
const CASES: &[Case] = &[
    Case {
        name: "1 caller",
        connections: 1,
        callers: 1,
        keys: Keys::One,
    },
    Case {
        name: "64 callers, own keys",
        connections: 1,
        callers: 64,
        keys: Keys::Own,
    },
    Case {
        name: "1,000 callers, own keys",
        connections: 1,
        callers: 1_000,
        keys: Keys::Own,
    },
    Case {
        name: "64 callers, one key",
        connections: 1,
        callers: 64,
        keys: Keys::One,
    },
    Case {
        name: "50 connections, own keys",
        connections: 50,
        callers: 1,
        keys: Keys::Own,
    },
    Case {
        name: "50 connections, one key",
        connections: 50,
        callers: 1,
        keys: Keys::One,
    },
];

/// What was seen while one contender was asked for a while.
#[derive(Clone, Debug)]
struct Slice {
    thousands_a_second: f64,
    median: f64,
    p99: f64,
    /// µs inside the command or the script, for each time the server was asked.
    script: f64,
    /// The same, for each decision: many can go on one trip.
    script_each: f64,
    /// µs of processor time for each decision.
    server: f64,
    client: f64,
}

type Metric = (&'static str, fn(&Slice) -> f64);

/// The server's time for a decision, without what it takes to read the request and to write the reply.
pub(super) const EACH: &str = "µs in the script a decision";

pub(super) const TO_STRIPE: &str = "share of Stripe's time in the script";

const METRICS: [Metric; 7] = [
    ("thousand decisions a second", |slice| {
        slice.thousands_a_second
    }),
    ("µs a decision, median", |slice| slice.median),
    ("µs a decision, 99 %", |slice| slice.p99),
    ("µs in the script", |slice| slice.script),
    (EACH, |slice| slice.script_each),
    ("µs of the server a decision", |slice| slice.server),
    ("µs of the client a decision", |slice| slice.client),
];

/// What the others are compared in, round by round, and the contender they are compared with.
const MEASURES: [(Metric, usize); 3] = [
    (("share of SET's rate", |slice| slice.thousands_a_second), 0),
    (
        ("share of Stripe's rate", |slice| slice.thousands_a_second),
        1,
    ),
    ((TO_STRIPE, |slice| slice.script_each), 1),
];

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    let all = run(Flavour::OneThread, async {
        let server = Server::start().await;
        let mut all = Vec::new();
        for case in CASES {
            all.push((case, rounds(case, &server, extent).await));
        }
        all
    });
    match all {
        Ok(all) => all
            .iter()
            .for_each(|(case, rounds)| note(notes, case, rounds)),
        Err(why) => notes.add(METRICS[0].0, "paceline", "all", Err::<f64, _>(why)),
    }
}

/// Of each contender its slices. They take turns, so that a stall of the machine spoils one round of one of them.
async fn rounds(case: &Case, server: &Server, extent: Extent) -> Vec<Vec<Result<Slice, String>>> {
    let mut rounds = vec![Vec::new(); STORED.len()];
    for _ in 0..extent.pick(3, 1) {
        for (contender, rounds) in STORED.iter().zip(&mut rounds) {
            let during = Duration::from_millis(extent.pick(150, 10));
            rounds.push(slice(contender, case, server, during).await);
        }
    }
    rounds
}

fn note(notes: &mut Notes, case: &Case, rounds: &[Vec<Result<Slice, String>>]) {
    for (contender, rounds) in STORED.iter().zip(rounds) {
        for (metric, of) in METRICS {
            let values: Result<Vec<f64>, String> = rounds
                .iter()
                .map(|slice| slice.as_ref().map(of).map_err(Clone::clone))
                .collect();
            let value = values.map(|values| median(&values));
            notes.add(metric, contender.name, case.name, value);
        }
    }
    for ((metric, in_), to) in MEASURES {
        for (contender, of) in STORED.iter().zip(rounds).skip(to + 1) {
            let share = shares(of, &rounds[to], in_);
            notes.add(metric, contender.name, case.name, share);
        }
    }
}

/// Of what the other reached in the same round.
fn shares(
    of: &[Result<Slice, String>],
    to: &[Result<Slice, String>],
    in_: fn(&Slice) -> f64,
) -> Value {
    let pairs = of.iter().zip(to);
    let shares: Result<Vec<f64>, String> = pairs
        .map(|pair| match pair {
            (Ok(one), Ok(other)) => Ok(in_(one) / in_(other)),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        })
        .collect();
    shares.map(|shares| median(&shares)).into()
}

async fn slice(
    contender: &Stored,
    case: &Case,
    server: &Server,
    during: Duration,
) -> Result<Slice, String> {
    let meeting = Meeting {
        url: server.url(),
        connections: case.connections,
        callers: case.callers,
        keys: case.keys,
    };
    let mut callers = (contender.callers)(meeting).await;
    for caller in &mut callers {
        // The server is given the script, and what is made once is made.
        caller().await;
    }
    server.cli::<()>(&["CONFIG", "RESETSTAT"]).await;
    let before = server_time(server).await;
    let (start, client) = (Instant::now(), ThreadTime::now());
    let until = start + during;
    let tasks = callers
        .into_iter()
        .map(|caller| tokio::spawn(keep_asking(caller, until)));
    let tasks: Vec<_> = tasks.collect();
    let mut asked = Asked::default();
    for task in tasks {
        let of = task.await.map_err(|error| error.to_string())?;
        asked.micros.extend(of.micros);
        asked.refused += of.refused;
    }
    let (took, client) = (start.elapsed(), client.elapsed());
    let server_took = server_time(server).await - before;
    if asked.refused > 0 {
        return Err(format!("{} did not pass", asked.refused));
    }
    let count = asked.micros.len() as f64;
    let script = script_time(server, contender.command).await;
    Ok(Slice {
        thousands_a_second: count / took.as_secs_f64() / 1e3,
        median: median(&asked.micros),
        p99: quantile(&asked.micros, 0.99),
        script: script.micros / script.calls,
        script_each: script.micros / count,
        server: server_took * 1e6 / count,
        client: client.as_secs_f64() * 1e6 / count,
    })
}

#[derive(Default)]
struct Asked {
    micros: Vec<f64>,
    refused: u64,
}

async fn keep_asking(mut caller: Caller, until: Instant) -> Asked {
    let mut asked = Asked::default();
    let mut began = Instant::now();
    while began < until {
        let passed = caller().await;
        let now = Instant::now();
        asked.micros.push((now - began).as_secs_f64() * 1e6);
        asked.refused += u64::from(!passed);
        began = now;
    }
    asked
}

/// Seconds of processor time that it has used.
async fn server_time(server: &Server) -> f64 {
    let info: String = server.cli(&["INFO", "cpu"]).await;
    let info = fields(&info);
    let seconds = |name| -> f64 {
        info.get(name)
            .and_then(|used| used.parse().ok())
            .unwrap_or(0.0)
    };
    seconds("used_cpu_user") + seconds("used_cpu_sys")
}

/// How long the server has carried a command out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScriptTime {
    pub(super) micros: f64,
    pub(super) calls: f64,
}

/// Since the server's counts were reset. A script may be sent in several ways.
pub(super) async fn script_time(server: &Server, command: &str) -> ScriptTime {
    let info: String = server.cli(&["INFO", "commandstats"]).await;
    let commands = match command {
        "evalsha" => &["eval", "evalsha", "fcall"][..],
        command => &[command],
    };
    let of = |field| {
        commands
            .iter()
            .filter_map(|name| stat(&info, name, field))
            .sum()
    };
    ScriptTime {
        micros: of("usec="),
        calls: of("calls="),
    }
}

/// `cmdstat_evalsha:calls=10,usec=250,usec_per_call=25.00,rejected_calls=0,failed_calls=0`
fn stat(info: &str, command: &str, field: &str) -> Option<f64> {
    let info = fields(info);
    let of = info.get(format!("cmdstat_{command}").as_str())?;
    of.split(',')
        .find_map(|part| part.strip_prefix(field))?
        .parse()
        .ok()
}

fn fields(info: &str) -> BTreeMap<&str, &str> {
    info.lines()
        .filter_map(|line| line.trim().split_once(':'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_of_a_command_is_understood() {
        let said = "# Commandstats\r\ncmdstat_get:calls=1,usec=2,usec_per_call=2.00\r\n\
                    cmdstat_evalsha:calls=10,usec=255,usec_per_call=25.50,rejected_calls=0\r\n";
        let read = |command, field| stat(said, command, field).map(f64::to_bits);
        assert_eq!(read("evalsha", "usec="), Some(255.0_f64.to_bits()));
        assert_eq!(read("evalsha", "calls="), Some(10.0_f64.to_bits()));
        assert_eq!(read("eval", "usec="), None);
    }
}
