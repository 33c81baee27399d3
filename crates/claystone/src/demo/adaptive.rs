//! `claystone demo --adaptive`: one bucket from copies to a fast code, to a compact one, and back, by what is read.
//!
//! ```text
//! new       objects are put: three copies of each data chunk
//! fast      they are read much: parity is made, copies are dropped
//! compact   only one slow client reads them: local parities are merged; a disk is lost and the process killed meanwhile
//! hot       they are read much again: local parities are split; the process is killed meanwhile
//! whole     what was lost is rebuilt, everything is read once more
//! copied    a client copies all of it to a new bucket of the compact code
//! ```
//!
//! The slow client reads and compares hashes from the first phase to the last. The store is this program in a process of its
//! own, on directories; it is killed as by a loss of power to the process, and the disk's directory is deleted.
//!
//! Bytes of conversions are those that the store counted for them up to a moment before each kill. Beside them is copying the same
//! objects to a new bucket of the new code, per byte of data as the client's copy shows it:
//!
//! | row | of a conversion | of copying |
//! |---|---|---|
//! | `written_bytes` | chunks written | chunks written |
//! | `disk_bytes` | and chunks read | and chunks read: all data |
//! | `moved_bytes` | the same | and what goes to the client and back: all data twice |
//!
//! In chunks of a stripe, of which each object is one, of whole rows:
//!
//! | | read, written | of copying | `moved_bytes` |
//! |---|---|---|---|
//! | made compact | 6, 2 | 12, 16, and 24 of the client | 8 of 52, 6.5 times less |
//! | the same, where the lost disk had one of the six | 7, 2: it is decoded from the two data chunks of its group | the same | 9 of 52, 5.7 times less |
//!
//! A stripe has no two chunks on one disk, so five times less holds for each, whichever disk is lost and whenever. Stripes that are
//! merged by two do not promise that: where a parity of `rsm:6+3` is lost, six chunks are read for three, in all 12 of 51.
//!
//! Left out on both sides: reading back what was written, by a conversion at once, by the scrub of a copy a minute later. Nor has the
//! store counted what it moved for the conversions, two at most each time, that a kill or the loss of the disk ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use claystone_code::CodeSpec;
use claystone_console::api;
use claystone_keeper::{ConversionBytes, ConversionTotals, Overall, Status};
use claystone_meta::HeatPolicy;
use hyper::Method;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::Size;
use super::child::Child;
use super::readers::{Known, Reader, Seen, Target, request};
use super::tree::Content;
use crate::admin::AdminClient;
use crate::http::Connection;
use crate::rows::{Against, Figure, Goals, Row};
use crate::table;

/// Follows a bucket in `directory`, which must be empty. `tell` receives one line for each thing that happened.
///
/// # Errors
/// Something could not be done at all; what went wrong for readers shows in the rows.
pub async fn run(directory: &Path, size: Size, tell: impl Fn(&str) -> io::Result<()>) -> anyhow::Result<Vec<Row>> {
    // Paths of disks are kept absolute.
    let directory = &std::path::absolute(directory)?;
    let store = directory.join("store");
    fs::create_dir_all(&store)?;
    let disks: Vec<PathBuf> = (1..=DISKS).map(|disk| directory.join(format!("disk{disk}"))).collect();
    fs::write(store.join("claystone.toml"), settings(&disks))?;
    let policy: HeatPolicy = POLICY.parse().expect("the policy of this tour is valid");
    let (target, watched) = watch::channel(None);
    let mut tour = Tour {
        child: None,
        store,
        disks,
        policy,
        target,
        seen: Arc::default(),
        objects: Vec::new(),
        totals: ConversionTotals::default(),
        ended: ConversionTotals::default(),
        kills: 0,
        disks_lost: 0,
        copied: Copied::default(),
        rows: Vec::new(),
        goals: Goals::built_in(),
    };
    let objects = match size {
        Size::Small => 24,
        Size::Full => 96,
    };
    tour.start().await?;
    tour.fill(objects, &tell).await?;
    let mut reader = Reader::new(watched.clone(), tour.seen.clone());
    let known = tour.objects.clone();
    let pause = CHECKED_EVERY / objects as u32;
    let checker = tokio::spawn(async move {
        // Until the demo is over.
        for object in known.iter().cycle() {
            let next = tokio::time::sleep(pause);
            if reader.read(object).await.is_err() {
                return;
            }
            next.await;
        }
    });
    let result = tour.follow(&watched, &tell).await;
    checker.abort();
    result?;
    if let Some(child) = tour.child.take() {
        child.stop().await?;
    }
    Ok(tour.rows)
}

struct Tour {
    /// `None` while it is down.
    child: Option<Child>,
    store: PathBuf,
    disks: Vec<PathBuf>,
    policy: HeatPolicy,
    target: watch::Sender<Option<Target>>,
    seen: Arc<Seen>,
    objects: Vec<Known>,
    /// Of the process that runs, when it was last asked.
    totals: ConversionTotals,
    /// Of those that were killed.
    ended: ConversionTotals,
    kills: u32,
    disks_lost: u32,
    copied: Copied,
    rows: Vec<Row>,
    goals: Goals,
}

/// What a client moved that copied all objects.
#[derive(Debug, Clone, Copy, Default)]
struct Copied {
    /// Bytes of objects that it read, and then wrote.
    data_bytes: u64,
    /// Bytes of the chunks that they became.
    chunks_bytes: u64,
}

/// Objects by their state.
type States = BTreeMap<String, usize>;

impl Tour {
    async fn follow(
        &mut self,
        watched: &watch::Receiver<Option<Target>>,
        tell: &impl Fn(&str) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.become_fast(watched, tell).await?;
        self.become_compact(tell).await?;
        self.become_fast_again(watched, tell).await?;
        self.become_whole(watched, tell).await?;
        self.copy(tell).await?;
        self.report()
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        let child = Child::start(&self.store).await?;
        let (authority, signer) = (child.authority.clone(), child.signer.clone());
        self.target.send_replace(Some(Target { start: self.kills.into(), authority, signer }));
        self.child = Some(child);
        Ok(())
    }

    /// Kills the store and starts it again.
    async fn kill(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let child = self.child.take().context("it runs")?;
        // Said first, so that readers know what cut them off.
        self.target.send_replace(None);
        child.kill()?;
        self.kills += 1;
        let ended = std::mem::take(&mut self.totals);
        for (sum, of) in kinds_mut(&mut self.ended).into_iter().zip(kinds(&ended)) {
            *sum.0 += of.0;
            sum.1.add(of.1);
        }
        tell("killed the store (SIGKILL) while it converted, and started it again")?;
        self.start().await
    }

    fn admin(&self) -> anyhow::Result<AdminClient> {
        self.child.as_ref().context("it runs")?.admin()
    }

    /// The status as it was within the last second: the store makes no more of them.
    async fn status(&mut self) -> anyhow::Result<Status> {
        let mut tries = 1;
        let status: Status = loop {
            match self.admin()?.get("/status").await {
                Ok(status) => break status,
                // On a busy machine one may take longer than the store waits for it.
                Err(error) if tries == STATUS_TRIES => return Err(error),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(POLL).await;
        };
        self.totals = status.conversions;
        Ok(status)
    }

    /// A status that was made after this was asked for.
    async fn status_now(&mut self) -> anyhow::Result<Status> {
        let before = self.status().await?.unix_ms;
        loop {
            let status = self.status().await?;
            if status.unix_ms > before {
                return Ok(status);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Sets the policy, which has upkeep look at the bucket at once instead of within a minute.
    async fn look(&self) -> anyhow::Result<()> {
        let body = api::SetPolicy { policy: Some(self.policy.to_string()) };
        let _: api::Done = self.admin()?.send(Method::PUT, &format!("/buckets/{BUCKET}/policy"), &body).await?;
        Ok(())
    }

    async fn states(&self) -> anyhow::Result<States> {
        let target = self.target.borrow().clone().context("it runs")?;
        let mut connection = Connection::open(&target.authority).await?;
        let mut states = States::new();
        for object in &self.objects {
            let (head, _) = request(&mut connection, &target, Method::HEAD, &object.path, Bytes::new()).await?;
            let state = head.get("x-claystone-state").and_then(|state| state.to_str().ok()).unwrap_or("none");
            *states.entry(state.to_owned()).or_insert(0) += 1;
        }
        Ok(states)
    }

    fn all(&self, states: &States, state: &str) -> bool {
        states.get(state) == Some(&self.objects.len())
    }

    /// Makes the bucket and puts the objects, each one stripe of whole rows.
    async fn fill(&mut self, objects: usize, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let target = self.target.borrow().clone().context("it runs")?;
        let mut connection = Connection::open(&target.authority).await?;
        request(&mut connection, &target, Method::PUT, &format!("/{BUCKET}"), Bytes::new()).await?;
        self.look().await?;
        for seed in 0..objects {
            let content = Content::Made { seed: 1000 + seed as u64, bytes: OBJECT_BYTES };
            let content: Bytes = content.parts().flatten().collect();
            let object = Known { path: format!("/{BUCKET}/{seed}"), sha256: Sha256::digest(&content).to_vec() };
            request(&mut connection, &target, Method::PUT, &object.path, content).await?;
            self.objects.push(object);
        }
        let states = self.states().await?;
        tell(&format!(
            "put {objects} objects of {} in a bucket of the policy {}: {}",
            table::bytes(OBJECT_BYTES),
            self.policy,
            said(&states)
        ))?;
        self.note_short_room().await?;
        self.row("adaptive", "objects", objects as f64, "objects");
        self.row(
            "adaptive",
            "objects_new_as_copies",
            *states.get("fresh").unwrap_or(&0) as f64 / objects as f64,
            "ratio",
        );
        Ok(())
    }

    /// Says so if too few disks have room for copies: then there were none to begin with. With `--json` too, since a goal is missed for it.
    async fn note_short_room(&mut self) -> anyhow::Result<()> {
        let status = self.status().await?;
        let is_roomy = |disk: &&api::DiskStatus| disk.writable && disk.free_bytes > disk.total_bytes / 10;
        let (roomy, needed) = (status.disks.iter().filter(is_roomy).count(), self.policy.roomy_for_copies());
        if roomy < usize::from(needed) {
            crate::output::note(format_args!(
                "less than a tenth of the space is free where the disks are: new objects get {} at once instead of copies, and the first \
                 phase has nothing to encode; free some, or take another directory",
                self.policy.fast
            ));
        }
        Ok(())
    }

    /// Reads every object once, several at once, as fast as it goes.
    async fn read_all(&self, watched: &watch::Receiver<Option<Target>>) -> anyhow::Result<()> {
        let share = self.objects.len().div_ceil(HOT_READERS);
        let readers = self.objects.chunks(share).map(|objects| {
            let (mut reader, objects) = (Reader::new(watched.clone(), self.seen.clone()), objects.to_vec());
            tokio::spawn(async move {
                for object in &objects {
                    reader.read(object).await?;
                }
                anyhow::Ok(())
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await??;
        }
        Ok(())
    }

    /// The least heat of all objects.
    async fn heat(&self) -> anyhow::Result<f64> {
        let mut least = f64::MAX;
        for seed in 0..self.objects.len() {
            let report: api::PolicyReport = self.admin()?.get(&format!("/buckets/{BUCKET}/policy?key={seed}")).await?;
            least = report.stripes.iter().map(|stripe| stripe.heat).fold(least, f64::min);
        }
        Ok(least)
    }

    async fn become_fast(
        &mut self,
        watched: &watch::Receiver<Option<Target>>,
        tell: &impl Fn(&str) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.warm(watched, begin).await?;
        tell(&format!("read every object {:.0} times and more: they are hot", self.policy.hot_above.count()))?;
        loop {
            self.look().await?;
            self.status().await?;
            let states = self.states().await?;
            if self.all(&states, "fast") {
                break;
            }
            self.limit(begin, "copies are not encoded").await?;
            // On a slow machine they would cool while they are encoded, and what is cold is made compact at once, of all its data.
            self.warm(watched, begin).await?;
            tokio::time::sleep(POLL).await;
        }
        self.told(begin, ("fast", "adaptive fast"), tell).await
    }

    /// Reads until every object is a little more than hot.
    async fn warm(&self, watched: &watch::Receiver<Option<Target>>, begin: Instant) -> anyhow::Result<()> {
        while self.heat().await? < self.policy.hot_above.count() * 1.1 {
            self.limit(begin, "reading is too slow for heat that halves within a minute").await?;
            self.read_all(watched).await?;
        }
        Ok(())
    }

    /// Gives up a phase that takes absurdly long, and says what there was instead.
    async fn limit(&self, begin: Instant, what: &str) -> anyhow::Result<()> {
        if begin.elapsed() <= PHASE_LIMIT {
            return Ok(());
        }
        let report: api::PolicyReport = self.admin()?.get(&format!("/buckets/{BUCKET}/policy")).await?;
        let status: Status = self.admin()?.get("/status").await?;
        let reasons: Vec<&str> = report.reasons.iter().map(|reason| &*reason.reason).collect();
        bail!("{what}: {}, {}; {}", said(&self.states().await?), reasons.join(", "), status.summary)
    }

    async fn become_compact(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let begin = Instant::now();
        tell("only one slow client reads on: they cool")?;
        loop {
            self.look().await?;
            self.status().await?;
            let states = self.states().await?;
            if self.kills == 0 && states.contains_key("compact") {
                tell(&format!("some are compact: {}", said(&states)))?;
                self.lose_disk(tell).await?;
                self.status().await?;
                self.kill(tell).await?;
            } else if self.all(&states, "compact") {
                break;
            }
            self.limit(begin, "they are not made compact").await?;
            tokio::time::sleep(POLL).await;
        }
        self.told(begin, ("compact", "adaptive compact"), tell).await
    }

    async fn become_fast_again(
        &mut self,
        watched: &watch::Receiver<Option<Target>>,
        tell: &impl Fn(&str) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        tell("all are read much again")?;
        while {
            let states = self.states().await?;
            if self.kills < 2 && states.contains_key("fast") {
                tell(&format!("some are fast: {}", said(&states)))?;
                self.status().await?;
                self.kill(tell).await?;
            }
            !self.all(&states, "fast")
        } {
            self.limit(begin, "they are not made fast").await?;
            self.warm(watched, begin).await?;
            self.look().await?;
            self.status().await?;
            tokio::time::sleep(POLL).await;
        }
        self.told(begin, ("fast", "adaptive fast again"), tell).await
    }

    async fn become_whole(
        &mut self,
        watched: &watch::Receiver<Option<Target>>,
        tell: &impl Fn(&str) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.until(begin, async |tour| {
            let status = tour.status().await?;
            let whole = status.stripes.chunks_lost == 0 && status.stripes.unreachable.is_none();
            Ok((whole && matches!(status.overall, Overall::Healthy | Overall::Unverified { .. })).then_some(()))
        })
        .await
        .context("waiting for repair")?;
        let (wrong, errors) = (self.seen.count(|seen| &seen.wrong), self.seen.count(|seen| &seen.errors));
        self.read_all(watched).await?;
        let bad = self.seen.count(|seen| &seen.wrong) - wrong + self.seen.count(|seen| &seen.errors) - errors;
        let equal = self.objects.len() as f64 - bad as f64;
        tell(&format!("everything that was lost is rebuilt; {equal} of {} objects are equal", self.objects.len()))?;
        self.row("adaptive", "objects_equal_ratio", equal / self.objects.len() as f64, "ratio");
        Ok(())
    }

    /// Copies all objects to a new bucket of the compact code, as who wants another code without this store's conversions has to.
    async fn copy(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let target = self.target.borrow().clone().context("it runs")?;
        let mut connection = Connection::open(&target.authority).await?;
        request(&mut connection, &target, Method::PUT, &format!("/{COPIED}"), Bytes::new()).await?;
        let code = api::SetCode { code: Some(self.policy.compact.to_string()) };
        let _: api::Done = self.admin()?.send(Method::PUT, &format!("/buckets/{COPIED}/code"), &code).await?;
        for object in &self.objects {
            let (_, body) = request(&mut connection, &target, Method::GET, &object.path, Bytes::new()).await?;
            ensure!(Sha256::digest(&body)[..] == object.sha256[..], "{}: other bytes than those stored", object.path);
            self.copied.data_bytes += body.len() as u64;
            let path = object.path.replacen(BUCKET, COPIED, 1);
            request(&mut connection, &target, Method::PUT, &path, body).await?;
        }
        // A policy tells what a bucket takes, and all of this one is compact.
        let policy = api::SetPolicy { policy: Some(self.policy.to_string()) };
        let _: api::Done = self.admin()?.send(Method::PUT, &format!("/buckets/{COPIED}/policy"), &policy).await?;
        let report: api::PolicyReport = self.admin()?.get(&format!("/buckets/{COPIED}/policy")).await?;
        self.copied.chunks_bytes = report.compact_bytes;
        ensure!(
            (report.data_bytes, report.other_bytes) == (self.copied.data_bytes, 0),
            "the copies have other codes: {report:?}"
        );
        let Copied { data_bytes, chunks_bytes } = self.copied;
        tell(&format!(
            "a client copied all to a new bucket of {}: {} read and sent to it, {} sent back, {} of chunks written",
            self.policy.compact,
            table::bytes(data_bytes),
            table::bytes(data_bytes),
            table::bytes(chunks_bytes),
        ))?;
        for (metric, bytes) in
            [("read_bytes", data_bytes), ("client_bytes", 2 * data_bytes), ("written_bytes", chunks_bytes)]
        {
            self.row("copied by a client", metric, bytes as f64, "bytes");
        }
        Ok(())
    }

    /// Deletes the directory of the first disk and gives it up.
    async fn lose_disk(&mut self, tell: &impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
        let path = self.disks[0].display().to_string();
        let status = self.status().await?;
        let disk = status.disks.iter().find(|disk| disk.path == path).context("the first disk is known")?;
        delete(&self.disks[0]).context("deleting a disk")?;
        let body = api::ReplaceDisk { path: None };
        let _: api::DiskReplaced =
            self.admin()?.send(Method::POST, &format!("/disks/{}/replace", disk.id), &body).await?;
        self.disks_lost += 1;
        tell(&format!("deleted all of one disk, and gave it up; {} are left", self.disks.len() - 1))?;
        Ok(())
    }

    /// Tries until there is something, or the phase takes absurdly long.
    async fn until<T>(
        &mut self,
        begin: Instant,
        mut look: impl AsyncFnMut(&mut Tour) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        loop {
            if let Some(found) = look(self).await? {
                return Ok(found);
            }
            self.limit(begin, "nothing more happens").await?;
            tokio::time::sleep(POLL).await;
        }
    }

    async fn told(
        &mut self,
        begin: Instant,
        (state, case): (&str, &str),
        tell: &impl Fn(&str) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let seconds = begin.elapsed().as_secs_f64();
        // What the phase moved is to be counted whole.
        self.status_now().await?;
        let report: api::PolicyReport = self.admin()?.get(&format!("/buckets/{BUCKET}/policy")).await?;
        tell(&format!("{state} after {seconds:.1} s: the bucket takes {:.0} % of its data", report.percent))?;
        self.row(case, "time", seconds, "s");
        self.row(case, "space_percent", report.percent, "%");
        Ok(())
    }

    fn report(&mut self) -> anyhow::Result<()> {
        let seen = self.seen.clone();
        for (metric, count) in [
            ("reads", seen.count(|seen| &seen.reads)),
            ("wrong_bytes", seen.count(|seen| &seen.wrong)),
            ("errors", seen.count(|seen| &seen.errors)),
            ("cut_off_by_kills", seen.count(|seen| &seen.cut_off)),
        ] {
            self.row("adaptive", metric, count as f64, "reads");
        }
        self.row("adaptive", "kills", f64::from(self.kills), "kills");
        self.row("adaptive", "disks_lost", f64::from(self.disks_lost), "disks");
        let complaints = seen.complaints.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for complaint in complaints {
            crate::output::note(format_args!("{complaint}"));
        }
        let mut totals = self.ended;
        for (sum, of) in kinds_mut(&mut totals).into_iter().zip(kinds(&self.totals)) {
            *sum.0 += of.0;
            sum.1.add(of.1);
        }
        let HeatPolicy { fast, compact, .. } = self.policy;
        let space = |code: CodeSpec| f64::from(code.shape().chunks()) / f64::from(code.shape().data);
        // What the copies took, for what code they took it, and so what they would have under another.
        let copied = self.copied.chunks_bytes as f64 / self.copied.data_bytes as f64 / space(compact);
        for ((case, to), (count, bytes)) in
            [("copies to fast", fast), ("fast to compact", compact), ("compact to fast", fast)]
                .into_iter()
                .zip(kinds(&totals))
        {
            let data = bytes.data_bytes as f64;
            let copied = data * copied * space(to);
            self.row(case, "conversions", count as f64, "conversions");
            self.against(case, "written_bytes", bytes.written_bytes as f64, copied);
            let moved = (bytes.read_bytes + bytes.written_bytes) as f64;
            self.against(case, "disk_bytes", moved, data + copied);
            self.against(case, "moved_bytes", moved, data + copied + 2.0 * data);
        }
        Ok(())
    }

    fn row(&mut self, case: &str, metric: &str, value: f64, unit: &'static str) {
        let (case, metric) = (case.to_owned(), metric.to_owned());
        self.rows.push(self.goals.row(Figure { bench: "demo", case, metric, value, unit, against: None }));
    }

    fn against(&mut self, case: &str, metric: &str, value: f64, copying: f64) {
        let (case, metric) = (case.to_owned(), metric.to_owned());
        let against = Some(Against { name: "copying".to_owned(), value: copying });
        self.rows.push(self.goals.row(Figure { bench: "demo", case, metric, value, unit: "bytes", against }));
    }
}

/// Copies made fast, fast made compact, compact made fast.
fn kinds(totals: &ConversionTotals) -> [(u64, ConversionBytes); 3] {
    [(totals.encoded, totals.encoding), (totals.merged, totals.merging), (totals.split, totals.splitting)]
}

fn kinds_mut(totals: &mut ConversionTotals) -> [(&mut u64, &mut ConversionBytes); 3] {
    [
        (&mut totals.encoded, &mut totals.encoding),
        (&mut totals.merged, &mut totals.merging),
        (&mut totals.split, &mut totals.splitting),
    ]
}

/// Deletes a directory in which the store makes files meanwhile.
fn delete(path: &Path) -> io::Result<()> {
    let mut result = fs::remove_dir_all(path);
    for _ in 1..DELETIONS_MAX {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => result = fs::remove_dir_all(path),
            _ => break,
        }
    }
    result
}

fn said(states: &States) -> String {
    let said: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    said.join(", ")
}

/// What makes minutes of days: heat that halves within a minute, and upkeep slow enough to be killed at work.
fn settings(disks: &[PathBuf]) -> String {
    let disks: Vec<String> = disks.iter().map(|disk| format!("{:?}", disk.display().to_string())).collect();
    format!(
        "disks = [{}]\nheat_half_life_minutes = 1\nconvert_after_minutes = 0\nreclaim_seconds = 1\n\
         repair_mib_per_second = 16\nrepair_share = 1.0\n",
        disks.join(", ")
    )
}

const BUCKET: &str = "photos";
const COPIED: &str = "photos-copied";
/// The fast code takes 20 disks. One is lost, and repair wants one to go to.
const DISKS: usize = 22;
/// The slow client alone keeps the heat at 2; what is read 13 times within seconds is hot, and so it is on a machine that takes
/// six seconds to read all.
const POLICY: &str = "replica:3/lrc:12+6+2/lrc:12+2+2<=175%,10.00..12.00";
/// Two rows of both codes: all chunks have one length.
const OBJECT_BYTES: u64 = 2 * 12 * (64 << 10);
/// In which the slow client reads every object once.
const CHECKED_EVERY: Duration = Duration::from_secs(40);
const HOT_READERS: usize = 4;
const POLL: Duration = Duration::from_millis(100);
const STATUS_TRIES: u32 = 20;
const PHASE_LIMIT: Duration = Duration::from_secs(600);
const DELETIONS_MAX: usize = 100;
