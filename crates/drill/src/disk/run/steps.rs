//! A step on the disk and in the model.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_files::{DiskError, FileError, FileTree, NewAttributes, NewNode, RenameMode};

use super::{Outcome, Run};
use crate::disk::model::{Model, ShapeChange};
use crate::disk::scenario::Step;

/// Takes a step in the model that was begun, and of whose end nobody was told: it happened, or not.
pub(super) fn begin(model: &mut Model, step: &Step) {
    match step {
        Step::Change(change) => model.change(change.clone()),
        Step::Write { bytes: 0, .. } | Step::Allocate { keep_size: true, .. } => {}
        Step::Write { inode, offset, bytes, seed, .. } => {
            model.content_mut(*inode).write(*offset, &content(*seed, *bytes));
        }
        Step::Cut { inode, bytes } => model.content_mut(*inode).cut(*bytes),
        Step::Punch { inode, offset, bytes } => model.content_mut(*inode).punch(*offset, *bytes),
        Step::Allocate { inode, offset, bytes, .. } => model.content_mut(*inode).grow(offset + bytes),
        Step::Read { .. }
        | Step::Open { .. }
        | Step::Release { .. }
        | Step::Sync { .. }
        | Step::SyncAll
        | Step::Tend
        | Step::Scrub
        | Step::ScrubInPassing
        | Step::Reopen
        | Step::Grow { .. } => {}
    }
}

impl Run {
    /// Takes a step on the disk and in the model.
    pub(super) fn take(&mut self, step: &Step) -> Result<Outcome> {
        let disk = self.subject.disk();
        match step {
            Step::Change(change) => self.take_change(change),
            Step::Write { inode, offset, bytes, seed, sync } => {
                let bytes = content(*seed, *bytes);
                let outcome = outcome_of(disk.write(*inode, *offset, &bytes))?;
                let content = self.model.content_mut(*inode);
                match outcome {
                    Outcome::Refused => {
                        if let Err(error) = content.write_in_part(disk, *inode, *offset, &bytes) {
                            // The disk failed now: any of the sectors may be there.
                            content.write(*offset, &bytes);
                            return outcome_of(Err::<(), _>(error.downcast::<FileError>()?));
                        }
                    }
                    _ if bytes.is_empty() => {}
                    _ => content.write(*offset, &bytes),
                }
                match outcome {
                    Outcome::Done if *sync => self.take(&Step::Sync { inode: *inode }),
                    outcome => Ok(outcome),
                }
            }
            Step::Cut { inode, bytes } => {
                let new = NewAttributes { bytes: Some(*bytes), ..NewAttributes::default() };
                let outcome = outcome_of(disk.set_attributes(*inode, &new))?;
                if !matches!(outcome, Outcome::Refused) {
                    self.model.content_mut(*inode).cut(*bytes);
                }
                Ok(outcome)
            }
            Step::Punch { inode, offset, bytes } => {
                let outcome = outcome_of(disk.punch(*inode, *offset, *bytes))?;
                if !matches!(outcome, Outcome::Refused) {
                    self.model.content_mut(*inode).punch(*offset, *bytes);
                }
                Ok(outcome)
            }
            Step::Allocate { inode, offset, bytes, keep_size } => {
                let outcome = outcome_of(disk.allocate(*inode, *offset, *bytes, *keep_size))?;
                if !matches!(outcome, Outcome::Refused) && !keep_size {
                    self.model.content_mut(*inode).grow(offset + bytes);
                }
                Ok(outcome)
            }
            Step::Read { inode, offset, bytes } => {
                match self.model.content(*inode).verify_part(disk, *inode, *offset, *bytes) {
                    Err(error) => outcome_of(Err::<(), _>(error.downcast::<FileError>()?)),
                    Ok(()) => Ok(Outcome::Done),
                }
            }
            Step::Open { inode } => {
                let outcome = outcome_of(disk.open(*inode))?;
                self.model.opened(*inode);
                Ok(outcome)
            }
            Step::Release { inode } => {
                disk.release(*inode);
                self.model.released(*inode);
                Ok(Outcome::Done)
            }
            Step::Sync { inode } => {
                let outcome = outcome_of(disk.sync(*inode))?;
                if matches!(outcome, Outcome::Done) {
                    self.model.synced(*inode);
                }
                Ok(outcome)
            }
            Step::SyncAll => {
                let outcome = outcome_of(disk.sync_all())?;
                if matches!(outcome, Outcome::Done) {
                    self.model.synced_all();
                }
                Ok(outcome)
            }
            Step::Tend => match disk.load_swaths_in_passing() {
                Ok(_) => outcome_of(disk.tend()),
                Err(error) => Ok(down("loading checksums", &error)),
            },
            Step::Scrub => {
                self.subject.pause_mischief(true);
                let scrubbed = disk.scrub(&mut |_| true);
                self.subject.pause_mischief(false);
                let found = match scrubbed {
                    Ok(found) => found,
                    Err(error) => return Ok(down("scrubbing", &error)),
                };
                ensure!(found.lost.is_empty(), "the scrub finds {:?} lost", found.lost);
                let subject = &self.subject;
                subject.atlas().mended(|sector| subject.is_scrubbed(sector));
                Ok(Outcome::Done)
            }
            // What it has mended may be hurt again at once, so it all counts as hurt on.
            Step::ScrubInPassing => {
                for _ in 0..PASSED_AT_ONCE {
                    match disk.scrub_in_passing(CYCLE) {
                        Ok(found) => {
                            ensure!(found.lost.is_empty(), "the scrub in passing finds {:?} lost", found.lost);
                            self.report.passed += found.groups;
                        }
                        Err(error) => return Ok(down("scrubbing in passing", &error)),
                    }
                }
                Ok(Outcome::Done)
            }
            Step::Reopen => self.reopen(),
            Step::Grow { sectors } => {
                self.subject.enlarge(*sectors);
                match self.reopen()? {
                    Outcome::Done => self.grow(),
                    other => Ok(other),
                }
            }
        }
    }

    /// The disk takes up what the device has become.
    pub(super) fn grow(&mut self) -> Result<Outcome> {
        let disk = self.subject.disk();
        let known = disk.info().sectors;
        match disk.grow() {
            Ok(new) => {
                ensure!(known + new == self.subject.sectors(), "it grew by {new} from {known}");
                ensure!(disk.info().sectors == self.subject.sectors(), "it has {} sectors", disk.info().sectors);
                Ok(Outcome::Done)
            }
            Err(error) => Ok(down("growing", &error)),
        }
    }

    fn take_change(&mut self, change: &ShapeChange) -> Result<Outcome> {
        let disk = self.subject.disk();
        let mut change = change.clone();
        let result = match &mut change {
            ShapeChange::Make { directory, name, inode, kind, permissions, target } => {
                let node = NewNode {
                    kind: *kind,
                    permissions: *permissions,
                    owner: 0,
                    owner_group: 0,
                    device: 0,
                    target: target.clone(),
                };
                disk.make(*directory, name, &node).map(|made| *inode = Some(made.inode))
            }
            ShapeChange::Link { inode, directory, name } => disk.link(*inode, *directory, name).map(drop),
            ShapeChange::Remove { directory, name } => {
                let inode = self.model.shape().nodes()[directory].rows[name];
                match self.model.shape().nodes()[&inode].kind {
                    claystone_files::Kind::Directory => disk.remove_directory(*directory, name),
                    _ => disk.unlink(*directory, name),
                }
            }
            ShapeChange::Rename { from, to } => disk.rename((from.0, &from.1), (to.0, &to.1), RenameMode::Replace),
            ShapeChange::Exchange { from, to } => disk.rename((from.0, &from.1), (to.0, &to.1), RenameMode::Exchange),
            ShapeChange::SetPermissions { inode, permissions } => {
                let new = NewAttributes { permissions: Some(*permissions), ..NewAttributes::default() };
                disk.set_attributes(*inode, &new).map(drop)
            }
            ShapeChange::SetAttribute { inode, name, value } => match value {
                Some(value) => disk.set_attribute(*inode, name, value, None),
                None => disk.remove_attribute(*inode, name),
            },
        };
        let outcome = outcome_of(result)?;
        if !matches!(outcome, Outcome::Refused) {
            self.model.change(change);
        }
        Ok(outcome)
    }

    fn reopen(&mut self) -> Result<Outcome> {
        // What is open would be lost.
        for inode in self.model.open().clone() {
            self.take(&Step::Release { inode })?;
        }
        let closed = outcome_of(self.subject.take().close())?;
        match closed {
            Outcome::Done => self.model.synced_all(),
            Outcome::Refused => {}
            Outcome::Down(_) => return Ok(closed),
        }
        if let Err(error) = self.subject.open() {
            return Ok(down("opening", &error));
        }
        if matches!(closed, Outcome::Refused) {
            // Without space to be closed in it was left behind, as by a kill.
            self.model.recover(self.subject.disk()).context("after a close without space")?;
        }
        Ok(closed)
    }
}

/// The disk failed at something that is not a call of a file.
fn down(what: &str, error: &DiskError) -> Outcome {
    Outcome::Down(FileError::Failed { why: format!("{what}: {error}") })
}

fn outcome_of<T>(result: Result<T, FileError>) -> Result<Outcome> {
    match result {
        Ok(_) => Ok(Outcome::Done),
        Err(FileError::NoSpace | FileError::Placeless { .. }) => Ok(Outcome::Refused),
        Err(error @ (FileError::Failed { .. } | FileError::ReadOnly { .. })) => Ok(Outcome::Down(error)),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that look like no others: each sector has the seed and its number.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        // splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        content.extend_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// Calls of a step that scrubs in passing: each reads a group or two.
const PASSED_AT_ONCE: u64 = 4;
/// For a pass over all: so short that something is always due.
const CYCLE: Duration = Duration::from_millis(10);
