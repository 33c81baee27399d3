//! What happens at single calls of stores: they wait, fail or read something wrong.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::DiskId;

/// What happens at single calls of all stores of a process.
#[derive(Debug, Clone, Default)]
pub struct Traps(Arc<TrapState>);

#[derive(Debug, Default)]
struct TrapState {
    overwrites: Trap,
    log_reads: Trap,
    forgets: Trap,
    creates: Trap,
    syncs: Trap,
    synced: Trap,
    deletes: Trap,
    appends: Trap,
    /// Appends of disks that wait there, counted from when this was set, and how many came since.
    held: Mutex<BTreeMap<DiskId, (u64, u64)>>,
    /// The same of appends that fail.
    failing: Mutex<BTreeMap<DiskId, (u64, u64)>>,
    panics: AtomicBool,
    is_reserve_full: AtomicBool,
    has_no_space_for_zeros: AtomicBool,
    spoiled: Mutex<Vec<(DiskId, Bytes)>>,
}

impl Traps {
    /// Whether chunks of zeros find no space when they are to be filled.
    pub fn set_no_space_for_zeros(&self, is_so: bool) {
        self.0.has_no_space_for_zeros.store(is_so, Ordering::SeqCst);
    }

    pub(super) fn has_no_space_for_zeros(&self) -> bool {
        self.0.has_no_space_for_zeros.load(Ordering::SeqCst)
    }

    /// Overwrites of chunks wait here.
    pub fn overwrites(&self) -> &Trap {
        &self.0.overwrites
    }

    /// Reads of segments wait here.
    pub fn log_reads(&self) -> &Trap {
        &self.0.log_reads
    }

    /// Who forgets the log of an owner waits here.
    pub fn forgets(&self) -> &Trap {
        &self.0.forgets
    }

    /// Who makes a segment waits here.
    pub fn creates(&self) -> &Trap {
        &self.0.creates
    }

    /// Who syncs a segment waits here.
    pub fn syncs(&self) -> &Trap {
        &self.0.syncs
    }

    /// Who has synced a segment waits here, and does not tell yet.
    pub fn synced(&self) -> &Trap {
        &self.0.synced
    }

    /// Who deletes a segment waits here.
    pub fn deletes(&self) -> &Trap {
        &self.0.deletes
    }

    /// This append to a disk's segments waits at [`Traps::appends`], counted from here on; others go on.
    pub fn hold_append(&self, disk: usize, number: u64) {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(DiskId(disk as u128), (number, 0));
        self.appends().set();
    }

    /// Appends that are held wait here.
    pub fn appends(&self) -> &Trap {
        &self.0.appends
    }

    /// This append to a disk's segments fails, counted from here on; others go on.
    pub fn fail_append(&self, disk: usize, number: u64) {
        self.0.failing.lock().unwrap_or_else(PoisonError::into_inner).insert(DiskId(disk as u128), (number, 0));
    }

    /// Whether it may go on.
    pub(super) async fn pass_append(&self, disk: DiskId) -> bool {
        let is_next = |counted: &Mutex<BTreeMap<DiskId, (u64, u64)>>| {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.get_mut(&disk).is_some_and(|(number, count)| {
                *count += 1;
                *count == *number + 1
            })
        };
        let (is_held, fails) = (is_next(&self.0.held), is_next(&self.0.failing));
        if is_held {
            self.appends().pass().await;
        }
        !fails
    }

    /// Whoever overwrites a chunk panics.
    pub fn panic_at_overwrites(&self) {
        self.0.panics.store(true, Ordering::Release);
    }

    /// Whether disks have no room for segments in their reserve either.
    pub fn fill_reserve(&self, is_full: bool) {
        self.0.is_reserve_full.store(is_full, Ordering::Release);
    }

    pub(super) fn is_reserve_full(&self) -> bool {
        self.0.is_reserve_full.load(Ordering::Acquire)
    }

    /// A disk has a wrong bit in what of its segments begins like this.
    pub fn spoil(&self, disk: DiskId, content: &Bytes) {
        self.0.spoiled.lock().unwrap_or_else(PoisonError::into_inner).push((disk, content.slice(..64)));
    }

    pub(super) async fn pass_overwrite(&self) {
        assert!(!self.0.panics.load(Ordering::Acquire), "the test wants it");
        self.overwrites().pass().await;
    }

    /// What a disk reads of its segments.
    pub(super) fn spoiled(&self, disk: DiskId, read: Bytes) -> Bytes {
        let mut read = read.to_vec();
        for (spoiled, content) in &*self.0.spoiled.lock().unwrap_or_else(PoisonError::into_inner) {
            if *spoiled == disk
                && let Some(at) = read.windows(content.len()).position(|window| window == content)
            {
                read[at] ^= 1;
            }
        }
        read.into()
    }
}

/// Where calls wait while it is set.
#[derive(Debug)]
pub struct Trap {
    is_set: tokio::sync::watch::Sender<bool>,
    caught: tokio::sync::Notify,
}

impl Default for Trap {
    fn default() -> Trap {
        Trap { is_set: tokio::sync::watch::Sender::new(false), caught: tokio::sync::Notify::new() }
    }
}

impl Trap {
    /// Calls wait from now on.
    pub fn set(&self) {
        self.is_set.send_replace(true);
    }

    /// Waits until a call waits here.
    pub async fn caught(&self) {
        self.caught.notified().await;
    }

    /// Lets all go on.
    pub fn open(&self) {
        self.is_set.send_replace(false);
    }

    pub(super) async fn pass(&self) {
        let mut is_set = self.is_set.subscribe();
        if *is_set.borrow() {
            self.caught.notify_one();
        }
        is_set.wait_for(|is_set| !is_set).await.expect("the trap is there");
    }
}
