//! The disks of the store as they are right now.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use claystone_chunk::{ChunkStore, DiskId, StoreState};
use claystone_env::Space;
use claystone_meta::{DiskRecord, DiskState};

use crate::Candidate;

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
#[derive(Debug, Clone, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<DiskId, Member>>>);

impl Stores {
    /// Adds or replaces a disk.
    pub fn put(&self, member: Member) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(member.record.id, member);
    }

    /// Forgets a disk.
    pub fn remove(&self, disk: DiskId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&disk);
    }

    /// All disks in the order of their ids.
    pub fn members(&self) -> Vec<Member> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// One disk.
    pub fn member(&self, disk: DiskId) -> Option<Member> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&disk).cloned()
    }

    /// The store of a disk that answers reads.
    pub fn readable(&self, disk: DiskId) -> Option<Arc<dyn ChunkStore>> {
        let members = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let member = members.get(&disk)?;
        if member.readable() { member.store.clone().ok() } else { None }
    }

    /// The disks that take new chunks, for [`place`](crate::place()).
    pub fn candidates(&self) -> Vec<Candidate> {
        let members = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let writable = members.values().filter(|member| member.writable());
        writable
            .map(|member| Candidate {
                disk: member.record.id,
                node: member.record.node.clone(),
                free_bytes: member.space.free_bytes,
            })
            .collect()
    }

    /// Asks every store for its space anew. A store that does not answer keeps its last figures.
    pub async fn refresh_space(&self) {
        for member in self.members() {
            let Ok(store) = member.store else { continue };
            if let Ok(space) = store.space().await {
                let mut members = self.0.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(member) = members.get_mut(&store.disk()) {
                    member.space = space;
                }
            }
        }
    }
}
