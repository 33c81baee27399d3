//! Objects of any length in buckets whose stripes need others with chunks as long to be merged with.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, StripeId};
use claystone_drill::{BUCKET, Cluster};
use claystone_keeper::{BucketSnapshot, Resident, Standing, plan_conversions};
use claystone_meta::{HeatPolicy, Precondition, StripeRecords, VersionRef, Versioning};
use claystone_object::{Attributes, Confirmed, Cut, Put, cut_to_merge};
use claystone_sim::{SimDisk, World};
use claystone_stripe::{Absence, Layout, Nodes, sub_bytes_for};
use futures::stream::{self, StreamExt};

/// A policy's bucket, and what is put there.
struct Bucket {
    cluster: Cluster<SimDisk>,
    bodies: Vec<(String, Bytes)>,
}

impl Bucket {
    async fn put(&mut self, bytes: u64) -> Result<()> {
        let seed = self.bodies.len() as u64;
        let (key, data) = (format!("{seed:03} of {bytes}"), pattern(seed, bytes as usize));
        let put = Put {
            bucket: BUCKET.to_owned(),
            key: key.clone(),
            versioning: Versioning::Off,
            precondition: Precondition::None,
            attributes: Attributes::default(),
            bytes,
            body: stream::iter([Ok(data.clone())]).boxed(),
            digests: Vec::new(),
            confirm: Box::new(|_| Ok(Confirmed { etag: String::new(), checksums: Default::default() })),
        };
        self.cluster.running.objects.put(put).await?;
        self.bodies.push((key, data));
        Ok(())
    }

    /// All objects are as they were put, whole and in parts.
    async fn check(&self) -> Result<()> {
        let objects = &self.cluster.running.objects;
        for (at, (key, data)) in self.bodies.iter().enumerate() {
            let Some(object) = objects.find(BUCKET, key, &VersionRef::Current).await?.object else { continue };
            let all = data.len() as u64;
            let (third, last) = (all / 3, 1 + at as u64 % 100);
            let end = ByteRange { offset: all - last, bytes: last };
            for range in [None, Some(ByteRange { offset: third, bytes: third }), Some(end)] {
                let mut body = objects.read(&object, range);
                let mut bytes = Vec::new();
                while let Some(piece) = body.next().await {
                    bytes.extend_from_slice(&piece?);
                }
                let ByteRange { offset, bytes: wanted } = range.unwrap_or(ByteRange { offset: 0, bytes: all });
                ensure!(bytes == data[offset as usize..(offset + wanted) as usize], "{key}: other bytes in {range:?}");
            }
        }
        ensure!(self.cluster.meta.check().await? == Vec::<String>::new(), "records contradict each other");
        Ok(())
    }

    async fn convert(&self) -> Result<()> {
        while self.cluster.running.keeper.convert_once().await?.converted() > 0 {}
        Ok(())
    }
}

/// Bytes of data of 100 that lie in compact stripes, and bytes of chunks for 100 bytes of objects.
fn merged(policy: &str) -> (f64, f64) {
    let policy = HeatPolicy::named(policy).expect("a preset");
    let work = async move |world: World| -> Result<(f64, f64)> {
        let cluster = Cluster::<SimDisk>::new(world, policy.compact.disks_min().into()).await?;
        cluster.running.objects.set_policy(BUCKET, Some(policy)).await?;
        let mut bucket = Bucket { cluster, bodies: Vec::new() };
        // As many from each length to its double, all unequal.
        for at in 0..OBJECTS {
            let share = (at * 37 % OBJECTS) as f64 / OBJECTS as f64;
            bucket.put((BYTES_MIN as f64 * (OCTAVES * share).exp2()) as u64 + at).await?;
        }
        bucket.check().await?;
        bucket.cluster.world.clock().sleep(Duration::from_secs(60)).await;
        bucket.convert().await?;
        bucket.check().await?;
        let space = bucket.cluster.running.keeper.explain_policy(BUCKET, None).await?.space.expect("it is one part");
        let stripes = bucket.cluster.meta.stripes(None, 9999).await?;
        let compact: u64 =
            stripes.iter().filter(|stripe| stripe.code == policy.compact).map(|stripe| stripe.data_bytes).sum();
        let all: u64 = stripes.iter().map(|stripe| stripe.data_bytes).sum();

        // A disk does not answer, then it is lost.
        let lost = bucket.cluster.slots[3].disk;
        let away = || Absence { reason: "pulled out".to_owned() };
        bucket.cluster.running.stripes.stores().update(lost, |member| member.store = Err(away()));
        bucket.check().await?;
        bucket.cluster.replace(3).await?;
        while bucket.cluster.running.keeper.repair_once().await?.chunks > 0 {}
        bucket.check().await?;
        bucket.cluster.check_verified().await?;
        // What one of a merged stripe's objects had is nobody's; the others stay.
        for (key, _) in bucket.bodies.iter().step_by(3) {
            let found = bucket.cluster.running.objects.find(BUCKET, key, &VersionRef::Current).await?;
            let record = found.object.expect("it was put").record;
            let delete = claystone_meta::DeleteObject {
                bucket: record.bucket,
                key: key.clone(),
                version: VersionRef::Current,
                marker: None,
                precondition: Precondition::None,
                now: record.created,
            };
            bucket.cluster.running.objects.delete(delete).await?;
        }
        bucket.convert().await?;
        bucket.check().await?;
        Ok((100.0 * compact as f64 / all as f64, space.percent()))
    };
    claystone_sim::run(5, |world| async move { work(world).await.expect("all is read back") })
}

#[test]
fn objects_of_unequal_lengths_are_merged_under_a_product_code() {
    let (compact, percent) = merged("pc");
    assert!(compact > 75.0 && percent < 155.0, "{compact} % of the data is compact, and it takes {percent} %");
}

#[test]
fn objects_of_unequal_lengths_are_merged_under_a_code_of_parities() {
    let (compact, percent) = merged("rsm-6+3");
    assert!(compact > 75.0 && percent < 135.0, "{compact} % of the data is compact, and it takes {percent} %");
}

/// What the planner makes of a thousand cold objects of unequal lengths: the bound is kept, and would not be if stripes were as long
/// as what they hold.
#[test]
fn the_planner_finds_partners_among_unequal_lengths() {
    for (policy, without) in [("pc", 164.0), ("rsm-10+4", 130.0), ("rsm-6+3", 134.0)] {
        let policy = HeatPolicy::named(policy).expect("a preset");
        let HeatPolicy { fast, compact, percent_max, .. } = policy;
        let percent = |is_padded: bool| {
            let mut stripes: Vec<Resident> = Vec::new();
            for at in 0..1000u64 {
                let mut left = (65_537.0 * (7.0 * (at * 377 % 1000) as f64 / 1000.0).exp2()) as u64 + at;
                while left > 16 << 10 {
                    let Cut { bytes, stripe_bytes } = cut_to_merge(fast, compact, left);
                    left -= bytes;
                    let stripe_bytes = if is_padded { stripe_bytes } else { bytes };
                    stripes.push(Resident {
                        stripe: StripeId(stripes.len() as u128),
                        code: fast,
                        data_bytes: bytes,
                        chunk_bytes: Layout::new(fast.shape(), sub_bytes_for(fast), stripe_bytes).chunk_bytes(),
                        bands: 1,
                        bands_living: 1,
                        bands_held: 1.0,
                        disks: Vec::new(),
                        packed_for: None,
                        heat: 0.0,
                        standing: Standing::Ready,
                    });
                }
            }
            let snapshot = BucketSnapshot {
                policy,
                disks: 99,
                nodes: Nodes::default(),
                bound_from_bytes: 0,
                whole: None,
                stripes,
            };
            let saved: i64 = plan_conversions(&snapshot, usize::MAX).iter().map(|change| change.saved_bytes).sum();
            let space = snapshot.space();
            100.0 * (space.chunks_bytes() as f64 - saved as f64) / space.data_bytes as f64
        };
        let (padded, as_long) = (percent(true), percent(false));
        assert!(padded < f64::from(percent_max), "{compact}: {padded} %");
        assert!(as_long > without, "{compact}: {as_long} % without zeros");
    }
}

const OBJECTS: u64 = 150;
const BYTES_MIN: u64 = 90 << 10;
const OCTAVES: f64 = 2.0;
