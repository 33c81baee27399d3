//! A chunk store in memory.
//!
//! Invariants:
//! 1. `used_bytes` is the sum of the lengths of committed chunks and of what is reserved for segments. Nothing is added
//!    that would bring it above `capacity_bytes`.
//! 2. A chunk is in `writing` or in `chunks` or in neither.

mod segments;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::{Random, SectorHealth, Space};
use segments::{MemorySegments, Owner};

use crate::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Durability, Lease, Load, Overwrite,
    OwnerId, SECTOR_BYTES, SegmentStore, StoreState, Verdict,
};

/// The reference implementation of [`ChunkStore`] and of [`SegmentStore`]. Clones are the same store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    segments: MemorySegments,
}

struct Shared {
    disk: DiskId,
    inner: Mutex<Inner>,
}

struct Inner {
    chunks: BTreeMap<ChunkId, Chunk>,
    writing: BTreeSet<ChunkId>,
    // Committed as buffered and not synced.
    buffered: BTreeSet<ChunkId>,
    owners: BTreeMap<OwnerId, Owner>,
    // One more with each crash.
    boot: u64,
    capacity_bytes: u64,
    used_bytes: u64,
    state: StoreState,
    health: Option<SectorHealth>,
    // Of the segment that was deleted last.
    deleted_content: Vec<u8>,
}

struct Chunk {
    bytes: Vec<u8>,
    lost_sectors: BTreeSet<u64>,
    // Of each sector overwritten since the last sync all it was before, oldest first; `None`: lost.
    former: BTreeMap<u64, Vec<Option<Vec<u8>>>>,
}

impl MemoryStore {
    /// An empty store of 1 TiB.
    pub fn new(disk: DiskId) -> MemoryStore {
        MemoryStore::with_capacity(disk, 1 << 40)
    }

    /// An empty store that is full at `capacity_bytes`.
    pub fn with_capacity(disk: DiskId, capacity_bytes: u64) -> MemoryStore {
        let inner = Inner {
            chunks: BTreeMap::new(),
            writing: BTreeSet::new(),
            buffered: BTreeSet::new(),
            owners: BTreeMap::new(),
            boot: 0,
            capacity_bytes,
            used_bytes: 0,
            state: StoreState::Serving,
            health: None,
            deleted_content: Vec::new(),
        };
        let shared = Arc::new(Shared { disk, inner: Mutex::new(inner) });
        MemoryStore { segments: MemorySegments(shared.clone()), shared }
    }

    /// Loses one sector of a chunk, as a bad sector of a disk would.
    ///
    /// # Panics
    /// If there is no such chunk or sector.
    pub fn lose_sector(&self, id: ChunkId, sector: u64) {
        let mut inner = self.lock();
        let chunk = inner.chunks.get_mut(&id).expect("the chunk to damage exists");
        assert!(sector * u64::from(SECTOR_BYTES) < chunk.bytes.len() as u64, "chunk {id} has no sector {sector}");
        chunk.lost_sectors.insert(sector);
    }

    /// Sets the state, e.g. to fail the store or to bring it back.
    pub fn set_state(&self, state: StoreState) {
        self.lock().state = state;
    }

    /// Sets what it says of its sectors.
    pub fn set_sectors(&self, health: SectorHealth) {
        self.lock().health = Some(health);
    }

    /// Forgets every chunk and segment, as a new disk in the place of an old one would.
    pub fn wipe(&self) {
        let mut inner = self.lock();
        inner.chunks.clear();
        inner.buffered.clear();
        inner.owners.clear();
        inner.used_bytes = 0;
    }

    /// A power cut, and the store opened anew: what was not synced is there, or not, or torn, as chance has it; segments
    /// are sealed, and who was writing a chunk has failed.
    pub fn crash(&self, random: &dyn Random) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.boot += 1;
        inner.state = StoreState::Serving;
        inner.writing.clear();
        for id in std::mem::take(&mut inner.buffered) {
            if random.below(2) == 0
                && let Some(chunk) = inner.chunks.remove(&id)
            {
                inner.used_bytes -= chunk.bytes.len() as u64;
            }
        }
        inner.chunks.values_mut().for_each(|chunk| chunk.crash(random));
        for owner in inner.owners.values_mut() {
            inner.used_bytes += owner.crash(random);
        }
    }

    /// A power cut that takes all chunks which were not synced.
    pub fn lose_unsynced(&self) {
        self.crash(&Worst);
    }

    /// All committed chunks.
    pub fn ids(&self) -> Vec<ChunkId> {
        self.lock().chunks.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock()
    }

    fn unavailable(&self, reason: String) -> ChunkError {
        ChunkError::Unavailable { disk: self.shared.disk, reason }
    }

    fn readable(&self) -> Result<MutexGuard<'_, Inner>, ChunkError> {
        self.shared.readable().map_err(|reason| self.unavailable(reason))
    }

    fn writable(&self) -> Result<MutexGuard<'_, Inner>, ChunkError> {
        self.shared.writable().map_err(|reason| self.unavailable(reason))
    }
}

/// Of what a power cut may take it takes all.
struct Worst;

impl Random for Worst {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn fork(&self, _: &str) -> Arc<dyn Random> {
        Arc::new(Worst)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store if it takes reads, or why not.
    fn readable(&self) -> Result<MutexGuard<'_, Inner>, String> {
        let inner = self.lock();
        match &inner.state {
            StoreState::Failed { reason } => Err(reason.clone()),
            _ => Ok(inner),
        }
    }

    /// The store if it takes writes, or why not.
    fn writable(&self) -> Result<MutexGuard<'_, Inner>, String> {
        let inner = self.lock();
        match &inner.state {
            StoreState::Failed { reason } | StoreState::ReadOnly { reason } => Err(reason.clone()),
            StoreState::Serving => Ok(inner),
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryStore({})", self.shared.disk)
    }
}

impl Inner {
    fn chunk(&self, id: ChunkId) -> Result<&Chunk, ChunkError> {
        self.chunks.get(&id).ok_or(ChunkError::NotFound { id })
    }
}

impl Chunk {
    fn check(&self, id: ChunkId, range: ByteRange) -> Result<(), ChunkError> {
        let chunk_bytes = self.bytes.len() as u64;
        if range.offset.checked_add(range.bytes).is_none_or(|end| end > chunk_bytes) {
            return Err(ChunkError::OutOfRange { id, range, chunk_bytes });
        }
        Ok(())
    }

    fn sector(&mut self, sector: u64) -> &mut [u8] {
        let from = sector as usize * SECTOR_BYTES as usize;
        let to = (from + SECTOR_BYTES as usize).min(self.bytes.len());
        &mut self.bytes[from..to]
    }

    fn overwrite(&mut self, sector: u64, content: &[u8]) {
        let was_lost = self.lost_sectors.remove(&sector);
        let before = (!was_lost).then(|| self.sector(sector).to_vec());
        self.former.entry(sector).or_default().push(before);
        self.sector(sector).copy_from_slice(content);
    }

    /// Loses what was not synced, as chance has it.
    fn crash(&mut self, random: &dyn Random) {
        for (sector, former) in std::mem::take(&mut self.former) {
            // One of these, what it is now, or torn.
            match random.below(former.len() as u64 + 2) as usize {
                chosen if chosen < former.len() => match &former[chosen] {
                    Some(bytes) => self.sector(sector).copy_from_slice(bytes),
                    None => _ = self.lost_sectors.insert(sector),
                },
                chosen if chosen == former.len() => (),
                _ => _ = self.lost_sectors.insert(sector),
            }
        }
    }

    fn lost_in(&self, range: ByteRange) -> impl Iterator<Item = u64> {
        let sector_bytes = u64::from(SECTOR_BYTES);
        let last = if range.bytes == 0 { range.offset / sector_bytes } else { (range.end() - 1) / sector_bytes + 1 };
        self.lost_sectors.range(range.offset / sector_bytes..last).copied()
    }
}

#[async_trait]
impl ChunkStore for MemoryStore {
    fn disk(&self) -> DiskId {
        self.shared.disk
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        assert!(bytes > 0, "a chunk has at least one byte");
        let mut inner = self.writable()?;
        if inner.chunks.contains_key(&id) || !inner.writing.insert(id) {
            return Err(ChunkError::AlreadyExists { id });
        }
        let boot = inner.boot;
        Ok(Box::new(MemoryWriter { store: self.clone(), boot, id, bytes_total: bytes, bytes: Vec::new() }))
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        let inner = self.readable()?;
        let chunk = inner.chunk(id)?;
        let mut lost = BTreeSet::new();
        for range in ranges {
            chunk.check(id, *range)?;
            lost.extend(chunk.lost_in(*range));
        }
        if !lost.is_empty() {
            return Err(ChunkError::SectorsLost { id, sectors: lost.into_iter().collect() });
        }
        let slice = |range: &ByteRange| &chunk.bytes[range.offset as usize..range.end() as usize];
        Ok(ranges.iter().map(|range| Bytes::copy_from_slice(slice(range))).collect())
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        let mut guard = self.writable()?;
        let inner = &mut *guard;
        let owner = inner.owners.entry(lease.owner).or_default();
        if let Some(fenced) = owner.fenced_above(lease) {
            return Err(ChunkError::Fenced { lease, fenced });
        }
        owner.refuse_below(lease.term);
        let chunk = inner.chunks.get_mut(&id).ok_or(ChunkError::NotFound { id })?;
        for change in changes {
            change.check(id, chunk.bytes.len() as u64)?;
        }
        for change in changes {
            let sectors = change.offset / u64::from(SECTOR_BYTES)..;
            for (sector, content) in sectors.zip(change.bytes.chunks(SECTOR_BYTES as usize)) {
                chunk.overwrite(sector, content);
            }
        }
        Ok(())
    }

    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        let inner = self.readable()?;
        let chunk = inner.chunk(id)?;
        Ok(ChunkInfo { bytes: chunk.bytes.len() as u64 })
    }

    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError> {
        let inner = self.readable()?;
        let chunk = inner.chunk(id)?;
        Ok(Verdict {
            info: ChunkInfo { bytes: chunk.bytes.len() as u64 },
            bytes_read: chunk.bytes.len() as u64,
            lost_sectors: chunk.lost_sectors.iter().copied().collect(),
        })
    }

    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        let mut inner = self.writable()?;
        if let Some(chunk) = inner.chunks.remove(&id) {
            inner.used_bytes -= chunk.bytes.len() as u64;
            inner.buffered.remove(&id);
        }
        Ok(())
    }

    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError> {
        let inner = self.readable()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(inner.chunks.range((from, Bound::Unbounded)).take(limit).map(|(id, _)| *id).collect())
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        let mut inner = self.writable()?;
        inner.buffered.clear();
        inner.chunks.values_mut().for_each(|chunk| chunk.former.clear());
        Ok(())
    }

    async fn space(&self) -> Result<Space, ChunkError> {
        let inner = self.readable()?;
        Ok(Space {
            total_bytes: inner.capacity_bytes,
            free_bytes: inner.capacity_bytes.saturating_sub(inner.used_bytes),
        })
    }

    fn segments(&self) -> &dyn SegmentStore {
        &self.segments
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn state(&self) -> StoreState {
        self.lock().state.clone()
    }

    fn sectors(&self) -> Option<SectorHealth> {
        self.lock().health
    }
}

struct MemoryWriter {
    store: MemoryStore,
    boot: u64,
    id: ChunkId,
    bytes_total: u64,
    bytes: Vec<u8>,
}

#[async_trait]
impl ChunkWriter for MemoryWriter {
    async fn append(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        let range = ByteRange { offset: self.bytes.len() as u64, bytes: bytes.len() as u64 };
        if range.end() > self.bytes_total {
            return Err(ChunkError::OutOfRange { id: self.id, range, chunk_bytes: self.bytes_total });
        }
        let inner = self.writable()?;
        let free_bytes = inner.capacity_bytes.saturating_sub(inner.used_bytes);
        if self.bytes_total > free_bytes {
            return Err(ChunkError::DiskFull {
                disk: self.store.shared.disk,
                needed_bytes: self.bytes_total,
                free_bytes,
            });
        }
        drop(inner);
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn commit(mut self: Box<Self>, durability: Durability) -> Result<(), ChunkError> {
        let have = self.bytes.len() as u64;
        if have < self.bytes_total {
            let range = ByteRange { offset: have, bytes: self.bytes_total - have };
            return Err(ChunkError::OutOfRange { id: self.id, range, chunk_bytes: have });
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut inner = self.writable()?;
        let free_bytes = inner.capacity_bytes.saturating_sub(inner.used_bytes);
        if have > free_bytes {
            return Err(ChunkError::DiskFull { disk: self.store.shared.disk, needed_bytes: have, free_bytes });
        }
        inner.used_bytes += have;
        if durability == Durability::Buffered {
            inner.buffered.insert(self.id);
        }
        inner.chunks.insert(self.id, Chunk { bytes, lost_sectors: BTreeSet::new(), former: BTreeMap::new() });
        Ok(())
    }
}

impl MemoryWriter {
    fn writable(&self) -> Result<MutexGuard<'_, Inner>, ChunkError> {
        let inner = self.store.writable()?;
        if inner.boot != self.boot {
            return Err(self.store.unavailable("the store was opened anew".to_owned()));
        }
        Ok(inner)
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        let mut inner = self.store.lock();
        if inner.boot == self.boot {
            inner.writing.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use claystone_sim::SimRandom;

    use crate::testing::{Faults, FaultyStore, Reopen, conformance, pattern, put, segments};
    use crate::{SegmentError, SegmentId, Term};

    fn store() -> MemoryStore {
        MemoryStore::new(DiskId(1))
    }

    fn chunk(number: u128) -> ChunkId {
        format!("{number:032x}.0.0").parse().expect("an id")
    }

    #[tokio::test]
    async fn the_reference_conforms() {
        conformance(|| async { Arc::new(store()) as Arc<dyn ChunkStore> }).await;
    }

    struct Crashing {
        memory: MemoryStore,
        store: Arc<dyn ChunkStore>,
        random: SimRandom,
    }

    #[async_trait(?Send)]
    impl Reopen for Crashing {
        fn store(&self) -> &dyn ChunkStore {
            &*self.store
        }

        async fn reopen(&mut self) {
            self.memory.crash(&self.random);
        }
    }

    #[tokio::test]
    async fn the_reference_keeps_segments() {
        for seed in 0..20 {
            let make = |number: &mut u64| {
                *number += 1;
                let memory = MemoryStore::with_capacity(DiskId(1), 32 << 20);
                let random = SimRandom::new(seed * 1000 + *number);
                Crashing { store: Arc::new(memory.clone()), memory, random }
            };
            let mut number = 0;
            segments(|| std::future::ready(make(&mut number))).await;
        }
    }

    #[test]
    fn a_wrapper_without_faults_changes_nothing() {
        claystone_sim::run(1, |world| async move {
            segments(|| {
                let memory = MemoryStore::with_capacity(DiskId(1), 32 << 20);
                let store = FaultyStore::new(Arc::new(memory.clone()), world.clock());
                std::future::ready(Crashing { memory, store: Arc::new(store), random: SimRandom::new(1) })
            })
            .await;
        });
    }

    #[test]
    fn faults_meet_segments_too() {
        claystone_sim::run(1, |world| async move {
            let store = FaultyStore::new(Arc::new(store()), world.clock());
            let lease = Lease { owner: OwnerId(1), term: Term(1) };
            let id = SegmentId { owner: lease.owner, number: 1 };
            let range = [ByteRange { offset: 0, bytes: 10 }];
            store.segments().create_segment(1, lease, 100).await.expect("create");
            let failing = Some("gone".to_owned());
            let unavailable = SegmentError::Unavailable { disk: DiskId(1), reason: "gone".to_owned() };
            store.set(Faults { writes_fail: failing.clone(), ..Faults::default() });
            assert_eq!(store.segments().append(1, lease, 0, pattern(1, 10)).await, Err(unavailable.clone()));
            store.set(Faults { reads_fail: failing, ..Faults::default() });
            store.segments().append(1, lease, 0, pattern(1, 10)).await.expect("only reads fail");
            assert_eq!(store.segments().read_segment(id, &range).await, Err(unavailable));
            store.set(Faults { fail_after: Some(1), ..Faults::default() });
            assert!(store.segments().read_segment(id, &range).await.expect("the last one")[0] == pattern(1, 10));
            store.segments().sync_segment(1, lease).await.expect_err("the one behind");
            assert_eq!(store.counts().bytes_written, 10);
        });
    }

    #[tokio::test]
    async fn a_full_store_refuses_and_recovers() {
        let store = MemoryStore::with_capacity(DiskId(1), 1000);
        put(&store, chunk(1), pattern(1, 600)).await.expect("put");
        let full = ChunkError::DiskFull { disk: DiskId(1), needed_bytes: 600, free_bytes: 400 };
        assert_eq!(put(&store, chunk(2), pattern(1, 600)).await, Err(full));
        store.delete(chunk(1)).await.expect("delete");
        put(&store, chunk(2), pattern(1, 600)).await.expect("put");
    }

    #[tokio::test]
    async fn segments_take_the_space_reserved_for_them() {
        let store = MemoryStore::with_capacity(DiskId(1), 1000);
        let lease = Lease { owner: OwnerId(1), term: Term(1) };
        store.segments().create_segment(1, lease, 600).await.expect("create");
        let full = SegmentError::DiskFull { disk: DiskId(1), needed_bytes: 401, free_bytes: 400 };
        assert_eq!(store.segments().create_segment(2, lease, 401).await, Err(full));
        put(&store, chunk(1), pattern(1, 400)).await.expect("put");
        store.segments().append(1, lease, 0, pattern(1, 600)).await.expect("it was reserved");
        store.segments().delete_segment(1, lease).await.expect("delete");
        assert_eq!(store.space().await.expect("space").free_bytes, 600);
        store.segments().create_segment(2, lease, 500).await.expect("create");
        store.segments().forget_owner(lease).await.expect("forget");
        assert_eq!(store.space().await.expect("space").free_bytes, 600);
    }

    #[tokio::test]
    async fn lost_sectors_are_named_and_mended_by_overwriting() {
        let store = store();
        put(&store, chunk(1), pattern(1, 10_000)).await.expect("put");
        store.lose_sector(chunk(1), 1);
        let lost = ChunkError::SectorsLost { id: chunk(1), sectors: vec![1] };
        let all = [ByteRange { offset: 0, bytes: 10_000 }];
        assert_eq!(store.read(chunk(1), &all).await, Err(lost));
        assert!(store.read(chunk(1), &[ByteRange { offset: 0, bytes: 4096 }]).await.is_ok());
        assert!(store.read(chunk(1), &[ByteRange { offset: 8192, bytes: 1 }]).await.is_ok());
        let lease = Lease { owner: OwnerId(1), term: Term(1) };
        let change = [Overwrite { offset: 4096, bytes: pattern(2, 4096) }];
        store.overwrite(chunk(1), lease, &change).await.expect("mends");
        assert!(store.read(chunk(1), &all).await.is_ok());
    }

    #[tokio::test]
    async fn a_crash_leaves_overwritten_sectors_old_new_or_lost_and_the_others_alone() {
        let lease = Lease { owner: OwnerId(1), term: Term(1) };
        let range = |sector: u64| [ByteRange { offset: sector * 4096, bytes: 4096.min(9000 - sector * 4096) }];
        let (mut old, mut middle, mut new, mut lost) = (0, 0, 0, 0);
        for seed in 0..100 {
            let store = store();
            put(&store, chunk(1), pattern(1, 9000)).await.expect("put");
            let change = |seed| [Overwrite { offset: 8192, bytes: pattern(seed, 808) }];
            for seed in [2, 3] {
                store.overwrite(chunk(1), lease, &change(seed)).await.expect("overwrite");
            }
            store.crash(&SimRandom::new(seed));
            for sector in [0, 1] {
                let from = sector as usize * 4096;
                assert!(
                    store.read(chunk(1), &range(sector)).await.expect("alone")[0]
                        == pattern(1, 9000)[from..from + 4096]
                );
            }
            match store.read(chunk(1), &range(2)).await {
                Ok(read) if read[0] == pattern(1, 9000)[8192..] => old += 1,
                Ok(read) if read[0] == pattern(2, 808) => middle += 1,
                Ok(read) if read[0] == pattern(3, 808) => new += 1,
                Err(ChunkError::SectorsLost { .. }) => lost += 1,
                other => panic!("{other:?}"),
            }
            store.overwrite(chunk(1), lease, &change(4)).await.expect("again");
            store.sync().await.expect("sync");
            store.crash(&SimRandom::new(seed));
            assert!(store.read(chunk(1), &range(2)).await.expect("synced")[0] == pattern(4, 808));
        }
        assert!(old > 9 && middle > 9 && new > 9 && lost > 9, "{old} old, {middle}, {new} new, {lost} lost");
    }
}
