//! Objects over stores in memory and records in an in-memory database, for the tests of this crate.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::testing::{FaultyStore, MemoryStore};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, NodeId};
use claystone_env::{Env, Space, WallTime};
use claystone_meta::{
    DeleteObject, DiskRecord, DiskRecords, DiskState, Meta, Precondition, SqliteMeta, StripeRecord, StripeRecords,
    VersionRef, Versioning,
};
use claystone_object::{
    Algorithm, Attributes, Confirm, Confirmed, Digests, Object, ObjectError, Objects, Put, Settings, Written,
};
use claystone_stripe::{Layout, Member, Stores, Stripes};
use futures::stream::{self, StreamExt};

pub struct World {
    pub env: Env,
    pub objects: Objects,
    pub meta: Arc<SqliteMeta>,
    pub stripes: Stripes,
    pub memory: Vec<MemoryStore>,
    pub faulty: Vec<Arc<FaultyStore>>,
}

impl World {
    pub async fn new(disks: u128, code: &str) -> World {
        World::with(disks, Settings::new(code.parse().expect("a valid code"))).await
    }

    /// One with these settings, but for short parts of uploads.
    pub async fn with(disks: u128, settings: Settings) -> World {
        World::on(disks, settings, claystone_stripe::Settings::default()).await
    }

    /// The same, and with these of stripes.
    pub async fn on(disks: u128, settings: Settings, of_stripes: claystone_stripe::Settings) -> World {
        let env: Env = claystone_host::env().expect("an environment");
        let meta = Arc::new(SqliteMeta::in_memory(env.cpu.clone()).await.expect("an empty database"));
        let stores = Stores::default();
        let (mut memory, mut faulty) = (Vec::new(), Vec::new());
        for id in (1..=disks).map(DiskId) {
            let inner = MemoryStore::new(id);
            let store = Arc::new(FaultyStore::new(Arc::new(inner.clone()), env.clock.clone()));
            let record = DiskRecord {
                id,
                node: NodeId(id.to_string()),
                path: id.to_string(),
                state: DiskState::Active,
                added: WallTime::default(),
            };
            meta.put_disk(record.clone()).await.expect("a new disk");
            let space = Space { total_bytes: 1 << 40, free_bytes: 1 << 40 };
            let shared: Arc<dyn ChunkStore> = store.clone();
            stores.put(Member { record, store: Ok(shared), space });
            memory.push(inner);
            faulty.push(store);
        }
        let (stripes, _reports) = Stripes::new(env.clone(), stores, of_stripes);
        let settings = Settings { part_bytes_min: 1000, ..settings };
        let shared: Arc<dyn Meta> = meta.clone();
        let objects = Objects::new(env.clone(), shared, stripes.clone(), settings);
        objects.create_bucket("bucket", "me", None).await.expect("a new bucket");
        World { env, objects, meta, stripes, memory, faulty }
    }

    pub async fn put(&self, key: &str, data: &Bytes) -> Result<Written, ObjectError> {
        self.objects.put(put(key, data)).await
    }

    pub async fn object(&self, key: &str) -> Option<Object> {
        self.objects.find("bucket", key, &VersionRef::Current).await.expect("the bucket is there").object
    }

    pub async fn read(&self, object: &Object, range: Option<ByteRange>) -> Vec<u8> {
        let mut body = self.objects.read(object, range);
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece.expect("readable"));
        }
        bytes
    }

    pub async fn assert_holds(&self, key: &str, data: &[u8]) {
        let object = self.object(key).await.unwrap_or_else(|| panic!("{key} is there"));
        assert!(self.read(&object, None).await == data, "{key} holds other bytes");
    }

    /// Bytes of all chunks that live stripes name.
    pub async fn chunks_bytes(&self) -> u64 {
        let live = self.meta.stripes(None, 10_000).await.expect("records");
        let bytes = |stripe: &StripeRecord| {
            stripe.places.len() as u64 * Layout::chunk_bytes_of(stripe).expect("a stripe that was written")
        };
        live.iter().map(bytes).sum()
    }

    /// Chunks on all disks, and those that records name.
    pub async fn chunks(&self) -> (usize, usize) {
        let stored = self.memory.iter().map(|store| store.ids().len()).sum();
        let live = self.meta.stripes(None, 10_000).await.expect("records");
        let dead = self.meta.dead_stripes(10_000).await.expect("records");
        (stored, live.iter().chain(&dead).map(|stripe| stripe.places.len()).sum())
    }
}

pub fn etag_of_md5() -> Confirm {
    Box::new(|digests: &Digests| {
        Ok(Confirmed { etag: hex::encode(&digests.values[&Algorithm::Md5]), checksums: BTreeMap::new() })
    })
}

pub fn put(key: &str, data: &Bytes) -> Put {
    let pieces: Vec<Bytes> =
        (0..data.len()).step_by(100_000).map(|at| data.slice(at..data.len().min(at + 100_000))).collect();
    Put {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        versioning: Versioning::Off,
        precondition: Precondition::None,
        attributes: Attributes::default(),
        bytes: data.len() as u64,
        body: stream::iter(pieces.into_iter().map(Ok)).boxed(),
        digests: vec![Algorithm::Md5],
        confirm: etag_of_md5(),
    }
}

pub fn delete_of(object: &Object) -> DeleteObject {
    DeleteObject {
        bucket: object.record.bucket,
        key: object.record.key.clone(),
        version: VersionRef::Current,
        marker: None,
        precondition: Precondition::None,
        now: WallTime::default(),
    }
}
