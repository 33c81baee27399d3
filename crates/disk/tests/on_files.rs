//! The store on a disk with local coding: on a device in memory, and on an emulated one whose sectors fail softly.

use std::cell::RefCell;
use std::sync::Arc;

use async_trait::async_trait;
use claystone_chunk::testing::{Reopen, conformance, pattern, put, segments};
use claystone_chunk::{ByteRange, ChunkError, ChunkId, ChunkStore, DiskId, Lease, NodeId, OwnerId, SegmentId, Term};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::testing::MemoryDevice;
use claystone_env::{Device, Directory, Env, SectorHealth, WallTime};
use claystone_files::{Disk, DiskDirectory, Format, Tuning};
use claystone_host::ThreadWorker;
use claystone_sim::{DeviceFaults, HddModel, Process, SimDevice, World, run};

const EXPECTED: Expected = Expected { cluster: ClusterId(7), disk: DiskId(1) };

fn directory(device: Arc<dyn Device>, env: &Env) -> Arc<dyn Directory> {
    let shape =
        Format { data: 250, parity: 5, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: String::new() };
    Disk::format(&device, &shape, &*env.clock, &*env.random).expect("formatted");
    let disk = Disk::open(device, env.clock.clone(), Tuning::default()).expect("opens");
    Arc::new(DiskDirectory::new(Arc::new(disk)))
}

async fn store(
    directory: Arc<dyn Directory>,
    env: &Env,
    worker: Arc<dyn claystone_env::Worker>,
) -> Arc<dyn ChunkStore> {
    let node = NodeId("node-1".to_owned());
    let identity = Identity { disk: EXPECTED.disk, cluster: EXPECTED.cluster, node, created: WallTime { unix_ms: 1 } };
    format(&*worker, directory.clone(), identity).await.expect("format");
    open(directory, env, worker).await
}

async fn open(directory: Arc<dyn Directory>, env: &Env, worker: Arc<dyn claystone_env::Worker>) -> Arc<dyn ChunkStore> {
    let options = Options { reserve_bytes: Some(0), ..Options::default() };
    Arc::new(DirectoryStore::open(env, directory, worker, EXPECTED, options).await.expect("open"))
}

/// A store on an emulated device, and the device.
struct Served {
    world: World,
    hand: SimDevice,
    process: Process,
    store: Option<Arc<dyn ChunkStore>>,
}

#[async_trait(?Send)]
impl Reopen for Served {
    fn store(&self) -> &dyn ChunkStore {
        &**self.store.as_ref().expect("open")
    }

    async fn reopen(&mut self) {
        self.process.kill();
        self.store = None;
        self.hand.crash();
        self.process = self.world.process("p");
        let env = self.process.env();
        let disk = Disk::open(self.hand.attach(), env.clock.clone(), Tuning::default()).expect("opens");
        let directory = Arc::new(DiskDirectory::new(Arc::new(disk)));
        self.store = Some(open(directory, env, self.process.device_worker(&self.hand)).await);
    }
}

#[test]
fn keeps_segments_through_power_cuts() {
    run(3, async |world| {
        let mut number = 0;
        segments(|| {
            number += 1;
            let (world, hand) = (world.clone(), world.device(&format!("d{number}"), HddModel::new(16_384)));
            async move {
                let process = world.process("p");
                let directory = directory(hand.attach(), process.env());
                let store = store(directory, process.env(), process.device_worker(&hand)).await;
                Served { world, hand, process, store: Some(store) }
            }
        })
        .await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    let env = claystone_host::env().expect("an environment");
    let mut stores = Vec::new();
    for _ in 0..20 {
        let directory = directory(Arc::new(MemoryDevice::new(16_384)), &env);
        let worker = Arc::new(ThreadWorker::start("disk", 3).expect("threads"));
        stores.push(store(directory, &env, worker).await);
    }
    let mut next = stores.into_iter();
    conformance(|| {
        let store = next.next().expect("as many stores as checks");
        async move { store }
    })
    .await;
}

/// The same store, while sectors fail softly, alone and in bursts, and some of those that are read are lost until they are
/// written. At twenty times this rate a whole read of a group loses one sector in two, which is mended at once and written again
/// when it fails a second time: with 60 reads in a row, six of a group are lost together in 4 of 100 runs, which no parity of five
/// mends. So it was in one of 33 seeds: six sectors, of which a retry read none.
#[test]
fn conforms_on_a_device_whose_sectors_fail() {
    run(5, async |world| {
        let (made, bursts) = (RefCell::new(Vec::new()), [0.0, 4.0]);
        conformance(|| {
            let number = made.borrow().len();
            let hand = world.device(&format!("d{number}"), HddModel::new(16_384));
            let (process, made) = (world.process(&format!("p{number}")), &made);
            async move {
                let directory = directory(hand.attach(), process.env());
                let store = store(directory.clone(), process.env(), process.device_worker(&hand)).await;
                let burst_sectors = bursts[number % bursts.len()];
                hand.set_faults(DeviceFaults { soft: 0.02, burst_sectors, latent: 1e-4, ..DeviceFaults::default() });
                made.borrow_mut().push((directory, process));
                store
            }
        })
        .await;
        let of = made.borrow().iter().map(|(directory, _)| directory.sectors().expect("a disk")).collect::<Vec<_>>();
        let sum = |count: fn(&SectorHealth) -> u64| of.iter().map(count).sum::<u64>();
        assert!(sum(|of| of.soft_failures) > 10, "{of:?}");
        assert!(sum(|of| of.mended) > 10, "{of:?}");
        assert_eq!(sum(|of| of.sectors_lost), 0, "{of:?}");
    });
}

#[test]
fn chunks_read_right_where_one_sector_in_fifty_fails() {
    run(3, async |world| {
        let hand = world.device("d", HddModel::new(16_384));
        let process = world.process("p");
        let directory = directory(hand.attach(), process.env());
        let store = store(directory, process.env(), process.device_worker(&hand)).await;
        let chunk = |number: u128| -> ChunkId { format!("{number:032x}.0.0").parse().expect("an id") };
        for number in 0..8 {
            put(&*store, chunk(number), pattern(number as u64, 1 << 20)).await.expect("put");
        }
        hand.set_faults(DeviceFaults::soft(0.005));
        let all = ByteRange { offset: 0, bytes: 1 << 20 };
        for number in 0..8 {
            let read = store.read(chunk(number), &[all]).await.expect("read");
            assert!(read[0] == pattern(number as u64, 1 << 20));
        }
        assert!(hand.stats().soft_failures > 5);
        assert_eq!(hand.stats().retries, 0, "soft failures are decoded, not retried");
    });
}

// What a segment reserves is room for groups, so the store needs no reserve of its own for their parity.
#[test]
fn appends_to_a_full_disk_find_what_was_reserved() {
    for step in [8192, 4160] {
        run(3, async |world| {
            let hand = world.device("d", HddModel::new(16_384));
            let process = world.process("p");
            let directory = directory(hand.attach(), process.env());
            let worker = process.device_worker(&hand);
            drop(store(directory.clone(), process.env(), worker.clone()).await);
            let options = Options { reserve_bytes: Some(0), ..Options::default() };
            let store = DirectoryStore::open(process.env(), directory, worker, EXPECTED, options);
            let store = store.await.expect("open");
            let lease = Lease { owner: OwnerId(1), term: Term(1) };
            let bytes = 8 << 20;
            store.segments().create_segment(1, lease, bytes).await.expect("create");
            let mut filled = 0u128;
            for size in [1 << 20, 1 << 16, 4000] {
                let full = loop {
                    let id = format!("{filled:032x}.0.0").parse().expect("an id");
                    match put(&store, id, pattern(1, size)).await {
                        Ok(()) => filled += 1,
                        Err(error) => break error,
                    }
                };
                assert!(matches!(full, ChunkError::DiskFull { .. }), "{full}");
            }
            assert!(filled > 30, "{filled} chunks");
            let mut end = 0;
            while end + step <= bytes {
                store.segments().append(1, lease, end, pattern(end, step as usize)).await.expect("reserved");
                store.segments().sync_segment(1, lease).await.expect("reserved");
                end += step;
            }
            let id = SegmentId { owner: lease.owner, number: 1 };
            let last = ByteRange { offset: end - step, bytes: step };
            let read = store.segments().read_segment(id, &[last]).await.expect("read");
            assert!(read[0] == pattern(end - step, step as usize));
        });
    }
}
