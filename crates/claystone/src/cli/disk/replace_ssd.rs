//! `claystone disk replace-ssd`: a disk of two drives gets another solid-state drive.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use claystone_tier::{Member, Side, TieredDevice};

use super::device::{At, close_disk, open_device, open_disk};
use super::format::queue_of;
use super::info::Report;
use super::occupant::refuse_occupied;
use crate::cli::print_json;
use crate::drives::Drive;
use crate::output::{note, output};
use crate::table::counted;

/// Give a disk of two drives another solid-state drive: all that the old one has is brought to its place first. Also after the old one died,
/// if the disk has gone on without it, or it died while the disk was closed and had nothing.
#[derive(Debug, clap::Args)]
pub struct ReplaceSsd {
    #[command(flatten)]
    at: At,
    /// The new one: a drive, a partition or an image file. What it holds is lost
    #[arg(long, value_name = "DEVICE")]
    with: PathBuf,
    /// Also if the new one holds a file system or a disk, or the file anything: it is lost
    #[arg(long)]
    force: bool,
}

impl ReplaceSsd {
    /// Replaces it.
    ///
    /// # Errors
    /// The disk is in use or of one drive only; the new one holds something, or is too small. Also where it was replaced, and sectors
    /// are lost that only the old one had.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let name = self.at.device.display();
        let with = std::path::absolute(&self.with)?;
        let new = open_device(&with)?;
        let hdd = open_device(&self.at.device)?;
        let member = Member::of(&*hdd)?
            .with_context(|| format!("{name} is a disk of one drive: it has no solid-state drive"))?;
        if member.side == Side::Ssd {
            bail!("{name} is the solid-state drive of a disk: name its hard disk");
        }
        // What was cut off in the middle of this is done again.
        let is_spent = TieredDevice::check_ssd(&*hdd, &*new)?;
        drop(hdd);
        if !self.force && !is_spent {
            refuse_occupied(&with, &*new)?;
        }
        let Drive { device, pair } = self.at.open_alone_if_at_rest()?;
        let pair = pair.with_context(|| format!("{name} is a disk of one drive: it has no solid-state drive"))?;
        // The old one is given up only once it is known that the new one takes writes.
        let queue_max = member.profile.map(|profile| queue_of(&new, &profile)).transpose()?;
        let lost_before = pair.info().lost_sectors;
        pair.retire_ssd().with_context(|| format!("the solid-state drive of {name} is not given up"))?;
        let lost_sectors = pair.info().lost_sectors.saturating_sub(lost_before);
        drop((device, pair));
        let hdd = open_device(&self.at.device)?;
        let was = Member::of(&*hdd)?.map(|member| member.ssd_label).unwrap_or_default();
        TieredDevice::join_ssd(&*hdd, &*new, queue_max)
            .with_context(|| format!("{name} goes on with its hard disk alone"))?;
        drop(new);
        // Where it was, if it still works.
        if let Ok(old) = open_device(Path::new(&was))
            && let Err(error) = TieredDevice::disown_ssd(&*hdd, &*old)
        {
            note(format_args!("{was} still says that it is of {name}: format it before it is used again ({error})"));
        }
        drop(hdd);
        let disk = open_disk(&At { device: self.at.device.clone(), ssd: Some(with) }, None)?;
        let report = Report::of(&disk);
        close_disk(disk)?;
        if json {
            print_json(&report)?
        } else {
            write!(output(), "{report}")?
        }
        if lost_sectors > 0 {
            bail!(
                "{} LOST: only the old solid-state drive had what was there, and it did not give it back. {name} has the new one, and \
                 goes on without: `claystone disk scrub` mends what parity can",
                counted(lost_sectors, "sector IS", "sectors ARE")
            );
        }
        Ok(())
    }
}
