//! The script that keeps overrides: its text, its arguments and its reply.

use core::time::Duration;
use std::sync::LazyLock;

use crate::remote::{Change, Changes, Override};
use paceline::limiter::Mode;

use super::policy::LONGEST;
use super::script_params::{Params, ScriptParams};
use super::transport::Script;

/// Changes and reads overrides.
pub(super) static OVERRIDES: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/overrides.lua")));

/// The keys of the script.
pub(super) fn keys(prefix: &str) -> [String; 3] {
    ["by_name", "versions", "ends"].map(|key| format!("{prefix}:{{overrides}}:{key}"))
}

/// The name of the override for the key of a state: that of `prefix:name:{key}:policy:2` is `prefix:name:{key}`, that of
/// `prefix:{name}:each:{key}:policy:2` is `prefix:{name}:each:{key}`.
pub(super) fn name(key: &str) -> String {
    let end = key.rfind('}').map_or(key.len(), |end| end + 1);
    key[..end].to_owned()
}

/// The arguments of the script.
pub(super) fn encode(
    (since, goes_on): (u64, bool),
    change: Option<(&str, &Change<Params>)>,
) -> Vec<Vec<u8>> {
    let sign = if goes_on { "+" } else { "" };
    let mut args = vec![format!("{sign}{since}").into_bytes()];
    if let Some((name, change)) = change {
        let (task, value) = match change {
            Change::Pause(time) => {
                let time = u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(LONGEST);
                ("pause", time.min(LONGEST).to_string().into_bytes())
            }
            Change::Resume => ("resume", Vec::new()),
            Change::Mode(mode) => ("mode", number_of(*mode).to_string().into_bytes()),
            Change::Params(None) => ("params", Vec::new()),
            Change::Params(Some(both)) => {
                let all = both.iter().flat_map(|params| params.iter());
                let numbers = all.flat_map(ScriptParams::to_numbers);
                ("params", numbers.flat_map(u64::to_le_bytes).collect())
            }
        };
        args.extend([name.into(), task.into(), value]);
    }
    args
}

/// Reads the reply of the script to a read since that version. `None` if it has another shape.
pub(super) fn decode(since: u64, reply: &[Vec<u8>]) -> Option<Changes<Params>> {
    let (header, changed) = reply.split_first()?;
    let (time, version, flags, _) = head(header)?;
    let changed = changed.chunks(2).map(|pair| match pair {
        [name, value] => {
            let (paused_until, _, mode, params) = head(value)?;
            let left = paused_until.checked_sub(time).map(Duration::from_micros);
            let name = core::str::from_utf8(name).ok()?;
            let new = Override {
                mode: mode_of(mode)?,
                params: match params {
                    [] => None,
                    params => Some(decode_params(params)?),
                },
                ..Override::NONE
            };
            Some((name.into(), left, new))
        }
        _ => None,
    });
    Some(Changes {
        since,
        time,
        version,
        is_all: flags & 1 > 0,
        has_more: flags & 2 > 0,
        changed: changed.collect::<Option<_>>()?,
    })
}

/// Two times, a number, and the rest.
fn head(bytes: &[u8]) -> Option<(u64, u64, u8, &[u8])> {
    let (one, bytes) = bytes.split_first_chunk()?;
    let (other, bytes) = bytes.split_first_chunk()?;
    let (number, rest) = bytes.split_first()?;
    let times = [*one, *other].map(u64::from_le_bytes);
    Some((times[0], times[1], *number, rest))
}

/// The replaced parameters and the new ones, which are as many.
fn decode_params(bytes: &[u8]) -> Option<[Params; 2]> {
    let numbers = bytes.chunks(8).map(|bytes| bytes.try_into().ok());
    let numbers = numbers.map(|bytes| bytes.map(u64::from_le_bytes));
    let numbers: Vec<_> = numbers.collect::<Option<_>>()?;
    let all = numbers.chunks(8).map(ScriptParams::from_numbers);
    let all: Vec<_> = all.collect::<Option<_>>()?;
    let (replaced, new) = all.split_at(all.len() / 2);
    (replaced.len() == new.len()).then(|| [replaced.into(), new.into()])
}

const MODES: [Mode; 3] = [Mode::Active, Mode::Shadow, Mode::Off];

fn number_of(mode: Mode) -> usize {
    MODES.iter().position(|one| *one == mode).unwrap_or(0)
}

fn mode_of(number: u8) -> Option<Mode> {
    MODES.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use crate::redis::policy::sealed::Scripted;
    use paceline::policy::SlidingLog;

    use super::*;

    #[test]
    fn a_key_of_a_keyed_limit_has_another_name_than_a_limit() {
        assert_eq!(name("app:users:{ann}:0:interval:2"), "app:users:{ann}");
        assert_eq!(name("app:{ann}:interval:2"), "app:{ann}");
    }

    #[test]
    fn a_reply_of_the_right_shape_is_read_and_any_other_is_refused() {
        let head = |one: u64, other: u64, number: u8| {
            let times = [one, other].map(u64::to_le_bytes);
            [times.as_flattened(), &[number]].concat()
        };
        let reply = [head(9, 7, 1), b"app:{a}".to_vec(), head(12, 0, 2)];
        let read = decode(5, &reply).unwrap();
        assert_eq!((read.since, read.time, read.version), (5, 9, 7));
        let (name, pause, new) = &read.changed[0];
        assert_eq!((&**name, read.is_all), ("app:{a}", true));
        assert_eq!(*pause, Some(Duration::from_micros(3)));
        assert_eq!((new.mode, &new.params), (Mode::Off, &None));

        assert!(decode(5, &reply[..2]).is_none());
        let with = |value: Vec<u8>| decode(5, &[reply[0].clone(), reply[1].clone(), value]);
        assert!(with(head(12, 0, 3)).is_none(), "an unknown mode");
        assert!(with([head(12, 0, 0), vec![1; 60]].concat()).is_none());
        for length in 0..17 {
            assert!(
                decode(5, &[reply[0][..length].to_vec()]).is_none(),
                "{length}"
            );
        }
    }

    #[test]
    fn parameters_are_read_as_they_were_written() {
        let of = |limit| {
            let log = SlidingLog::new(limit, Duration::from_secs(1));
            Params::from(log.script_params().unwrap())
        };
        let change = Change::Params(Some([of(3), of(70_000)]));
        let args = encode((8, false), Some(("a", &change)));
        assert_eq!(
            args[..3],
            [b"8".to_vec(), b"a".to_vec(), b"params".to_vec()]
        );
        assert_eq!(decode_params(&args[3]), Some([of(3), of(70_000)]));
        assert_eq!(encode((8, true), None), [b"+8"]);
    }
}
