//! `claystone disk`: the disks of a running store, and disks that mend their own sectors on a device.

mod check;
mod coding;
mod device;
mod format;
mod grow;
mod holder;
mod info;
mod look;
mod member;
mod occupant;
mod profile;
mod queue;
mod replace_ssd;
mod scrub;
mod size;

use super::At;

pub use coding::Coding;
pub use device::{Recovery, disk_on, looked_at, not_at_rest, open_drive};
pub use format::give_to_user;
pub use info::Report;
pub use size::Size;

/// Disks of a running store (list, add, replace, drain, remove), and disks on a drive, a partition or an image, which mend
/// their own sectors (format, info, check, scrub, grow, profile)
#[derive(Debug, clap::Args)]
pub struct Disk {
    #[command(flatten)]
    at: At,
    /// JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    #[command(flatten)]
    Store(member::Member),
    /// Device: make a disk of a drive, a partition or an image file
    Format(format::Format),
    /// Device: what the disk is and how full
    Info(info::Info),
    /// Device: whether its names, files and free sectors agree
    Check(check::Check),
    /// Device: read everything back, mend what is damaged
    Scrub(scrub::Scrub),
    /// Device: measure its write buffer, which writes that know the drive go by; what it holds is lost
    Profile(profile::Profile),
    /// Device: give a disk of two drives another solid-state drive
    ReplaceSsd(replace_ssd::ReplaceSsd),
    /// Device: take up the space of a device that became larger
    Grow(grow::Grow),
}

impl Disk {
    /// Acts.
    ///
    /// # Errors
    /// As the action says.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Store(member) => member.run(&self.at.dir, self.json).await,
            Action::Format(format) => format.run(self.json),
            Action::Info(info) => info.run(&self.at.dir, self.json).await,
            Action::Check(check) => check.run(self.json),
            Action::Scrub(scrub) => scrub.run(self.json),
            Action::Profile(profile) => profile.run(self.json),
            Action::ReplaceSsd(replace) => replace.run(self.json),
            Action::Grow(grow) => grow.run(self.json),
        }
    }
}
