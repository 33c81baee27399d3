//! Cuts of a file, holes in it, what is written behind them and what room is kept for them, in any order, with and without room in the
//! journal; and the power cut in every operation of the device.

use claystone_sim::SimRandom;

use super::*;
use crate::Record;

/// Offsets and sizes are so many bytes, or several times that, so that a file is told by few numbers.
const UNIT: usize = 512;
const SECTOR_UNITS: u64 = (SECTOR_BYTES / UNIT) as u64;
const FILE_UNITS: u64 = 36 * SECTOR_UNITS;

/// What the file was after each step, by units; what a step writes is its number.
struct Past {
    states: Vec<Vec<u8>>,
    /// The state that was synced last.
    synced: usize,
    /// Steps that made the file shorter.
    cuts: Vec<usize>,
}

impl Past {
    fn now(&self) -> &Vec<u8> {
        self.states.last().expect("there is one at the start")
    }

    /// What a crash now may leave.
    fn assert_allows(&self, found: &[u8], at: &str) {
        let since = &self.states[self.synced..];
        let lens = since.iter().map(Vec::len);
        let (least, most) = (lens.clone().min().expect("one"), lens.max().expect("one"));
        assert!((least..=most).contains(&found.len()), "{at}: {} units of {least} to {most}", found.len());
        for (unit, &byte) in found.iter().enumerate() {
            let is_known = since.iter().any(|state| state.get(unit).copied().unwrap_or(0) == byte);
            assert!(is_known, "{at}: unit {unit} is {byte}, and was not since step {}", self.synced);
        }
        for &cut in self.cuts.iter().filter(|cut| **cut > self.synced) {
            let end = self.states[cut].len().min(found.len());
            let (old, new): (Vec<u8>, Vec<u8>) =
                found[end..].iter().filter(|byte| **byte > 0).partition(|byte| usize::from(**byte) < cut);
            let before = self.states[self.synced..cut].iter().map(Vec::len).max().expect("one");
            let is_from_before = found.len() <= before && new.is_empty();
            assert!(old.is_empty() || is_from_before, "{at}: step {cut} cut the file to {end} units: {found:?}");
        }
    }
}

/// Fills the journal with entries that say nothing, which a checkpoint frees; not where something waits in it, which has room to be applied.
fn fill_journal(disk: &Disk) {
    let flushing = disk.lock_flusher();
    disk.checkpoint(&flushing).expect("made");
    if guard(&disk.core).nodes.oldest_journaled().is_some() {
        return;
    }
    let mut journal = guard(&disk.journal);
    let nothing = [Record::Forget { inode: Inode(77), first: 0, end: 1 }];
    while journal.used() < journal.sectors() {
        journal.append(&nothing).expect("there is room");
    }
}

fn at(units: u64) -> u64 {
    units * UNIT as u64
}

fn to(units: u64) -> NewAttributes {
    NewAttributes { bytes: Some(at(units)), ..NewAttributes::default() }
}

/// Reads a file as units, none of which is torn.
fn units_of(disk: &Disk, file: Inode) -> Vec<u8> {
    let bytes = disk.attributes(file).expect("it is there").bytes;
    assert_eq!(bytes % UNIT as u64, 0);
    let mut content = vec![0; bytes as usize];
    assert_eq!(disk.read(file, 0, &mut content), Ok(content.len()));
    let unit = |unit: &[u8]| {
        assert!(unit.iter().all(|byte| *byte == unit[0]), "no unit is torn");
        unit[0]
    };
    content.chunks_exact(UNIT).map(unit).collect()
}

/// One step of the file's life; whether it is a sync.
fn step(disk: &Disk, file: Inode, past: &mut Past, below: &mut dyn FnMut(u64) -> u64) -> bool {
    let (number, mut state) = (past.states.len(), past.now().clone());
    let len = state.len() as u64;
    let mut is_sync = false;
    match below(17) {
        0..4 => {
            // Behind the end as often as not.
            let first = if below(2) == 0 { below(FILE_UNITS) } else { (len + below(20)).min(FILE_UNITS - 1) };
            let most = if below(4) == 0 { 200 } else { 24 };
            let end = FILE_UNITS.min(first + 1 + below(most));
            disk.write(file, at(first), &vec![number as u8; at(end - first) as usize]).expect("written");
            state.resize(len.max(end) as usize, 0);
            state[first as usize..end as usize].fill(number as u8);
        }
        4..7 => {
            let cut = len.saturating_sub(1 + below(30));
            disk.set_attributes(file, &to(cut)).expect("cut");
            state.truncate(cut as usize);
        }
        7 => {
            let size = below(FILE_UNITS);
            disk.set_attributes(file, &to(size)).expect("cut or grown");
            state.resize(size as usize, 0);
        }
        8 => {
            let (first, count) = (below(FILE_UNITS), 1 + below(40));
            disk.punch(file, at(first), at(count)).expect("punched");
            let end = len.min(first + count);
            if first < end {
                state[first as usize..end as usize].fill(0);
            }
        }
        9 => {
            let (first, count, keep_size) = (below(FILE_UNITS), 1 + below(40), below(2) == 0);
            disk.allocate(file, at(first), at(count), keep_size).expect("there is space");
            if !keep_size {
                state.resize(len.max(first + count) as usize, 0);
            }
        }
        10 => disk.flush(file, &disk.lock_flusher()).expect("flushed"),
        11 => disk.commit().expect("durable"),
        12 => disk.checkpoint(&disk.lock_flusher()).expect("made"),
        13 | 14 => fill_journal(disk),
        15 => {
            let permissions = NewAttributes { permissions: Some(0o640), ..NewAttributes::default() };
            disk.set_attributes(file, &permissions).expect("changed");
        }
        _ => {
            is_sync = true;
            match below(2) {
                0 => disk.sync(file).expect("synced"),
                _ => disk.sync_all().expect("synced"),
            }
        }
    }
    if (state.len() as u64) < len {
        past.cuts.push(number);
    }
    past.states.push(state);
    assert_eq!(units_of(disk, file), *past.now(), "step {number}");
    is_sync
}

#[test]
fn what_was_cut_off_is_seen_only_in_a_file_that_was_not_cut() {
    let mut crashes = 0;
    for seed in 0..SEEDS {
        let drive = SimDevice::alone("d", HddModel::new(4096), seed);
        let disk = formatted(&drive.attach(), 2);
        let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(file, 0, &vec![1; at(FILE_UNITS) as usize]).expect("written");
        disk.sync_all().expect("synced");
        let states = vec![Vec::new(), vec![1; FILE_UNITS as usize]];
        let mut past = Past { states, synced: 1, cuts: Vec::new() };
        let mut random = seed;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        drive.keep_moments();
        for number in 0..STEPS {
            let is_sync = step(&disk, file, &mut past, &mut below);
            for (turn, moment) in drive.take_moments().into_iter().enumerate() {
                let branch = drive.branch(&moment, Arc::new(SimRandom::new(seed + moment.operation())));
                // Power is cut, or the process is killed.
                if turn % 3 > 0 {
                    branch.crash();
                }
                let crashed = opened(branch.attach(), Arc::new(SteppingClock::default()));
                let found = units_of(&crashed, file);
                past.assert_allows(&found, &format!("seed {seed}, step {number}, write {turn}"));
                crashed.set_attributes(file, &to(2 * FILE_UNITS)).expect("grown");
                let grown = units_of(&crashed, file);
                assert!(grown[found.len()..].iter().all(|byte| *byte == 0), "seed {seed}, step {number}: {grown:?}");
                assert_sound(&crashed);
                crashes += 1;
            }
            if is_sync {
                past.synced = past.states.len() - 1;
            }
        }
    }
    assert!(crashes as u64 > SEEDS * STEPS, "{crashes} crashes");
}

const SEEDS: u64 = 12;
const STEPS: u64 = 24;
