//! `claystone demo`: a guided tour on the user's own machine.
//!
//! ```text
//! store    real files and a big object, once at rs:4+2 and once at clay:4+2:5
//! pull     two of six disks, read everything back
//! damage   flip bits on one disk, cut chunks of another in half, read everything back, scrub, repair
//! replace  one disk for good; count what its repair reads, verify, read everything back
//! ```
//!
//! Nothing here is simulated: the store is the real one, the damage is done to its files behind its back.

pub mod adaptive;
mod child;
mod damage;
mod readers;
mod tree;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use claystone_code::CodeSpec;
use claystone_keeper::{RepairTotals, Status};
use claystone_object::{Attributes, Confirmed, Precondition, Put, VersionRef, Versioning};
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use self::tree::{Content, Item};
use crate::components::Store;
use crate::progress::Progress;
use crate::rows::{Figure, Goals, Row};
use crate::settings::{Layers, Settings};
use crate::table;

/// How much to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// Some 90 MiB in each of the two buckets.
    Small,
    /// Some 400 MiB in each.
    Full,
}

/// Takes the tour in `directory`, which must be empty. `tell` receives one line for each thing that happened.
///
/// # Errors
/// Something could not be done at all; what was lost shows in the rows.
pub async fn run(directory: &Path, size: Size, tell: impl Fn(&str) -> io::Result<()>) -> anyhow::Result<Vec<Row>> {
    let mut settings = Settings::check(directory, &Layers::defaults())?;
    // New and rebuilt stripes are verified at once, so that the tour need not wait for them to cool down.
    settings.keeper.verify_after = Duration::ZERO;
    let store = Store::start(settings).await?;
    let result = Tour { store: store.clone(), hashes: BTreeMap::new(), rows: Vec::new(), goals: Goals::built_in() }
        .take(size, &tell)
        .await;
    store.stop().await;
    result
}

struct Tour {
    store: Store,
    /// By bucket and key: the SHA-256 of what was stored.
    hashes: BTreeMap<(&'static str, String), Vec<u8>>,
    rows: Vec<Row>,
    goals: Goals,
}

impl Tour {
    async fn take(mut self, size: Size, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<Vec<Row>> {
        self.fill(size, tell).await?;
        self.lose_two_disks(tell).await?;
        self.damage_chunks(tell).await?;
        self.replace_a_disk(tell).await?;
        Ok(self.rows)
    }

    /// Stores everything in both buckets.
    async fn fill(&mut self, size: Size, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let (files, bytes, big) = match size {
            Size::Small => (300, 24 << 20, 64 << 20),
            Size::Full => (3000, 128 << 20, 256 << 20),
        };
        let mut items = tree::files(files, bytes);
        items.push(Item { key: "big".to_owned(), content: Content::Made { seed: 99, bytes: big } });
        let total: u64 = items.iter().map(|item| item.content.bytes()).sum();
        let start = Instant::now();
        let progress = Progress::bytes("storing", total * BUCKETS.len() as u64);
        for (bucket, code) in BUCKETS {
            let code: CodeSpec = code.parse().expect("the codes of this tour are valid");
            self.store.objects.create_bucket(bucket, crate::components::FIRST_ACCOUNT, Some(code)).await?;
            let puts = stream::iter(items.clone()).map(|item| {
                let (store, progress) = (self.store.clone(), progress.clone());
                async move {
                    let (key, bytes) = (item.key.clone(), item.content.bytes());
                    let hash = put(&store, bucket, item).await.with_context(|| format!("storing {key}"))?;
                    progress.step(bytes);
                    anyhow::Ok(((bucket, key), hash))
                }
            });
            self.hashes.extend(puts.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?);
        }
        progress.end();
        let seconds = start.elapsed().as_secs_f64();
        tell(&format!(
            "stored {} files and one object of {} in two buckets, {} and {}: {} in {seconds:.1} s",
            items.len() - 1,
            table::bytes(big),
            BUCKETS[0].1,
            BUCKETS[1].1,
            table::bytes(total * 2),
        ))?;
        self.row("stored", "objects", self.hashes.len() as f64, "objects");
        self.row("stored", "bytes", total as f64 * 2.0, "bytes");
        self.row("stored", "time", seconds, "s");
        Ok(())
    }

    /// Reads everything back while two disks are away.
    async fn lose_two_disks(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let disks = [self.disk("disk2"), self.disk("disk5")];
        let away = [damage::pull(&disks[0])?, damage::pull(&disks[1])?];
        tell("pulled out two of six disks")?;
        self.read_back("two-disks-lost", tell).await?;
        for (away, disk) in away.iter().zip(&disks) {
            damage::plug(away, disk)?;
        }
        self.until("disks return", |status| (status.disks.iter().filter(|disk| disk.writable).count() as u64, 6))
            .await?;
        tell("put both disks back")?;
        Ok(())
    }

    /// Reads everything back while chunks are damaged; then lets scrub and repair mend them.
    async fn damage_chunks(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let flipped = damage::flip_bits(&self.disk("disk1"), 40)?;
        let cut = damage::truncate(&self.disk("disk4"), 40)?;
        tell(&format!("flipped a bit in {flipped} chunks of one disk, cut {cut} chunks of another in half"))?;
        self.read_back("damaged", tell).await?;
        let start = Instant::now();
        self.store.keeper.start_scrub().await?;
        self.until("scrub", |status| {
            let scrub = status.scrub.clone().unwrap_or_default();
            // An empty store's scrub has nothing to read.
            (if scrub.finished { scrub.stripes_total.max(1) } else { scrub.stripes }, scrub.stripes_total.max(1))
        })
        .await?;
        self.until_whole("repair").await?;
        let seconds = start.elapsed().as_secs_f64();
        tell(&format!("scrubbed: every damaged chunk was found and rebuilt in {seconds:.1} s"))?;
        self.row("damaged", "chunks_damaged", (flipped + cut) as f64, "chunks");
        self.row("damaged", "time_to_mend", seconds, "s");
        Ok(())
    }

    /// Loses one disk for good, and counts what its repair reads.
    async fn replace_a_disk(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let before = self.store.keeper.status().await?.repair;
        let path = self.disk("disk3");
        let old = self.store.find_disk(&path.display().to_string()).await?;
        std::fs::remove_dir_all(&path).context("wiping a disk")?;
        tell("wiped one disk and put an empty one in its place")?;
        let start = Instant::now();
        self.store.replace_disk(old, &path).await?;
        self.until("repair", |status| {
            let lost = status.stripes.chunks_lost;
            let done: u64 = status.jobs.iter().filter(|job| job.unit == "chunks").map(|job| job.done).sum();
            (done, done + lost)
        })
        .await?;
        let seconds = start.elapsed().as_secs_f64();
        self.until_whole("verify").await?;
        let status = self.store.keeper.status().await?;
        tell(&format!("rebuilt everything that was on it in {seconds:.1} s; {}", status.summary))?;
        for totals in since(&before, &status.repair) {
            let small = if totals.large { "" } else { ", stripes below 256KiB" };
            let case = format!("repair {}{small}", totals.code);
            self.row(&case, "lost_bytes", totals.bytes_rebuilt as f64, "bytes");
            self.row(&case, "read_bytes", totals.bytes_read as f64, "bytes");
            if let Some(per_byte) = totals.read_per_lost_byte() {
                self.row(&case, "read_per_lost_byte", per_byte, "bytes/byte");
            }
        }
        self.row("repaired", "time", seconds, "s");
        let verified = status.stripes.verified as f64 / (status.stripes.stripes as f64).max(1.0);
        self.row("repaired", "stripes_verified_ratio", verified, "ratio");
        self.read_back("repaired", tell).await
    }

    /// Reads every object and compares its hash.
    async fn read_back(&mut self, case: &str, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let start = Instant::now();
        let progress = Progress::new("reading back", self.hashes.len() as u64);
        let reads = stream::iter(self.hashes.clone()).map(|((bucket, key), hash)| {
            let (store, progress) = (self.store.clone(), progress.clone());
            async move {
                let read = read(&store, bucket, &key).await;
                progress.step(1);
                (key, read, hash)
            }
        });
        let reads: Vec<_> = reads.buffer_unordered(AT_ONCE).collect().await;
        progress.end();
        let (mut equal, mut bytes) = (0_u64, 0_u64);
        for (key, read, hash) in &reads {
            match read {
                Ok((read, length)) if read == hash => {
                    equal += 1;
                    bytes += length;
                }
                Ok(_) => tell(&format!("  {key}: other bytes than were stored"))?,
                Err(error) => tell(&format!("  {key}: {error:#}"))?,
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let size = table::bytes(bytes);
        tell(&format!("read everything back: {equal} of {} objects equal, {size} in {seconds:.1} s", reads.len()))?;
        self.row(case, "objects_equal_ratio", equal as f64 / reads.len() as f64, "ratio");
        self.row(case, "mib_per_s", bytes as f64 / f64::from(1 << 20) / seconds, "MiB/s");
        Ok(())
    }

    /// Waits until every chunk is in place and every stripe verified.
    async fn until_whole(&self, what: &str) -> anyhow::Result<()> {
        self.until(what, |status| {
            let stripes = &status.stripes;
            let done = if stripes.chunks_lost == 0 { stripes.verified } else { 0 };
            (done, stripes.stripes)
        })
        .await
    }

    /// Waits until `figure` says that all is done; gives up when nothing has moved for [`STALL_LIMIT`].
    async fn until(&self, what: &str, figure: impl Fn(&Status) -> (u64, u64)) -> anyhow::Result<()> {
        let progress = Progress::new(what, 0);
        let (mut last, mut moved) = ((0, 0), Instant::now());
        loop {
            let status = self.store.keeper.status().await?;
            let (done, total) = figure(&status);
            progress.of(done, total);
            if done >= total {
                progress.end();
                return Ok(());
            }
            if (done, total) != last {
                (last, moved) = ((done, total), Instant::now());
            }
            if moved.elapsed() > STALL_LIMIT {
                progress.end();
                bail!("{what}: stands still at {done} of {total}: {} {}", status.summary, status.waiting.join("; "));
            }
            self.store.look_for_disks().await;
            tokio::time::sleep(POLL).await;
        }
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.store.settings.directory.join(name)
    }

    fn row(&mut self, case: &str, metric: &str, value: f64, unit: &'static str) {
        let figure =
            Figure { bench: "demo", case: case.to_owned(), metric: metric.to_owned(), value, unit, against: None };
        self.rows.push(self.goals.row(figure));
    }
}

async fn put(store: &Store, bucket: &str, item: Item) -> anyhow::Result<Vec<u8>> {
    let mut hash = Sha256::new();
    for part in item.content.clone().parts() {
        hash.update(&part);
    }
    let hash = hash.finalize().to_vec();
    let etag = hex::encode(&hash[..16]);
    let put = Put {
        bucket: bucket.to_owned(),
        key: item.key,
        versioning: Versioning::Off,
        precondition: Precondition::None,
        attributes: Attributes::default(),
        bytes: item.content.bytes(),
        body: stream::iter(item.content.parts().map(Ok)).boxed(),
        digests: Vec::new(),
        confirm: Box::new(move |_| Ok(Confirmed { etag, checksums: BTreeMap::new() })),
    };
    store.objects.put(put).await?;
    Ok(hash)
}

async fn read(store: &Store, bucket: &str, key: &str) -> anyhow::Result<(Vec<u8>, u64)> {
    let found = store.objects.find(bucket, key, &VersionRef::Current).await?;
    let object = found.object.ok_or_else(|| anyhow!("it is not there any more"))?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut body = store.objects.read(&object, None);
    while let Some(part) = body.try_next().await? {
        hash.update(&part);
        bytes += part.len() as u64;
    }
    ensure!(bytes == object.record.bytes, "{bytes} bytes of {}", object.record.bytes);
    Ok((hash.finalize().to_vec(), bytes))
}

/// What was rebuilt between two looks.
fn since(before: &[RepairTotals], after: &[RepairTotals]) -> Vec<RepairTotals> {
    let old = |totals: &RepairTotals| {
        let same = |old: &&RepairTotals| old.code == totals.code && old.large == totals.large;
        before.iter().find(same).cloned().unwrap_or_default()
    };
    let differences = after.iter().map(|totals| {
        let old = old(totals);
        RepairTotals {
            stripes: totals.stripes - old.stripes,
            chunks: totals.chunks - old.chunks,
            bytes_rebuilt: totals.bytes_rebuilt - old.bytes_rebuilt,
            bytes_read: totals.bytes_read - old.bytes_read,
            bytes_verified: totals.bytes_verified - old.bytes_verified,
            ..totals.clone()
        }
    });
    differences.filter(|totals| totals.chunks > 0).collect()
}

const BUCKETS: [(&str, &str); 2] = [("reed-solomon", "rs:4+2"), ("clay", "clay:4+2:5")];
const AT_ONCE: usize = 8;
const POLL: Duration = Duration::from_millis(50);
const STALL_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_counted_from_the_last_look() {
        let totals = |code: &str, chunks, bytes_read| RepairTotals {
            code: code.to_owned(),
            chunks,
            bytes_read,
            ..RepairTotals::default()
        };
        let before = [totals("a", 1, 10), totals("b", 2, 20)];
        let after = [totals("a", 1, 10), totals("b", 5, 60), totals("c", 1, 5)];
        assert_eq!(since(&before, &after), [totals("b", 3, 40), totals("c", 1, 5)]);
    }
}
