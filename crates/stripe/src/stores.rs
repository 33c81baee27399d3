//! The disks of the store as they are right now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use claystone_chunk::{ChunkStore, DiskId, StoreState};
use claystone_env::{Clock, Space, timeout};
use claystone_meta::{DiskRecord, DiskState};
use futures::future::join_all;

use crate::{Candidate, Nodes};

/// Why a known disk cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// For people: what was found at its path and what to do.
    pub reason: String,
}

/// A disk: what is known of it, and its store if it is there.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its record.
    pub record: DiskRecord,
    /// Its store, or why there is none.
    pub store: Result<Arc<dyn ChunkStore>, Absence>,
    /// Space when it was last asked.
    pub space: Space,
}

impl Member {
    /// Whether it answers reads.
    pub fn readable(&self) -> bool {
        matches!(self.record.state, DiskState::Active | DiskState::Draining)
            && self.store.as_ref().is_ok_and(|store| !matches!(store.state(), StoreState::Failed { .. }))
    }

    /// Whether it takes new chunks.
    pub fn writable(&self) -> bool {
        self.record.state == DiskState::Active
            && self.store.as_ref().is_ok_and(|store| store.state() == StoreState::Serving)
    }
}

/// All disks by id. Cheap to clone; all clones show the same disks.
///
/// A disk on which an operation took too long is *silent*: it counts as absent until it answers again, so that only the
/// first request waits for it.
#[derive(Debug, Clone, Default)]
pub struct Stores(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    members: BTreeMap<DiskId, Member>,
    silent: BTreeSet<DiskId>,
}

impl Known {
    /// A disk as others shall see it.
    fn shown(&self, disk: DiskId) -> Option<Member> {
        let member = self.members.get(&disk)?.clone();
        if member.store.is_ok() && self.silent.contains(&disk) {
            return Some(Member { store: Err(Absence { reason: "it does not answer".to_owned() }), ..member });
        }
        Some(member)
    }

    fn writable(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.writable() && !self.silent.contains(&member.record.id))
    }
}

impl Stores {
    /// Adds or replaces a disk.
    pub fn put(&self, member: Member) {
        let mut known = self.write();
        known.silent.remove(&member.record.id);
        known.members.insert(member.record.id, member);
    }

    /// Changes what is known of a disk, if it is known.
    pub fn update(&self, disk: DiskId, change: impl FnOnce(&mut Member)) {
        let mut known = self.write();
        known.silent.remove(&disk);
        if let Some(member) = known.members.get_mut(&disk) {
            change(member);
        }
    }

    /// Forgets a disk.
    pub fn remove(&self, disk: DiskId) {
        self.write().members.remove(&disk);
    }

    /// An operation on this disk took too long.
    pub fn silence(&self, disk: DiskId) {
        if self.write().silent.insert(disk) {
            tracing::warn!(%disk, "a disk does not answer; it counts as absent until it does");
        }
    }

    /// All disks in the order of their ids.
    pub fn members(&self) -> Vec<Member> {
        let known = self.read();
        known.members.keys().filter_map(|disk| known.shown(*disk)).collect()
    }

    /// Which disks share a node.
    pub fn nodes(&self) -> Nodes {
        Nodes::of(self.read().members.values().map(|member| &member.record))
    }

    /// One disk.
    pub fn member(&self, disk: DiskId) -> Option<Member> {
        self.read().shown(disk)
    }

    /// Whether a disk takes new chunks, and segments of logs.
    pub fn is_writable(&self, disk: DiskId) -> bool {
        self.member(disk).is_some_and(|member| member.writable())
    }

    /// The store of a disk that answers reads.
    pub fn readable(&self, disk: DiskId) -> Option<Arc<dyn ChunkStore>> {
        let member = self.read().shown(disk)?;
        if member.readable() { member.store.ok() } else { None }
    }

    /// The disks that take new chunks and have room for them, for [`place`](crate::place()).
    pub fn candidates(&self) -> Vec<Candidate> {
        let known = self.read();
        let roomy = known.writable().filter(|member| member.space.free_bytes > ROOM_BYTES_MIN);
        let candidate = |member: &Member| Candidate {
            disk: member.record.id,
            node: member.record.node.clone(),
            free_bytes: member.space.free_bytes,
        };
        roomy.map(candidate).collect()
    }

    /// How many disks take new chunks and have more room than these bytes, and than a tenth of the disk.
    pub fn roomy(&self, bytes: u64) -> usize {
        let is_roomy = |member: &&Member| member.space.free_bytes > bytes.max(member.space.total_bytes / 10);
        self.read().writable().filter(is_roomy).count()
    }

    /// Disks that would take new chunks if they were not full.
    pub fn full(&self) -> usize {
        self.read().writable().filter(|member| member.space.free_bytes <= ROOM_BYTES_MIN).count()
    }

    /// Asks every store for its space anew, all at once, and gives each `limit` to answer. A store that does not answer
    /// keeps its last figures; a silent one that answers is silent no more.
    pub async fn refresh_space(&self, clock: &dyn Clock, limit: Duration) {
        let stores: Vec<_> = self.read().members.values().filter_map(|member| member.store.clone().ok()).collect();
        let asked = stores.into_iter().map(|store| async move {
            if let Some(Ok(space)) = timeout(clock, limit, store.space()).await {
                self.update(store.disk(), |member| member.space = space);
            }
        });
        join_all(asked).await;
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A disk with less room than this is full: it takes no new chunks until something is deleted.
const ROOM_BYTES_MIN: u64 = 1 << 20;
