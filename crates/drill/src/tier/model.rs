//! What callers of a tiered device were told, sector by sector, and what they do next. Of two writes that were under way at once either may be
//! the later one.

use std::collections::BTreeSet;

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

/// What a sector may hold: what one of these writes wrote, while nothing fails one that no other came behind; or anything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    any: bool,
    may: Vec<Written>,
    /// What it holds was promised: nothing else was written since.
    promised: bool,
}

/// A write of a sector, and between which events of the model it was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    tag: u64,
    begun: u64,
    ended: u64,
}

impl Cell {
    fn promised(tag: u64) -> Cell {
        Cell { any: false, may: vec![Written { tag, begun: 0, ended: 0 }], promised: true }
    }

    fn anything() -> Cell {
        Cell { any: true, may: Vec::new(), promised: false }
    }

    fn may_hold(&self, tag: u64) -> bool {
        self.may.iter().any(|written| written.tag == tag)
    }

    /// Those behind which none came that had ended before this event.
    fn newest(&self, before: u64) -> impl Iterator<Item = Written> {
        let behind = self.may.iter().filter(|written| written.ended < before).map(|written| written.begun).max();
        self.may.iter().filter(move |written| behind.is_none_or(|behind| behind <= written.ended)).copied()
    }
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
    /// Events so far.
    events: u64,
}

impl Default for Model {
    /// A new device holds zeros.
    fn default() -> Model {
        Model { cells: vec![Cell::promised(0); HOME as usize], next_tag: 1, events: 0 }
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

    /// A step has begun: what a power cut during it may leave. Returns which event that is, for [`Model::end_of`].
    pub fn begin(&mut self, step: &Step) -> u64 {
        self.events += 1;
        match step {
            Step::Write(tags) => {
                for (sector, tag) in tags {
                    let cell = &mut self.cells[*sector as usize];
                    cell.may.push(Written { tag: *tag, begun: self.events, ended: u64::MAX });
                    cell.promised = false;
                }
            }
            Step::Discard(sectors) => {
                for sector in sectors.clone() {
                    self.cells[sector as usize] = Cell::anything();
                }
            }
            Step::Sync | Step::Drain | Step::Tend | Step::Index | Step::Rest | Step::Reopen => {}
        }
        self.events
    }

    /// A step that was begun has ended well, and nothing else was under way. For [`Step::Reopen`]: [`Model::reopened`].
    pub fn end(&mut self, step: &Step) {
        self.end_of(step, self.events + 1);
    }

    /// The same where others were under way: it had begun with this event. A sync promises what had ended before that.
    pub fn end_of(&mut self, step: &Step, begun: u64) {
        self.events += 1;
        match step {
            Step::Write(tags) => {
                for (sector, tag) in tags {
                    let of_cell = self.cells[*sector as usize].may.iter_mut();
                    of_cell.filter(|written| written.tag == *tag).for_each(|written| written.ended = self.events);
                }
            }
            Step::Sync | Step::Rest => {
                for cell in &mut self.cells {
                    let has_ended = |written: &Written| written.ended < begun;
                    cell.any &= !cell.may.iter().any(has_ended);
                    cell.may = cell.newest(begun).collect();
                    cell.promised = !cell.any && cell.may.iter().all(has_ended);
                }
            }
            Step::Discard(_) | Step::Drain | Step::Tend | Step::Index | Step::Reopen => {}
        }
    }

    /// What a read that begins now may find in each sector, of what was written before.
    pub fn readable(&self) -> Vec<BTreeSet<u64>> {
        let tags = |cell: &Cell| cell.newest(u64::MAX).map(|written| written.tag).collect();
        self.cells.iter().map(tags).collect()
    }

    /// Compares, while nothing has failed. `may_be_lost` says of sectors whether they may be.
    pub fn check(&self, found: &[Found], may_be_lost: impl Fn(u64) -> bool) -> Result<()> {
        for ((sector, cell), found) in (0..).zip(&self.cells).zip(found) {
            if cell.may.is_empty() {
                continue;
            }
            let is_newest = cell.newest(u64::MAX).any(|written| *found == Found::Tag(written.tag));
            let is_right = is_newest || (*found == Found::Lost && may_be_lost(sector));
            ensure!(is_right, "sector {sector} is {found:?} and not the newest of {cell:?}");
        }
        Ok(())
    }

    /// Compares after another process has opened it, and takes what was found for what is there: nothing is torn or lost, and what was not
    /// promised is there or not.
    pub fn reopened(&mut self, found: &[Found]) -> Result<()> {
        for ((sector, cell), found) in (0..).zip(&mut self.cells).zip(found) {
            match found {
                Found::Tag(tag) if cell.may_hold(*tag) => *cell = Cell::promised(*tag),
                _ if cell.any => *cell = Cell::anything(),
                found => anyhow::bail!("sector {sector} is {found:?} and not one of {cell:?}"),
            }
        }
        Ok(())
    }

    /// Compares after a power cut, and takes what was found for what is there. At most `hurt` sectors that were promised may be lost.
    pub fn recover(&mut self, found: &[Found], hurt: u64) -> Result<()> {
        let mut lost = 0;
        for ((sector, cell), found) in (0..).zip(&mut self.cells).zip(found) {
            match found {
                Found::Tag(tag) if cell.may_hold(*tag) && !cell.any => *cell = Cell::promised(*tag),
                // What is whole is what was promised, or newer.
                Found::Tag(_) if !cell.any => anyhow::bail!("sector {sector} is {found:?} and not one of {cell:?}"),
                _ if !cell.promised => *cell = Cell::anything(),
                Found::Lost => {
                    lost += 1;
                    *cell = Cell::anything();
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
    fn of_two_writes_at_once_either_is_the_newest_and_a_sync_promises_what_had_ended() {
        let mut model = Model::default();
        let write = |tag: u64| Step::Write(vec![(0, tag)]);
        let right = |model: &Model, first: Found| {
            let mut found = vec![Found::Tag(0); HOME as usize];
            found[0] = first;
            (model.check(&found, |_| false).is_ok(), model.clone().recover(&found, 0).is_ok())
        };
        let (one, other) = (model.begin(&write(1)), model.begin(&write(2)));
        model.end_of(&write(1), one);
        let sync = model.begin(&Step::Sync);
        model.end_of(&write(2), other);
        assert_eq!([0, 1, 2].map(|tag| right(&model, Found::Tag(tag))), [(false, true), (true, true), (true, true)]);
        model.end_of(&Step::Sync, sync);
        // The second may come to nothing, or be torn.
        assert_eq!([0, 1, 2].map(|tag| right(&model, Found::Tag(tag)).1), [false, true, true]);
        assert!(right(&model, Found::Torn).1);
        model.end(&Step::Sync);
        assert!([Found::Tag(0), Found::Torn, Found::Lost].into_iter().all(|found| !right(&model, found).1));
        assert_eq!([1, 2].map(|tag| right(&model, Found::Tag(tag))), [(true, true); 2]);
        let third = model.begin(&write(3));
        model.end_of(&write(3), third);
        assert_eq!([1, 2, 3].map(|tag| right(&model, Found::Tag(tag))), [(false, true), (false, true), (true, true)]);
    }

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
