//! A workload against one way to keep it, on a thousand drives, in simulated time: discrete events over queues of drives and
//! networks (`cluster`).
//!
//! Decided is by the store's own code: what is converted and when by `plan_conversions` over a snapshot, by heat as `Heats`
//! counts it; what is rebuilt, and in what order, by `plan_repairs`; what is read for it by each code's plans, and what a
//! conversion moves by its `ConversionPlan`. Only where chunks go is chosen here: on servers drawn anew for each stripe.
//!
//! ```text
//!   0 h      6 h                                30 h       48 h                            the end
//!   written, as the bound allows, then read   | converted | figures count; three servers are lost
//! ```
//!
//! Invariants:
//! 1. A seed repeats all figures.
//! 2. While something is to be rebuilt, nothing is converted.
//! 3. A read of a chunk that is missing decodes it and writes nothing back.
//!
//! Left out: the time of planning, and that one process does all upkeep of today's store: here each server rebuilds.
//! Source: [hacfs §4], failures of one, two and three blocks; [hacfs §5.3]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use anyhow::{Context, ensure};
use claystone_chunk::{DiskId, Generation, StripeId};
use claystone_code::{ChunkIndex, CodeSpec, ConversionPlan, Shape};
use claystone_env::WallTime;
use claystone_keeper::{
    BucketSnapshot, Change, Condition, Resident, Settings, Snapshot, Standing, plan_conversions, plan_repairs,
};
use claystone_meta::{BucketId, ChunkPlace, HeatPolicy, StripeRecord};
use claystone_object::{CutInBands, cut_in_bands, cut_to_merge, next_stripe};
use claystone_stripe::{Heats, Layout, Nodes, Rooms, sub_bytes_for};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cluster::Cluster;
use super::costs::{Costs, Part};
use super::workload::{WRITTEN_S, Workload};

/// How data is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keeping {
    /// Under one code.
    Code(CodeSpec),
    /// Under two, by heat.
    Policy(HeatPolicy),
}

impl Keeping {
    /// The code of what is new.
    pub fn first(&self) -> CodeSpec {
        match self {
            Keeping::Code(code) => *code,
            Keeping::Policy(policy) => policy.fast,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Of each read of a chunk that was missing: chunks read for it.
    pub degraded_chunks: Vec<f64>,
    /// How long each took.
    pub degraded_s: Vec<f64>,
    /// How long reads took of chunks that were there.
    pub plain_s: Vec<f64>,
    /// Reads that no code could answer.
    pub unreadable: u64,
    /// Lost servers.
    pub rebuilt: Rebuilt,
    /// Bytes of chunks for a hundred bytes of files, on average over the time that counts.
    pub space_mean: f64,
    /// At most, at any time from the first byte on.
    pub space_max: f64,
    /// Of all conversions.
    pub converted: Moved,
    /// Of encoding what was new: replicas read and parity written.
    pub encoded: Moved,
    /// Merges.
    pub merged: u64,
    /// Splits.
    pub split: u64,
}

/// What rebuilding took.
#[derive(Debug, Clone, Default)]
pub struct Rebuilt {
    /// Chunks lost.
    pub chunks: u64,
    /// Bytes of data chunks among them.
    pub data_bytes: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Of each server: from when it was given up until all was rebuilt.
    pub seconds: Vec<f64>,
}

/// Bytes that were moved.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moved {
    /// Read.
    pub read_bytes: f64,
    /// Written.
    pub written_bytes: f64,
    /// That went into sums.
    pub combined_bytes: f64,
}

impl Moved {
    /// Read and written.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }
}

/// Runs a workload.
///
/// # Errors
/// A code is none, or the two of a policy have no conversion.
pub fn simulate(workload: &Workload, keeping: Keeping, disks: usize, seed: u64) -> anyhow::Result<Outcome> {
    let first = keeping.first();
    let compact = if let Keeping::Policy(policy) = keeping { policy.compact } else { first };
    let width = usize::from(first.shape().chunks().max(compact.shape().chunks()));
    let servers = Cluster::new(disks).servers();
    ensure!(
        servers > 2 * width,
        "{servers} servers are too few for {width} chunks of a stripe on servers of their own"
    );
    let mut world = World::new(workload, keeping, disks, seed)?;
    world.schedule_all();
    while let Some(Entry { at_s, event, .. }) = world.events.pop() {
        if at_s > workload.end_s && world.tasks_left == 0 {
            break;
        }
        world.measure_space(at_s);
        world.now_s = at_s;
        world.take(event)?;
    }
    world.measure_space(workload.end_s);
    let measured_s = workload.end_s - workload.measured_from_s;
    world.outcome.space_mean = world.space_seconds / measured_s;
    Ok(world.outcome)
}

struct World<'a> {
    workload: &'a Workload,
    keeping: Keeping,
    cluster: Cluster,
    costs: Costs,
    random: ChaCha8Rng,
    heats: Heats,
    rooms: Rooms,
    events: BinaryHeap<Entry>,
    scheduled: u64,
    now_s: f64,
    /// A stripe's id is its place here, from 1 on; none: it became another.
    stripes: Vec<Option<Stripe>>,
    bands: Vec<Band>,
    /// The bands of each file.
    files: Vec<std::ops::Range<usize>>,
    /// Chunks of a fast stripe that a merge keeps.
    kept: BTreeSet<ChunkIndex>,
    /// Conversions that are planned and not carried out.
    changes_left: usize,
    tasks: VecDeque<(usize, Vec<ChunkIndex>)>,
    /// Rebuilds that are not done.
    tasks_left: usize,
    gone_s: f64,
    data_bytes: f64,
    chunks_bytes: f64,
    space_since_s: f64,
    space_seconds: f64,
    outcome: Outcome,
}

#[derive(Debug, Clone)]
struct Stripe {
    code: CodeSpec,
    chunk_bytes: u64,
    /// In the order of its data chunks.
    bands: Vec<usize>,
    /// Of each chunk.
    disks: Vec<u32>,
    born_s: f64,
}

impl Stripe {
    fn data_bytes(&self) -> u64 {
        u64::from(self.code.shape().data) * self.chunk_bytes
    }

    fn chunks_bytes(&self) -> u64 {
        self.disks.len() as u64 * self.chunk_bytes
    }
}

/// Bytes of one file that were one stripe when they were new.
#[derive(Debug, Clone, Copy)]
struct Band {
    stripe: usize,
    /// Which band of it.
    at: usize,
    /// Bytes of the file.
    bytes: u64,
}

/// A stripe that is about to be written.
#[derive(Debug, Clone, Copy)]
struct New {
    code: CodeSpec,
    /// Of a file.
    bytes: u64,
    bands: u16,
    chunk_bytes: u64,
}

impl New {
    fn chunks_bytes(&self) -> u64 {
        u64::from(self.code.shape().chunks()) * self.chunk_bytes
    }
}

#[derive(Debug, Clone)]
enum Event {
    Write { file: usize },
    ReadFile { file: usize },
    ReadBand { band: usize },
    Plan,
    Convert(Change),
    Fail { server: usize },
    GiveUp,
    Rebuild { server: usize },
    Rebuilt { server: usize, stripe: usize, chunks: Vec<ChunkIndex> },
}

/// An event and when it happens; of two at once the one that was scheduled first.
#[derive(Debug)]
struct Entry {
    at_s: f64,
    number: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        // The heap gives the greatest.
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl<'a> World<'a> {
    fn new(workload: &'a Workload, keeping: Keeping, disks: usize, seed: u64) -> anyhow::Result<World<'a>> {
        let mut costs = Costs::default();
        let kept = match keeping {
            Keeping::Code(_) => BTreeSet::new(),
            Keeping::Policy(policy) => {
                let plan = costs.conversion(policy.fast, policy.compact)?;
                plan.kept.iter().map(|kept| kept.from.chunk).collect()
            }
        };
        // The bound is to hold from the first byte on.
        let rooms = Rooms::new(0);
        if let Keeping::Policy(policy) = keeping {
            rooms.found_new(BUCKET, &policy);
        }
        Ok(World {
            workload,
            keeping,
            cluster: Cluster::new(disks),
            costs,
            random: ChaCha8Rng::seed_from_u64(seed),
            heats: Heats::new(claystone_stripe::Settings::default().heat_half_life),
            rooms,
            events: BinaryHeap::new(),
            scheduled: 0,
            now_s: 0.0,
            stripes: Vec::new(),
            bands: Vec::new(),
            files: vec![0..0; workload.files.len()],
            kept,
            changes_left: 0,
            tasks: VecDeque::new(),
            tasks_left: 0,
            gone_s: 0.0,
            data_bytes: 0.0,
            chunks_bytes: 0.0,
            space_since_s: 0.0,
            space_seconds: 0.0,
            outcome: Outcome::default(),
        })
    }

    fn schedule(&mut self, at_s: f64, event: Event) {
        self.scheduled += 1;
        self.events.push(Entry { at_s, number: self.scheduled, event });
    }

    fn schedule_all(&mut self) {
        let workload = self.workload;
        let count = workload.files.len();
        for file in 0..count {
            self.schedule(WRITTEN_S * file as f64 / count as f64, Event::Write { file });
        }
        for (at_s, file) in &workload.reads {
            self.schedule(*at_s, Event::ReadFile { file: *file });
        }
        if matches!(self.keeping, Keeping::Policy(_)) {
            let every_s = PLAN_EVERY_S;
            let mut at_s = WATCHED_S;
            while at_s < workload.end_s {
                self.schedule(at_s, Event::Plan);
                at_s += every_s;
            }
        }
        let measured_s = workload.end_s - workload.measured_from_s;
        for number in 0..SERVERS_LOST {
            let server = self.random.random_range(0..self.cluster.servers() - 1);
            let at_s = workload.measured_from_s + measured_s * (number as f64 + 0.5) / SERVERS_LOST as f64;
            self.schedule(at_s, Event::Fail { server });
        }
    }

    fn take(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Write { file } => self.write(file)?,
            Event::ReadFile { file } => self.read_file(file),
            Event::ReadBand { band } => self.read_band(band)?,
            Event::Plan => self.plan(),
            Event::Convert(change) => self.convert(&change)?,
            Event::Fail { server } => self.fail(server),
            Event::GiveUp => self.give_up()?,
            Event::Rebuild { server } => self.rebuild(server)?,
            Event::Rebuilt { server, stripe, chunks } => self.rebuilt(server, stripe, &chunks),
        }
        Ok(())
    }

    fn wall(&self) -> WallTime {
        WallTime { unix_ms: BEGIN_MS + (self.now_s * 1000.0) as u64 }
    }

    fn is_measured(&self) -> bool {
        self.now_s >= self.workload.measured_from_s
    }

    /// A file becomes stripes as the store cuts them, each as long as can be: of the first code, or compact where the bound leaves no room
    /// for that.
    fn write(&mut self, file: usize) -> anyhow::Result<()> {
        let (begin, mut left) = (self.bands.len(), self.workload.files[file]);
        while left > 0 {
            let taken = self.workload.files[file] - left;
            let New { code, bytes, bands, chunk_bytes } = self.next(taken, left)?;
            left -= bytes;
            let shape = code.shape();
            let mut disks = Vec::with_capacity(shape.chunks().into());
            (0..shape.chunks()).for_each(|_| self.place(&mut disks));
            let band_bytes = u64::from(shape.data / bands) * chunk_bytes;
            let mut held = bytes;
            for at in 0..bands.into() {
                let bytes = held.min(band_bytes);
                held -= bytes;
                self.bands.push(Band { stripe: self.stripes.len(), at, bytes });
            }
            let bands = (self.bands.len() - usize::from(bands)..self.bands.len()).collect();
            let stripe = Stripe { code, chunk_bytes, bands, disks, born_s: self.now_s };
            self.data_bytes += bytes as f64;
            self.chunks_bytes += stripe.chunks_bytes() as f64;
            self.outcome.encoded.read_bytes += stripe.data_bytes() as f64;
            self.outcome.encoded.written_bytes += (stripe.chunks_bytes() - stripe.data_bytes()) as f64;
            self.stripes.push(Some(stripe));
        }
        self.files[file] = begin..self.bands.len();
        Ok(())
    }

    /// What the next bytes of a file become, of which so many are in stripes and so many are left.
    fn next(&self, taken: u64, left: u64) -> anyhow::Result<New> {
        let stripe_bytes_max = |code: CodeSpec| u64::from(code.shape().data) * CHUNK_BYTES_MAX;
        let servers = self.cluster.servers();
        let plain =
            |code| next_stripe(code, taken, left, servers, stripe_bytes_max).context("there are servers enough");
        let chunk_bytes = |code: CodeSpec, bytes| Layout::new(code.shape(), sub_bytes_for(code), bytes).chunk_bytes();
        let (code, bytes) = plain(self.keeping.first())?;
        let as_one = |code, bytes| New { code, bytes, bands: 1, chunk_bytes: chunk_bytes(code, bytes) };
        let policy = match self.keeping {
            Keeping::Policy(policy) if code == policy.fast => policy,
            _ => return Ok(as_one(code, bytes)),
        };
        let cut = cut_to_merge(code, policy.compact, bytes);
        let fast = New { bytes: cut.bytes, ..as_one(code, cut.stripe_bytes) };
        if let Some((_, room)) = self.rooms.take(BUCKET, &policy, fast.bytes, [fast.chunks_bytes()]) {
            room.name();
            return Ok(fast);
        }
        let in_bands_max = stripe_bytes_max(policy.compact);
        let compact = cut_in_bands(&policy, cut, taken, left, servers, stripe_bytes_max, in_bands_max);
        let of = |CutInBands { code, bytes, bands, band_bytes }| {
            let shape = code.shape();
            let band = Shape { data: shape.data / bands, ..shape };
            New { code, bytes, bands, chunk_bytes: Layout::new(band, sub_bytes_for(code), band_bytes).chunk_bytes() }
        };
        let new = compact.map_or(fast, of);
        self.rooms.take_anyway(BUCKET, &policy, new.bytes, new.chunks_bytes()).name();
        Ok(new)
    }

    /// Adds a disk of a server that has none of these.
    fn place(&mut self, disks: &mut Vec<u32>) {
        loop {
            let disk = self.random.random_range(0..self.cluster.disks() as u32);
            let server = Cluster::server_of(disk);
            if self.cluster.is_alive(server) && disks.iter().all(|other| Cluster::server_of(*other) != server) {
                disks.push(disk);
                return;
            }
        }
    }

    fn any_server(&mut self) -> usize {
        loop {
            let server = self.random.random_range(0..self.cluster.servers());
            if self.cluster.is_alive(server) {
                return server;
            }
        }
    }

    /// A job reads a file, so many chunks at once.
    fn read_file(&mut self, file: usize) {
        let data = usize::from(self.keeping.first().shape().data);
        for (number, band) in self.files[file].clone().enumerate() {
            let at_s = self.now_s + (number * data / TASKS_AT_ONCE) as f64 * TASK_S;
            self.schedule(at_s, Event::ReadBand { band });
        }
    }

    fn read_band(&mut self, band: usize) -> anyhow::Result<()> {
        let Band { stripe: id, at, .. } = self.bands[band];
        let stripe = self.stripes[id].clone().context("a band is of a stripe")?;
        let data = stripe.code.shape().data / stripe.bands.len() as u16;
        let band_bytes = u64::from(data) * stripe.chunk_bytes;
        self.heats.read(stripe_id(id), band_bytes, stripe.data_bytes(), self.wall());
        let down = self.down(&stripe);
        for chunk in (at as u16 * data..(at as u16 + 1) * data).map(ChunkIndex) {
            let to = self.any_server();
            let fails = self.random.random_bool(FAILS);
            if !fails && !down.contains(&chunk) {
                let bytes = stripe.chunk_bytes as f64;
                let end_s = self.cluster.read(self.now_s, stripe.disks[chunk.at()], bytes, bytes, to);
                if self.is_measured() {
                    self.outcome.plain_s.push(end_s - self.now_s);
                }
                continue;
            }
            let mut missing = down.clone();
            missing.insert(chunk);
            if fails {
                let others = self.failing_too();
                while missing.len() < (down.len() + 1 + others).min(stripe.disks.len()) {
                    missing.insert(ChunkIndex(self.random.random_range(0..stripe.disks.len() as u16)));
                }
            }
            let missing: Vec<ChunkIndex> = missing.into_iter().collect();
            let Some(parts) = self.costs.read(stripe.code, &[chunk], &missing)? else {
                self.outcome.unreadable += 1;
                continue;
            };
            let (_, end_s) = self.fetch(&stripe, &parts, to);
            if self.is_measured() {
                self.outcome.degraded_chunks.push(parts.iter().map(|part| part.share).sum());
                self.outcome.degraded_s.push(end_s - self.now_s);
            }
        }
        Ok(())
    }

    /// Chunks of a stripe on servers that do not answer.
    fn down(&self, stripe: &Stripe) -> BTreeSet<ChunkIndex> {
        if self.tasks_left == 0 {
            return BTreeSet::new();
        }
        let chunks = (0..).map(ChunkIndex).zip(&stripe.disks);
        chunks.filter(|(_, disk)| !self.cluster.is_alive(Cluster::server_of(**disk))).map(|(chunk, _)| chunk).collect()
    }

    /// How many more chunks of a stripe are missing where one is.
    fn failing_too(&mut self) -> usize {
        let draw = self.random.random_range(0.0..1.0);
        usize::from(draw < TWO_FAIL + THREE_FAIL) + usize::from(draw < THREE_FAIL)
    }

    /// Reads parts of chunks to a server. Returns bytes and when all are there.
    fn fetch(&mut self, stripe: &Stripe, parts: &[Part], to: usize) -> (f64, f64) {
        let chunk_bytes = stripe.chunk_bytes as f64;
        let (mut bytes, mut end_s) = (0.0, self.now_s);
        for part in parts {
            let part_bytes = part.share * chunk_bytes;
            // Parts are pieces of a few KiB all over the chunk: the drive passes over the rest.
            let end = self.cluster.read(self.now_s, stripe.disks[part.chunk.at()], chunk_bytes, part_bytes, to);
            end_s = end_s.max(end);
            bytes += part_bytes;
        }
        (bytes, end_s)
    }

    /// Asks the store's planner what to convert.
    fn plan(&mut self) {
        let Keeping::Policy(policy) = self.keeping else { return };
        if self.tasks_left > 0 || self.changes_left > 0 {
            return;
        }
        let writable = self.cluster.servers();
        let writable = (0..writable).filter(|server| self.cluster.is_alive(*server));
        let disks = writable.map(|server| self.cluster.disks_of(server).len()).sum();
        let now = self.wall();
        let resident = |(id, stripe): (usize, &Stripe)| {
            let mut disks: Vec<DiskId> = Vec::new();
            if stripe.code == policy.fast {
                disks = self.kept.iter().map(|chunk| DiskId(stripe.disks[chunk.at()].into())).collect();
                disks.sort_unstable();
            }
            let age_s = self.now_s - stripe.born_s;
            let left_s = Settings::default().convert_after.as_secs_f64() - age_s;
            let young = Standing::Young { seconds_left: left_s.max(1.0) as u64, gives_way: true };
            Resident {
                stripe: stripe_id(id),
                code: stripe.code,
                data_bytes: stripe.bands.iter().map(|band| self.bands[*band].bytes).sum(),
                chunk_bytes: stripe.chunk_bytes,
                bands: stripe.bands.len() as u16,
                bands_living: stripe.bands.len() as u16,
                bands_held: stripe.bands.len() as f64,
                disks,
                packed_for: None,
                heat: self.heats.of(stripe_id(id), now),
                standing: if left_s > 0.0 { young } else { Standing::Ready },
            }
        };
        let living = self.stripes.iter().enumerate().filter_map(|(id, stripe)| Some((id, stripe.as_ref()?)));
        // As in a store of one node: which disks share a server is not told.
        let nodes = Nodes::default();
        let mut snapshot = BucketSnapshot {
            policy,
            disks,
            nodes,
            bound_from_bytes: 0,
            whole: None,
            stripes: living.map(resident).collect(),
        };
        let (space, begin) = (snapshot.space(), self.rooms.begin_look(BUCKET));
        snapshot.whole = Some(space);
        self.rooms.found(BUCKET, &policy, space.data_bytes, space.chunks_bytes(), begin);
        let changes = plan_conversions(&snapshot, CHANGES_MAX);
        self.changes_left = changes.len();
        let gap_s = PLAN_EVERY_S / (changes.len() as f64 + 1.0);
        for (number, change) in changes.into_iter().enumerate() {
            self.schedule(self.now_s + gap_s * number as f64, Event::Convert(change));
        }
    }

    fn convert(&mut self, change: &Change) -> anyhow::Result<()> {
        self.changes_left -= 1;
        let Keeping::Policy(policy) = self.keeping else { return Ok(()) };
        let takes = u64::try_from(-change.saved_bytes).unwrap_or(0);
        if self.tasks_left > 0 {
            return Ok(());
        }
        if takes > 0 {
            let Some(room) = self.rooms.take_for_split(BUCKET, &policy, takes) else { return Ok(()) };
            room.name();
        }
        let ids: Vec<usize> = change.sources.iter().map(|source| place_of(*source)).collect();
        let sources: Option<Vec<Stripe>> = ids.iter().map(|id| self.stripes[*id].clone()).collect();
        let sources = sources.context("nothing but a plan takes a stripe away")?;
        let plan = self.costs.conversion(sources[0].code, change.to)?;
        ensure!(usize::from(plan.sources) == sources.len(), "a change has as many sources as its conversion");
        let (server, chunk_bytes) = (self.any_server(), sources[0].chunk_bytes);
        let targets = self.targets(&plan, &sources);
        for read in &plan.reads {
            let disk = sources[usize::from(read.stripe)].disks[read.chunk.at()];
            self.cluster.read(self.now_s, disk, chunk_bytes as f64, chunk_bytes as f64, server);
        }
        for write in &plan.writes {
            let disk = targets[usize::from(write.stripe)].disks[write.chunk.at()];
            self.cluster.write(self.now_s, server, disk, chunk_bytes as f64);
        }
        let moved = &mut self.outcome.converted;
        moved.read_bytes += plan.bytes_read(chunk_bytes) as f64;
        moved.written_bytes += plan.bytes_written(chunk_bytes) as f64;
        moved.combined_bytes += plan.bytes_combined(chunk_bytes) as f64;
        if targets.len() < sources.len() || change.saved_bytes > 0 {
            self.outcome.merged += 1;
        } else {
            self.outcome.split += 1;
        }
        let before: u64 = sources.iter().map(Stripe::chunks_bytes).sum();
        let after: u64 = targets.iter().map(Stripe::chunks_bytes).sum();
        self.chunks_bytes += after as f64 - before as f64;
        let from: Vec<(StripeId, u64)> =
            ids.iter().zip(&sources).map(|(id, source)| (stripe_id(*id), source.data_bytes())).collect();
        let to: Vec<StripeId> = (0..targets.len()).map(|number| stripe_id(self.stripes.len() + number)).collect();
        self.heats.inherit(&from, &to, self.wall());
        ids.iter().for_each(|id| self.stripes[*id] = None);
        for target in targets {
            for (at, band) in target.bands.iter().enumerate() {
                self.bands[*band] = Band { stripe: self.stripes.len(), at, ..self.bands[*band] };
            }
            self.stripes.push(Some(target));
        }
        Ok(())
    }

    /// The stripes that a conversion makes, with what is kept where it was.
    fn targets(&mut self, plan: &ConversionPlan, sources: &[Stripe]) -> Vec<Stripe> {
        let chunks: usize = plan.to.shape().chunks().into();
        let mut places: Vec<Vec<Option<u32>>> = vec![vec![None; chunks]; plan.targets.into()];
        for kept in &plan.kept {
            let disk = sources[usize::from(kept.from.stripe)].disks[kept.from.chunk.at()];
            places[usize::from(kept.to.stripe)][kept.to.chunk.at()] = Some(disk);
        }
        let mut bands = sources.iter().flat_map(|source| source.bands.clone());
        let bands_each = usize::from(plan.to.shape().data / self.keeping.first().shape().data);
        let mut targets = Vec::new();
        for place in places {
            let mut taken: Vec<u32> = place.iter().flatten().copied().collect();
            let mut disks = Vec::with_capacity(chunks);
            for kept in place {
                if kept.is_none() {
                    self.place(&mut taken);
                }
                disks.push(kept.unwrap_or_else(|| *taken.last().expect("one was just placed")));
            }
            let bands = bands.by_ref().take(bands_each).collect();
            let chunk_bytes = sources[0].chunk_bytes;
            targets.push(Stripe { code: plan.to, chunk_bytes, bands, disks, born_s: self.now_s });
        }
        targets
    }

    fn fail(&mut self, server: usize) {
        if !self.cluster.is_alive(server) || self.tasks_left > 0 {
            return;
        }
        self.cluster.lose(server);
        // What is missing counts as missing from now on.
        self.tasks_left = 1;
        self.schedule(self.now_s + Settings::default().absent_after.as_secs_f64(), Event::GiveUp);
    }

    /// Asks the store's planner what to rebuild, and in what order.
    fn give_up(&mut self) -> anyhow::Result<()> {
        let mut disks: BTreeMap<DiskId, Condition> = BTreeMap::new();
        for server in 0..self.cluster.servers() {
            let condition = if self.cluster.is_alive(server) { Condition::Writable } else { Condition::Gone };
            disks.extend(self.cluster.disks_of(server).map(|disk| (DiskId(disk.into()), condition)));
        }
        let living = self.stripes.iter().enumerate().filter_map(|(id, stripe)| Some((id, stripe.as_ref()?)));
        let hurt = living.filter(|(_, stripe)| !self.down(stripe).is_empty());
        let stripes = hurt.map(|(id, stripe)| record(id, stripe)).collect();
        let plan = plan_repairs(&Snapshot { disks, stripes, ..Snapshot::default() }, usize::MAX);
        ensure!(plan.unrecoverable.is_empty() && plan.waiting.is_empty(), "one server's chunks can be rebuilt");
        self.gone_s = self.now_s;
        for task in plan.tasks {
            let stripe = place_of(task.stripe.id);
            let chunk_bytes = self.stripes[stripe].as_ref().context("a task is of a stripe")?.chunk_bytes as f64;
            let data = task.stripe.code.shape().data;
            let rebuilt = &mut self.outcome.rebuilt;
            rebuilt.chunks += task.chunks.len() as u64;
            rebuilt.data_bytes += task.chunks.iter().filter(|chunk| chunk.0 < data).count() as f64 * chunk_bytes;
            self.tasks.push_back((stripe, task.chunks));
        }
        self.tasks_left = self.tasks.len();
        for server in 0..self.cluster.servers() {
            if self.cluster.is_alive(server) {
                self.schedule(self.now_s, Event::Rebuild { server });
            }
        }
        Ok(())
    }

    fn rebuild(&mut self, server: usize) -> anyhow::Result<()> {
        let Some((id, chunks)) = self.tasks.pop_front() else { return Ok(()) };
        let stripe = self.stripes[id].clone().context("what is rebuilt is not converted")?;
        let missing: Vec<ChunkIndex> = self.down(&stripe).into_iter().collect();
        let parts =
            self.costs.read(stripe.code, &chunks, &missing)?.context("the planner says that it can be rebuilt")?;
        let (bytes, end_s) = self.fetch(&stripe, &parts, server);
        self.outcome.rebuilt.read_bytes += bytes;
        self.schedule(end_s, Event::Rebuilt { server, stripe: id, chunks });
        Ok(())
    }

    fn rebuilt(&mut self, server: usize, id: usize, chunks: &[ChunkIndex]) {
        let Some(mut stripe) = self.stripes[id].clone() else { return };
        let bytes = stripe.chunk_bytes as f64;
        let mut end_s = self.now_s;
        for chunk in chunks {
            let mut taken = stripe.disks.clone();
            self.place(&mut taken);
            let disk = *taken.last().expect("one was just placed");
            end_s = end_s.max(self.cluster.write(self.now_s, server, disk, bytes));
            stripe.disks[chunk.at()] = disk;
            self.outcome.rebuilt.written_bytes += bytes;
        }
        self.stripes[id] = Some(stripe);
        self.tasks_left -= 1;
        if self.tasks_left == 0 {
            self.outcome.rebuilt.seconds.push(end_s - self.gone_s);
        }
        self.schedule(end_s, Event::Rebuild { server });
    }

    /// Adds what was taken since the last time.
    fn measure_space(&mut self, until_s: f64) {
        if self.data_bytes == 0.0 {
            return;
        }
        let percent = 100.0 * self.chunks_bytes / self.data_bytes;
        let from_s = self.space_since_s.max(self.workload.measured_from_s);
        let until_s = until_s.min(self.workload.end_s);
        if until_s > from_s {
            self.space_seconds += percent * (until_s - from_s);
        }
        self.outcome.space_max = self.outcome.space_max.max(percent);
        self.space_since_s = self.space_since_s.max(until_s);
    }
}

fn stripe_id(place: usize) -> StripeId {
    StripeId(place as u128 + 1)
}

fn place_of(stripe: StripeId) -> usize {
    (stripe.0 - 1) as usize
}

/// As the store's records have it.
fn record(id: usize, stripe: &Stripe) -> StripeRecord {
    let place = |disk: &u32| ChunkPlace { disk: DiskId((*disk).into()), generation: Generation(0), damaged: false };
    StripeRecord {
        id: stripe_id(id),
        code: stripe.code,
        data_bytes: stripe.data_bytes(),
        bands: Vec::new(),
        sub_bytes: sub_bytes_for(stripe.code),
        places: stripe.disks.iter().map(|disk| Some(place(disk))).collect(),
        origins: BTreeMap::new(),
        revision: 0,
        verified: None,
    }
}

/// The one that all is in.
const BUCKET: BucketId = BucketId(1);
/// As the paper's blocks.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// When conversions begin: what was written last was there for a day. The store's own setting is an hour, in which few
/// reads show.
pub const WATCHED_S: f64 = 30.0 * 3600.0;
/// The store looks every minute, and converts at most 64 of a bucket then.
const PLAN_EVERY_S: f64 = 1800.0;
const CHANGES_MAX: usize = 64 * 30;
/// A job's tasks, and how long one takes with its chunk.
const TASKS_AT_ONCE: usize = 64;
const TASK_S: f64 = 1.5;
/// Reads that find their chunk missing for a moment, beside those of a lost server.
const FAILS: f64 = 0.01;
/// Of these so many miss another chunk of the stripe, or two.
const TWO_FAIL: f64 = 0.0187;
const THREE_FAIL: f64 = 0.0005;
const SERVERS_LOST: usize = 3;
/// Some day of 2026.
pub const BEGIN_MS: u64 = 1_780_000_000_000;
