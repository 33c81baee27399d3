//! The store on a disk with local coding: on a device in memory, and on an emulated one whose sectors fail softly.

use std::sync::Arc;

use claystone_chunk::testing::{conformance, pattern, put};
use claystone_chunk::{ByteRange, ChunkId, ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::testing::MemoryDevice;
use claystone_env::{Device, Directory, Env, WallTime};
use claystone_files::{Disk, DiskDirectory, Format, Tuning};
use claystone_host::ThreadWorker;
use claystone_sim::{DeviceFaults, HddModel, run};

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
    let options = Options { reserve_bytes: Some(0), ..Options::default() };
    Arc::new(DirectoryStore::open(env, directory, worker, EXPECTED, options).await.expect("open"))
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
            let read = store.read(chunk(number), None, &[all]).await.expect("read");
            assert!(read[0] == pattern(number as u64, 1 << 20));
        }
        assert!(hand.stats().soft_failures > 5);
        assert_eq!(hand.stats().retries, 0, "soft failures are decoded, not retried");
    });
}
