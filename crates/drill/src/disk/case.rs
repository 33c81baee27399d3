//! Which run: a scenario, a seed and a fault, and how a person writes them down: `mixed/7/cut:137`, `names/2/fail:opening:5`, and
//! of another scale than the small one `long:shapes/3/hurts`.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use super::scale::Scale;
use super::scenario::Scenario;

/// What the disk is at when a single fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Calls of the scenario.
    Calls,
    /// The device is made a disk, where it was one before.
    Formatting,
    /// The disk is opened after a crash.
    Opening,
    /// It is closed, and opened again.
    Closing,
    /// It takes up a device that has become larger.
    Growing,
    /// It is scrubbed, with hurt sectors.
    Scrubbing,
}

/// What goes wrong in a run. Sectors fail softly in every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The power is cut during the operation of the device after so many of this work.
    Cut(Work, u64),
    /// The operation of the device after so many of this work fails.
    Fail(Work, u64),
    /// The power is cut during every operation of the device that changes something, each time in a branch of the run.
    Cuts,
    /// Every operation of the device in some steps fails, each time in a branch of the run.
    Fails,
    /// Power cuts, failed operations and hurt copies, at random.
    Crashes,
    /// A power cut or a failed operation every few operations of the device.
    Storm,
    /// Lost, flipped, stale and misdirected sectors, at random, as many as can be mended.
    Hurts,
    /// More sectors of one thing are lost than can be mended: of the thing after so many.
    Beyond(u64),
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// How large everything is.
    pub scale: Scale,
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
        if self.scale != Scale::Small {
            let scale = self.scale.to_possible_value().expect("no scale is hidden");
            write!(f, "{}:", scale.get_name())?;
        }
        write!(f, "{}/{}/", scenario.get_name(), self.seed)?;
        match self.fault {
            Fault::Cut(work, after) => write!(f, "cut:{}{after}", prefix(work)),
            Fault::Fail(work, after) => write!(f, "fail:{}{after}", prefix(work)),
            Fault::Cuts => f.write_str("cuts"),
            Fault::Fails => f.write_str("fails"),
            Fault::Crashes => f.write_str("crashes"),
            Fault::Storm => f.write_str("storm"),
            Fault::Hurts => f.write_str("hurts"),
            Fault::Beyond(after) => write!(f, "beyond:{after}"),
        }
    }
}

impl FromStr for Case {
    type Err = NoCase;

    fn from_str(text: &str) -> Result<Case, NoCase> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().ok_or(NoCase);
        let scenario = part()?;
        let (scale, scenario) = scenario.split_once(':').unwrap_or(("small", scenario));
        let scale = Scale::from_str(scale, false).map_err(|_| NoCase)?;
        let scenario = Scenario::from_str(scenario, false).map_err(|_| NoCase)?;
        let seed = part()?.parse().map_err(|_| NoCase)?;
        let fault = part()?;
        let (kind, place) = fault.split_once(':').unwrap_or((fault, ""));
        let (work, after) = match place.split_once(':') {
            Some((work, after)) => (Work::from_str(work, false).map_err(|_| NoCase)?, after),
            None => (Work::Calls, place),
        };
        let fault = match (kind, after.parse()) {
            ("cut", Ok(after)) => Fault::Cut(work, after),
            ("fail", Ok(after)) => Fault::Fail(work, after),
            ("beyond", Ok(after)) if work == Work::Calls => Fault::Beyond(after),
            _ if fault == "cuts" => Fault::Cuts,
            _ if fault == "fails" => Fault::Fails,
            _ if fault == "crashes" => Fault::Crashes,
            _ if fault == "storm" => Fault::Storm,
            _ if fault == "hurts" => Fault::Hurts,
            _ => return Err(NoCase),
        };
        Ok(Case { scale, scenario, seed, fault })
    }
}

/// What stands before the number: nothing for calls, which most cases are about.
fn prefix(work: Work) -> String {
    match work {
        Work::Calls => String::new(),
        work => format!("{}:", work.to_possible_value().expect("no work is hidden").get_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_shown() {
        let single = Work::value_variants().iter().flat_map(|&work| [Fault::Cut(work, 137), Fault::Fail(work, 0)]);
        let others = [Fault::Cuts, Fault::Fails, Fault::Crashes, Fault::Storm, Fault::Hurts, Fault::Beyond(7)];
        for fault in single.chain(others) {
            for &scale in Scale::value_variants() {
                let case = Case { scale, scenario: Scenario::Appends, seed: 7, fault };
                assert_eq!(case.to_string().parse(), Ok(case));
            }
        }
        let case = Case { scale: Scale::Small, scenario: Scenario::Mixed, seed: 7, fault: Fault::Cut(Work::Calls, 1) };
        assert_eq!(case.to_string(), "mixed/7/cut:1");
        for text in [
            "",
            "mixed/7",
            "mixed/7/cut",
            "mixed/7/cut:x",
            "none/7/cut:1",
            "tall:mixed/7/cut:1",
            "mixed/x/hurts",
            "mixed/7/none",
            "mixed/7/cut:lunch:1",
        ] {
            assert_eq!(text.parse::<Case>(), Err(NoCase), "{text}");
        }
    }
}
