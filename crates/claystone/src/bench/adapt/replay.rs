//! A workload played against the real store on directories of this machine, small and with its time compressed.
//!
//! ```text
//!   a workload's day       0        6 h   30 h                48 h                                     the end
//!                          written, read, converted by heat,  what counts; three disks are lost in it
//! ```
//!
//! What is written and read comes in the workload's order, one after the other and as fast as the store takes it. Its wall
//! clock is the workload's, so heat decays as it would within those days. A file is 60 chunks of 64 KiB or a multiple, which
//! is about as many stripes of one row as the simulation has of 64 MiB chunks.
//!
//! Invariants:
//! 1. Files, reads and the chunks that fail are the same for all ways to keep data.
//! 2. What counts for a read of a missing chunk, a lost disk or a conversion is what the stores did during it, and nothing else
//!    is done then.
//! 3. What is read is compared with what was put.
//!
//! Left out: reads that find two chunks missing, which the simulation has; drives (`machine`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use claystone_chunk::{ByteRange, DiskId};
use claystone_code::Shape;
use claystone_env::{Clock, Moment, WallTime};
use claystone_meta::{DiskState, Span, VersionRef};
use claystone_object::Object;
use claystone_stripe::{Absence, Layout};
use futures::future::BoxFuture;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::machine::{Store, key};
use super::simulate::{BEGIN_MS, Keeping, WATCHED_S};
use super::workload::{WRITTEN_S, Workload};

/// A workload played against one way to keep data.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    /// Files that were read, whole.
    pub reads: u64,
    /// Bytes of files.
    pub data_bytes: u64,
    /// Bytes written to put all.
    pub put_bytes: u64,
    /// Of each read of a chunk that was missing: how long it took, and chunks read for it.
    pub degraded: Vec<(Duration, f64)>,
    /// How long reads took of as many chunks that were there.
    pub plain: Vec<Duration>,
    /// Lost disks.
    pub rebuilt: Rebuilt,
    /// Bytes of chunks for a hundred bytes of files: as they were put.
    pub space_as_put: f64,
    /// On average over the time that counts.
    pub space_mean: f64,
    /// At most, at any time from the first byte on.
    pub space_max: f64,
    /// All conversions.
    pub converted: Converted,
}

/// What rebuilding took.
#[derive(Debug, Clone, Default)]
pub struct Rebuilt {
    /// Bytes of chunks lost.
    pub lost_bytes: u64,
    /// Of data among as many bytes of the stripes whose chunks these are. The one disk that is lost has more or fewer data chunks of them by chance.
    pub lost_data_bytes: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Of each disk.
    pub seconds: Vec<f64>,
}

/// What conversions took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Converted {
    /// How many.
    pub conversions: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read back to verify those.
    pub verified_bytes: u64,
    /// How long they took, with looking for them.
    pub seconds: f64,
}

/// Plays it.
///
/// # Errors
/// Something was refused, or other bytes came back.
pub async fn replay(place: &Path, workload: &Workload, keeping: Keeping, seed: u64) -> anyhow::Result<Replayed> {
    let clock = Arc::new(WorkloadClock::new(claystone_host::env()?.clock));
    // One row: as many stripes as there would be of chunks of their full length.
    let settings = claystone_stripe::Settings { stripe_bytes_max: 1, bound_from_bytes: 0, ..Default::default() };
    let store = Store::new(place, DISKS, settings, Some(clock.clone())).await?;
    let bucket = store.bucket("files", keeping).await?;
    let follows = matches!(keeping, Keeping::Policy(_));
    let random = ChaCha8Rng::seed_from_u64(seed);
    let (replayed, lost) = (Replayed::default(), BTreeSet::new());
    let mut replay = Replay { store, bucket, workload, clock, random, lost, replayed, space: Space::default() };
    for (at_s, event) in events(workload, follows) {
        replay.goes_to(at_s);
        match event {
            Event::Write { file } => replay.write(file).await?,
            Event::Read { file } => replay.read(file, at_s).await?,
            Event::Convert => replay.convert().await?,
            Event::Lose => replay.lose_a_disk().await?,
        }
    }
    replay.end().await
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Write { file: usize },
    Read { file: usize },
    Convert,
    Lose,
}

/// All that happens, in order; of two things at once what is written first, then what is read, then upkeep.
fn events(workload: &Workload, follows: bool) -> Vec<(f64, Event)> {
    let count = workload.files.len();
    let writes = (0..count).map(|file| (WRITTEN_S * file as f64 / count as f64, Event::Write { file }));
    let reads = workload.reads.iter().map(|(at_s, file)| (*at_s, Event::Read { file: *file }));
    let looks = (0..).map(|look| WATCHED_S + CONVERT_EVERY_S * f64::from(look));
    let looks = looks.take_while(|at_s| *at_s < workload.end_s).filter(|_| follows);
    let measured_s = workload.end_s - workload.measured_from_s;
    let nth = |nth| workload.measured_from_s + measured_s * (f64::from(nth) + 0.5) / f64::from(DISKS_LOST);
    let losses = (0..DISKS_LOST).map(nth);
    let mut events: Vec<(f64, Event)> = writes.chain(reads).collect();
    events.extend(looks.map(|at_s| (at_s, Event::Convert)));
    events.extend(losses.flat_map(|at_s| [(at_s, Event::Convert), (at_s, Event::Lose)]).filter(|(_, event)| {
        // What is still to be converted is no part of a rebuild.
        follows || !matches!(event, Event::Convert)
    }));
    events.sort_by(|one, other| one.0.total_cmp(&other.0));
    events
}

struct Replay<'a> {
    store: Store,
    bucket: String,
    workload: &'a Workload,
    clock: Arc<WorkloadClock>,
    random: ChaCha8Rng,
    lost: BTreeSet<DiskId>,
    replayed: Replayed,
    space: Space,
}

impl Replay<'_> {
    fn goes_to(&mut self, at_s: f64) {
        self.clock.set(at_s);
        self.count_space(at_s);
    }

    fn count_space(&mut self, until_s: f64) {
        let Workload { measured_from_s, end_s, .. } = *self.workload;
        self.space.count(until_s.min(end_s), measured_from_s);
    }

    async fn write(&mut self, file: usize) -> anyhow::Result<()> {
        let bytes = self.workload.files[file];
        self.store.tally.take();
        self.store.put(&self.bucket, file, bytes).await?;
        self.replayed.put_bytes += self.store.tally.take().written_bytes();
        self.replayed.data_bytes += bytes;
        self.space.percent = 100.0 * self.replayed.put_bytes as f64 / self.replayed.data_bytes as f64;
        self.space.percent_max = self.space.percent_max.max(self.space.percent);
        if file + 1 == self.workload.files.len() {
            self.measure().await?;
            self.replayed.space_as_put = self.space.percent;
        }
        Ok(())
    }

    /// Reads a file; some of its chunks are missing, in the time that counts.
    async fn read(&mut self, file: usize, at_s: f64) -> anyhow::Result<()> {
        let bytes = self.workload.files[file];
        let object = self.store.find(&self.bucket, file).await?;
        let is_measured = at_s >= self.workload.measured_from_s;
        let tiles = bytes / TILE_BYTES;
        let missing: Vec<u64> = (0..tiles).filter(|_| is_measured && self.random.random_bool(FAILS)).collect();
        let pieces = if missing.is_empty() { Vec::new() } else { self.pieces(file).await? };
        let mut from = 0;
        for tile in missing {
            let piece = pieces[pieces.partition_point(|piece| piece.end() <= tile * TILE_BYTES)];
            if piece.offset < from {
                continue;
            }
            // The chunk before it takes its time too, to compare with.
            let at = piece.offset;
            let beside = at.saturating_sub(TILE_BYTES).max(from);
            self.read_range(&object, file, from..beside).await?;
            let begin = Instant::now();
            self.read_range(&object, file, beside..at).await?;
            if beside < at {
                self.replayed.plain.push(begin.elapsed());
            }
            self.read_missing(&object, file, piece).await?;
            from = piece.end();
        }
        self.read_range(&object, file, from..bytes).await?;
        self.replayed.reads += 1;
        Ok(())
    }

    async fn read_range(&self, object: &Object, file: usize, range: std::ops::Range<u64>) -> anyhow::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let bytes = range.end - range.start;
        let range = ByteRange { offset: range.start, bytes };
        self.store.read_range(object, file, range, self.workload.files[file]).await
    }

    /// Reads a piece of a file while its disk is away.
    async fn read_missing(&mut self, object: &Object, file: usize, piece: Piece) -> anyhow::Result<()> {
        let disk = piece.disk;
        let stores = self.store.stripes.stores();
        let away = || Absence { reason: "taken away".to_owned() };
        stores.update(disk, |member| member.store = Err(away()));
        self.store.tally.take();
        let begin = Instant::now();
        let read = self.read_range(object, file, piece.offset..piece.end()).await;
        let took = begin.elapsed();
        let counts = self.store.tally.take();
        let back = self.store.stores[&disk].clone();
        stores.update(disk, |member| member.store = Ok(back));
        read?;
        self.replayed.degraded.push((took, counts.read_bytes() as f64 / piece.bytes as f64));
        Ok(())
    }

    /// The bytes of a file by the disks that they are on. What the bound left no room for may end in shorter rows.
    async fn pieces(&self, file: usize) -> anyhow::Result<Vec<Piece>> {
        let found = self.store.meta.object(&self.bucket, &key(file), &VersionRef::Current).await?;
        let (mut pieces, mut offset) = (Vec::new(), 0);
        for span in &found.spans {
            let Span { stripe, band, .. } = span;
            let bands = stripe.bands();
            let of_band = bands[usize::from(*band)];
            let first: u16 = bands[..usize::from(*band)].iter().map(|band| band.chunks).sum();
            let shape = Shape { data: of_band.chunks, ..stripe.code.shape() };
            let layout = Layout::new(shape, stripe.sub_bytes, of_band.data_bytes);
            for (chunk, ByteRange { bytes, .. }) in layout.slices(ByteRange { offset: 0, bytes: span.data_bytes() }) {
                let place = stripe.places[usize::from(first + chunk)].context("a data chunk has a place")?;
                pieces.push(Piece { offset, bytes, disk: place.disk });
                offset += bytes;
            }
        }
        let bytes = self.workload.files[file];
        ensure!(offset == bytes, "{offset} bytes are on disks of the {bytes} of file {file}");
        Ok(pieces)
    }

    /// Converts until nothing is left to convert now, and gives back what that drops.
    async fn convert(&mut self) -> anyhow::Result<()> {
        self.store.tally.take();
        let begin = Instant::now();
        for _ in 0..ROUNDS_MAX {
            let round = self.store.keeper.convert_once().await?;
            ensure!(round.failed == 0, "{} conversions failed", round.failed);
            self.replayed.converted.conversions += round.converted();
            if round.converted() + round.spread == 0 {
                break;
            }
        }
        let converted = &mut self.replayed.converted;
        converted.seconds += begin.elapsed().as_secs_f64();
        let counts = self.store.tally.take();
        converted.read_bytes += counts.read_bytes();
        converted.written_bytes += counts.written_bytes();
        converted.verified_bytes += counts.verified_bytes;
        while self.store.keeper.reclaim_once().await?.forgotten > 0 {}
        self.measure().await
    }

    /// Gives up the disk with most on it, and rebuilds what was there.
    async fn lose_a_disk(&mut self) -> anyhow::Result<()> {
        let held = self.held().await?;
        let fullest = held.iter().filter(|(disk, _)| !self.lost.contains(disk));
        let fullest = fullest.max_by_key(|(disk, held)| (held.bytes, **disk));
        let (disk, held) = fullest.context("there are disks left")?;
        self.lost.insert(*disk);
        self.store.tally.take();
        let begin = Instant::now();
        self.store.keeper.set_disk_state(*disk, DiskState::Lost).await?;
        loop {
            let round = self.store.keeper.repair_once().await?;
            ensure!(round.failed + round.unrecoverable + round.waiting_chunks == 0, "not all was rebuilt: {round:?}");
            if round.chunks + round.converted == 0 {
                break;
            }
        }
        let rebuilt = &mut self.replayed.rebuilt;
        rebuilt.seconds.push(begin.elapsed().as_secs_f64());
        let counts = self.store.tally.take();
        rebuilt.lost_bytes += held.bytes;
        rebuilt.lost_data_bytes += held.data_bytes;
        rebuilt.read_bytes += counts.read_bytes();
        rebuilt.written_bytes += counts.written_bytes();
        self.measure().await
    }

    /// What the records have on each disk.
    async fn held(&self) -> anyhow::Result<BTreeMap<DiskId, Held>> {
        let stripes = self.store.meta.stripes(None, STRIPES_MAX).await?;
        ensure!(stripes.len() < STRIPES_MAX, "more stripes than are looked at at once");
        let mut on: BTreeMap<DiskId, Held> = BTreeMap::new();
        for stripe in &stripes {
            let chunk_bytes = Layout::chunk_bytes_of(stripe)?;
            let shape = stripe.code.shape();
            let data_share = f64::from(shape.data) / f64::from(shape.chunks());
            for place in &stripe.places {
                let place = place.context("a chunk has a place")?;
                let held = on.entry(place.disk).or_default();
                held.bytes += chunk_bytes;
                held.data_bytes += chunk_bytes as f64 * data_share;
            }
        }
        Ok(on)
    }

    async fn measure(&mut self) -> anyhow::Result<()> {
        let bytes: u64 = self.held().await?.values().map(|held| held.bytes).sum();
        self.space.percent = 100.0 * bytes as f64 / self.replayed.data_bytes as f64;
        Ok(())
    }

    /// The stores hold what the records say, and all files what was put.
    async fn end(mut self) -> anyhow::Result<Replayed> {
        self.count_space(self.workload.end_s);
        let named: u64 = self.held().await?.values().map(|held| held.bytes).sum();
        let stored = self.store.chunks_bytes(&self.lost).await?;
        ensure!(stored == named, "the disks hold {stored} bytes, and the records have {named}");
        for (file, bytes) in self.workload.files.iter().enumerate() {
            let object = self.store.find(&self.bucket, file).await?;
            self.read_range(&object, file, 0..*bytes).await?;
        }
        let Replay { mut replayed, space, workload, .. } = self;
        replayed.space_mean = space.percent_seconds / (workload.end_s - workload.measured_from_s);
        replayed.space_max = space.percent_max;
        Ok(replayed)
    }
}

/// Bytes of a file that lie together in one chunk.
#[derive(Debug, Clone, Copy)]
struct Piece {
    offset: u64,
    bytes: u64,
    disk: DiskId,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// What a disk holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: u64,
    /// What of them is data where each chunk counts for as much of it as its stripe has in all.
    data_bytes: f64,
}

/// Space over time.
#[derive(Debug, Clone, Copy, Default)]
struct Space {
    /// Now, in percent of the data.
    percent: f64,
    /// Counted until then.
    counted_s: f64,
    percent_seconds: f64,
    percent_max: f64,
}

impl Space {
    /// It was as it is until then; what is before `from_s` does not count but for the most.
    fn count(&mut self, until_s: f64, from_s: f64) {
        let since_s = self.counted_s.max(from_s);
        self.percent_max = self.percent_max.max(self.percent);
        if until_s > since_s {
            self.percent_seconds += self.percent * (until_s - since_s);
        }
        self.counted_s = self.counted_s.max(until_s);
    }
}

/// The system's clock, whose wall time is the workload's.
struct WorkloadClock {
    system: Arc<dyn Clock>,
    unix_ms: AtomicU64,
}

impl WorkloadClock {
    fn new(system: Arc<dyn Clock>) -> WorkloadClock {
        WorkloadClock { system, unix_ms: AtomicU64::new(BEGIN_MS) }
    }

    fn set(&self, at_s: f64) {
        self.unix_ms.store(BEGIN_MS + (at_s * 1000.0) as u64, Ordering::Relaxed);
    }
}

impl Clock for WorkloadClock {
    fn now(&self) -> Moment {
        self.system.now()
    }

    fn wall(&self) -> WallTime {
        WallTime { unix_ms: self.unix_ms.load(Ordering::Relaxed) }
    }

    fn sleep(&self, delay: Duration) -> BoxFuture<'static, ()> {
        self.system.sleep(delay)
    }
}

/// 60 chunks of 64 KiB, as files of the simulation have of 64 MiB.
pub const UNIT_BYTES: u64 = 60 * TILE_BYTES;
const TILE_BYTES: u64 = 64 << 10;
/// 42 for a stripe of `pc:6x5`, those that are lost, and some to go to.
const DISKS: u128 = 48;
const DISKS_LOST: u32 = 3;
/// Reads that find their chunk missing: of few reads enough to count, where the simulation has one of a hundred.
const FAILS: f64 = 0.04;
/// The simulation, and a store, look more often.
const CONVERT_EVERY_S: f64 = 4.0 * 3600.0;
const ROUNDS_MAX: usize = 1000;
const STRIPES_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use claystone_code::CodeSpec;
    use claystone_stripe::sub_bytes_for;

    use super::super::SYSTEMS;
    use super::*;

    #[test]
    fn a_chunk_of_one_row_has_one_length_under_all_codes() {
        for system in SYSTEMS {
            let codes = match system.keeping() {
                Keeping::Code(code) => vec![code],
                Keeping::Policy(policy) => vec![policy.fast, policy.compact],
            };
            let row_bytes = |code: &CodeSpec| Layout::new(code.shape(), sub_bytes_for(*code), 1).row_bytes();
            let is_tile = |code: &CodeSpec| row_bytes(code) == u64::from(code.shape().data) * TILE_BYTES;
            assert!(codes.iter().all(is_tile), "{}", system.name);
            assert!(codes.iter().all(|code| 60 % code.shape().data == 0), "{}: whole stripes", system.name);
        }
    }

    #[test]
    fn all_happens_in_the_workload_s_order_and_disks_are_lost_when_it_counts() {
        let hour = 3600.0;
        let workload = Workload {
            name: "w".to_owned(),
            files: vec![UNIT_BYTES; 2],
            reads: vec![(7.0 * hour, 1), (49.0 * hour, 0)],
            measured_from_s: 48.0 * hour,
            end_s: 54.0 * hour,
        };
        let told = |follows| -> Vec<String> {
            let told = |(at_s, event): &(f64, Event)| match event {
                Event::Write { file } => format!("{} write {file}", at_s / hour),
                Event::Read { file } => format!("{} read {file}", at_s / hour),
                Event::Convert => format!("{} convert", at_s / hour),
                Event::Lose => format!("{} lose", at_s / hour),
            };
            events(&workload, follows).iter().map(told).collect()
        };
        let stays = ["0 write 0", "3 write 1", "7 read 1", "49 read 0", "49 lose", "51 lose", "53 lose"];
        assert_eq!(told(false), stays);
        let follows = told(true);
        let converts = ["30", "34", "38", "42", "46", "49", "50", "51", "53"].map(|hour| format!("{hour} convert"));
        assert_eq!(follows.iter().filter(|event| event.ends_with("convert")).cloned().collect::<Vec<_>>(), converts);
        let kept: Vec<&String> = follows.iter().filter(|event| !event.ends_with("convert")).collect();
        assert_eq!(kept, stays.iter().collect::<Vec<_>>());
    }

    #[test]
    fn space_counts_by_how_long_it_is_taken() {
        let mut space = Space { percent: 300.0, ..Space::default() };
        space.count(9.0, 10.0);
        space.percent = 200.0;
        space.count(12.0, 10.0);
        space.percent = 100.0;
        space.count(14.0, 10.0);
        assert_eq!((space.percent_seconds, space.percent_max), (600.0, 300.0));
    }
}
