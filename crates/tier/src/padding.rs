//! What a drive is given when no user writes: bytes that nobody needs, so that its buffer stays where the predictor thinks it is.

use std::time::Duration;

use crate::scheduler::STALL_BYTES;

/// When a drive is padded, and with how much.
// Source: [bcw §Buffer-Controlled Writes]: 4 KiB while the buffer takes writes, 64 KiB to leave a slow stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// Bytes of a padding that only keeps the drive from flushing by itself.
    pub keep_bytes: u64,
    /// How long the drive may be idle before it gets one. Less than what it takes to flush by itself.
    pub keep_every: Duration,
    /// Whether a fast stage is kept up too. It needs none: a drive that was synced has nothing to flush.
    pub keeps_fast: bool,
    /// Bytes of a padding that leaves a slow stage.
    pub leave_bytes: u64,
    /// After so long without a user's write the drive is synced instead of padded, unless it is fast and little is in it: then it is
    /// fast, and needs no padding until somebody writes. `None`: it is padded for ever.
    pub sync_after: Option<Duration>,
    /// What a stage shall have left for users, and no more than three quarters of what it takes: with less, the drive is taken to
    /// the next one while it is not needed. So a stall of the solid-state drive does not find it near a slow stage. 0: it is not.
    pub reserve_bytes: u64,
    /// After so long without a user's write it is not needed.
    pub reserve_after: Duration,
    /// So long after a read nothing is done to find out where the drive is: the next one makes it void.
    pub settle_after: Duration,
    /// Bytes of padding that may be written before users wrote anything, and saved up at most.
    pub credit_bytes: u64,
    /// How many more are allowed for each hundred that users write, to either log,
    pub credit_percent: u64,
    /// and for each hundred of redirected writes beside: a disk that gains by padding is padded.
    pub credit_percent_redirected: u64,
}

impl Padding {
    /// For least latency: the drive is left alone but for what makes it fast before the solid-state drive stalls the next time.
    pub fn for_latency() -> Padding {
        Padding { sync_after: Some(Duration::from_millis(20)), reserve_bytes: STALL_BYTES, ..Padding::for_wear() }
    }

    /// For least wear of the solid-state drive: the drive takes all it can.
    pub fn for_wear() -> Padding {
        Padding {
            settle_after: Duration::from_millis(50),
            // A few times around: a middle stage is about 8 MiB.
            credit_bytes: 32 << 20,
            // In the bench it takes .3 to 1.1 times what is redirected, the paper's 1.1 to 1.3. A disk that is read too takes more, and gains
            // less by it.
            credit_percent: 5,
            credit_percent_redirected: 300,
            ..Padding::default()
        }
    }

    /// What a sync counts of the credit: it takes as long as some such padding.
    pub(crate) const SYNC_BYTES: u64 = 1 << 20;
}

impl Default for Padding {
    fn default() -> Padding {
        Padding {
            keep_bytes: 4 << 10,
            keep_every: Duration::from_millis(1),
            keeps_fast: false,
            leave_bytes: 64 << 10,
            sync_after: None,
            reserve_bytes: 0,
            reserve_after: Duration::from_millis(1),
            settle_after: Duration::ZERO,
            credit_bytes: u64::MAX,
            credit_percent: 0,
            credit_percent_redirected: 0,
        }
    }
}

/// What a drive needs now, while no user's write is for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upkeep {
    /// Nothing, until a user writes or something else happens.
    Nothing,
    /// Nothing for so long.
    After(Duration),
    /// So many bytes that nobody needs.
    Pad(u64),
    /// A sync, and [`Predictor::synced`](crate::Predictor::synced) behind it.
    Sync,
}
