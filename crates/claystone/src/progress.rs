//! Progress for people: a bar on a terminal, nothing otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far a long command is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `total` steps.
    pub fn new(what: &str, total: u64) -> Progress {
        Progress::with(what, total, "{prefix:24} {bar:32} {pos}/{len} {msg}")
    }

    /// A bar of `total` steps, with the time that is left.
    pub fn timed(what: &str, total: u64) -> Progress {
        Progress::with(what, total, "{prefix:24} {bar:32} {pos}/{len} {eta} left {msg}")
    }

    /// A bar of `total` parts of what is to be done, of no use to people by themselves: as a share, with the time that is left.
    pub fn share(what: &str, total: u64) -> Progress {
        Progress::with(what, total, "{prefix:24} {bar:32} {percent}% {eta} left {msg}")
    }

    /// A bar of `total` bytes, with the rate.
    pub fn bytes(what: &str, total: u64) -> Progress {
        Progress::with(
            what,
            total,
            "{prefix:24} {bar:32} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg}",
        )
    }

    fn with(what: &str, total: u64, template: &str) -> Progress {
        let visible = std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        bar.set_style(ProgressStyle::with_template(template).expect("the templates above are right"));
        bar.set_prefix(what.to_owned());
        if visible {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Progress(bar)
    }

    /// Goes on by `steps`.
    pub fn step(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Goes to a position of a total that may have changed.
    pub fn of(&self, position: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(position);
    }

    /// How far it is.
    #[cfg(test)]
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// Says what is under way.
    pub fn say(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
