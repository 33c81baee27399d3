//! Where a running store answers: `endpoint.json` in its directory, for the other commands.
//!
//! Invariants:
//! 1. It is written when all listeners accept, and removed on an orderly end. After a crash a stale file is left; who
//!    reads it finds out when nothing answers.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};

use crate::credentials::write_private;

/// Addresses and process of a running store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// S3.
    pub s3: SocketAddr,
    /// Admin API, metrics, health.
    pub console: SocketAddr,
    /// Block devices over TCP.
    #[serde(default)]
    pub nbd: Option<SocketAddr>,
    /// Whether that is with TLS.
    #[serde(default)]
    pub nbd_tls: bool,
    /// Block devices over a unix socket.
    #[serde(default)]
    pub nbd_socket: Option<PathBuf>,
    /// The region that clients sign for.
    pub region: String,
    /// The process.
    pub process: u32,
    /// The program's version.
    pub version: String,
}

impl Endpoint {
    fn path(directory: &Path) -> PathBuf {
        directory.join("endpoint.json")
    }

    /// Tells other commands.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, directory: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).expect("plain fields always serialise");
        write_private(&Endpoint::path(directory), text.as_bytes())
    }

    /// Where the store in `directory` answers.
    ///
    /// # Errors
    /// It does not run, or there is no store.
    pub fn load(directory: &Path) -> anyhow::Result<Endpoint> {
        let path = Endpoint::path(directory);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let here = directory.display();
                return Err(anyhow!(
                    "no store runs in {here}: start it with `claystone up {here}`, or name its directory"
                ));
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        serde_json::from_str(&text).with_context(|| format!("{} is damaged: restart the store", path.display()))
    }

    /// Takes it back.
    pub fn remove(directory: &Path) {
        // A stale file does no harm.
        let _ = fs::remove_file(Endpoint::path(directory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_back_and_taken_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Endpoint::load(directory.path()).expect_err("none runs").to_string();
        assert!(error.contains("claystone up"), "{error}");
        let endpoint = Endpoint {
            s3: "127.0.0.1:1".parse().expect("an address"),
            console: "127.0.0.1:2".parse().expect("an address"),
            nbd: None,
            nbd_tls: false,
            nbd_socket: Some(PathBuf::from("/run/nbd.sock")),
            region: "r".to_owned(),
            process: 3,
            version: "0".to_owned(),
        };
        endpoint.save(directory.path()).expect("saved");
        assert_eq!(Endpoint::load(directory.path()).expect("there"), endpoint);
        Endpoint::remove(directory.path());
        Endpoint::load(directory.path()).expect_err("gone");
    }
}
