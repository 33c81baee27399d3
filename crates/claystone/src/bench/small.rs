//! Small objects over S3: what they cost in space and files, how fast they are put, read and listed.
//!
//! ```text
//! many    objects of 1 to 16 KiB, many clients at once
//! alone   objects of 4 KiB, one after the other
//! ```
//!
//! Invariants:
//! 1. No two objects have the same bytes, and every one is read back and compared.
//! 2. Objects are read back when they lie where they were put, and those of "alone" again when they were packed.
//! 3. Space is what the file system says that the disks' files take, not the length of the files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use hyper::Method;

use super::load::{self, Sample, Target};
use super::server::Server;
use crate::http::{self, Connection};
use crate::progress::Progress;
use crate::rows::{Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Objects of the case "many".
    pub many: usize,
    /// Objects of the case "alone".
    pub alone: usize,
    /// Clients at once in the case "many".
    pub clients: usize,
    /// What has not changed for so long is packed: longer than the pause between two rounds of packing and the time that deleted
    /// chunks are kept.
    pub settled_after: Duration,
    /// Whether goals are judged.
    pub judged: bool,
    /// Where the server's directory is made; `None`: the system's place for temporary files.
    pub directory: Option<std::path::PathBuf>,
}

/// Objects of one case: number `i` has length and bytes of its own.
#[derive(Debug, Clone, Copy)]
struct Objects {
    prefix: &'static str,
    count: usize,
    bytes_min: usize,
    bytes_max: usize,
}

impl Objects {
    fn path(self, at: usize) -> String {
        format!("/{}/{}/{at:08}", load::BUCKET, self.prefix)
    }

    fn content(self, at: usize) -> Bytes {
        // Lengths spread evenly, in no order.
        let length = self.bytes_min + at.wrapping_mul(2_654_435_761) % (self.bytes_max - self.bytes_min + 1);
        let begin = at * 61 % POOL_BYTES;
        load::content(POOL_BYTES + self.bytes_max).slice(begin..begin + length)
    }

    fn bytes(self) -> u64 {
        (0..self.count).map(|at| self.content(at).len() as u64).sum()
    }
}

/// Runs both cases on a server of their own each.
///
/// # Errors
/// The server does not start, refuses, or answers with other bytes.
pub async fn run(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let goals = Goals::built_in();
    let mut rows = Vec::new();
    let mut row = |case: &str, metric: &str, value: f64, unit| {
        let (case, metric) = (case.to_owned(), metric.to_owned());
        let figure = Figure { bench: "small", case, metric, value, unit, against: None };
        rows.push(if plan.judged { goals.row(figure) } else { goals.row_unjudged(figure) });
    };
    let place = super::scratch(plan.directory.as_deref())?;

    let many = Objects { prefix: "many", count: plan.many, bytes_min: 1 << 10, bytes_max: 16 << 10 };
    let directory = place.path().join("many");
    let server = Server::claystone(&directory).await?;
    let empty = taken(&directory)?;
    let put = on_all(&server.target, many, plan.clients, Step::Put).await?;
    let at_first = taken(&directory)?;
    row("many", "put_objects_per_s", put.rate(), "objects/s");
    for (metric, share) in [("put_p50_ms", 0.5), ("put_p99_ms", 0.99), ("put_p999_ms", 0.999)] {
        row("many", metric, put.percentile_ms(share), "ms");
    }
    let lists = list(&server.target, many).await?;
    for (metric, share) in [("list_1000_p50_ms", 0.5), ("list_1000_p99_ms", 0.99)] {
        row("many", metric, lists.percentile_ms(share), "ms");
    }
    let get = on_all(&server.target, many, plan.clients, Step::Get).await?;
    row("many", "get_objects_per_s", get.rate(), "objects/s");
    let settled = settled(&directory, plan.settled_after).await?;
    space(&mut row, "many", many, [empty, at_first, settled]);
    drop(server);

    let alone = Objects { prefix: "alone", count: plan.alone, bytes_min: 4 << 10, bytes_max: 4 << 10 };
    let directory = place.path().join("alone");
    let server = Server::claystone(&directory).await?;
    let empty = taken(&directory)?;
    let put = on_all(&server.target, alone, 1, Step::Put).await?;
    row("alone", "put_objects_per_s", put.rate(), "objects/s");
    let taken = [empty, taken(&directory)?, self::settled(&directory, plan.settled_after).await?];
    space(&mut row, "alone", alone, taken);
    on_all(&server.target, alone, plan.clients, Step::Get).await?;
    Ok(rows)
}

/// What objects take, of what was taken before them, right after them, and when the store had packed them.
fn space(
    row: &mut impl FnMut(&str, &str, f64, &'static str),
    case: &str,
    objects: Objects,
    [empty, at_first, settled]: [Taken; 3],
) {
    let each = |all: u64, before: u64| (all as f64 - before as f64) / objects.count as f64;
    let ratio = |taken: Taken| (taken.bytes as f64 - empty.bytes as f64) / objects.bytes() as f64;
    row(case, "space_at_first_ratio", ratio(at_first), "x");
    row(case, "space_ratio", ratio(settled), "x");
    row(case, "files_per_object", each(settled.files, empty.files), "files");
    row(case, "records_per_object", each(settled.records_bytes, 0), "bytes");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Put,
    Get,
}

/// Does one step with every object once.
async fn on_all(target: &Target, objects: Objects, clients: usize, step: Step) -> anyhow::Result<Sample> {
    let progress = Progress::new(if step == Step::Put { "putting" } else { "reading back" }, objects.count as u64);
    let next = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let begin = Instant::now();
    let work = || {
        let (target, next) = (target.clone(), next.clone());
        tokio::spawn(async move {
            let mut connection = Connection::open(&target.authority).await?;
            let mut latencies = Vec::new();
            loop {
                let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if at >= objects.count {
                    return anyhow::Ok(latencies);
                }
                let (path, content) = (objects.path(at), objects.content(at));
                let start = Instant::now();
                let (method, body, expected) = match step {
                    Step::Put => (Method::PUT, http::full(content.clone()), None),
                    Step::Get => (Method::GET, http::empty(), Some(&content[..])),
                };
                load::request(&mut connection, &target, method, &path, body, expected).await?;
                latencies.push(start.elapsed());
            }
        })
    };
    let workers: Vec<_> = (0..clients).map(|_| work()).collect();
    let mut sample = Sample::default();
    for worker in workers {
        let latencies = worker.await.context("a client panicked")??;
        progress.step(latencies.len() as u64);
        sample.latencies.extend(latencies);
    }
    progress.end();
    sample.operations = sample.latencies.len() as u64;
    sample.seconds = begin.elapsed().as_secs_f64();
    Ok(sample)
}

/// Lists all objects in pages of 1000.
async fn list(target: &Target, objects: Objects) -> anyhow::Result<Sample> {
    let mut connection = Connection::open(&target.authority).await?;
    let mut sample = Sample::default();
    for first in (0..objects.count).step_by(1000) {
        let after = if first == 0 { String::new() } else { format!("{}%2F{:08}", objects.prefix, first - 1) };
        let path =
            format!("/{}?list-type=2&max-keys=1000&prefix={}%2F&start-after={after}", load::BUCKET, objects.prefix);
        let start = Instant::now();
        load::request(&mut connection, target, Method::GET, &path, http::empty(), None).await?;
        sample.latencies.push(start.elapsed());
    }
    Ok(sample)
}

/// What a store's directory takes of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Taken {
    /// Of files on disks.
    bytes: u64,
    /// Files on disks.
    files: u64,
    /// Of the records.
    records_bytes: u64,
}

fn taken(directory: &Path) -> anyhow::Result<Taken> {
    let mut taken = Taken::default();
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("disk") {
            let (bytes, files) = files_below(&entry.path())?;
            taken.bytes += bytes;
            taken.files += files;
        } else if name == "meta" {
            taken.records_bytes += files_below(&entry.path())?.0;
        }
    }
    ensure!(taken.files > 0, "{} has no disks", directory.display());
    Ok(taken)
}

/// What files below a directory take, and how many they are.
fn files_below(directory: &Path) -> anyhow::Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // A file that is deleted meanwhile takes nothing.
        let Ok(metadata) = entry.metadata() else { continue };
        let (more_bytes, more_files) =
            if metadata.is_dir() { files_below(&entry.path())? } else { (metadata.blocks() * 512, 1) };
        bytes += more_bytes;
        files += more_files;
    }
    Ok((bytes, files))
}

/// What is taken when that has not changed for a while.
async fn settled(directory: &Path, after: Duration) -> anyhow::Result<Taken> {
    let progress = Progress::new("waiting until the store has packed", 0);
    let begin = Instant::now();
    let (mut last, mut since) = (taken(directory)?, Instant::now());
    while since.elapsed() < after && begin.elapsed() < SETTLED_AT_LAST {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = taken(directory)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    progress.end();
    Ok(last)
}

/// Objects begin at different places of so many bytes.
const POOL_BYTES: usize = 8 << 20;
const SETTLED_AT_LAST: Duration = Duration::from_secs(600);
