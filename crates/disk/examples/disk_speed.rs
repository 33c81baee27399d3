//! What a directory store does on the disk of this machine: `cargo run --release -p claystone-disk --example
//! disk_speed -- DIR`. For figures that are compared and kept there is `claystone bench`.

#![allow(clippy::disallowed_methods, reason = "measures real time on a real directory")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use claystone_chunk::testing::{pattern, put};
use claystone_chunk::{
    ByteRange, ChunkId, ChunkStore, DiskId, Durability, Lease, NodeId, Overwrite, OwnerId, SegmentId, Term,
};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_host::{HostDirectory, ThreadWorker};

const LEASE: Lease = Lease { owner: OwnerId(1), term: Term(1) };

fn chunk(number: u64) -> ChunkId {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{number:016x}{spread:016x}.0.0").parse().expect("an id")
}

fn report(what: &str, mut times: Vec<Duration>, bytes: usize, wall: Duration) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_micros();
    let rate = times.len() as f64 / wall.as_secs_f64();
    let mb = rate * bytes as f64 / 1e6;
    println!("{what:<28} {rate:>9.0}/s {mb:>8.0} MB/s   p50 {:>6} us  p99 {:>6} us", at(50), at(99));
}

async fn writes(store: &Arc<DirectoryStore>, what: &str, base: u64, count: u64, width: u64, content: &Bytes) {
    let began = Instant::now();
    let mut tasks = Vec::new();
    for lane in 0..width {
        let (store, content) = (store.clone(), content.clone());
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            for number in (lane..count).step_by(width as usize) {
                let one = Instant::now();
                put(&*store, chunk(base + number), content.clone()).await.expect("put");
                times.push(one.elapsed());
            }
            times
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("task"));
    }
    report(what, times, content.len(), began.elapsed());
}

/// A volume's merge: sectors of chunks replaced in place.
async fn changes(store: &DirectoryStore) {
    let change = |number: u64, sectors: usize| Overwrite { offset: 8192, bytes: pattern(number, sectors * 4096) };
    // With the file open already, and with the files of more chunks than stay open.
    for (what, chunks, sectors) in
        [("overwrite 4 KiB", 1, 1), ("overwrite 4 KiB of 100", 100, 1), ("overwrite 64 KiB", 1, 16)]
    {
        let mut times = Vec::new();
        let all = Instant::now();
        for number in 0..2000 {
            let changes = [change(number, sectors)];
            let one = Instant::now();
            store.overwrite(chunk(20_000 + number % chunks), LEASE, &changes).await.expect("overwrite");
            times.push(one.elapsed());
        }
        report(what, times, sectors * 4096, all.elapsed());
        let one = Instant::now();
        store.sync().await.expect("sync");
        report("sync of these", vec![one.elapsed()], 0, one.elapsed());
    }
    let mut times = Vec::new();
    let all = Instant::now();
    for number in 0..500 {
        let one = Instant::now();
        store.overwrite(chunk(20_000), LEASE, &[change(number, 1)]).await.expect("overwrite");
        store.sync().await.expect("sync");
        times.push(one.elapsed());
    }
    report("overwrite 4 KiB and sync", times, 4096, all.elapsed());
    let changes: Vec<Overwrite> =
        (0..64).map(|number| Overwrite { offset: number * 8192, bytes: pattern(number, 4096) }).collect();
    let mut times = Vec::new();
    let all = Instant::now();
    for _ in 0..200 {
        let one = Instant::now();
        store.overwrite(chunk(20_000), LEASE, &changes).await.expect("overwrite");
        times.push(one.elapsed());
    }
    report("overwrite 64 times 4 KiB", times, 64 * 4096, all.elapsed());
    store.sync().await.expect("sync");
}

/// A volume's log.
async fn appends(store: &DirectoryStore) {
    let bytes = 64 << 20;
    for (number, content_bytes, synced) in [(1, 4096, false), (2, 8192, false), (3, 4096, true), (4, 8192, true)] {
        let one = Instant::now();
        store.segments().create_segment(number, LEASE, bytes).await.expect("create");
        report("create a segment of 64 MiB", vec![one.elapsed()], 0, one.elapsed());
        let mut times = Vec::new();
        let all = Instant::now();
        for at in 0..2000 {
            let content = pattern(at, content_bytes);
            let one = Instant::now();
            store.segments().append(number, LEASE, at * content_bytes as u64, content).await.expect("append");
            if synced {
                store.segments().sync_segment(number, LEASE).await.expect("sync");
            }
            times.push(one.elapsed());
        }
        let what = format!("append {} KiB{}", content_bytes >> 10, if synced { " and sync" } else { "" });
        report(&what, times, content_bytes, all.elapsed());
    }
    let mut times = Vec::new();
    let all = Instant::now();
    for at in 0..2000 {
        let one = Instant::now();
        let range = [ByteRange { offset: at * 7 % 1000 * 4096, bytes: 4096 }];
        let id = SegmentId { owner: LEASE.owner, number: 1 };
        store.segments().read_segment(id, &range).await.expect("read");
        times.push(one.elapsed());
    }
    report("read 4 KiB of a segment", times, 4096, all.elapsed());
    store.segments().forget_owner(LEASE).await.expect("forget");
}

#[tokio::main]
async fn main() {
    let dir = std::env::args().nth(1).expect("usage: disk_speed DIR");
    let threads = std::env::args().nth(2).map_or(1, |text| text.parse().expect("a number of threads"));
    let env = claystone_host::env().expect("an environment");
    let directory = Arc::new(HostDirectory::make(dir).expect("a directory"));
    let worker = Arc::new(ThreadWorker::start("disk", threads).expect("threads"));
    let expected = Expected { cluster: ClusterId(1), disk: DiskId::new(&*env.random) };
    let node = NodeId("here".to_owned());
    let identity = Identity { disk: expected.disk, cluster: expected.cluster, node, created: env.clock.wall() };
    let began = Instant::now();
    format(&*worker, directory.clone(), identity).await.expect("format");
    println!("format {:?}", began.elapsed());
    let began = Instant::now();
    let store = DirectoryStore::open(&env, directory, worker, expected, Options::default()).await.expect("open");
    println!("open   {:?}", began.elapsed());
    let store = Arc::new(store);

    let small = pattern(1, 4000);
    let big = pattern(2, 1 << 20);
    writes(&store, "write 4000 B synced, 1", 0, 2000, 1, &small).await;
    writes(&store, "write 4000 B synced, 16", 10_000, 4000, 16, &small).await;
    writes(&store, "write 1 MiB synced, 1", 20_000, 200, 1, &big).await;
    writes(&store, "write 1 MiB synced, 4", 30_000, 200, 4, &big).await;

    let mut times = Vec::new();
    let all = Instant::now();
    for number in 0..200 {
        let one = Instant::now();
        let mut writer = store.create(chunk(40_000 + number), big.len() as u64).await.expect("create");
        writer.append(big.clone()).await.expect("append");
        writer.commit(Durability::Buffered).await.expect("commit");
        times.push(one.elapsed());
    }
    report("write 1 MiB buffered", times, big.len(), all.elapsed());
    store.sync().await.expect("sync");

    let large = pattern(3, 64 << 20);
    let one = Instant::now();
    put(&*store, chunk(50_000), large.clone()).await.expect("put");
    report("write 64 MiB synced", vec![one.elapsed()], large.len(), one.elapsed());

    for (what, base, bytes) in [("read 4000 B", 0, 4000), ("read 1 MiB", 20_000, 1 << 20)] {
        let mut times = Vec::new();
        let all = Instant::now();
        for number in 0..2000 {
            let one = Instant::now();
            let range = [ByteRange { offset: 0, bytes }];
            store.read(chunk(base + number % 200), &range).await.expect("read");
            times.push(one.elapsed());
        }
        report(what, times, bytes as usize, all.elapsed());
    }

    changes(&store).await;
    appends(&store).await;

    let began = Instant::now();
    let ids = store.list(None, 10_000).await.expect("list");
    println!("first list of {} ids {:?}", ids.len(), began.elapsed());
    let began = Instant::now();
    for id in ids {
        store.delete(id).await.expect("delete");
    }
    println!("delete all {:?}", began.elapsed());
}
