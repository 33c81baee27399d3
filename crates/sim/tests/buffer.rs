//! The emulated write buffer of a hard disk shows the stages that its model says, and what disturbs them; flash behind a device
//! takes one request after another.

use std::time::Duration;

use claystone_env::testing::device_conformance;
use claystone_env::{Effort, EmulatedTime, Moment, SECTOR_BYTES, Sector};
use claystone_sim::{BufferModel, DriveModel, HddModel, SimDevice, SsdModel, run};

const SECTORS: u64 = 1 << 20;
const KIB16: u64 = 4;
/// Longer than any quick write, shorter than any slow one.
const SLOW: Duration = Duration::from_millis(5);

fn exact() -> BufferModel {
    BufferModel { spread_percent: 0, noise_percent: 0, ..BufferModel::wd_10tb_like() }
}

fn hand(buffer: BufferModel) -> SimDevice {
    SimDevice::alone("d", HddModel::buffered(SECTORS, buffer), 7)
}

/// Writes of so many sectors one behind the other, and how long each took.
struct Log<'a> {
    hand: &'a SimDevice,
    next: u64,
    sectors: u64,
}

impl Log<'_> {
    fn write(&mut self) -> Duration {
        let before = self.hand.spent();
        let bytes = vec![1; self.sectors as usize * SECTOR_BYTES];
        self.hand.attach().write(Sector(self.next), &bytes).expect("written");
        self.next += self.sectors;
        self.hand.spent() - before
    }

    fn writes(&mut self, count: usize) {
        for _ in 0..count {
            self.write();
        }
    }

    /// Sectors until a write is slow, that one not counted.
    fn until_slow(&mut self) -> u64 {
        let begun = self.next;
        while self.write() < SLOW {
            assert!(self.next - begun < SECTORS / 4, "never slow");
        }
        self.next - self.sectors - begun
    }
}

// Test of: [bcw §HDD Buffered-Write Model]
#[test]
fn writes_are_fast_then_slow_and_between_by_turns() {
    let hand = hand(exact());
    let mut log = Log { hand: &hand, next: 0, sectors: KIB16 };
    let us = Duration::from_micros;
    let fast: Vec<Duration> = (0..1024).map(|_| log.write()).collect();
    assert!(fast.iter().all(|took| *took == us(66)), "16 MiB of 16 KiB in 66 us each");
    for _ in 0..5 {
        // Slow for 64 KiB.
        let slow: Vec<Duration> = (0..4).map(|_| log.write()).collect();
        assert!(slow.iter().all(|took| *took > us(12_000)), "{slow:?}");
        let mid: Vec<Duration> = (0..512).map(|_| log.write()).collect();
        assert!(mid.iter().all(|took| *took == us(104)), "8 MiB in 104 us each");
    }
    // It is bytes that count, not writes.
    hand.attach().sync().expect("synced");
    let mut log = Log { hand: &hand, next: 9000, sectors: 1 };
    assert_eq!((log.write(), log.until_slow()), (us(35), 4095));
}

#[test]
fn stages_vary_as_the_model_says_and_times_too() {
    let model = BufferModel::wd_10tb_like();
    let hand = hand(model);
    let mut log = Log { hand: &hand, next: 0, sectors: 1 };
    let mut lengths = Vec::new();
    for _ in 0..20 {
        hand.attach().sync().expect("synced");
        log.until_slow();
        log.until_slow();
        while log.write() > SLOW {}
        lengths.push((log.until_slow() + 1) as f64 * SECTOR_BYTES as f64 / f64::from(8 << 20));
    }
    assert!(lengths.iter().all(|part| (0.949..=1.051).contains(part)), "{lengths:?}");
    assert!(lengths.iter().any(|part| *part < 0.98) && lengths.iter().any(|part| *part > 1.02), "{lengths:?}");
    hand.attach().sync().expect("synced");
    let mut log = Log { hand: &hand, next: log.next, sectors: KIB16 };
    let took: Vec<u128> = (0..500).map(|_| log.write().as_micros()).collect();
    assert!(took.iter().all(|us| (59..=73).contains(us)) && took.iter().any(|us| *us < 61), "{took:?}");
}

// Test of: [bcw §HDD Built-in Buffer]
#[test]
fn a_sync_begins_anew_and_a_read_leaves_it_anywhere() {
    let hand = hand(exact());
    let mut log = Log { hand: &hand, next: 0, sectors: KIB16 };
    log.writes(500);
    hand.attach().sync().expect("synced");
    assert_eq!(log.until_slow(), 4096, "16 MiB since the sync, not since the beginning");
    let mut found = Vec::new();
    for at in 0..8 {
        log.until_slow();
        hand.attach().read(Sector(500_000 + at), &mut [0; SECTOR_BYTES], Effort::Retry).expect("read");
        found.push(log.until_slow());
    }
    found.sort_unstable();
    found.dedup();
    assert!(found.len() > 4 && found.iter().all(|sectors| *sectors <= 2048), "{found:?}");
}

#[test]
fn a_drive_left_alone_in_the_middle_writes_out_its_buffer_and_who_comes_then_waits() {
    let idle = |stage: &str, idle: Duration| {
        let hand = hand(exact());
        let mut log = Log { hand: &hand, next: 0, sectors: KIB16 };
        if stage == "mid" {
            log.until_slow();
            log.writes(3);
        }
        // 4 MiB, which take 34 ms to the medium.
        log.writes(256);
        hand.reach(Moment(hand.done_at().0 + idle));
        let took = log.write();
        (took, log.until_slow())
    };
    let ms = Duration::from_millis;
    assert_eq!(idle("mid", ms(9)), (Duration::from_micros(104), 2048 - 1024 - 4));
    let (took, left) = idle("mid", ms(15));
    assert!(took > ms(25) && took < ms(32), "{took:?}");
    assert_eq!(left, 2048 - 4, "nothing is left of what was in it");
    let (took, left) = idle("mid", ms(100));
    assert_eq!((took, left), (Duration::from_micros(104), 2048 - 4));
    assert_eq!(idle("fast", ms(100)), (Duration::from_micros(66), 4096 - 1024 - 4), "it does not after a sync");
}

#[test]
fn a_write_elsewhere_takes_its_way() {
    let hand = hand(exact());
    let mut log = Log { hand: &hand, next: 0, sectors: KIB16 };
    log.writes(3);
    log.next = 700_000;
    assert!(log.write() > Duration::from_millis(5));
    assert!(log.write() < Duration::from_millis(1));
}

#[test]
fn drives_with_a_buffer_and_with_flash_are_devices() {
    for buffer in [BufferModel::wd_10tb_like(), BufferModel::synthetic_small(), BufferModel::synthetic_large()] {
        device_conformance(|sectors| SimDevice::alone("d", HddModel::buffered(sectors, buffer), 7).attach());
    }
    for model in [SsdModel::nvme_desktop(), SsdModel::sata_server(), SsdModel::sata_desktop()] {
        device_conformance(|sectors| SimDevice::alone("d", DriveModel::Ssd { sectors, model }, 7).attach());
    }
}

#[test]
fn flash_takes_writes_until_its_memory_is_full_and_a_flush_waits_for_them() {
    let us = Duration::from_micros;
    let model = SsdModel { bytes_per_second: u64::MAX, stall_every_sectors: 0, ..SsdModel::nvme_desktop() };
    let hand = SimDevice::alone("d", DriveModel::Ssd { sectors: SECTORS, model }, 7);
    let mut log = Log { hand: &hand, next: 0, sectors: 1 };
    let took: Vec<Duration> = (0..2000).map(|_| log.write()).collect();
    let quick = model.write + model.serial.expect("set");
    assert_eq!(took[0], quick);
    // 8 units program 109 us a sector: 13.6 us each, less than a write takes, so the memory never fills.
    assert!(took.iter().all(|each| *each == quick));
    let mut log = Log { hand: &hand, next: 0, sectors: 64 };
    let took: Vec<Duration> = (0..50).map(|_| log.write()).collect();
    let mean = took[10..].iter().sum::<Duration>() / 40;
    assert!(mean > us(64 * 109 / 8 - 40) && mean < us(64 * 109 / 8 + 40), "{mean:?}");
    let before = hand.spent();
    hand.attach().sync().expect("synced");
    assert!(hand.spent() - before > us(2000), "a memory full of sectors");
    let before = hand.spent();
    hand.attach().sync().expect("synced");
    assert_eq!(hand.spent() - before, model.flush);
}

#[test]
fn a_stall_holds_up_all_writes_and_comes_as_often_as_the_model_says() {
    run(3, |world| async move {
        let model = SsdModel { stall_every_sectors: 1000, ..SsdModel::nvme_desktop() };
        let ssd = world.ssd("d", model);
        let clock = world.clock();
        let (mut stalled, mut longest) = (0, Duration::ZERO);
        for _ in 0..20_000 {
            let begun = clock.now();
            ssd.write(4096, claystone_sim::WriteOrder::Following).await;
            let took = clock.now().since(begun);
            stalled += u64::from(took > Duration::from_millis(1));
            longest = longest.max(took);
        }
        let stats = ssd.stats();
        assert!((15..=26).contains(&stats.stalls), "{stats:?}");
        assert!(stalled.abs_diff(stats.stalls) <= 1 && longest > Duration::from_millis(50), "{stalled} {longest:?}");
    });
}

#[test]
fn a_seed_repeats_all_times() {
    let times = |seed| {
        let hand = SimDevice::alone("d", HddModel::buffered(SECTORS, BufferModel::synthetic_small()), seed);
        let mut log = Log { hand: &hand, next: 0, sectors: KIB16 };
        (0..3000).map(|_| log.write()).collect::<Vec<_>>()
    };
    assert_eq!(times(5), times(5));
    assert_ne!(times(5), times(6));
}
