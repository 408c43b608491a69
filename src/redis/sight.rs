use core::time::Duration;

use crate::time::Tick;

use super::link::Hello;

/// What is known of the server's time and of times when it could not be seen: given the time, and pure.
///
/// The server's times are microseconds since 1970.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Sight {
    /// When it was seen last, here and there.
    seen: Option<(Tick, u64)>,
    run: Option<String>,
    dark: Option<Dark>,
    /// Whether it has greeted since, and may be of use again.
    has_greeted: bool,
    episodes: u64,
    blind: Blind,
    anew: Anew,
}

/// It cannot be seen now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Dark {
    /// Which time of all that it could not be seen.
    pub(super) episode: u64,
    pub(super) since: Tick,
    /// The same by the server's clock, if that has been seen.
    from: Option<u64>,
}

/// When it could not be seen last, by its own clock; both 0 if never. Others may have gone on without it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Blind {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// That it has been started anew, maybe without what it knew; both 0 if not.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Anew {
    /// What was written before may be old.
    pub(super) started: u64,
    /// Since when it can be used again: until then others may have gone on without it.
    pub(super) back: u64,
}

/// What those who ask have to know of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct View {
    pub(super) dark: Option<Dark>,
    pub(super) blind: Blind,
    pub(super) anew: Anew,
}

impl View {
    /// Where nothing passes without it, or everything: nothing depends on how long that was.
    pub(super) fn without_insurance(self) -> Self {
        Self {
            blind: Blind::default(),
            ..self
        }
    }
}

impl Sight {
    pub(super) const fn view(&self) -> View {
        View {
            dark: self.dark,
            blind: self.blind,
            anew: self.anew,
        }
    }

    /// It answered: it can be seen again.
    pub(super) fn seen(&mut self, now: Tick, time: u64) {
        if !self.has_greeted {
            self.was_blind_until(now, time);
        }
        self.dark = None;
        self.seen = Some((now, time));
    }

    /// It did not answer.
    pub(super) fn lost(&mut self, now: Tick) {
        self.has_greeted = false;
        if self.dark.is_none() {
            self.episodes += 1;
            self.dark = Some(Dark {
                episode: self.episodes,
                since: now,
                from: self.server_time_at(now),
            });
        }
    }

    /// There is a new connection. Whether it is of use is not known before something was answered: until then it is the same
    /// dark, or an insurance would begin anew with each connection that is not.
    pub(super) fn regained(&mut self, now: Tick, hello: Hello) {
        if self.was_started_anew(now, &hello) {
            let uptime = hello.run.as_ref().map_or(0, |run| run.uptime);
            self.anew = Anew {
                started: hello.time.saturating_sub(uptime.saturating_mul(SECOND)),
                back: hello.time,
            };
        }
        self.run = hello.run.map(|run| run.id);
        self.was_blind_until(now, hello.time);
        self.has_greeted = true;
        self.seen = Some((now, hello.time));
    }

    fn was_started_anew(&self, now: Tick, hello: &Hello) -> bool {
        if self.seen.is_some() {
            return hello.run.is_none()
                || hello.run.as_ref().map(|run| &run.id) != self.run.as_ref();
        }
        // The first connection. If it took long to come about, the server may have been started meanwhile, if that is told.
        let dark_for = self.dark.map(|dark| micros(now.since(dark.since)));
        match (dark_for, &hello.run) {
            (Some(dark_for), Some(run)) => run.uptime.saturating_mul(SECOND) <= dark_for + SECOND,
            _ => false,
        }
    }

    fn was_blind_until(&mut self, now: Tick, time: u64) {
        let Some(dark) = self.dark else { return };
        let by_length = || time.saturating_sub(micros(now.since(dark.since)));
        self.blind = Blind {
            from: dark.from.unwrap_or_else(by_length),
            to: time,
        };
    }

    /// What time it was there, then; a little earlier rather than later.
    fn server_time_at(&self, then: Tick) -> Option<u64> {
        let (here, there) = self.seen?;
        Some(there.saturating_add(micros(then.since(here))))
    }
}

/// In microseconds; an uptime is known to the second.
const SECOND: u64 = 1_000_000;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::link::Run;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn hello(id: &str, uptime: u64, time: u64) -> Hello {
        let run = Some(Run {
            id: id.to_owned(),
            uptime,
        });
        Hello { run, time }
    }

    fn seen_once() -> Sight {
        let mut sight = Sight::default();
        sight.regained(at(0), hello("a", 50, 100 * SECOND));
        sight
    }

    #[test]
    fn the_first_connection_is_trusted() {
        let sight = seen_once();
        assert_eq!(
            (sight.view().dark, sight.view().blind, sight.view().anew),
            (None, Blind::default(), Anew::default())
        );
    }

    #[test]
    fn a_first_connection_after_failures_is_trusted_unless_the_server_was_started_meanwhile() {
        for (uptime, is_trusted) in [(50, true), (4, true), (3, false), (0, false)] {
            let mut sight = Sight::default();
            sight.lost(at(0));
            sight.regained(at(2_000), hello("a", uptime, 100 * SECOND));
            let anew = Anew {
                started: (100 - uptime) * SECOND,
                back: 100 * SECOND,
            };
            let expected = if is_trusted { Anew::default() } else { anew };
            assert_eq!(sight.view().anew, expected, "{uptime}");
            let blind = Blind {
                from: 98 * SECOND,
                to: 100 * SECOND,
            };
            assert_eq!(sight.view().blind, blind);
        }
    }

    #[test]
    fn a_connection_that_is_of_no_use_ends_no_dark() {
        let mut sight = seen_once();
        sight.lost(at(1_000));
        sight.regained(at(2_000), hello("a", 52, 102 * SECOND));
        assert_eq!(sight.view().dark.unwrap().episode, 1);
        sight.lost(at(2_500));
        sight.regained(at(4_000), hello("a", 54, 104 * SECOND));
        assert_eq!(sight.view().dark.unwrap().since, at(1_000));
        let blind = Blind {
            from: 101 * SECOND,
            to: 104 * SECOND,
        };
        assert_eq!(sight.view().blind, blind);
        sight.seen(at(60_000), 160 * SECOND);
        assert_eq!((sight.view().dark, sight.view().blind), (None, blind));
    }

    #[test]
    fn an_outage_is_told_in_the_servers_time() {
        let mut sight = seen_once();
        sight.lost(at(2_000));
        sight.lost(at(3_000));
        assert_eq!(
            sight.view().dark,
            Some(Dark {
                episode: 1,
                since: at(2_000),
                from: Some(102 * SECOND),
            })
        );
        sight.seen(at(5_000), 105 * SECOND);
        assert_eq!(
            sight.view().blind,
            Blind {
                from: 102 * SECOND,
                to: 105 * SECOND
            }
        );
        assert_eq!(
            (sight.view().dark, sight.view().anew),
            (None, Anew::default())
        );
        sight.lost(at(6_000));
        assert_eq!(sight.view().dark.unwrap().episode, 2);
    }

    #[test]
    fn another_run_has_been_started_anew_and_the_same_has_not() {
        let mut sight = seen_once();
        sight.regained(at(1_000), hello("a", 51, 101 * SECOND));
        assert_eq!(sight.view().anew, Anew::default());
        sight.regained(at(2_000), hello("b", 1, 102 * SECOND));
        assert_eq!(
            sight.view().anew,
            Anew {
                started: 101 * SECOND,
                back: 102 * SECOND
            }
        );
    }

    #[test]
    fn who_does_not_tell_may_have_been_started_anew() {
        let mut sight = seen_once();
        sight.regained(
            at(1_000),
            Hello {
                run: None,
                time: 101 * SECOND,
            },
        );
        assert_eq!(
            sight.view().anew,
            Anew {
                started: 101 * SECOND,
                back: 101 * SECOND
            }
        );
    }
}
