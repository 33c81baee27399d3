//! A store with a bucket on disks in memory, any of which can fail, and upkeep that goes on step by step.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod adaptive;

use std::sync::Arc;

use claystone_chunk::testing::{FaultyStore, MemoryStore, pattern};
use claystone_chunk::{ByteRange, DiskId, NodeId};
use claystone_env::{Env, Space};
use claystone_keeper::{Idle, Keeper, Overall, Settings};
use claystone_meta::{
    BucketId, BucketRecords, DeleteObject, DiskRecord, DiskRecords, DiskState, Found, MetaError, NewContent, NewObject,
    ObjectRecords, Precondition, Span, SqliteMeta, StripeRecord, VersionRef, Versioning,
};
use claystone_stripe::{Damage, DamageReports, Member, Stores, Stripes};
use tokio::sync::mpsc;

/// All of it. Objects hold [`pattern`] of their length.
pub struct Store {
    pub env: Env,
    pub meta: SqliteMeta,
    pub bucket: BucketId,
    pub stripes: Stripes,
    pub keeper: Keeper,
    /// The disks from 1 on.
    pub memory: Vec<MemoryStore>,
    /// In front of them.
    pub faulty: Vec<Arc<FaultyStore>>,
    /// Where upkeep hears of damage.
    pub damage: mpsc::Sender<Damage>,
    /// Disks that share a node.
    disks_a_node: usize,
}

/// Upkeep of these stripes.
pub fn keeper(env: &Env, meta: &SqliteMeta, stripes: &Stripes, reports: DamageReports, settings: Settings) -> Keeper {
    Keeper::new(env.clone(), Arc::new(meta.clone()), stripes.clone(), reports, settings).expect("good settings")
}

impl Store {
    /// One with a bucket `b` on this many disks, each on a node of its own.
    pub async fn new(env: Env, disks: usize, settings: Settings, stripe_settings: claystone_stripe::Settings) -> Store {
        Store::on_nodes(env, disks, 1, settings, stripe_settings).await
    }

    /// One on nodes of so many disks each.
    pub async fn on_nodes(
        env: Env,
        disks: usize,
        disks_a_node: usize,
        settings: Settings,
        stripe_settings: claystone_stripe::Settings,
    ) -> Store {
        let meta = SqliteMeta::in_memory(env.cpu.clone()).await.expect("a database in memory");
        let bucket = meta.create_bucket("b", "me", None, env.clock.wall()).await.expect("a new name").id;
        let (stripes, _) = Stripes::new(env.clone(), Stores::default(), stripe_settings);
        // Reports come from the tests, so that they can be wrong.
        let (damage, reports) = mpsc::channel(16);
        let keeper = keeper(&env, &meta, &stripes, reports, settings);
        let (memory, faulty) = (Vec::new(), Vec::new());
        let mut store = Store { env, meta, bucket, stripes, keeper, memory, faulty, damage, disks_a_node };
        for _ in 0..disks {
            store.add_disk().await;
        }
        store
    }

    /// One disk more.
    pub async fn add_disk(&mut self) {
        let id = DiskId(1 + self.memory.len() as u128);
        let memory = MemoryStore::new(id);
        let faulty = Arc::new(FaultyStore::new(Arc::new(memory.clone()), self.env.clock.clone()));
        let record = DiskRecord {
            id,
            node: NodeId(format!("node {}", self.memory.len() / self.disks_a_node)),
            path: format!("/disks/{}", id.0),
            state: DiskState::Active,
            added: self.env.clock.wall(),
        };
        self.meta.put_disk(record.clone()).await.expect("a new disk");
        let space = Space { total_bytes: 1 << 40, free_bytes: 1 << 40 };
        self.stripes.stores().put(Member { record, store: Ok(faulty.clone()), space });
        self.memory.push(memory);
        self.faulty.push(faulty);
    }

    /// Makes a stripe an object.
    pub async fn commit(&self, key: &str, stripe: &StripeRecord) {
        self.commit_content(key, stripe.data_bytes, NewContent::Stripes(vec![stripe.clone().into()])).await;
    }

    /// Makes a content an object.
    pub async fn commit_content(&self, key: &str, bytes: u64, content: NewContent) {
        self.commit_to(self.bucket, key, bytes, content).await;
    }

    /// As [`Store::commit`], if the records take it.
    pub async fn try_commit(&self, key: &str, stripe: &StripeRecord) -> Result<(), MetaError> {
        let content = NewContent::Stripes(vec![stripe.clone().into()]);
        self.try_commit_to(self.bucket, key, stripe.data_bytes, content).await
    }

    /// The same in any bucket.
    pub async fn commit_to(&self, bucket: BucketId, key: &str, bytes: u64, content: NewContent) {
        self.try_commit_to(bucket, key, bytes, content).await.expect("a put without conditions");
    }

    async fn try_commit_to(
        &self,
        bucket: BucketId,
        key: &str,
        bytes: u64,
        content: NewContent,
    ) -> Result<(), MetaError> {
        let object = NewObject {
            bucket,
            key: key.to_owned(),
            versioning: Versioning::Off,
            precondition: Precondition::None,
            content,
            bytes,
            etag: "e".to_owned(),
            created: self.env.clock.wall(),
            attributes: Vec::new(),
        };
        self.meta.put_object(object).await.map(|_| ())
    }

    /// Deletes an object.
    pub async fn delete(&self, key: &str) {
        let delete = DeleteObject {
            bucket: self.bucket,
            key: key.to_owned(),
            version: VersionRef::Current,
            marker: None,
            precondition: Precondition::None,
            now: self.env.clock.wall(),
        };
        self.meta.delete_object(delete).await.expect("a delete without conditions");
    }

    /// The first span of an object.
    pub async fn span(&self, key: &str) -> Span {
        let found: Found = self.meta.object("b", key, &VersionRef::Current).await.expect("the bucket is there");
        found.spans[0].clone()
    }

    /// A span can be read, and holds what was written.
    pub async fn assert_span_reads(&self, span: &Span) {
        let data_bytes = span.data_bytes();
        let mut reader = self.stripes.span_reader(span, ByteRange { offset: 0, bytes: data_bytes });
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await.expect("it can be read") {
            bytes.extend_from_slice(&piece);
        }
        assert!(bytes == pattern(data_bytes, data_bytes as usize), "{} reads other bytes", span.stripe.id);
    }

    /// What the status says.
    pub async fn overall(&self) -> Overall {
        self.keeper.status().await.expect("the database answers").overall
    }

    /// Takes every step until none finds work.
    pub async fn settle(&self) -> Idle {
        let idle = self.keeper.run_until_idle(100).await.expect("the database answers");
        assert!(idle.settled, "{idle:?}");
        idle
    }
}
