//! Which run: a scenario, a seed and a fault, and how a person writes them down: `mixed/7/cut:137`.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use super::scenario::Scenario;

/// What goes wrong in a run. Sectors fail softly in every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The power is cut during the operation of the device after so many.
    Cut(u64),
    /// The operation of the device after so many fails.
    Fail(u64),
    /// Power cuts, failed operations and hurt copies, at random.
    Crashes,
    /// Lost, flipped, stale and misdirected sectors, at random, as many as can be mended.
    Hurts,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What callers do.
    pub scenario: Scenario,
    /// What decides all chance.
    pub seed: u64,
    /// What goes wrong.
    pub fault: Fault,
}

/// The text is no case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCase;

impl fmt::Display for NoCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a case is written scenario/seed/fault, such as mixed/7/cut:137, names/1/crashes or writes/3/hurts")
    }
}

impl std::error::Error for NoCase {}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenario = self.scenario.to_possible_value().expect("no scenario is hidden");
        write!(f, "{}/{}/", scenario.get_name(), self.seed)?;
        match self.fault {
            Fault::Cut(after) => write!(f, "cut:{after}"),
            Fault::Fail(after) => write!(f, "fail:{after}"),
            Fault::Crashes => f.write_str("crashes"),
            Fault::Hurts => f.write_str("hurts"),
        }
    }
}

impl FromStr for Case {
    type Err = NoCase;

    fn from_str(text: &str) -> Result<Case, NoCase> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().ok_or(NoCase);
        let scenario = Scenario::from_str(part()?, false).map_err(|_| NoCase)?;
        let seed = part()?.parse().map_err(|_| NoCase)?;
        let fault = match part()?.split_once(':') {
            Some(("cut", after)) => Fault::Cut(after.parse().map_err(|_| NoCase)?),
            Some(("fail", after)) => Fault::Fail(after.parse().map_err(|_| NoCase)?),
            _ if text.ends_with("/crashes") => Fault::Crashes,
            _ if text.ends_with("/hurts") => Fault::Hurts,
            _ => return Err(NoCase),
        };
        Ok(Case { scenario, seed, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_shown() {
        for fault in [Fault::Cut(137), Fault::Fail(0), Fault::Crashes, Fault::Hurts] {
            let case = Case { scenario: Scenario::Appends, seed: 7, fault };
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        for text in ["", "mixed/7", "mixed/7/cut", "mixed/7/cut:x", "none/7/cut:1", "mixed/x/hurts", "mixed/7/none"] {
            assert_eq!(text.parse::<Case>(), Err(NoCase), "{text}");
        }
    }
}
