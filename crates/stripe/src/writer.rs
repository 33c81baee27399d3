//! Writes one stripe, batch of rows by batch of rows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ChunkError, ChunkId, ChunkStore, ChunkWriter, DiskId, Durability, Generation, StripeId};
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode, Shape};
use claystone_env::{aligned_buffer, timeout};
use claystone_meta::{Band, ChunkPlace, StripeRecord};
use futures::future::join_all;

use crate::lanes::Disks;
use crate::volatile::{Kept, plan_syncs};
use crate::{Claim, Family, Homes, Layout, StripeError, Stripes, place_at_home, place_chunks, sub_bytes_for};

/// A stripe being written. Dropping it leaves chunks that nobody names.
///
/// A store that fails costs the stripe one chunk; writing goes on while no more is missing than the caller lets go (a local
/// or product code has more parity than it tolerates losses), and repair brings the chunk back. With fewer chunks the
/// write fails.
///
/// ```text
/// taking --finish--> committed --enough are synced--> acknowledged
/// ```
///
/// | state | what holds |
/// |---|---|
/// | taking | nothing can be read |
/// | committed | each chunk that is not missing is whole; with `Buffered` only those are synced that `plan_syncs` named |
/// | acknowledged | whichever one node loses power, the stripe is recovered from what is left: what went missing in between was made up for by further syncs |
pub struct StripeWriter {
    stripes: Stripes,
    code: Arc<dyn ErasureCode>,
    /// Of each band: all have the same.
    layout: Layout,
    /// The band whose bytes are taken.
    band: u16,
    /// With several bands, what the bands before contribute to parity.
    sums: Vec<BytesMut>,
    durability: Durability,
    claim: Claim,
    record: StripeRecord,
    /// One per chunk; `None` once its store has failed.
    writers: Vec<Option<Box<dyn ChunkWriter>>>,
    /// The very stores that take them: one that was opened in a store's place since has lost what was not synced, and does not know it.
    stores: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    last_error: Option<ChunkError>,
    spending: Spending,
    /// Rows `rows_done..` of the band are being collected: the tiles of each of its data chunks, one behind the other.
    batch: Vec<BytesMut>,
    /// Batches handed to the chunk writers before, oldest first: their memory is used again when the disks are done.
    sent: VecDeque<Bytes>,
    batch_rows: u64,
    rows_done: u64,
    /// Of the band.
    bytes_taken: u64,
}

/// In how many bands the bytes of a new stripe lie in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Banding {
    /// Bands of as many data chunks each.
    pub(crate) bands: u16,
    /// Object bytes of each.
    pub(crate) band_bytes: u64,
}

/// By what the disks of a new stripe are chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Placing<'a> {
    /// By how full they are alone.
    Anywhere,
    /// So that it can be merged with others of its family.
    InLane(Family),
    /// So that chunks lie at home.
    AtHome(&'a Homes),
}

/// Which chunks a new stripe may be without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spending {
    /// So many at most.
    pub(crate) chunks_max: u16,
    /// Also those that full disks did not take.
    pub(crate) for_room: bool,
}

impl Spending {
    /// Half of what a code tolerates to lose, for whatever reason.
    pub(crate) fn half(code: CodeSpec) -> Spending {
        Spending { chunks_max: code.tolerance() / 2, for_room: true }
    }
}

impl Banding {
    /// In one band, tile row by tile row over all data chunks.
    pub(crate) fn one(data_bytes: u64) -> Banding {
        Banding { bands: 1, band_bytes: data_bytes }
    }
}

impl StripeWriter {
    pub(crate) async fn new(
        stripes: &Stripes,
        spec: CodeSpec,
        placing: Placing<'_>,
        Banding { bands, band_bytes }: Banding,
        durability: Durability,
        spending: Spending,
    ) -> Result<StripeWriter, StripeError> {
        let code = spec.build()?;
        let shape = code.shape();
        assert!(bands > 0 && shape.data % bands == 0, "{bands} bands do not make {spec}");
        let sub_bytes = sub_bytes_for(spec);
        let of_band = Shape { data: shape.data / bands, ..shape };
        let layout = Layout::new(of_band, sub_bytes, band_bytes);
        let candidates = stripes.stores.candidates();
        let needed = usize::from(spec.disks_min() - spending.chunks_max);
        if candidates.len() < needed {
            return Err(StripeError::TooFewDisks { needed, available: candidates.len() });
        }
        // Where there are too few disks, parity is what is missing: it comes last.
        let chunks: Vec<ChunkIndex> = (0..shape.chunks()).map(ChunkIndex).collect();
        let draw = |bound| stripes.env.random.below(bound);
        let disks = match placing {
            Placing::InLane(family) => {
                let known: Vec<_> = stripes.stores.members().into_iter().map(|member| member.record).collect();
                let disks = Disks { candidates: &candidates, known: &known };
                stripes.lanes.place(spec, family, layout.chunk_bytes(), disks, draw)
            }
            Placing::AtHome(homes) => place_at_home(spec, &candidates, homes, draw),
            Placing::Anywhere => place_chunks(spec, &candidates, &[], &chunks, draw),
        };
        let id = StripeId::new(stripes.env.clock.wall(), &*stripes.env.random);
        let claim = stripes.claim(id);
        let mut last_error = None;
        let creates = chunks.iter().zip(&disks).map(|(&index, &disk)| async move {
            let Some(disk) = disk else { return Ok(None) };
            let chunk = ChunkId { stripe: id, index, generation: Generation(0) };
            let store = stripes
                .stores
                .readable(disk)
                .ok_or_else(|| ChunkError::Unavailable { disk, reason: "the disk went away".to_owned() })?;
            let writer = in_time(stripes, disk, store.create(chunk, layout.chunk_bytes())).await?;
            Ok(Some((writer, store)))
        });
        let mut stores = BTreeMap::new();
        let mut writers: Vec<Option<Box<dyn ChunkWriter>>> = Vec::with_capacity(chunks.len());
        for created in join_all(creates).await {
            let created = created.map_err(|error| note(&mut last_error, error)).ok().flatten();
            writers.push(created.map(|(writer, store)| {
                stores.insert(store.disk(), store);
                writer
            }));
        }
        let place = |disk| ChunkPlace { disk, generation: Generation(0), damaged: false };
        let places = disks.into_iter().map(|disk| disk.map(place)).collect();
        let batch_rows = (stripes.settings.window_bytes / layout.row_bytes()).max(1);
        let zeros = || {
            let mut sum = aligned_buffer(layout.chunk_bytes() as usize);
            sum.clear();
            sum.resize(layout.chunk_bytes() as usize, 0);
            sum
        };
        let band = Band { chunks: of_band.data, data_bytes: band_bytes };
        let writer = StripeWriter {
            stripes: stripes.clone(),
            code,
            layout,
            band: 0,
            sums: if bands > 1 { (0..shape.parity).map(|_| zeros()).collect() } else { Vec::new() },
            durability,
            claim,
            record: StripeRecord {
                id,
                code: spec,
                data_bytes: u64::from(bands) * band_bytes,
                bands: if bands > 1 { vec![band; bands.into()] } else { Vec::new() },
                sub_bytes,
                places,
                origins: BTreeMap::new(),
                revision: 0,
                verified: None,
            },
            writers,
            stores,
            last_error,
            spending,
            batch: vec![BytesMut::new(); usize::from(of_band.data)],
            sent: VecDeque::new(),
            batch_rows,
            rows_done: 0,
            bytes_taken: 0,
        };
        writer.check_durable()?;
        Ok(writer)
    }

    /// Object bytes that are still to come.
    pub fn bytes_left(&self) -> u64 {
        self.record.data_bytes - self.taken()
    }

    /// Bytes of all its chunks.
    pub fn chunks_bytes(&self) -> u64 {
        self.record.places.len() as u64 * self.layout.chunk_bytes()
    }

    fn taken(&self) -> u64 {
        u64::from(self.band) * self.layout.data_bytes() + self.bytes_taken
    }

    /// Takes the next object bytes.
    ///
    /// # Errors
    /// `NotDurable` if too many stores failed; `WrongLength` if these are more bytes than the stripe was opened for.
    pub async fn append(&mut self, mut bytes: &[u8]) -> Result<(), StripeError> {
        if bytes.len() as u64 > self.bytes_left() {
            let given = self.taken() + bytes.len() as u64;
            return Err(StripeError::WrongLength { expected: self.record.data_bytes, given });
        }
        while !bytes.is_empty() {
            let row = self.layout.row(self.layout.row_of(self.bytes_taken));
            let within_row = self.bytes_taken - row.data_offset;
            let chunk = (within_row / row.tile_bytes) as usize;
            let of_band = self.layout.data_bytes() - self.bytes_taken;
            let room = (row.tile_bytes - within_row % row.tile_bytes).min(of_band).min(bytes.len() as u64) as usize;
            if self.batch[chunk].capacity() == 0 {
                self.batch[chunk] = self.buffer();
                self.batch[chunk].clear();
            }
            self.batch[chunk].extend_from_slice(&bytes[..room]);
            self.bytes_taken += room as u64;
            bytes = &bytes[room..];
            // The last one ends with the stripe.
            let ends_band =
                self.bytes_taken == self.layout.data_bytes() && usize::from(self.band) + 1 < self.record.bands.len();
            if ends_band || self.rows_collected() == self.batch_rows {
                self.flush().await?;
            }
            if ends_band {
                self.band += 1;
                (self.rows_done, self.bytes_taken) = (0, 0);
            }
        }
        Ok(())
    }

    /// Takes all bytes of the stripe in the order of its chunks, one whole data chunk after another, instead of the order
    /// of [`StripeWriter::append`].
    ///
    /// # Errors
    /// As `append`; `WrongLength` if these are not whole chunks, or there were bytes before.
    pub async fn append_columns(&mut self, data: &[u8]) -> Result<(), StripeError> {
        let chunk_bytes = self.layout.chunk_bytes() as usize;
        let columns = usize::from(self.layout.shape().data);
        if data.len() != columns * chunk_bytes || self.bytes_left() != data.len() as u64 {
            return Err(StripeError::WrongLength { expected: self.bytes_left(), given: data.len() as u64 });
        }
        for row in 0..self.layout.rows() {
            let row = self.layout.row(row);
            for column in data.chunks_exact(chunk_bytes) {
                let tile = row.chunk_offset as usize..(row.chunk_offset + row.tile_bytes) as usize;
                self.append(&column[tile]).await?;
            }
        }
        Ok(())
    }

    /// Writes what is left, syncs every chunk, or with `Buffered` so many that no one node takes the stripe with it when it loses
    /// power, and returns the record to commit with the claim that keeps its chunks until then.
    ///
    /// # Errors
    /// `NotDurable`, `WrongLength` if bytes are missing.
    pub async fn finish(mut self) -> Result<(StripeRecord, Claim), StripeError> {
        if self.bytes_left() > 0 {
            return Err(StripeError::WrongLength { expected: self.record.data_bytes, given: self.taken() });
        }
        if self.rows_done < self.layout.rows() {
            self.flush().await?;
        }
        let sums: Vec<Bytes> = std::mem::take(&mut self.sums).into_iter().map(BytesMut::freeze).collect();
        self.hand_out(self.code.shape().data, sums).await?;
        let mut kept = self.commit().await;
        loop {
            self.check_written(kept.iter().map(|kept| *kept != Kept::Missing))?;
            let syncs = plan_syncs(self.code.spec(), &kept);
            if syncs.is_empty() {
                break;
            }
            // Each round some are synced or missing that were not.
            for (index, synced) in sync(&self.stripes, &self.stores, &self.record, syncs).await {
                kept[index.at()] = synced.map_or_else(|error| self.missing(error), |()| Kept::Synced);
            }
        }
        for (place, kept) in self.record.places.iter_mut().zip(&kept) {
            place.take_if(|_| *kept == Kept::Missing);
        }
        Ok((self.record, self.claim))
    }

    /// Ends all chunks, those synced at once that have to be.
    async fn commit(&mut self) -> Vec<Kept> {
        let nodes = self.stripes.stores.nodes();
        let chunks = self.writers.iter().zip(&self.record.places);
        let volatile = chunks.map(|(writer, place)| match (writer, place) {
            (Some(_), Some(place)) => Kept::Volatile(nodes.node(place.disk)),
            _ => Kept::Missing,
        });
        let mut kept: Vec<Kept> = volatile.collect();
        let syncs = match self.durability {
            Durability::Synced => (0..kept.len() as u16).map(ChunkIndex).collect(),
            Durability::Buffered => plan_syncs(self.code.spec(), &kept),
        };
        let (stripes, syncs) = (&self.stripes, &syncs);
        let writers = self.writers.iter_mut().map(Option::take).zip(&self.record.places);
        let commits = (0..).map(ChunkIndex).zip(writers).map(|(index, (writer, place))| async move {
            let (Some(writer), Some(place)) = (writer, place) else { return Ok(()) };
            let durability = if syncs.contains(&index) { Durability::Synced } else { Durability::Buffered };
            in_time(stripes, place.disk, writer.commit(durability)).await
        });
        let committed = join_all(commits).await;
        for ((index, kept), committed) in (0..).map(ChunkIndex).zip(&mut kept).zip(committed) {
            match committed {
                Err(error) => *kept = self.missing(error),
                Ok(()) if *kept != Kept::Missing && syncs.contains(&index) => *kept = Kept::Synced,
                Ok(()) => {}
            }
        }
        kept
    }

    fn missing(&mut self, error: ChunkError) -> Kept {
        note(&mut self.last_error, error);
        Kept::Missing
    }

    /// Rows of which some bytes have been taken and which are not written yet, when the last of them is complete.
    fn rows_collected(&self) -> u64 {
        let row_bytes = self.layout.row_bytes();
        (self.bytes_taken - (self.rows_done * row_bytes).min(self.bytes_taken)) / row_bytes
    }

    fn batch_chunk_bytes(&self) -> usize {
        let left = self.layout.chunk_bytes() - self.rows_done * self.layout.tile_bytes();
        (self.batch_rows * self.layout.tile_bytes()).min(left) as usize
    }

    /// Memory for the next tiles of one chunk, with whatever it held before: an earlier batch's if the disk has written
    /// it. Fresh memory would have to be faulted in page by page, which takes a sixth of the time of a long write.
    fn buffer(&mut self) -> BytesMut {
        let chunk_bytes = self.batch_chunk_bytes();
        match self.sent.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(buffer)) if buffer.capacity() >= chunk_bytes => buffer,
            _ => aligned_buffer(chunk_bytes),
        }
    }

    /// Encodes the collected rows and hands them to the chunk writers; with several bands, parity when all are encoded.
    async fn flush(&mut self) -> Result<(), StripeError> {
        let chunk_bytes = self.batch_chunk_bytes();
        let shape = self.layout.shape();
        let has_sums = !self.sums.is_empty();
        let mut parity: Vec<BytesMut> = (0..shape.parity).filter(|_| !has_sums).map(|_| self.buffer()).collect();
        let empty = vec![BytesMut::new(); usize::from(shape.data)];
        let mut data = std::mem::replace(&mut self.batch, empty);
        // Padding: the end of the tail row is zeros. Parity is written whole by the encoder.
        data.iter_mut().chain(&mut parity).for_each(|tiles| tiles.resize(chunk_bytes, 0));
        let first_row = self.layout.row(self.rows_done);
        let first_chunk = self.band * shape.data;
        let mut within = 0;
        while within < chunk_bytes {
            let row = self.layout.row(self.rows_done);
            let tile = within..within + row.tile_bytes as usize;
            let sources: Vec<&[u8]> = data.iter().map(|tiles| &tiles[tile.clone()]).collect();
            if has_sums {
                let tile = row.chunk_offset as usize..(row.chunk_offset + row.tile_bytes) as usize;
                let mut sums: Vec<&mut [u8]> = self.sums.iter_mut().map(|sum| &mut sum[tile.clone()]).collect();
                self.code.encode_add(ChunkIndex(first_chunk), &sources, &mut sums);
            } else {
                let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|tiles| &mut tiles[tile.clone()]).collect();
                self.code.encode(&sources, &mut targets);
            }
            within = tile.end;
            self.rows_done += 1;
        }
        assert_eq!(within, chunk_bytes, "a batch is whole rows from {}", first_row.chunk_offset);
        let tiles: Vec<Bytes> = data.into_iter().chain(parity).map(BytesMut::freeze).collect();
        self.sent.extend(tiles.iter().cloned());
        // Two batches may still be on their way to the disks; older ones are done or their store is far behind.
        let excess = self.sent.len().saturating_sub(SENT_BATCHES_MAX * tiles.len());
        self.sent.drain(..excess);
        self.hand_out(first_chunk, tiles).await
    }

    /// Appends to the chunks from `first` on.
    async fn hand_out(&mut self, first: u16, tiles: Vec<Bytes>) -> Result<(), StripeError> {
        let stripes = &self.stripes;
        let slots = self.writers.iter_mut().zip(&self.record.places).skip(first.into());
        let appends = slots.zip(tiles).map(|((slot, place), tiles)| async move {
            let (Some(writer), Some(place)) = (slot.as_mut(), place) else { return None };
            let error = in_time(stripes, place.disk, writer.append(tiles)).await.err()?;
            *slot = None;
            Some(error)
        });
        let errors: Vec<ChunkError> = join_all(appends).await.into_iter().flatten().collect();
        if errors.is_empty() {
            return Ok(());
        }
        errors.into_iter().for_each(|error| note(&mut self.last_error, error));
        self.check_durable()
    }

    fn check_durable(&self) -> Result<(), StripeError> {
        self.check_written(self.writers.iter().map(Option::is_some))
    }

    /// `is_written`: of each chunk.
    fn check_written(&self, is_written: impl Iterator<Item = bool>) -> Result<(), StripeError> {
        let missing: Vec<ChunkIndex> = (0..)
            .map(ChunkIndex)
            .zip(is_written)
            .filter(|(_, is_written)| !is_written)
            .map(|(index, _)| index)
            .collect();
        let spec = self.code.spec();
        let Spending { chunks_max: spent, for_room } = self.spending;
        let lacks_room = matches!(self.last_error, Some(ChunkError::DiskFull { .. }));
        if (for_room || !lacks_room) && spec.tolerance_left(&missing) >= i32::from(spec.tolerance() - spent) {
            return Ok(());
        }
        let chunks = usize::from(spec.shape().chunks());
        let (written, needed) = (chunks - missing.len(), chunks - usize::from(spent));
        let last = self.last_error.clone().expect("more are missing than when it began, so there was an error");
        Err(StripeError::NotDurable { written, chunks, needed, last })
    }
}

/// Keeps the error that tells most: what a full disk says goes before what others say.
fn note(last: &mut Option<ChunkError>, error: ChunkError) {
    if !matches!(last, Some(ChunkError::DiskFull { .. })) {
        *last = Some(error);
    }
}

const SENT_BATCHES_MAX: usize = 3;

/// Syncs the stores of committed chunks.
async fn sync(
    stripes: &Stripes,
    stores: &BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    record: &StripeRecord,
    chunks: BTreeSet<ChunkIndex>,
) -> Vec<(ChunkIndex, Result<(), ChunkError>)> {
    let syncs = chunks.into_iter().map(|index| async move {
        let disk = record.places[index.at()].as_ref().expect("a committed chunk has a place").disk;
        (index, in_time(stripes, disk, stores[&disk].sync()).await)
    });
    join_all(syncs).await
}

/// Waits for one store, but not for ever.
pub(crate) async fn in_time<T>(
    stripes: &Stripes,
    disk: DiskId,
    operation: impl Future<Output = Result<T, ChunkError>>,
) -> Result<T, ChunkError> {
    let limit = stripes.settings.write_timeout;
    match timeout(&*stripes.env.clock, limit, operation).await {
        Some(Err(error @ ChunkError::DiskFull { .. })) => {
            // The next stripe goes elsewhere without waiting for the next look at the disk's space.
            stripes.stores.update(disk, |member| member.space.free_bytes = 0);
            Err(error)
        }
        Some(result) => result,
        None => {
            stripes.stores.silence(disk);
            Err(ChunkError::Unavailable { disk, reason: format!("no answer within {limit:?}") })
        }
    }
}
