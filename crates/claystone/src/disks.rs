//! From paths to the disks of a store.
//!
//! What is at a path, and what becomes of it:
//!
//! ```text
//! first start   empty            -> formatted and added; so is an empty disk on a device or an image
//!               ours             -> added (an earlier first start was cut short)
//!               anything else    -> the start is refused: nothing foreign is ever formatted
//! later starts  the known disk   -> opened
//!               another known one-> each is opened where it was found, and its record learns the path
//!               anything else    -> the known disk is absent, with the reason; the store starts without it
//! ```
//!
//! Invariants:
//! 1. Only an empty directory is formatted, and only for a disk that a person asked for.
//! 2. A disk is known by the identity written on it; its path is a hint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use claystone_chunk::{ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, OpenError, Options, format, read_identity};
use claystone_env::{Directory, Env, Space};
use claystone_host::ThreadWorker;
use claystone_meta::{DiskRecord, DiskState, Meta};
use claystone_stripe::{Absence, Member};
use futures::future::{join_all, try_join_all};

use crate::roots::{Resting, Roots};
use crate::tending::Care;

/// Opens and formats the disks of one cluster.
#[derive(Clone)]
pub struct Disks {
    env: Env,
    cluster: ClusterId,
    options: Options,
    roots: Roots,
}

/// A disk that a person asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its directory; or a device or an image with a disk made by `claystone disk format`.
    pub path: PathBuf,
    /// Its failure domain.
    pub node: NodeId,
}

impl Disks {
    /// Disks of this cluster; those on devices are cared for so.
    pub fn new(env: Env, cluster: ClusterId, options: Options, care: Care) -> Disks {
        let roots = Roots::new(env.clone(), care);
        Disks { env, cluster, options, roots }
    }

    /// Formats an empty directory (or takes one that is already a disk of this cluster) and records it.
    ///
    /// # Errors
    /// It cannot be made or written, or there is something in it.
    pub async fn add(&self, meta: &dyn Meta, wanted: &Wanted) -> anyhow::Result<DiskRecord> {
        self.add_all(meta, std::slice::from_ref(wanted)).await.map(|mut records| records.remove(0))
    }

    /// As [`Disks::add`] for several disks at once; recorded in their order.
    ///
    /// # Errors
    /// As [`Disks::add`] for the first that fails; those before it are recorded.
    pub async fn add_all(&self, meta: &dyn Meta, wanted: &[Wanted]) -> anyhow::Result<Vec<DiskRecord>> {
        let prepared = try_join_all(wanted.iter().map(|wanted| self.prepare(wanted))).await?;
        let known = meta.disks().await?;
        for record in &prepared {
            if let Some(known) = known.iter().find(|known| known.id == record.id) {
                bail!("{} is already disk {} of this store", record.path, known.id);
            }
            meta.put_disk(record.clone()).await?;
        }
        Ok(prepared)
    }

    /// Brings all that is on devices to its place: for the end of the program. Returns those of two drives, which rest when nobody uses
    /// the disk any more.
    pub async fn rest(&self) -> Vec<Resting> {
        self.roots.rest().await
    }

    /// A disk of this cluster at a path, not yet recorded.
    async fn prepare(&self, wanted: &Wanted) -> anyhow::Result<DiskRecord> {
        let path = &wanted.path;
        let directory = self.roots.make(path).with_context(|| format!("the disk {} cannot be made", path.display()))?;
        let worker = ThreadWorker::start("format", 1)?;
        let identity = match read_identity(&worker, directory.clone()).await.map_err(told)? {
            Some(found) if found.cluster == self.cluster => found,
            Some(found) => bail!(
                "{} is a disk of another store (cluster {}): name an empty directory, or start that store",
                path.display(),
                found.cluster
            ),
            None => {
                let identity = Identity {
                    disk: DiskId::new(&*self.env.random),
                    cluster: self.cluster,
                    node: wanted.node.clone(),
                    created: self.env.clock.wall(),
                };
                format(&worker, directory, identity.clone()).await.map_err(told)?;
                identity
            }
        };
        Ok(DiskRecord {
            id: identity.disk,
            node: wanted.node.clone(),
            path: path.display().to_string(),
            state: DiskState::Active,
            added: self.env.clock.wall(),
        })
    }

    /// Opens every known disk where it is found.
    ///
    /// # Errors
    /// The records cannot be written.
    pub async fn open_all(
        &self,
        meta: &dyn Meta,
        known: Vec<DiskRecord>,
        elsewhere: &[PathBuf],
    ) -> anyhow::Result<Vec<Member>> {
        // A device that was closed meanwhile would have to read anew what memory knew of it.
        let (found, _open) =
            self.find(known.iter().map(|record| PathBuf::from(&record.path)).chain(elsewhere.iter().cloned())).await;
        for path in elsewhere {
            let known =
                known.iter().any(|record| found.get(&record.id) == Some(path) || Path::new(&record.path) == path);
            if !known {
                let path = path.display();
                tracing::warn!(
                    "{path} is no disk of this store and is left alone: add it with `claystone disk add {path}`"
                );
            }
        }
        let mut members = Vec::new();
        let mut opening = Vec::new();
        for mut record in known {
            if matches!(record.state, DiskState::Lost | DiskState::Removed) {
                let reason = "it was given up: its chunks are rebuilt elsewhere".to_owned();
                members.push(Member { record, store: Err(Absence { reason }), space: Space::default() });
                continue;
            }
            if let Some(path) = found.get(&record.id).filter(|path| **path != Path::new(&record.path)) {
                tracing::info!(disk = %record.id, from = record.path, to = %path.display(), "a disk has moved");
                record.path = path.display().to_string();
                meta.put_disk(record.clone()).await?;
            }
            opening.push(self.open(record));
        }
        members.extend(join_all(opening).await);
        Ok(members)
    }

    /// Opens one disk at its recorded path; a disk that cannot be opened is absent, with the reason.
    pub async fn open(&self, record: DiskRecord) -> Member {
        match self.try_open(&record).await {
            Ok(store) => {
                let space = store.space().await.unwrap_or_default();
                Member { record, store: Ok(Arc::new(store)), space }
            }
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::warn!(disk = %record.id, path = record.path, reason, "a disk is absent");
                Member { record, store: Err(Absence { reason }), space: Space::default() }
            }
        }
    }

    async fn try_open(&self, record: &DiskRecord) -> anyhow::Result<DirectoryStore> {
        let directory = self.roots.open(Path::new(&record.path))?;
        let worker = Arc::new(ThreadWorker::start("disk", DISK_THREADS)?);
        let expected = Expected { cluster: self.cluster, disk: record.id };
        DirectoryStore::open(&self.env, directory, worker, expected, self.options.clone()).await.map_err(told)
    }

    /// The disks of this cluster below these paths, and their directories. What cannot be read is left out: opening it says why.
    async fn find(&self, paths: impl Iterator<Item = PathBuf>) -> (BTreeMap<DiskId, PathBuf>, Vec<Arc<dyn Directory>>) {
        let (mut found, mut open) = (BTreeMap::new(), Vec::new());
        let Ok(worker) = ThreadWorker::start("find", 1) else { return (found, open) };
        for path in paths {
            if let Ok(directory) = self.roots.open(&path)
                && let Ok(Some(identity)) = read_identity(&worker, directory.clone()).await
                && identity.cluster == self.cluster
            {
                found.entry(identity.disk).or_insert(path);
                open.push(directory);
            }
        }
        (found, open)
    }
}

/// The cluster of a disk that the records know, read from the disk itself.
pub async fn cluster_of(env: &Env, records: &[DiskRecord]) -> Option<ClusterId> {
    let roots = Roots::new(env.clone(), Care::default());
    let worker = ThreadWorker::start("find", 1).ok()?;
    for record in records {
        if let Ok(directory) = roots.open(Path::new(&record.path))
            && let Ok(Some(identity)) = read_identity(&worker, directory).await
            && identity.disk == record.id
        {
            return Some(identity.cluster);
        }
    }
    None
}

/// The disks that a new store begins with.
///
/// # Errors
/// There are not as many nodes as disks.
pub fn first_disks(directory: &Path, paths: &[PathBuf], nodes: &[String]) -> anyhow::Result<Vec<Wanted>> {
    let paths = match paths {
        [] => (1..=DEFAULT_DISKS).map(|number| directory.join(format!("disk{number}"))).collect(),
        paths => paths.to_vec(),
    };
    if !nodes.is_empty() && nodes.len() != paths.len() {
        return Err(anyhow!(
            "nodes names {} failure domains for {} disks: give one for each",
            nodes.len(),
            paths.len()
        ));
    }
    let node = |number: usize| NodeId(nodes.get(number).cloned().unwrap_or_else(|| DEFAULT_NODE.to_owned()));
    Ok(paths.into_iter().enumerate().map(|(number, path)| Wanted { path, node: node(number) }).collect())
}

/// With the system's words behind it: the crate keeps them in the source.
fn told(error: OpenError) -> anyhow::Error {
    anyhow::Error::from(error)
}

/// The node of disks for which nobody named one.
pub const DEFAULT_NODE: &str = "local";
const DEFAULT_DISKS: usize = 6;
/// Threads for each disk: one that waits for a sync does not hold up a read.
const DISK_THREADS: usize = 4;

#[cfg(test)]
mod tests {
    use claystone_files::{Disk, FileTree, Format, Inode, Kind, NewNode, Tuning};
    use claystone_host::env;
    use claystone_meta::{DiskRecords, SqliteMeta};

    use super::*;
    use crate::drives::{Drive, Opening};
    use crate::emulation;

    struct Scratch {
        directory: tempfile::TempDir,
        meta: SqliteMeta,
        disks: Disks,
    }

    async fn scratch() -> Scratch {
        let env = env().expect("an environment");
        let worker = Arc::new(ThreadWorker::start("meta", 1).expect("a thread"));
        let meta = SqliteMeta::in_memory(worker).await.expect("a database");
        let disks = Disks::new(env, ClusterId(7), Options::default(), Care::default());
        Scratch { directory: tempfile::tempdir().expect("a directory"), meta, disks }
    }

    impl Scratch {
        fn wanted(&self, name: &str) -> Wanted {
            Wanted { path: self.directory.path().join(name), node: NodeId("local".to_owned()) }
        }

        async fn open_all(&self) -> Vec<Member> {
            let known = self.meta.disks().await.expect("records");
            self.disks.open_all(&self.meta, known, &[]).await.expect("opened")
        }
    }

    fn reason(member: &Member) -> String {
        member.store.as_ref().expect_err("absent").reason.clone()
    }

    #[tokio::test]
    async fn only_empty_directories_are_formatted() {
        let scratch = scratch().await;
        let full = scratch.wanted("full");
        std::fs::create_dir(&full.path).expect("made");
        std::fs::write(full.path.join("photo"), b"x").expect("written");
        let error = format!("{:#}", scratch.disks.add(&scratch.meta, &full).await.expect_err("not empty"));
        assert!(error.contains("not a Claystone disk"), "{error}");
        assert_eq!(std::fs::read_dir(&full.path).expect("listed").count(), 1);

        let foreign = Disks::new(scratch.disks.env.clone(), ClusterId(8), Options::default(), Care::default());
        foreign.add(&scratch.meta, &scratch.wanted("theirs")).await.expect("theirs");
        let error = scratch.disks.add(&scratch.meta, &scratch.wanted("theirs")).await.expect_err("foreign");
        assert!(error.to_string().contains("another store"), "{error}");
    }

    #[tokio::test]
    async fn swapped_disks_are_found_at_each_other_s_path() {
        let scratch = scratch().await;
        let (one, two) = (scratch.wanted("one"), scratch.wanted("two"));
        let first = scratch.disks.add(&scratch.meta, &one).await.expect("added");
        scratch.disks.add(&scratch.meta, &two).await.expect("added");
        let beside = scratch.directory.path().join("beside");
        for (from, to) in [(&one.path, &beside), (&two.path, &one.path), (&beside, &two.path)] {
            std::fs::rename(from, to).expect("renamed");
        }
        let members = scratch.open_all().await;
        assert!(members.iter().all(Member::readable));
        let known = scratch.meta.disks().await.expect("records");
        let moved = known.iter().find(|record| record.id == first.id).expect("known");
        assert_eq!(Path::new(&moved.path), two.path);
    }

    #[tokio::test]
    async fn a_missing_or_emptied_disk_is_absent_with_a_reason() {
        let scratch = scratch().await;
        for name in ["gone", "emptied", "fine"] {
            scratch.disks.add(&scratch.meta, &scratch.wanted(name)).await.expect("added");
        }
        std::fs::remove_dir_all(scratch.wanted("gone").path).expect("removed");
        std::fs::remove_dir_all(scratch.wanted("emptied").path).expect("removed");
        std::fs::create_dir(scratch.wanted("emptied").path).expect("made");
        let members = scratch.open_all().await;
        let of = |name: &str| {
            let path = scratch.wanted(name).path.display().to_string();
            members.iter().find(|member| member.record.path == path).expect("known")
        };
        assert!(of("fine").writable());
        assert!(reason(of("gone")).contains("is it mounted"), "{}", reason(of("gone")));
        assert!(reason(of("emptied")).contains("is empty"), "{}", reason(of("emptied")));
        assert_eq!(std::fs::read_dir(scratch.wanted("emptied").path).expect("listed").count(), 0);
    }

    /// The sector of an image that has sums of swaths, as last kept.
    fn kept(image: &Path) -> Vec<u8> {
        let bytes = std::fs::read(image).expect("read");
        let mut sectors = bytes.chunks_exact(4096).filter(|sector| sector.starts_with(b"CLAYSWTH"));
        let stamp =
            |sector: &&[u8]| u64::from_le_bytes(sector[16..24].try_into().expect("eight bytes")).rotate_right(20);
        let newest = sectors.by_ref().max_by_key(stamp).expect("some were kept");
        newest.to_vec()
    }

    #[tokio::test]
    async fn what_memory_knew_of_a_hard_disk_outlasts_a_restart() {
        let scratch = scratch().await;
        let wanted = scratch.wanted("image");
        let image = std::fs::File::create(&wanted.path).expect("made");
        image.set_len(256 << 20).expect("made longer");
        emulation::keep(&wanted.path, "synthetic-small").expect("kept");
        let clock = scratch.disks.env.clock.clone();
        let open = || {
            let drive = Drive::open(&wanted.path, &Opening::default(), clock.clone(), |device| device).expect("opened");
            Disk::open(drive.device, clock.clone(), Tuning::default()).expect("opened")
        };
        {
            let drive = Drive::open(&wanted.path, &Opening::default(), clock.clone(), |device| device).expect("opened");
            let format =
                Format { data: 50, parity: 2, copies: 2, soft_failures: 1e-4, loss_target: 1e-6, label: String::new() };
            Disk::format(&drive.device, &format, &*clock, &*scratch.disks.env.random).expect("formatted");
        }
        scratch.disks.add(&scratch.meta, &wanted).await.expect("added");
        let disk = open();
        let node =
            NewNode { kind: Kind::File, permissions: 0o600, owner: 0, owner_group: 0, device: 0, target: Vec::new() };
        let file = disk.make(Inode::ROOT, b"f", &node).expect("made").inode;
        disk.write(file, 0, &vec![7; 2000 * 4096]).expect("written");
        disk.close().expect("closed");
        let before = kept(&wanted.path);
        let members = scratch.open_all().await;
        assert!(members.iter().all(Member::readable));
        drop(scratch.disks.rest().await);
        let after = kept(&wanted.path);
        assert_ne!(before[16..24], after[16..24], "they are kept anew");
        assert_eq!(before[24..], after[24..], "and are the same");
    }

    #[test]
    fn six_disks_below_the_directory_by_default() {
        let disks = first_disks(Path::new("/s"), &[], &[]).expect("fine");
        assert_eq!(disks.len(), 6);
        assert_eq!(disks[5].path, Path::new("/s/disk6"));
        first_disks(Path::new("/s"), &[PathBuf::from("/a")], &["x".to_owned(), "y".to_owned()]).expect_err("too many");
    }
}
