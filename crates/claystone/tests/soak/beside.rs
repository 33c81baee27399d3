//! Clients of other makers on a volume of two homes: fio writes its strand and verifies it later, and an image of a file
//! system is copied into the other, copied out and checked, both over kills and losses in between; so are snapshots of both.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::rig::Rig;
use crate::running::repository;
use crate::running::store::{Draw, system};

/// fio and the image, each on a strand of one volume: what the one writes shares stripes with what the other does.
pub struct Beside {
    /// None where it is not installed.
    fio: Option<Fio>,
    /// None where one of its programs is not installed.
    image: Option<Image>,
    snapshot: Option<Kept>,
    looked: Looked,
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looked {
    /// Times that fio found everything as it wrote it.
    pub fio: u64,
    /// Times that the file system was found whole.
    pub images: u64,
    /// Copies that were cut off, or of which a snapshot was taken before their end: pages of the one image or of the other.
    pub images_mixed: u64,
    /// Snapshots in which one or the other of this was found.
    pub snapshots: u64,
}

impl Looked {
    /// Adds another's counts.
    pub fn add(&mut self, other: Looked) {
        self.fio += other.fio;
        self.images += other.images;
        self.images_mixed += other.images_mixed;
        self.snapshots += other.snapshots;
    }
}

/// A snapshot of the volume, and what it must hold.
struct Kept {
    name: String,
    fio: Option<Job>,
    image: Option<Held>,
    /// Ends of the store since it was taken.
    ends: u64,
}

impl Beside {
    /// With a volume of two homes, if there is a client for it.
    pub fn new(rig: &mut Rig, code: &str, homes: [&str; 2]) -> Beside {
        let fio = installed("fio").map(|()| Fio::new(strand(homes[0])));
        let image = Image::new(rig, strand(homes[1]));
        if fio.is_some() || image.is_some() {
            rig.make_volume_with_homes(PAIR, code, 2 * (IMAGE_MIB << 20), &homes);
        }
        Beside { fio, image, snapshot: None, looked: Looked::default() }
    }

    /// While the store serves, before others begin.
    ///
    /// # Errors
    /// Something else was read than was written.
    pub fn work(&mut self, rig: &Rig, draw: &mut Draw, is_last: bool) -> Result<(), String> {
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.ends > 2 || is_last) {
            self.check_snapshot(rig, &snapshot).map_err(|wrong| format!("{PAIR}@{}: {wrong}", snapshot.name))?;
        }
        if let Some(fio) = &mut self.fio {
            fio.work(rig, draw, is_last, &mut self.looked)?;
        }
        if let Some(image) = &mut self.image {
            image.work(rig, draw, is_last, &mut self.looked)?;
        }
        Ok(())
    }

    /// Takes a snapshot, unless there is one, or no room for one.
    ///
    /// # Errors
    /// What the store complains of.
    pub fn take_snapshot(&mut self, rig: &mut Rig) -> Result<(), String> {
        // What came to its end before it is in it.
        self.before_end()?;
        if self.snapshot.is_some() {
            return Ok(());
        }
        let (fio, image) = (self.fio.as_ref().and_then(Fio::held), self.image.as_ref().map(Image::held));
        let taken = rig.take_snapshot(PAIR)?;
        self.snapshot = taken.map(|name| Kept { name, fio, image, ends: 0 });
        Ok(())
    }

    /// Looks at a snapshot, and deletes it.
    fn check_snapshot(&mut self, rig: &Rig, snapshot: &Kept) -> Result<(), String> {
        if let (Some(fio), Some(job)) = (&self.fio, snapshot.fio) {
            fio.verify(rig, &format!("{}@{}", fio.strand, snapshot.name), job)?;
            self.looked.fio += 1;
        }
        if let (Some(image), Some(held)) = (&self.image, snapshot.image) {
            image.check(rig, &format!("{}@{}", image.strand, snapshot.name), held, &mut self.looked)?;
        }
        self.looked.snapshots += u64::from(snapshot.fio.is_some() || snapshot.image.is_some());
        rig.ask_alone(&["volume", "delete", &format!("{PAIR}@{}", snapshot.name), "--yes"])?;
        Ok(())
    }

    /// Before the store ends.
    ///
    /// # Errors
    /// A client failed.
    pub fn before_end(&mut self) -> Result<(), String> {
        self.fio.as_mut().map_or(Ok(()), Fio::before_end)?;
        self.image.as_mut().map_or(Ok(()), Image::before_end)
    }

    /// After it ended.
    pub fn after_end(&mut self) {
        self.fio.iter_mut().for_each(|fio| fio.state.after_end());
        self.image.iter_mut().for_each(|image| image.state.after_end());
        self.snapshot.iter_mut().for_each(|snapshot| snapshot.ends += 1);
    }

    /// What was looked at, in all.
    ///
    /// # Errors
    /// A client that is here verified nothing, or no snapshot was looked at.
    pub fn looked(&self) -> Result<Looked, String> {
        let Looked { fio, images, snapshots, .. } = self.looked;
        let idle = |is_here: bool, count: u64| is_here && count == 0;
        let is_used = self.fio.is_some() || self.image.is_some();
        if idle(self.fio.is_some(), fio) || idle(self.image.is_some(), images) || idle(is_used, snapshots) {
            return Err(format!("a client of other makers verified nothing: {:?}", self.looked));
        }
        Ok(self.looked)
    }
}

/// fio: writes all that it uses, and finds it so some kills later.
struct Fio {
    strand: String,
    job: Job,
    state: Fill,
}

/// What fio writes.
#[derive(Debug, Clone, Copy, Default)]
struct Job {
    pattern: usize,
    seed: u64,
}

/// An image of a file system, of two that are copied one over the other.
struct Image {
    strand: String,
    images: [PathBuf; 2],
    /// The one that is copied, or was copied last.
    which: usize,
    state: Fill,
    by_qemu: bool,
    /// Each page was written once.
    is_full: bool,
}

/// What is where the image is copied to.
#[derive(Debug, Clone, Copy)]
enum Held {
    /// One of the two.
    One(usize),
    /// Pages of both, or some that were never written.
    Mixed {
        /// None of these.
        is_full: bool,
    },
}

/// What is known of a strand.
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
    fn new(strand: String) -> Fio {
        Fio { strand, job: Job::default(), state: Fill::Unknown }
    }

    fn command(rig: &Rig, volume: &str, job: Job) -> Command {
        let mut command = Command::new("fio");
        command.current_dir(rig.scratch.path("")).stdin(Stdio::null());
        command.args(["--name=soak", "--ioengine=nbd", "--thread", "--verify=crc32c", "--verify_fatal=1"]);
        command.args(["--verify_state_save=0", &format!("--size={FIO_BYTES}"), &format!("--randseed={}", job.seed)]);
        command.arg(format!("--uri={}", rig.uri(volume)));
        command.args(FIO_PATTERNS[job.pattern]);
        command
    }

    fn verify(&self, rig: &Rig, volume: &str, job: Job) -> Result<(), String> {
        run(Fio::command(rig, volume, job).arg("--verify_only"))
    }

    /// What it finds until it writes again.
    fn held(&self) -> Option<Job> {
        matches!(self.state, Fill::Written(_)).then_some(self.job)
    }

    fn work(&mut self, rig: &Rig, draw: &mut Draw, is_last: bool, looked: &mut Looked) -> Result<(), String> {
        match self.state {
            Fill::Written(kills) if kills > 2 || is_last => {
                self.verify(rig, &self.strand, self.job)?;
                looked.fio += 1;
                self.state = Fill::Unknown;
            }
            Fill::Unknown | Fill::Cut if !is_last => {
                self.job = Job { seed: draw.next() >> 1, pattern: draw.below(FIO_PATTERNS.len() as u64) as usize };
                let mut command = Fio::command(rig, &self.strand, self.job);
                command.args(["--do_verify=0", "--end_fsync=1"]).stdout(Stdio::null()).stderr(Stdio::null());
                self.state = Fill::Writing(command.spawn().expect("it starts"));
            }
            _ => {}
        }
        Ok(())
    }

    fn before_end(&mut self) -> Result<(), String> {
        self.state.before_end().map_err(|error| format!("fio: {error}"))
    }
}

impl Image {
    fn new(rig: &Rig, strand: String) -> Option<Image> {
        ["nbdcopy", "qemu-img", "mke2fs", "e2fsck"].into_iter().try_for_each(installed)?;
        let trees = [repository().join("docs"), repository().join("crates/volume")];
        let images = [rig.scratch.path("image0"), rig.scratch.path("image1")];
        for (image, tree) in images.iter().zip(trees) {
            let mut command = Command::new("mke2fs");
            command.args(["-q", "-t", "ext4", "-d"]).arg(tree).arg(image).arg(format!("{IMAGE_MIB}M"));
            assert!(command.output().expect("it starts").status.success(), "no image could be made");
        }
        Some(Image { strand, images, which: 0, state: Fill::Unknown, by_qemu: false, is_full: false })
    }

    fn work(&mut self, rig: &Rig, draw: &mut Draw, is_last: bool, looked: &mut Looked) -> Result<(), String> {
        match self.state {
            Fill::Written(kills) if kills > 2 || is_last => {
                self.check(rig, &self.strand, Held::One(self.which), looked)?;
                self.state = Fill::Unknown;
            }
            Fill::Cut => {
                self.check(rig, &self.strand, self.held(), looked)?;
                self.begin(rig, draw);
            }
            Fill::Unknown if !is_last => self.begin(rig, draw),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, rig: &Rig, draw: &mut Draw) {
        // After a copy that was cut off the same goes on, so that there are never three.
        if !matches!(self.state, Fill::Cut) {
            self.which = 1 - self.which;
        }
        self.by_qemu = draw.below(2) == 0;
        let (image, uri) = (&self.images[self.which], rig.uri(&self.strand));
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

    /// What is there now.
    fn held(&self) -> Held {
        match self.state {
            Fill::Written(_) => Held::One(self.which),
            _ => Held::Mixed { is_full: self.is_full },
        }
    }

    /// Copies it out and looks whether it is what it must be.
    fn check(&self, rig: &Rig, volume: &str, held: Held, looked: &mut Looked) -> Result<(), String> {
        let out = rig.scratch.path("image-out");
        let _ = fs::remove_file(&out);
        run(Command::new("nbdcopy").arg(rig.uri(volume)).arg(&out))?;
        match held {
            Held::One(which) => {
                run(Command::new("cmp").arg(&self.images[which]).arg(&out))?;
                run(Command::new("e2fsck").arg("-fn").arg(&out))?;
                looked.images += 1;
            }
            Held::Mixed { is_full } => {
                self.check_mixed(&out, is_full)?;
                looked.images_mixed += 1;
            }
        }
        fs::remove_file(out).expect("removed");
        Ok(())
    }

    /// Every page is of the one image or of the other, or was never written.
    fn check_mixed(&self, out: &Path, is_full: bool) -> Result<(), String> {
        let open = |path: &Path| fs::File::open(path).expect("there");
        let (images, out) = (self.images.each_ref().map(|path| open(path)), open(out));
        let pages = out.metadata().expect("there").len() / 4096;
        let page = |file: &fs::File, at: u64| {
            let mut bytes = [0; 4096];
            file.read_exact_at(&mut bytes, at * 4096).map(|()| bytes).expect("as long as the volume")
        };
        let never = if is_full { None } else { Some([0; 4096]) };
        for at in 0..pages {
            let found = page(&out, at);
            if !images.iter().any(|image| page(image, at) == found) && never != Some(found) {
                return Err(format!("page {at} is of neither image"));
            }
        }
        Ok(())
    }

    fn before_end(&mut self) -> Result<(), String> {
        let by = if self.by_qemu { "qemu-img" } else { "nbdcopy" };
        self.state.before_end().map_err(|error| format!("{by}: {error}"))?;
        self.is_full |= matches!(self.state, Fill::Written(_));
        Ok(())
    }
}

fn installed(program: &str) -> Option<()> {
    system("sh", &["-c", &format!("command -v {program}")]).then_some(())
}

fn strand(home: &str) -> String {
    format!("{PAIR}:{home}")
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

/// The volume of both.
const PAIR: &str = "pair";
const IMAGE_MIB: u64 = 12;
const FIO_BYTES: u64 = 2 << 20;
const FIO_PATTERNS: [&[&str]; 3] = [
    &["--rw=randwrite", "--bs=4k", "--iodepth=16"],
    &["--rw=randwrite", "--bs=12k", "--iodepth=8"],
    &["--rw=write", "--bs=64k", "--iodepth=4"],
];
