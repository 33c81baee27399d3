//! Segments on a simulated disk: power cuts and failures at every operation, damage at rest, a full disk.

use std::time::Duration;

use async_trait::async_trait;
use claystone_chunk::testing::{Reopen, pattern, put, segments};
use claystone_chunk::{
    ByteRange, ChunkStore, DiskId, Lease, NodeId, OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore,
    StoreState, Term,
};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::WallTime;
use claystone_sim::{DiskModel, Fault, Process, SimDisk, World, run};

const EXPECTED: Expected = Expected { cluster: ClusterId(7), disk: DiskId(1) };
const OPTIONS: Options = Options { reserve_bytes: Some(0), sync_interval: Duration::from_secs(1) };
const OWNER: OwnerId = OwnerId(0xa0);
const BYSTANDER: OwnerId = OwnerId(0xb0);
const BYTES: u64 = 12 * 4096;

fn lease(term: u64) -> Lease {
    Lease { owner: OWNER, term: Term(term) }
}

fn id(number: u64) -> SegmentId {
    SegmentId { owner: OWNER, number }
}

fn path(id: SegmentId) -> String {
    format!("segments/{}.{}", id.owner, id.number)
}

fn fence_path(owner: OwnerId) -> String {
    format!("segments/{owner}.fence")
}

fn range(offset: u64, bytes: u64) -> [ByteRange; 1] {
    [ByteRange { offset, bytes }]
}

/// A disk and the process that serves it.
struct Served {
    world: World,
    disk: SimDisk,
    process: Process,
    store: Option<DirectoryStore>,
}

impl Served {
    async fn begin(world: World, name: &str) -> Served {
        Served::begin_on(world, name, false).await
    }

    /// On a disk whose files are used again.
    async fn begin_with_spares(world: World) -> Served {
        Served::begin_on(world, "d", true).await
    }

    async fn begin_on(world: World, name: &str, favours_overwriting: bool) -> Served {
        let disk = world.disk(name, DiskModel::ssd(64 << 20));
        disk.set_favours_overwriting(favours_overwriting);
        let process = world.process("p");
        let node = NodeId("node-1".to_owned());
        let created = WallTime { unix_ms: 1 };
        let identity = Identity { disk: EXPECTED.disk, cluster: EXPECTED.cluster, node, created };
        format(&*process.worker(&disk), disk.attach(), identity).await.expect("format");
        let mut served = Served { world, disk, process, store: None };
        served.open().await;
        served
    }

    async fn open(&mut self) {
        let worker = self.process.worker(&self.disk);
        let store = DirectoryStore::open(self.process.env(), self.disk.attach(), worker, EXPECTED, OPTIONS).await;
        self.store = Some(store.expect("open"));
    }

    /// Ends the process and opens the store anew, with a power cut in between or without.
    async fn restart(&mut self, power_cut: bool) {
        self.end(power_cut).await;
        self.open().await;
    }

    async fn end(&mut self, power_cut: bool) {
        self.process.kill();
        if power_cut {
            self.disk.crash();
        }
        self.store = None;
        self.process = self.world.process("p");
        // Killed tasks let go of the disk when they are run next.
        self.world.clock().sleep(Duration::from_secs(1)).await;
    }

    fn segments(&self) -> &dyn SegmentStore {
        self.store.as_ref().expect("open").segments()
    }

    /// The files of segments and fences.
    fn files(&self) -> Vec<String> {
        let files = self.disk.files().into_iter().filter(|file| file.starts_with("segments/"));
        files.filter(|file| !file.starts_with("segments/spare.")).collect()
    }

    fn spares(&self) -> Vec<String> {
        self.disk.files().into_iter().filter(|file| file.starts_with("segments/spare.")).collect()
    }

    /// Until whatever is done later is done.
    async fn rest(&self) {
        self.world.clock().sleep(Duration::from_secs(2)).await;
    }
}

#[async_trait(?Send)]
impl Reopen for Served {
    fn store(&self) -> &dyn ChunkStore {
        self.store.as_ref().expect("open")
    }

    async fn reopen(&mut self) {
        self.restart(true).await;
    }
}

#[test]
fn conforms() {
    for seed in 0..5 {
        run(seed, |world| async move {
            let mut number = 0;
            segments(|| {
                number += 1;
                let (world, name, favours) = (world.clone(), format!("d{number}"), seed % 2 == 0);
                async move { Served::begin_on(world, &name, favours).await }
            })
            .await;
        });
    }
}

// ---- Power cuts and failures at every operation ----

/// What is done while power goes. Each is a number of steps, in order, of which the first that fails ends it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    /// Segment 2, on a disk where there is none yet of this owner but segment 1.
    Create,
    /// Two appends to segment 1, each followed by a sync.
    Append { first: usize, second: usize },
    /// From term 1 to 2 and to 3.
    FenceTwice,
    /// Segment 1.
    Delete,
    /// All of it, under term 2.
    Forget,
    /// The first segment and fence of the disk at all.
    First,
    /// Segment 2 after segment 3 was deleted, with an append and a sync.
    CreateAfterAnother,
    /// Segment 1 is deleted, and segment 2 begun at once.
    DeleteAndCreate,
}

const DEEDS: [Deed; 9] = [
    Deed::Create,
    Deed::Append { first: 4160, second: 4160 },
    Deed::Append { first: 100, second: 20_000 },
    Deed::FenceTwice,
    Deed::Delete,
    Deed::Forget,
    Deed::First,
    Deed::CreateAfterAnother,
    Deed::DeleteAndCreate,
];

const OLD_BYTES: usize = 3000;
const NEW_BYTES: usize = 9000;

impl Deed {
    async fn prepare(self, store: &dyn SegmentStore) {
        if self == Deed::First {
            return;
        }
        let bystander = Lease { owner: BYSTANDER, term: Term(9) };
        store.fence(bystander).await.expect("fence");
        store.create_segment(1, bystander, BYTES).await.expect("create");
        store.append(1, bystander, 0, pattern(77, 7000)).await.expect("append");
        store.sync_segment(1, bystander).await.expect("sync");
        store.fence(lease(1)).await.expect("fence");
        store.create_segment(1, lease(1), BYTES).await.expect("create");
        store.append(1, lease(1), 0, pattern(1, OLD_BYTES)).await.expect("append");
        store.sync_segment(1, lease(1)).await.expect("sync");
        if self == Deed::DeleteAndCreate {
            // It is full, so that its file is used again.
            let rest = pattern(11, BYTES as usize - OLD_BYTES);
            store.append(1, lease(1), OLD_BYTES as u64, rest).await.expect("append");
            store.sync_segment(1, lease(1)).await.expect("sync");
        }
        if self == Deed::CreateAfterAnother {
            store.create_segment(3, lease(1), BYTES).await.expect("create");
            store.append(3, lease(1), 0, pattern(33, BYTES as usize)).await.expect("append");
            store.sync_segment(3, lease(1)).await.expect("sync");
            store.delete_segment(3, lease(1)).await.expect("delete");
        }
    }

    /// Does it, up to the first step that fails; returns how many steps were acknowledged.
    async fn act(self, store: &dyn SegmentStore) -> usize {
        let mut done = 0;
        while let Some(Ok(())) = self.step(done, store).await {
            done += 1;
        }
        done
    }

    async fn step(self, number: usize, store: &dyn SegmentStore) -> Option<Result<(), SegmentError>> {
        Some(match (self, number) {
            (Deed::Create | Deed::First, 0) => store.create_segment(2, lease(1), BYTES).await,
            (Deed::First, 1) => store.fence(lease(1)).await,
            (Deed::Append { first, .. }, 0) => store.append(1, lease(1), OLD_BYTES as u64, pattern(2, first)).await,
            (Deed::Append { first, second }, 2) => {
                store.append(1, lease(1), (OLD_BYTES + first) as u64, pattern(3, second)).await
            }
            (Deed::Append { .. }, 1 | 3) => store.sync_segment(1, lease(1)).await,
            (Deed::FenceTwice, 0 | 1) => store.fence(lease(number as u64 + 2)).await,
            (Deed::Delete | Deed::DeleteAndCreate, 0) => store.delete_segment(1, lease(1)).await,
            (Deed::CreateAfterAnother, 0) | (Deed::DeleteAndCreate, 1) => {
                store.create_segment(2, lease(1), BYTES).await
            }
            (Deed::CreateAfterAnother, 1) | (Deed::DeleteAndCreate, 2) => {
                store.append(2, lease(1), 0, pattern(22, NEW_BYTES)).await
            }
            (Deed::CreateAfterAnother, 2) | (Deed::DeleteAndCreate, 3) => store.sync_segment(2, lease(1)).await,
            (Deed::Forget, 0) => store.forget_owner(lease(2)).await,
            _ => return None,
        })
    }

    /// Checks what is left after the store was opened anew.
    async fn check(self, store: &dyn SegmentStore, acknowledged: usize, context: &str) {
        let found = store.segments(OWNER).await.unwrap_or_else(|error| panic!("{error} {context}"));
        let has = |number| found.contains(&SegmentInfo { id: id(number), term: Term(1), bytes: BYTES });
        let numbers: Vec<u64> = found.iter().map(|info| info.id.number).collect();
        assert!(found.iter().all(|info| has(info.id.number)), "{found:?} {context}");
        let may_be: &[&[u64]] = match self {
            Deed::Create if acknowledged == 1 => &[&[1, 2]],
            Deed::Create => &[&[1], &[1, 2]],
            Deed::Append { .. } | Deed::FenceTwice => &[&[1]],
            // A removal may be there at any time after it was asked for, and need not be.
            Deed::Delete | Deed::Forget => &[&[], &[1]],
            Deed::First if acknowledged > 0 => &[&[2]],
            Deed::First => &[&[], &[2]],
            // With the name of one that is made it is durable that others are gone.
            Deed::CreateAfterAnother if acknowledged > 0 => &[&[1, 2]],
            Deed::CreateAfterAnother => &[&[1], &[1, 2], &[1, 3], &[1, 2, 3]],
            Deed::DeleteAndCreate if acknowledged > 1 => &[&[2]],
            Deed::DeleteAndCreate => &[&[], &[1], &[2], &[1, 2]],
        };
        assert!(may_be.contains(&&numbers[..]), "{numbers:?} {context}");
        let read_of = |number, bytes| async move {
            let read = store.read_segment(id(number), &range(0, bytes)).await;
            read.unwrap_or_else(|error| panic!("{error} {context}")).remove(0)
        };
        if has(3) {
            assert!(read_of(3, BYTES).await == pattern(33, BYTES as usize), "it is back with what it had {context}");
        }
        if let (Deed::CreateAfterAnother, 3) | (Deed::DeleteAndCreate, 4) = (self, acknowledged) {
            assert!(read_of(2, NEW_BYTES as u64).await == pattern(22, NEW_BYTES), "{context}");
        }
        if has(1) {
            let read = |offset, bytes| async move {
                let read = store.read_segment(id(1), &range(offset, bytes)).await;
                read.unwrap_or_else(|error| panic!("{error} {context}")).remove(0)
            };
            assert!(read(0, OLD_BYTES as u64).await == pattern(1, OLD_BYTES), "{context}");
            if let Deed::Append { first, second } = self {
                if acknowledged >= 2 {
                    assert!(read(OLD_BYTES as u64, first as u64).await == pattern(2, first), "{context}");
                }
                if acknowledged >= 4 {
                    let offset = (OLD_BYTES + first) as u64;
                    assert!(read(offset, second as u64).await == pattern(3, second), "{context}");
                }
            }
            assert_eq!(read(0, BYTES).await.len() as u64, BYTES, "{context}");
        }
        self.check_fence(store, acknowledged, context).await;
    }

    async fn check_fence(self, store: &dyn SegmentStore, acknowledged: usize, context: &str) {
        let fenced = match store.delete_segment(99, lease(0)).await {
            Ok(()) => 0,
            Err(SegmentError::Fenced { fenced, .. }) => fenced.0,
            Err(error) => panic!("{error} {context}"),
        };
        let may_be = match self {
            Deed::Create | Deed::Append { .. } | Deed::Delete => 1..=1,
            Deed::CreateAfterAnother | Deed::DeleteAndCreate => 1..=1,
            Deed::FenceTwice => acknowledged as u64 + 1..=(acknowledged as u64 + 2).min(3),
            Deed::Forget => 0..=1,
            Deed::First => u64::from(acknowledged == 2)..=1,
        };
        assert!(may_be.contains(&fenced), "fenced {fenced} {context}");
        assert_eq!(store.fence(lease(fenced.max(1))).await, Ok(()), "{context}");
    }

    /// Fences what is fenced: that must then stay, whether or not it was durable when the store was opened.
    async fn check_fence_stays(self, served: &mut Served, context: &str) {
        let late = lease(0);
        let Err(SegmentError::Fenced { fenced, .. }) = served.segments().delete_segment(99, late).await else {
            panic!("the last check fenced it {context}");
        };
        served.segments().fence(lease(fenced.0)).await.expect("fence");
        served.restart(true).await;
        let refused = served.segments().delete_segment(99, late).await;
        assert_eq!(refused, Err(SegmentError::Fenced { lease: late, fenced }), "{context}");
    }
}

async fn check_bystander(store: &dyn SegmentStore, deed: Deed, context: &str) {
    if deed == Deed::First {
        return;
    }
    let id = SegmentId { owner: BYSTANDER, number: 1 };
    let infos = store.segments(BYSTANDER).await;
    assert_eq!(infos, Ok(vec![SegmentInfo { id, term: Term(9), bytes: BYTES }]), "{context}");
    let read = store.read_segment(id, &range(0, 7000)).await;
    assert!(read.unwrap_or_else(|error| panic!("{error} {context}"))[0] == pattern(77, 7000), "{context}");
    let late = Lease { owner: BYSTANDER, term: Term(8) };
    let refused = store.delete_segment(1, late).await;
    assert_eq!(refused, Err(SegmentError::Fenced { lease: late, fenced: Term(9) }), "{context}");
}

/// All that segments hold.
async fn contents(store: &dyn SegmentStore, infos: &[SegmentInfo]) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    for info in infos {
        let read = store.read_segment(info.id, &range(0, info.bytes)).await;
        contents.push(read.unwrap_or_else(|error| panic!("{error}")).remove(0).to_vec());
    }
    contents
}

/// The store is as good as new: what it lists is what is on the disk, and all of it can go.
async fn check_usable(served: &Served, deed: Deed, context: &str) {
    let store = served.segments();
    assert_eq!(served.store().state(), StoreState::Serving, "{context}");
    let mut listed = Vec::new();
    for owner in store.owners().await.expect("owners") {
        listed.extend(store.segments(owner).await.expect("segments").iter().map(|info| path(info.id)));
    }
    let on_disk: Vec<String> = served.files().into_iter().filter(|file| !file.contains(".fence")).collect();
    listed.sort();
    assert_eq!(listed, on_disk, "{context}");
    // Each has a file of its own, whatever those were before.
    let infos = store.segments(OWNER).await.expect("segments");
    let before = contents(store, &infos).await;
    for number in 21..=24 {
        store.create_segment(number, lease(5), BYTES).await.unwrap_or_else(|error| panic!("{error} {context}"));
        store.append(number, lease(5), 0, pattern(number, BYTES as usize)).await.expect("append");
    }
    assert!(contents(store, &infos).await == before, "a segment has changed {context}");
    for number in 1..=9 {
        store.delete_segment(number, lease(5)).await.unwrap_or_else(|error| panic!("{error} {context}"));
        store.create_segment(number, lease(5), BYTES).await.unwrap_or_else(|error| panic!("{error} {context}"));
        store.append(number, lease(5), 0, pattern(number, 100)).await.expect("append");
        store.sync_segment(number, lease(5)).await.expect("sync");
    }
    for number in 1..=9 {
        let read = store.read_segment(id(number), &range(0, 100)).await.expect("read");
        assert!(read[0] == pattern(number, 100), "segment {number} {context}");
    }
    check_bystander(store, deed, context).await;
    for owner in store.owners().await.expect("owners") {
        store.forget_owner(Lease { owner, term: Term(10) }).await.expect("forget");
    }
    assert_eq!(served.files(), Vec::<String>::new(), "{context}");
}

/// Returns whether power went.
fn cut_during(deed: Deed, spares: bool, operation: u64, seed: u64) -> bool {
    run(seed, |world| async move {
        let context = format!("({deed:?}, spares: {spares}, power cut at operation {operation}, seed {seed})");
        let mut served = Served::begin_on(world, "d", spares).await;
        deed.prepare(served.segments()).await;
        served.disk.cut_power_after(operation);
        let acknowledged = deed.act(served.segments()).await;
        served.rest().await;
        let cut = !served.disk.is_powered();
        served.restart(true).await;
        check_bystander(served.segments(), deed, &context).await;
        deed.check(served.segments(), acknowledged, &context).await;
        check_usable(&served, deed, &context).await;
        cut
    })
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    for (deed, spares) in DEEDS.into_iter().flat_map(|deed| [(deed, false), (deed, true)]) {
        let mut operation = 0;
        while (0..12).fold(false, |cut, seed| cut_during(deed, spares, operation, operation * 100 + seed) | cut) {
            operation += 1;
        }
        assert!(operation > 0, "{deed:?} has operations");
    }
}

/// What a cut leaves is cut again, before anything of it is durable.
#[test]
fn power_cuts_one_after_the_other_let_no_two_segments_have_one_file() {
    for seed in 0..400 {
        run(seed, |world| async move {
            let mut served = Served::begin_with_spares(world).await;
            let deed = if seed % 2 == 0 { Deed::DeleteAndCreate } else { Deed::CreateAfterAnother };
            deed.prepare(served.segments()).await;
            let mut context = format!("({deed:?}, seed {seed}");
            // The one that is appended to and synced stays as it was.
            served.segments().create_segment(50, lease(1), BYTES).await.expect("create");
            served.segments().append(50, lease(1), 0, pattern(50, 5000)).await.expect("append");
            served.segments().sync_segment(50, lease(1)).await.expect("sync");
            for round in 0..4 {
                let operation = (seed * 7 + round * 5) % 23;
                context += &format!(", cut at operation {operation}");
                served.disk.cut_power_after(operation);
                let (old, new) = (1 + round % 3, 2 + round % 3);
                let _ = served.segments().delete_segment(old, lease(1)).await;
                let _ = served.segments().create_segment(new, lease(1), BYTES).await;
                let _ = served.segments().append(new, lease(1), 0, pattern(round, BYTES as usize)).await;
                let _ = served.segments().delete_segment(new, lease(1)).await;
                let _ = served.segments().create_segment(10 + round, lease(1), BYTES).await;
                let _ = served.segments().append(10 + round, lease(1), 0, pattern(round + 9, BYTES as usize)).await;
                served.restart(true).await;
                let read = served.segments().read_segment(id(50), &range(0, 5000)).await.expect("read");
                assert!(read[0] == pattern(50, 5000), "{context}");
                check_bystander(served.segments(), deed, &context).await;
            }
            check_usable(&served, deed, &context).await;
        });
    }
}

/// Returns whether the failure happened.
fn fail_during(deed: Deed, spares: bool, operation: u64, fault: Fault, power_cut: bool) -> bool {
    run(operation, |world| async move {
        let how = format!("spares: {spares}, power cut: {power_cut}");
        let context = format!("({deed:?}, {fault:?} at operation {operation}, {how})");
        let mut served = Served::begin_on(world, "d", spares).await;
        deed.prepare(served.segments()).await;
        served.disk.fail_after(operation, fault);
        let acknowledged = deed.act(served.segments()).await;
        served.rest().await;
        // If it did not come, it will not come any more.
        let happened = served.disk.spare_faults();
        match served.store().state() {
            StoreState::Failed { .. } => {
                let refused = served.segments().append(1, lease(9), 0, pattern(1, 1)).await;
                assert!(matches!(refused, Err(SegmentError::Unavailable { .. })), "{refused:?} {context}");
            }
            StoreState::Serving => check_bystander(served.segments(), deed, &context).await,
            StoreState::ReadOnly { reason } => panic!("read-only: {reason} {context}"),
        }
        served.restart(power_cut).await;
        check_bystander(served.segments(), deed, &context).await;
        deed.check(served.segments(), acknowledged, &context).await;
        deed.check_fence_stays(&mut served, &context).await;
        check_usable(&served, deed, &context).await;
        happened
    })
}

#[test]
fn a_failure_of_any_operation_loses_nothing_acknowledged() {
    for (deed, spares) in DEEDS.into_iter().flat_map(|deed| [(deed, false), (deed, true)]) {
        for fault in [Fault::Medium, Fault::NoSpace] {
            for power_cut in [false, true] {
                let mut operation = 0;
                while fail_during(deed, spares, operation, fault, power_cut) {
                    operation += 1;
                }
                assert!(operation > 0, "{deed:?} has operations");
            }
        }
    }
}

#[test]
fn a_failed_append_or_sync_fails_the_store() {
    for operation in [0, 1] {
        run(1, |world| async move {
            let served = Served::begin(world, "d").await;
            Deed::Create.prepare(served.segments()).await;
            served.disk.fail_after(operation, Fault::Medium);
            let appended = served.segments().append(1, lease(1), OLD_BYTES as u64, pattern(2, 10)).await;
            let synced = served.segments().sync_segment(1, lease(1)).await;
            assert_eq!(appended.is_ok(), operation == 1, "{appended:?}");
            assert!(matches!(synced, Err(SegmentError::Unavailable { .. })), "{synced:?}");
            assert!(matches!(served.store().state(), StoreState::Failed { .. }));
        });
    }
}

#[test]
fn a_read_only_disk_serves_segments_and_takes_nothing() {
    run(1, |world| async move {
        let mut served = Served::begin(world, "d").await;
        Deed::Create.prepare(served.segments()).await;
        served.disk.set_read_only(true);
        let refused = served.segments().append(1, lease(1), OLD_BYTES as u64, pattern(2, 10)).await;
        assert!(matches!(refused, Err(SegmentError::Unavailable { .. })), "{refused:?}");
        assert!(matches!(served.store().state(), StoreState::ReadOnly { .. }));
        for reopened in [false, true] {
            if reopened {
                served.restart(false).await;
            }
            let read = served.segments().read_segment(id(1), &range(0, OLD_BYTES as u64)).await.expect("readable");
            assert!(read[0] == pattern(1, OLD_BYTES));
            assert_eq!(served.segments().segments(OWNER).await.expect("listed").len(), 1);
            let refused = served.segments().fence(lease(7)).await;
            assert!(matches!(refused, Err(SegmentError::Unavailable { .. })), "{refused:?}");
        }
    });
}

// ---- Space ----

#[test]
fn appends_to_a_full_disk_find_what_was_reserved() {
    run(1, |world| async move {
        let served = Served::begin(world, "d").await;
        let bytes = 4 << 20;
        served.segments().create_segment(1, lease(1), bytes).await.expect("create");
        let space = served.store().space().await.expect("space");
        served.disk.set_capacity(space.total_bytes - space.free_bytes);
        assert_eq!(served.store().space().await.expect("space").free_bytes, 0);
        let refused = served.segments().create_segment(2, lease(1), 1).await;
        assert!(matches!(refused, Err(SegmentError::DiskFull { free_bytes: 0, .. })), "{refused:?}");
        for number in 0..bytes / 65536 {
            let content = pattern(number, 65536);
            served.segments().append(1, lease(1), number * 65536, content).await.expect("reserved");
            served.segments().sync_segment(1, lease(1)).await.expect("reserved");
        }
        assert_eq!(served.store().state(), StoreState::Serving);
        served.segments().delete_segment(1, lease(1)).await.expect("delete");
        served.segments().create_segment(2, lease(1), bytes).await.expect("the space came back");
    });
}

#[test]
fn a_full_disk_takes_the_fence_of_an_owner_that_it_knows() {
    let attempt = |cut: Option<u64>| {
        run(cut.unwrap_or(0), |world| async move {
            let mut served = Served::begin(world, "d").await;
            Deed::Create.prepare(served.segments()).await;
            let space = served.store().space().await.expect("space");
            served.disk.set_capacity(space.total_bytes - space.free_bytes);
            if let Some(operation) = cut {
                served.disk.cut_power_after(operation);
            }
            let fenced = served.segments().fence(lease(2)).await;
            let is_cut = !served.disk.is_powered();
            assert!(is_cut || fenced.is_ok(), "{fenced:?}");
            if !is_cut {
                let refused = SegmentError::Fenced { lease: lease(1), fenced: Term(2) };
                let late = served.segments().append(1, lease(1), OLD_BYTES as u64, pattern(2, 10)).await;
                assert_eq!(late, Err(refused));
            }
            served.restart(true).await;
            let Err(SegmentError::Fenced { fenced: term, .. }) = served.segments().delete_segment(99, lease(0)).await
            else {
                panic!("it was fenced before");
            };
            assert!((1..=2).contains(&term.0) && (fenced.is_err() || term == Term(2)), "{term:?} after {fenced:?}");
            served.segments().fence(lease(3)).await.expect("fence");
            is_cut
        })
    };
    attempt(None);
    assert!((0..).take_while(|operation| attempt(Some(*operation))).count() > 2, "it has operations");
}

/// Nobody was fenced there before, so that nothing gives its place.
#[test]
fn a_full_disk_refuses_lesser_terms_though_it_cannot_write_the_fence() {
    run(1, |world| async move {
        let served = Served::begin(world, "d").await;
        let store = served.segments();
        store.create_segment(1, lease(1), BYTES).await.expect("create");
        let space = served.store().space().await.expect("space");
        served.disk.set_capacity(space.total_bytes - space.free_bytes);
        store.append(1, lease(1), 0, pattern(1, 10)).await.expect("reserved");
        let fenced = store.fence(lease(2)).await;
        assert!(matches!(fenced, Err(SegmentError::DiskFull { .. })), "{fenced:?}");
        let refused = SegmentError::Fenced { lease: lease(1), fenced: Term(2) };
        assert_eq!(store.append(1, lease(1), 10, pattern(1, 10)).await, Err(refused));
        served.disk.set_capacity(space.total_bytes);
        store.fence(lease(2)).await.expect("it is written now");
    });
}

#[test]
fn a_segment_that_found_no_room_leaves_none_taken() {
    run(1, |world| async move {
        let served = Served::begin(world, "d").await;
        let before = served.store().space().await.expect("space").free_bytes;
        // Seen before, by asking; and by the file system, after another took what was free.
        for operations in [None, Some(3)] {
            if let Some(operations) = operations {
                served.disk.fail_after(operations, Fault::NoSpace);
            }
            let bytes = if operations.is_some() { BYTES } else { before };
            let refused = served.segments().create_segment(1, lease(1), bytes).await;
            assert!(matches!(refused, Err(SegmentError::DiskFull { .. })), "{refused:?}");
            assert!(served.disk.spare_faults());
            assert_eq!(served.store().space().await.expect("space").free_bytes, before);
        }
        served.segments().create_segment(1, lease(1), BYTES).await.expect("the number is free");
    });
}

#[test]
fn segments_leave_the_reserve_of_the_disk_alone() {
    run(1, |world| async move {
        let mut served = Served::begin(world, "d").await;
        let options = Options { reserve_bytes: Some(60 << 20), ..OPTIONS };
        served.store = None;
        let worker = served.process.worker(&served.disk);
        let open = DirectoryStore::open(served.process.env(), served.disk.attach(), worker, EXPECTED, options);
        served.store = Some(open.await.expect("open"));
        let refused = served.segments().create_segment(1, lease(1), 8 << 20).await;
        assert!(matches!(refused, Err(SegmentError::DiskFull { .. })), "{refused:?}");
        served.segments().create_segment(1, lease(1), 1 << 20).await.expect("create");
        served.segments().fence(lease(1)).await.expect("a fence may go into it");
    });
}

// ---- Files that are used again ----

/// Makes a segment that is full of a pattern.
async fn full_segment(store: &dyn SegmentStore, number: u64) {
    full_segment_of(store, number, BYTES).await;
}

async fn full_segment_of(store: &dyn SegmentStore, number: u64, bytes: u64) {
    store.create_segment(number, lease(1), bytes).await.expect("create");
    store.append(number, lease(1), 0, pattern(number, bytes as usize)).await.expect("append");
    store.sync_segment(number, lease(1)).await.expect("sync");
}

#[test]
fn a_deleted_segment_gives_its_file_to_the_next() {
    for restarts in [false, true] {
        run(1, |world| async move {
            let mut served = Served::begin_with_spares(world).await;
            full_segment(served.segments(), 1).await;
            served.segments().delete_segment(1, lease(1)).await.expect("delete");
            assert_eq!((served.files().len(), served.spares().len()), (0, 1));
            if restarts {
                served.restart(false).await;
            }
            served.segments().create_segment(2, lease(1), BYTES).await.expect("create");
            assert_eq!((served.files().len(), served.spares().len()), (1, 0));
            served.segments().append(2, lease(1), 0, pattern(2, 100)).await.expect("append");
            let read = served.segments().read_segment(id(2), &range(0, BYTES)).await.expect("read");
            assert!(read[0][..100] == pattern(2, 100) && read[0][100..] == pattern(1, BYTES as usize)[100..]);
            // Another length has another file.
            served.segments().delete_segment(2, lease(1)).await.expect("delete");
            served.segments().create_segment(3, lease(1), 4096).await.expect("create");
            assert_eq!((served.files().len(), served.spares().len()), (1, 0));
            assert!(served.segments().read_segment(id(3), &range(0, 4096)).await.expect("read")[0] == [0; 4096][..]);
        });
    }
}

#[test]
fn spares_are_made_while_nothing_waits_for_them() {
    run(1, |world| async move {
        let served = Served::begin_with_spares(world).await;
        served.segments().create_segment(1, lease(1), BYTES).await.expect("create");
        assert_eq!(served.spares().len(), 0);
        served.rest().await;
        assert_eq!(served.spares().len(), 2);
        let writes = served.disk.stats().bytes_written;
        served.segments().create_segment(2, lease(1), BYTES).await.expect("create");
        assert_eq!((served.files().len(), served.spares().len()), (2, 1), "one was taken");
        assert_eq!(served.disk.stats().bytes_written - writes, 512, "and given a header");
        let read = served.segments().read_segment(id(2), &range(0, BYTES)).await.expect("read");
        assert!(read[0].iter().all(|byte| *byte == 0));
        served.rest().await;
        assert_eq!(served.spares().len(), 2);
        // However many are deleted, no more than a few are kept.
        for number in 10..30 {
            full_segment(served.segments(), number).await;
        }
        for number in 10..30 {
            served.segments().delete_segment(number, lease(1)).await.expect("delete");
        }
        assert_eq!(served.spares().len(), 8);
    });
}

#[test]
fn a_spare_is_made_in_short_steps() {
    const BYTES: u64 = 3 << 20;
    run(1, |world| async move {
        let served = Served::begin_with_spares(world.clone()).await;
        served.segments().create_segment(1, lease(1), BYTES).await.expect("create");
        let before = served.disk.stats().bytes_written;
        let mut written = vec![0];
        for _ in 0..50 {
            world.clock().sleep(Duration::from_millis(10)).await;
            written.push(served.disk.stats().bytes_written - before);
        }
        assert_eq!(written.last(), Some(&(2 * (BYTES + 4096))), "two are made, and written once");
        // In less than the pause there is one step at most.
        assert!(written.windows(5).all(|some| some[4] - some[0] <= 1 << 20), "{written:?}");
        for name in served.spares() {
            assert_eq!(served.disk.content(&name).len() as u64, BYTES + 4096);
        }
    });
}

#[test]
fn no_spare_is_made_where_few_of_them_would_have_room() {
    run(1, |world| async move {
        let served = Served::begin_with_spares(world).await;
        let free = served.store().space().await.expect("space").free_bytes;
        // Beside the segment 15 have room, and then 16.
        for (length, spares) in [(free / 16, 0), (free / 20 / 4096 * 4096, 2)] {
            let bytes = length / 4096 * 4096 - 4096;
            served.segments().create_segment(1, lease(1), bytes).await.expect("create");
            for _ in 0..10 {
                served.rest().await;
            }
            assert_eq!(served.spares().len(), spares, "of {length} bytes where {free} are free");
            served.segments().delete_segment(1, lease(1)).await.expect("delete");
        }
    });
}

#[test]
fn of_a_new_file_only_what_was_written_is_used_again() {
    const BYTES: u64 = 1 << 20;
    for (written, spares) in [(0, 0), (BYTES / 2, 0), (BYTES * 7 / 8, 0), (BYTES * 15 / 16, 1), (BYTES, 1)] {
        run(1, |world| async move {
            let served = Served::begin_with_spares(world).await;
            let segments = served.segments();
            segments.create_segment(1, lease(1), BYTES).await.expect("create");
            segments.append(1, lease(1), 0, pattern(1, written as usize)).await.expect("append");
            // What comes before a gap counts.
            segments.append(1, lease(1), BYTES - 1, pattern(1, 1)).await.ok();
            segments.delete_segment(1, lease(1)).await.expect("delete");
            assert_eq!(served.spares().len(), spares, "{written} bytes were written");
            // One of a spare was, whatever is written to it now.
            segments.create_segment(2, lease(1), BYTES).await.expect("create");
            assert_eq!(served.spares().len(), 0);
            segments.delete_segment(2, lease(1)).await.expect("delete");
            assert_eq!(served.spares().len(), spares, "{written} bytes were written");
        });
    }
}

#[test]
fn what_another_run_or_another_lease_began_is_not_used_again() {
    run(1, |world| async move {
        let mut served = Served::begin_with_spares(world).await;
        full_segment(served.segments(), 1).await;
        full_segment(served.segments(), 2).await;
        served.segments().fence(lease(2)).await.expect("fence");
        served.segments().delete_segment(2, lease(2)).await.expect("delete");
        assert_eq!(served.spares().len(), 0, "it was sealed");
        for number in 100..170 {
            served.segments().create_segment(number, lease(2), 100).await.expect("create");
        }
        served.restart(false).await;
        // Files of this length are wanted now.
        served.segments().create_segment(3, lease(2), BYTES).await.expect("create");
        served.segments().append(3, lease(2), 0, pattern(3, BYTES as usize)).await.expect("append");
        served.segments().reopen_segment(1, lease(2), 10).await.expect("reopen");
        served.segments().append(1, lease(2), 10, pattern(1, BYTES as usize - 10)).await.expect("append");
        // The store has no other handle of it any more: so many were opened since.
        for number in 100..170 {
            served.segments().read_segment(id(number), &range(0, 100)).await.expect("read");
        }
        served.segments().delete_segment(1, lease(2)).await.expect("delete");
        assert_eq!(served.spares().len(), 0, "it was opened by its name, and perhaps by others too");
        served.segments().delete_segment(3, lease(2)).await.expect("delete");
        assert_eq!(served.spares().len(), 1);
    });
}

#[test]
fn a_disk_that_writes_elsewhere_keeps_no_spares() {
    run(1, |world| async move {
        let mut served = Served::begin_with_spares(world).await;
        full_segment(served.segments(), 1).await;
        served.rest().await;
        assert_eq!(served.spares().len(), 2);
        served.disk.set_favours_overwriting(false);
        served.restart(false).await;
        full_segment(served.segments(), 2).await;
        served.rest().await;
        served.segments().delete_segment(2, lease(1)).await.expect("delete");
        assert_eq!(served.spares().len(), 0);
    });
}

#[test]
fn spares_are_free_space_for_whoever_needs_it() {
    run(1, |world| async move {
        let served = Served::begin_with_spares(world).await;
        let (store, segments) = (served.store(), served.segments());
        let before = store.space().await.expect("space").free_bytes;
        let bytes = 2 << 20;
        full_segment_of(segments, 1, bytes).await;
        full_segment_of(segments, 2, bytes).await;
        segments.delete_segment(1, lease(1)).await.expect("delete");
        segments.delete_segment(2, lease(1)).await.expect("delete");
        assert_eq!(served.spares().len(), 2);
        assert_eq!(store.space().await.expect("space").free_bytes, before, "they count as free");
        // A segment that has no room beside them, and a chunk.
        // Of no whole pages, so that it says nothing about the length of those to come.
        segments.create_segment(3, lease(1), before - (3 << 20) - 4097).await.expect("one spare gave its place");
        assert_eq!(served.spares().len(), 1, "and no more than that");
        segments.delete_segment(3, lease(1)).await.expect("delete");
        full_segment_of(segments, 4, bytes).await;
        assert_eq!(served.spares().len(), 0, "it was used");
        segments.delete_segment(4, lease(1)).await.expect("delete");
        assert_eq!(served.spares().len(), 1);
        let used = store.space().await.expect("space");
        // Now the disk is as full as can be, but for the spare.
        served.disk.set_capacity(used.total_bytes - used.free_bytes + bytes + 4096);
        assert_eq!(store.space().await.expect("space").free_bytes, bytes + 4096);
        segments.create_segment(5, lease(1), bytes).await.expect("the spare itself takes no room");
        assert_eq!(store.space().await.expect("space").free_bytes, 0);
        segments.delete_segment(5, lease(1)).await.expect("delete");
        assert_eq!(served.spares().len(), 0, "a disk that is short of space keeps none");
    });
    run(1, |world| async move {
        let served = Served::begin_with_spares(world).await;
        let (store, segments) = (served.store(), served.segments());
        full_segment_of(segments, 1, 2 << 20).await;
        segments.delete_segment(1, lease(1)).await.expect("delete");
        let space = store.space().await.expect("space");
        served.disk.set_capacity(space.total_bytes - space.free_bytes + (2 << 20) + 4096);
        let chunk = "000000000000000000000000000000a0.0.0".parse().expect("an id");
        put(store, chunk, pattern(1, 1 << 20)).await.expect("the spare gives its place");
        assert_eq!(served.spares().len(), 0);
    });
}

/// Another took what was free since it was looked at, and the file system says so at any step.
#[test]
fn a_segment_that_finds_no_room_has_that_of_spares() {
    let mut given_up = 0;
    // One that is made of nothing, and one of a spare.
    for (bytes, operation) in [BYTES - 1, BYTES].into_iter().flat_map(|bytes| (0..20).map(move |at| (bytes, at))) {
        run(operation, |world| async move {
            let served = Served::begin_with_spares(world).await;
            let segments = served.segments();
            for number in 1..4 {
                full_segment(segments, number).await;
            }
            for number in 1..4 {
                segments.delete_segment(number, lease(1)).await.expect("delete");
            }
            assert_eq!(served.spares().len(), 3);
            served.disk.fail_after(operation, Fault::NoSpace);
            let created = segments.create_segment(9, lease(1), bytes).await;
            let happened = served.disk.spare_faults();
            match created {
                Ok(()) => {
                    let content = pattern(9, bytes as usize);
                    segments.append(9, lease(1), 0, content.clone()).await.expect("there is room for it");
                    let read = segments.read_segment(id(9), &range(0, bytes)).await.expect("read");
                    assert!(read[0] == content, "operation {operation}");
                }
                // The fault has met something that takes no space.
                Err(SegmentError::Unavailable { .. }) => (),
                Err(error) => panic!("{error} at operation {operation}"),
            }
            happened && served.spares().len() < 2
        })
        .then(|| given_up += 1);
    }
    assert!(given_up > 4, "only {given_up} gave their places");
}

#[test]
fn a_fence_has_the_room_of_spares() {
    run(1, |world| async move {
        let served = Served::begin_with_spares(world).await;
        full_segment(served.segments(), 1).await;
        served.segments().delete_segment(1, lease(1)).await.expect("delete");
        let space = served.store().space().await.expect("space");
        served.disk.set_capacity(space.total_bytes - space.free_bytes + BYTES + 4096);
        let new = Lease { owner: BYSTANDER, term: Term(1) };
        served.segments().fence(new).await.expect("nobody was fenced here before");
    });
}

// ---- Damage at rest ----

#[test]
fn a_spare_that_cannot_be_told_is_removed() {
    run(1, |world| async move {
        let mut served = Served::begin_with_spares(world).await;
        full_segment(served.segments(), 1).await;
        for damage in 0..3 {
            full_segment(served.segments(), 2).await;
            served.segments().delete_segment(2, lease(1)).await.expect("delete");
            let spare = served.spares().remove(0);
            match damage {
                0 => served.disk.flip_bit(&spare, 8 * 20),
                1 => served.disk.make_unreadable(&spare, 0..1),
                // Its name and that of segment 1 are of one file, as far as one can see.
                _ => served.disk.set_content(&spare, served.disk.content(&path(id(1)))),
            }
            served.restart(false).await;
            assert_eq!(served.spares(), Vec::<String>::new(), "damage {damage}");
            served.segments().create_segment(2, lease(1), BYTES).await.expect("create");
            served.segments().delete_segment(2, lease(1)).await.expect("delete");
            served.restart(false).await;
        }
    });
}

#[test]
fn an_opening_that_cannot_see_spares_harms_neither_them_nor_the_disk() {
    let mut opened = 0;
    for operation in 0..20 {
        run(1, |world| async move {
            let mut served = Served::begin_with_spares(world).await;
            full_segment(served.segments(), 1).await;
            served.rest().await;
            let spares = served.spares();
            assert_eq!(spares.len(), 2);
            served.end(false).await;
            served.disk.fail_after(operation, Fault::Medium);
            let worker = served.process.worker(&served.disk);
            let store =
                DirectoryStore::open(served.process.env(), served.disk.attach(), worker, EXPECTED, OPTIONS).await;
            // The identity, or the probe of writing, has failed.
            let Ok(store) = store else { return false };
            if store.state() != StoreState::Serving || !served.disk.spare_faults() {
                return false;
            }
            served.store = Some(store);
            for number in 2..6 {
                served.segments().create_segment(number, lease(1), BYTES).await.expect("create");
                served.rest().await;
            }
            assert_eq!(served.store().state(), StoreState::Serving, "operation {operation}");
            assert_eq!(served.spares().len(), 2, "operation {operation}");
            true
        })
        .then(|| opened += 1);
    }
    assert!(opened > 2, "{opened} openings met a failure");
}

#[test]
fn names_of_spares_that_are_none_are_left_alone() {
    run(1, |world| async move {
        let mut served = Served::begin_with_spares(world).await;
        full_segment(served.segments(), 1).await;
        let directory = served.disk.attach();
        // Found when a process begins, and made since.
        directory.make_dir("segments/spare.3").expect("made");
        served.restart(false).await;
        directory.make_dir("segments/spare.4").expect("made");
        directory.create("segments/spare.5").expect("made");
        for number in 2..12 {
            full_segment(served.segments(), number).await;
            served.rest().await;
        }
        for number in 2..12 {
            served.segments().delete_segment(number, lease(1)).await.expect("delete");
        }
        assert_eq!(served.store().state(), StoreState::Serving);
        for name in ["segments/spare.3", "segments/spare.4"] {
            let error = directory.open(name).err().expect("a directory");
            assert_eq!(error.kind(), std::io::ErrorKind::IsADirectory);
        }
        assert_eq!(directory.open("segments/spare.5").expect("there").bytes().expect("its length"), 0);
        assert_eq!(served.spares().len(), 8 + 1, "others are made and kept");
    });
}

#[test]
fn a_spare_that_was_not_written_whole_goes_with_its_process() {
    const BYTES: u64 = 3 << 20;
    for power_cut in [false, true] {
        for wait_ms in (0..400).step_by(30) {
            run(1, |world| async move {
                let mut served = Served::begin_with_spares(world.clone()).await;
                served.segments().create_segment(1, lease(1), BYTES).await.expect("create");
                let before = served.disk.stats().bytes_written;
                world.clock().sleep(Duration::from_millis(wait_ms)).await;
                let whole = (served.disk.stats().bytes_written - before) / (BYTES + 4096);
                served.restart(power_cut).await;
                let kept = served.spares().len() as u64;
                let what = format!("{kept} of {whole} after {wait_ms} ms, power cut: {power_cut}");
                assert!(if power_cut { kept <= whole } else { kept == whole }, "{what}");
                assert!(served.spares().iter().all(|name| !name.ends_with(".new")), "{what}");
            });
        }
    }
}

#[test]
fn the_last_number_of_a_spare_ends_no_run() {
    run(1, |world| async move {
        let mut served = Served::begin_with_spares(world).await;
        full_segment(served.segments(), 1).await;
        served.rest().await;
        let [last, first] = [u64::MAX, 0].map(|number| format!("segments/spare.{number}"));
        served.disk.attach().rename(&first, &last).expect("renamed");
        served.restart(false).await;
        for number in 2..6 {
            full_segment(served.segments(), number).await;
            served.rest().await;
        }
        for number in 2..6 {
            served.segments().delete_segment(number, lease(1)).await.expect("delete");
        }
        assert_eq!(served.store().state(), StoreState::Serving);
        assert!(!served.spares().contains(&last), "it was used");
    });
}

#[test]
fn a_damaged_header_is_told_and_the_segment_can_only_go() {
    run(1, |world| async move {
        let mut served = Served::begin(world, "d").await;
        Deed::Create.prepare(served.segments()).await;
        let file = served.disk.content(&path(id(1)));
        let flip = |at: usize| {
            let mut file = file.clone();
            file[at] ^= 0x10;
            file
        };
        let cut = |end: usize| file[..end].to_vec();
        let flips = (0..64).chain((64..512).step_by(37)).map(flip);
        let cuts = [1, 64, 511, 512, 4096, file.len() - 1].map(cut);
        let other = served.disk.content(&path(SegmentId { owner: BYSTANDER, number: 1 }));
        for variant in flips.chain(cuts).chain([other]) {
            served.disk.set_content(&path(id(1)), variant);
            served.restart(false).await;
            let store = served.segments();
            let gone = SegmentInfo { id: id(1), term: Term(0), bytes: 0 };
            assert_eq!(store.segments(OWNER).await, Ok(vec![gone]));
            let damaged = store.read_segment(id(1), &range(0, 1)).await;
            assert!(matches!(damaged, Err(SegmentError::Damaged { .. })), "{damaged:?}");
            assert_eq!(store.append(1, lease(1), 0, pattern(1, 1)).await, Err(SegmentError::Sealed { id: id(1) }));
            let taken = SegmentError::AlreadyExists { id: id(1) };
            assert_eq!(store.create_segment(1, lease(1), 10).await, Err(taken));
            assert_eq!(served.store().state(), StoreState::Serving);
        }
        served.segments().delete_segment(1, lease(1)).await.expect("delete");
        assert_eq!(served.segments().segments(OWNER).await, Ok(vec![]));
    });
}

#[test]
fn an_unreadable_part_loses_the_ranges_that_touch_it() {
    run(1, |world| async move {
        let served = Served::begin(world, "d").await;
        Deed::Create.prepare(served.segments()).await;
        served.disk.make_unreadable(&path(id(1)), 4096 + 1000..4096 + 1001);
        let damaged = served.segments().read_segment(id(1), &range(0, 2000)).await;
        assert!(matches!(damaged, Err(SegmentError::Damaged { .. })), "{damaged:?}");
        let read = served.segments().read_segment(id(1), &range(0, 1000)).await.expect("readable");
        assert!(read[0] == pattern(1, OLD_BYTES)[..1000]);
        assert_eq!(served.store().state(), StoreState::Serving);
    });
}

#[test]
fn remnants_are_removed_and_names_of_others_left_alone() {
    run(1, |world| async move {
        let mut served = Served::begin(world, "d").await;
        Deed::Create.prepare(served.segments()).await;
        let directory = served.disk.attach();
        let strangers = ["segments/notes.txt".to_owned(), format!("segments/{OWNER}.07")];
        for name in &strangers {
            directory.create(name).expect("create");
        }
        directory.create(&path(id(5))).expect("create");
        directory.create(&path(id(6))).expect("create").write_at(0, &[0; 9000]).expect("write");
        served.restart(false).await;
        assert_eq!(served.segments().segments(OWNER).await.expect("segments").len(), 1);
        assert_eq!(served.segments().owners().await, Ok(vec![OWNER, BYSTANDER]));
        let files = served.files();
        assert!(!files.contains(&path(id(5))) && !files.contains(&path(id(6))), "{files:?}");
        served.segments().forget_owner(lease(1)).await.expect("forget");
        assert!(strangers.iter().all(|name| served.files().contains(name)));
    });
}

#[test]
fn a_damaged_fence_stops_changes_until_the_next_fence() {
    run(1, |world| async move {
        let mut served = Served::begin(world, "d").await;
        Deed::Create.prepare(served.segments()).await;
        let fence = served.disk.content(&fence_path(OWNER));
        assert_eq!(fence.len(), 512);
        for term in 2..20 {
            let mut file = if term < 18 { served.disk.content(&fence_path(OWNER)) } else { Vec::new() };
            if let Some(byte) = file.get_mut(term as usize * 3) {
                *byte ^= 0x40;
            }
            served.disk.set_content(&fence_path(OWNER), file);
            served.restart(false).await;
            let store = served.segments();
            for term in [term - 1, term] {
                let refused = store.create_segment(term, lease(term), 100).await;
                assert!(matches!(refused, Err(SegmentError::Unavailable { .. })), "{refused:?}");
            }
            assert!(store.read_segment(id(1), &range(0, 10)).await.is_ok());
            assert_eq!(served.store().state(), StoreState::Serving);
            store.fence(lease(term)).await.expect("fence");
            let late = store.create_segment(term, lease(term - 1), 100).await;
            assert_eq!(late, Err(SegmentError::Fenced { lease: lease(term - 1), fenced: Term(term) }));
            store.create_segment(term, lease(term), 100).await.expect("create");
        }
    });
}

// ---- Order ----

#[test]
fn behind_a_fence_nothing_of_a_former_term_is_written() {
    for stall in 0..40 {
        run(stall, |world| async move {
            let served = Served::begin(world.clone(), "d").await;
            let store = served.segments();
            store.create_segment(1, lease(1), BYTES).await.expect("create");
            let clock = world.clock();
            let old = async {
                let mut end = 0;
                while store.append(1, lease(1), end, pattern(end, 100)).await.is_ok() {
                    end += 100;
                    assert!(end < BYTES, "the fence comes");
                }
                end
            };
            let new = async {
                clock.sleep(Duration::from_micros(stall * 17)).await;
                store.fence(lease(2)).await.expect("fence");
                // Behind the header's sector: what was appended when the fence returned.
                served.disk.content(&path(id(1)))
            };
            let (end, file) = futures::join!(old, new);
            assert!(served.disk.content(&path(id(1))) == file, "changed behind the fence, {end} bytes appended");
        });
    }
}

#[test]
fn an_append_is_one_write_and_a_sync_one_sync() {
    run(1, |world| async move {
        let served = Served::begin(world, "d").await;
        Deed::Create.prepare(served.segments()).await;
        let before = served.disk.stats();
        served.segments().append(1, lease(1), OLD_BYTES as u64, pattern(2, 8192)).await.expect("append");
        served.segments().sync_segment(1, lease(1)).await.expect("sync");
        let after = served.disk.stats();
        assert_eq!((after.operations - before.operations, after.syncs - before.syncs), (2, 1));
        assert_eq!((after.bytes_written - before.bytes_written, after.bytes_read - before.bytes_read), (8192, 0));
    });
}

#[test]
fn many_sealed_segments_are_read_with_few_open_files() {
    run(1, |world| async move {
        let mut served = Served::begin(world, "d").await;
        for number in 0..100 {
            served.segments().create_segment(number, lease(1), 100).await.expect("create");
            served.segments().append(number, lease(1), 0, pattern(number, 100)).await.expect("append");
        }
        served.restart(false).await;
        for number in (0..100).chain(0..100).chain(90..100) {
            let read = served.segments().read_segment(id(number), &range(0, 100)).await.expect("read");
            assert!(read[0] == pattern(number, 100));
        }
        let before = served.disk.stats().operations;
        served.segments().read_segment(id(95), &range(0, 100)).await.expect("read");
        assert_eq!(served.disk.stats().operations - before, 1, "its file is still open");
        put(served.store(), "0000018f3c5e7a00b1c2d3e4f506172a.4.1".parse().expect("an id"), pattern(1, 100))
            .await
            .expect("put");
        served.segments().delete_segment(95, lease(1)).await.expect("delete");
        let gone = served.segments().read_segment(id(95), &range(0, 100)).await;
        assert_eq!(gone, Err(SegmentError::NotFound { id: id(95) }));
    });
}
