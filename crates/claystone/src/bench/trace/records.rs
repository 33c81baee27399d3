//! What the records of a volume's stripes take, measured in a database made for it.

use std::collections::BTreeMap;

use claystone_chunk::{Generation, Lease, StripeId};
use claystone_meta::{ChunkPlace, StripeRecord, VolumeRecords};
use claystone_volume::{NewVolume, Settings, Volumes};

use super::{CHUNK_BYTES, Choice};
use crate::bench::scratch;
use crate::bench::volume::world::{Machine, stripes_on};

/// Bytes that a database grows by for each stripe of a volume, when it is compact.
///
/// # Errors
/// No database can be made.
pub async fn stripe_record_bytes(choice: &Choice) -> anyhow::Result<f64> {
    let place = scratch(choice.directory.as_deref())?;
    let code = choice.redundancy.code;
    let chunks = code.shape().chunks();
    let Machine { env, meta, members, .. } = Machine::new(place.path(), choice.disks()).await?;
    let disks: Vec<_> = members.iter().map(|member| member.record.id).collect();
    let stripes = stripes_on(&env, &meta, members).await?;
    let volumes = Volumes::new(env.clone(), meta.clone(), stripes, Settings::default());
    let length = async |name: &str| -> anyhow::Result<u64> {
        let path = place.path().join(name);
        meta.snapshot_to(&path).await?;
        Ok(std::fs::metadata(&path)?.len())
    };
    let before = length("before.db").await?;
    let stripe_bytes = CHUNK_BYTES * u64::from(code.shape().data);
    let record = volumes.create(NewVolume::new("records", STRIPES * stripe_bytes, choice.redundancy)).await?;
    let record = meta.take_lease(record.id).await?;
    let lease = Lease { owner: record.id, term: record.term };
    let stripe = |position: u64| {
        let mut id = [0; 16];
        env.random.fill(&mut id);
        let place = |index: usize| {
            let disk = disks[(index + position as usize) % disks.len()];
            Some(ChunkPlace { disk, generation: Generation(0), damaged: false })
        };
        StripeRecord {
            id: StripeId(u128::from_le_bytes(id)),
            code,
            data_bytes: stripe_bytes,
            bands: Vec::new(),
            sub_bytes: 1 << 16,
            places: (0..usize::from(chunks)).map(place).collect(),
            origins: BTreeMap::new(),
            revision: 0,
            verified: None,
        }
    };
    for first in (0..STRIPES).step_by(BATCH_STRIPES) {
        let stripes = (first..first + BATCH_STRIPES as u64).map(|position| (position, Some(stripe(position))));
        meta.put_volume_stripes(lease, stripes.collect()).await?;
    }
    let after = length("after.db").await?;
    volumes.stop().await;
    Ok((after - before) as f64 / STRIPES as f64)
}

/// Stripes that are recorded.
const STRIPES: u64 = 4096;
const BATCH_STRIPES: usize = 512;
