//! From a drawn row to things at instants.

use std::time::Duration;

use super::TICK;

/// One thing of a row: when, what, and where in the drawing.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) at: Duration,
    pub(super) thing: Thing,
    pub(super) position: usize,
}

/// What can happen in a row.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Thing {
    Item(String),
    End,
}

/// Reads a row of items.
#[track_caller]
pub(super) fn parse(row: &str) -> Vec<Drawn> {
    let parser = Parser {
        row,
        chars: row.chars().collect(),
        next: 0,
        at: Duration::ZERO,
        things: Vec::new(),
    };
    parser.things()
}

/// Reads a row of demand: the ticks at which the consumer asks for an item, and last the one after the row.
#[track_caller]
pub(super) fn parse_demand(row: &str) -> Vec<Duration> {
    let mut at = Duration::ZERO;
    let mut asks = Vec::new();
    for (position, token) in row.chars().enumerate() {
        match token {
            '?' => asks.push(at),
            '-' => {}
            space if space.is_whitespace() => continue,
            _ => reject(row, position, "a demand row has only `?` and `-`"),
        }
        at += TICK;
    }
    asks.push(at);
    asks
}

/// Says what is wrong with a row, and where.
#[track_caller]
pub(super) fn reject(row: &str, position: usize, wish: &str) -> ! {
    // A row may have been drawn over several lines; one line keeps the mark under its place.
    let row = row.replace(char::is_whitespace, " ");
    panic!(
        "not a marble row, at position {position}: {wish}\n  {row}\n  {:position$}^",
        ""
    );
}

struct Parser<'r> {
    row: &'r str,
    chars: Vec<char>,
    next: usize,
    at: Duration,
    things: Vec<Drawn>,
}

impl Parser<'_> {
    #[track_caller]
    fn things(mut self) -> Vec<Drawn> {
        while let Some(token) = self.take() {
            if self.has_ended() {
                self.reject("nothing may follow the end, `|`");
            }
            match token {
                '-' => {}
                '(' => self.same_tick(),
                token => self.thing(token),
            }
            self.at += TICK;
        }
        self.things
    }

    /// What stands between parentheses, the opening one being read.
    #[track_caller]
    fn same_tick(&mut self) {
        let before = self.things.len();
        loop {
            match self.take() {
                Some(')') if self.things.len() == before => {
                    self.reject("an empty tick is drawn `-`")
                }
                Some(')') => return,
                Some('-' | '(') => self.reject(
                    "only items, groups and the end stand in parentheses: they are one tick",
                ),
                Some(_) if self.has_ended() => {
                    self.reject("nothing may follow the end, `|`, but `)`")
                }
                Some(token) => self.thing(token),
                None => self.reject("a `)` should close the tick"),
            }
        }
    }

    /// An item, a group or the end, its first character being read.
    #[track_caller]
    fn thing(&mut self, token: char) {
        let position = self.next - 1;
        let thing = match token {
            '|' => Thing::End,
            '[' => Thing::Item(self.group()),
            item if item.is_alphanumeric() => Thing::Item(item.to_string()),
            _ => self.reject(
                "a tick is a letter or digit, `X`, `-`, `|`, `(ab)` for several things or `[ab]` for a group",
            ),
        };
        self.things.push(Drawn {
            at: self.at,
            thing,
            position,
        });
    }

    #[track_caller]
    fn group(&mut self) -> String {
        let mut mark = String::from('[');
        loop {
            match self.take() {
                Some(']') => return mark + "]",
                Some(item) if item.is_alphanumeric() => mark.push(item),
                Some(_) => self.reject("only items stand in a group"),
                None => self.reject("a `]` should close the group"),
            }
        }
    }

    fn take(&mut self) -> Option<char> {
        loop {
            let token = self.chars.get(self.next).copied();
            self.next += 1;
            if !token.is_some_and(char::is_whitespace) {
                return token;
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.things
            .last()
            .is_some_and(|last| last.thing == Thing::End)
    }

    /// At the character read last.
    #[track_caller]
    fn reject(&self, wish: &str) -> ! {
        reject(self.row, self.next - 1, wish)
    }
}
