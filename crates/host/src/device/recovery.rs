//! How long a drive tries to read or write a sector before it reports it, read and set with `smartctl`.
//!
//! A drive left alone tries for seconds, some for minutes. SATA drives made for arrays can be told to give up sooner:
//! SCT error recovery control, a limit of tenths of a second for all reads and one for all writes, which the drive
//! forgets when it loses power. The tool that administrators set it with does it here too, rather than SG_IO commands of
//! our own: it knows the ways to a drive (SATA, SAS expanders, USB bridges) and their faults.
//!
//! Invariants:
//! 1. [`ErrorRecovery::Limited`] is said only of what the drive itself answered after its last change here.
//! 2. The tool is called for a drive that the system reaches by its SCSI layer, and for nothing else; without
//!    [`RecoveryLimits`] it only asks.
//! 3. A call takes at most [`ANSWER_MAX`] and [`KILLED_MAX`], and at most [`ANSWER_BYTES_MAX`] of its answer are read.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::drive::{Attachment, Drive};

/// How long a drive tries before it reports a sector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorRecovery {
    /// As long as the drive said, in milliseconds, of reads and of writes; at least one has a limit, and `None` has none.
    Limited {
        /// The limit of a read.
        read_ms: Option<u32>,
        /// The limit of a write.
        write_ms: Option<u32>,
    },
    /// As long as the drive likes. It can be limited.
    Unlimited,
    /// As long as the drive likes, or there is no drive: nothing can be limited.
    Unsupported {
        /// Why, as a sentence without its dot.
        why: &'static str,
    },
    /// Not known; it may be limited.
    Unknown {
        /// Why, as a sentence without its dot.
        why: String,
    },
}

impl ErrorRecovery {
    /// Whether reads end after a time that the drive told.
    pub fn limits_reads(&self) -> bool {
        matches!(self, ErrorRecovery::Limited { read_ms: Some(_), .. })
    }
}

impl fmt::Display for ErrorRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |limit: Option<u32>| match limit {
            Some(ms) => format!("at most {}.{} s", ms / 1000, ms % 1000 / 100),
            None => "without a limit".to_owned(),
        };
        match self {
            ErrorRecovery::Limited { read_ms, write_ms } => {
                write!(f, "the drive tries to read a sector {}, to write one {}", limit(*read_ms), limit(*write_ms))
            }
            ErrorRecovery::Unlimited => f.write_str("the drive tries without a limit; it can be told one"),
            ErrorRecovery::Unsupported { why } => write!(f, "no limit can be told: {why}"),
            ErrorRecovery::Unknown { why } => write!(f, "not known: {why}"),
        }
    }
}

/// Limits to tell a drive. They hold for all that use the drive, until it loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryLimits {
    read_deciseconds: u32,
    write_deciseconds: u32,
}

impl RecoveryLimits {
    /// Limits for reads and writes in milliseconds, rounded up to tenths of a second; `None` lifts a limit. Most drives
    /// take 6.5 s and more, and many 7 s or none only.
    ///
    /// Returns `None` for a limit of 0, which a drive takes for none, and for one above 99.9 s.
    pub fn new(read_ms: Option<u32>, write_ms: Option<u32>) -> Option<RecoveryLimits> {
        let deciseconds = |limit: Option<u32>| match limit.map(|ms| ms.div_ceil(100)) {
            None => Some(0),
            Some(limit) => Some(limit).filter(|limit| (1..=999).contains(limit)),
        };
        Some(RecoveryLimits { read_deciseconds: deciseconds(read_ms)?, write_deciseconds: deciseconds(write_ms)? })
    }
}

/// Where the tool and the drives are.
#[derive(Debug, Clone)]
pub(super) struct Smartctl {
    program: PathBuf,
    /// What comes before our own arguments.
    arguments: Vec<PathBuf>,
    dev: PathBuf,
    answer_max: Duration,
}

impl Default for Smartctl {
    fn default() -> Smartctl {
        Smartctl { program: "smartctl".into(), arguments: Vec::new(), dev: "/dev".into(), answer_max: ANSWER_MAX }
    }
}

impl Smartctl {
    /// Asks the drive for its limits. If it has none and some are given, it is told them, and asked which hold then.
    pub fn recovery(&self, drive: &Drive, limits: Option<RecoveryLimits>) -> ErrorRecovery {
        let why = match drive.attachment {
            Attachment::Scsi => "",
            Attachment::Nvme => "NVMe drives are told otherwise, which is not done here",
            Attachment::Other => "the system reaches it neither as a SATA nor as a SAS drive",
            Attachment::Made => "it is made of files or other devices; look at those",
        };
        if !why.is_empty() {
            return ErrorRecovery::Unsupported { why };
        }
        let path = drive.path(&self.dev);
        let ask = || match self.call("scterc", &path) {
            Ok(answer) => answer.recovery(),
            Err(why) => ErrorRecovery::Unknown { why },
        };
        let mut found = ask();
        if let Some(limits) = limits.filter(|_| found == ErrorRecovery::Unlimited) {
            // What it answers to this is what it was told. Whether that holds, the next answer says.
            let told = format!("scterc,{},{}", limits.read_deciseconds, limits.write_deciseconds);
            let answer = self.call(&told, &path);
            if let Err(why) = answer.and_then(|answer| answer.check()) {
                tracing::warn!(drive = drive.name, why, "the drive did not take a limit of its error recovery");
            }
            found = ask();
        }
        found
    }

    /// Calls the tool for one of its logs. An error is a sentence.
    fn call(&self, log: &str, drive: &Path) -> Result<Answer, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg("-l").arg(log).arg("--json").arg(drive);
        // Where the tool usually is; services and users often look elsewhere only.
        command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")).env("LC_ALL", "C");
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "smartctl is not installed (smartmontools)".to_owned(),
            _ => format!("smartctl does not start: {error}"),
        })?;
        let answer = answer_within(child, self.answer_max)
            .ok_or_else(|| format!("smartctl did not answer within {} s", self.answer_max.as_secs()))?;
        serde_json::from_slice(&answer)
            .map_err(|_| "smartctl answers no JSON; it takes version 7.0 or later".to_owned())
    }
}

/// What a child prints until it ends; `None` if it takes too long, and then it is killed.
fn answer_within(mut child: Child, time: Duration) -> Option<Vec<u8>> {
    let (answers, answer) = mpsc::channel();
    let printed: ChildStdout = child.stdout.take().expect("it is piped");
    let read = move || {
        let mut bytes = Vec::new();
        let read = printed.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        // Nobody waits for it any more.
        let _ = answers.send(read.ok().map(|_| bytes));
    };
    let reader = std::thread::Builder::new().name("smartctl".to_owned()).spawn(read);
    let (begun, mut killed) = (Instant::now(), reader.is_err());
    if killed {
        let _ = child.kill();
    }
    // What the tool printed is complete when it has ended, and it cannot end before it is read.
    loop {
        match child.try_wait() {
            Ok(Some(_)) if killed => return None,
            Ok(Some(_)) => return answer.recv_timeout(KILLED_MAX).ok()?,
            Ok(None) if begun.elapsed() < time => std::thread::sleep(LOOK_AGAIN),
            Ok(None) if begun.elapsed() < time + KILLED_MAX => {
                killed = true;
                let _ = child.kill();
                std::thread::sleep(LOOK_AGAIN);
            }
            // A command to the drive that does not end holds it; the system ends it some day.
            Ok(None) | Err(_) => return None,
        }
    }
}

/// What the tool prints, as far as we read it.
#[derive(Debug, Deserialize)]
struct Answer {
    smartctl: Call,
    device: Option<Asked>,
    ata_sct_erc: Option<Timers>,
}

#[derive(Debug, Deserialize)]
struct Call {
    /// Bits: 0 for a bad call, 1 for a drive that does not open, 2 for a command that failed; higher ones tell of the
    /// drive's health.
    exit_status: u32,
    #[serde(default)]
    messages: Vec<Message>,
}

#[derive(Debug, Deserialize)]
struct Message {
    string: String,
}

#[derive(Debug, Deserialize)]
struct Asked {
    protocol: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Timers {
    read: Timer,
    write: Timer,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Timer {
    enabled: bool,
    deciseconds: Option<u32>,
}

impl Answer {
    /// Whether the call worked, or what did not, as a sentence.
    fn check(&self) -> Result<(), String> {
        match self.smartctl.exit_status & 0b111 {
            0 => Ok(()),
            failed => Err(match self.smartctl.messages.first() {
                Some(message) => format!("smartctl says: {}", message.string.trim()),
                None if failed & 0b11 == 0 => "a command to the drive failed".to_owned(),
                None => format!("smartctl failed with status {}", self.smartctl.exit_status),
            }),
        }
    }

    fn recovery(&self) -> ErrorRecovery {
        if let Err(why) = self.check() {
            return ErrorRecovery::Unknown { why };
        }
        let limit = |timer: Timer| match (timer.enabled, timer.deciseconds) {
            (false, _) => Ok(None),
            (true, Some(limit)) if limit > 0 => Ok(Some(limit.saturating_mul(100))),
            (true, _) => Err(()),
        };
        let protocol = self.device.as_ref().and_then(|device| device.protocol.as_deref());
        match &self.ata_sct_erc {
            Some(timers) => match (limit(timers.read), limit(timers.write)) {
                (Ok(None), Ok(None)) => ErrorRecovery::Unlimited,
                (Ok(read_ms), Ok(write_ms)) => ErrorRecovery::Limited { read_ms, write_ms },
                _ => ErrorRecovery::Unknown { why: "smartctl tells of a limit without its length".to_owned() },
            },
            None if protocol == Some("ATA") => {
                ErrorRecovery::Unsupported { why: "the drive has no SCT error recovery control" }
            }
            None if protocol.is_some() => {
                ErrorRecovery::Unsupported { why: "only SATA drives have SCT error recovery control" }
            }
            None => ErrorRecovery::Unknown { why: "smartctl tells nothing of the drive".to_owned() },
        }
    }
}

/// How long the tool may take: a drive that sleeps takes some ten seconds to turn again.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// How long to wait for what was killed, or for the last bytes of an answer.
const KILLED_MAX: Duration = Duration::from_secs(1);

const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Answers have about a thousand bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
