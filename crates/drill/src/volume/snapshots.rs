//! Snapshots and clones of the drill's volume, and what they hold.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_volume::{Blocks, Durable, SnapshotName, VolumeError, joined};

use super::{Drill, NAME, PAGE_BYTES, PAGES, PageModel, content, held, lock};

/// What was kept of the volume.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// What each page of a snapshot may hold; when it was read once, that and nothing else.
    snapshots: BTreeMap<String, Vec<BTreeSet<u64>>>,
    /// Volumes that were made of snapshots.
    pub(super) clones: BTreeMap<String, PageModel>,
    made: u64,
    pub(super) taken: u64,
    pub(super) cloned: u64,
}

impl Kept {
    /// The process died. Snapshots stay what they are.
    pub(super) fn crashed(&mut self) {
        self.clones.values_mut().for_each(PageModel::crashed);
    }

    fn pick(&self, number: u64) -> Option<String> {
        self.snapshots.keys().nth(number as usize % self.snapshots.len().max(1)).cloned()
    }
}

fn name_of(snapshot: &str) -> SnapshotName {
    SnapshotName { volume: NAME.to_owned(), snapshot: snapshot.to_owned() }
}

impl Drill {
    /// Takes a snapshot while writers write: each page is what it was before, or any write that began since.
    pub(super) async fn take_snapshot(&mut self) {
        if self.kept.snapshots.len() == SNAPSHOTS_MAX {
            return;
        }
        self.kept.made += 1;
        let name = format!("s{}", self.kept.made);
        let then = lock(&self.model).flushing();
        let taken = self.cluster.running.volumes.take_snapshot(&name_of(&name)).await;
        // What waits cannot be merged now, or the volume failed: then there is none.
        if taken.is_ok() {
            self.kept.taken += 1;
            self.kept.snapshots.insert(name, lock(&self.model).since(then));
        }
    }

    /// Every page of every snapshot holds what it may, and what it held before.
    pub(super) async fn check_snapshots(&mut self) -> Result<()> {
        let volumes = &self.cluster.running.volumes;
        let found = volumes.snapshots().await.context("listing snapshots")?;
        let found: Vec<&str> = found.iter().map(|snapshot| &snapshot.record.name[..]).collect();
        let known: BTreeSet<&str> = self.kept.snapshots.keys().map(String::as_str).collect();
        anyhow::ensure!(BTreeSet::from_iter(found.iter().copied()) == known, "{found:?} are not {known:?}");
        for (name, pages) in &mut self.kept.snapshots {
            let snapshot = volumes.open_snapshot(&name_of(name)).await.context("opening a snapshot")?;
            let all = ByteRange { offset: 0, bytes: PAGES * PAGE_BYTES };
            let read = snapshot.read(all).await.with_context(|| format!("reading the snapshot {name}"))?;
            for (page, found) in joined(read).chunks_exact(PAGE_BYTES as usize).enumerate() {
                let held = held(&pages[page], found).with_context(|| format!("page {page} of the snapshot {name}"))?;
                pages[page] = BTreeSet::from([held]);
            }
        }
        Ok(())
    }

    /// Clones, writes to clones, goes back, deletes. All snapshots were read, and nobody writes.
    pub(super) async fn use_snapshots(&mut self) -> Result<()> {
        let Some(name) = self.kept.pick(self.random.below(SNAPSHOTS_MAX as u64)) else { return Ok(()) };
        let volumes = self.cluster.running.volumes.clone();
        let seeds = |pages: &[BTreeSet<u64>]| pages.iter().filter_map(BTreeSet::first).copied().collect::<Vec<u64>>();
        match self.random.below(6) {
            0 if self.kept.clones.len() < CLONES_MAX => {
                self.kept.cloned += 1;
                let clone = format!("clone{}", self.kept.cloned);
                volumes.clone_snapshot(&name_of(&name), &clone).await.context("cloning")?;
                let seeds = seeds(&self.kept.snapshots[&name]);
                self.kept.clones.insert(clone, PageModel::holding(seeds.into_iter()));
            }
            1 => {
                volumes.revert(&name_of(&name)).await.context("reverting")?;
                *lock(&self.model) = PageModel::holding(seeds(&self.kept.snapshots[&name]).into_iter());
            }
            2 => {
                volumes.delete_snapshot(&name_of(&name)).await.context("deleting a snapshot")?;
                self.kept.snapshots.remove(&name);
            }
            3 => {
                if let Some(clone) = self.kept.clones.keys().next().cloned() {
                    volumes.delete(&clone).await.context("deleting a clone")?;
                    self.kept.clones.remove(&clone);
                }
            }
            _ => {}
        }
        self.write_clones().await
    }

    /// A few writes to every clone, and a merge.
    async fn write_clones(&mut self) -> Result<()> {
        for (name, model) in &mut self.kept.clones {
            let volume = match self.cluster.running.volumes.open(name).await {
                Ok(volume) => volume,
                // It opens when its disks are back; the next check says so.
                Err(VolumeError::LogAbsent { .. } | VolumeError::Log(_)) => continue,
                Err(error) => return Err(error).context("opening a clone to write it"),
            };
            for _ in 0..self.random.below(8) {
                let page = self.random.below(PAGES);
                self.next_content += 1;
                let seed = self.next_content;
                model.begin(page as usize, seed);
                let content: Bytes = content(seed);
                if volume.write(page * PAGE_BYTES, content, Durable::WithFlush).await.is_ok() {
                    model.end(page as usize, seed);
                }
            }
            // What it cannot merge now stays where it is.
            drop(volume.merge_once(1 + self.random.below(200)).await);
        }
        Ok(())
    }
}

const SNAPSHOTS_MAX: usize = 4;
const CLONES_MAX: usize = 2;
