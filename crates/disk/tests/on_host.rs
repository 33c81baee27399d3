//! The store on a real directory.

#![allow(clippy::disallowed_methods, reason = "damages the files of a real directory behind the store's back")]

use std::sync::Arc;

use claystone_chunk::testing::{conformance, pattern, put};
use claystone_chunk::{ChunkError, ChunkId, ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, OpenError, Options, format, read_identity};
use claystone_env::{Directory, Env, WallTime};
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

#[tokio::test]
async fn a_chunk_outlives_its_store() {
    let disk = Disk::formatted().await;
    let content = pattern(1, 3 << 20);
    put(&disk.open().await.expect("open"), chunk(1), content.clone()).await.expect("put");
    let store = disk.open().await.expect("open again");
    let all = claystone_chunk::ByteRange { offset: 0, bytes: 3 << 20 };
    assert!(store.read(chunk(1), None, &[all]).await.expect("read")[0] == content);
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
