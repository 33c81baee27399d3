//! One row in memory, and how its lost slices are recovered.
//!
//! Invariants:
//! 1. A slice is recovered from chunks that are good in it, read as the code's plan says; what is in memory is not read
//!    again.
//! 2. A chunk that turns out damaged while it is read counts as lost in that slice, and the slice is planned anew: at
//!    most once for each chunk.

use std::collections::{BTreeMap, BTreeSet};

use claystone_code::{ChunkIndex, ChunkRead, ReadCosts, ReadPlan, Unrecoverable};

use crate::layout::{Layout, Row, Slice};
use crate::parcel::Parcel;
use crate::sector::SECTOR_BYTES;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Plans kept. Damage makes few patterns: whole chunks lost, and single sectors.
const PLANS_MAX: usize = 256;

/// A row: tiles of chunks, and what of them is lost.
pub struct RowBuffer {
    layout: Layout,
    row: Row,
    slices: Vec<Slice>,
    tiles: Vec<Vec<u8>>,
    is_loaded: Vec<bool>,
    /// By slice, ascending: the chunks that are lost in it.
    lost: Vec<BTreeSet<ChunkIndex>>,
    /// Sectors that were found damaged, by chunk.
    pub damaged: Vec<(u16, u64)>,
}

/// A slice in which too much is lost.
pub struct Hole {
    /// How much is lost.
    pub why: Unrecoverable,
    /// Bytes of the row's data that lie in the slice, padding included.
    pub bytes: u64,
}

impl RowBuffer {
    /// The buffer of a row; what has no file is lost in all its slices.
    pub fn new(parcel: &Parcel, row: Row) -> RowBuffer {
        let layout = parcel.layout();
        let absent: BTreeSet<ChunkIndex> = parcel.absent_chunks().collect();
        let slices: Vec<Slice> = layout.slices(&row).collect();
        let chunks = usize::from(layout.shape.chunks());
        let lost = vec![absent; slices.len()];
        let (tiles, is_loaded) = (vec![Vec::new(); chunks], vec![false; chunks]);
        RowBuffer { layout, row, slices, tiles, is_loaded, lost, damaged: Vec::new() }
    }

    /// Reads the tiles of `chunks` that have a file.
    pub fn load(&mut self, parcel: &Parcel, chunks: impl Iterator<Item = u16>) {
        for chunk in chunks {
            let Some(file) = parcel.files.get(&chunk) else { continue };
            let mut tile = vec![0; self.row.tile_bytes];
            let first = self.row.first_sector();
            let wrong = file.read(first..first + (self.row.tile_bytes as u64).div_ceil(SECTOR), &mut tile);
            for sector in wrong {
                for slice in self.slices_of(sector) {
                    self.lost[slice].insert(ChunkIndex(chunk));
                }
                self.damaged.push((chunk, sector));
            }
            self.tiles[usize::from(chunk)] = tile;
            self.is_loaded[usize::from(chunk)] = true;
        }
    }

    /// The tile of a chunk: right once it was loaded or recovered, but for holes.
    pub fn tile(&self, chunk: u16) -> &[u8] {
        &self.tiles[usize::from(chunk)]
    }

    /// Recovers what is lost of the chunks for which `is_wanted`; returns where that cannot be done.
    pub fn recover(&mut self, planner: &mut Planner, is_wanted: impl Fn(ChunkIndex) -> bool) -> Vec<Hole> {
        let mut holes = Vec::new();
        let mut at = 0;
        while at < self.slices.len() {
            // Slices that lost the same chunks are done as one.
            let alike = self.lost[at..].iter().take_while(|lost| **lost == self.lost[at]).count();
            let want: Vec<ChunkIndex> = self.lost[at].iter().copied().filter(|chunk| is_wanted(*chunk)).collect();
            if want.is_empty() {
                at += alike;
                continue;
            }
            let all = Slice { from: self.slices[at].from, to: self.slices[at + alike - 1].to };
            match self.recover_slice(planner, all, &want, self.lost[at].clone()) {
                Ok(()) => (),
                Err(Failure::Unrecoverable(why)) => holes.push(self.hole(why, all)),
                Err(Failure::Damaged) => {
                    for slice in at..at + alike {
                        let one = self.slices[slice];
                        let recovered = self.recover_slice(planner, one, &want, self.lost[slice].clone());
                        if let Err(Failure::Unrecoverable(why)) = recovered {
                            holes.push(self.hole(why, one));
                        }
                    }
                }
            }
            at += alike;
        }
        holes
    }

    fn hole(&self, why: Unrecoverable, slice: Slice) -> Hole {
        let bytes = u64::from(slice.bytes()) * u64::from(self.layout.shape.alpha) * u64::from(self.layout.shape.data);
        Hole { why, bytes }
    }

    /// Recovers one slice, or several that lost the same. Of several it gives up as soon as a chunk shows damage that
    /// was not known: that may be in one of them only.
    fn recover_slice(
        &mut self,
        planner: &mut Planner,
        slice: Slice,
        want: &[ChunkIndex],
        mut lost: BTreeSet<ChunkIndex>,
    ) -> Result<(), Failure> {
        let (plan, fetched) = loop {
            let costs: Vec<Option<u32>> = (0..self.layout.shape.chunks())
                .map(|chunk| {
                    (!lost.contains(&ChunkIndex(chunk))).then(|| u32::from(!self.is_loaded[usize::from(chunk)]))
                })
                .collect();
            let plan = planner.plan(want, costs, slice.bytes()).map_err(Failure::Unrecoverable)?;
            let mut fetched = Vec::with_capacity(plan.reads.len());
            let mut damaged = Vec::new();
            for read in &plan.reads {
                match self.fetch(planner.parcel, read, slice) {
                    Some(bytes) => fetched.push(bytes),
                    None => damaged.push(read.chunk),
                }
            }
            if damaged.is_empty() {
                break (plan, fetched);
            }
            if self.slices.iter().all(|one| *one != slice) {
                return Err(Failure::Damaged);
            }
            lost.extend(damaged);
        };
        let bytes = self.layout.shape.alpha as usize * slice.bytes() as usize;
        let mut recovered = vec![vec![0; bytes]; want.len()];
        let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
        let mut out: Vec<&mut [u8]> = recovered.iter_mut().map(Vec::as_mut_slice).collect();
        planner.parcel.code.recover(&plan, &fetched, &mut out);
        for (chunk, recovered) in want.iter().zip(recovered) {
            let tile = &mut self.tiles[chunk.at()];
            tile.resize(self.row.tile_bytes, 0);
            for (sub, piece) in recovered.chunks(slice.bytes() as usize).enumerate() {
                let at = sub * self.row.sub_bytes as usize + slice.from as usize;
                tile[at..at + piece.len()].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    /// What a plan reads of one chunk; `None` if a sector of it is damaged.
    fn fetch(&mut self, parcel: &Parcel, read: &ChunkRead, slice: Slice) -> Option<Vec<u8>> {
        let pieces = read.sub_chunks.iter().cloned().flatten().map(|sub| {
            let at = sub as usize * self.row.sub_bytes as usize + slice.from as usize;
            at..at + slice.bytes() as usize
        });
        let pieces: Vec<_> = pieces.collect();
        let cut = |tile: &[u8]| pieces.iter().flat_map(|piece| &tile[piece.clone()]).copied().collect();
        if self.is_loaded[read.chunk.at()] {
            return Some(cut(&self.tiles[read.chunk.at()]));
        }
        let mut sectors: Vec<std::ops::Range<u64>> = Vec::new();
        for piece in &pieces {
            let (from, to) = ((piece.start / SECTOR_BYTES) as u64, piece.end.div_ceil(SECTOR_BYTES) as u64);
            match sectors.last_mut() {
                Some(last) if from <= last.end => last.end = last.end.max(to),
                _ => sectors.push(from..to),
            }
        }
        let file = parcel.files.get(&read.chunk.0).expect("a plan reads only what can be read");
        let first = self.row.first_sector();
        let mut tile = vec![0; self.row.tile_bytes];
        let mut is_good = true;
        for run in sectors {
            let end = (run.end as usize * SECTOR_BYTES).min(tile.len());
            let into = &mut tile[run.start as usize * SECTOR_BYTES..end];
            for sector in file.read(first + run.start..first + run.end, into) {
                self.damaged.push((read.chunk.0, sector));
                is_good = false;
            }
        }
        is_good.then(|| cut(&tile))
    }

    /// Indices of the slices that a sector of this row lies in.
    fn slices_of(&self, sector: u64) -> std::ops::Range<usize> {
        if self.slices.len() == 1 {
            return 0..1;
        }
        let in_tile = sector * SECTOR - self.row.chunk_at;
        let slice = (in_tile % u64::from(self.row.sub_bytes) / SECTOR) as usize;
        slice..slice + 1
    }
}

enum Failure {
    /// Damage that was not known, somewhere in the slices.
    Damaged,
    /// Too much is lost.
    Unrecoverable(Unrecoverable),
}

/// Plans of one parcel, each made once.
pub struct Planner<'a> {
    parcel: &'a Parcel,
    plans: BTreeMap<PlanKey, ReadPlan>,
}

/// What a plan follows from: the chunks wanted, all costs, the slice's bytes.
type PlanKey = (Vec<ChunkIndex>, Vec<Option<u32>>, u32);

impl<'a> Planner<'a> {
    /// With no plan yet.
    pub fn new(parcel: &'a Parcel) -> Planner<'a> {
        Planner { parcel, plans: BTreeMap::new() }
    }

    fn plan(
        &mut self,
        want: &[ChunkIndex],
        costs: Vec<Option<u32>>,
        sub_bytes: u32,
    ) -> Result<ReadPlan, Unrecoverable> {
        let key = (want.to_vec(), costs, sub_bytes);
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan.clone());
        }
        let costs = ReadCosts { chunks: &key.1, sub_bytes, granule: SECTOR_BYTES as u32 };
        let plan = self.parcel.code.plan_read(want, &costs)?;
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }
}
