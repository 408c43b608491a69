//! Progress on standard error: bars on a terminal, lines in a log.

use core::{convert::Infallible, time::Duration};
use std::io::{self, IsTerminal};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time;

use crate::say;

const EVERY: Duration = Duration::from_secs(5);
const STYLE: &str = "{prefix:9} {wide_bar} {pos:>5}/{len} eta {eta:>4}";

/// One bar for each provider.
#[derive(Debug)]
pub(crate) struct Progress {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
    on_terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let on_terminal = io::stderr().is_terminal();
        let target = if on_terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        Self {
            all: MultiProgress::with_draw_target(target),
            bars: Vec::new(),
            on_terminal,
        }
    }

    pub(crate) fn bar(&mut self, name: &'static str, messages: usize) -> ProgressBar {
        let style = ProgressStyle::with_template(STYLE).expect("the template is well-formed");
        let bar = self.all.add(ProgressBar::new(messages as u64));
        bar.set_style(style);
        bar.set_prefix(name);
        self.bars.push(bar.clone());
        bar
    }

    /// Writes a line every few seconds where there is no terminal for the bars. It has no end.
    pub(crate) async fn report(&self) -> Infallible {
        let mut ticks = time::interval(EVERY);
        loop {
            ticks.tick().await;
            if !self.on_terminal {
                say(format_args!("{}", self.line()));
            }
        }
    }

    /// Stops the bars where they are.
    pub(crate) fn end(&self) {
        for bar in &self.bars {
            bar.abandon();
        }
    }

    fn line(&self) -> String {
        let each = |bar: &ProgressBar| {
            format!(
                "{} {}/{}",
                bar.prefix(),
                bar.position(),
                bar.length().unwrap_or_default()
            )
        };
        self.bars.iter().map(each).collect::<Vec<_>>().join(", ")
    }
}
