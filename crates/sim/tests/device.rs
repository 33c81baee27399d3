//! The emulated hard disk: its contract, its times, its faults at the rates that were set, and what power cuts leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use claystone_env::testing::{device_conformance, sector_pattern};
use claystone_env::{
    Device, DeviceError, Effort, EmulatedTime, FailedSector, Moment, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
    call,
};
use claystone_sim::{DeviceFaults, HddModel, SimDevice, TraceSum, World, run};

fn device(world: &World, sectors: u64) -> SimDevice {
    world.device("d", HddModel::new(sectors))
}

fn read(device: &dyn Device, first: u64, sectors: u64, effort: Effort) -> (Vec<u8>, Vec<FailedSector>) {
    let mut into = vec![0xa5; sectors as usize * SECTOR_BYTES];
    let failed = device.read(Sector(first), &mut into, effort).expect("the device answers");
    (into, failed)
}

fn failed(sectors: impl IntoIterator<Item = u64>, failure: SectorFailure) -> Vec<FailedSector> {
    sectors.into_iter().map(|sector| FailedSector { sector: Sector(sector), failure }).collect()
}

/// What `work` took on the device.
fn took<R>(device: &SimDevice, work: impl FnOnce() -> R) -> Duration {
    let before = device.spent();
    work();
    device.spent() - before
}

#[test]
fn an_emulated_disk_is_a_device() {
    run(1, |world| async move {
        let caches = [0, 1, 40, 16 * 1024];
        for (number, cache_sectors) in caches.into_iter().enumerate() {
            device_conformance(|sectors| {
                let model = HddModel { cache_sectors, ..HddModel::new(sectors) };
                world.device(&format!("d{number}"), model).attach()
            });
        }
    });
}

/// The spindle turns while nobody calls, and what is asked while the drive is busy begins when it is done.
#[test]
fn a_device_outside_of_worlds_takes_the_time_that_it_is_told() {
    let hand = SimDevice::alone("d", HddModel::new(100_000), 7);
    let (device, us) = (hand.attach(), Duration::from_micros);
    hand.reach(Moment(us(1000)));
    read(&*device, 100, 1, Effort::FailFast);
    assert_eq!(hand.done_at(), Moment(us(101 * 33)), "the turn, of which 1000 us were over");
    hand.reach(Moment(us(2000)));
    assert_eq!(hand.done_at(), Moment(us(101 * 33)), "busy until then");
    read(&*device, 101, 2, Effort::FailFast);
    assert_eq!(hand.done_at(), Moment(us(103 * 33)));
    hand.reach(Moment(us(5 * 8316 + 10 * 33)));
    read(&*device, 20, 1, Effort::FailFast);
    assert_eq!(hand.done_at(), Moment(us(5 * 8316 + 21 * 33)));
    device_conformance(|sectors| SimDevice::alone("d", HddModel::new(sectors), 7).attach());
}

// Test of: [lec §3.2]: without local codes a read takes t * tau_retry + tau_u * N.
#[test]
fn streaming_takes_transfers_and_retries_and_nothing_else() {
    run(1, |world| async move {
        let hand = device(&world, 100_000);
        let device = hand.attach();
        let us = Duration::from_micros;
        // The head is before sector 0.
        assert_eq!(took(&hand, || read(&*device, 0, 255, Effort::FailFast)), us(33 * 255));
        assert_eq!(took(&hand, || read(&*device, 255, 9745, Effort::FailFast)), us(33 * 9745));
        hand.set_faults(DeviceFaults::soft(0.01));
        let before = hand.stats().retries;
        let took = took(&hand, || assert_eq!(read(&*device, 10_000, 10_000, Effort::Retry).1, []));
        let retries = hand.stats().retries - before;
        assert!((50..200).contains(&retries), "{retries} of about 100");
        assert_eq!(took, us(33 * 10_000) + Duration::from_millis(20) * retries as u32);
    });
}

#[test]
fn random_reads_seek_and_wait_for_half_a_turn() {
    run(2, |world| async move {
        let model = HddModel::new(252 * 100_000);
        let hand = world.device("d", model);
        let device = hand.attach();
        let rounds = 4000;
        let took = took(&hand, || {
            for _ in 0..rounds {
                read(&*device, world.random().below(model.sectors), 1, Effort::FailFast);
            }
        });
        // Seeks over a uniform distance |x - y|: the mean of its root is 8/15.
        let seek = model.seek_min + (model.seek_max - model.seek_min).mul_f64(8.0 / 15.0);
        let expected = seek + model.turn() / 2 + model.transfer;
        let mean = took / rounds;
        assert!(mean.abs_diff(expected) < expected / 50, "{mean:?}, not about {expected:?}");
    });
}

#[test]
fn the_write_cache_answers_at_once_and_syncs_in_one_sweep() {
    run(3, |world| async move {
        let model = HddModel { cache_sectors: 1000, ..HddModel::new(252 * 1000) };
        let hand = world.device("d", model);
        let device = hand.attach();
        let bytes = sector_pattern(1, 10);
        let places = [90_000, 10, 50_000, 20];
        let written = took(&hand, || {
            for first in places {
                device.write(Sector(first), &bytes).expect("write");
            }
        });
        assert_eq!(written, model.cache_transfer * 40);
        assert_eq!(hand.unsynced_sectors(), 40);
        // What is in the cache reads at its speed.
        assert_eq!(took(&hand, || read(&*device, 50_002, 3, Effort::FailFast)), model.cache_transfer * 3);
        let synced = took(&hand, || device.sync().expect("sync"));
        // Two seeks outward (0 -> 50 000 -> 90 000), at most four turns.
        let seeks = model.seek(198) + model.seek(357 - 198);
        assert!(synced > seeks && synced < seeks + model.turn() * 5, "{synced:?}");
        assert_eq!((hand.unsynced_sectors(), hand.stats().syncs), (0, 1));
        assert_eq!(took(&hand, || device.sync().expect("sync")), Duration::ZERO);

        // A stream of writes goes at the medium's speed, cache or not.
        let bytes = sector_pattern(2, 250);
        device.sync().expect("sync");
        let streamed = took(&hand, || {
            for group in 0..40 {
                device.write(Sector(100_000 + group * 250), &bytes).expect("write");
            }
            device.sync().expect("sync");
        });
        let transfer = model.transfer * 10_000;
        assert!(streamed >= transfer && streamed < transfer + model.seek_max + model.turn(), "{streamed:?}");
    });
}

// Test of: [lec §3.2]: each sector fails with p_h, independently.
#[test]
fn soft_failures_come_at_their_rate() {
    for (seed, rate) in [(1, 1e-3), (2, 5e-3), (3, 0.05)] {
        run(seed, |world| async move {
            let hand = device(&world, 20_000);
            let device = hand.attach();
            hand.set_faults(DeviceFaults::soft(rate));
            let (mut found, mut pairs, rounds) = (0, 0, 10);
            for _ in 0..rounds {
                let (_, failed) = read(&*device, 0, 20_000, Effort::FailFast);
                assert!(failed.iter().all(|failed| failed.failure == SectorFailure::Soft));
                found += failed.len();
                pairs += failed.windows(2).filter(|pair| pair[1].sector.0 == pair[0].sector.0 + 1).count();
            }
            let expected = rate * 20_000.0 * f64::from(rounds);
            let off = (found as f64 - expected).abs();
            assert!(off < 4.0 * expected.sqrt(), "{found} failures, not about {expected}");
            let pairs_expected = expected * rate;
            let off = (pairs as f64 - pairs_expected).abs();
            assert!(off < 4.0 * pairs_expected.sqrt() + 2.0, "{pairs} pairs, not about {pairs_expected}");
            assert_eq!(hand.stats().soft_failures, found as u64);
        });
    }
}

#[test]
fn bursts_have_their_length_and_the_same_rate() {
    run(4, |world| async move {
        let hand = device(&world, 100_000);
        let device = hand.attach();
        hand.set_faults(DeviceFaults { burst_sectors: 8.0, ..DeviceFaults::soft(0.01) });
        let (mut found, mut bursts) = (0, 0);
        for _ in 0..20 {
            for group in 0..392 {
                let (_, failed) = read(&*device, group * 255, 255, Effort::FailFast);
                found += failed.len();
                let begins = |pair: &&[FailedSector]| pair[1].sector.0 != pair[0].sector.0 + 1;
                bursts += failed.windows(2).filter(begins).count() + usize::from(!failed.is_empty());
            }
        }
        let rate = found as f64 / (20.0 * 392.0 * 255.0);
        assert!((rate - 0.01).abs() < 0.001, "rate {rate}");
        // Cut a little by the ends of reads.
        let length = found as f64 / bursts as f64;
        assert!((7.0..8.5).contains(&length), "bursts of {length}");
    });
}

#[test]
fn a_retry_reads_what_failed_softly_and_costs_its_time() {
    run(5, |world| async move {
        let hand = device(&world, 5000);
        let device = hand.attach();
        let content = sector_pattern(5, 5000);
        device.write(Sector(0), &content).expect("write");
        device.sync().expect("sync");
        hand.set_faults(DeviceFaults::soft(0.01));
        let (bytes, soft) = read(&*device, 0, 5000, Effort::FailFast);
        assert!(soft.len() > 20);
        let lacks: BTreeSet<u64> = soft.iter().map(|failed| failed.sector.0).collect();
        for (sector, part) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let whole = &content[sector * SECTOR_BYTES..][..SECTOR_BYTES];
            let zeros = part.iter().all(|byte| *byte == 0);
            assert!(if lacks.contains(&(sector as u64)) { zeros } else { part == whole }, "sector {sector}");
        }
        hand.set_faults(DeviceFaults::default());
        for sector in lacks {
            // Puts the head before it.
            if sector > 0 {
                read(&*device, sector - 1, 1, Effort::Retry);
            }
            let costs = took(&hand, || {
                let (bytes, failed) = read(&*device, sector, 1, Effort::Retry);
                assert_eq!(failed, []);
                assert!(bytes == content[sector as usize * SECTOR_BYTES..][..SECTOR_BYTES]);
            });
            assert!(costs == Duration::from_micros(20_033), "{costs:?} for sector {sector}");
            let again = took(&hand, || read(&*device, sector, 1, Effort::Retry));
            assert!(again < Duration::from_millis(9), "it is settled: {again:?}");
        }
    });
}

#[test]
fn a_lost_sector_stays_lost_until_it_is_written() {
    run(6, |world| async move {
        let hand = device(&world, 100);
        let device = hand.attach();
        let content = sector_pattern(6, 100);
        device.write(Sector(0), &content).expect("write");
        device.sync().expect("sync");
        hand.make_lost(40..43);
        for _ in 0..3 {
            assert_eq!(read(&*device, 0, 100, Effort::FailFast).1, failed(40..43, SectorFailure::Soft));
            let costs = took(&hand, || {
                let (bytes, found) = read(&*device, 40, 3, Effort::Retry);
                assert_eq!(found, failed(40..43, SectorFailure::Lost));
                assert!(bytes.iter().all(|byte| *byte == 0));
            });
            assert!(costs >= Duration::from_secs(21), "{costs:?}");
        }
        assert_eq!(hand.content(Sector(40)), None);
        device.write(Sector(41), &content[41 * SECTOR_BYTES..][..SECTOR_BYTES]).expect("write");
        assert_eq!(read(&*device, 0, 100, Effort::Retry).1, failed([40, 42], SectorFailure::Lost));
        device.sync().expect("sync");
        hand.crash();
        let device = hand.attach();
        assert_eq!(read(&*device, 0, 100, Effort::Retry).1, failed([40, 42], SectorFailure::Lost));
        assert!(read(&*device, 41, 1, Effort::Retry).0 == content[41 * SECTOR_BYTES..][..SECTOR_BYTES]);

        // By rate.
        hand.set_faults(DeviceFaults { latent: 0.1, ..DeviceFaults::default() });
        let found = (0..20).map(|_| read(&*device, 0, 100, Effort::FailFast).1.len()).collect::<Vec<_>>();
        assert!(found.is_sorted() && found[19] > 50, "more and more are lost: {found:?}");
    });
}

#[test]
fn a_drive_that_cannot_fail_fast_retries() {
    run(7, |world| async move {
        let hand = world.device("d", HddModel { fails_fast: false, ..HddModel::new(1000) });
        let device = hand.attach();
        assert!(!device.geometry().fails_fast);
        hand.set_faults(DeviceFaults::soft(0.05));
        hand.make_lost(500..501);
        assert_eq!(read(&*device, 0, 1000, Effort::FailFast).1, failed([500], SectorFailure::Lost));
        assert!(hand.stats().retries > 20);
    });
}

#[test]
fn silent_faults_are_silent() {
    run(8, |world| async move {
        let hand = device(&world, 1000);
        let device = hand.attach();
        let content = sector_pattern(8, 1000);
        device.write(Sector(0), &content).expect("write");
        device.sync().expect("sync");
        hand.flip_bit(Sector(3), 13);
        let (bytes, found) = read(&*device, 3, 1, Effort::FailFast);
        assert_eq!((found, bytes[1] ^ content[3 * SECTOR_BYTES + 1]), (Vec::new(), 1 << 5));

        hand.misdirect_next_write(Sector(700));
        device.discard(SectorRange { first: Sector(900), sectors: 1 }).expect("no write");
        let new = sector_pattern(9, 2);
        device.write(Sector(20), &new).expect("a misdirected write looks like any");
        assert!(read(&*device, 20, 2, Effort::Retry).0 == content[20 * SECTOR_BYTES..][..2 * SECTOR_BYTES]);
        assert!(read(&*device, 700, 2, Effort::Retry).0 == new);
        device.write(Sector(20), &new).expect("write");
        assert!(read(&*device, 20, 2, Effort::Retry).0 == new, "one write only");

        hand.set_faults(DeviceFaults { flip: 0.02, ..DeviceFaults::default() });
        device.sync().expect("sync");
        device.write(Sector(0), &content).expect("write");
        device.sync().expect("sync");
        let (bytes, found) = read(&*device, 0, 1000, Effort::FailFast);
        assert_eq!(found, []);
        let flipped: u32 = bytes.iter().zip(&content).map(|(found, right)| (found ^ right).count_ones()).sum();
        assert!((5..50).contains(&flipped), "{flipped} of about 20 bits");

        hand.set_faults(DeviceFaults { misdirect: 0.1, ..DeviceFaults::default() });
        for sector in 0..500 {
            device.write(Sector(sector), &new[..SECTOR_BYTES]).expect("write");
        }
        let astray = (0..500).filter(|sector| hand.content(Sector(*sector)).as_deref() != Some(&new[..SECTOR_BYTES]));
        let astray = astray.count();
        assert!((20..90).contains(&astray), "{astray} of about 50 writes, some written over by another");
    });
}

/// One sector of a seed's number, so that what it holds tells which write it is from.
fn numbered(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(SECTOR_BYTES / 8)
}

/// The versions that the 512-byte parts of a sector are from.
fn versions(bytes: &[u8]) -> BTreeSet<u64> {
    let version = |part: &[u8]| {
        let version = u64::from_le_bytes(part[..8].try_into().expect("eight bytes"));
        assert!(part.chunks(8).all(|word| word == &part[..8]), "a part is from one write");
        version
    };
    bytes.chunks(512).map(version).collect()
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_of_the_rest_only_what_was_written() {
    // Sectors that were written and not synced: old, new, a version between, torn, lost.
    let mut outcomes = [0; 5];
    for seed in 0..300 {
        let found = run(seed, |world| async move {
            // Sometimes the cache overflows before the cut.
            let hand =
                world.device("d", HddModel { cache_sectors: [0, 30, 1000][seed as usize % 3], ..HddModel::new(100) });
            let device = hand.attach();
            let random = world.random().fork("writes");
            let mut synced = vec![0; 100];
            let mut since = vec![Vec::new(); 100];
            hand.cut_power_after(20 + random.below(60));
            for version in 1.. {
                let (first, sectors) = (random.below(90), 1 + random.below(10));
                if random.below(16) == 0 {
                    if device.sync().is_err() {
                        break;
                    }
                    for (synced, since) in synced.iter_mut().zip(&mut since) {
                        *synced = since.pop().unwrap_or(*synced);
                        since.clear();
                    }
                    continue;
                }
                for sector in first..first + sectors {
                    since[sector as usize].push(version);
                }
                if device.write(Sector(first), &numbered(version).repeat(sectors as usize)).is_err() {
                    break;
                }
            }
            assert!(!hand.is_powered());
            hand.crash();
            assert!(device.sync().is_err(), "what was attached before the crash is dead");
            let device = hand.attach();
            let mut outcomes = [0; 5];
            for (sector, (synced, since)) in synced.iter().zip(&since).enumerate() {
                let (bytes, failed) = read(&*device, sector as u64, 1, Effort::Retry);
                if !failed.is_empty() {
                    assert!(!since.is_empty(), "sector {sector} was synced and not written since");
                    outcomes[4] += 1;
                    continue;
                }
                let found = versions(&bytes);
                for version in &found {
                    assert!(version == synced || since.contains(version), "sector {sector} holds {found:?}");
                }
                if let Some(newest) = since.last() {
                    let only = |version| found == BTreeSet::from([version]);
                    let outcome = [only(*synced), only(*newest), found.len() == 1, true].iter().position(|is| *is);
                    outcomes[outcome.expect("the last is true")] += 1;
                }
            }
            outcomes
        });
        for (outcome, found) in outcomes.iter_mut().zip(found) {
            *outcome += found;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 10), "every outcome happens: {outcomes:?}");
}

#[test]
fn a_branch_is_at_the_moment_of_an_operation_and_goes_on_by_itself() {
    run(9, |world| async move {
        let hand = device(&world, 100);
        let attached = hand.attach();
        attached.write(Sector(0), &numbered(1)).expect("written");
        hand.keep_moments();
        attached.sync().expect("synced");
        attached.write(Sector(1), &numbered(2)).expect("written");
        read(&*attached, 0, 2, Effort::Retry);
        attached.write(Sector(1), &numbered(3)).expect("written");
        let moments = hand.take_moments();
        assert_eq!(moments.iter().map(|moment| moment.operation()).collect::<Vec<u64>>(), [1, 2, 4]);
        let found = |at: usize, sector: u64| {
            let found = (0..60).map(|number: u32| {
                let branch = hand.branch(&moments[at], world.random().fork(&number.to_string()));
                branch.crash();
                versions(&read(&*branch.attach(), sector, 1, Effort::Retry).0)
            });
            found.flatten().collect::<BTreeSet<_>>()
        };
        assert_eq!(found(0, 0), BTreeSet::from([0, 1]), "a sync that is cut short keeps all or nothing or some");
        assert_eq!(found(0, 1), BTreeSet::from([0]));
        assert_eq!(found(1, 0), BTreeSet::from([1]));
        assert_eq!(found(1, 1), BTreeSet::from([0, 2]));
        assert_eq!(found(2, 1), BTreeSet::from([0, 2, 3]));
        assert!(hand.is_powered() && read(&*attached, 1, 1, Effort::Retry).0 == numbered(3), "the device goes on");
        assert!(hand.take_moments().is_empty());
    });
}

#[test]
fn an_announced_death_is_for_good() {
    run(9, |world| async move {
        let hand = device(&world, 100);
        let device = hand.attach();
        device.write(Sector(0), &numbered(1).repeat(100)).expect("write");
        device.sync().expect("sync");
        hand.remove_after(1);
        read(&*device, 0, 1, Effort::FailFast);
        assert!(hand.faults_to_come());
        device.write(Sector(0), &numbered(2).repeat(60)).expect_err("it dies in it");
        assert!(!hand.faults_to_come() && hand.spare_faults(), "it came");
        device.read(Sector(0), &mut [0; SECTOR_BYTES], Effort::Retry).expect_err("dead");
        hand.set_removed(false);
        let found: BTreeSet<_> = (0..60).map(|sector| versions(&read(&*device, sector, 1, Effort::Retry).0)).collect();
        assert!(found.is_superset(&BTreeSet::from([BTreeSet::from([1]), BTreeSet::from([2])])), "in part: {found:?}");

        hand.remove_after(0);
        device.sync().expect_err("it dies in it");
        hand.crash();
        let device = hand.attach();
        device.write(Sector(0), &numbered(3)).expect_err("dead, whatever the power does");
        device.sync().expect_err("dead");
        hand.set_removed(false);
        device.write(Sector(0), &numbered(4)).expect("it is back");
    });
}

#[test]
fn an_announced_failure_comes_once() {
    run(9, |world| async move {
        let hand = device(&world, 100);
        let device = hand.attach();
        device.write(Sector(0), &numbered(1).repeat(100)).expect("write");
        device.sync().expect("sync");

        hand.fail_after(1);
        read(&*device, 0, 1, Effort::FailFast);
        let error = device.read(Sector(4), &mut vec![0; 2 * SECTOR_BYTES], Effort::Retry).expect_err("the second");
        assert!(
            matches!(error, DeviceError::Read { range: SectorRange { first: Sector(4), sectors: 2 }, .. }),
            "{error}"
        );
        assert!(hand.spare_faults(), "it came");

        hand.fail_after(0);
        let error = device.write(Sector(0), &numbered(2).repeat(60)).expect_err("announced");
        assert!(matches!(error, DeviceError::Write { range: SectorRange { first: Sector(0), sectors: 60 }, .. }));
        let found: BTreeSet<_> = (0..60).map(|sector| versions(&read(&*device, sector, 1, Effort::Retry).0)).collect();
        let expected = [vec![1], vec![2], vec![1, 2]].map(BTreeSet::from_iter);
        assert_eq!(found, BTreeSet::from(expected), "sectors are old, new or torn");
        assert_eq!(versions(&read(&*device, 60, 40, Effort::Retry).0), BTreeSet::from([1]));

        device.write(Sector(0), &numbered(3).repeat(60)).expect("write");
        hand.fail_after(0);
        assert!(matches!(device.sync(), Err(DeviceError::Sync { .. })));
        assert!(matches!(device.sync(), Err(DeviceError::Sync { .. })), "no later sync makes up for it");
        let (bytes, _) = read(&*device, 0, 60, Effort::Retry);
        let held = bytes.chunks(SECTOR_BYTES).filter(|sector| versions(sector) == BTreeSet::from([3])).count();
        assert!((10..50).contains(&held), "{held} of 60 were written, the others forgotten");
        hand.crash();
        let device = hand.attach();
        device.sync().expect("opened anew");

        hand.set_removed(true);
        assert!(device.read(Sector(0), &mut [0; SECTOR_BYTES], Effort::Retry).is_err());
        assert!(
            device.write(Sector(0), &numbered(4)).is_err()
                && device.discard(SectorRange { first: Sector(0), sectors: 1 }).is_err()
        );
        hand.set_removed(false);
        assert_ne!(versions(&read(&*device, 0, 1, Effort::Retry).0), BTreeSet::from([4]));

        hand.set_faults(DeviceFaults { fail: 0.2, ..DeviceFaults::default() });
        let failures =
            (0..1000).filter(|_| device.read(Sector(0), &mut [0; SECTOR_BYTES], Effort::Retry).is_err()).count();
        assert!((140..260).contains(&failures), "{failures} of about 200");
    });
}

/// Two tasks on one device under every kind of fault, until power goes.
fn scenario(seed: u64) -> (TraceSum, Vec<Option<Vec<u8>>>, Duration, Duration) {
    run(seed, |world| async move {
        let hand = world.device("d", HddModel { cache_sectors: 50, ..HddModel::new(300) });
        let (soft, latent, flip) = (0.05, 0.001, 0.001);
        hand.set_faults(DeviceFaults { soft, burst_sectors: 3.0, latent, flip, misdirect: 0.02, fail: 0.02 });
        hand.cut_power_after(150);
        let process = world.process("p");
        let worker = process.device_worker(&hand);
        let work = |name: &'static str| {
            let (device, worker, env) = (hand.attach(), worker.clone(), process.env().clone());
            async move {
                let random = env.random.fork(name);
                for _ in 0..100 {
                    let (device, random) = (device.clone(), random.clone());
                    let work = move || {
                        let first = Sector(random.below(290));
                        let mut bytes = vec![0; (1 + random.below(10) as usize) * SECTOR_BYTES];
                        match random.below(8) {
                            0 => drop(device.sync()),
                            1..4 => {
                                random.fill(&mut bytes);
                                drop(device.write(first, &bytes));
                            }
                            4..6 => drop(device.read(first, &mut bytes, Effort::FailFast)),
                            _ => drop(device.read(first, &mut bytes, Effort::Retry)),
                        }
                    };
                    call(&*worker, work).await.expect("the worker runs");
                    env.clock.sleep(Duration::from_micros(10)).await;
                }
            }
        };
        futures::join!(work("a"), work("b"));
        assert!(!hand.is_powered());
        hand.crash();
        let content = (0..300).map(|sector| hand.content(Sector(sector))).collect();
        (world.trace(), content, hand.spent(), world.clock().now().0)
    })
}

#[test]
fn a_seed_repeats_its_run() {
    let runs: Vec<_> = (0..10).map(scenario).collect();
    for (seed, first) in (0..).zip(&runs) {
        assert!(first.0.events > 300);
        assert!(scenario(seed) == *first, "seed {seed}");
    }
    assert_eq!(runs.iter().map(|run| run.0.hash).collect::<BTreeSet<_>>().len(), 10, "seeds differ");
}

#[test]
fn a_worker_charges_the_device_s_time_to_the_world() {
    run(10, |world| async move {
        let hand = device(&world, 10_000);
        let process = world.process("p");
        let worker = process.device_worker(&hand);
        let read = |first| {
            let device: Arc<dyn Device> = hand.attach();
            call(&*worker, move || read(&*device, first, 1000, Effort::FailFast).1)
        };
        let (one, two) = futures::join!(read(0), read(1000));
        assert_eq!((one, two), (Ok(Vec::new()), Ok(Vec::new())));
        assert_eq!(hand.spent(), Duration::from_micros(66_000));
        assert_eq!(world.clock().now().0, Duration::from_micros(66_000));
        // The spindle turns on while nobody reads: from 2000, an hour later.
        let before = hand.spent();
        world.clock().sleep(Duration::from_secs(3600)).await;
        read(5000).await.expect("the worker runs");
        let wait = hand.spent() - before - Duration::from_micros(33_000);
        let model = HddModel::new(10_000);
        assert!(wait >= model.seek(12) && wait < model.seek(12) + model.turn(), "{wait:?}");
    });
}
