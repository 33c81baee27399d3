//! Load on an S3 server: workers with one connection each, in a closed loop.
//!
//! Invariants:
//! 1. Every server gets the same requests from the same client code.
//! 2. A response that is not a success, or bytes that are not those written, end the benchmark.
//! 3. An operation that began before the deadline counts, and so does the time until the last one has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, Request};

use crate::http::{self, Connection};
use crate::signature::Signer;

/// A server under load.
#[derive(Clone)]
pub struct Target {
    /// `HOST:PORT`.
    pub authority: String,
    /// Its credentials.
    pub signer: Signer,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Objects under new names.
    Put,
    /// Objects written before.
    Get,
}

/// One kind of load.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What is done.
    pub operation: Operation,
    /// With objects of this size.
    pub object_bytes: usize,
    /// Its name.
    pub size: &'static str,
    /// Connections at once.
    pub workers: usize,
    /// Objects that a GET chooses from.
    pub objects: usize,
}

impl Case {
    /// As rows name it.
    pub fn name(&self) -> String {
        let operation = match self.operation {
            Operation::Put => "put",
            Operation::Get => "get",
        };
        format!("{operation} {}", self.size)
    }
}

/// What one round measured.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Operations that ended.
    pub operations: u64,
    /// Time from the first request to the last response.
    pub seconds: f64,
    /// Time of each operation.
    pub latencies: Vec<Duration>,
}

impl Sample {
    /// Adds what was measured behind it.
    pub fn add(&mut self, more: Sample) {
        self.operations += more.operations;
        self.seconds += more.seconds;
        self.latencies.extend(more.latencies);
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// The time that `share` of the operations stay below.
    pub fn percentile_ms(&self, share: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    }
}

/// One round of a case: returns its sample. What a PUT round wrote is deleted again, outside the measurement.
///
/// # Errors
/// The server refused a request, answered with other bytes, or went away.
pub async fn round(target: &Target, case: Case, number: usize, length: Duration) -> anyhow::Result<Sample> {
    let content = content(case.object_bytes);
    let begin = Instant::now();
    let workers: Vec<_> = (0..case.workers)
        .map(|worker| tokio::spawn(work(target.clone(), case, (number, worker), content.clone(), begin + length)))
        .collect();
    let mut sample = Sample::default();
    let mut written = Vec::new();
    let mut end = begin;
    for worker in workers {
        let done = worker.await.context("a worker panicked")??;
        sample.latencies.extend(done.latencies);
        written.extend(done.written);
        end = end.max(done.end);
    }
    sample.operations = sample.latencies.len() as u64;
    sample.seconds = (end - begin).as_secs_f64();
    let mut connection = Connection::open(&target.authority).await?;
    for path in written {
        request(&mut connection, target, Method::DELETE, &path, http::empty(), None).await?;
    }
    Ok(sample)
}

/// Writes the objects that GET rounds of this case read.
///
/// # Errors
/// As for [`round`].
pub async fn prepare(target: &Target, case: Case) -> anyhow::Result<()> {
    let content = content(case.object_bytes);
    let mut connection = Connection::open(&target.authority).await?;
    for object in 0..case.objects {
        let path = read_path(case, object);
        request(&mut connection, target, Method::PUT, &path, http::full(content.clone()), None).await?;
    }
    Ok(())
}

/// Makes the bucket that all loads use; fails while the server is not ready.
///
/// # Errors
/// The server refused or is not there.
pub async fn make_bucket(target: &Target) -> anyhow::Result<()> {
    let mut connection = Connection::open(&target.authority).await?;
    request(&mut connection, target, Method::PUT, &format!("/{BUCKET}"), http::empty(), None).await
}

/// Writes one small object.
///
/// # Errors
/// The server refused or is not there.
pub async fn put_one(target: &Target) -> anyhow::Result<()> {
    let mut connection = Connection::open(&target.authority).await?;
    let body = http::full(content(4096));
    request(&mut connection, target, Method::PUT, &format!("/{BUCKET}/first"), body, None).await
}

struct Done {
    latencies: Vec<Duration>,
    written: Vec<String>,
    end: Instant,
}

async fn work(
    target: Target,
    case: Case,
    (round, worker): (usize, usize),
    content: Bytes,
    deadline: Instant,
) -> anyhow::Result<Done> {
    let mut connection = Connection::open(&target.authority).await?;
    let mut done = Done { latencies: Vec::new(), written: Vec::new(), end: Instant::now() };
    let mut turn = 0;
    while Instant::now() < deadline {
        let start = Instant::now();
        match case.operation {
            Operation::Put => {
                let path = format!("/{BUCKET}/put-{}-{round}-{worker}-{turn}", case.size);
                request(&mut connection, &target, Method::PUT, &path, http::full(content.clone()), None).await?;
                done.written.push(path);
            }
            Operation::Get => {
                // Workers begin at different objects; each goes round all of them.
                let path = read_path(case, (turn + worker * case.objects / case.workers) % case.objects);
                request(&mut connection, &target, Method::GET, &path, http::empty(), Some(&content)).await?;
            }
        }
        done.end = Instant::now();
        done.latencies.push(done.end - start);
        turn += 1;
    }
    Ok(done)
}

pub(super) async fn request(
    connection: &mut Connection,
    target: &Target,
    method: Method,
    path: &str,
    body: http::Body,
    expected: Option<&[u8]>,
) -> anyhow::Result<()> {
    let what = format!("{method} {path}");
    let mut request = Request::builder().method(method).uri(path).header("host", &target.authority).body(body)?;
    target.signer.sign(&mut request);
    let response = connection.send(request).await.with_context(|| what.clone())?;
    let status = response.status();
    if !status.is_success() {
        let text = http::collect(response, 64 << 10).await.unwrap_or_default();
        bail!("{what}: the server answers {status}: {}", String::from_utf8_lossy(&text));
    }
    let mut body = response.into_body();
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.with_context(|| what.clone())?;
        let (Some(data), Some(expected)) = (frame.data_ref(), expected) else { continue };
        ensure!(expected[at..].starts_with(data), "{what}: other bytes than those written, from byte {at} on");
        at += data.len();
    }
    ensure!(expected.is_none_or(|expected| at == expected.len()), "{what}: the answer ended after {at} bytes");
    Ok(())
}

fn read_path(case: Case, object: usize) -> String {
    format!("/{BUCKET}/get-{}-{object}", case.size)
}

/// Bytes that do not compress (xorshift), the same in every run; each size is made once.
pub(super) fn content(bytes: usize) -> Bytes {
    use std::collections::BTreeMap;
    use std::sync::{LazyLock, Mutex, PoisonError};
    static MADE: LazyLock<Mutex<BTreeMap<usize, Bytes>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(bytes)
        .or_insert_with(|| {
            let mut state = 0x9E37_79B9_7F4A_7C15_u64;
            let mut content = Vec::with_capacity(bytes + 8);
            while content.len() < bytes {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                content.extend_from_slice(&state.to_le_bytes());
            }
            content.truncate(bytes);
            Bytes::from_owner(Arc::<[u8]>::from(content))
        })
        .clone()
}

pub(super) const BUCKET: &str = "bench";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let latencies = (1..=1000).map(Duration::from_millis).collect();
        let sample = Sample { operations: 1000, seconds: 2.0, latencies };
        assert_eq!(sample.rate(), 500.0);
        assert_eq!(sample.percentile_ms(0.5), 500.0);
        assert_eq!(sample.percentile_ms(0.99), 990.0);
        assert_eq!(sample.percentile_ms(0.999), 999.0);
        assert_eq!(Sample::default().percentile_ms(0.5), 0.0);
    }

    #[test]
    fn content_has_its_length_and_repeats_in_no_sector() {
        let content = content(10_001);
        assert_eq!(content.len(), 10_001);
        assert_ne!(content[..4096], content[4096..8192]);
    }
}
