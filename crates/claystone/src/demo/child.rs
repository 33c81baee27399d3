//! This program as a store of its own process, which the demo can kill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use claystone_code::Tier;
use rustix::process::{Pid, Signal, kill_process};

use crate::admin::AdminClient;
use crate::credentials::Credentials;
use crate::endpoint::Endpoint;
use crate::signature::Signer;

/// A store that runs until this is dropped.
pub struct Child {
    process: std::process::Child,
    directory: PathBuf,
    /// `HOST:PORT` of S3.
    pub authority: String,
    /// Its first credentials.
    pub signer: Signer,
}

impl Child {
    /// Starts it, on free ports, and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(directory: &Path) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let log_path = directory.with_extension("log");
        let log = fs::File::options().create(true).append(true).open(&log_path)?;
        let process = Command::new(program)
            .arg("up")
            .arg(directory)
            .args(["--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", "--nbd-listen", "none"])
            .args(["--code-tier", &Tier::chosen().to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting this program as a server")?;
        let (begin, id) = (Instant::now(), process.id());
        let signer = Signer { access_key: String::new(), secret_key: String::new(), region: String::new() };
        let mut child = Child { process, directory: directory.to_owned(), authority: String::new(), signer };
        // A process that was killed has left its own endpoint there.
        let endpoint = loop {
            match Endpoint::load(directory) {
                Ok(endpoint) if endpoint.process == id => break endpoint,
                _ => {}
            }
            let said = || fs::read_to_string(&log_path).unwrap_or_default();
            if let Some(status) = child.process.try_wait()? {
                bail!("the store ended at once ({status}); it said:\n{}", said());
            }
            if begin.elapsed() > START_LIMIT {
                bail!("the store is not ready after {} s; it said:\n{}", START_LIMIT.as_secs(), said());
            }
            tokio::time::sleep(POLL).await;
        };
        let credentials = Credentials::load(directory)?.ok_or_else(|| anyhow!("the store made no credentials"))?;
        child.authority = endpoint.s3.to_string();
        child.signer =
            Signer { access_key: credentials.access_key, secret_key: credentials.secret_key, region: endpoint.region };
        Ok(child)
    }

    /// Its admin API.
    ///
    /// # Errors
    /// It does not run.
    pub fn admin(&self) -> anyhow::Result<AdminClient> {
        AdminClient::of(&self.directory)
    }

    /// Ends it without asking.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn kill(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the store ended by itself: {status}");
        }
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// It does not end in good order.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let begin = Instant::now();
        loop {
            match self.process.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the store ended with {status}"),
                None if begin.elapsed() > END_LIMIT => bail!("the store does not end"),
                None => tokio::time::sleep(POLL).await,
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const POLL: Duration = Duration::from_millis(20);
const START_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(30);
