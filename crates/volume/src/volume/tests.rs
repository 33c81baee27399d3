//! What runs beside a merge, between two looks of it.

use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::testing::MemoryStore;
use claystone_chunk::{ByteRange, ChunkStore, DiskId, NodeId};
use claystone_env::{Env, Space, WallTime, call};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, SqliteMeta};
use claystone_stripe::{Member, Stores, Stripes};
use futures::FutureExt;
use futures::executor::block_on;

use super::*;
use crate::{NewVolume, Volumes};

const PAGE: u64 = 4096;
const ALL: ByteRange = ByteRange { offset: 0, bytes: 128 << 10 };

/// A volume of one stripe on four disks in memory, of which nothing was written.
async fn volume(env: &Env) -> Volume {
    let meta = SqliteMeta::in_memory(env.cpu.clone()).await.expect("an empty database");
    let stores = Stores::default();
    for number in 0..4 {
        let (id, node, path) = (DiskId(number), NodeId(number.to_string()), number.to_string());
        let record = DiskRecord { id, node, path, state: DiskState::Active, added: WallTime::default() };
        meta.put_disk(record.clone()).await.expect("a new disk");
        let store: Arc<dyn ChunkStore> = Arc::new(MemoryStore::new(id));
        stores.put(Member { record, store: Ok(store), space: Space { total_bytes: 1 << 40, free_bytes: 1 << 40 } });
    }
    let (stripes, _) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
    let volumes = Volumes::new(env.clone(), Arc::new(meta), stripes, Settings::default());
    let code: CodeSpec = "rs:2+1".parse().expect("a valid code");
    let new = NewVolume { chunk_bytes: ALL.bytes / 2, ..NewVolume::new("v", ALL.bytes, code.into()) };
    volumes.create(new).await.expect("a new volume");
    volumes.open("v").await.expect("it opens")
}

/// Carries out `work` on a volume with one page, whose first merge ends between the work's look at the diffs and what it
/// looks at before that; or before all of it, if the work comes late.
async fn as_a_merge_ends<R: Send + 'static>(work: impl FnOnce(Volume) -> R + Send + 'static) -> (Volume, R) {
    let env = claystone_host::env().expect("an environment");
    let volume = volume(&env).await;
    let page = Bytes::from(vec![7; PAGE as usize]);
    volume.write(0, page.clone(), Durable::Now).await.expect("written");
    volume.merge_all().await.expect("merged");
    volume.write(0, page, Durable::Now).await.expect("written");
    // Back to where its stripe was on its disks, and not known yet.
    let inner = volume.inner.clone();
    let stripe = inner.stripe(0).expect("it was merged");
    inner.remember(0, None);
    let worker = env.cpu.clone();
    let beside = volume.clone();
    let mut worked = Box::pin(async move { call(&*worker, move || work(beside)).await });
    {
        let mut diffs = inner.diffs();
        assert!(worked.as_mut().now_or_never().is_none(), "whoever looks at the diffs waits");
        (0..100_000).for_each(|_| std::thread::yield_now());
        // As merges do: first the stripe is known, then its diffs are released.
        inner.known.write().expect("nobody panics").insert(0, stripe.clone());
        diffs.set_begun(0, Some(4096));
        let merged: Vec<(Page, _)> = diffs.stripe(0).into_iter().map(|(page, diff)| (page, diff.at)).collect();
        diffs.release(&merged);
    }
    let done = worked.await.expect("it ends");
    (volume, done)
}

#[tokio::test]
async fn zeros_over_what_a_merge_brings_into_its_stripe_are_not_lost() {
    let discard = |volume: Volume| block_on(volume.discard(ALL, Durable::Now));
    let (volume, discarded) = as_a_merge_ends(discard).await;
    discarded.expect("it takes discards");
    assert!(joined(volume.read(ALL).await.expect("readable")).iter().all(|byte| *byte == 0), "old data came back");
}

#[tokio::test]
async fn what_a_merge_brings_into_its_stripe_is_no_hole() {
    let spans = |volume: Volume| block_on(volume.spans(ALL, 10));
    let (_, spans) = as_a_merge_ends(spans).await;
    assert_eq!(spans, Ok(vec![Span { bytes: ALL.bytes, kind: SpanKind::Data }]));
}
