//! Instructions an element, counted by valgrind where there is one: they do not depend on what else the machine does.

use std::env;
use std::io;
use std::process::Command;

use crate::contenders::{HOT, Hot, Part, SERVED};
use crate::figures::Notes;
use crate::measure::Extent;

use super::hot::runtime;

/// What is before and after the elements is the same in both runs, and falls out of the difference.
const FEW: u64 = 2_000;
const MANY: u64 = 12_000;

/// What is done once in a process, a clock that is calibrated for example, is done with these.
const WARM_UP: u64 = 64;

/// Only what is called by this function is counted.
const COUNTED: &str = "--toggle-collect=*elements_to_count*";

pub(super) fn add_to(notes: &mut Notes, all: &[Hot], cost: &str, extent: Extent) {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        notes.begin("");
        notes.add(
            cost,
            "valgrind",
            "instructions",
            Err::<f64, _>(format!("no valgrind: {error}")),
        );
        return;
    }
    for hot in &all[..extent.pick(all.len(), 1)] {
        notes.begin(hot.part.name());
        let counted = each(hot).map_err(|error| error.to_string());
        notes.add(cost, hot.name, "instructions", counted);
    }
}

/// Rows of the library, what is bare beside them, and how many instructions they may take above that: a tenth more than when it was set, since processors copy memory in different ways.
const CEILINGS: [(Part, &str, Option<&str>, f64); 11] = [
    (Part::Stream, "paceline pace, Owned TokenBucket", None, 70.0),
    (
        Part::Waiting,
        "paceline Shared::acquire, TokenBucket",
        None,
        140.0,
    ),
    (Part::Waiting, "paceline Permits::acquire", None, 250.0),
    (Part::Waiting, GRANT, None, 4_740.0),
    (
        Part::Waiting,
        "paceline FairQueue, a grant in a queue, one key",
        Some(GRANT),
        860.0,
    ),
    (
        Part::Waiting,
        "paceline FairQueue, a grant in a queue, 1,000 keys",
        Some(GRANT),
        4_100.0,
    ),
    (
        Part::Asking,
        "paceline Shared::try_acquire, TokenBucket",
        None,
        31.0,
    ),
    (
        Part::Asking,
        "paceline Shared::try_acquire, TokenBucket, burst 100",
        None,
        395.0,
    ),
    (
        Part::Asking,
        "paceline Keyed::try_acquire, one key",
        None,
        520.0,
    ),
    (Part::Direct, ENFORCE, Some("bare service"), 470.0),
    (Part::ByKey, ENFORCE, Some("bare service"), 1_330.0),
];

const ENFORCE: &str = "paceline EnforceLayer";
/// One of a thousand requests that wait, with its future.
const GRANT: &str = "paceline Shared, a grant in a queue";

/// Fails if a row takes more than its ceiling.
pub(crate) fn ceilings() -> io::Result<()> {
    for (part, name, bare, ceiling) in CEILINGS {
        let part = part.name();
        let bare = bare.map_or(Ok(0.0), |bare| each(named(part, bare)?))?;
        let counted = each(named(part, name)?)? - bare;
        println!("{counted:.0} instructions, at most {ceiling:.0}: {name}, {part}");
        if counted > ceiling {
            let error = format!("{counted:.0} instructions are too many: {name}, {part}");
            return Err(io::Error::other(error));
        }
    }
    Ok(())
}

/// How many an element takes.
fn each(hot: &Hot) -> io::Result<f64> {
    let (few, many) = (counted(hot, FEW)?, counted(hot, MANY)?);
    if few == 0.0 {
        return Err(io::Error::other("nothing was counted: no symbols?"));
    }
    Ok((many - few) / (MANY - FEW) as f64)
}

fn counted(hot: &Hot, count: u64) -> io::Result<f64> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            COUNTED,
        ])
        .arg(env::current_exe()?)
        .args(["alone-hot", hot.part.name(), hot.name, &count.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = said.lines().last().unwrap_or_default();
        return Err(io::Error::other(format!("fails: {last}")));
    }
    collected(&said).ok_or_else(|| io::Error::other("valgrind said nothing of instructions"))
}

/// `==1== Collected : 123456`
pub(super) fn collected(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// What such a process does.
pub(crate) fn alone(part: &str, name: &str, count: u64) -> io::Result<()> {
    let hot = named(part, name)?;
    runtime().block_on(async { (hot.run)(WARM_UP).await });
    elements_to_count(hot, count);
    Ok(())
}

fn named(part: &str, name: &str) -> io::Result<&'static Hot> {
    let mut all = HOT.iter().chain(SERVED.iter());
    let hot = all.find(|hot| hot.part.name() == part && hot.name == name);
    hot.ok_or_else(|| io::Error::other(format!("no such contender: `{name}`")))
}

#[inline(never)]
fn elements_to_count(hot: &Hot, count: u64) {
    runtime().block_on(async { (hot.run)(count).await });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_valgrind_says_is_understood() {
        let said = "==1== Events    : Ir\n==1== Collected : 123456\n==1==\n";
        assert_eq!(
            collected(said).map(f64::to_bits),
            Some(123_456_f64.to_bits())
        );
        assert_eq!(collected("nothing"), None);
    }
}
