//! The face of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkError, ChunkId, DiskId, Durability, StripeId};
use claystone_code::{ChunkIndex, CodeSpec, ConversionPlan};
use claystone_env::{Env, timeout};
use claystone_meta::{ChunkPlace, Span, StripeRecord};
use tokio::sync::mpsc;

use crate::claim::Claims;
use crate::hold::Holds;
use crate::lanes::Lanes;
use crate::lookup::Lookups;
use crate::writer::{Banding, Placing, Spending};
use crate::{
    Converted, DegradedReads, Family, Heats, Hold, Homes, Homing, Housing, Pace, Rebuilt, Recoded, Rooms, Stores,
    StripeError, StripeReader, StripeWriter, Verification,
};

/// What the operator decided about stripes, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The longest stripe, in object bytes; rounded up to a whole row of tiles.
    pub stripe_bytes_max: u64,
    /// Object bytes fetched in one step of a read or a rebuild, at least one row.
    pub window_bytes: u64,
    /// A read that takes longer than this, and than four times the store's recent latency, is hedged.
    pub hedge_delay_min: Duration,
    /// A read that takes longer than this has failed.
    pub read_timeout: Duration,
    /// A write to one store that takes longer than this has failed, and the store counts as absent until it answers.
    pub write_timeout: Duration,
    /// A read counts half for a stripe's heat when it is this old; longer than 0.
    pub heat_half_life: Duration,
    /// A bucket with a policy that has fewer bytes of objects than this may take as much beyond its compact code as if it had as many; from then
    /// on what is written keeps its bound.
    pub bound_from_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            stripe_bytes_max: 64 << 20,
            window_bytes: 4 << 20,
            hedge_delay_min: Duration::from_millis(20),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            heat_half_life: Duration::from_secs(24 * 60 * 60),
            bound_from_bytes: 1 << 30,
        }
    }
}

/// A chunk that a read found lost or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Which chunk.
    pub chunk: ChunkId,
    /// On which disk.
    pub disk: DiskId,
    /// What the store said.
    pub error: ChunkError,
}

/// Receives what reads find damaged. At most 1,024 reports wait; further ones are dropped, since the next read or
/// scrub finds the damage again.
pub type DamageReports = mpsc::Receiver<Damage>;

/// Reads and writes stripes. Cheap to clone; calls may come from many tasks.
#[derive(Debug, Clone)]
pub struct Stripes {
    pub(crate) env: Env,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) claims: Claims,
    lookups: Lookups,
    pub(crate) holds: Holds,
    pub(crate) heats: Heats,
    pub(crate) degraded: DegradedReads,
    rooms: Rooms,
    pub(crate) lanes: Lanes,
    pub(crate) damage: mpsc::Sender<Damage>,
}

impl Stripes {
    /// Stripes over these stores.
    pub fn new(env: Env, stores: Stores, settings: Settings) -> (Stripes, DamageReports) {
        let (damage, reports) = mpsc::channel(DAMAGE_REPORTS_MAX);
        (
            Stripes {
                env,
                stores,
                heats: Heats::new(settings.heat_half_life),
                degraded: DegradedReads::default(),
                rooms: Rooms::new(settings.bound_from_bytes),
                lanes: Lanes::default(),
                settings: Arc::new(settings),
                claims: Claims::default(),
                lookups: Lookups::default(),
                holds: Holds::default(),
                damage,
            },
            reports,
        )
    }

    /// The disks.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// How much stripes are read.
    pub fn heats(&self) -> &Heats {
        &self.heats
    }

    /// Which stripes readers had to decode lately.
    pub fn degraded_reads(&self) -> &DegradedReads {
        &self.degraded
    }

    /// How much buckets may take before they come to their bounds.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// The longest stripe in object bytes under this code: `stripe_bytes_max` in whole rows, at least one.
    pub fn data_bytes_max(&self, code: CodeSpec) -> u64 {
        let row_bytes = crate::Layout::new(code.shape(), crate::sub_bytes_for(code), 1).row_bytes();
        self.settings.stripe_bytes_max.next_multiple_of(row_bytes)
    }

    /// Keeps reclaim away from this stripe's chunks while the claim is held: for readers.
    pub fn claim(&self, stripe: StripeId) -> crate::Claim {
        self.claims.claim([stripe])
    }

    /// Keeps reclaim away from all chunks that a record names, whatever stripes they were written for: for readers.
    pub fn claim_record(&self, record: &StripeRecord) -> crate::Claim {
        self.claims.claim(record.names())
    }

    /// Keeps reclaim away from all that is about to be found by records, until it is claimed: for readers.
    pub fn look_up(&self) -> crate::Lookup {
        self.lookups.begin()
    }

    /// Those who have begun to look records up.
    pub fn lookups_begun(&self) -> crate::LookupsBegun {
        self.lookups.begun()
    }

    /// Whether all of those are done: what was dead then has been claimed, or is not read any more.
    pub fn are_lookups_done(&self, begun: crate::LookupsBegun) -> bool {
        self.lookups.are_done(begun)
    }

    /// Whether somebody writes or reads chunks with a name like one of this record's. Ask this before deleting any.
    pub fn is_record_claimed(&self, record: &StripeRecord) -> bool {
        record.names().into_iter().any(|stripe| self.claims.is_claimed(stripe))
    }

    /// Whether somebody is writing chunks of this stripe that no record names yet, or reads it. Ask this before
    /// asking whether a record names them.
    pub fn is_claimed(&self, stripe: StripeId) -> bool {
        self.claims.is_claimed(stripe)
    }

    /// Begins a stripe of exactly `data_bytes` object bytes on disks chosen now. No more than half of the code's tolerance
    /// may be missing.
    ///
    /// # Errors
    /// `TooFewDisks`, `NotDurable` if too many stores refuse, `Code`.
    pub async fn writer(
        &self,
        code: CodeSpec,
        data_bytes: u64,
        durability: Durability,
    ) -> Result<StripeWriter, StripeError> {
        self.writer_in_bands(code, 1, data_bytes, durability).await
    }

    /// As [`Stripes::writer`], on disks where the stripe can be merged with others of its family: `code` is its fast one, or
    /// that of copies of the same data chunks.
    ///
    /// # Errors
    /// As [`Stripes::writer`].
    pub async fn writer_in_lane(
        &self,
        code: CodeSpec,
        family: Family,
        data_bytes: u64,
        durability: Durability,
    ) -> Result<StripeWriter, StripeError> {
        let (needed, available) = (usize::from(code.disks_min()), self.stores.candidates().len());
        if available < needed {
            return Err(StripeError::TooFewDisks { needed, available });
        }
        let (placing, banding) = (Placing::InLane(family), Banding::one(data_bytes));
        StripeWriter::new(self, code, placing, banding, durability, Spending::half(code)).await
    }

    /// As [`Stripes::writer`], for a stripe that lies as if `bands` others of `band_bytes` object bytes each had been merged into it: their
    /// bytes follow each other. All parity is held in memory until the last of them.
    ///
    /// # Errors
    /// As [`Stripes::writer`].
    ///
    /// # Panics
    /// If its data chunks are not so many bands of as many.
    pub async fn writer_in_bands(
        &self,
        code: CodeSpec,
        bands: u16,
        band_bytes: u64,
        durability: Durability,
    ) -> Result<StripeWriter, StripeError> {
        let (needed, available) = (usize::from(code.disks_min()), self.stores.candidates().len());
        if available < needed {
            return Err(StripeError::TooFewDisks { needed, available });
        }
        let banding = Banding { bands, band_bytes };
        StripeWriter::new(self, code, Placing::Anywhere, banding, durability, Spending::half(code)).await
    }

    /// The chunks that a stripe of `fast` keeps when it is merged into one of `compact`; none if it cannot be.
    pub fn kept_by_merge(&self, fast: CodeSpec, compact: CodeSpec) -> Arc<BTreeSet<ChunkIndex>> {
        self.lanes.kept(fast, compact)
    }

    /// As [`Stripes::writer`], for what must be written though disks are missing: any number of chunks may be that the code
    /// tolerates to lose, and parity is left out first. But not because disks are full: nobody else could write these chunks either, and what
    /// has all copies where it is stays there. Chunks with one of these homes lie there if it takes them.
    ///
    /// # Errors
    /// As [`Stripes::writer`].
    pub async fn writer_on_fewer_disks(
        &self,
        code: CodeSpec,
        data_bytes: u64,
        homes: &Homes,
        durability: Durability,
    ) -> Result<StripeWriter, StripeError> {
        self.assert_disks(code)?;
        let spending = Spending { chunks_max: code.tolerance(), for_room: false };
        StripeWriter::new(self, code, Placing::AtHome(homes), Banding::one(data_bytes), durability, spending).await
    }

    /// Whether there are disks enough now for [`Stripes::writer_on_fewer_disks`], as far as is known before anything is written.
    pub fn may_write_on_fewer_disks(&self, code: CodeSpec) -> bool {
        self.assert_disks(code).is_ok()
    }

    fn assert_disks(&self, code: CodeSpec) -> Result<(), StripeError> {
        let (disks, available) = (usize::from(code.disks_min()), self.stores.candidates().len());
        let needed = disks.min(available + self.stores.full());
        if available < needed { Err(StripeError::TooFewDisks { needed, available }) } else { Ok(()) }
    }

    /// Reads a range of the stripe's object bytes, window by window.
    ///
    /// # Panics
    /// If the stripe has several bands, or the range is not inside it.
    pub fn reader(&self, record: &StripeRecord, range: ByteRange) -> StripeReader {
        assert!(record.bands.is_empty(), "which band is to be read must be said");
        StripeReader::new(self, record, 0, range)
    }

    /// Reads a range of the object bytes of a span, window by window.
    ///
    /// # Panics
    /// If the range is not inside the span, or the span not inside its stripe.
    pub fn span_reader(&self, span: &Span, range: ByteRange) -> StripeReader {
        let part = span.range();
        assert!(range.end() <= part.bytes, "bytes up to {} of {}", range.end(), part.bytes);
        let range = ByteRange { offset: part.offset + range.offset, ..range };
        StripeReader::new(self, &span.stripe, span.band, range)
    }

    /// Reads ranges of chunks, data or parity, of a stripe whose code has no sub-chunks, as they lie; `None` if a chunk is
    /// lost, fails or is late.
    ///
    /// # Panics
    /// If the code has sub-chunks, or a range is empty or not within its chunk.
    pub async fn read_columns_plain(
        &self,
        record: &StripeRecord,
        ranges: &BTreeMap<ChunkIndex, ByteRange>,
    ) -> Option<BTreeMap<ChunkIndex, Bytes>> {
        crate::columns::read_columns_plain(self, record, ranges).await
    }

    /// As [`Stripes::read_columns_plain`], decoding where a chunk does not give its range. `hold` is of this stripe, and
    /// `record` was read under it: chunks that miss a patch lose their place, and an older record would still name them.
    ///
    /// # Errors
    /// `Unrecoverable`, `Malformed`, `Code`.
    ///
    /// # Panics
    /// As [`Stripes::read_columns_plain`], and if the hold is of another stripe.
    pub async fn read_columns(
        &self,
        record: &StripeRecord,
        ranges: &BTreeMap<ChunkIndex, ByteRange>,
        hold: &Hold,
    ) -> Result<BTreeMap<ChunkIndex, Bytes>, StripeError> {
        assert_eq!(hold.stripe(), record.id, "the hold is of this stripe");
        crate::columns::read_columns(self, record, ranges).await
    }

    /// Waits until nobody patches a stripe, and keeps it so; not for ever.
    ///
    /// # Errors
    /// `Held`.
    pub async fn share(&self, stripe: StripeId) -> Result<Hold, StripeError> {
        let limit = self.settings.read_timeout;
        timeout(&*self.env.clock, limit, self.holds.share(stripe)).await.ok_or(StripeError::Held { stripe })
    }

    /// Takes a stripe alone, to change its chunks in place, unless somebody decodes or rebuilds it now.
    pub fn try_alone(&self, stripe: StripeId) -> Option<Hold> {
        self.holds.try_alone(stripe)
    }

    /// Rebuilds the chunks `lost` on disks chosen now, or as many of them as there are disks for, reads them back, and
    /// returns the swap to commit.
    ///
    /// A chunk in `lost` that is readable, whole or in part, serves as its own source where it is: so this also moves
    /// chunks off a disk that takes no more writes.
    ///
    /// # Errors
    /// `Unrecoverable`, `TooFewDisks`, `NotVerified`, `Chunk` if the new disk fails.
    pub async fn rebuild(
        &self,
        record: &StripeRecord,
        lost: &[ChunkIndex],
        pace: &dyn Pace,
    ) -> Result<Rebuilt, StripeError> {
        crate::rebuild::rebuild(self, record, lost, Housing::default(), pace).await
    }

    /// As [`Stripes::rebuild`], on disks chosen by more.
    ///
    /// # Errors
    /// As [`Stripes::rebuild`].
    ///
    /// # Panics
    /// If it is a stripe of other data chunks than its family's.
    pub async fn rebuild_in(
        &self,
        record: &StripeRecord,
        lost: &[ChunkIndex],
        housing: Housing<'_>,
        pace: &dyn Pace,
    ) -> Result<Rebuilt, StripeError> {
        crate::rebuild::rebuild(self, record, lost, housing, pace).await
    }

    /// Copies data chunks that lie on one disk with others, as those of copies may, to disks that have none of the stripe's: then
    /// it can get a code that wants all apart. `None`: nothing is to be moved, or too few such disks have room. Returns the
    /// swap to commit.
    ///
    /// # Errors
    /// As [`Stripes::rebuild`].
    pub async fn spread(&self, record: &StripeRecord, pace: &dyn Pace) -> Result<Option<Rebuilt>, StripeError> {
        crate::rebuild::spread(self, record, pace).await
    }

    /// Which stripes with chunks of so many bytes can be brought home, as disks are now.
    pub fn homing<'a>(&self, homes: &'a Homes, chunk_bytes: u64) -> Homing<'a> {
        Homing::new(self, homes, chunk_bytes)
    }

    /// Copies chunks that lie on another node than their home to disks there, those for which there are some, and moves parity where the
    /// stripe survives more losses of nodes for it. `None`: all that can be are at home.
    ///
    /// # Errors
    /// As [`Stripes::rebuild`].
    pub async fn bring_home(
        &self,
        record: &StripeRecord,
        homes: &Homes,
        pace: &dyn Pace,
    ) -> Result<Option<Rebuilt>, StripeError> {
        crate::homing::bring_home(self, record, homes, pace).await
    }

    /// Writes the parity of `code` over the data chunks of a stripe, which stay as they are, as does parity that it has already; reads
    /// back what it wrote, and returns the change of the record to commit. What is read of the stripe is decoded where it is lost.
    ///
    /// # Errors
    /// `OtherLayout`, `Crowded`, `Exposed`, `TooFewDisks`, `Unrecoverable`, `Held`, `NotVerified`, `Chunk` if a disk of the
    /// new parity fails.
    ///
    /// # Panics
    /// If the stripe has this code, or more than 4,096 data chunks.
    pub async fn recode(&self, record: &StripeRecord, code: CodeSpec, pace: &dyn Pace) -> Result<Recoded, StripeError> {
        crate::recode::recode(self, record, code, pace).await
    }

    /// Deletes new parity whose change was refused.
    pub async fn discard_recoded(&self, recoded: Recoded) {
        crate::fresh::delete_all(self, &recoded.fresh).await;
    }

    /// Deletes the chunks that a stripe's record named before it was changed to `after`. `false`: somebody reads by the old
    /// record still, or a disk did not delete; the sweep finds what is left. Call it when the change is committed and its
    /// claim dropped.
    pub async fn discard_superseded(&self, before: &StripeRecord, after: &StripeRecord) -> bool {
        crate::recode::discard_superseded(self, before, after).await
    }

    /// Deletes chunks that were rebuilt, and whose record was not changed.
    pub async fn discard_rebuilt(&self, rebuilt: Rebuilt) {
        let place = |(index, place): &(ChunkIndex, Option<ChunkPlace>)| {
            let place = (*place)?;
            Some((ChunkId { stripe: rebuilt.swap.stripe, index: *index, generation: place.generation }, place.disk))
        };
        crate::fresh::delete_all(self, &rebuilt.swap.places.iter().filter_map(place).collect::<Vec<_>>()).await;
    }

    /// Makes other stripes of these, over the same data chunks: writes what the plan writes, reads it back, and returns the
    /// change of the records to commit. Lost chunks that the plan reads are decoded.
    ///
    /// # Errors
    /// `UnequalChunks`, `OtherLayout`, `BandCut`, `Crowded`, `Exposed`, `TooFewDisks`, `Unrecoverable`, `Held`,
    /// `NotVerified`, `Chunk` if a disk of a new chunk fails.
    ///
    /// # Panics
    /// If these are not as many stripes as the plan takes, or of another code.
    pub async fn convert(
        &self,
        sources: &[StripeRecord],
        plan: &ConversionPlan,
        pace: &dyn Pace,
    ) -> Result<Converted, StripeError> {
        crate::convert::convert(self, sources, plan, None, pace).await
    }

    /// As [`Stripes::convert`]; new stripes of the fast code of `family` come to lie where they can be merged.
    ///
    /// # Errors
    /// As [`Stripes::convert`].
    ///
    /// # Panics
    /// As [`Stripes::convert`].
    pub async fn convert_in_lanes(
        &self,
        sources: &[StripeRecord],
        plan: &ConversionPlan,
        family: Family,
        pace: &dyn Pace,
    ) -> Result<Converted, StripeError> {
        crate::convert::convert(self, sources, plan, Some(family), pace).await
    }

    /// Deletes the new chunks of a conversion that was refused.
    pub async fn discard_converted(&self, converted: Converted) {
        crate::fresh::delete_all(self, &crate::convert::written(&converted.change)).await;
    }

    /// Reads every sector of every chunk, synced before if nobody has verified the stripe.
    pub async fn verify(&self, record: &StripeRecord, pace: &dyn Pace) -> Verification {
        crate::verify::verify(self, record, None, pace).await
    }

    /// The same of its chunks on one disk only; of the others nothing is known then.
    pub async fn verify_on(&self, record: &StripeRecord, disk: DiskId, pace: &dyn Pace) -> Verification {
        crate::verify::verify(self, record, Some(disk), pace).await
    }

    /// Deletes the chunks of a dead stripe. `false`: a disk that should have deleted its chunk did not; try again. A disk
    /// that is absent or takes no deletes keeps an orphan, which is swept when the disk is back.
    pub async fn discard(&self, record: &StripeRecord) -> bool {
        crate::verify::discard(self, record).await
    }

    pub(crate) fn report(&self, damage: Damage) {
        // A full queue loses the report and nothing else.
        let _ = self.damage.try_send(damage);
    }
}

const DAMAGE_REPORTS_MAX: usize = 1024;
