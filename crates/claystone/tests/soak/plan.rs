//! What happens to a store in which order: drawn from a seed alone, so that a seed replays it.
//!
//! Invariants:
//! 1. At no time more disks are hurt than every volume's code tolerates. A disk that was away, was full or is new is hurt
//!    until the store said that everything is healed.

use std::collections::BTreeSet;

use crate::running::store::Draw;

/// Something done to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// A disk's directory is moved away.
    Lose(usize),
    /// It is moved back, with what was on it when it went.
    Return(usize),
    /// A disk is given up for an empty one.
    Replace(usize),
    /// The disk that can be full is filled.
    Fill,
    /// It has room again.
    Free,
    /// A volume is merged.
    Merge(usize),
    /// A volume is made longer.
    Grow(usize),
    /// A volume gets another redundancy, and its stripes become so.
    Switch(usize),
    /// A snapshot of a volume is taken, and the oldest deleted if there are several.
    Snapshot(usize),
}

/// How a cycle ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Without warning.
    Kill,
    /// It is asked to.
    Stop,
}

/// From one start of the store to its end. Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Done while it is down.
    pub down: Vec<Deed>,
    /// It is killed so long after each of these starts, whether it serves or not.
    pub opening: Vec<u64>,
    /// It is killed so long after everything began to be read back.
    pub checking: Option<u64>,
    /// Everything is healed before clients begin; or it is killed so long after the repair began.
    pub heal: Option<Option<u64>>,
    /// A volume that becomes what its last snapshot is, before clients begin.
    pub revert: Option<usize>,
    /// A volume whose last snapshot becomes a volume before clients begin, in the place of the clone that there is.
    pub clone: Option<usize>,
    /// Done while clients work, each after a pause.
    pub running: Vec<(u64, Deed)>,
    /// A volume of which a snapshot begins to be taken before the last pause.
    pub cut_snapshot: Option<usize>,
    /// A pause.
    pub last: u64,
    /// How it ends.
    pub end: End,
}

/// Of what a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Disks.
    pub disks: usize,
    /// Volumes that a model knows: it takes part in what makes them longer, clones them or sets them back.
    pub modelled: usize,
    /// All volumes, those first: clients of the others judge by what they read alone.
    pub volumes: usize,
    /// Disks that every volume may lose.
    pub tolerance: usize,
    /// The disk that can be full.
    pub small: Option<usize>,
}

/// Draws cycles, and keeps in mind what they leave.
#[derive(Debug)]
pub struct Planner {
    draw: Draw,
    disks: usize,
    modelled: usize,
    volumes: usize,
    tolerance: usize,
    /// The disk that can be full.
    small: Option<usize>,
    away: BTreeSet<usize>,
    hurt: BTreeSet<usize>,
    is_full: bool,
    grown: u64,
}

impl Planner {
    /// For a store as it was made.
    pub fn new(seed: u64, of: Parts) -> Planner {
        let Parts { disks, modelled, volumes, tolerance, small } = of;
        let (away, hurt) = (BTreeSet::new(), BTreeSet::new());
        Planner { draw: Draw(seed), disks, modelled, volumes, tolerance, small, away, hurt, is_full: false, grown: 0 }
    }

    /// The next cycle.
    pub fn cycle(&mut self) -> Cycle {
        let healing = self.hurt.len() == self.tolerance && self.draw.below(3) > 0;
        let mut down = Vec::new();
        if healing {
            down = self.all_back();
        } else if self.draw.below(4) == 0 {
            down.extend(self.damage(true));
        }
        let opening = (0..self.draw.below(6).saturating_sub(3)).map(|_| 20 + self.draw.below(400)).collect();
        let checking = (self.draw.below(10) == 0).then(|| self.draw.below(300));
        let heal = healing.then(|| (self.draw.below(3) == 0).then(|| self.draw.below(1500)));
        let ends_early = checking.is_some() || matches!(heal, Some(Some(_)));
        let mut running = Vec::new();
        if !ends_early {
            if heal.is_some() {
                self.hurt.clear();
            }
            for _ in 0..self.draw.below(4) {
                let pause = self.draw.below(250);
                running.extend(self.deed().map(|deed| (pause, deed)));
            }
        }
        let mut sometimes = |odds| (self.draw.below(odds) == 0).then(|| self.draw.below(self.modelled as u64) as usize);
        let (revert, clone, cut_snapshot) = (sometimes(8), sometimes(4), sometimes(6));
        let last = self.draw.below(500);
        let end = if self.draw.below(12) == 0 && !ends_early { End::Stop } else { End::Kill };
        Cycle { down, opening, checking, heal, revert, clone, running, cut_snapshot, last, end }
    }

    /// What brings all disks back that are away, and makes room.
    pub fn all_back(&mut self) -> Vec<Deed> {
        let mut deeds: Vec<Deed> = std::mem::take(&mut self.away).into_iter().map(Deed::Return).collect();
        if std::mem::take(&mut self.is_full) {
            deeds.push(Deed::Free);
        }
        deeds
    }

    fn deed(&mut self) -> Option<Deed> {
        match self.draw.below(14) {
            0..4 => Some(Deed::Merge(self.draw.below(self.volumes as u64) as usize)),
            4 if self.grown < GROWTHS_MAX => {
                self.grown += 1;
                Some(Deed::Grow(self.draw.below(self.modelled as u64) as usize))
            }
            5..8 => Some(Deed::Snapshot(self.draw.below(self.volumes as u64) as usize)),
            8..10 => Some(Deed::Switch(self.draw.below(self.volumes as u64) as usize)),
            _ => self.damage(false),
        }
    }

    /// Something with a disk, if anything goes now.
    fn damage(&mut self, is_down: bool) -> Option<Deed> {
        (0..DAMAGE_TRIES).find_map(|_| self.try_damage(is_down))
    }

    fn try_damage(&mut self, is_down: bool) -> Option<Deed> {
        let disk = self.draw.below(self.disks as u64) as usize;
        let may_be_hurt = |hurt: &BTreeSet<usize>| hurt.contains(&disk) || hurt.len() < self.tolerance;
        let kind = self.draw.below(8);
        let some_away = self.away.iter().nth(self.draw.below(self.away.len().max(1) as u64) as usize).copied();
        match kind {
            0..3 if may_be_hurt(&self.hurt) && !self.away.contains(&disk) && !self.is_filled(disk) => {
                self.hurt.insert(disk);
                self.away.insert(disk);
                Some(Deed::Lose(disk))
            }
            3 if self.is_full => {
                self.is_full = false;
                Some(Deed::Free)
            }
            3 => {
                let small = self.small.filter(|small| !self.away.contains(small))?;
                if !self.hurt.contains(&small) && self.hurt.len() == self.tolerance {
                    return None;
                }
                self.hurt.insert(small);
                self.is_full = true;
                Some(Deed::Fill)
            }
            4..6 => {
                let away = some_away?;
                self.away.remove(&away);
                Some(Deed::Return(away))
            }
            _ if is_down => None,
            6 => {
                let away = some_away?;
                self.away.remove(&away);
                Some(Deed::Replace(away))
            }
            _ if may_be_hurt(&self.hurt) && !self.is_filled(disk) => {
                self.hurt.insert(disk);
                self.away.remove(&disk);
                Some(Deed::Replace(disk))
            }
            _ => None,
        }
    }

    fn is_filled(&self, disk: usize) -> bool {
        self.is_full && self.small == Some(disk)
    }
}

const GROWTHS_MAX: u64 = 8;
const DAMAGE_TRIES: usize = 4;

#[test]
fn a_seed_says_what_happens() {
    let plan = |seed| {
        let of = Parts { disks: 8, modelled: 3, volumes: 4, tolerance: 2, small: Some(7) };
        let mut planner = Planner::new(seed, of);
        (0..50).map(|_| planner.cycle()).collect::<Vec<Cycle>>()
    };
    assert_eq!(plan(1), plan(1));
    assert_ne!(plan(1), plan(2));
    let (mut kinds, mut merged, mut switched, mut taken) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for cycle in plan(3) {
        let deeds: Vec<Deed> = cycle.down.into_iter().chain(cycle.running.into_iter().map(|(_, deed)| deed)).collect();
        for deed in &deeds {
            match deed {
                Deed::Merge(volume) => merged.extend([*volume]),
                Deed::Switch(volume) => switched.extend([*volume]),
                Deed::Snapshot(volume) => taken.extend([*volume]),
                Deed::Grow(volume) => assert!(*volume < 3, "no model takes part"),
                _ => {}
            }
        }
        kinds.extend(deeds.into_iter().map(|deed| std::mem::discriminant(&deed)).map(|kind| format!("{kind:?}")));
    }
    assert_eq!(kinds.len(), 9, "every kind of deed happens");
    assert_eq!([merged, switched, taken].map(|of| of.len()), [4; 3], "to every volume");
}
