//! What a caller of a tiered device was told, sector by sector, and what it does next.

use anyhow::{Result, ensure};
use claystone_env::Random;

/// Sectors of the device under drill.
pub const HOME: u64 = 40;

/// What a caller does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sectors are written, each with a tag of its own.
    Write(Vec<(u64, u64)>),
    /// All is made durable.
    Sync,
    /// A batch is brought home.
    Drain,
    /// The device does what it does from time to time.
    Tend,
    /// What marks have goes into an index, if it is enough.
    Index,
    /// All is brought home, and the hard disk says so.
    Rest,
    /// Nobody needs these sectors.
    Discard(std::ops::Range<u64>),
    /// The process dies, and another opens the device; the power stays.
    Reopen,
}

/// What a sector may hold: one of these tags, the last of which it holds while nothing fails; or anything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    any: bool,
    may: Vec<u64>,
}

/// What a sector was found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All of what was written with this tag.
    Tag(u64),
    /// Parts of several.
    Torn,
    /// It cannot be read.
    Lost,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Model {
    cells: Vec<Cell>,
    next_tag: u64,
}

impl Default for Model {
    /// A new device holds zeros.
    fn default() -> Model {
        Model { cells: vec![Cell { any: false, may: vec![0] }; HOME as usize], next_tag: 1 }
    }
}

impl Model {
    /// Chooses the next step.
    pub fn step(&mut self, random: &dyn Random) -> Step {
        match random.below(24) {
            0..10 => {
                // Most are short and in a row; some are scattered, some as long as several records.
                let first = random.below(HOME);
                let sectors = [1, 1, 2, 4, 20][random.below(5) as usize].min(HOME - first);
                let scattered = random.below(4) == 0;
                let places = (0..sectors).map(|at| if scattered { random.below(HOME) } else { first + at });
                let mut places: Vec<u64> = places.collect();
                places.sort_unstable();
                places.dedup();
                let tags = self.next_tag..;
                self.next_tag += places.len() as u64;
                Step::Write(places.into_iter().zip(tags).collect())
            }
            10..15 => Step::Sync,
            15..17 => Step::Drain,
            17 => Step::Tend,
            18 => {
                let first = random.below(HOME);
                Step::Discard(first..first + 1 + random.below((HOME - first).min(5)))
            }
            19..22 => Step::Index,
            22 => Step::Rest,
            _ => Step::Reopen,
        }
    }

    /// A step has begun: what a power cut during it may leave.
    pub fn begin(&mut self, step: &Step) {
        match step {
            Step::Write(tags) => {
                for (sector, tag) in tags {
                    self.cells[*sector as usize].may.push(*tag);
                }
            }
            Step::Discard(sectors) => {
                for sector in sectors.clone() {
                    self.cells[sector as usize] = Cell { any: true, may: Vec::new() };
                }
            }
            Step::Sync | Step::Drain | Step::Tend | Step::Index | Step::Rest | Step::Reopen => {}
        }
    }

    /// A step that was begun has ended well. For [`Step::Reopen`]: [`Model::reopened`].
    pub fn end(&mut self, step: &Step) {
        if matches!(step, Step::Sync | Step::Rest) {
            for cell in &mut self.cells {
                cell.any &= cell.may.is_empty();
                let newest = cell.may.pop();
                cell.may = newest.into_iter().collect();
            }
        }
    }

    /// Compares, while nothing has failed. `may_be_lost` says of sectors whether they may be.
    pub fn check(&self, found: &[Found], may_be_lost: impl Fn(u64) -> bool) -> Result<()> {
        for ((sector, cell), found) in (0..).zip(&self.cells).zip(found) {
            let Some(newest) = cell.may.last() else { continue };
            let is_right = *found == Found::Tag(*newest) || (*found == Found::Lost && may_be_lost(sector));
            ensure!(is_right, "sector {sector} is {found:?} and not the newest of {cell:?}");
        }
        Ok(())
    }

    /// Compares after another process has opened it, and takes what was found for what is there: nothing is torn or lost, and what was not
    /// promised is there or not.
    pub fn reopened(&mut self, found: &[Found]) -> Result<()> {
        for ((sector, cell), found) in (0..).zip(&mut self.cells).zip(found) {
            match found {
                Found::Tag(tag) if cell.may.contains(tag) => *cell = Cell { any: false, may: vec![*tag] },
                _ if cell.any => *cell = Cell { any: true, may: Vec::new() },
                found => anyhow::bail!("sector {sector} is {found:?} and not one of {cell:?}"),
            }
        }
        Ok(())
    }

    /// Compares after a power cut, and takes what was found for what is there. At most `hurt` sectors that were promised may be lost.
    pub fn recover(&mut self, found: &[Found], hurt: u64) -> Result<()> {
        let mut lost = 0;
        for ((sector, cell), found) in (0..).zip(&mut self.cells).zip(found) {
            let promised = !cell.any && cell.may.len() == 1;
            match found {
                Found::Tag(tag) if cell.may.contains(tag) && !cell.any => cell.may = vec![*tag],
                // What is whole is what was promised, or newer.
                Found::Tag(_) if !cell.any => anyhow::bail!("sector {sector} is {found:?} and not one of {cell:?}"),
                _ if !promised => *cell = Cell { any: true, may: Vec::new() },
                Found::Lost => {
                    lost += 1;
                    *cell = Cell { any: true, may: Vec::new() };
                }
                found => anyhow::bail!("sector {sector} is {found:?} and not one of {cell:?}"),
            }
        }
        ensure!(lost <= hurt, "{lost} sectors are lost that were promised");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_promised_is_never_found_older_also_where_something_newer_was_written() {
        let mut model = Model::default();
        for (step, tag) in [(Step::Sync, 1), (Step::Drain, 2)] {
            let write = Step::Write(vec![(0, tag)]);
            for step in [write, step] {
                model.begin(&step);
                model.end(&step);
            }
        }
        let found = |first: Found| {
            let mut found = vec![Found::Tag(0); HOME as usize];
            found[0] = first;
            model.clone().recover(&found, 0).is_ok()
        };
        assert!([Found::Tag(1), Found::Tag(2), Found::Torn, Found::Lost].into_iter().all(found));
        assert!(!found(Found::Tag(0)));
        let reopened = |first: Found| {
            let mut found = vec![Found::Tag(0); HOME as usize];
            found[0] = first;
            model.clone().reopened(&found).is_ok()
        };
        assert!([Found::Tag(1), Found::Tag(2)].into_iter().all(reopened));
        assert!(![Found::Tag(0), Found::Torn, Found::Lost].into_iter().any(reopened));
    }
}
