//! A drive takes the time that its specification says, reads pass what waits, and a cache holds, delays and bounds.

use std::time::Duration;

use claystone_sim::{CacheModel, CachedFile, LinkModel, SimCache, SimSsd, SsdModel, World, WriteOrder, run};
use futures::future::{join, join_all};

const FILE: CachedFile = CachedFile { owner: 1, number: 1 };

async fn time(world: &World, work: impl Future) -> Duration {
    let begun = world.clock().now();
    work.await;
    world.clock().now().since(begun)
}

/// A drive that never collects.
fn plain() -> SsdModel {
    SsdModel { collect_every: u64::MAX, bytes_per_second: u64::MAX, ..SsdModel::sata_server() }
}

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// Requests a second, of so many at once.
async fn rate(world: &World, depth: usize, each: usize, request: impl AsyncFn()) -> f64 {
    let requests = (0..depth).map(|_| async {
        for _ in 0..each {
            request().await;
        }
    });
    (depth * each) as f64 / time(world, join_all(requests)).await.as_secs_f64()
}

#[test]
fn rates_are_those_of_the_specifications() {
    for (name, model, reads, writes, streams) in [
        ("server", SsdModel::sata_server(), 55_000.0..70_000.0, 13_500.0..15_500.0, 290.0..330.0),
        ("desktop", SsdModel::sata_desktop(), 75_000.0..95_000.0, 4_500.0..5_500.0, 260.0..310.0),
    ] {
        run(1, |world| async move {
            let ssd = world.ssd(name, model);
            let read = rate(&world, 32, 1000, async || ssd.read(4096).await).await;
            assert!(reads.contains(&read), "{name} reads {read} a second");
            // Its memory is full soon.
            let written = rate(&world, 32, 1000, async || ssd.write(4096, WriteOrder::Random).await).await;
            assert!(writes.contains(&written), "{name} writes {written} a second");
            let mib = rate(&world, 4, 100, async || ssd.write(1 << 20, WriteOrder::Following).await).await;
            assert!(streams.contains(&mib), "{name} writes {mib} MiB a second in order");
        });
    }
}

#[test]
fn more_reads_than_units_wait() {
    run(2, |world| async move {
        let ssd = world.ssd("d", plain());
        assert_eq!(time(&world, ssd.read(4096)).await, plain().read);
        // All units at once.
        assert_eq!(time(&world, ssd.read(8 * 16384)).await, plain().read);
        assert_eq!(time(&world, ssd.read(9 * 16384)).await, plain().read * 2);
    });
}

#[test]
fn a_read_waits_for_one_program_and_not_for_those_that_wait() {
    run(3, |world| async move {
        let ssd = world.ssd("d", plain());
        ssd.write(200 * 4096, WriteOrder::Random).await;
        for _ in 0..20 {
            assert!(time(&world, ssd.read(4096)).await <= plain().read + plain().program);
        }
    });
}

#[test]
fn after_a_rest_a_read_waits_for_nothing() {
    run(3, |world| async move {
        let ssd = world.ssd("d", SsdModel { bytes_per_second: u64::MAX, ..SsdModel::sata_server() });
        ssd.write(256 * 4096, WriteOrder::Random).await;
        ssd.flush().await;
        let reads: Vec<Duration> = join_all((0..8).map(|_| time(&world, ssd.read(4096)))).await;
        assert!(reads.iter().any(|took| *took > micros(1000)), "{reads:?}");
        ssd.rest().await;
        assert!(ssd.stats().collections > 0);
        assert_eq!(time(&world, ssd.read(4096)).await, SsdModel::sata_server().read);
    });
}

#[test]
fn a_flush_waits_for_memory_that_a_power_cut_would_empty() {
    run(4, |world| async move {
        for (name, is_protected, least) in [("p", true, micros(0)), ("u", false, plain().program * 10)] {
            let ssd = world.ssd(name, SsdModel { is_protected, ..plain() });
            ssd.write(100 * 4096, WriteOrder::Random).await;
            let took = time(&world, ssd.flush()).await;
            assert!(took >= least && (is_protected == (took == plain().flush)), "{name}: {took:?}");
        }
    });
}

fn cached(world: &World, sectors: usize, dirty_from: usize, dirty_max: usize) -> (SimSsd, SimCache) {
    let ssd = world.ssd("d", plain());
    let model = CacheModel { sectors, dirty_from, dirty_max, at_once: 4, call: micros(10), writes_through: false };
    (ssd.clone(), SimCache::new(world.process("p").env(), ssd, model))
}

#[test]
fn a_cache_holds_what_was_used_last() {
    run(5, |world| async move {
        let (ssd, cache) = cached(&world, 4, 100, 100);
        cache.read(FILE, 0..4 * 4096).await;
        assert_eq!((ssd.stats().reads, cache.stats().sectors_held), (1, 0));
        assert_eq!(time(&world, cache.read(FILE, 100..4096)).await, micros(10));
        cache.read(FILE, 4 * 4096..5 * 4096).await;
        // Sector 1 went, sector 0 did not.
        cache.read(FILE, 0..4096).await;
        assert_eq!(ssd.stats().reads, 2);
        cache.read(FILE, 4096..2 * 4096).await;
        assert_eq!(ssd.stats().reads, 3);
        cache.hold(FILE, 9 * 4096..10 * 4096);
        cache.read(FILE, 9 * 4096..10 * 4096).await;
        assert_eq!(ssd.stats().reads, 3);
    });
}

#[test]
fn a_cache_writes_later_and_makes_writers_wait_when_it_is_full() {
    run(6, |world| async move {
        let (ssd, cache) = cached(&world, 1000, 4, 8);
        for sector in 0..4u64 {
            assert_eq!(time(&world, cache.write(FILE, 8192 * sector..8192 * sector + 4096)).await, micros(10));
        }
        // The same again is as dirty as it was.
        cache.write(FILE, 0..4096).await;
        world.clock().sleep(Duration::from_secs(1)).await;
        assert_eq!(ssd.stats().writes, 0);
        cache.write(FILE, 100 * 4096..108 * 4096).await;
        assert!(ssd.stats().writes > 0);
        cache.sync().await;
        let stats = ssd.stats();
        assert_eq!((stats.sectors_written, stats.flushes), (12, 1));
        // Four runs of one sector, and one of eight.
        assert_eq!(stats.writes, 5);
    });
}

#[test]
fn a_sync_ends_while_others_write() {
    run(7, |world| async move {
        let (_, cache) = cached(&world, 1000, 4, 100);
        let writing = async {
            for sector in 0..2000u64 {
                cache.write(FILE, 8192 * sector..8192 * sector + 4096).await;
            }
        };
        let syncing = async {
            world.clock().sleep(micros(500)).await;
            time(&world, cache.sync()).await
        };
        let ((), took) = join(writing, syncing).await;
        assert!(took < Duration::from_millis(5), "{took:?}");
    });
}

#[test]
fn messages_leave_one_after_another() {
    run(8, |world| async move {
        let model = LinkModel { jitter: Duration::ZERO, ..LinkModel::ethernet_10g() };
        let link = world.link("l", model);
        assert_eq!(time(&world, link.carry(0)).await, model.delay);
        // 125,000 bytes take 100 us.
        let both = join(link.carry(125_000), link.carry(125_000));
        assert_eq!(time(&world, both).await, model.delay + micros(200));
    });
}

#[test]
fn a_seed_repeats_its_times() {
    let scenario = |seed| {
        run(seed, |world| async move {
            let ssd = world.ssd("d", SsdModel::sata_desktop());
            let cache = CacheModel {
                sectors: 50,
                dirty_from: 10,
                dirty_max: 20,
                at_once: 4,
                call: micros(10),
                writes_through: false,
            };
            let cache = SimCache::new(world.process("p").env(), ssd, cache);
            let link = world.link("l", LinkModel::ethernet_10g());
            let tasks = (0..4u64).map(|task| {
                let (cache, link) = (&cache, &link);
                async move {
                    for number in 0..100 {
                        link.carry(100).await;
                        let at = (number * 7 + task) % 100 * 4096;
                        cache.read(FILE, at..at + 4096).await;
                        cache.write(FILE, at..at + 4096).await;
                    }
                }
            });
            join_all(tasks).await;
            (world.clock().now(), world.trace())
        })
    };
    assert_eq!(scenario(1), scenario(1));
    assert!(scenario(1) != scenario(2));
}

#[test]
fn messages_arrive_in_the_order_in_which_they_were_sent() {
    run(9, |world| async move {
        let link = world.link("l", LinkModel { jitter: micros(50), ..LinkModel::ethernet_10g() });
        let arrived = std::sync::Mutex::new(Vec::new());
        let messages = (0..100).map(|number| {
            let (link, arrived) = (&link, &arrived);
            async move {
                link.carry(100).await;
                arrived.lock().expect("no test panics here").push(number);
            }
        });
        join_all(messages).await;
        assert_eq!(*arrived.lock().expect("no test panics here"), (0..100).collect::<Vec<_>>());
    });
}
