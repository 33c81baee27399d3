//! Decides which stripes of a bucket are merged and split as its policy wants: a pure function.
//!
//! ```text
//!   heat    0 ........ cold_below ........................ hot_above ........
//!   fresh   merged     made fast; merged only over the bound, coldest first
//!   fast    merged     stays; merged only over the bound, or for what is much hotter, coldest first
//!   compact stays                                          split while the bound less a margin allows it, hottest first
//! ```
//!
//! Where the bound leaves no room for what is hot, the coldest of what is fast gives way to it: it is merged, and when that is done there is room
//! for the split.
//!
//! Nothing is made fresh again. What is fresh and cold but has no partner is made fast, and may find one among those.
//!
//! Invariants:
//! 1. A split is planned only if all planned splits together leave the bucket below its bound by a [`MARGIN_SHARE`] of its room, counted
//!    from what there is now and not from what planned merges will save: so the bound is kept, whatever of the plan fails.
//! 2. With a fixed heat, carrying plans out comes to an end. Merged for cold: the heat of the whole is that of its parts, so it
//!    is below `hot_above`. Split for heat: the parts are above `cold_below`, and what would merge them is a bucket over its
//!    bound, which no split brings about. Merged for the bound: that happens until the bucket is below it and never again. Merged to
//!    give way: only where all that it takes to make room is found, and every part of it is less than a quarter as hot
//!    ([`HOTTER`]) as what gets the room. What is more than a quarter as hot as the hottest never gives way; when all of that is fast that can be,
//!    nothing gives way that is more than a sixteenth as hot; and so on. Until room that was made is taken, nothing that is less hot takes it.
//! 3. Sources of a merge have chunks of one length, and no two of them chunks on one disk that the merge keeps. On no node they
//!    have more of these together than a compact stripe has there that is spread over all nodes. Packs in them are to have one code.
//! 4. What is young stays, but where the bucket takes more than writers may bring it to ([`HeatPolicy::excess_bytes_max`]): then what is new and
//!    whole is merged, if that is not made up for by merging what is older. What failed lately, or is hurt, is left alone, but for what lacks nothing
//!    except copies that it is to lose (hurt stripes are planned for apart: `plan_waiting_changes`), and so is
//!    what has another code, or what a volume holds. What 3 and 4 say of packs and volumes the transaction looks at once more.
//! 5. A stripe that objects of several buckets hold is planned for in one of them, and counts in each for the bands that its
//!    objects hold. A pack is shared by bytes: what several buckets, or parts of one, are charged for it is together what it takes.
//! 6. Nothing is made compact where the compact code, spread over the nodes there are, survives fewer losses of nodes than the
//!    fast one.
//!
//! Source: [hacfs §3.1]; it names no thresholds and no margin, and as it is written it goes to and fro at the bound.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{DiskId, StripeId};
use claystone_code::CodeSpec;
use claystone_meta::HeatPolicy;
use claystone_stripe::{Node, Nodes};

use crate::why::Why;

/// A bucket, or a part of a large one, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketSnapshot {
    /// What it wants.
    pub policy: HeatPolicy,
    /// Disks that take new chunks.
    pub disks: usize,
    /// Which disks share a node.
    pub nodes: Nodes,
    /// What is written keeps the bound of a bucket of so many bytes at least.
    pub bound_from_bytes: u64,
    /// What all parts of the bucket take, as each was looked at last; `None`: it is not known yet.
    pub whole: Option<Space>,
    /// Its stripes, each once.
    pub stripes: Vec<Resident>,
}

/// A stripe that holds objects of the bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Resident {
    /// Its name.
    pub stripe: StripeId,
    /// Its code.
    pub code: CodeSpec,
    /// Bytes of objects of the bucket in it.
    pub data_bytes: u64,
    /// Bytes of each of its chunks.
    pub chunk_bytes: u64,
    /// Its bands.
    pub bands: u16,
    /// Of these, those that objects of any bucket hold.
    pub bands_living: u16,
    /// Of these, those that objects of this bucket hold. One that is a pack is held as far as what is named in it is theirs.
    pub bands_held: f64,
    /// Disks of the chunks that a merge keeps, ascending; of fast and fresh stripes only.
    pub disks: Vec<DiskId>,
    /// The code that the contents of packs in it are to have; `None`: it has no pack.
    pub packed_for: Option<CodeSpec>,
    /// How often it was read lately.
    pub heat: f64,
    /// Whether it may be changed.
    pub standing: Standing,
}

/// Whether a stripe may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It may.
    Ready,
    /// It is new, or the store runs for so short a time that its reads may be lost.
    Young {
        /// Seconds until it counts.
        seconds_left: u64,
        /// Whether it may be merged all the same where the bucket takes more than writers may bring it to: it is new, and whole.
        gives_way: bool,
    },
    /// It could be, but chunks of it are lost or do not answer.
    Hurt {
        /// How many.
        chunks: u16,
    },
    /// It may: chunks of it are lost or do not answer, but these are copies, which whatever it becomes is without.
    LacksCopies,
    /// An attempt failed a short while ago.
    Waits,
    /// It ends within a row, which the policy's codes cut differently.
    ShortRow,
    /// Objects of another bucket hold it too, whose policy decides.
    Elsewhere,
    /// A volume or a snapshot holds it too, which has a stripe at each position.
    OfVolume,
}

impl Standing {
    /// Whether the stripe may be changed.
    fn may_change(self) -> bool {
        matches!(self, Standing::Ready | Standing::LacksCopies)
    }

    /// Whether something of the stripe is to be repaired, if it is not changed before.
    pub(crate) fn lacks_chunks(self) -> bool {
        matches!(self, Standing::Hurt { .. } | Standing::LacksCopies)
    }
}

/// A conversion to carry out.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The stripes, in the order of their data chunks afterwards.
    pub sources: Vec<StripeId>,
    /// The code of those that take their place.
    pub to: CodeSpec,
    /// Bytes of chunks that it gives back; negative: that it takes.
    pub saved_bytes: i64,
    /// Why.
    pub why: Why,
}

/// Bytes by what they have, of a bucket with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes of objects.
    pub data_bytes: u64,
    /// Bytes of chunks of fresh stripes: replicas.
    pub fresh_bytes: u64,
    /// Of fast ones.
    pub fast_bytes: u64,
    /// Of compact ones.
    pub compact_bytes: u64,
    /// Of all others.
    pub other_bytes: u64,
    /// Of fresh, fast and compact ones that are new: for the bound they are merged last.
    pub young_bytes: u64,
    /// Of those that wait for repair, another attempt or the policy of another bucket.
    pub waiting_bytes: u64,
}

impl std::iter::Sum for Space {
    fn sum<I: Iterator<Item = Space>>(parts: I) -> Space {
        parts.fold(Space::default(), |all, part| Space {
            data_bytes: all.data_bytes + part.data_bytes,
            fresh_bytes: all.fresh_bytes + part.fresh_bytes,
            fast_bytes: all.fast_bytes + part.fast_bytes,
            compact_bytes: all.compact_bytes + part.compact_bytes,
            other_bytes: all.other_bytes + part.other_bytes,
            young_bytes: all.young_bytes + part.young_bytes,
            waiting_bytes: all.waiting_bytes + part.waiting_bytes,
        })
    }
}

impl Space {
    /// Bytes of all chunks.
    pub fn chunks_bytes(&self) -> u64 {
        self.fresh_bytes + self.fast_bytes + self.compact_bytes + self.other_bytes
    }

    /// Bytes of chunks for a hundred bytes of objects; 100 where there is nothing.
    pub fn percent(&self) -> f64 {
        self.percent_with(0)
    }

    /// The same with so many bytes of chunks more.
    fn percent_with(&self, more: i64) -> f64 {
        if self.data_bytes == 0 {
            return 100.0;
        }
        100.0 * (self.chunks_bytes() as f64 + more as f64) / self.data_bytes as f64
    }
}

impl BucketSnapshot {
    /// What its stripes take.
    pub fn space(&self) -> Space {
        let mut space = Space::default();
        for stripe in &self.stripes {
            let bytes = stripe.charged_bytes();
            space.data_bytes += stripe.data_bytes;
            match stripe.code {
                code if code == self.policy.fast => space.fast_bytes += bytes,
                code if code == self.policy.compact => space.compact_bytes += bytes,
                code if self.policy.is_fresh(code) => space.fresh_bytes += bytes,
                _ => {
                    space.other_bytes += bytes;
                    continue;
                }
            }
            match stripe.standing {
                Standing::Young { .. } => space.young_bytes += bytes,
                Standing::Hurt { .. } | Standing::Waits | Standing::Elsewhere => space.waiting_bytes += bytes,
                Standing::Ready | Standing::LacksCopies | Standing::ShortRow | Standing::OfVolume => {}
            }
        }
        space
    }

    /// Why each stripe is changed or stays, if no more than the planned changes are carried out.
    pub fn reasons(&self) -> BTreeMap<StripeId, Why> {
        let changes = plan_conversions(self, usize::MAX);
        let of = |change: &Change| -> Vec<(StripeId, Why)> {
            change.sources.iter().map(|source| (*source, change.why)).collect()
        };
        let mut reasons: BTreeMap<StripeId, Why> = changes.iter().flat_map(of).collect();
        let (alike, space) = (self.mergeable(), self.space());
        for stripe in &self.stripes {
            reasons.entry(stripe.stripe).or_insert_with(|| self.stays(stripe, &alike, &space));
        }
        reasons
    }

    /// Stripes that only wait for their data chunks to lie apart: they are to be converted, and no plan names them before.
    pub fn crowded(&self) -> Vec<StripeId> {
        let (nobody, space) = (BTreeMap::new(), Space::default());
        let waits = |stripe: &&Resident| {
            stripe.standing == Standing::Ready
                && !stripe.is_apart()
                && matches!(self.stays(stripe, &nobody, &space), Why::Crowded { .. })
        };
        self.stripes.iter().filter(waits).map(|stripe| stripe.stripe).collect()
    }

    /// Whether the compact code, spread over the nodes there are, survives as many losses of nodes as the fast one.
    fn nodes_allow_compact(&self) -> bool {
        self.nodes.keep_safe(self.policy.compact, self.policy.fast)
    }

    /// Whether stripes can be made compact on what there is.
    fn compact_fits(&self) -> bool {
        self.disks >= usize::from(self.policy.compact.disks_min()) && self.nodes_allow_compact()
    }

    /// Fast stripes that may be merged.
    fn mergeable(&self) -> Alike {
        let mut alike = Alike::new();
        for stripe in self.ready(self.policy.fast) {
            *alike.entry(stripe.chunk_bytes).or_default().entry(stripe.packed_for).or_insert(0) += 1;
        }
        alike
    }

    fn ready(&self, code: CodeSpec) -> impl Iterator<Item = &Resident> {
        self.stripes.iter().filter(move |stripe| stripe.code == code && stripe.standing.may_change())
    }

    /// Why a stripe that no change names stays as it is, beside so many that are alike, where all take this `space`.
    fn stays(&self, stripe: &Resident, alike: &Alike, space: &Space) -> Why {
        let HeatPolicy { fast, compact, cold_below, hot_above, percent_max, .. } = self.policy;
        let heat = stripe.heat;
        let is_fast = stripe.code == fast;
        let is_fresh = self.policy.is_fresh(stripe.code);
        if !is_fast && !is_fresh && stripe.code != compact {
            return Why::OtherCode { code: stripe.code };
        }
        // What is fresh and ready is changed if disks allow it.
        let wants_more = if is_fast { heat < cold_below.count() } else { is_fresh || heat > hot_above.count() };
        let to = if is_fast { compact } else { fast };
        match stripe.standing {
            // What was tried was to move its chunks apart.
            Standing::Waits if wants_more && !stripe.is_apart() => {}
            Standing::Ready | Standing::LacksCopies => {}
            Standing::Young { seconds_left, .. } if stripe.code == compact => {
                return Why::YoungCompact { seconds_left };
            }
            Standing::Young { seconds_left, .. } => return Why::Young { seconds_left },
            Standing::Hurt { chunks } => return Why::Hurt { chunks },
            Standing::Waits => return Why::Waits,
            Standing::ShortRow => return Why::ShortRow { code: to },
            Standing::Elsewhere => return Why::Elsewhere,
            Standing::OfVolume => return Why::OfVolume,
        }
        if wants_more && self.disks < usize::from(to.disks_min()) {
            return Why::TooFewDisks { code: to, needed: to.disks_min(), available: self.disks };
        }
        if wants_more && to == compact && !self.nodes_allow_compact() {
            return Why::TooFewNodes { code: to, needed: to.disks_min(), available: self.nodes.count() };
        }
        if wants_more && !stripe.is_apart() {
            return Why::Crowded { code: to };
        }
        match (is_fast, wants_more) {
            (true, false) => Why::Warm { heat, cold_below },
            (false, false) => Why::Cool { heat, hot_above },
            (true, true) => {
                let alike = alike.get(&stripe.chunk_bytes).into_iter().flatten();
                let others = alike.filter(|(packed_for, _)| may_share(stripe.packed_for, **packed_for));
                let others = others.map(|(_, alike)| alike).sum::<usize>().saturating_sub(1);
                Why::NoPartner { needed: self.policy.sources() - 1, alike: others }
            }
            (false, true) => {
                let percent = space.percent_with(-split_saves(&self.policy, stripe));
                Why::NoRoom { heat, percent, percent_max }
            }
        }
    }
}

impl Resident {
    /// Bytes of all its chunks.
    fn chunks_bytes(&self) -> u64 {
        u64::from(self.code.shape().chunks()) * self.chunk_bytes
    }

    /// What of these counts for the bucket: its share of the bands that somebody holds, and of packs.
    fn charged_bytes(&self) -> u64 {
        let bands_living = f64::from(self.bands_living.max(1));
        (self.chunks_bytes() as f64 * self.bands_held.min(bands_living) / bands_living).round() as u64
    }

    /// Whether what a merge keeps lies on disks of its own. Copies may have brought data chunks together on one.
    fn is_apart(&self) -> bool {
        self.disks.windows(2).all(|pair| pair[0] != pair[1])
    }
}

/// Stripes by the bytes of their chunks and by what packs in them are to have.
type Alike = BTreeMap<u64, BTreeMap<Option<CodeSpec>, usize>>;

/// Whether packs that are to have these codes may come into one stripe, whose contents are to have one.
fn may_share(one: Option<CodeSpec>, other: Option<CodeSpec>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Plans at most `limit` conversions, in the order to carry them out.
pub fn plan_conversions(snapshot: &BucketSnapshot, limit: usize) -> Vec<Change> {
    let HeatPolicy { fast, compact, percent_max, cold_below, hot_above, .. } = snapshot.policy;
    let space = snapshot.space();
    let percent = space.percent();
    let bound_bytes = i128::from(space.data_bytes) * i128::from(percent_max) / 100;
    let mut over_bytes = i128::from(space.chunks_bytes()) - bound_bytes;
    let mut changes = Vec::new();
    let fast_fits = snapshot.disks >= usize::from(fast.disks_min());
    let compact_fits = snapshot.compact_fits();
    if fast_fits {
        changes.extend(splits_of_dead(snapshot));
    }
    // Replicas go the whole way at once only if both codes cut short rows alike: a fresh stripe may end within one.
    let fresh_codes: BTreeSet<CodeSpec> =
        snapshot.stripes.iter().map(|stripe| stripe.code).filter(|code| snapshot.policy.is_fresh(*code)).collect();
    let fresh = fresh_codes.iter().copied().filter(|_| compact_fits && snapshot.policy.rows_alike());
    let mut pools: Vec<Pool> = compact_fits
        .then_some(fast)
        .into_iter()
        .chain(fresh)
        .map(|code| Pool::new(snapshot, snapshot.ready(code).collect()))
        .collect();
    for pool in &mut pools {
        while let Some(group) = pool.next(|stripe| stripe.heat < cold_below.count()) {
            let why = Why::Cold { heat: hottest(&group), cold_below, sources: group.len() as u16 };
            let change = merge(&snapshot.policy, &group, why);
            over_bytes -= i128::from(change.saved_bytes);
            changes.push(change);
        }
    }
    let merged: BTreeSet<StripeId> = changes.iter().flat_map(|change| change.sources.iter().copied()).collect();
    let fresh = fresh_codes.iter().copied().filter(|_| fast_fits);
    let stripes = fresh.flat_map(|code| snapshot.ready(code));
    let stripes = stripes.filter(|stripe| stripe.is_apart() && !merged.contains(&stripe.stripe));
    let mut settled: BTreeMap<StripeId, &Resident> = stripes.map(|stripe| (stripe.stripe, stripe)).collect();
    // All of these give back what encoding them does, if not more; and so will those that may not be changed yet, for which nothing
    // hot is to be merged.
    let encoding_saves = |stripe: &Resident| encoding_saves(&snapshot.policy, stripe);
    over_bytes -= settled.values().map(|stripe| i128::from(encoding_saves(stripe))).sum::<i128>();
    let later = |stripe: &&Resident| !stripe.standing.may_change() && fresh_codes.contains(&stripe.code);
    let later = snapshot.stripes.iter().filter(later).filter(|_| fast_fits);
    over_bytes -= later.map(|stripe| i128::from(encoding_saves(stripe))).sum::<i128>();
    // Who had no partner among the cold may find one now.
    let mut pools: Vec<Pool> = pools.into_iter().map(Pool::anew).collect();
    for pool in &mut pools {
        while over_bytes > 0
            && let Some(group) = pool.next(|_| true)
        {
            let why = Why::OverBound { heat: hottest(&group), percent, percent_max };
            let change = merge(&snapshot.policy, &group, why);
            let counted = change.sources.iter().filter_map(|source| settled.remove(source)).map(encoding_saves);
            over_bytes -= i128::from(change.saved_bytes) - i128::from(counted.sum::<i64>());
            changes.push(change);
        }
    }
    changes.extend(settled.into_values().map(|stripe| Change {
        sources: vec![stripe.stripe],
        to: fast,
        saved_bytes: encoding_saves(stripe),
        why: Why::Settled { heat: stripe.heat, cold_below },
    }));
    if let Some(whole) = snapshot.whole.filter(|_| compact_fits) {
        let given_back: i64 = changes.iter().map(|change| change.saved_bytes).sum();
        changes.extend(merges_of_new(snapshot, &whole, given_back));
    }
    if fast_fits {
        let mut hot: Vec<&Resident> =
            snapshot.ready(compact).filter(|stripe| stripe.heat > hot_above.count()).collect();
        hot.sort_by(|one, other| other.heat.total_cmp(&one.heat).then(one.stripe.cmp(&other.stripe)));
        let planned: BTreeSet<StripeId> = changes.iter().flat_map(|change| change.sources.iter().copied()).collect();
        let percent_most = percent_most(&snapshot.policy);
        let mut splits = Vec::new();
        // What all other changes give back; what planned splits take; what those take for which others give way, less what these give.
        let given_back = (i128::from(space.chunks_bytes()) - bound_bytes - over_bytes) as i64;
        let (mut taken, mut reserved): (i64, i64) = (0, 0);
        // The first pool is of fast stripes.
        let mut giving = pools.first_mut().filter(|_| compact_fits);
        for stripe in hot.into_iter().filter(|stripe| !planned.contains(&stripe.stripe)) {
            let takes = -split_saves(&snapshot.policy, stripe);
            let after = space.percent_with(taken.max(taken + reserved) + takes);
            if after <= percent_most {
                taken += takes;
                let why = Why::Hot { heat: stripe.heat, hot_above, percent: after, percent_max };
                splits.push(Change { sources: vec![stripe.stripe], to: fast, saved_bytes: -takes, why });
                continue;
            }
            let lacks = |given: i64| space.percent_with(taken + reserved + takes - given - given_back) > percent_most;
            let Some(pool) = giving.as_mut().filter(|_| lacks(0)) else { continue };
            let (mut merges, mut given) = (Vec::new(), 0);
            while lacks(given)
                && let Some(group) = pool.next(|other| other.heat * HOTTER < stripe.heat)
            {
                let why = Why::GivesWay { heat: hottest(&group), hotter: stripe.heat, percent_max };
                let change = merge(&snapshot.policy, &group, why);
                given += change.saved_bytes;
                merges.push(change);
            }
            if lacks(given) {
                // Others are less hot, so there is less that could give way to them.
                giving = None;
            } else {
                reserved += takes - given;
                changes.extend(merges);
            }
        }
        changes.extend(splits);
    }
    changes.truncate(limit);
    changes
}

/// Merges of what is new, that which takes most and is coldest first, while the bucket, which takes `whole` and is given so many bytes back by
/// other changes, would take more than writers may bring it to.
fn merges_of_new(snapshot: &BucketSnapshot, whole: &Space, given_back: i64) -> Vec<Change> {
    let policy = &snapshot.policy;
    let percent_max = policy.percent_max;
    let most_bytes = policy.excess_bytes_max(whole.data_bytes, snapshot.bound_from_bytes);
    let mut over_bytes = policy.excess_bytes(whole.data_bytes, whole.chunks_bytes()) - most_bytes - given_back;
    let mut merges = Vec::new();
    if over_bytes <= 0 {
        return merges;
    }
    let gives_way = |stripe: &&Resident| matches!(stripe.standing, Standing::Young { gives_way: true, .. });
    let new: Vec<&Resident> = snapshot.stripes.iter().filter(gives_way).collect();
    let codes: BTreeSet<CodeSpec> = new.iter().map(|stripe| stripe.code).collect();
    let fresh = codes.into_iter().filter(|code| policy.rows_alike() && policy.is_fresh(*code));
    for code in fresh.chain([policy.fast]) {
        let stripes = new.iter().copied().filter(|stripe| stripe.code == code);
        let mut pool = Pool::new(snapshot, stripes.collect());
        while over_bytes > 0
            && let Some(group) = pool.next(|_| true)
        {
            let why = Why::OverBound { heat: hottest(&group), percent: whole.percent(), percent_max };
            let change = merge(policy, &group, why);
            over_bytes -= change.saved_bytes;
            merges.push(change);
        }
    }
    merges
}

/// Compact stripes that take more than their living bands would alone.
fn splits_of_dead(snapshot: &BucketSnapshot) -> impl Iterator<Item = Change> {
    let policy = snapshot.policy;
    let HeatPolicy { fast, compact, .. } = policy;
    snapshot.ready(compact).filter_map(move |stripe| {
        let dead = stripe.bands - stripe.bands_living;
        let living =
            i128::from(stripe.bands_living) * i128::from(fast.shape().chunks()) * i128::from(stripe.chunk_bytes);
        let saved_bytes = (i128::from(stripe.chunks_bytes()) - living) as i64;
        let why = Why::BandsDead { dead, bands: stripe.bands };
        (dead > 0 && policy.splits_with(stripe.bands_living)).then(|| Change {
            sources: vec![stripe.stripe],
            to: fast,
            saved_bytes,
            why,
        })
    })
}

/// What a bucket takes at most when splits end, in percent.
fn percent_most(policy: &HeatPolicy) -> f64 {
    let (compact, percent_max) = (policy.compact.shape(), f64::from(policy.percent_max));
    let percent_compact = 100.0 * f64::from(compact.chunks()) / f64::from(compact.data);
    percent_max - (percent_max - percent_compact) / MARGIN_SHARE
}

/// Bytes of chunks that splitting gives back: less than none.
fn split_saves(policy: &HeatPolicy, stripe: &Resident) -> i64 {
    let after = u64::from(policy.sources()) * u64::from(policy.fast.shape().chunks()) * stripe.chunk_bytes;
    stripe.chunks_bytes() as i64 - after as i64
}

/// Bytes of chunks that making a fresh stripe fast gives back.
fn encoding_saves(policy: &HeatPolicy, stripe: &Resident) -> i64 {
    let after = u64::from(policy.fast.shape().chunks()) * stripe.chunk_bytes;
    stripe.chunks_bytes() as i64 - after as i64
}

fn merge(policy: &HeatPolicy, group: &[&Resident], why: Why) -> Change {
    let before: u64 = group.iter().map(|stripe| stripe.chunks_bytes()).sum();
    let after = u64::from(policy.compact.shape().chunks()) * group[0].chunk_bytes;
    Change {
        sources: group.iter().map(|stripe| stripe.stripe).collect(),
        to: policy.compact,
        saved_bytes: before as i64 - after as i64,
        why,
    }
}

fn hottest(group: &[&Resident]) -> f64 {
    group.iter().map(|stripe| stripe.heat).fold(0.0, f64::max)
}

/// Stripes of one code that may be merged, coldest first.
struct Pool<'a> {
    sources: usize,
    nodes: &'a Nodes,
    /// Chunks that stripes of a group may have on one node together.
    on_node_max: usize,
    /// In the order of heat; those that found their group are `None`.
    stripes: Vec<Option<&'a Resident>>,
    /// Where those of one length of chunks are in it, ascending.
    alike: BTreeMap<u64, Vec<usize>>,
    /// How many of `stripes` were looked at as the coldest of a group.
    looked: usize,
}

impl<'a> Pool<'a> {
    fn new(snapshot: &'a BucketSnapshot, mut stripes: Vec<&'a Resident>) -> Pool<'a> {
        stripes.sort_by(|one, other| one.heat.total_cmp(&other.heat).then(one.stripe.cmp(&other.stripe)));
        let mut pool = Pool {
            sources: snapshot.policy.sources().into(),
            nodes: &snapshot.nodes,
            on_node_max: snapshot.nodes.most_when_spread(snapshot.policy.compact.shape().chunks()).max(1),
            stripes: Vec::new(),
            alike: BTreeMap::new(),
            looked: 0,
        };
        pool.fill(stripes);
        pool
    }

    fn fill(&mut self, stripes: Vec<&'a Resident>) {
        let mut alike: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, stripe) in stripes.iter().enumerate() {
            alike.entry(stripe.chunk_bytes).or_default().push(at);
        }
        self.stripes = stripes.into_iter().map(Some).collect();
        self.alike = alike;
        self.looked = 0;
    }

    /// Those that have no group, each to be looked at once more.
    fn anew(mut self) -> Pool<'a> {
        let left = std::mem::take(&mut self.stripes).into_iter().flatten().collect();
        self.fill(left);
        self
    }

    /// The coldest stripes that can be merged, of those that `may` be.
    fn next(&mut self, may: impl Fn(&Resident) -> bool) -> Option<Vec<&'a Resident>> {
        while let Some(seed) = self.stripes.get(self.looked).copied() {
            let at = self.looked;
            self.looked += 1;
            let Some(seed) = seed else { continue };
            if !may(seed) {
                // Whatever follows is hotter.
                return None;
            }
            if seed.is_apart()
                && let Some(group) = self.group(at, seed, &may)
            {
                return Some(group);
            }
        }
        None
    }

    fn group(&mut self, at: usize, seed: &'a Resident, may: impl Fn(&Resident) -> bool) -> Option<Vec<&'a Resident>> {
        let alike = &self.alike[&seed.chunk_bytes];
        let after = alike.partition_point(|other| *other <= at);
        let mut disks: BTreeSet<DiskId> = seed.disks.iter().copied().collect();
        let mut on_nodes = self.on_nodes(seed, &BTreeMap::new());
        let mut packed_for = seed.packed_for;
        let mut group = vec![(at, seed)];
        let living = alike[after..].iter().filter_map(|other| Some((*other, self.stripes[*other]?)));
        let living = living.filter(|(_, stripe)| may_share(seed.packed_for, stripe.packed_for));
        for (other, stripe) in living.take(PARTNERS_MAX) {
            if group.len() == self.sources || !may(stripe) {
                break;
            }
            let is_beside = stripe.disks.iter().any(|disk| disks.contains(disk));
            if !stripe.is_apart() || is_beside || !may_share(packed_for, stripe.packed_for) {
                continue;
            }
            let with_it = self.on_nodes(stripe, &on_nodes);
            if with_it.values().all(|chunks| *chunks <= self.on_node_max) {
                disks.extend(&stripe.disks);
                on_nodes = with_it;
                packed_for = packed_for.or(stripe.packed_for);
                group.push((other, stripe));
            }
        }
        if group.len() < self.sources {
            return None;
        }
        group.iter().for_each(|(at, _)| self.stripes[*at] = None);
        Some(group.into_iter().map(|(_, stripe)| stripe).collect())
    }

    /// Chunks on each node with those of one stripe more.
    fn on_nodes(&self, stripe: &Resident, others: &BTreeMap<Node, usize>) -> BTreeMap<Node, usize> {
        let mut on_nodes = others.clone();
        stripe.disks.iter().for_each(|disk| *on_nodes.entry(self.nodes.node(*disk)).or_default() += 1);
        on_nodes
    }
}

/// What gives way is read less than one part in so many of what it gives way to, so that no two of them change places again and
/// again while reads come by chance.
const HOTTER: f64 = 4.0;
/// Splits leave one part in so many of what is between the compact code and the bound, so that ends of objects and packs that are written next do
/// not have them undone.
const MARGIN_SHARE: f64 = 20.0;
/// Partners looked at for one stripe: with fast stripes written in lanes, the chance that none of so many is on other disks
/// is nil.
const PARTNERS_MAX: usize = 128;

#[cfg(test)]
mod tests;
