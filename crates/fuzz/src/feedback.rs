use std::time::Duration;

use paceline::feedback::{Caps, Feedback};
use paceline::time::Rate;

/// Any lines of `name: value` can be parsed, and all values stay within the caps.
///
/// # Panics
///
/// If a value does not, or if the parser panics.
pub fn feedback(data: &[u8]) {
    let headers: Vec<_> = data.split(|byte| *byte == b'\n').map(header).collect();
    for now in [
        Duration::ZERO,
        Duration::from_secs(1_700_000_000),
        Duration::MAX,
    ] {
        let widest = Bounds::widest();
        let uncut = Feedback::parse_capped(headers.clone(), now, widest.caps());
        widest.hold(&uncut);
        for bounds in Bounds::some() {
            let cut = Feedback::parse_capped(headers.clone(), now, bounds.caps());
            bounds.hold(&cut);
            bounds.cut_nothing_else(&cut, &uncut);
        }
        let louder = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_uppercase(), value));
        assert_eq!(Feedback::parse_capped(louder, now, widest.caps()), uncut);
        let back = Feedback::parse_capped(headers.iter().rev().copied(), now, widest.caps());
        assert_eq!(back.pause(), uncut.pause(), "read from the last one on");
    }
}

/// A line without a colon is a name without a value.
fn header(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|byte| *byte == b':') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[]),
    }
}

struct Bounds {
    longest: Duration,
    slowest: Rate,
    fastest: Rate,
}

impl Bounds {
    fn widest() -> Self {
        Self {
            longest: Duration::MAX,
            slowest: Rate::new(1, Duration::MAX),
            fastest: Rate::new(u32::MAX, Duration::from_nanos(1)),
        }
    }

    fn some() -> [Self; 3] {
        [
            Self {
                longest: Duration::from_secs(60),
                slowest: Rate::per_hour(2),
                fastest: Rate::per_second(3),
            },
            Self {
                longest: Duration::ZERO,
                slowest: Rate::per_second(7),
                fastest: Rate::per_second(7),
            },
            // These caps cross. The fastest rate wins.
            Self {
                longest: Duration::from_nanos(1),
                slowest: Rate::per_second(5),
                fastest: Rate::per_minute(2),
            },
        ]
    }

    fn caps(&self) -> Caps {
        Caps::new()
            .with_longest_pause(self.longest)
            .with_slowest(self.slowest)
            .with_fastest(self.fastest)
    }

    fn hold(&self, said: &Feedback) {
        for wait in [said.pause(), said.retry_after(), said.reset_in()] {
            assert!(wait.is_none_or(|wait| wait <= self.longest), "{said:?}");
        }
        let rates = self.slowest.min(self.fastest)..=self.fastest;
        assert!(
            said.limits().iter().all(|rate| rates.contains(rate)),
            "{said:?}"
        );
        assert!(said.limits().is_sorted(), "{said:?}");
        assert!(
            said.limits().len() <= 16 && said.ignored().len() <= 16,
            "{said:?}"
        );
        assert!(said.pause() >= said.retry_after(), "{said:?}");
        if said.remaining() == Some(0) {
            assert!(said.pause() >= said.reset_in(), "{said:?}");
        }
        for ignored in said.ignored() {
            assert!(ignored.to_string().contains(" was ignored: it must be "));
        }
    }

    /// A value that was cut is the cap. The others are the same as without caps.
    fn cut_nothing_else(&self, cut: &Feedback, uncut: &Feedback) {
        let waits = |said: &Feedback| [said.pause(), said.retry_after(), said.reset_in()];
        for (cut, uncut) in waits(cut).into_iter().zip(waits(uncut)) {
            assert_eq!(cut, uncut.map(|wait| wait.min(self.longest)));
        }
        let others = (uncut.remaining(), uncut.quota(), uncut.ignored());
        assert_eq!((cut.remaining(), cut.quota(), cut.ignored()), others);
        if !cut.was_capped() {
            assert_eq!(cut, uncut);
        }
    }
}
