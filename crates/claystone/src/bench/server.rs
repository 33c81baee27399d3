//! The servers that a benchmark starts: this program, and MinIO beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use claystone_code::Tier;
use rustix::process::{Pid, Signal, kill_process};

use super::load::{self, Target};
use crate::credentials::Credentials;
use crate::endpoint::Endpoint;
use crate::signature::Signer;

/// A server that runs until this is dropped.
pub struct Server {
    /// Its name in rows.
    pub name: &'static str,
    /// Where to send load.
    pub target: Target,
    /// From the start of the process to the first acknowledged PUT.
    pub first_put: Duration,
    child: Child,
}

impl Server {
    /// This program on six directories below `directory`, and one PUT.
    ///
    /// # Errors
    /// It does not start.
    pub async fn claystone(directory: &Path) -> anyhow::Result<Server> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let log = fs::File::create(directory.with_extension("log"))?;
        let begin = Instant::now();
        let child = Command::new(program)
            .arg("up")
            .arg(directory)
            .args(["--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"])
            .args(["--code-tier", &Tier::chosen().to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting this program as a server")?;
        let mut starting = Starting { name: "claystone", child: Some(child), log: directory.with_extension("log") };
        let endpoint = loop {
            if let Ok(endpoint) = Endpoint::load(directory) {
                break endpoint;
            }
            starting.check(begin)?;
            tokio::time::sleep(POLL).await;
        };
        let credentials = Credentials::load(directory)?.ok_or_else(|| anyhow!("the server made no credentials"))?;
        let signer = Signer {
            access_key: credentials.access_key,
            secret_key: credentials.secret_key,
            region: "us-east-1".to_owned(),
        };
        starting.until_put(Target { authority: endpoint.s3.to_string(), signer }, begin).await
    }

    /// MinIO at EC 4+2 on six directories below `directory`, and one PUT.
    ///
    /// # Errors
    /// It does not start.
    pub async fn minio(program: &Path, directory: &Path) -> anyhow::Result<Server> {
        let disks: Vec<PathBuf> = (1..=6).map(|disk| directory.join(format!("d{disk}"))).collect();
        for disk in &disks {
            fs::create_dir_all(disk)?;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let authority = format!("127.0.0.1:{port}");
        let log = fs::File::create(directory.with_extension("log"))?;
        let begin = Instant::now();
        let child = Command::new(program)
            .args(["server", "--address", &authority])
            .args(&disks)
            .envs([
                ("MINIO_CI_CD", "1"),
                ("MINIO_UPDATE", "off"),
                ("MINIO_CALLHOME_ENABLE", "off"),
                ("MINIO_BROWSER", "off"),
                ("MINIO_STORAGE_CLASS_STANDARD", "EC:2"),
                ("MINIO_ROOT_USER", PEER_USER),
                ("MINIO_ROOT_PASSWORD", PEER_PASSWORD),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let starting = Starting { name: "minio", child: Some(child), log: directory.with_extension("log") };
        let signer = Signer {
            access_key: PEER_USER.to_owned(),
            secret_key: PEER_PASSWORD.to_owned(),
            region: "us-east-1".to_owned(),
        };
        starting.until_put(Target { authority, signer }, begin).await
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Memory that it holds now.
    ///
    /// # Errors
    /// It is gone, or this is no Linux.
    pub fn memory_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
        Ok(kib << 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A server that does not answer yet.
struct Starting {
    name: &'static str,
    child: Option<Child>,
    log: PathBuf,
}

impl Starting {
    async fn until_put(mut self, target: Target, begin: Instant) -> anyhow::Result<Server> {
        while load::make_bucket(&target).await.is_err() {
            self.check(begin)?;
            tokio::time::sleep(POLL).await;
        }
        while load::put_one(&target).await.is_err() {
            self.check(begin)?;
            tokio::time::sleep(POLL).await;
        }
        let first_put = begin.elapsed();
        let child = self.child.take().expect("only this takes it");
        Ok(Server { name: self.name, target, first_put, child })
    }

    /// Whether there is still hope.
    fn check(&mut self, begin: Instant) -> anyhow::Result<()> {
        let child = self.child.as_mut().expect("taken at the end only");
        if let Some(status) = child.try_wait()? {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("{} ended at once ({status}); it said:\n{log}", self.name);
        }
        if begin.elapsed() > START_LIMIT {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("{} is not ready after {} s; it said:\n{log}", self.name, START_LIMIT.as_secs());
        }
        Ok(())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
    }
}

/// Asks a process to end, and makes it end if it does not within [`END_LIMIT`].
fn end(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let begin = Instant::now();
    while begin.elapsed() < END_LIMIT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::yield_now();
    }
    let _ = child.kill();
    let _ = child.wait();
}

const POLL: Duration = Duration::from_millis(5);
const START_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(10);
const PEER_USER: &str = "benchuser";
const PEER_PASSWORD: &str = "benchpassword";
