//! A tree mounted at a directory: begins and ends.
//!
//! States: *served* (from [`Mount::start`] on) -> *ended*, by [`Mount::unmount`], by `umount` from outside, or by dropping.
//! Dropping a mount that is in use *detaches* it: it is gone from the directory, and who has files open in it is served until
//! the process ends.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use claystone_files::FileTree;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use futures::channel::oneshot;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::MountError;
use crate::bridge::Bridge;

/// How to mount. The default is what a person expects of a local file system.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What the table of mounts shows as the source: the device.
    pub source: String,
    /// Refuse all changes.
    pub read_only: bool,
    /// Let the kernel collect writes and send them later, merged. Small writes become fast; a full or broken disk shows at
    /// `fsync` or `close` only, and what was written and not synced is lost when this process is killed, not just when
    /// the machine stops.
    pub writeback: bool,
    /// Ignore set-user-id bits.
    pub nosuid: bool,
    /// Ignore device files.
    pub nodev: bool,
    /// Run no programs from it.
    pub noexec: bool,
    /// How many requests are served at once.
    pub threads: usize,
    /// What the root's attribute [`DESCRIPTION_ATTRIBUTE`] says; without one, there is no such attribute.
    pub description: Option<Description>,
}

/// Tells what is mounted, anew each time it is asked.
#[derive(Clone)]
pub struct Description(Arc<dyn Fn() -> Vec<u8> + Send + Sync>);

impl Description {
    /// From what is to be told: at most 64 KiB.
    pub fn new(tell: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Description {
        Description(Arc::new(tell))
    }

    /// What is told now.
    pub(crate) fn tell(&self) -> Vec<u8> {
        (self.0)()
    }
}

impl std::fmt::Debug for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Description")
    }
}

/// The name of the attribute that tells what is mounted. It is in no list of attributes, so that copies do not have it, and a
/// file may have one of this name; the root's is hidden.
pub const DESCRIPTION_ATTRIBUTE: &str = "user.claystone.info";

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            source: "claystone".to_owned(),
            read_only: false,
            writeback: false,
            nosuid: false,
            nodev: false,
            noexec: false,
            threads: THREADS,
            description: None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Mount {
    directory: PathBuf,
    session: Option<BackgroundSession>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Mount {
    /// Mounts `tree` at `directory`; when this returns, programs can use it.
    ///
    /// # Errors
    /// [`MountError::NoDevice`], [`MountError::NotRoot`], and what is wrong with the directory.
    ///
    /// # Panics
    /// If there is to be no thread.
    pub fn start(tree: Arc<dyn FileTree>, directory: &Path, options: &MountOptions) -> Result<Mount, MountError> {
        assert!(options.threads > 0, "somebody must serve");
        let directory = check_directory(directory)?;
        if rustix::fs::stat("/dev/fuse").is_err() {
            return Err(MountError::NoDevice);
        }
        let (ending, ended) = oneshot::channel();
        let bridge = Bridge::new(tree, options.writeback, options.description.clone(), ending);
        let session = Session::new(bridge, &directory, &config(options)).and_then(Session::spawn);
        let session = session.map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound if !is_root() => MountError::NotRoot { source },
            _ => MountError::Kernel { directory: directory.clone(), done: "mounted", source },
        })?;
        raise_read_ahead(&directory);
        Ok(Mount { directory, session: Some(session), ended: Some(ended) })
    }

    /// The directory, as an absolute path without links.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Completes when the mount has ended, by whomever. Only the first call returns a future.
    pub fn ended(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let ended = self.ended.take()?;
        // The other side is dropped, never used.
        Some(async { _ = ended.await })
    }

    /// Ends the mount: the kernel sends what it holds back, then nobody is served any more. An ended mount stays so.
    ///
    /// # Errors
    /// [`MountError::InUse`]: it is served as before.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        let Some(session) = &self.session else { return Ok(()) };
        if !session.guard.is_finished()
            && let Err(source) = take_away(&self.directory, UnmountFlags::empty())
        {
            match Errno::from_io_error(&source) {
                // Somebody else has unmounted it.
                Some(Errno::INVAL) => {}
                Some(Errno::BUSY) => return Err(MountError::InUse { directory: self.directory.clone() }),
                _ => return Err(self.unmount_failed(source)),
            }
        }
        let joined = self.session.take().map_or(Ok(()), BackgroundSession::join);
        joined.map_err(|source| self.unmount_failed(source))
    }

    /// Makes the kernel send what it holds back to the tree.
    ///
    /// # Errors
    /// [`MountError::Kernel`]: some of it was refused.
    pub fn flush(&self) -> Result<(), MountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.directory, flags, Mode::empty());
        let flushed = root.and_then(|root| rustix::fs::syncfs(&root));
        flushed.map_err(|errno| MountError::Kernel {
            directory: self.directory.clone(),
            done: "flushed",
            source: errno.into(),
        })
    }

    fn unmount_failed(&self, source: io::Error) -> MountError {
        MountError::Kernel { directory: self.directory.clone(), done: "unmounted", source }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        match self.unmount() {
            Ok(()) => {}
            Err(error @ MountError::InUse { .. }) => {
                tracing::warn!(%error, "detached");
                if let Err(error) = self.flush() {
                    tracing::error!(%error, "writes were lost");
                }
                if let Err(error) = take_away(&self.directory, UnmountFlags::DETACH) {
                    tracing::error!(%error, directory = %self.directory.display(), "not detached");
                }
            }
            Err(error) => tracing::error!(%error, "not unmounted"),
        }
    }
}

/// Unmounts; who is not root by the program that mounted for him.
///
/// # Errors
/// EBUSY, EINVAL and others of the kernel, or what the helper says.
#[expect(clippy::disallowed_methods, reason = "as fuser does to mount; no simulation mounts")]
fn take_away(directory: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(directory, flags) {
        Err(Errno::PERM) if !is_root() => {}
        done => return Ok(done?),
    }
    let lazily = flags.contains(UnmountFlags::DETACH).then_some("-z");
    let unmount = |helper: &OsStr| {
        let mut helper = Command::new(helper);
        helper.arg("-u").args(lazily).arg("--").arg(directory).env("LC_ALL", "C").stdin(Stdio::null()).output()
    };
    let chosen = std::env::var_os("FUSERMOUNT_PATH");
    let mut helpers = chosen.iter().map(OsString::as_os_str).chain(HELPERS.map(OsStr::new));
    let done = loop {
        match unmount(helpers.next().ok_or(Errno::PERM)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => break done?,
        }
    };
    let said = String::from_utf8_lossy(&done.stderr);
    match said.trim() {
        _ if done.status.success() => Ok(()),
        said if said.ends_with("Device or resource busy") => Err(Errno::BUSY.into()),
        said if said.contains("not found in /etc/mtab") || said.ends_with("Invalid argument") => {
            Err(Errno::INVAL.into())
        }
        said => Err(io::Error::other(said.to_owned())),
    }
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = if is_root() { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        // In the kernel's words: fuser 0.18 hands its own only to fusermount.
        MountOption::CUSTOM("subtype=claystone".to_owned()),
        MountOption::DefaultPermissions,
    ];
    let one_of = |on, option, otherwise| if on { option } else { otherwise };
    config.mount_options.extend([
        one_of(options.read_only, MountOption::RO, MountOption::RW),
        one_of(options.nosuid, MountOption::NoSuid, MountOption::Suid),
        one_of(options.nodev, MountOption::NoDev, MountOption::Dev),
        one_of(options.noexec, MountOption::NoExec, MountOption::Exec),
    ]);
    config
}

/// The directory as an absolute path without links, if something can be mounted there. A mount whose process died is taken
/// away: nobody can use it any more.
fn check_directory(directory: &Path) -> Result<PathBuf, MountError> {
    let named = directory.to_owned();
    // The attributes of its root may still be known; only a request shows that nobody answers.
    if matches!(rustix::fs::statfs(directory), Err(Errno::NOTCONN)) {
        tracing::warn!(directory = %named.display(), "a mount whose process died is taken away");
        let detached = take_away(directory, UnmountFlags::DETACH);
        detached.map_err(|_| MountError::Taken { directory: named.clone() })?;
    }
    let stat = match rustix::fs::stat(directory) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Err(MountError::Missing { directory: named }),
        Err(Errno::NOTDIR) => return Err(MountError::NotDirectory { directory: named }),
        Err(errno) => {
            return Err(MountError::Kernel { directory: named, done: "looked at", source: errno.into() });
        }
    };
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(MountError::NotDirectory { directory: named });
    }
    let failed = |source| MountError::Kernel { directory: named.clone(), done: "looked at", source };
    let absolute = directory.canonicalize().map_err(failed)?;
    // The root of a file system has another device than what is above it.
    let above = rustix::fs::stat(absolute.join("..")).map_err(|errno| failed(errno.into()))?;
    if above.st_dev != stat.st_dev || above.st_ino == stat.st_ino {
        return Err(MountError::Taken { directory: named });
    }
    Ok(absolute)
}

/// Lets the kernel read ahead so much that each thread of the default has a request: it gives new mounts 128 KiB. On a virtual
/// disk a sequential reader got 740 MiB/s with one request ahead and 850 to 1,300 with four. Where that cannot be set, reads
/// are slower, not wrong.
#[expect(clippy::disallowed_methods, reason = "a switch of the kernel, which no simulation has")]
fn raise_read_ahead(directory: &Path) {
    let Ok(stat) = rustix::fs::stat(directory) else { return };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let switch = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&switch, READ_AHEAD_KIB) {
        tracing::debug!(switch, %error, "reads ahead stay short");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// One would make everybody wait for the slowest sector. Measured with a tree in memory and four readers of 4 KiB: 6 us of
/// processor time a request on four threads, 11 us if each has a file of the device of its own, 14 us on one thread.
const THREADS: usize = 4;
/// What mounts and unmounts for those who are not root, in the order in which fuser looks for it.
const HELPERS: [&str; 6] =
    ["fusermount3", "fusermount", "/sbin/fusermount3", "/sbin/fusermount", "/bin/fusermount3", "/bin/fusermount"];
const READ_AHEAD_KIB: &str = "4096";
