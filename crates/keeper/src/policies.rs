//! Carries out what the policies of buckets want: a few conversions at once, at the pace of upkeep.
//!
//! ```text
//!   buckets with a policy -> look (their stripes, heat, disks) -> plan_conversions (pure) -> Keeper::convert, `repair_concurrency` at once
//! ```
//!
//! Invariants:
//! 1. While something is to be repaired and can be, nothing is converted but what reads less so (`order`).
//! 2. A stripe that failed is left alone for a bounded, growing while. What the attempt made is deleted by who made it.
//! 3. At most `look_stripes_max` stripes of a bucket are looked at at once; of a larger one the next ones the next time, and the
//!    bound is kept for each part by itself. What is told of the bucket is of all its parts (`parts`); what room it has is found
//!    when it was gone through, of the parts of that time alone. A stripe that lies in several
//!    parts is planned for in the first of them, each time that the bucket is gone through: two parts never change one stripe by turns.
//! 4. A stripe that objects of several buckets hold is planned for in the first of these, by name, that has one of its codes: two
//!    policies never change one stripe by turns. What a bucket holds is known when it was gone through once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use claystone_chunk::StripeId;
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_meta::{
    BucketId, BucketRecord, HeatPolicy, MetaError, Span, SpanPlace, StripeNames, StripeRecord, VersionRef,
};
use claystone_stripe::{Family, Layout, StripeError, Taken};

use crate::backoff::Cause;
use crate::batch::carry_out_all;
use crate::conversions::{BucketSnapshot, Change, Resident, Space, Standing, plan_conversions};
use crate::convert::ConversionError;
use crate::keeper::PAGE;
use crate::parts::{BucketPart, BucketParts};
use crate::progress::JobKind;
use crate::snapshot::Snapshot;
use crate::status::PolicyStatus;
use crate::view::View;
use crate::why::Why;
use crate::{Keeper, KeeperError, Settings};

/// What one step of conversions did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyRound {
    /// Replicated stripes made fast.
    pub encoded: u64,
    /// Compact stripes made.
    pub merged: u64,
    /// Compact stripes made fast.
    pub split: u64,
    /// Stripes whose data chunks were moved apart, so that they can be converted.
    pub spread: u64,
    /// Conversions that failed and wait for their next attempt.
    pub failed: u64,
    /// Conversions planned and not carried out yet.
    pub left: u64,
}

impl PolicyRound {
    /// Conversions carried out.
    pub fn converted(&self) -> u64 {
        self.encoded + self.merged + self.split
    }
}

/// What is remembered of a bucket with a policy between looks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Followed {
    pub(crate) policy: Option<HeatPolicy>,
    /// What they were found to be under this policy.
    parts: BucketParts,
    /// Where the next look begins.
    after: Option<SpanPlace>,
    shared: Shared,
}

/// Stripes with codes of a bucket's policy of which one look does not see all names: others are of objects in another part of the
/// bucket, or in another bucket. Some 24 bytes for each such stripe of a bucket, twice.
#[derive(Debug, Clone, Default)]
struct Shared {
    /// Those of the looks since the bucket was begun.
    since: BTreeSet<StripeId>,
    /// Those of the time before; `None`: it was not gone through yet.
    before: Option<BTreeSet<StripeId>>,
}

impl Shared {
    /// Whether the bucket holds a stripe, as far as is known: one that was not gone through may hold any.
    fn holds(&self, stripe: StripeId) -> bool {
        self.since.contains(&stripe) || self.before.as_ref().is_none_or(|before| before.contains(&stripe))
    }

    /// Takes those of another look, which may have come to the end of the bucket.
    fn add(&mut self, mut found: BTreeSet<StripeId>, is_end: bool) {
        self.since.append(&mut found);
        if is_end {
            self.before = Some(std::mem::take(&mut self.since));
        }
    }
}

/// Why a bucket's stripes have the codes that they have.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What the bucket wants; none: its stripes stay as they are.
    pub policy: Option<HeatPolicy>,
    /// What its stripes take; `None`: it is looked at in parts, and not all of them were looked at yet.
    pub space: Option<Space>,
    /// What the part of it takes that the stripes lie in, if it is looked at in parts, each of which keeps the bound by itself.
    pub part: Option<Space>,
    /// Bytes that chunks of what is written next may take beyond what they would under the compact code; `None`: nothing, until all of
    /// the bucket was looked at.
    pub room_bytes: Option<u64>,
    /// A read counts half after so long.
    pub half_life: Duration,
    /// Of an object's stripes in order, or of those of the bucket or its first part: each once.
    pub stripes: Vec<Explained>,
}

/// Why a stripe has the code that it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Its record.
    pub stripe: StripeId,
    /// Its code.
    pub code: CodeSpec,
    /// Bytes of the bucket's objects in it.
    pub data_bytes: u64,
    /// How often it was read lately.
    pub heat: f64,
    /// Why.
    pub why: Why,
}

impl Keeper {
    /// Looks at every bucket with a policy and carries out of the conversions that each wants [`BATCH`], and more while that takes
    /// less than [`LOOK_SHARE`] times what the look took; as many at once as stripes are repaired. Before, stripes of which data
    /// chunks share disks are moved apart.
    ///
    /// # Errors
    /// The metadata store failed; what was committed before stays.
    pub async fn convert_once(&self) -> Result<PolicyRound, KeeperError> {
        let mut round = PolicyRound::default();
        let buckets = self.buckets_with_policies().await?;
        if buckets.is_empty() {
            self.conversions_left();
            return Ok(round);
        }
        self.load_heats().await?;
        let view = self.observe().await?;
        self.find_rooms(&buckets, &view).await?;
        for (bucket, policy) in buckets {
            let began = self.now();
            let snapshot = self.look_on(&bucket, policy, &view).await?;
            let changes = plan_conversions(&snapshot, usize::MAX);
            let mut left = changes.len() as u64;
            let looked = self.now().since(began);
            if let Some(known) = self.state().followed.get_mut(&bucket.name) {
                known.parts.set_left(left);
            }
            self.conversions_left();
            round.spread += self.spread(&snapshot.crowded()).await?;
            let began = self.now();
            let goes_on = |begun: usize| is_recent(looked, self.now().since(began), begun) && !self.repairs();
            let act = |change: Change| async move {
                match self.carry_out(bucket.id, &policy, &change).await {
                    Ok(()) => Ok(Some(Kind::of(&change.why))),
                    Err(ConversionError::Meta(error @ MetaError::Unavailable { .. })) => Err(KeeperError::from(error)),
                    Err(error) => {
                        self.conversion_failed(&change, &error);
                        Ok(None)
                    }
                }
            };
            let take = |kind: Option<Kind>| {
                let count = match kind {
                    Some(Kind::Encodes) => &mut round.encoded,
                    Some(Kind::Merges) => &mut round.merged,
                    Some(Kind::Splits) => &mut round.split,
                    None => &mut round.failed,
                };
                *count += 1;
                left -= 1;
                if let Some(known) = self.state().followed.get_mut(&bucket.name) {
                    known.parts.set_left(left);
                }
                self.conversions_left();
            };
            // No two changes of a plan have a stripe in common.
            carry_out_all(changes, self.inner.settings.repair_concurrency, goes_on, act, take).await?;
            round.left += left;
        }
        self.conversions_left();
        Ok(round)
    }

    /// Buckets that have a policy. What is known of the others is forgotten.
    async fn buckets_with_policies(&self) -> Result<Vec<(BucketRecord, HeatPolicy)>, KeeperError> {
        // A bucket that is made while they are read is none that is gone.
        let rooms = self.inner.stripes.rooms();
        let mut with_room = rooms.buckets();
        let buckets = self.inner.meta.buckets().await?;
        let with_policy = |bucket: BucketRecord| bucket.policy.map(|policy| (bucket, policy));
        let buckets: Vec<(BucketRecord, HeatPolicy)> = buckets.into_iter().filter_map(with_policy).collect();
        self.state().followed.retain(|name, _| buckets.iter().any(|(bucket, _)| bucket.name == *name));
        with_room.retain(|id| buckets.iter().all(|(bucket, _)| bucket.id != *id));
        with_room.into_iter().for_each(|bucket| rooms.forget(bucket));
        Ok(buckets)
    }

    /// Looks at all buckets with policies of which it is not known what they take, as after a start, and changes nothing. Half of the time
    /// is left to others.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn find_rooms_once(&self) -> Result<(), KeeperError> {
        let buckets = self.buckets_with_policies().await?;
        let rooms = self.inner.stripes.rooms();
        if buckets.iter().all(|(bucket, policy)| rooms.is_known(bucket.id, policy)) {
            return Ok(());
        }
        self.load_heats().await?;
        let view = self.observe().await?;
        self.find_rooms(&buckets, &view).await
    }

    async fn find_rooms(&self, buckets: &[(BucketRecord, HeatPolicy)], view: &View) -> Result<(), KeeperError> {
        for (bucket, policy) in buckets {
            while !self.inner.stripes.rooms().is_known(bucket.id, policy) {
                let began = self.now();
                self.look_on(bucket, *policy, view).await?;
                self.inner.env.clock.sleep(self.now().since(began)).await;
            }
        }
        Ok(())
    }

    /// Looks at a bucket, or at the next part of it, and remembers what it takes.
    async fn look_on(
        &self,
        bucket: &BucketRecord,
        policy: HeatPolicy,
        view: &View,
    ) -> Result<BucketSnapshot, KeeperError> {
        let rooms = self.inner.stripes.rooms();
        let taken_before = rooms.begin_look(bucket.id);
        // Before the objects: what is completed meanwhile counts twice rather than never.
        let uploads = self.space_of_uploads(bucket.id, policy, view).await?;
        let uploads_excess_bytes = policy.excess_bytes(uploads.data_bytes, uploads.chunks_bytes()).max(0) as u64;
        // Under another policy it is gone through anew.
        let known = |known: &&Followed| known.policy == Some(policy);
        let after = self.state().followed.get(&bucket.name).filter(known).and_then(|known| known.after.clone());
        let Look { mut snapshot, end, shared } = self.look_at_bucket(bucket, policy, view, after.clone()).await?;
        let space = snapshot.space();
        let mut known = self.state().followed.remove(&bucket.name).unwrap_or_default();
        known.shared.add(shared, end.is_none());
        if known.policy.replace(policy) != Some(policy) {
            known.parts = BucketParts::default();
        }
        known.parts.add(BucketPart { after, space, left: 0, taken_before, uploads_excess_bytes }, end.is_none());
        snapshot.whole = known.parts.whole().then(|| known.parts.space());
        // Parts of different times may have something between them that is in neither. At the end all are of one.
        if end.is_none() {
            let Space { data_bytes, .. } = known.parts.space();
            let chunks_bytes = known.parts.space().chunks_bytes() + known.parts.uploads_excess_bytes();
            rooms.found(bucket.id, &policy, data_bytes, chunks_bytes, known.parts.taken_before());
        }
        known.after = end;
        self.state().followed.insert(bucket.name.clone(), known);
        Ok(snapshot)
    }

    /// What parts of uploads that are not complete take, which will be objects of the bucket.
    async fn space_of_uploads(&self, bucket: BucketId, policy: HeatPolicy, view: &View) -> Result<Space, KeeperError> {
        let (mut after, mut space) = (None, Space::default());
        loop {
            let page = PAGE.min(self.inner.settings.look_stripes_max);
            let (spans, end) = self.inner.meta.uploaded_spans(bucket, after.as_ref(), page).await?;
            let mut looking = Looking::new(self, policy, view);
            spans.iter().for_each(|span| looking.add(span));
            looking.count_names().await?;
            space = [space, self.snapshot_of(policy, looking).space()].into_iter().sum();
            after = end;
            if after.is_none() {
                return Ok(space);
            }
        }
    }

    /// Why the stripes of an object, or all of a bucket, have the codes that they have. Of a large bucket the first
    /// `look_stripes_max` stripes are told of, and an object's beside those of the part that it begins in, as far as that is known.
    ///
    /// # Errors
    /// The metadata store failed, or has no such bucket or object.
    pub async fn explain_policy(&self, bucket: &str, key: Option<&str>) -> Result<Explanation, KeeperError> {
        self.load_heats().await?;
        let half_life = self.inner.stripes.heats().half_life();
        let bucket = self.inner.meta.bucket(bucket).await?;
        let object = match key {
            None => None,
            Some(key) => {
                let found = self.inner.meta.object(&bucket.name, key, &VersionRef::Current).await?;
                if found.object.is_none_or(|object| object.delete_marker) {
                    return Err(MetaError::NoSuchObject { key: key.to_owned() }.into());
                }
                let mut ids: Vec<StripeId> = Vec::new();
                for span in &found.spans {
                    if !ids.contains(&span.stripe.id) {
                        ids.push(span.stripe.id);
                    }
                }
                Some((ids, found.spans))
            }
        };
        let Some(policy) = bucket.policy else {
            let (space, part) = (Some(Space::default()), None);
            return Ok(Explanation { policy: None, space, part, room_bytes: None, half_life, stripes: Vec::new() });
        };
        let view = self.observe().await?;
        let (after, of_parts) = {
            let state = self.state();
            let parts =
                state.followed.get(&bucket.name).filter(|known| known.policy == Some(policy)).map(|known| &known.parts);
            let after = key.zip(parts).and_then(|(key, parts)| parts.begin_of(key));
            (after, parts.filter(|parts| parts.whole()).map(BucketParts::space))
        };
        let is_first = after.is_none();
        let Look { mut snapshot, end, .. } = self.look_at_bucket(&bucket, policy, &view, after).await?;
        let found = snapshot.space();
        let is_all = is_first && end.is_none();
        let (space, part) = if is_all { (Some(found), None) } else { (of_parts, Some(found)) };
        snapshot.whole = space;
        if let Some((_, spans)) = &object {
            let mut beyond = Looking::new(self, policy, &view);
            let known = |id: StripeId| snapshot.stripes.iter().any(|stripe| stripe.stripe == id);
            spans.iter().filter(|span| !known(span.stripe.id)).for_each(|span| beyond.add(span));
            beyond.count_names().await?;
            snapshot.stripes.extend(beyond.finish());
        }
        let reasons = snapshot.reasons();
        let explained = |stripe: &Resident| Explained {
            stripe: stripe.stripe,
            code: stripe.code,
            data_bytes: stripe.data_bytes,
            heat: stripe.heat,
            why: reasons[&stripe.stripe],
        };
        let all: BTreeMap<StripeId, Explained> =
            snapshot.stripes.iter().map(|stripe| (stripe.stripe, explained(stripe))).collect();
        let stripes = match object {
            Some((ids, _)) => ids.iter().filter_map(|id| all.get(id).cloned()).collect(),
            None => all.into_values().collect(),
        };
        let room_bytes = self.inner.stripes.rooms().left_bytes(bucket.id, &policy);
        Ok(Explanation { policy: Some(policy), space, part, room_bytes, half_life, stripes })
    }

    /// How far conversions are, bucket by bucket.
    pub(crate) fn policy_status(&self) -> Vec<PolicyStatus> {
        let state = self.state();
        let status = |(bucket, known): (&String, &Followed)| {
            let policy = known.policy?;
            let space = known.parts.space();
            Some(PolicyStatus {
                bucket: bucket.clone(),
                policy: policy.to_string(),
                preset: policy.preset().map(|preset| preset.name.to_owned()),
                data_bytes: space.data_bytes,
                fresh_bytes: space.fresh_bytes,
                fast_bytes: space.fast_bytes,
                compact_bytes: space.compact_bytes,
                other_bytes: space.other_bytes,
                young_bytes: space.young_bytes,
                waiting_bytes: space.waiting_bytes,
                percent: space.percent(),
                percent_max: policy.percent_max,
                conversions_left: known.parts.left(),
                whole: known.parts.whole(),
            })
        };
        state.followed.iter().filter_map(status).collect()
    }

    /// The bucket's stripes behind `after`.
    pub(crate) async fn look_at_bucket(
        &self,
        bucket: &BucketRecord,
        policy: HeatPolicy,
        view: &View,
        mut after: Option<SpanPlace>,
    ) -> Result<Look, KeeperError> {
        let starts = after.is_none();
        let mut looking = Looking::new(self, policy, view);
        let stripes_max = self.inner.settings.look_stripes_max;
        let mut end;
        loop {
            let (page, next) = self.inner.meta.bucket_spans(bucket.id, after.as_ref(), PAGE.min(stripes_max)).await?;
            page.iter().for_each(|span| looking.add(span));
            end = next;
            if end.is_none() || looking.stripes.len() >= stripes_max {
                break;
            }
            after.clone_from(&end);
        }
        let mut shared = looking.count_names().await?;
        let has_code =
            |stripe: &Resident| [policy.fast, policy.compact].contains(&stripe.code) || policy.is_fresh(stripe.code);
        looking.stripes.values().map(|(stripe, _)| stripe).filter(|stripe| !has_code(stripe)).for_each(|stripe| {
            shared.remove(&stripe.stripe);
        });
        // Those of which not all is seen here are left to the first bucket that holds them, and there to the first look.
        let is_decided = |stripe: StripeId| {
            let state = self.state();
            let mut before = state.followed.range(..bucket.name.clone());
            let was_seen =
                || state.followed.get(&bucket.name).is_some_and(|known| known.shared.since.contains(&stripe));
            !before.any(|(_, known)| known.shared.holds(stripe)) && (starts || !was_seen())
        };
        for stripe in &shared {
            if !is_decided(*stripe)
                && let Some((resident, _)) = looking.stripes.get_mut(stripe)
            {
                resident.standing = Standing::Elsewhere;
            }
        }
        Ok(Look { snapshot: self.snapshot_of(policy, looking), end, shared })
    }

    fn snapshot_of(&self, policy: HeatPolicy, looking: Looking<'_>) -> BucketSnapshot {
        let (disks, nodes) = (looking.writable, self.inner.stripes.stores().nodes());
        let bound_from_bytes = self.inner.stripes.rooms().bound_from_bytes();
        BucketSnapshot { policy, disks, nodes, bound_from_bytes, whole: None, stripes: looking.finish() }
    }

    /// Carries out a change of a bucket, if it gives space back or finds room for what it takes.
    pub(crate) async fn carry_out(
        &self,
        bucket: BucketId,
        policy: &HeatPolicy,
        change: &Change,
    ) -> Result<(), ConversionError> {
        let mut room = None;
        if let Some(takes) = change.saved_bytes.checked_neg().filter(|takes| *takes > 0) {
            room = self.inner.stripes.rooms().take_for_split(bucket, policy, takes as u64);
            if room.is_none() {
                return Err(ConversionError::NoRoom { stripe: change.sources[0] });
            }
        }
        let family = Family { fast: policy.fast, compact: policy.compact };
        let converted = self.convert_counted(&change.sources, change.to, Some(family)).await;
        room.into_iter().for_each(|room| end_taking(room, &converted));
        let (_, bytes) = converted?;
        tracing::debug!(stripes = ?change.sources, to = %change.to, why = %change.why, "stripes were converted");
        let mut state = self.state();
        let totals = &mut state.converted;
        let (count, of_kind) = match Kind::of(&change.why) {
            Kind::Encodes => (&mut totals.encoded, &mut totals.encoding),
            Kind::Merges => (&mut totals.merged, &mut totals.merging),
            Kind::Splits => (&mut totals.split, &mut totals.splitting),
        };
        *count += 1;
        of_kind.add(bytes);
        let moved_bytes = bytes.moved_bytes();
        state.converted.saved_bytes += change.saved_bytes;
        state.converted.moved_bytes += moved_bytes;
        drop(state);
        self.job_advance(JobKind::Convert, 1, moved_bytes);
        Ok(())
    }

    /// Leaves the stripes of a change alone for a while.
    pub(crate) fn conversion_failed(&self, change: &Change, error: &ConversionError) {
        let settings = &self.inner.settings;
        let (cause, pause) = match error {
            ConversionError::Stripe(StripeError::TooFewDisks { .. }) => (Cause::NoDisk, settings.retry_min),
            // These wait for repair, drain or their readers.
            ConversionError::Stripe(
                StripeError::Exposed { .. } | StripeError::Held { .. } | StripeError::Unrecoverable { .. },
            )
            | ConversionError::Meta(MetaError::StripeChanged { .. })
            | ConversionError::Gone { .. }
            | ConversionError::OtherCode { .. }
            | ConversionError::Stuck { .. }
            | ConversionError::NoRoom { .. }
            | ConversionError::Stripe(StripeError::Chunk(_) | StripeError::NotVerified { .. }) => {
                (Cause::Failed, settings.retry_min)
            }
            // And these are as they are.
            _ => (Cause::Failed, settings.retry_max),
        };
        tracing::info!(stripes = ?change.sources, to = %change.to, %error, "a conversion is tried again later");
        let now = self.now();
        let mut state = self.state();
        for stripe in &change.sources {
            state.convert_backoff.failed(*stripe, now, cause, pause, settings.retry_max);
        }
    }

    fn conversions_left(&self) {
        let left = self.state().followed.values().map(|known| known.parts.left()).sum();
        self.job_left(JobKind::Convert, left, None);
    }
}

/// Room that a conversion took is used, or goes back if nothing came of it.
fn end_taking<T>(room: Taken, converted: &Result<T, ConversionError>) {
    match converted {
        Ok(_) => room.name(),
        Err(ConversionError::Meta(MetaError::Unavailable { .. })) => room.leave(),
        Err(_) => drop(room),
    }
}

/// Whether a plan is still to be carried out: so long ago bucket and plan were looked at, for so long, and so many of its conversions
/// were begun.
fn is_recent(looked: Duration, ago: Duration, begun: usize) -> bool {
    begun < BATCH || ago < looked * LOOK_SHARE
}

/// A bucket, or a part of it, as it was found.
pub(crate) struct Look {
    pub(crate) snapshot: BucketSnapshot,
    /// Where it ended if there is more.
    pub(crate) end: Option<SpanPlace>,
    /// Stripes with codes of the policy that are named elsewhere too.
    shared: BTreeSet<StripeId>,
}

/// What a conversion is to people.
enum Kind {
    Encodes,
    Merges,
    Splits,
}

impl Kind {
    fn of(why: &Why) -> Kind {
        match why {
            Why::Settled { .. } => Kind::Encodes,
            Why::Cold { .. } | Why::OverBound { .. } | Why::GivesWay { .. } => Kind::Merges,
            _ => Kind::Splits,
        }
    }
}

/// Puts the stripes of a bucket together, span by span.
struct Looking<'a> {
    keeper: &'a Keeper,
    policy: HeatPolicy,
    /// Where chunks are that answer.
    disks: Snapshot,
    writable: usize,
    /// With what of it is held.
    stripes: BTreeMap<StripeId, (Resident, Parts)>,
}

/// What of a stripe objects of a bucket hold.
#[derive(Default)]
struct Parts {
    /// Bands and parts of bands, each by where it begins.
    held: BTreeSet<(u16, u64)>,
    /// Bytes of these, band by band.
    bands: BTreeMap<u16, u64>,
    /// How often any of it is named.
    names: u64,
}

impl<'a> Looking<'a> {
    fn new(keeper: &'a Keeper, policy: HeatPolicy, view: &View) -> Looking<'a> {
        let deferred = keeper.state().convert_backoff.deferred(keeper.now());
        let disks = Snapshot { disks: view.conditions.clone(), deferred, ..Snapshot::default() };
        let writable = keeper.inner.stripes.stores().candidates().len();
        Looking { keeper, policy, disks, writable, stripes: BTreeMap::new() }
    }

    /// An object of the bucket holds a band, or a part of one. What several hold counts once.
    fn add(&mut self, span: &Span) {
        let Span { stripe, band, .. } = span;
        if !self.stripes.contains_key(&stripe.id) {
            self.stripes.insert(stripe.id, (self.resident(stripe), Parts::default()));
        }
        let Some((resident, parts)) = self.stripes.get_mut(&stripe.id) else { return };
        parts.names += 1;
        if parts.held.insert((*band, span.range().offset)) {
            resident.data_bytes += span.data_bytes();
            *parts.bands.entry(*band).or_insert(0) += span.data_bytes();
        }
    }

    /// Counts what names these stripes, in all buckets. Returns those that objects name elsewhere too.
    async fn count_names(&mut self) -> Result<BTreeSet<StripeId>, KeeperError> {
        let mut shared = BTreeSet::new();
        let ids: Vec<StripeId> = self.stripes.keys().copied().collect();
        for ids in ids.chunks(PAGE) {
            let names = self.keeper.inner.meta.names_of(ids).await?;
            for (id, StripeNames { bands, packed_bytes, packed_for, of_volume }) in ids.iter().zip(names) {
                let Some((stripe, parts)) = self.stripes.get_mut(id) else { continue };
                // What was named when the spans were read may not be any more.
                stripe.bands_living = (bands.len().max(parts.bands.len()) as u16).min(stripe.bands);
                let share = |(band, bytes): (&u16, &u64)| {
                    let named_bytes = packed_bytes.get(band).map_or(*bytes, |packed_bytes| *packed_bytes.max(bytes));
                    if named_bytes == 0 { 1.0 } else { *bytes as f64 / named_bytes as f64 }
                };
                stripe.bands_held = parts.bands.iter().map(share).sum();
                stripe.packed_for = packed_for;
                if of_volume {
                    stripe.standing = Standing::OfVolume;
                } else if bands.values().sum::<u64>() > parts.names {
                    shared.insert(*id);
                }
            }
        }
        Ok(shared)
    }

    /// A stripe of which nothing is held yet.
    fn resident(&self, stripe: &StripeRecord) -> Resident {
        let keeper = self.keeper;
        let HeatPolicy { fast, compact, .. } = self.policy;
        let mut disks = Vec::new();
        if stripe.code == fast || self.policy.is_fresh(stripe.code) {
            let kept = keeper.inner.stripes.kept_by_merge(stripe.code, compact);
            let place = |chunk: &ChunkIndex| Some(stripe.places.get(chunk.at())?.as_ref()?.disk);
            disks = kept.iter().filter_map(place).collect();
            disks.sort_unstable();
        }
        let now = keeper.inner.env.clock.wall();
        Resident {
            stripe: stripe.id,
            code: stripe.code,
            data_bytes: 0,
            chunk_bytes: Layout::chunk_bytes_of(stripe).unwrap_or(0),
            bands: stripe.bands().len() as u16,
            bands_living: 1,
            bands_held: 0.0,
            disks,
            packed_for: None,
            heat: keeper.inner.stripes.heats().of(stripe.id, now),
            standing: self.standing(stripe),
        }
    }

    fn standing(&self, stripe: &StripeRecord) -> Standing {
        let keeper = self.keeper;
        let age = keeper.inner.env.clock.wall().unix_ms.saturating_sub(stripe.id.created().unix_ms);
        let (age, watched) = (Duration::from_millis(age), keeper.now().since(keeper.inner.started));
        let young = is_young(&keeper.inner.settings, age, watched);
        let exposure = self.disks.exposure(stripe);
        let is_fresh = self.policy.is_fresh(stripe.code);
        if !self.policy.rows_alike() && !is_fresh && !Layout::is_whole_rows(stripe).unwrap_or(false) {
            Standing::ShortRow
        } else if self.disks.deferred.contains(&stripe.id) {
            Standing::Waits
        } else if let Some(left) = young {
            let gives_way = age < keeper.inner.settings.convert_after && exposure.whole();
            Standing::Young { seconds_left: left.as_secs().max(1), gives_way }
        } else if is_fresh && self.disks.lacks_copies_only(stripe) {
            Standing::LacksCopies
        } else if !exposure.whole() {
            Standing::Hurt { chunks: exposure.lost.len() as u16 + exposure.unreachable }
        } else {
            Standing::Ready
        }
    }

    fn finish(self) -> Vec<Resident> {
        self.stripes.into_values().map(|(stripe, _)| stripe).collect()
    }
}

/// How long a stripe of this age still counts as new where reads are watched for so long. What was read before a start is in the
/// records, but for the last while before a crash: for as long it is waited once more, so that what is read shows.
fn is_young(settings: &Settings, age: Duration, watched: Duration) -> Option<Duration> {
    let watched_min = settings.convert_after.min(settings.heat_every);
    let left = settings.convert_after.saturating_sub(age).max(watched_min.saturating_sub(watched));
    (!left.is_zero()).then_some(left)
}

/// Conversions of one bucket before it is looked at anew.
pub(crate) const BATCH: usize = 64;
/// Looks at buckets take one part in so many of the time.
pub(crate) const LOOK_SHARE: u32 = 20;

#[cfg(test)]
mod tests {
    use claystone_stripe::Rooms;

    use super::*;

    #[test]
    fn what_is_old_waits_after_a_start_for_as_long_as_heat_may_be_lost() {
        let settings = Settings::default();
        let left = |age_s, watched_s| {
            is_young(&settings, Duration::from_secs(age_s), Duration::from_secs(watched_s)).map(|left| left.as_secs())
        };
        assert_eq!((left(0, 0), left(0, 9999), left(3599, 9999)), (Some(3600), Some(3600), Some(1)));
        assert_eq!(
            (left(9999, 0), left(9999, 299), left(9999, 300), left(3600, 300)),
            (Some(300), Some(1), None, None)
        );
        let at_once = Settings { convert_after: Duration::ZERO, ..settings.clone() };
        assert_eq!(is_young(&at_once, Duration::ZERO, Duration::ZERO), None);
    }

    #[test]
    fn room_of_a_conversion_that_may_be_committed_does_not_go_back() {
        let (rooms, bucket) = (Rooms::new(1 << 30), BucketId(1));
        let policy = HeatPolicy::named("rsm-6+3").expect("a preset");
        rooms.found_new(bucket, &policy);
        let unavailable = MetaError::Unavailable { reason: "a test".to_owned() };
        let refused = ConversionError::Gone { stripe: StripeId(1) };
        for (converted, stays) in [(Ok(()), true), (Err(unavailable.into()), true), (Err(refused), false)] {
            let before = rooms.begin_look(bucket);
            end_taking(rooms.take_for_split(bucket, &policy, 1 << 20).expect("room"), &converted);
            assert_eq!(rooms.begin_look(bucket) > before, stays, "{converted:?}");
        }
    }

    #[test]
    fn a_plan_is_carried_out_for_twenty_times_what_the_look_took_or_a_batch() {
        let recent =
            |looked_s, ago_s, begun| is_recent(Duration::from_secs(looked_s), Duration::from_secs(ago_s), begun);
        assert!(recent(0, 999, BATCH - 1) && !recent(0, 0, BATCH));
        assert!(recent(3, 59, 10 * BATCH) && !recent(3, 60, 10 * BATCH));
    }
}
