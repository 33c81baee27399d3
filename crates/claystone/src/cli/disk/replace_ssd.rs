//! `claystone disk replace-ssd`: a disk of two drives gets another solid-state drive.

use std::path::PathBuf;

use anyhow::{Context, bail};
use claystone_tier::{Member, TieredDevice};

use super::device::{At, close_disk, open_device, open_disk};
use super::format::queue_of;
use super::info::Report;
use super::occupant::occupant;
use crate::cli::print_json;
use crate::drives::Drive;
use crate::output::output;

/// Give a disk of two drives another solid-state drive: all that the old one has is brought to its place first. Also after the old one died,
/// if the disk has gone on without it.
#[derive(Debug, clap::Args)]
pub struct ReplaceSsd {
    #[command(flatten)]
    at: At,
    /// The new one: a drive, a partition or an image file. What it holds is lost
    #[arg(long, value_name = "DEVICE")]
    with: PathBuf,
    /// Also if the new one holds a file system or a disk: it is lost
    #[arg(long)]
    force: bool,
}

impl ReplaceSsd {
    /// Replaces it.
    ///
    /// # Errors
    /// The disk is in use or of one drive only; the new one holds something, or is too small.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let name = self.at.device.display();
        let with = std::path::absolute(&self.with)?;
        let new = open_device(&with)?;
        if !self.force
            && let Some(occupant) = occupant(&*new)?
        {
            bail!(
                "{} holds {occupant}, which would be lost: name another device, or give it up with --force",
                with.display()
            );
        }
        let Drive { device, pair } = self.at.open()?;
        let pair = pair.with_context(|| format!("{name} is a disk of one drive: it has no solid-state drive"))?;
        pair.retire_ssd().with_context(|| format!("the solid-state drive of {name} is not given up"))?;
        drop((device, pair));
        let hdd = open_device(&self.at.device)?;
        let profile = Member::of(&*hdd)?.and_then(|member| member.profile);
        let queue_max = profile.map(|profile| queue_of(&new, &profile)).transpose()?;
        TieredDevice::join_ssd(&*hdd, &*new, queue_max)
            .with_context(|| format!("{name} goes on with its hard disk alone"))?;
        drop((hdd, new));
        let disk = open_disk(&At { device: self.at.device.clone(), ssd: Some(with) })?;
        let report = Report::of(&disk);
        close_disk(disk)?;
        if json {
            print_json(&report)?
        } else {
            write!(output(), "{report}")?
        }
        Ok(())
    }
}
