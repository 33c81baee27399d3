//! Clients that read objects over S3 and compare their hashes, while the store under them is killed and started again.
//!
//! Invariants:
//! 1. A request that a kill cut off is made again, and is no error; any other failure is one.
//! 2. Other bytes than those stored are never excused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use hyper::{HeaderMap, Method, Request};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::http::{self, Connection};
use crate::signature::Signer;

/// Where the store is.
#[derive(Clone)]
pub struct Target {
    /// Which process it is: every start counts.
    pub start: u64,
    /// `HOST:PORT` of S3.
    pub authority: String,
    /// Its credentials.
    pub signer: Signer,
}

/// An object and what it holds.
#[derive(Debug, Clone)]
pub struct Known {
    /// `/BUCKET/KEY`.
    pub path: String,
    /// Of what was stored.
    pub sha256: Vec<u8>,
}

/// What readers have seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Objects read.
    pub reads: AtomicU64,
    /// Of these, with other bytes than those stored.
    pub wrong: AtomicU64,
    /// Requests that failed though nobody killed the store.
    pub errors: AtomicU64,
    /// Requests that a kill cut off, and that were made again.
    pub cut_off: AtomicU64,
    /// The first failure of each kind, in words.
    pub complaints: Mutex<Vec<String>>,
}

impl Seen {
    /// One of the counts.
    pub fn count(&self, of: impl Fn(&Seen) -> &AtomicU64) -> u64 {
        of(self).load(Ordering::Relaxed)
    }

    fn complain(&self, counter: &AtomicU64, what: String) {
        counter.fetch_add(1, Ordering::Relaxed);
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < COMPLAINTS_MAX {
            complaints.push(what);
        }
    }
}

/// One client with a connection of its own.
pub struct Reader {
    target: watch::Receiver<Option<Target>>,
    /// And the start of the process that it leads to.
    connection: Option<(u64, Connection)>,
    seen: Arc<Seen>,
}

impl Reader {
    /// A client of whatever `target` says; `None`: the store is down.
    pub fn new(target: watch::Receiver<Option<Target>>, seen: Arc<Seen>) -> Reader {
        Reader { target, connection: None, seen }
    }

    /// Reads an object and compares it. Waits while the store is down.
    ///
    /// # Errors
    /// The demo has ended.
    pub async fn read(&mut self, object: &Known) -> anyhow::Result<()> {
        for _ in 0..TRIES_MAX {
            let target = self.target.wait_for(Option::is_some).await?.clone();
            let target = target.expect("it was waited for");
            match self.get(&target, &object.path).await {
                Ok(body) => {
                    self.seen.reads.fetch_add(1, Ordering::Relaxed);
                    if Sha256::digest(&body)[..] != object.sha256[..] {
                        self.seen.complain(&self.seen.wrong, format!("{}: other bytes than those stored", object.path));
                    }
                    return Ok(());
                }
                Err(error) => {
                    self.connection = None;
                    // Whoever kills the store says so before.
                    if !self.target.has_changed()? {
                        self.seen.complain(&self.seen.errors, format!("{}: {error:#}", object.path));
                        return Ok(());
                    }
                    self.seen.cut_off.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.seen.complain(&self.seen.errors, format!("{}: it was never answered", object.path));
        Ok(())
    }

    async fn get(&mut self, target: &Target, path: &str) -> anyhow::Result<Bytes> {
        let mut connection = match self.connection.take() {
            Some((start, connection)) if start == target.start => connection,
            _ => Connection::open(&target.authority).await?,
        };
        let (_, body) = request(&mut connection, target, Method::GET, path, Bytes::new()).await?;
        self.connection = Some((target.start, connection));
        Ok(body)
    }
}

/// One request; its answer's head and body.
///
/// # Errors
/// The store refused, or is not there.
pub async fn request(
    connection: &mut Connection,
    target: &Target,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<(HeaderMap, Bytes)> {
    let what = format!("{method} {path}");
    let mut request =
        Request::builder().method(method).uri(path).header("host", &target.authority).body(http::full(body))?;
    target.signer.sign(&mut request);
    let answered = async {
        let response = connection.send(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = http::collect(response, BODY_BYTES_MAX).await?;
        if !status.is_success() {
            bail!("the store answers {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok((headers, body))
    };
    let answered = tokio::time::timeout(ANSWER_LIMIT, answered).await;
    answered.with_context(|| format!("{what}: no answer within {} s", ANSWER_LIMIT.as_secs()))?.context(what)
}

const BODY_BYTES_MAX: usize = 64 << 20;
/// Longer than a disk in trouble takes.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const TRIES_MAX: usize = 20;
const COMPLAINTS_MAX: usize = 10;
