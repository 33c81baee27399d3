//! The line before the hard disk's log: who waits for the write that is on its way. The first of it goes to the log next, and takes along
//! those behind it whose writes fit into one record.
//!
//! ```text
//! join -> waits --nothing is on its way, and it is the first--> leaves, and writes for those too that it takes along -> answers them
//!               --who took it along has answered--> done
//!               --it is the first, and the hard disk became slow--> steered again
//! ```
//!
//! Invariants:
//! 1. Those who were taken along and are on their way, and behind them those in the line, are what the predictor has in its queue, in this
//!    order. So nobody leaves the line but from its front.
//! 2. Nothing of a write is in a log or in the overlay while it waits: it has no sequence yet.
//! 3. Each waits at a bell of its own, which is rung when it is the first and nothing is on its way, and when it was taken along and has its
//!    answer. So what else happens wakes none of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, MutexGuard};

use claystone_env::{DeviceError, SECTOR_BYTES, SectorRange};

use super::TieredDevice;
use super::append::{Attempt, Load, Staged, count, takes};
use super::bell::Bell;
use super::guide::Guide;
use super::state::{SsdState, State};
use crate::record::{Kind, fits_header};
use crate::superblock::Side;

/// Who waits.
#[derive(Clone)]
pub struct InLine {
    ticket: u64,
    bell: Arc<dyn Bell>,
}

/// See the module.
#[derive(Default)]
pub struct Line {
    pub(super) waiting: VecDeque<(InLine, Load)>,
    next: u64,
    /// What became of the writes of those who were taken along, by their tickets, until they ask: written, or why not.
    answers: BTreeMap<u64, Result<(), String>>,
}

impl InLine {
    /// Lets it look again.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

impl Line {
    fn join(&mut self, load: Load, bell: Arc<dyn Bell>) -> InLine {
        let who = InLine { ticket: self.next, bell };
        self.next += 1;
        self.waiting.push_back((who.clone(), load));
        who
    }

    fn is_first(&self, who: &InLine) -> bool {
        self.first().is_some_and(|first| first.ticket == who.ticket)
    }

    /// Who is the first.
    pub fn first(&self) -> Option<&InLine> {
        self.waiting.front().map(|(first, _)| first)
    }

    /// Takes the first out.
    ///
    /// # Panics
    /// If nobody waits.
    fn leave(&mut self) -> (InLine, Load) {
        self.waiting.pop_front().expect("the caller looked")
    }

    /// Tells those who were taken along what became of it.
    pub fn answer(&mut self, along: &[InLine], written: &Result<(), DeviceError>) {
        let answer = |who: &InLine| (who.ticket, written.as_ref().map_err(ToString::to_string).copied());
        self.answers.extend(along.iter().map(answer));
        along.iter().for_each(InLine::wake);
    }
}

impl TieredDevice {
    /// Waits until the hard disk's log takes a write that was steered there, and stages it, with others of the line.
    pub(super) fn try_in_line<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        load: Load,
    ) -> Result<Attempt, DeviceError> {
        let (range, bytes) = (load.extents[0], load.bytes.len() as u64);
        guide(&mut state).join(bytes);
        let who = state.line.join(load, self.bell.another());
        while guide(&mut state).is_busy() || !state.line.is_first(&who) {
            state = self.wait_at(&*who.bell, state);
            if let Some(answer) = state.line.answers.remove(&who.ticket) {
                let failed = |why| DeviceError::Write { range, source: io::Error::other(why) };
                return answer.map(|()| Attempt::TakenAlong).map_err(failed);
            }
        }
        let (_, load) = state.line.leave();
        let is_open = state.ssd == SsdState::Present && !state.failed && !state.superblock.at_rest;
        if !is_open || !guide(&mut state).takes(bytes) || !takes(&state, Side::Hdd, load.extents.len(), load.crcs.len())
        {
            guide(&mut state).leave();
            // The next one is the first now.
            state.line.first().into_iter().for_each(InLine::wake);
            return Ok(Attempt::Again(load));
        }
        let (mut together, mut loads) = (vec![who], vec![load]);
        while goes_along(&state, &loads) {
            let (next, load) = state.line.leave();
            together.push(next);
            loads.push(load);
        }
        let load = Load::joined(loads);
        guide(&mut state).begin();
        count(&mut state, Side::Hdd, together.len() as u64, &load);
        let staged = self.stage(&mut state, Side::Hdd, Kind::Data, load);
        Ok(Attempt::Staged(Staged { line: together, ..staged }))
    }
}

/// Whether the first of the line has a write that fits into one record with these.
fn goes_along(state: &State, loads: &[Load]) -> bool {
    let Some((_, next)) = state.line.waiting.front() else { return false };
    let is_apart = |extent: &SectorRange| {
        let overlaps = |other: &SectorRange| extent.first < other.end() && other.first < extent.end();
        !loads.iter().flat_map(|load| &load.extents).any(overlaps)
    };
    let all = || loads.iter().chain([next]);
    let extents = all().map(|load| load.extents.len()).sum();
    let sectors = all().map(|load| load.crcs.len()).sum();
    let fits = sectors <= TOGETHER_SECTORS_MAX.min(state.payload_sectors_max())
        && fits_header(extents, sectors)
        // Which of two is the newer one is for their sequences to say.
        && next.extents.iter().all(is_apart);
    let bytes = ((1 + sectors) * SECTOR_BYTES) as u64;
    let is_quick = state.guide.as_ref().is_some_and(|guide| guide.takes(bytes));
    fits && is_quick && takes(state, Side::Hdd, extents, sectors)
}

fn guide(state: &mut State) -> &mut Guide {
    state.guide.as_mut().expect("it steered somebody here")
}

/// With its header a record of 128 KiB: who comes meanwhile waits for it.
const TOGETHER_SECTORS_MAX: usize = 31;
