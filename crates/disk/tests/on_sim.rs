//! The store on a simulated disk: power cuts at every operation, failures of every operation, damage of every byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::{conformance, pattern, put};
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkStore, DiskId, Durability, Lease, NodeId, Overwrite, OwnerId, SegmentError,
    StoreState, Term,
};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, OpenError, Options, format, read_identity};
use claystone_env::WallTime;
use claystone_sim::{DiskModel, Fault, Process, SimDisk, World, run};

const EXPECTED: Expected = Expected { cluster: ClusterId(7), disk: DiskId(1) };
const LEASE: Lease = Lease { owner: OwnerId(1), term: Term(1) };
const OPTIONS: Options = Options { reserve_bytes: Some(0), sync_interval: Duration::from_secs(1) };

fn identity() -> Identity {
    let node = NodeId("node-1".to_owned());
    Identity { disk: EXPECTED.disk, cluster: EXPECTED.cluster, node, created: WallTime { unix_ms: 1 } }
}

fn chunk(number: u128) -> ChunkId {
    format!("{number:032x}.0.0").parse().expect("an id")
}

fn path(id: ChunkId) -> String {
    format!("chunks/{:02x}/{id}", id.stripe.0 & 0xff)
}

fn all(bytes: usize) -> [ByteRange; 1] {
    [ByteRange { offset: 0, bytes: bytes as u64 }]
}

/// A disk and the process that serves it.
struct Served {
    world: World,
    disk: SimDisk,
    process: Process,
}

impl Served {
    async fn format(world: World) -> Served {
        let disk = world.disk("d", DiskModel::ssd(256 << 20));
        let process = world.process("p");
        let served = Served { world, disk, process };
        served.try_format().await.expect("format");
        served
    }

    async fn try_format(&self) -> Result<(), OpenError> {
        format(&*self.process.worker(&self.disk), self.disk.attach(), identity()).await
    }

    async fn try_open(&self) -> Result<DirectoryStore, OpenError> {
        let worker = self.process.worker(&self.disk);
        DirectoryStore::open(self.process.env(), self.disk.attach(), worker, EXPECTED, OPTIONS).await
    }

    async fn open(&self) -> DirectoryStore {
        self.try_open().await.expect("open")
    }

    /// Kill -9 and power cut in one.
    fn crash(&mut self) {
        self.process.kill();
        self.disk.crash();
        self.process = self.world.process("p");
    }
}

#[test]
fn conforms() {
    run(1, |world| async move {
        let mut number = 0;
        conformance(|| {
            number += 1;
            let disk = world.disk(&format!("d{number}"), DiskModel::ssd(256 << 20));
            let process = world.process(&format!("p{number}"));
            let world = world.clone();
            async move {
                let served = Served { world, disk, process };
                served.try_format().await.expect("format");
                Arc::new(served.open().await) as Arc<dyn ChunkStore>
            }
        })
        .await;
    });
}

#[test]
fn an_opening_waits_a_moment_for_who_lets_the_disk_go() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let clock = served.world.clock();
        let lock = served.disk.attach().lock().expect("nobody has it");
        let lets_go = async {
            clock.sleep(Duration::from_millis(100)).await;
            drop(lock);
        };
        let (opened, ()) = futures::join!(served.try_open(), lets_go);
        let store = opened.expect("it was let go");
        assert!(matches!(served.try_open().await, Err(OpenError::InUse { .. })), "this one is not");
        drop(store);
    });
}

// ---- Power cuts and failures at every operation ----

/// What is done while power goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Commit { bytes: usize },
    Delete { bytes: usize },
    OverwriteThenDelete { bytes: usize },
    CommitBuffered { bytes: usize },
}

const DEEDS: [Deed; 7] = [
    Deed::Commit { bytes: 1000 },
    Deed::Commit { bytes: 9000 },
    Deed::Commit { bytes: (1 << 20) + 5 },
    Deed::CommitBuffered { bytes: 5000 },
    Deed::Delete { bytes: 1000 },
    Deed::Delete { bytes: 9000 },
    Deed::OverwriteThenDelete { bytes: 9000 },
];

/// The chunk that a deed is about.
fn subject() -> ChunkId {
    chunk(0x142)
}

impl Deed {
    fn bytes(self) -> usize {
        match self {
            Deed::Commit { bytes }
            | Deed::Delete { bytes }
            | Deed::OverwriteThenDelete { bytes }
            | Deed::CommitBuffered { bytes } => bytes,
        }
    }

    fn content(self) -> Bytes {
        pattern(9, self.bytes())
    }

    fn change(self) -> Overwrite {
        Overwrite { offset: 0, bytes: pattern(20, 4096) }
    }

    fn exists_before(self) -> bool {
        !matches!(self, Deed::Commit { .. } | Deed::CommitBuffered { .. })
    }

    /// Does it; returns how many steps were acknowledged.
    async fn act(self, store: &DirectoryStore) -> u64 {
        let id = subject();
        let steps: Vec<Result<(), ChunkError>> = match self {
            Deed::Commit { .. } => vec![put(store, id, self.content()).await],
            Deed::CommitBuffered { .. } => {
                vec![self.commit_buffered(store).await, store.sync().await]
            }
            Deed::Delete { .. } => vec![store.delete(id).await],
            Deed::OverwriteThenDelete { .. } => {
                let first = store.overwrite(id, LEASE, &[self.change()]).await;
                vec![first, store.delete(id).await]
            }
        };
        steps.iter().take_while(|step| step.is_ok()).count() as u64
    }

    async fn commit_buffered(self, store: &DirectoryStore) -> Result<(), ChunkError> {
        let mut writer = store.create(subject(), self.bytes() as u64).await?;
        writer.append(self.content()).await?;
        writer.commit(Durability::Buffered).await
    }

    /// Checks what is left after a crash.
    async fn check(self, store: &DirectoryStore, acknowledged: u64, context: &str) {
        let id = subject();
        let bytes = self.bytes();
        let info = store.info(id).await;
        let durable = match self {
            Deed::Commit { .. } => acknowledged == 1,
            // The sync was acknowledged.
            Deed::CommitBuffered { .. } => acknowledged == 2,
            // A removal may be there at any time after it was asked for, and need not be.
            Deed::Delete { .. } | Deed::OverwriteThenDelete { .. } => false,
        };
        let info = match info {
            Ok(info) => info,
            Err(ChunkError::NotFound { .. }) if !durable => return,
            Err(error) => panic!("{error} {context}"),
        };
        assert_eq!(info.bytes, bytes as u64, "{context}");
        let old = self.content();
        let mut new = old.to_vec();
        if let Deed::OverwriteThenDelete { .. } = self {
            new[..4096].copy_from_slice(&self.change().bytes);
        }
        // What may be lost: all of a commit that was never acknowledged; of an overwrite that was not synced, its sector.
        let may_be_lost = |sector: u64| match self {
            Deed::OverwriteThenDelete { .. } => sector == 0,
            _ => !durable && !self.exists_before(),
        };
        for sector in 0..bytes.div_ceil(4096) as u64 {
            let from = sector * 4096;
            let range = ByteRange { offset: from, bytes: 4096.min(bytes as u64 - from) };
            let part = from as usize..range.end() as usize;
            match store.read(id, &[range]).await {
                Ok(buffers) => {
                    assert!(buffers[0] == old[part.clone()] || buffers[0] == new[part], "wrong bytes {context}");
                }
                Err(ChunkError::SectorsLost { .. }) if may_be_lost(sector) => (),
                Err(error) => panic!("{error} {context}"),
            }
        }
    }
}

/// Chunks that no deed touches.
const BYSTANDERS: [(u128, usize); 3] = [(0x42, 700), (0x43, 4096), (0x242, 12_345)];

async fn put_bystanders(store: &DirectoryStore) {
    for (number, bytes) in BYSTANDERS {
        put(store, chunk(number), pattern(number as u64, bytes)).await.expect("put");
    }
}

async fn check_bystanders(store: &DirectoryStore, context: &str) {
    for (number, bytes) in BYSTANDERS {
        let buffers = store.read(chunk(number), &all(bytes)).await;
        let buffers = buffers.unwrap_or_else(|error| panic!("{error} {context}"));
        assert!(buffers[0] == pattern(number as u64, bytes), "bystander {number:x} {context}");
    }
}

/// The store is as good as new: all it has is listed and can be deleted, and new chunks can be written.
async fn check_usable(disk: &SimDisk, store: &DirectoryStore, context: &str) {
    assert_eq!(store.state(), StoreState::Serving, "{context}");
    let listed = store.list(None, 100).await.expect("list");
    let on_disk: Vec<String> = disk.files().into_iter().filter(|file| file.starts_with("chunks/")).collect();
    let mut of_list: Vec<String> = listed.iter().map(|id| path(*id)).collect();
    of_list.sort();
    assert_eq!(of_list, on_disk, "{context}");
    put(store, chunk(0x342), pattern(1, 5000)).await.expect("put");
    if !listed.contains(&subject()) || store.info(subject()).await.is_err() {
        // A remnant does not hold its name.
        put(store, subject(), pattern(3, 3000)).await.unwrap_or_else(|error| panic!("{error} {context}"));
        assert!(store.read(subject(), &all(3000)).await.expect("read")[0] == pattern(3, 3000));
    }
    for id in store.list(None, 100).await.expect("list") {
        store.delete(id).await.expect("delete");
    }
    assert!(disk.files().iter().all(|file| !file.starts_with("chunks/")), "{context}");
}

async fn begin(world: World, deed: Deed) -> (Served, DirectoryStore) {
    let served = Served::format(world).await;
    let store = served.open().await;
    put_bystanders(&store).await;
    if deed.exists_before() {
        put(&store, subject(), deed.content()).await.expect("put");
    }
    (served, store)
}

/// Returns whether power went.
fn cut_during(deed: Deed, operation: u64, seed: u64) -> bool {
    run(seed, |world| async move {
        let context = format!("({deed:?}, power cut at operation {operation}, seed {seed})");
        let (mut served, store) = begin(world, deed).await;
        served.disk.cut_power_after(operation);
        let acknowledged = deed.act(&store).await;
        let cut = !served.disk.is_powered();
        served.crash();
        drop(store);
        let store = served.open().await;
        check_bystanders(&store, &context).await;
        deed.check(&store, acknowledged, &context).await;
        check_usable(&served.disk, &store, &context).await;
        cut
    })
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    for deed in DEEDS {
        let mut operation = 0;
        while (0..6).fold(false, |cut, seed| cut_during(deed, operation, operation * 100 + seed) | cut) {
            operation += 1;
        }
        assert!(operation > 0, "{deed:?} has operations");
    }
}

/// Returns whether the failure happened.
fn fail_during(deed: Deed, operation: u64, fault: Fault, seed: u64) -> bool {
    run(seed, |world| async move {
        let context = format!("({deed:?}, {fault:?} at operation {operation}, seed {seed})");
        let (mut served, store) = begin(world, deed).await;
        served.disk.fail_after(operation, fault);
        let acknowledged = deed.act(&store).await;
        // If it did not come, it will not come any more.
        let happened = served.disk.spare_faults();
        match store.state() {
            StoreState::Failed { .. } => {
                let refused = store.read(chunk(0x42), &all(700)).await;
                assert!(matches!(refused, Err(ChunkError::Unavailable { .. })), "{context}");
            }
            StoreState::Serving => {
                check_bystanders(&store, &context).await;
                deed.check(&store, acknowledged, &context).await;
            }
            StoreState::ReadOnly { reason } => panic!("read-only: {reason} {context}"),
        }
        // The same without power cut: all that was written is there.
        served.process.kill();
        served.process = served.world.process("p");
        drop(store);
        // Killed tasks let go of the disk when they are run next.
        served.world.clock().sleep(Duration::from_secs(1)).await;
        let store = served.open().await;
        check_bystanders(&store, &context).await;
        deed.check(&store, acknowledged, &context).await;
        check_usable(&served.disk, &store, &context).await;
        happened
    })
}

#[test]
fn a_failure_of_any_operation_loses_nothing_acknowledged() {
    for deed in DEEDS {
        for fault in [Fault::Medium, Fault::NoSpace] {
            let mut operation = 0;
            while fail_during(deed, operation, fault, operation) {
                operation += 1;
            }
            assert!(operation > 0, "{deed:?} has operations");
        }
    }
}

#[test]
fn a_power_cut_while_formatting_can_be_formatted_again() {
    // Every operation of the beginning and of the end; all the directories in between are alike.
    let total = run(1, |world| async move { Served::format(world).await.disk.stats().operations });
    for operation in (0..20).chain(total - 12..total) {
        for seed in 0..4 {
            run(seed, |world| async move {
                let disk = world.disk("d", DiskModel::ssd(1 << 20));
                let process = world.process("p");
                let mut served = Served { world, disk, process };
                served.disk.cut_power_after(operation);
                let formatted = served.try_format().await;
                served.crash();
                let worker = served.process.worker(&served.disk);
                match read_identity(&*worker, served.disk.attach()).await {
                    Ok(Some(found)) => assert_eq!(found, identity()),
                    Ok(None) | Err(OpenError::NotADisk { .. }) => {
                        assert!(formatted.is_err(), "formatting was acknowledged, operation {operation}");
                        served.try_format().await.expect("formats again");
                    }
                    Err(error) => panic!("{error}, operation {operation}"),
                }
                let store = served.open().await;
                put(&store, chunk(1), pattern(1, 100)).await.expect("put");
            });
        }
    }
}

// ---- Damage at rest ----

/// A store with one chunk, whose file is replaced by each of `variants`.
fn damaged(bytes: usize, variants: impl Fn(&[u8]) -> Vec<Vec<u8>>, check: impl Fn(usize, Damage)) {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        let content = pattern(1, bytes);
        put(&store, chunk(1), content.clone()).await.expect("put");
        let file = served.disk.content(&path(chunk(1)));
        for (number, variant) in variants(&file).into_iter().enumerate() {
            served.disk.set_content(&path(chunk(1)), variant);
            let read = store.read(chunk(1), &all(bytes)).await;
            let verdict = store.verify(chunk(1)).await;
            match read {
                Ok(buffers) => {
                    assert!(buffers[0] == content, "wrong bytes, variant {number}");
                    assert_eq!(verdict.expect("readable").lost_sectors, vec![]);
                    check(number, Damage::None);
                }
                Err(ChunkError::SectorsLost { sectors, .. }) => {
                    assert_eq!(verdict.expect("readable").lost_sectors, sectors);
                    for sector in 0..bytes.div_ceil(4096) as u64 {
                        let from = sector * 4096;
                        let range = ByteRange { offset: from, bytes: 4096.min(bytes as u64 - from) };
                        match store.read(chunk(1), &[range]).await {
                            Ok(buffers) => assert!(buffers[0] == content[from as usize..range.end() as usize]),
                            Err(error) => assert!(sectors.contains(&sector), "{error}"),
                        }
                    }
                    check(number, Damage::Sectors(sectors));
                }
                Err(error @ (ChunkError::ChunkLost { .. } | ChunkError::NotFound { .. })) => {
                    assert_eq!(verdict, Err(error.clone()));
                    assert_eq!(store.info(chunk(1)).await, Err(error));
                    check(number, Damage::Whole);
                }
                Err(error) => panic!("{error}, variant {number}"),
            }
            assert_eq!(store.state(), StoreState::Serving);
        }
        // However damaged, it can be deleted.
        assert_eq!(store.list(None, 10).await, Ok(vec![chunk(1)]));
        store.delete(chunk(1)).await.expect("delete");
        assert_eq!(store.list(None, 10).await, Ok(vec![]));
    });
}

#[derive(Debug, PartialEq)]
enum Damage {
    None,
    Sectors(Vec<u64>),
    Whole,
}

#[test]
fn a_flip_in_any_byte_of_a_packed_file_is_seen() {
    let flips = |file: &[u8]| {
        let flip = |at: usize| {
            let mut variant = file.to_vec();
            variant[at] ^= 0x10;
            variant
        };
        (0..file.len()).map(flip).collect()
    };
    damaged(300, flips, |at, damage| match at {
        0..64 => assert_eq!(damage, Damage::Whole, "byte {at}"),
        _ => assert_eq!(damage, Damage::Sectors(vec![0]), "byte {at}"),
    });
}

#[test]
fn a_flip_in_an_aligned_file_loses_the_sector_it_is_in() {
    // Header and table wholly, the gap and the content here and there.
    let places = || (0..80).chain((80..4096).step_by(97)).chain((4096..4096 + 9000).step_by(211));
    let flips = |file: &[u8]| {
        let flip = |at: usize| {
            let mut variant = file.to_vec();
            variant[at] ^= 0x01;
            variant
        };
        places().map(flip).collect()
    };
    let places: Vec<usize> = places().collect();
    damaged(9000, flips, |number, damage| {
        let at = places[number];
        let expected = match at {
            0..64 => Damage::Whole,
            64..76 => Damage::Sectors(vec![(at as u64 - 64) / 4]),
            76..4096 => Damage::None,
            _ => Damage::Sectors(vec![(at as u64 - 4096) / 4096]),
        };
        assert_eq!(damage, expected, "byte {at}");
    });
}

#[test]
fn a_file_cut_at_any_byte_is_seen() {
    let cuts = |file: &[u8]| (0..file.len()).map(|end| file[..end].to_vec()).collect();
    damaged(300, cuts, |end, damage| match end {
        0..64 => assert_eq!(damage, Damage::Whole, "cut at {end}"),
        _ => assert_eq!(damage, Damage::Sectors(vec![0]), "cut at {end}"),
    });
    let ends = || (0..100).chain((100..4096 + 9000).step_by(131));
    let cuts = |file: &[u8]| ends().map(|end| file[..end].to_vec()).collect();
    let ends: Vec<usize> = ends().collect();
    damaged(9000, cuts, |number, damage| {
        let expected = match ends[number] {
            0..64 => Damage::Whole,
            end => Damage::Sectors((end.saturating_sub(4096) as u64 / 4096..3).collect()),
        };
        assert_eq!(damage, expected, "cut at {}", ends[number]);
    });
}

#[test]
fn a_sector_in_another_s_place_is_lost() {
    let swapped = |file: &[u8]| {
        let mut variant = file.to_vec();
        let (first, second) = variant[4096..].split_at_mut(4096);
        first.swap_with_slice(&mut second[..4096]);
        // Even together with its checksum.
        let mut with_table = variant.clone();
        with_table[64..72].rotate_left(4);
        vec![variant, with_table]
    };
    damaged(9000, swapped, |_, damage| assert_eq!(damage, Damage::Sectors(vec![0, 1])));
}

#[test]
fn a_chunk_under_another_s_name_is_lost() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        for number in [1, 2] {
            put(&store, chunk(number), pattern(number as u64, 9000)).await.expect("put");
        }
        served.disk.set_content(&path(chunk(1)), served.disk.content(&path(chunk(2))));
        let error = store.info(chunk(1)).await.expect_err("another's");
        assert!(matches!(error, ChunkError::ChunkLost { .. }), "{error}");
    });
}

#[test]
fn unreadable_sectors_are_lost_alone_and_mended_by_overwriting() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        let content = pattern(1, 5 * 4096);
        put(&store, chunk(1), content.clone()).await.expect("put");
        served.disk.make_unreadable(&path(chunk(1)), 4096 * 3 + 7..4096 * 3 + 8);
        let lost = ChunkError::SectorsLost { id: chunk(1), sectors: vec![2] };
        assert_eq!(store.read(chunk(1), &all(5 * 4096)).await, Err(lost));
        let others = [ByteRange { offset: 0, bytes: 8192 }, ByteRange { offset: 12288, bytes: 8192 }];
        let buffers = store.read(chunk(1), &others).await.expect("readable");
        assert!(buffers[0] == content[..8192] && buffers[1] == content[12288..]);
        assert_eq!(store.state(), StoreState::Serving);
        let change = [Overwrite { offset: 8192, bytes: pattern(2, 4096) }];
        store.overwrite(chunk(1), LEASE, &change).await.expect("mends");
        assert_eq!(store.verify(chunk(1)).await.expect("verify").lost_sectors, vec![]);
        // The header's own sector.
        served.disk.make_unreadable(&path(chunk(1)), 0..512);
        let error = store.info(chunk(1)).await.expect_err("no header");
        assert!(matches!(error, ChunkError::ChunkLost { .. }), "{error}");
        assert_eq!(store.state(), StoreState::Serving);
    });
}

// ---- States ----

#[test]
fn a_full_disk_refuses_writes_and_serves_the_rest() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 100_000)).await.expect("put");
        for capacity in [150_000, 170_000, 900_000] {
            // The first is seen before anything is written, the others on the way or by a rival's use of the space.
            served.disk.set_capacity(capacity);
            for bytes in [100_000, 3 << 20] {
                let error = put(&store, chunk(2), pattern(2, bytes)).await;
                let fits = capacity == 900_000 && bytes == 100_000;
                match error {
                    Ok(()) if fits => store.delete(chunk(2)).await.expect("delete"),
                    Err(ChunkError::DiskFull { .. }) if !fits => (),
                    other => panic!("{other:?} with {capacity} bytes for {bytes}"),
                }
            }
        }
        served.world.clock().sleep(Duration::from_secs(1)).await;
        assert!(served.disk.files().iter().all(|file| *file != path(chunk(2))), "no partial file is left");
        served.disk.fail_after(2, Fault::NoSpace);
        let error = put(&store, chunk(2), pattern(2, 50_000)).await;
        assert!(matches!(error, Err(ChunkError::DiskFull { .. })), "{error:?}");
        assert_eq!(store.list(None, 10).await, Ok(vec![chunk(1)]));
        assert!(store.read(chunk(1), &all(100_000)).await.is_ok());
        assert_eq!(store.state(), StoreState::Serving);
        store.delete(chunk(1)).await.expect("delete");
        put(&store, chunk(2), pattern(2, 100_000)).await.expect("the space came back");
    });
}

#[test]
fn the_reserve_stays_free() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let options = Options { reserve_bytes: Some(200 << 20), ..OPTIONS };
        let worker = served.process.worker(&served.disk);
        let open = DirectoryStore::open(served.process.env(), served.disk.attach(), worker, EXPECTED, options);
        let store = open.await.expect("open");
        let free = store.space().await.expect("space").free_bytes;
        assert!(free < 56 << 20);
        let error = put(&store, chunk(1), pattern(1, 60 << 20)).await.expect_err("into the reserve");
        assert!(matches!(error, ChunkError::DiskFull { free_bytes, .. } if free_bytes == free), "{error}");
        put(&store, chunk(1), pattern(1, 1 << 20)).await.expect("put");
        // But for a segment that must be there, and not beyond it.
        let segments = store.segments();
        segments.fence(LEASE).await.expect("fenced");
        let error = segments.create_segment(1, LEASE, 60 << 20).await.expect_err("into the reserve");
        assert!(matches!(error, SegmentError::DiskFull { .. }), "{error}");
        segments.create_segment_in_reserve(1, LEASE, 60 << 20).await.expect("made");
        segments.append(1, LEASE, 0, pattern(2, 60 << 20)).await.expect("appended");
        assert_eq!(store.space().await.expect("space").free_bytes, 0);
        let error = segments.create_segment_in_reserve(2, LEASE, 1 << 30).await.expect_err("more than there is");
        assert!(matches!(error, SegmentError::DiskFull { .. }), "{error}");
        assert_eq!(store.state(), StoreState::Serving);
    });
}

#[test]
fn a_read_only_disk_serves_reads() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 9000)).await.expect("put");
        let mut writer = store.create(chunk(3), 9).await.expect("room");
        writer.append(pattern(1, 9)).await.expect("appended");
        writer.commit(Durability::Buffered).await.expect("committed");
        served.disk.set_read_only(true);
        let error = put(&store, chunk(2), pattern(1, 9000)).await.expect_err("read-only");
        assert!(matches!(error, ChunkError::Unavailable { .. }), "{error}");
        assert!(matches!(store.state(), StoreState::ReadOnly { .. }));
        assert!(store.read(chunk(1), &all(9000)).await.is_ok());
        assert_eq!(store.verify(chunk(1)).await.expect("verify").lost_sectors, vec![]);
        assert!(matches!(store.delete(chunk(1)).await, Err(ChunkError::Unavailable { .. })));
        assert!(store.sync().await.is_err(), "what was put is not synced yet");
        drop(store);
        let store = served.open().await;
        assert!(matches!(store.state(), StoreState::ReadOnly { .. }), "seen when opened");
        store.sync().await.expect("nothing was put since it was opened");
        assert!(store.read(chunk(1), &all(9000)).await.is_ok());
        drop(store);
        served.disk.set_read_only(false);
        assert_eq!(served.open().await.state(), StoreState::Serving);
    });
}

#[test]
fn a_removed_disk_is_failed_until_it_is_opened_again() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 9000)).await.expect("put");
        served.disk.set_removed(true);
        assert!(matches!(store.info(chunk(1)).await, Err(ChunkError::Unavailable { .. })));
        assert!(matches!(store.state(), StoreState::Failed { .. }));
        served.disk.set_removed(false);
        assert!(matches!(store.info(chunk(1)).await, Err(ChunkError::Unavailable { .. })));
        drop(store);
        assert!(served.open().await.read(chunk(1), &all(9000)).await.is_ok());
    });
}

#[test]
fn another_disk_in_the_place_of_this_one_is_noticed() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        served.disk.wipe();
        let other = Identity { disk: DiskId(2), ..identity() };
        format(&*served.process.worker(&served.disk), served.disk.attach(), other).await.expect_err("still locked");
        assert!(matches!(store.info(chunk(1)).await, Err(ChunkError::Unavailable { .. })));
        assert!(matches!(store.state(), StoreState::Failed { .. }));
    });
}

#[test]
fn a_failed_sync_fails_the_store() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        // space, create, write, then the sync.
        let before = served.disk.stats();
        put(&store, chunk(1), pattern(1, 100)).await.expect("put");
        let operations = served.disk.stats().operations - before.operations;
        // The last two are the syncs of file and directory.
        served.disk.fail_after(operations - 2, Fault::Medium);
        let error = put(&store, chunk(2), pattern(1, 100)).await.expect_err("sync failed");
        assert!(matches!(error, ChunkError::Unavailable { .. }), "{error}");
        assert!(matches!(store.state(), StoreState::Failed { .. }));
    });
}

// ---- Behaviour in time ----

#[test]
fn buffered_chunks_are_synced_within_the_interval() {
    run(1, |world| async move {
        let mut served = Served::format(world).await;
        let store = served.open().await;
        for number in 0..5 {
            let mut writer = store.create(chunk(number), 5000).await.expect("create");
            writer.append(pattern(number as u64, 5000)).await.expect("append");
            let before = served.disk.stats().syncs;
            writer.commit(Durability::Buffered).await.expect("commit");
            assert_eq!(served.disk.stats().syncs, before, "a buffered commit does not sync");
        }
        served.world.clock().sleep(OPTIONS.sync_interval + Duration::from_millis(100)).await;
        served.crash();
        drop(store);
        let store = served.open().await;
        for number in 0..5 {
            let buffers = store.read(chunk(number), &all(5000)).await.expect("read");
            assert!(buffers[0] == pattern(number as u64, 5000));
        }
    });
}

/// A process that ends leaves what it committed as buffered to the system: who syncs next, if in another opening, makes it durable.
#[test]
fn a_sync_is_of_what_an_opening_before_left_too() {
    run(1, |world| async move {
        let mut served = Served::format(world).await;
        let store = served.open().await;
        for number in 0..3 {
            let mut writer = store.create(chunk(number), 5000).await.expect("create");
            writer.append(pattern(number as u64, 5000)).await.expect("append");
            writer.commit(Durability::Buffered).await.expect("commit");
        }
        served.process.kill();
        drop(store);
        served.process = served.world.process("p");
        let store = served.open().await;
        store.sync().await.expect("synced");
        served.crash();
        drop(store);
        let store = served.open().await;
        for number in 0..3 {
            let buffers = store.read(chunk(number), &all(5000)).await.expect("read");
            assert!(buffers[0] == pattern(number as u64, 5000));
        }
    });
}

#[test]
fn many_buffered_chunks_do_not_pile_up() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        let before = served.disk.stats().syncs;
        for number in 0..140 {
            let mut writer = store.create(chunk(number), 10).await.expect("create");
            writer.append(pattern(number as u64, 10)).await.expect("append");
            writer.commit(Durability::Buffered).await.expect("commit");
        }
        assert!(served.disk.stats().syncs > before + 100);
    });
}

#[test]
fn a_loser_of_a_race_leaves_the_winner_alone() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        for bytes in [100, 3 << 20] {
            let id = chunk(bytes as u128);
            put(&store, id, pattern(1, bytes)).await.expect("put");
            let mut writer = store.create(id, bytes as u64).await.expect("the id is looked up later");
            // A committed chunk stays visible while somebody tries to take its id.
            assert!(store.read(id, &all(bytes)).await.is_ok());
            let error = match writer.append(pattern(2, bytes)).await {
                Ok(()) => writer.commit(Durability::Synced).await.expect_err("taken"),
                Err(error) => error,
            };
            assert_eq!(error, ChunkError::AlreadyExists { id });
            served.world.clock().sleep(Duration::from_secs(1)).await;
            assert!(store.read(id, &all(bytes)).await.expect("read")[0] == pattern(1, bytes));
        }
    });
}

#[test]
fn a_cancelled_write_leaves_all_or_nothing() {
    let (mut all_of_it, mut nothing) = (0, 0);
    for limit_us in (0..12_000).step_by(397) {
        let complete = run(limit_us, |world| async move {
            let served = Served::format(world).await;
            let store = served.open().await;
            let bytes = (2 << 20) + 1;
            let limit = Duration::from_micros(limit_us);
            let write = put(&store, chunk(1), pattern(1, bytes));
            let _ = claystone_env::timeout(&*served.world.clock(), limit, write).await;
            served.world.clock().sleep(Duration::from_secs(1)).await;
            let complete = store.info(chunk(1)).await.is_ok();
            if complete {
                assert!(store.read(chunk(1), &all(bytes)).await.expect("read")[0] == pattern(1, bytes));
            } else {
                assert!(served.disk.files().iter().all(|file| !file.starts_with("chunks/")), "after {limit_us} us");
                put(&store, chunk(1), pattern(2, 10)).await.expect("the id is free");
            }
            assert_eq!(store.list(None, 10).await, Ok(vec![chunk(1)]));
            complete
        });
        *(if complete { &mut all_of_it } else { &mut nothing }) += 1;
    }
    assert!(all_of_it > 3 && nothing > 3, "{all_of_it} complete, {nothing} absent");
}

#[test]
fn latency_shows_in_the_load() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 9000)).await.expect("put");
        store.read(chunk(1), &all(9000)).await.expect("read");
        let quick = store.load().read_latency;
        assert!(quick > Duration::ZERO);
        served.disk.set_latency_factor(50);
        for _ in 0..20 {
            store.read(chunk(1), &all(9000)).await.expect("read");
        }
        assert!(store.load().read_latency > quick * 20);
    });
}

#[test]
fn a_small_chunk_costs_one_block_and_one_write() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        let before = served.disk.stats();
        put(&store, chunk(1), pattern(1, 1024)).await.expect("put");
        let after = served.disk.stats();
        assert_eq!(served.disk.content(&path(chunk(1))).len(), 68 + 1024);
        // space, create, write, sync, sync of the directory
        assert_eq!((after.operations - before.operations, after.syncs - before.syncs), (5, 2));
        assert_eq!(after.bytes_written - before.bytes_written, 68 + 1024);
    });
}

#[test]
fn verify_reads_each_byte_once() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 5 << 20)).await.expect("put");
        let before = served.disk.stats().bytes_read;
        let verdict = store.verify(chunk(1)).await.expect("verify");
        assert_eq!(verdict.bytes_read, served.disk.stats().bytes_read - before);
        assert!(verdict.bytes_read < (5 << 20) + (64 << 10), "{}", verdict.bytes_read);
    });
}
