//! Clients of other makers on volumes of their own: fio writes and verifies later, and an image of a file system is copied
//! in, copied out and checked, both over kills and losses in between.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::rig::Rig;
use crate::running::repository;
use crate::running::store::{Draw, system};

/// fio: writes a volume full, and finds it so some kills later.
pub struct Fio {
    volume: String,
    pattern: usize,
    seed: u64,
    state: Fill,
    /// Times that everything was found as it was written.
    pub verified: u64,
}

/// An image of a file system, of two that are copied one over the other.
pub struct Image {
    volume: String,
    images: [PathBuf; 2],
    /// The one that is copied, or was copied last.
    which: usize,
    state: Fill,
    by_qemu: bool,
    /// Pages that were found to be of the one or the other after a copy that was cut off.
    pub mixed_checks: u64,
    /// Times that the file system was found whole.
    pub verified: u64,
}

/// What is known of a volume.
enum Fill {
    /// It holds anything.
    Unknown,
    /// It is being written.
    Writing(Child),
    /// It was written and flushed, so many kills ago.
    Written(u64),
    /// What wrote it was cut off.
    Cut,
}

impl Fill {
    /// Before the store ends: what has come to its end by now was flushed.
    fn before_end(&mut self) -> Result<(), String> {
        if let Fill::Writing(child) = self
            && let Some(ended) = child.try_wait().expect("it is ours")
        {
            if !ended.success() {
                return Err(format!("a client ended with {ended}, and the store was there"));
            }
            *self = Fill::Written(0);
        }
        Ok(())
    }

    /// After the end.
    fn after_end(&mut self) {
        match self {
            Fill::Writing(child) => {
                // The store is gone; fio might wait for it.
                let _ = child.kill();
                let _ = child.wait();
                *self = Fill::Cut;
            }
            Fill::Written(kills) => *kills += 1,
            Fill::Unknown | Fill::Cut => {}
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if let Fill::Writing(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Fio {
    /// None where it is not installed.
    pub fn new(rig: &mut Rig, code: &str) -> Option<Fio> {
        installed("fio")?;
        let volume = "fio".to_owned();
        rig.make_volume(&volume, code, FIO_BYTES, 4096);
        Some(Fio { volume, pattern: 0, seed: 0, state: Fill::Unknown, verified: 0 })
    }

    fn command(&self, rig: &Rig) -> Command {
        let mut command = Command::new("fio");
        command.current_dir(rig.scratch.path("")).stdin(Stdio::null());
        command.args(["--name=soak", "--ioengine=nbd", "--thread", "--verify=crc32c", "--verify_fatal=1"]);
        command.args(["--verify_state_save=0", &format!("--size={FIO_BYTES}"), &format!("--randseed={}", self.seed)]);
        command.arg(format!("--uri={}", rig.uri(&self.volume)));
        command.args(FIO_PATTERNS[self.pattern]);
        command
    }

    /// While the store serves, before others begin.
    ///
    /// # Errors
    /// Something else was read than was written.
    pub fn work(&mut self, rig: &Rig, draw: &mut Draw, is_last: bool) -> Result<(), String> {
        match self.state {
            Fill::Written(kills) if kills > 2 || is_last => {
                run(self.command(rig).arg("--verify_only"))?;
                self.verified += 1;
                self.state = Fill::Unknown;
            }
            Fill::Unknown | Fill::Cut if !is_last => {
                (self.seed, self.pattern) = (draw.next() >> 1, draw.below(FIO_PATTERNS.len() as u64) as usize);
                let mut command = self.command(rig);
                command.args(["--do_verify=0", "--end_fsync=1"]).stdout(Stdio::null()).stderr(Stdio::null());
                self.state = Fill::Writing(command.spawn().expect("it starts"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Before the store ends.
    ///
    /// # Errors
    /// fio failed.
    pub fn before_end(&mut self) -> Result<(), String> {
        self.state.before_end().map_err(|error| format!("fio: {error}"))
    }

    /// After it ended.
    pub fn after_end(&mut self) {
        self.state.after_end();
    }
}

impl Image {
    /// None where one of its programs is not installed.
    pub fn new(rig: &mut Rig, code: &str) -> Option<Image> {
        ["nbdcopy", "qemu-img", "mke2fs", "e2fsck"].into_iter().try_for_each(installed)?;
        let trees = [repository().join("docs"), repository().join("crates/volume")];
        let images = [rig.scratch.path("image0"), rig.scratch.path("image1")];
        for (image, tree) in images.iter().zip(trees) {
            let made = Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(tree).arg(image).arg("12M").output();
            assert!(made.expect("it starts").status.success(), "no image could be made");
        }
        let volume = "ext4".to_owned();
        rig.make_volume(&volume, code, fs::metadata(&images[0]).expect("made").len(), 4096);
        let state = Fill::Unknown;
        Some(Image { volume, images, which: 0, state, by_qemu: false, mixed_checks: 0, verified: 0 })
    }

    /// While the store serves, before others begin.
    ///
    /// # Errors
    /// Something else was read than was written.
    pub fn work(&mut self, rig: &Rig, draw: &mut Draw, is_last: bool) -> Result<(), String> {
        match self.state {
            Fill::Written(kills) if kills > 2 || is_last => {
                let out = self.copy_out(rig)?;
                run(Command::new("cmp").arg(&self.images[self.which]).arg(&out))?;
                run(Command::new("e2fsck").arg("-fn").arg(&out))?;
                fs::remove_file(out).expect("removed");
                self.verified += 1;
                self.state = Fill::Unknown;
                Ok(())
            }
            Fill::Cut => {
                let out = self.copy_out(rig)?;
                self.check_mixed(&out)?;
                fs::remove_file(out).expect("removed");
                self.mixed_checks += 1;
                self.begin(rig, draw);
                Ok(())
            }
            Fill::Unknown if !is_last => {
                self.begin(rig, draw);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, rig: &Rig, draw: &mut Draw) {
        // After a copy that was cut off the same goes on, so that there are never three.
        if !matches!(self.state, Fill::Cut) {
            self.which = 1 - self.which;
        }
        self.by_qemu = draw.below(2) == 0;
        let (image, uri) = (&self.images[self.which], rig.uri(&self.volume));
        let mut command = if self.by_qemu {
            let mut command = Command::new("qemu-img");
            command.args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(image).arg(uri);
            command
        } else {
            let mut command = Command::new("nbdcopy");
            command.arg("--flush").arg(image).arg(uri);
            command
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.state = Fill::Writing(command.spawn().expect("it starts"));
    }

    fn copy_out(&self, rig: &Rig) -> Result<PathBuf, String> {
        let out = rig.scratch.path("image-out");
        let _ = fs::remove_file(&out);
        run(Command::new("nbdcopy").arg(rig.uri(&self.volume)).arg(&out))?;
        Ok(out)
    }

    /// Every page is of the one image or of the other, or was never written.
    fn check_mixed(&self, out: &Path) -> Result<(), String> {
        let open = |path: &Path| fs::File::open(path).expect("there");
        let (images, out) = (self.images.each_ref().map(|path| open(path)), open(out));
        let pages = out.metadata().expect("there").len() / 4096;
        let page = |file: &fs::File, at: u64| {
            let mut bytes = [0; 4096];
            file.read_exact_at(&mut bytes, at * 4096).map(|()| bytes).expect("as long as the volume")
        };
        let never = if self.verified == 0 { Some([0; 4096]) } else { None };
        for at in 0..pages {
            let found = page(&out, at);
            if !images.iter().any(|image| page(image, at) == found) && never != Some(found) {
                return Err(format!("page {at} of {} is of neither image", self.volume));
            }
        }
        Ok(())
    }

    /// Before the store ends.
    ///
    /// # Errors
    /// The copy failed.
    pub fn before_end(&mut self) -> Result<(), String> {
        let by = if self.by_qemu { "qemu-img" } else { "nbdcopy" };
        self.state.before_end().map_err(|error| format!("{by}: {error}"))
    }

    /// After it ended.
    pub fn after_end(&mut self) {
        self.state.after_end();
    }
}

fn installed(program: &str) -> Option<()> {
    system("sh", &["-c", &format!("command -v {program}")]).then_some(())
}

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    if output.status.success() {
        return Ok(());
    }
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{command:?} failed: {said}{complained}"))
}

const FIO_BYTES: u64 = 2 << 20;
const FIO_PATTERNS: [&[&str]; 3] = [
    &["--rw=randwrite", "--bs=4k", "--iodepth=16"],
    &["--rw=randwrite", "--bs=12k", "--iodepth=8"],
    &["--rw=write", "--bs=64k", "--iodepth=4"],
];
