//! The store on a real directory.

#![allow(clippy::disallowed_methods, reason = "damages the files of a real directory behind the store's back")]

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use claystone_chunk::testing::{Reopen, conformance, pattern, put, segments};
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkStore, DiskId, Durability, Lease, NodeId, Overwrite, OwnerId, SegmentError,
    SegmentId, Term,
};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, OpenError, Options, format, read_identity};
use claystone_env::{Directory, DirectoryLock, Env, File, Space, WallTime};
use claystone_host::{HostDirectory, ThreadWorker};

const EXPECTED: Expected = Expected { cluster: ClusterId(7), disk: DiskId(1) };

fn identity() -> Identity {
    let node = NodeId("node-1".to_owned());
    Identity { disk: EXPECTED.disk, cluster: EXPECTED.cluster, node, created: WallTime { unix_ms: 1 } }
}

fn options() -> Options {
    Options { reserve_bytes: Some(0), ..Options::default() }
}

struct Disk {
    root: tempfile::TempDir,
    env: Env,
    worker: Arc<ThreadWorker>,
}

impl Disk {
    fn new() -> Disk {
        Disk {
            root: tempfile::tempdir().expect("a temporary directory"),
            env: claystone_host::env().expect("an environment"),
            worker: Arc::new(ThreadWorker::start("disk", 3).expect("threads")),
        }
    }

    fn directory(&self) -> Arc<dyn Directory> {
        Arc::new(HostDirectory::new(self.root.path()))
    }

    async fn formatted() -> Disk {
        let disk = Disk::new();
        format(&*disk.worker, disk.directory(), identity()).await.expect("format");
        disk
    }

    async fn open(&self) -> Result<DirectoryStore, OpenError> {
        self.expect(EXPECTED).await
    }

    async fn expect(&self, expected: Expected) -> Result<DirectoryStore, OpenError> {
        DirectoryStore::open(&self.env, self.directory(), self.worker.clone(), expected, options()).await
    }
}

fn chunk(number: u128) -> ChunkId {
    format!("{number:032x}.0.0").parse().expect("an id")
}

/// Bytes that the files of chunks take.
fn chunks_bytes(disk: &Disk) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let of = |directory: &std::path::Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path()).collect()
    };
    let files = of(&disk.root.path().join("chunks")).into_iter().flat_map(|directory| of(&directory));
    files.map(|file| std::fs::metadata(file).expect("there").blocks() * 512).sum()
}

#[tokio::test]
async fn a_chunk_of_zeros_takes_its_space_when_it_is_overwritten() {
    const BYTES: usize = 3 << 20;
    let lease = Lease { owner: OwnerId(1), term: Term(1) };
    for is_filled in [false, true] {
        let disk = Disk::formatted().await;
        let store = disk.open().await.expect("open");
        put(&store, chunk(1), vec![0; BYTES].into()).await.expect("put");
        assert!(chunks_bytes(&disk) <= 16 << 10, "{}", chunks_bytes(&disk));
        let zeros = Overwrite { offset: 8192, bytes: vec![0; 65536].into() };
        store.overwrite(chunk(1), lease, &[zeros]).await.expect("overwritten");
        assert!(chunks_bytes(&disk) <= 16 << 10, "zeros are what it has: {}", chunks_bytes(&disk));
        drop(store);
        let store = disk.open().await.expect("open");
        if is_filled {
            store.take_space(chunk(1)).await.expect("filled");
        } else {
            let change = Overwrite { offset: 1 << 20, bytes: pattern(1, 4096) };
            store.overwrite(chunk(1), lease, &[change]).await.expect("overwritten");
        }
        assert!(chunks_bytes(&disk) >= BYTES as u64, "{}", chunks_bytes(&disk));
        store.sync().await.expect("synced");
        assert_eq!(store.verify(chunk(1)).await.expect("verified").lost_sectors, [0; 0]);
        assert_eq!(store.info(chunk(1)).await.expect("there").bytes, BYTES as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    let mut disks = Vec::new();
    for _ in 0..20 {
        disks.push(Disk::formatted().await);
    }
    let mut next = disks.iter();
    conformance(|| {
        let disk = next.next().expect("as many disks as checks");
        async move { Arc::new(disk.open().await.expect("open")) as Arc<dyn ChunkStore> }
    })
    .await;
}

struct Served {
    disk: Disk,
    store: Option<DirectoryStore>,
}

#[async_trait(?Send)]
impl Reopen for Served {
    fn store(&self) -> &dyn ChunkStore {
        self.store.as_ref().expect("open")
    }

    async fn reopen(&mut self) {
        self.store = None;
        self.store = Some(self.disk.open().await.expect("open"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_segments() {
    segments(|| async {
        let disk = Disk::formatted().await;
        let store = Some(disk.open().await.expect("open"));
        Served { disk, store }
    })
    .await;
}

#[tokio::test]
async fn a_chunk_outlives_its_store() {
    let disk = Disk::formatted().await;
    let content = pattern(1, 3 << 20);
    put(&disk.open().await.expect("open"), chunk(1), content.clone()).await.expect("put");
    let store = disk.open().await.expect("open again");
    let all = claystone_chunk::ByteRange { offset: 0, bytes: 3 << 20 };
    assert!(store.read(chunk(1), &[all]).await.expect("read")[0] == content);
    assert_eq!(store.list(None, 10).await, Ok(vec![chunk(1)]));
}

#[tokio::test]
async fn one_disk_is_served_once() {
    let disk = Disk::formatted().await;
    let _store = disk.open().await.expect("open");
    let error = disk.open().await.expect_err("locked");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
}

#[tokio::test]
async fn a_wrong_place_is_named() {
    let disk = Disk::new();
    assert_eq!(read_identity(&*disk.worker, disk.directory()).await.expect("empty is no error"), None);
    let error = disk.open().await.expect_err("empty");
    assert!(matches!(error, OpenError::Empty { .. }), "{error}");
    format(&*disk.worker, disk.directory(), identity()).await.expect("format");
    assert_eq!(read_identity(&*disk.worker, disk.directory()).await.expect("formatted"), Some(identity()));
    let error = format(&*disk.worker, disk.directory(), identity()).await.expect_err("formatted");
    assert!(matches!(error, OpenError::AlreadyADisk { disk: DiskId(1), .. }), "{error}");
    let error = disk.expect(Expected { disk: DiskId(2), ..EXPECTED }).await.expect_err("swapped");
    assert!(matches!(error, OpenError::OtherDisk { found: DiskId(1), .. }), "{error}");
    let error = disk.expect(Expected { cluster: ClusterId(8), ..EXPECTED }).await.expect_err("foreign");
    assert!(matches!(error, OpenError::ForeignCluster { found: ClusterId(7), .. }), "{error}");
    disk.directory().remove("claystone.disk").expect("remove");
    let error = disk.open().await.expect_err("no identity");
    assert!(matches!(error, OpenError::NotADisk { .. }), "{error}");
    let gone: Arc<dyn Directory> = Arc::new(HostDirectory::new(disk.root.path().join("absent")));
    let error = read_identity(&*disk.worker, gone).await.expect_err("absent");
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_with_files_is_not_formatted() {
    let disk = Disk::new();
    disk.directory().create("holiday.jpg").expect("create");
    let error = format(&*disk.worker, disk.directory(), identity()).await.expect_err("not empty");
    assert!(matches!(&error, OpenError::NotEmpty { name, .. } if name == "holiday.jpg"), "{error}");
    let error = read_identity(&*disk.worker, disk.directory()).await.expect_err("not a disk");
    assert!(matches!(error, OpenError::NotADisk { .. }), "{error}");
}

#[tokio::test]
async fn a_disk_that_is_taken_away_is_failed_not_empty() {
    let disk = Disk::formatted().await;
    let store = disk.open().await.expect("open");
    put(&store, chunk(1), pattern(1, 100)).await.expect("put");
    let moved = tempfile::tempdir().expect("a temporary directory");
    std::fs::rename(disk.root.path(), moved.path().join("disk")).expect("move");
    let error = store.info(chunk(1)).await.expect_err("gone");
    assert!(matches!(error, ChunkError::Unavailable { .. }), "{error}");
    assert!(matches!(store.state(), claystone_chunk::StoreState::Failed { .. }));
    std::fs::rename(moved.path().join("disk"), disk.root.path()).expect("move back");
    store.info(chunk(1)).await.expect_err("not trusted until opened anew");
    drop(store);
    disk.open().await.expect("open").info(chunk(1)).await.expect("still there");
}

#[tokio::test]
async fn a_removed_chunk_directory_comes_back() {
    let disk = Disk::formatted().await;
    let store = disk.open().await.expect("open");
    std::fs::remove_dir_all(disk.root.path().join("chunks")).expect("remove");
    put(&store, chunk(0x2a), pattern(1, 100)).await.expect("put");
    assert_eq!(store.list(None, 10).await, Ok(vec![chunk(0x2a)]));
}

/// A directory whose files are slow to write while it is told so.
struct Slow {
    inner: HostDirectory,
    hand: Arc<Hand>,
}

/// Holds one write, or one sync, until a call that must wait for it has returned, or for long enough that it would have.
#[derive(Default)]
struct Hand {
    holds_write: AtomicBool,
    /// One that fills a spare.
    holds_spare: AtomicBool,
    holds_sync: AtomicBool,
    entered: AtomicBool,
    returned: AtomicBool,
    returned_meanwhile: AtomicBool,
    /// Whether what is held waits for the other to return, whatever that takes.
    is_patient: AtomicBool,
    /// Syncs that were announced.
    prepared: AtomicU32,
    /// Writes that filled spares, and were done.
    filled: AtomicU32,
    /// What the system was told of bytes that are written over.
    expected: Mutex<Vec<Range<u64>>>,
}

impl Hand {
    fn hold(&self, holds: &AtomicBool) {
        if holds.swap(false, Ordering::SeqCst) {
            self.entered.store(true, Ordering::SeqCst);
            let patience_ms = if self.is_patient.load(Ordering::SeqCst) { 20_000 } else { 100 };
            for _ in 0..patience_ms {
                if self.returned.load(Ordering::SeqCst) {
                    self.returned_meanwhile.store(true, Ordering::SeqCst);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    async fn is_entered(&self) {
        while !self.entered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }
}

struct SlowFile {
    inner: Arc<dyn File>,
    hand: Arc<Hand>,
    /// It was opened as a spare: made beside everything else, it is not what a test means to hold.
    is_spare: bool,
}

impl Slow {
    fn slowed(&self, inner: Arc<dyn File>, path: &str) -> Arc<dyn File> {
        Arc::new(SlowFile { inner, hand: self.hand.clone(), is_spare: path.starts_with("segments/spare.") })
    }
}

impl Directory for Slow {
    fn label(&self) -> String {
        self.inner.label()
    }
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.inner.create(path).map(|file| self.slowed(file, path))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.inner.open(path).map(|file| self.slowed(file, path))
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.inner.make_dir(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }
    fn favours_overwriting(&self) -> bool {
        true
    }
    fn prepare_sync(&self) {
        self.hand.prepared.fetch_add(1, Ordering::SeqCst);
        self.inner.prepare_sync();
    }
    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }
    fn lock(&self) -> io::Result<DirectoryLock> {
        self.inner.lock()
    }
}

impl File for SlowFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.is_spare {
            self.hand.hold(&self.hand.holds_write);
        }
        self.inner.write_at(offset, bytes)
    }
    fn write_around(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.is_spare {
            return self.write_at(offset, bytes);
        }
        self.hand.hold(&self.hand.holds_spare);
        let written = self.inner.write_around(offset, bytes);
        self.hand.filled.fetch_add(1, Ordering::SeqCst);
        written
    }
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.inner.reserve(bytes)
    }
    fn sync(&self) -> io::Result<()> {
        if !self.is_spare {
            self.hand.hold(&self.hand.holds_sync);
        }
        self.inner.sync()
    }
    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }
    fn expect_overwriting(&self, offset: u64, bytes: u64) {
        self.hand.expected.lock().expect("no panic").push(offset..offset + bytes);
        self.inner.expect_overwriting(offset, bytes);
    }
}

/// What a system keeps in memory of files of segments. As with the common file systems, what a failed sync could not write is taken for
/// written: it is read as before, no later sync writes it, and it is gone with the memory.
#[derive(Default)]
struct Memory {
    next_sync_fails: AtomicBool,
    files: Mutex<BTreeMap<String, Arc<Mutex<Pages>>>>,
}

#[derive(Default)]
struct Pages {
    content: Option<Vec<u8>>,
    is_dirty: bool,
}

struct Remembering {
    inner: HostDirectory,
    memory: Arc<Memory>,
}

struct RememberingFile {
    inner: Arc<dyn File>,
    pages: Arc<Mutex<Pages>>,
    memory: Arc<Memory>,
}

impl Memory {
    fn pages(&self, path: &str) -> Arc<Mutex<Pages>> {
        self.files.lock().expect("no panic").entry(path.to_owned()).or_default().clone()
    }

    fn lose_power(&self) {
        self.files
            .lock()
            .expect("no panic")
            .values()
            .for_each(|pages| *pages.lock().expect("no panic") = Pages::default());
    }
}

impl Remembering {
    fn file(&self, inner: Arc<dyn File>, path: &str) -> Arc<dyn File> {
        if !path.starts_with("segments/") {
            return inner;
        }
        Arc::new(RememberingFile { inner, pages: self.memory.pages(path), memory: self.memory.clone() })
    }
}

impl Directory for Remembering {
    fn label(&self) -> String {
        self.inner.label()
    }
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.inner.create(path).map(|file| self.file(file, path))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.inner.open(path).map(|file| self.file(file, path))
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.inner.make_dir(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let pages = self.memory.pages(from);
        self.memory.files.lock().expect("no panic").insert(to.to_owned(), pages);
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }
    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }
    fn lock(&self) -> io::Result<DirectoryLock> {
        self.inner.lock()
    }
}

impl File for RememberingFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.pages.lock().expect("no panic").content {
            Some(content) => {
                let range = offset as usize..offset as usize + into.len();
                into.copy_from_slice(content.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            None => self.inner.read_at(offset, into),
        }
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.lock().expect("no panic");
        let mut content = pages.content.take().map_or_else(
            || {
                let mut content = vec![0; self.inner.bytes()? as usize];
                self.inner.read_at(0, &mut content).map(|()| content)
            },
            Ok,
        )?;
        let end = offset as usize + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(bytes);
        *pages = Pages { content: Some(content), is_dirty: true };
        Ok(())
    }
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.inner.reserve(bytes)?;
        if let Some(content) = &mut self.pages.lock().expect("no panic").content {
            content.resize(content.len().max(bytes as usize), 0);
        }
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        let mut pages = self.pages.lock().expect("no panic");
        if !std::mem::take(&mut pages.is_dirty) {
            return self.inner.sync();
        }
        if self.memory.next_sync_fails.swap(false, Ordering::SeqCst) {
            return Err(io::Error::other("a medium that took nothing for a moment"));
        }
        self.inner.write_at(0, pages.content.as_ref().expect("it is dirty"))?;
        self.inner.sync()
    }
    fn bytes(&self) -> io::Result<u64> {
        let known = self.pages.lock().expect("no panic").content.as_ref().map(|content| content.len() as u64);
        known.map_or_else(|| self.inner.bytes(), Ok)
    }
    fn forget_cache(&self) {
        let mut pages = self.pages.lock().expect("no panic");
        if !pages.is_dirty {
            pages.content = None;
        }
    }
}

/// What a sync that failed left in memory is not read by who fences after that, as if the medium had it.
#[tokio::test]
async fn what_a_failed_sync_did_not_write_is_gone_for_whoever_fences() {
    let disk = Disk::formatted().await;
    let memory = Arc::new(Memory::default());
    let open = async || {
        let directory = Remembering { inner: HostDirectory::new(disk.root.path()), memory: memory.clone() };
        let directory = Arc::new(directory);
        DirectoryStore::open(&disk.env, directory, disk.worker.clone(), EXPECTED, options()).await.expect("open")
    };
    let id = SegmentId { owner: OwnerId(1), number: 1 };
    let parts = [ByteRange { offset: 0, bytes: 5000 }, ByteRange { offset: 5000, bytes: 5000 }];
    let store = open().await;
    let segments = store.segments();
    segments.create_segment(1, lease(1), 100_000).await.expect("create");
    segments.append(1, lease(1), 0, pattern(1, 5000)).await.expect("append");
    segments.sync_segment(1, lease(1)).await.expect("synced");
    segments.append(1, lease(1), 5000, pattern(2, 5000)).await.expect("append");
    memory.next_sync_fails.store(true, Ordering::SeqCst);
    segments.sync_segment(1, lease(1)).await.expect_err("the medium did not take it");
    drop(store);

    let store = open().await;
    let segments = store.segments();
    segments.fence(lease(2)).await.expect("fence");
    let read = segments.read_segment(id, &parts).await.expect("readable");
    segments.sync_segment(1, lease(2)).await.expect("there is nothing to write");
    drop(store);
    memory.lose_power();
    let store = open().await;
    assert_eq!(store.segments().read_segment(id, &parts).await.expect("readable"), read);
    assert_eq!(read[0], pattern(1, 5000), "what was synced stays");
    assert_ne!(read[1], pattern(2, 5000));
}

async fn slow_store(disk: &Disk) -> (Arc<DirectoryStore>, Arc<Hand>) {
    let hand = Arc::new(Hand::default());
    let directory = Arc::new(Slow { inner: HostDirectory::new(disk.root.path()), hand: hand.clone() });
    let store = DirectoryStore::open(&disk.env, directory, disk.worker.clone(), EXPECTED, options());
    (Arc::new(store.await.expect("open")), hand)
}

fn lease(term: u64) -> Lease {
    Lease { owner: OwnerId(1), term: Term(term) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_waits_for_the_change_of_a_lesser_term_that_is_under_way() {
    for overwrites in [false, true] {
        let disk = Disk::formatted().await;
        let (store, hand) = slow_store(&disk).await;
        store.segments().create_segment(1, lease(1), 1000).await.expect("create");
        put(&*store, chunk(1), pattern(1, 5000)).await.expect("put");
        hand.holds_write.store(true, Ordering::SeqCst);
        let old = tokio::spawn({
            let store = store.clone();
            let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
            async move {
                if overwrites {
                    store.overwrite(chunk(1), lease(1), &change).await.expect("it came before the fence");
                } else {
                    let appended = store.segments().append(1, lease(1), 0, pattern(1, 100)).await;
                    appended.expect("it came before the fence");
                }
            }
        });
        hand.is_entered().await;
        store.segments().fence(lease(2)).await.expect("fence");
        hand.returned.store(true, Ordering::SeqCst);
        old.await.expect("task");
        assert!(!hand.returned_meanwhile.load(Ordering::SeqCst), "the fence returned while a change was under way");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_waits_for_the_one_that_has_taken_what_it_shall_sync() {
    let disk = Disk::formatted().await;
    let (store, hand) = slow_store(&disk).await;
    put(&*store, chunk(1), pattern(1, 5000)).await.expect("put");
    let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
    store.overwrite(chunk(1), lease(1), &change).await.expect("overwrite");
    hand.holds_sync.store(true, Ordering::SeqCst);
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.sync().await }
    });
    hand.is_entered().await;
    store.sync().await.expect("sync");
    hand.returned.store(true, Ordering::SeqCst);
    first.await.expect("task").expect("sync");
    assert!(!hand.returned_meanwhile.load(Ordering::SeqCst), "a sync returned before the overwrite was durable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_the_overwrite_that_is_under_way() {
    let disk = Disk::formatted().await;
    let (store, hand) = slow_store(&disk).await;
    put(&*store, chunk(1), pattern(1, 5000)).await.expect("put");
    hand.holds_write.store(true, Ordering::SeqCst);
    let writing = tokio::spawn({
        let store = store.clone();
        let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
        async move { store.overwrite(chunk(1), lease(1), &change).await }
    });
    hand.is_entered().await;
    let range = [claystone_chunk::ByteRange { offset: 0, bytes: 4096 }];
    assert!(store.read(chunk(1), &range).await.expect("read")[0] == pattern(2, 4096));
    hand.returned.store(true, Ordering::SeqCst);
    writing.await.expect("task").expect("overwrite");
    assert!(!hand.returned_meanwhile.load(Ordering::SeqCst), "a read came in between");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_of_the_same_term_waits_for_no_sync() {
    let disk = Disk::formatted().await;
    let (store, hand) = slow_store(&disk).await;
    store.segments().fence(lease(1)).await.expect("fence");
    store.segments().create_segment(1, lease(1), 1000).await.expect("create");
    store.segments().append(1, lease(1), 0, pattern(1, 100)).await.expect("append");
    hand.is_patient.store(true, Ordering::SeqCst);
    hand.holds_sync.store(true, Ordering::SeqCst);
    let syncing = tokio::spawn({
        let store = store.clone();
        async move { store.segments().sync_segment(1, lease(1)).await }
    });
    hand.is_entered().await;
    store.segments().fence(lease(1)).await.expect("fence");
    hand.returned.store(true, Ordering::SeqCst);
    syncing.await.expect("task").expect("sync");
    assert!(hand.returned_meanwhile.load(Ordering::SeqCst), "it waited for the sync");
    store.segments().fence(lease(2)).await.expect("fence");
    let former = store.segments().fence(lease(1)).await;
    assert!(matches!(former, Err(SegmentError::Fenced { .. })), "{former:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_a_segment_that_somebody_is_at_is_not_used_again() {
    const BYTES: u64 = 16 * 4096;
    for syncs in [false, true] {
        let disk = Disk::formatted().await;
        let (store, hand) = slow_store(&disk).await;
        let segments = store.segments();
        let spares = || {
            let entries = std::fs::read_dir(disk.root.path().join("segments")).expect("a directory");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            names.filter(|name| name.to_string_lossy().starts_with("spare.")).count()
        };
        segments.create_segment(1, lease(1), BYTES).await.expect("create");
        // All but what is appended late.
        segments.append(1, lease(1), 0, pattern(1, 8192)).await.expect("append");
        segments.append(1, lease(1), 12288, pattern(1, BYTES as usize - 12288)).await.expect("append");
        if syncs {
            segments.append(1, lease(1), 8192, pattern(1, 4096)).await.expect("append");
        }
        segments.create_segment(2, lease(1), BYTES).await.expect("create");
        segments.append(2, lease(1), 0, pattern(2, BYTES as usize)).await.expect("append");
        // Those that are made by themselves are there.
        while spares() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        hand.is_patient.store(true, Ordering::SeqCst);
        let holds = if syncs { &hand.holds_sync } else { &hand.holds_write };
        holds.store(true, Ordering::SeqCst);
        let late = tokio::spawn({
            let store = store.clone();
            async move {
                match syncs {
                    true => store.segments().sync_segment(1, lease(1)).await,
                    false => store.segments().append(1, lease(1), 8192, pattern(1, 4096)).await,
                }
            }
        });
        hand.is_entered().await;
        segments.delete_segment(1, lease(1)).await.expect("delete");
        assert_eq!(spares(), 2, "it was removed");
        segments.delete_segment(2, lease(1)).await.expect("delete");
        assert_eq!(spares(), 3, "and one that nobody is at was kept");
        hand.returned.store(true, Ordering::SeqCst);
        late.await.expect("task").expect("what was asked before");
        assert!(hand.returned_meanwhile.load(Ordering::SeqCst), "it was under way");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_system_is_told_ahead_of_appends_what_of_a_spare_is_written_over() {
    const MIB: u64 = 1 << 20;
    const BYTES: u64 = 5 * MIB;
    let disk = Disk::formatted().await;
    let (store, hand) = slow_store(&disk).await;
    let segments = store.segments();
    let expected = || hand.expected.lock().expect("no panic").clone();
    let fill = async |number| {
        for step in 0..BYTES / (MIB / 2) {
            let offset = step * (MIB / 2);
            segments.append(number, lease(1), offset, pattern(step, MIB as usize / 2)).await.expect("append");
            let told = expected().last().map_or(0, |range| range.end);
            // The content begins a page behind the file's start.
            let next = (offset + MIB).min(BYTES) + 4096;
            assert!(number == 1 || (next..next + 3 * MIB).contains(&told), "{told} after an append at {offset}");
        }
    };
    segments.create_segment(1, lease(1), BYTES).await.expect("create");
    fill(1).await;
    assert_eq!(expected(), [], "it was not written before");
    segments.delete_segment(1, lease(1)).await.expect("delete");
    segments.create_segment(2, lease(1), BYTES).await.expect("create");
    let mut next = 4096;
    assert_eq!((expected().len(), expected().pop()), (1, Some(next..next + 2 * MIB)), "at once");
    fill(2).await;
    for range in expected() {
        assert_eq!(range.start, next, "each byte once");
        next = range.end;
    }
}

/// A step of making a spare is late, and the next segment asks for another step meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_of_zeros_meets_no_segment() {
    const BYTES: u64 = 16 * 4096;
    let disk = Disk::formatted().await;
    let (store, hand) = slow_store(&disk).await;
    let segments = store.segments();
    hand.is_patient.store(true, Ordering::SeqCst);
    hand.holds_spare.store(true, Ordering::SeqCst);
    segments.create_segment(1, lease(1), BYTES).await.expect("create");
    hand.is_entered().await;
    segments.create_segment(2, lease(1), BYTES).await.expect("create");
    // Long enough for the other step, if there were one.
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for number in 3..6 {
        segments.create_segment(number, lease(1), BYTES).await.expect("create");
        segments.append(number, lease(1), 0, pattern(number, BYTES as usize)).await.expect("append");
    }
    let filled = hand.filled.load(Ordering::SeqCst);
    hand.returned.store(true, Ordering::SeqCst);
    while hand.filled.load(Ordering::SeqCst) == filled {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for number in 3..6 {
        let range = [claystone_chunk::ByteRange { offset: 0, bytes: BYTES }];
        let id = SegmentId { owner: OwnerId(1), number };
        let read = segments.read_segment(id, &range).await.expect("read");
        assert!(read[0] == pattern(number, BYTES as usize), "segment {number} has zeros");
    }
    assert_eq!(filled, 0, "another step was under way at the same time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_of_overwrites_makes_the_file_system_sync_nothing_else() {
    let disk = Disk::formatted().await;
    let (store, hand) = slow_store(&disk).await;
    let prepared = || hand.prepared.swap(0, Ordering::SeqCst);
    for number in 1..=3 {
        put(&*store, chunk(number), pattern(1, 5000)).await.expect("put");
    }
    store.sync().await.expect("sync");
    prepared();
    for number in 1..=3 {
        let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
        store.overwrite(chunk(number), lease(1), &change).await.expect("overwrite");
    }
    store.sync().await.expect("sync");
    assert_eq!(prepared(), 0);
    for number in 4..=5 {
        let mut writer = store.create(chunk(number), 5000).await.expect("create");
        writer.append(pattern(1, 5000)).await.expect("append");
        writer.commit(Durability::Buffered).await.expect("commit");
    }
    store.sync().await.expect("sync");
    assert_eq!(prepared(), 1, "new files are one commit of the journal");
}
