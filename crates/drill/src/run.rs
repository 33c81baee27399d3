//! One run: rounds of clients and faults, a check after each, and a full repair at the end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use claystone_chunk::{DiskId, Durability, StripeId};
use claystone_code::{CodeSpec, ConversionGoal, plan_conversion};
use claystone_env::{Random, Task};
use claystone_keeper::{ConversionTotals, Overall};
use claystone_meta::{
    DeleteObject, HeatPolicy, ListQuery, Precondition, StripeRecord, StripeRecords, VersionRef, Versioning,
};
use claystone_object::{
    Algorithm, Attributes, CompletePart, Confirm, Confirmed, NewUpload, ObjectError, Objects, Part, Put,
};
use claystone_sim::{Fault, TraceSum, World};
use futures::stream::{self, StreamExt};

use crate::cluster::{BUCKET, Cluster, DISK_BYTES};
use crate::{Atlas, Model, Promise, Stored};

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Everything that happened, as one number.
    pub trace: TraceSum,
    /// Client operations that succeeded.
    pub operations: u64,
    /// Client operations that returned an error.
    pub refused: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Crashes.
    pub crashes: u64,
    /// Power cuts of a node, or of the only one with the process, of a store that had acknowledged what was not synced.
    pub cuts: u64,
    /// Chunks rebuilt in the final repair.
    pub repaired: u64,
    /// Stripes that were merged, split or given another code where they lie: conversions that were carried out.
    pub conversions: u64,
    /// Those besides that upkeep carried out because the bucket's policy wanted them.
    pub followed: u64,
}

/// Runs one seed.
///
/// # Errors
/// What the store did wrong. Run the seed again to see it again.
pub fn run_seed(seed: u64) -> Result<Report> {
    claystone_sim::run(seed, |world| async move { Drill::new(world).await?.run().await })
        .with_context(|| format!("replay it with: cargo run -p claystone-drill -- --seed {seed}"))
}

/// Codes of the bucket, each of which recovers what is left of a stripe by rules of its own, and what its stripes may be
/// converted to, and back.
const CODES: [(&str, &str); 8] = [
    ("rs:4+2", "rs:4+3"),
    ("clay:4+2:5", "rs:4+2"),
    ("replica:3", "rs:2+2"),
    ("lrc:4+2+2", "lrc:4+1+2"),
    ("pc:2x2", "rs:4+3"),
    ("pc:1x2", "pc:2x2"),
    ("rsm:3+2", "rsm:6+2"),
    ("clay:6+2:7", "rs:6+2"),
];

/// Policies of the bucket, without bounds: upkeep converts by itself then, too.
const POLICIES: [&str; 7] = [
    "rsm:3+2/rsm:6+2",
    "replica:3/rsm:3+2/rsm:6+2",
    "lrc:4+2+2/lrc:4+1+2",
    "replica:3/lrc:4+2+2/lrc:4+1+2",
    "pc:1x2/pc:2x2",
    "mirror:6x3/clay:6+2:7",
    "hybrid:2/rsm:3+2/rsm:6+2",
];

struct Drill {
    cluster: Cluster,
    random: Arc<dyn Random>,
    atlas: Atlas,
    model: Arc<Mutex<Model>>,
    tally: Arc<Mutex<(u64, u64)>>,
    promise: Promise,
    /// Where what is acknowledged may be volatile: the node that loses power until all is repaired, while no disk is hurt.
    cut: Option<usize>,
    faults: u64,
    crashes: u64,
    cuts: u64,
    repaired: u64,
    conversions: Arc<AtomicU64>,
    /// The bucket has a policy.
    follows: bool,
    /// Conversions that upkeep carried out by itself in processes that have ended.
    followed: u64,
    next_content: u64,
    /// The bucket's code, and the other one of its stripes.
    codes: (CodeSpec, CodeSpec),
}

impl Drill {
    async fn new(world: World) -> Result<Drill> {
        let random = world.random().fork("drill");
        let parse = |code: &str| code.parse::<CodeSpec>().expect("a valid code");
        let (code, other) = CODES[random.below(CODES.len() as u64) as usize];
        let policy = (random.below(3) == 0).then(|| draw_policy(&*random));
        let codes = match policy {
            Some(policy) => (policy.fast, policy.compact),
            None => (parse(code), parse(other)),
        };
        let fresh = policy.and_then(|policy| policy.fresh_code());
        let both = || [codes.0, codes.1].into_iter();
        // Those that are merged lie on disks of their own.
        let sources = (codes.1.shape().data / codes.0.shape().data).max(1);
        let widest = both().map(|code| code.shape().chunks()).max().expect("there is one").max(6);
        let disks = widest.max(sources * codes.0.shape().chunks()) + random.below(3) as u16;
        let promise = draw_promise(&*world.random().fork("promise"));
        let cluster = Cluster::promising(world, disks.into(), promise).await?;
        cluster.running.objects.set_code(BUCKET, Some(codes.0)).await?;
        cluster.running.objects.set_policy(BUCKET, policy).await?;
        // Small objects are copies on as many disks as a code loses, and one more.
        let tolerance = both().chain(fresh).map(|code| code.tolerance()).min().expect("there is one");
        Ok(Drill {
            cluster,
            random,
            atlas: Atlas::new(tolerance),
            model: Arc::default(),
            tally: Arc::default(),
            promise,
            cut: None,
            faults: 0,
            crashes: 0,
            cuts: 0,
            repaired: 0,
            conversions: Arc::default(),
            follows: policy.is_some(),
            followed: 0,
            next_content: 0,
            codes,
        })
    }

    async fn run(mut self) -> Result<Report> {
        let repairs = 1 + self.random.below(2);
        for _ in 0..repairs {
            // Who counts on one node's power at most counts on all other disks.
            let cuts = self.promise.is_replicated() && self.random.below(4) > 0;
            self.cut = cuts.then(|| self.random.below(self.promise.nodes as u64) as usize);
            for _ in 0..2 + self.random.below(4) {
                self.round().await?;
            }
            self.repair_all().await?;
        }
        self.followed += self.followed_now().await?;
        let (operations, refused) = *self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Report {
            trace: self.cluster.world.trace(),
            operations,
            refused,
            faults: self.faults,
            crashes: self.crashes,
            cuts: self.cuts,
            repaired: self.repaired,
            conversions: self.conversions.load(Ordering::Relaxed),
            followed: self.followed,
        })
    }

    /// Clients at work, faults between their steps, perhaps a crash; then everything is read.
    async fn round(&mut self) -> Result<()> {
        let mut tasks = self.start_clients();
        for _ in 0..self.random.below(4) {
            self.pause().await;
            match self.cut {
                Some(node) => self.cut(node).await?,
                None => self.fault().await?,
            }
        }
        for _ in 0..self.random.below(16) {
            self.pause().await;
            tasks.extend(self.start_conversion().await?);
        }
        if !self.promise.is_replicated() && self.random.below(3) == 0 {
            self.pause().await;
            self.crashes += 1;
            self.followed += self.followed_now().await?;
            self.cluster.crash().await?;
        } else {
            for task in tasks {
                task.ended().await;
            }
        }
        self.check().await
    }

    /// A node loses power, at once or when more has been written.
    async fn cut(&mut self, node: usize) -> Result<()> {
        self.cuts += 1;
        self.cluster.world.note("cut", &[node as u64]);
        if self.promise.nodes > 1 {
            return self.cluster.cut_node(node).await;
        }
        self.followed += self.followed_now().await?;
        self.cluster.crash().await
    }

    /// Conversions that upkeep carried out by itself in this process.
    async fn followed_now(&self) -> Result<u64> {
        let ConversionTotals { encoded, merged, split, .. } = self.cluster.running.keeper.status().await?.conversions;
        Ok(encoded + merged + split)
    }

    async fn pause(&self) {
        // Between nothing and 30 ms: operations of a simulated SSD take about one.
        let microseconds = self.random.below(1 << (self.random.below(15) + 1));
        self.cluster.world.clock().sleep(Duration::from_micros(microseconds)).await;
    }

    // ---- Clients ----

    fn start_clients(&mut self) -> Vec<Task> {
        let count = 1 + self.random.below(6);
        let keys: BTreeSet<String> = (0..count).map(|_| format!("key {}", self.random.below(12))).collect();
        keys.into_iter().map(|key| self.start_client(key)).collect()
    }

    /// One operation on one key, as a task that dies with the process.
    fn start_client(&mut self, key: String) -> Task {
        let objects = self.cluster.running.objects.clone();
        let (model, tally) = (self.model.clone(), self.tally.clone());
        let lock = |model: &Mutex<Model>, act: &dyn Fn(&mut Model)| {
            act(&mut model.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let kind = self.random.below(10);
        let stored = self.new_content();
        let source = format!("key {}", self.random.below(12));
        let cuts =
            [self.random.below(stored.bytes as u64 + 1) as usize, self.random.below(stored.bytes as u64 + 1) as usize];
        let operation = async move {
            let result = match kind {
                0 | 1 => {
                    lock(&model, &|model| model.begin(&key, None));
                    delete(&objects, &key).await
                }
                2 => {
                    lock(&model, &|model| model.begin(&key, Some(stored)));
                    upload(&objects, &key, stored, cuts).await
                }
                3 => match found(&objects, &source).await {
                    Ok(Some((object, copied))) if source != key => {
                        lock(&model, &|model| model.begin(&key, Some(copied)));
                        let none = Attributes { user: object.attributes.user.clone(), ..Attributes::default() };
                        let copy = objects.copy(&object, BUCKET, &key, Versioning::Off, Precondition::None, none);
                        copy.await.map(|_| ())
                    }
                    // Nothing to copy.
                    _ => return,
                },
                _ => {
                    lock(&model, &|model| model.begin(&key, Some(stored)));
                    put(&objects, &key, stored).await
                }
            };
            let happened = result.is_ok();
            lock(&model, &|model| model.end(&key, happened));
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            if happened { tally.0 += 1 } else { tally.1 += 1 }
        };
        self.cluster.running.process.env().tasks.spawn("client", Box::pin(operation))
    }

    /// Upkeep takes a step of conversions, or stripes of one code become stripes of the other, as a task that dies with the process. `None`: there are none for it.
    async fn start_conversion(&mut self) -> Result<Option<Task>> {
        let (code, other) = self.codes;
        if self.follows && self.random.below(4) > 0 {
            let keeper = self.cluster.running.keeper.clone();
            let step = async move {
                // What fails is tried again, and what was written of heat is what a crash leaves of it.
                let _ = keeper.convert_once().await;
                let _ = keeper.write_heats().await;
            };
            return Ok(Some(self.cluster.running.process.env().tasks.spawn("policy", Box::pin(step))));
        }
        let stripes = self.cluster.meta.stripes(None, 100_000).await?;
        let (from, to) = if self.random.below(3) > 0 { (code, other) } else { (other, code) };
        let mut able: Vec<&StripeRecord> = stripes.iter().filter(|stripe| stripe.code == from).collect();
        if able.is_empty() {
            return Ok(None);
        }
        let first = able.swap_remove(self.random.below(able.len() as u64) as usize);
        let plan = plan_conversion(from, to, ConversionGoal::FewestReads)?;
        let mut sources = vec![first];
        for stripe in able {
            let disks = |stripe: &StripeRecord| -> BTreeSet<DiskId> {
                stripe.places.iter().flatten().map(|place| place.disk).collect()
            };
            let is_apart = |source: &&StripeRecord| disks(source).is_disjoint(&disks(stripe));
            let fits = stripe.data_bytes == first.data_bytes && sources.iter().all(is_apart);
            if sources.len() < usize::from(plan.sources) && fits {
                sources.push(stripe);
            }
        }
        let sources: Vec<StripeId> = sources.iter().map(|stripe| stripe.id).collect();
        let (keeper, conversions) = (self.cluster.running.keeper.clone(), self.conversions.clone());
        let conversion = async move {
            // Clients change the objects meanwhile, disks are hurt, and some have no partners: they stay as they are.
            if keeper.convert(&sources, to).await.is_ok() {
                conversions.fetch_add(1, Ordering::Relaxed);
            }
        };
        Ok(Some(self.cluster.running.process.env().tasks.spawn("conversion", Box::pin(conversion))))
    }

    fn new_content(&mut self) -> Stored {
        self.next_content += 1;
        if self.random.below(3) == 0 {
            // Of the same length as others, so that their stripes can be merged.
            return Stored { seed: self.next_content, bytes: 150_000 };
        }
        let most = [1, 100, 5_000, 20_000, 70_000, 300_000, 900_000][self.random.below(7) as usize];
        Stored { seed: self.next_content, bytes: self.random.below(most + 1) as usize }
    }

    // ---- Faults ----

    async fn fault(&mut self) -> Result<()> {
        self.faults += 1;
        let number = self.atlas.choose(&*self.random, self.cluster.slots.len());
        let kind = self.random.below(14);
        self.cluster.world.note("fault", &[number as u64, kind]);
        let sim = self.cluster.slots[number].sim.clone();
        let files: Vec<String> = sim.files().into_iter().filter(|path| path.starts_with("chunks/")).collect();
        let random = &*self.random;
        let some = |files: &[String]| files.get(random.below(files.len().max(1) as u64) as usize).cloned();
        match kind {
            0..=2 => {
                for _ in 0..1 + random.below(5) {
                    if let Some(path) = some(&files) {
                        let bits = sim.content(&path).len() as u64 * 8;
                        if bits > 0 {
                            sim.flip_bit(&path, random.below(bits));
                        }
                    }
                }
            }
            3 => {
                if let Some(path) = some(&files) {
                    let bytes = sim.content(&path).len() as u64;
                    sim.truncate(&path, random.below(bytes + 1));
                }
            }
            4 => {
                if let Some(path) = some(&files) {
                    sim.lose_file(&path);
                }
            }
            5 | 6 => {
                if let Some(path) = some(&files) {
                    let start = random.below(sim.content(&path).len() as u64 + 1);
                    sim.make_unreadable(&path, start..start + 1 + random.below(20_000));
                }
            }
            7 => sim.set_removed(true),
            8 => sim.fail_every(Some((2 + random.below(30), Fault::Medium))),
            9 => sim.set_capacity(random.below(2_000_000)),
            10 => sim.set_read_only(true),
            11 => sim.set_latency_factor(1 + random.below(10_000) as u32),
            12 => sim.stall(Duration::from_millis(random.below(100_000))),
            _ => self.cluster.replace(number).await?,
        }
        Ok(())
    }

    // ---- Checks ----

    /// Every key holds what clients were told, whole and in a range, and the listing names exactly these.
    async fn check(&mut self) -> Result<()> {
        let objects = &self.cluster.running.objects;
        let keys = self.model.lock().unwrap_or_else(PoisonError::into_inner).keys();
        for key in &keys {
            let found = read(objects, key, None).await.with_context(|| format!("reading {key}"))?;
            let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
            model.observe(key, found.as_deref()).map_err(|wrong| anyhow!("{wrong}"))?;
        }
        let stored = |key: &String| self.model.lock().unwrap_or_else(PoisonError::into_inner).known(key);
        for key in &keys {
            if let Some(stored) = stored(key) {
                let start = self.random.below(stored.bytes as u64 + 1);
                let bytes = self.random.below(stored.bytes as u64 - start + 1);
                let range = claystone_object::ByteRange { offset: start, bytes };
                let found =
                    read(objects, key, Some(range)).await.with_context(|| format!("reading {range:?} of {key}"))?;
                let expected = stored.content().slice(start as usize..(start + bytes) as usize);
                ensure!(found.as_deref() == Some(&expected[..]), "{range:?} of {key} holds other bytes");
            }
        }
        let bucket = objects.bucket(BUCKET).await?.id;
        let page = objects.list(bucket, &ListQuery { limit: 1000, ..ListQuery::default() }).await?;
        let listed: Vec<String> = page.entries.into_iter().map(|entry| entry.key).collect();
        let mut expected = self.model.lock().unwrap_or_else(PoisonError::into_inner).objects();
        expected.sort();
        ensure!(listed == expected, "listed {listed:?}, expected {expected:?}");
        Ok(())
    }

    /// The operator fixes or replaces what was hurt; then upkeep must bring everything back, verified.
    async fn repair_all(&mut self) -> Result<()> {
        for number in self.atlas.hurt().clone() {
            let sim = &self.cluster.slots[number].sim;
            sim.set_removed(false);
            sim.set_read_only(false);
            sim.set_capacity(DISK_BYTES);
            sim.set_latency_factor(1);
            sim.fail_every(None);
            sim.spare_faults();
            if self.random.below(4) == 0 {
                self.cluster.replace(number).await?;
            } else {
                self.cluster.reopen(number).await?;
            }
        }
        let clock = self.cluster.world.clock();
        let keeper = &self.cluster.running.keeper;
        // Damage at rest shows when it is looked for.
        keeper.start_scrub().await?;
        let mut settled = false;
        for _ in 0..SETTLE_ROUNDS {
            // Longer than new stripes wait for their verification and dead ones for reclaim.
            clock.sleep(Duration::from_secs(120)).await;
            let status = keeper.status().await?;
            let scrubbed = status.scrub.as_ref().is_some_and(|scrub| scrub.finished);
            if scrubbed && status.overall == Overall::Healthy && status.stripes.dead == 0 {
                settled = true;
                break;
            }
        }
        let status = keeper.status().await?;
        self.repaired = status.repair.iter().map(|repairs| repairs.chunks).sum();
        ensure!(settled, "upkeep does not settle: {status:?}");
        // What a repair left that was cut off is found by the next sweep, which need not wait for its hour.
        keeper.request_sweep();
        clock.sleep(Duration::from_secs(120)).await;
        self.atlas.repaired();
        self.cluster.check_verified().await?;
        self.cluster.check_no_orphans().await?;
        self.check().await
    }
}

const SETTLE_ROUNDS: usize = 40;

/// Of four stores one acknowledges what is not synced, on as few nodes as have more of a stripe each than its code loses, or some more.
fn draw_promise(random: &dyn Random) -> Promise {
    match random.below(4) {
        0 => Promise { durability: Durability::Buffered, nodes: 1 + random.below(4) as usize },
        _ => Promise::SYNCED,
    }
}

/// One of [`POLICIES`] with the least bound or none to speak of.
fn draw_policy(random: &dyn Random) -> HeatPolicy {
    let codes = POLICIES[random.below(POLICIES.len() as u64) as usize];
    let policy: HeatPolicy = format!("{codes}<=400%,0.25..1.00").parse().expect("a valid policy");
    let shape = policy.compact.shape();
    let least = (100 * u32::from(shape.chunks())).div_ceil(shape.data.into());
    HeatPolicy { percent_max: if random.below(2) == 0 { least } else { 400 }, ..policy }
}

fn confirm() -> Confirm {
    Box::new(|digests| {
        Ok(Confirmed { etag: hex::encode(&digests.values[&Algorithm::Md5]), checksums: Default::default() })
    })
}

/// The body in pieces, with the seed and length of the content in its user metadata.
fn body(content: Bytes) -> claystone_object::Body {
    let pieces: Vec<Bytes> = content.chunks(65_536).map(|piece| content.slice_ref(piece)).collect();
    stream::iter(pieces.into_iter().map(Ok)).boxed()
}

fn labelled(stored: Stored) -> Attributes {
    let user = [("seed", stored.seed), ("bytes", stored.bytes as u64)];
    Attributes { user: user.map(|(name, value)| (name.to_owned(), value.to_string())).into(), ..Attributes::default() }
}

pub(crate) async fn put(objects: &Objects, key: &str, stored: Stored) -> Result<(), ObjectError> {
    let put = Put {
        bucket: BUCKET.to_owned(),
        key: key.to_owned(),
        versioning: Versioning::Off,
        precondition: Precondition::None,
        attributes: labelled(stored),
        bytes: stored.bytes as u64,
        body: body(stored.content()),
        digests: vec![Algorithm::Md5],
        confirm: confirm(),
    };
    objects.put(put).await.map(|_| ())
}

async fn upload(objects: &Objects, key: &str, stored: Stored, mut cuts: [usize; 2]) -> Result<(), ObjectError> {
    cuts.sort_unstable();
    let new = NewUpload { bucket: BUCKET.to_owned(), key: key.to_owned(), attributes: labelled(stored) };
    let upload = objects.create_upload(new).await?;
    let content = stored.content();
    let borders = [0, cuts[0], cuts[1], stored.bytes];
    let ranges = borders.windows(2).map(|ends| ends[0]..ends[1]).filter(|range| !range.is_empty());
    let mut parts = Vec::new();
    for (number, range) in (1..).zip(ranges) {
        let part = Part {
            bucket: BUCKET.to_owned(),
            key: key.to_owned(),
            upload: upload.id.clone(),
            number,
            bytes: range.len() as u64,
            body: body(content.slice(range)),
            digests: vec![Algorithm::Md5],
            confirm: confirm(),
        };
        parts.push(CompletePart { number, etag: objects.put_part(part).await?.etag });
    }
    if parts.is_empty() {
        objects.abort_upload(BUCKET, key, &upload.id).await?;
        return put(objects, key, stored).await;
    }
    let attributes = labelled(stored);
    let (etag, none) = ("upload".to_owned(), Precondition::None);
    objects.complete_upload(BUCKET, &upload, &parts, Versioning::Off, none, etag, attributes).await.map(|_| ())
}

pub(crate) async fn delete(objects: &Objects, key: &str) -> Result<(), ObjectError> {
    let bucket = objects.bucket(BUCKET).await?;
    let delete = DeleteObject {
        bucket: bucket.id,
        key: key.to_owned(),
        version: VersionRef::Current,
        marker: None,
        precondition: Precondition::None,
        now: bucket.created,
    };
    objects.delete(delete).await.map(|_| ())
}

/// An object and what it says of its content.
async fn found(objects: &Objects, key: &str) -> Result<Option<(claystone_object::Object, Stored)>, ObjectError> {
    let Some(object) = objects.find(BUCKET, key, &VersionRef::Current).await?.object else { return Ok(None) };
    let number = |name: &str| object.attributes.user.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
    let stored = Stored { seed: number("seed"), bytes: number("bytes") as usize };
    Ok(Some((object, stored)))
}

/// An object's bytes; `None` if there is no object.
pub(crate) async fn read(
    objects: &Objects,
    key: &str,
    range: Option<claystone_object::ByteRange>,
) -> Result<Option<Vec<u8>>> {
    let Some((object, _)) = found(objects, key).await? else { return Ok(None) };
    let mut body = objects.read(&object, range);
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(claystone_object::BodyError::Refused(error)) => return Err(anyhow!("{error}")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(bytes))
}
