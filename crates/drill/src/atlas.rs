//! Which disks may be hurt: faults laid out so that everything can be recovered.

use std::collections::BTreeSet;

use claystone_env::Random;

/// The disks that faults go to. At most as many disks are hurt between two full repairs as the codes of the drill survive
/// losses; what happens on those has no limit.
#[derive(Debug, Clone)]
pub struct Atlas {
    hurt: BTreeSet<usize>,
    tolerance: usize,
}

impl Atlas {
    /// For codes that survive so many losses, whichever they are.
    pub fn new(tolerance: u16) -> Atlas {
        Atlas { hurt: BTreeSet::new(), tolerance: tolerance.into() }
    }

    /// Chooses a disk for the next fault among `disks`: a hurt one, or a sound one while the tolerance allows.
    pub fn choose(&mut self, random: &dyn Random, disks: usize) -> usize {
        let fresh = self.hurt.len() < self.tolerance && (self.hurt.is_empty() || random.below(2) == 0);
        let disk = if fresh {
            random.below(disks as u64) as usize
        } else {
            let at = random.below(self.hurt.len() as u64) as usize;
            *self.hurt.iter().nth(at).expect("the index is below the length")
        };
        self.hurt.insert(disk);
        disk
    }

    /// The disks hurt since the last full repair.
    pub fn hurt(&self) -> &BTreeSet<usize> {
        &self.hurt
    }

    /// Everything was repaired and verified.
    pub fn repaired(&mut self) {
        self.hurt.clear();
    }
}
