//! `claystone disk profile`: how a drive's write buffer takes writes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use claystone_env::{Clock, Device, EmulatedTime, Moment, SECTOR_BYTES};
use claystone_host::{HostClock, HostDevice};
use claystone_sim::SimDevice;
use claystone_tier::{Finding, ProfilePlan, Staircase, profile_device};
use serde::Serialize;

use super::device::open_device;
use super::occupant::refuse_occupied;
use super::size::Size;
use crate::chart::Picture;
use crate::cli::print_json;
use crate::disk_path;
use crate::emulation;
use crate::output::{note, output};
use crate::progress::Progress;
use crate::staircase;
use crate::table::{Table, bytes};

/// Measure how the write buffer of a hard disk takes writes: sequential ones after a sync, by length. What the device held is
/// lost, so one that holds something known is refused, and a file that holds anything near its ends.
#[derive(Debug, clap::Args)]
pub struct Profile {
    /// The drive, partition or image file
    #[arg(value_name = "DEVICE", required_unless_present = "emulate", value_parser = disk_path::of_drive)]
    device: Option<PathBuf>,
    /// Make an image file of this size for it, and delete it afterwards: bytes, or with K, M, G or T
    #[arg(long, conflicts_with = "emulate")]
    size: Option<Size>,
    /// An emulated drive instead, in simulated time: "wd-10tb-like", "synthetic-small", "synthetic-large", "nvme-desktop"
    #[arg(long, value_name = "DRIVE", conflicts_with = "device")]
    emulate: Option<String>,
    /// How often each length is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// MiB of each run, which must be several times what the buffer takes
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    mib: u64,
    /// Keep the profile in this file
    #[arg(long, value_name = "FILE.toml")]
    keep: Option<PathBuf>,
    /// Write the plot of how long writes took to this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Also if the device holds a file system or a disk, or the file anything: it is lost
    #[arg(long)]
    force: bool,
}

/// What was found, for programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    device: &'a str,
    predictable: bool,
    why: Option<String>,
    profile: Option<&'a claystone_tier::Profile>,
}

/// A device, and the time after a call of it.
struct Watched {
    device: Arc<dyn Device>,
    now: Box<dyn Fn() -> Moment>,
}

impl Profile {
    /// Measures, and tells.
    ///
    /// # Errors
    /// The device is in use, holds something, is too small or fails; there is no such emulated drive; there is nothing to keep.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let picture = self.plot.as_deref().map(Picture::of).transpose()?;
        let staircase = self.measure()?;
        if let (Some(path), Some(picture)) = (&self.plot, picture) {
            let plot = picture.encode(staircase::draw(&staircase)?)?;
            fs::write(path, plot).with_context(|| path.display().to_string())?;
        }
        let finding = staircase.finding();
        let (profile, why) = match &finding {
            Finding::Buffered(profile) => (Some(profile), None),
            Finding::Unpredictable(why) => (None, Some(why.to_string())),
        };
        if json {
            print_json(&Report {
                device: &staircase.device,
                predictable: profile.is_some(),
                why: why.clone(),
                profile,
            })?;
        } else {
            tell(&staircase, profile, why.as_deref())?;
        }
        match (&self.keep, profile) {
            (Some(path), Some(profile)) => keep(path, profile)?,
            (Some(path), None) => bail!("{} is not written: there is no profile to keep", path.display()),
            (None, _) => {}
        }
        Ok(())
    }

    fn measure(&self) -> anyhow::Result<Staircase> {
        let mut plan =
            ProfilePlan { rounds: self.rounds as usize, run_bytes: self.mib << 20, ..ProfilePlan::default() };
        let Watched { device, now } = match (&self.emulate, &self.device) {
            (Some(name), _) => emulated(name, plan.run_bytes)?,
            (None, Some(path)) => self.open(path)?,
            (None, None) => bail!("name a device, or an emulated drive with --emulate"),
        };
        let device_bytes = device.geometry().sectors * SECTOR_BYTES as u64;
        plan.run_bytes = plan.run_bytes.min(device_bytes);
        ensure!(
            plan.run_bytes >= RUN_BYTES_MIN,
            "{} has {}: at least {} are wanted",
            device.label(),
            bytes(device_bytes),
            bytes(RUN_BYTES_MIN)
        );
        let staircase = measure(&*device, &now, &plan);
        drop(device);
        if let (Some(_), Some(path)) = (self.size, &self.device) {
            fs::remove_file(path).with_context(|| format!("the image {} cannot be deleted", path.display()))?;
        }
        staircase
    }

    fn open(&self, path: &Path) -> anyhow::Result<Watched> {
        let device = match self.size {
            Some(Size(bytes)) => create(path, bytes)?,
            None => open_device(path)?,
        };
        if !self.force {
            refuse_occupied(path, &*device)?;
        }
        let clock = HostClock::start();
        Ok(Watched { device, now: Box::new(move || clock.now()) })
    }
}

/// Writes all over a device, and shows how far it is.
///
/// # Errors
/// The device fails.
pub fn measure(device: &dyn Device, now: &dyn Fn() -> Moment, plan: &ProfilePlan) -> anyhow::Result<Staircase> {
    let progress = Progress::bytes("measuring", plan.bytes());
    let staircase = profile_device(device, now, plan, &mut |bytes| progress.step(bytes));
    progress.end();
    staircase.context("the device failed")
}

/// The profile that a file keeps.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read_profile(path: &Path) -> anyhow::Result<claystone_tier::Profile> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("the profile {name} cannot be read"))?;
    let profile: claystone_tier::Profile = toml::from_str(&text).with_context(|| format!("{name} is no profile"))?;
    profile.check().with_context(|| format!("the profile {name} cannot be used"))?;
    Ok(profile)
}

fn create(path: &Path, bytes: u64) -> anyhow::Result<Arc<dyn Device>> {
    let name = path.display();
    match HostDevice::create(path, bytes / SECTOR_BYTES as u64) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{name} is there already: --size makes a new image; without it, {name} itself is measured")
        }
        Err(error) => Err(error).with_context(|| format!("the image {name} cannot be made")),
    }
}

/// Its time is its own: nothing is waited for.
fn emulated(name: &str, run_bytes: u64) -> anyhow::Result<Watched> {
    let sectors = run_bytes.max(RUN_BYTES_MIN) / SECTOR_BYTES as u64;
    let drive = SimDevice::alone(name, emulation::model(name, sectors)?, EMULATED_SEED);
    let device = drive.attach();
    Ok(Watched { device, now: Box::new(move || drive.done_at()) })
}

/// The profile of an emulated drive, measured in simulated time.
///
/// # Errors
/// There is none of this name, or it has no stages.
pub fn profile_of(name: &str) -> anyhow::Result<claystone_tier::Profile> {
    let plan = ProfilePlan::default();
    let Watched { device, now } = emulated(name, plan.run_bytes)?;
    match profile_device(&*device, &now, &plan, &mut |_| {})?.finding() {
        Finding::Buffered(profile) => Ok(profile),
        Finding::Unpredictable(why) => bail!("{name} is no hard disk: {why}"),
    }
}

fn keep(path: &Path, profile: &claystone_tier::Profile) -> anyhow::Result<()> {
    let text = toml::to_string(profile).context("a profile is plain data")?;
    fs::write(path, text).with_context(|| path.display().to_string())?;
    note(format_args!("the profile is in {}", path.display()));
    Ok(())
}

fn tell(staircase: &Staircase, profile: Option<&claystone_tier::Profile>, why: Option<&str>) -> anyhow::Result<()> {
    let out = output();
    writeln!(out, "device  {}", staircase.device)?;
    let mut table = Table::new(&["writes of", "number", "half of them", "one in 1000", "longest"]);
    for (length, took) in by_length(staircase) {
        let at = |share: f64| micros(took[((took.len() as f64 * share) as usize).min(took.len() - 1)]);
        table.row([bytes(length), took.len().to_string(), at(0.5), at(0.999), at(1.0)]);
    }
    writeln!(out, "\n{table}")?;
    let Some(profile) = profile else {
        writeln!(out, "There is no profile: slow writes of this device cannot be told in advance. {}.", sentence(why))?;
        return Ok(());
    };
    let mut table = Table::new(&["stage", "takes", "deviation", "least", "relied upon", "seen"]);
    for (name, stage) in [("fast", profile.fast), ("middle", profile.mid), ("slow", profile.slow)] {
        let relied = if name == "slow" { String::new() } else { bytes(stage.limit()) };
        table.row([
            name.into(),
            bytes(stage.mean),
            bytes(stage.deviation),
            bytes(stage.least),
            relied,
            stage.seen.to_string(),
        ]);
    }
    writeln!(out, "{table}")?;
    let mut table = Table::new(&["writes of", "fast", "middle", "slow", "slow from"]);
    for size in &profile.sizes {
        table.row([
            bytes(size.bytes),
            micros(size.fast_ns),
            micros(size.mid_ns),
            micros(size.slow_ns),
            micros(size.slow_from_ns),
        ]);
    }
    writeln!(out, "{table}")?;
    writeln!(
        out,
        "Slow writes can be told in advance: after a sync, and between two slow stages, by the bytes written."
    )?;
    Ok(())
}

/// All times of a length, ascending.
fn by_length(staircase: &Staircase) -> Vec<(u64, Vec<u64>)> {
    let mut lengths: Vec<u64> = staircase.runs.iter().map(|run| run.bytes).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let took = |length: u64| {
        let of = staircase.runs.iter().filter(|run| run.bytes == length);
        let mut took: Vec<u64> = of.flat_map(|run| run.took_ns.iter().copied()).collect();
        took.sort_unstable();
        (length, took)
    };
    lengths.into_iter().map(took).collect()
}

fn micros(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{} us", nanos / 1000),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

/// With a capital.
fn sentence(why: Option<&str>) -> String {
    let why = why.unwrap_or_default();
    let mut letters = why.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The longest write must fit several times.
const RUN_BYTES_MIN: u64 = 8 << 20;
const EMULATED_SEED: u64 = 1;
