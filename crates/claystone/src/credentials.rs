//! The store's first credentials: made at the first start, kept in `credentials.json` for this user only.
//!
//! Invariants:
//! 1. The file is readable by its owner alone from the instant it exists.
//! 2. It is whole or absent: it is written beside its place, synced and renamed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use claystone_env::Random;
use serde::{Deserialize, Serialize};

/// What gives access to a store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// S3 access key.
    pub access_key: String,
    /// S3 secret key.
    pub secret_key: String,
    /// Token of the admin API.
    pub admin_token: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The file's place.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("credentials.json")
    }

    /// The credentials of a store, or `None` before its first start.
    ///
    /// # Errors
    /// The file cannot be read, others can read it, or it is not what this program writes.
    pub fn load(directory: &Path) -> anyhow::Result<Option<Credentials>> {
        let path = Credentials::path(directory);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        let mode = fs::metadata(&path)?.mode() & 0o777;
        ensure!(
            mode & 0o077 == 0,
            "{} can be read by others (mode {mode:o}): run `chmod 600 {}`, and replace the keys if somebody may have seen them",
            path.display(),
            path.display()
        );
        let credentials = serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged: restore it, or remove it to get new credentials", path.display())
        })?;
        Ok(Some(credentials))
    }

    /// Makes and keeps new ones.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(directory: &Path, random: &dyn Random) -> anyhow::Result<Credentials> {
        let credentials = Credentials {
            access_key: format!("CS{}", text(random, UPPER, 18)),
            secret_key: text(random, MIXED, 40),
            admin_token: text(random, MIXED, 40),
        };
        let text = serde_json::to_string_pretty(&credentials).expect("texts always serialise");
        write_private(&Credentials::path(directory), text.as_bytes())?;
        Ok(credentials)
    }
}

/// A new access key and its secret, as [`Credentials::create`] makes them.
pub fn new_key(random: &dyn Random) -> (String, String) {
    (format!("CS{}", text(random, UPPER, 18)), text(random, MIXED, 40))
}

/// Writes a file for this user only, whole or not at all.
///
/// # Errors
/// It cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        // A left-over of a crash may have other permissions.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

fn text(random: &dyn Random, alphabet: &[u8], letters: usize) -> String {
    (0..letters).map(|_| alphabet[random.below(alphabet.len() as u64) as usize] as char).collect()
}

const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const MIXED: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use claystone_host::HostRandom;

    use super::*;

    #[test]
    fn are_kept_private_and_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let random = HostRandom::from_system().expect("random bytes");
        assert_eq!(Credentials::load(directory.path()).expect("no file is fine"), None);
        let made = Credentials::create(directory.path(), &random).expect("created");
        assert_eq!(made.access_key.len(), 20);
        assert_eq!(Credentials::load(directory.path()).expect("readable"), Some(made.clone()));
        let path = Credentials::path(directory.path());
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
        let error = Credentials::load(directory.path()).expect_err("others can read it").to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        write_private(&Credentials::path(directory.path()), b"{\"access_key\":").expect("written");
        assert!(format!("{:#}", Credentials::load(directory.path()).expect_err("damaged")).contains("damaged"));
    }
}
