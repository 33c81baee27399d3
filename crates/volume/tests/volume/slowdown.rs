//! Writers while the reserve fills up, on disks in simulated time: they come down to the speed of merging, and never stop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::{Clock, Moment, Random, Space, timeout};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, SqliteMeta};
use claystone_sim::{DiskModel, SimRandom, World, run};
use claystone_stripe::{Member, Stores, Stripes};
use claystone_volume::{Blocks, Durable, NewVolume, Settings, Volume, Volumes};
use futures::future::join_all;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const CLUSTER: ClusterId = ClusterId(1);
/// A disk that appends fast, and reads slowly what is anywhere.
const DISK: DiskModel = DiskModel {
    capacity_bytes: 1 << 30,
    read: Duration::from_millis(4),
    write: Duration::from_micros(50),
    sync: Duration::from_millis(4),
    name: Duration::from_micros(50),
    bytes_per_second: 180_000_000,
};

/// A volume of 64 MiB on six disks, all of it in stripes, with a reserve of 24 MiB; and what merges it in the background.
async fn volume(world: &World) -> (Volumes, Volume) {
    volume_of(world, "rs:2+1", Settings::default().heat_half_life).await
}

async fn volume_of(world: &World, redundancy: &str, heat_half_life: Duration) -> (Volumes, Volume) {
    let process = world.process("node");
    let env = process.env().clone();
    let meta = SqliteMeta::in_memory(env.cpu.clone()).await.expect("an empty database");
    let stores = Stores::default();
    for number in 0..6 {
        let sim = world.disk(&number.to_string(), DISK);
        let (disk, node) = (DiskId(number), NodeId(number.to_string()));
        let worker = process.worker(&sim);
        let identity = Identity { disk, cluster: CLUSTER, node: node.clone(), created: env.clock.wall() };
        format(&*worker, sim.attach(), identity).await.expect("an empty disk");
        let options = Options { reserve_bytes: Some(MIB), ..Options::default() };
        let expected = Expected { cluster: CLUSTER, disk };
        let store = DirectoryStore::open(&env, sim.attach(), worker, expected, options).await.expect("a disk");
        let (path, added) = (number.to_string(), env.clock.wall());
        let record = DiskRecord { id: disk, node, path, state: DiskState::Active, added };
        meta.put_disk(record.clone()).await.expect("a new disk");
        let store: Arc<dyn ChunkStore> = Arc::new(store);
        stores.put(Member { record, store: Ok(store), space: Space { total_bytes: 1 << 30, free_bytes: 1 << 30 } });
    }
    let (stripes, _) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
    let settings = Settings { reserve_bytes: 24 * MIB, segment_bytes: 6 * MIB, heat_half_life, ..Settings::default() };
    let volumes = Volumes::new(env, Arc::new(meta), stripes, settings);
    let redundancy = redundancy.parse().expect("valid");
    let new = NewVolume { chunk_bytes: 64 << 10, ..NewVolume::new("v", 64 * MIB, redundancy) };
    volumes.create(new).await.expect("a new volume");
    let volume = volumes.open("v").await.expect("it opens");
    // All of it, and four more, so that the last segment has room: how full it is decides when merging is due for the first time.
    for number in 0..68 {
        let at = number % 64;
        volume.write(at * MIB, pattern(at, MIB as usize), Durable::WithFlush).await.expect("there is room");
    }
    volume.merge_all().await.expect("merged");
    (volumes, volume)
}

/// Writes pages anywhere, `depth` at once, for so long. Returns when each was acknowledged.
async fn write_anywhere(clock: &dyn Clock, volume: &Volume, depth: u64, time: Duration) -> Vec<Moment> {
    write_below(clock, volume, volume.bytes(), depth, time).await
}

/// The same in the first `bytes`.
async fn write_below(clock: &dyn Clock, volume: &Volume, bytes: u64, depth: u64, time: Duration) -> Vec<Moment> {
    let end = clock.now().after(time);
    let acknowledged = Mutex::new(vec![clock.now()]);
    let writers = (0..depth).map(|writer| {
        let acknowledged = &acknowledged;
        async move {
            let random = SimRandom::new(writer);
            while clock.now() < end {
                let offset = random.below(bytes / PAGE) * PAGE;
                let content = pattern(random.below(u64::MAX), PAGE as usize);
                volume.write(offset, content, Durable::WithFlush).await.expect("it can be merged");
                acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(clock.now());
            }
        }
    });
    join_all(writers).await;
    acknowledged.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn writers_come_down_to_the_speed_of_merging_and_never_stop() {
    for depth in [1, 32] {
        run(depth, |world| async move {
            let (_volumes, volume) = volume(&world).await;
            let clock = world.clock();
            // Until the reserve is nearly used up, and then for much longer than it takes to merge all of it.
            let first = write_anywhere(&*clock, &volume, depth, Duration::from_secs(5)).await;
            assert!(volume.status().used_percent > 50, "{depth} at once do not fill the reserve");
            let before = volume.status();
            let then = write_anywhere(&*clock, &volume, depth, Duration::from_secs(115)).await;
            let after = volume.status();
            let all: Vec<Moment> = first.into_iter().chain(then.iter().copied()).collect();
            let longest = all.windows(2).map(|pair| pair[1].since(pair[0])).max().expect("there are some");
            let (written, merged) = (then.len() as u64 - 1, after.merged.pages - before.merged.pages);
            let used = after.used_percent;
            let figures = format!(
                "{depth} at once: none for {longest:?}; {written} pages written, {merged} merged; {used} % used, {} before",
                before.used_percent
            );
            assert!(longest < Duration::from_secs(1), "{figures}");
            assert!(used < 120, "{figures}");
            // Parity that merges write finds room without going beyond it.
            assert!(after.log_bytes <= after.reserve_bytes, "{figures}, {} bytes of log", after.log_bytes);
            // Pages that are written again while they wait are merged once.
            assert!(merged > 1000 && written > merged / 2 && written < 4 * merged, "{figures}");
        });
    }
}

/// Each page of a discard is a diff that waits: of a volume that is much longer than its reserve no more of them wait than that has,
/// with the parity that merging them writes.
#[test]
fn discards_wait_until_what_was_discarded_before_is_merged() {
    run(3, |world| async move {
        let (_volumes, volume) = volume(&world).await;
        let clock = world.clock();
        // All but a page of each stripe, so that merging is as slow as of anything else.
        let (bytes, stripe_bytes) = (volume.bytes(), volume.status().stripe_bytes);
        let mut discarding = std::pin::pin!(async {
            for offset in (0..bytes).step_by(stripe_bytes as usize) {
                let range = ByteRange { offset: offset + PAGE, bytes: stripe_bytes - PAGE };
                volume.discard(range, Durable::WithFlush).await.expect("it can be merged");
            }
        });
        let (mut waited_bytes, mut used_percent, mut log_bytes) = (0, 0, 0);
        while timeout(&*clock, Duration::from_millis(1), &mut discarding).await.is_none() {
            let status = volume.status();
            waited_bytes = waited_bytes.max(status.diff_pages * PAGE);
            used_percent = used_percent.max(status.used_percent);
            log_bytes = log_bytes.max(status.log_bytes);
        }
        let reserve_bytes = volume.status().reserve_bytes;
        let figures =
            format!("at most {} MiB waited, {used_percent} % used, {log_bytes} bytes of log", waited_bytes / MIB);
        assert!((reserve_bytes / 2..reserve_bytes).contains(&waited_bytes), "{figures}");
        assert!(used_percent < 135 && log_bytes <= reserve_bytes, "{figures}");
        volume.merge_all().await.expect("merged");
        assert_eq!(volume.status().diff_pages, 0);
    });
}

/// While writers keep merging busy stripes that they leave alone are coded all the same.
#[test]
fn stripes_are_switched_beside_writers_that_never_rest() {
    run(4, |world| async move {
        let (_volumes, volume) = volume_of(&world, "replica:2/rs:2+1", Duration::from_secs(2)).await;
        let clock = world.clock();
        write_below(&*clock, &volume, 32 * MIB, 32, Duration::from_secs(20)).await;
        let before = volume.status();
        let mut rests = 0;
        let mut longest = Duration::ZERO;
        for _ in 0..60 {
            let written = write_below(&*clock, &volume, 32 * MIB, 32, Duration::from_secs(1)).await;
            longest = longest.max(written.windows(2).map(|pair| pair[1].since(pair[0])).max().expect("there are some"));
            rests += u32::from(volume.status().used_percent < 50);
        }
        let after = volume.status();
        let (coded, merged) = (after.switched.coded - before.switched.coded, after.merged.pages - before.merged.pages);
        let figures = format!("{coded} coded, {merged} pages merged, none for {longest:?}; {rests} rests");
        // A segment is a quarter of the reserve: when one is over merging may be due again only a moment later.
        assert!(rests <= 3, "{figures}");
        // 12 to 27, as chance has it.
        assert!(coded > 10 && merged > 1000, "{figures}");
        assert!(longest < Duration::from_secs(2), "{figures}");
    });
}
