//! How large groups, runs and files are in a run: what is small is walked through soon, and some paths take more.

use std::time::Duration;

use claystone_files::Tuning;

use super::atlas::Code;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Scale {
    /// Groups of eight sectors, in runs of one sums sector.
    Small,
    /// The same in runs of several sums sectors, of which parts are freed.
    Summed,
    /// Groups of 255, as disks have them that nobody said anything about, in runs of several sums sectors.
    Usual,
    /// Groups of 1023: each has a sums sector of its own, or more.
    Long,
}

impl Scale {
    /// What its disk is formatted with.
    pub fn code(self) -> Code {
        match self {
            Scale::Small | Scale::Summed => Code { data: 6, parity: 2, copies: 3 },
            Scale::Usual => Code { data: 250, parity: 5, copies: 2 },
            Scale::Long => Code { data: 1014, parity: 9, copies: 2 },
        }
    }

    /// Of the device at first: that the journal and the page file are a part of it that shows. It grows to twice that at most.
    pub fn sectors(self) -> u64 {
        match self {
            Scale::Small => 4096,
            Scale::Summed | Scale::Usual => 16_384,
            Scale::Long => 40_960,
        }
    }

    /// How large a file may become, in sectors of data.
    pub fn file_sectors_max(self) -> u64 {
        match self {
            Scale::Small => 120,
            Scale::Summed | Scale::Usual => 2600,
            Scale::Long => 9000,
        }
    }

    /// Sectors of a large write at most: enough for a bulk run.
    pub fn write_sectors_max(self) -> u64 {
        match self {
            Scale::Small => 80,
            Scale::Summed => 2400,
            Scale::Usual => 2400,
            Scale::Long => 7000,
        }
    }

    /// How many nodes there may be at most, so that there is space for them.
    pub fn nodes_max(self) -> usize {
        match self {
            Scale::Small => usize::MAX,
            Scale::Summed | Scale::Usual => 5,
            Scale::Long => 4,
        }
    }

    /// Rounds of a run with random faults.
    pub fn rounds(self) -> u64 {
        match self {
            Scale::Small => 8,
            Scale::Summed | Scale::Usual => 4,
            Scale::Long => 2,
        }
    }

    /// What the disk may take of memory. Each call looks at the clock a few times, a millisecond each: flushes and checkpoints
    /// come every now and then.
    pub fn tuning(self) -> Tuning {
        let (waiting_sectors_max, bulk_sectors_max) = match self {
            Scale::Small => (200, 60),
            Scale::Summed => (2500, 2400),
            Scale::Usual => (2500, 13_250),
            Scale::Long => (8000, 13_250),
        };
        Tuning {
            waiting_sectors_max,
            bulk_sectors_max,
            journal_sectors_max: 8,
            apply_sectors_max: 16,
            // Two sums sectors, and the sums of swaths of 76.
            sums_bytes: 32 << 10,
            flush_after: Duration::from_millis(20),
            checkpoint_after: Duration::from_millis(80),
            ..Tuning::default()
        }
    }
}
