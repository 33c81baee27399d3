//! A store whose bucket `b` has a policy: objects of one stripe each, read, aged, damaged and looked at.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use claystone_chunk::testing::{Faults, pattern};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Durability};
use claystone_code::ChunkIndex;
use claystone_keeper::{Settings, Why};
use claystone_meta::{BucketRecords, HeatPolicy, NewContent, NewPart, StripeRecord, StripeRecords};
use claystone_stripe::{Absence, Claim, Family, Member};

/// The store, and what its bucket wants.
pub struct Store {
    store: super::Store,
    pub policy: HeatPolicy,
}

impl Deref for Store {
    type Target = super::Store;

    fn deref(&self) -> &super::Store {
        &self.store
    }
}

/// Runs a scenario on a bucket `b` with this policy.
pub fn with_policy<T, F: Future<Output = T>>(disks: usize, policy: &str, scenario: impl FnOnce(Store) -> F) -> T {
    with_settings(disks, policy, settings(), scenario)
}

pub fn with_settings<T, F: Future<Output = T>>(
    disks: usize,
    policy: &str,
    settings: Settings,
    scenario: impl FnOnce(Store) -> F,
) -> T {
    on_nodes(disks, 1, policy, settings, scenario)
}

/// On nodes of so many disks each.
pub fn on_nodes<T, F: Future<Output = T>>(
    disks: usize,
    disks_a_node: usize,
    policy: &str,
    settings: Settings,
    scenario: impl FnOnce(Store) -> F,
) -> T {
    let policy: HeatPolicy = policy.parse().expect("valid");
    claystone_sim::run(42, |world| async move {
        let env = world.process("node").env().clone();
        let store = super::Store::on_nodes(env, disks, disks_a_node, settings, stripe_settings()).await;
        store.meta.set_policy("b", Some(policy)).await.expect("it is there");
        scenario(Store { store, policy }).await
    })
}

pub fn stripe_settings() -> claystone_stripe::Settings {
    claystone_stripe::Settings { heat_half_life: Duration::from_secs(3600), ..claystone_stripe::Settings::default() }
}

pub fn settings() -> Settings {
    Settings {
        verify_after: Duration::ZERO,
        reclaim_after: Duration::ZERO,
        convert_after: Duration::from_secs(600),
        ..Settings::default()
    }
}

impl Store {
    /// An object of one stripe, of copies if the policy has them, else fast.
    pub async fn put(&self, key: &str, bytes: usize) {
        let (stripe, _claim) = self.write(bytes).await;
        self.commit(key, &stripe).await;
    }

    /// The same as the one part of a pack, whose contents are to have the code `wanted`.
    pub async fn put_pack(&self, key: &str, bytes: usize, wanted: &str) {
        let (pack, _claim) = self.write(bytes).await;
        let part = ByteRange { offset: 0, bytes: bytes as u64 };
        let wanted = wanted.parse().expect("valid");
        self.commit_content(key, part.bytes, NewContent::Part(NewPart { pack, wanted, part })).await;
    }

    /// A stripe of its own that nobody names yet.
    pub async fn write(&self, bytes: usize) -> (StripeRecord, Claim) {
        let HeatPolicy { fast, compact, .. } = self.policy;
        let (code, family) = (self.policy.fresh_code().unwrap_or(fast), Family { fast, compact });
        let writer = self.stripes.writer_in_lane(code, family, bytes as u64, Durability::Synced).await;
        let mut writer = writer.expect("enough disks");
        writer.append(&pattern(bytes as u64, bytes)).await.expect("stores take it");
        writer.finish().await.expect("stores commit")
    }

    pub async fn code(&self, key: &str) -> String {
        self.span(key).await.stripe.code.to_string()
    }

    /// Reads an object whole, as the crate `object` does.
    pub async fn read(&self, key: &str) {
        let span = self.span(key).await;
        let bytes = span.data_bytes();
        self.stripes.heats().read(span.stripe.id, bytes, span.stripe.data_bytes, self.env.clock.wall());
        self.assert_span_reads(&span).await;
    }

    /// Bytes that all disks have read and written.
    pub fn moved(&self) -> (u64, u64) {
        let counts = || self.faulty.iter().map(|store| store.counts());
        (counts().map(|counts| counts.bytes_read).sum(), counts().map(|counts| counts.bytes_written).sum())
    }

    /// Every change of a disk takes a second.
    pub fn slow_down(&self) {
        let slow = || Faults { write_delay: Duration::from_secs(1), ..Faults::default() };
        self.faulty.iter().for_each(|disk| disk.set(slow()));
    }

    /// Takes disks away, or brings them back.
    pub fn set_away(&self, disks: &[DiskId], away: bool) {
        let stores = self.stripes.stores();
        for disk in disks {
            let member = stores.member(*disk).expect("a disk of this store");
            let store: Arc<dyn ChunkStore> = self.faulty[disk.0 as usize - 1].clone();
            let absence = Absence { reason: "a test".to_owned() };
            stores.put(Member { store: if away { Err(absence) } else { Ok(store) }, ..member });
        }
    }

    pub async fn why(&self, key: &str) -> Why {
        self.keeper.explain_policy("b", Some(key)).await.expect("it is there").stripes[0].why
    }

    pub async fn age(&self) {
        self.env.clock.sleep(Duration::from_secs(601)).await;
    }

    pub async fn settle(&self) -> u64 {
        self.store.settle().await.converted
    }

    /// Chunks that a step of repair rebuilds.
    pub async fn repair(&self) -> u64 {
        self.keeper.repair_once().await.expect("the database answers").chunks
    }

    pub async fn live(&self) -> Vec<StripeRecord> {
        self.meta.stripes(None, 99).await.expect("the database answers")
    }

    /// Live stripes by code.
    pub async fn overall_codes(&self) -> Vec<(String, usize)> {
        let mut codes: Vec<String> = self.live().await.iter().map(|stripe| stripe.code.to_string()).collect();
        codes.sort();
        codes.dedup();
        let live = self.live().await;
        let count = |code: &String| live.iter().filter(|stripe| stripe.code.to_string() == *code).count();
        codes.iter().map(|code| (code.clone(), count(code))).collect()
    }

    /// Chunks of an object's stripe are found damaged.
    pub async fn damage(&self, key: &str, chunks: &[u16]) {
        let record = self.span(key).await.stripe;
        let ids: Vec<_> =
            chunks.iter().map(|chunk| record.chunk_id(ChunkIndex(*chunk)).expect("it has a name")).collect();
        self.meta.mark_damaged(&ids).await.expect("the database answers");
    }

    /// Stripes that a step of repair converts, and those that it rebuilds.
    pub async fn converted_and_repaired(&self) -> (u64, u64) {
        let round = self.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.failed, round.conflicts), (0, 0));
        (round.converted, round.stripes)
    }
}

pub const COPIES_RSM: &str = "replica:3/rsm:3+2/rsm:6+2<=300%,0.25..1.00";

/// Copies beside the parity of the fast code.
pub const HYBRID_RSM: &str = "hybrid:2/rsm:3+2/rsm:6+2<=300%,0.25..1.00";

pub const SMALL_RSM: &str = "rsm:3+2/rsm:6+2<=160%,0.25..1.00";

/// The length of the objects: three chunks of 64 KiB.
pub const BYTES: usize = 3 << 16;
