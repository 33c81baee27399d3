//! What callers do in a run: which calls, how often each, on which nodes.
//!
//! A call is chosen for what the tree holds, so that it makes sense and has to succeed while nothing is hurt and the disk is
//! not full.

use claystone_env::{Random, SECTOR_BYTES};
use claystone_files::{Inode, Kind};

use super::model::{Model, ShapeChange};
use super::scale::Scale;

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Scenario {
    /// Files of many sizes, written at once.
    Writes,
    /// Files that grow by little, with and without an fsync behind each.
    Appends,
    /// A few files, changed here and there, with an fsync behind each.
    Overwrites,
    /// Names, links, directories and attributes.
    Names,
    /// Holes, cuts and allocations.
    Shapes,
    /// More than there is space for.
    Full,
    /// All of these.
    Mixed,
    /// Files that are changed while the disk scrubs itself in passing, as who mounts it has it do.
    Passing,
}

/// All of them.
pub const SCENARIOS: [Scenario; 8] = [
    Scenario::Writes,
    Scenario::Appends,
    Scenario::Overwrites,
    Scenario::Names,
    Scenario::Shapes,
    Scenario::Full,
    Scenario::Mixed,
    Scenario::Passing,
];

/// One call, or two: what is synced at once is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Names or attributes.
    Change(ShapeChange),
    /// Bytes are written; the content is made of the seed.
    Write {
        /// Where.
        inode: Inode,
        /// From which byte on.
        offset: u64,
        /// How many.
        bytes: usize,
        /// Of what.
        seed: u64,
        /// Whether an fsync follows.
        sync: bool,
    },
    /// A file is cut, or grows by a hole.
    Cut {
        /// Which.
        inode: Inode,
        /// Its new size.
        bytes: u64,
    },
    /// A hole is made.
    Punch {
        /// Where.
        inode: Inode,
        /// From which byte on.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// Space is promised.
    Allocate {
        /// To which file.
        inode: Inode,
        /// From which byte on.
        offset: u64,
        /// How many.
        bytes: u64,
        /// Whether the file does not grow over it.
        keep_size: bool,
    },
    /// Part of a file is read and compared.
    Read {
        /// Which.
        inode: Inode,
        /// From which byte on.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// A node is opened, so that it outlives its names.
    Open {
        /// Which.
        inode: Inode,
    },
    /// It is released.
    Release {
        /// Which.
        inode: Inode,
    },
    /// A node is made durable.
    Sync {
        /// Which.
        inode: Inode,
    },
    /// All is.
    SyncAll,
    /// The disk does what it does from time to time.
    Tend,
    /// The disk reads all that it holds, and mends it.
    Scrub,
    /// It goes on with that a few times, a group or some pages each.
    ScrubInPassing,
    /// The disk is closed and opened.
    Reopen,
    /// The disk is closed and opened on a larger device, and takes it up.
    Grow {
        /// By how much.
        sectors: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum Act {
    MakeFile,
    MakeOther,
    Link,
    Remove,
    Rename,
    Exchange,
    SetPermissions,
    SetAttribute,
    Write,
    WriteMuch,
    Append,
    Overwrite,
    Cut,
    Punch,
    Allocate,
    Read,
    Open,
    Release,
    Sync,
    SyncAll,
    Tend,
    Scrub,
    ScrubInPassing,
    Reopen,
    Grow,
}

impl Scenario {
    /// How often each act comes, and what comes in every scenario.
    fn acts(self, scale: Scale) -> Vec<(Act, u64)> {
        let mut acts = vec![
            (Act::Read, 6),
            (Act::Sync, 6),
            (Act::SyncAll, 2),
            (Act::Tend, 8),
            (Act::Scrub, 1),
            (Act::Reopen, 1),
            (Act::MakeFile, 3),
        ];
        acts.extend_from_slice(match self {
            Scenario::Writes => &[(Act::Write, 25), (Act::WriteMuch, 12), (Act::MakeFile, 8), (Act::Remove, 6)],
            Scenario::Appends => &[(Act::Append, 50), (Act::Remove, 1)],
            Scenario::Overwrites => &[(Act::WriteMuch, 4), (Act::Overwrite, 50)],
            Scenario::Names => &[
                (Act::MakeFile, 8),
                (Act::MakeOther, 16),
                (Act::Link, 6),
                (Act::Remove, 12),
                (Act::Rename, 16),
                (Act::Exchange, 4),
                (Act::SetPermissions, 4),
                (Act::SetAttribute, 8),
                (Act::Append, 4),
                (Act::Open, 4),
                (Act::Release, 3),
            ],
            Scenario::Shapes if scale == Scale::Small => {
                &[(Act::Write, 20), (Act::Overwrite, 10), (Act::Cut, 14), (Act::Punch, 14), (Act::Allocate, 8)]
            }
            // Of bulk runs parts are freed by what is written over them, too.
            Scenario::Shapes => &[
                (Act::WriteMuch, 16),
                (Act::Write, 8),
                (Act::Overwrite, 10),
                (Act::Cut, 6),
                (Act::Punch, 14),
                (Act::Allocate, 4),
            ],
            Scenario::Full => &[(Act::WriteMuch, 50), (Act::Overwrite, 15), (Act::Allocate, 3), (Act::Remove, 5)],
            Scenario::Mixed => &[
                (Act::MakeOther, 5),
                (Act::Link, 2),
                (Act::Remove, 6),
                (Act::Rename, 6),
                (Act::Exchange, 1),
                (Act::SetAttribute, 2),
                (Act::Write, 12),
                (Act::WriteMuch, 4),
                (Act::Append, 12),
                (Act::Overwrite, 16),
                (Act::Cut, 4),
                (Act::Punch, 4),
                (Act::Allocate, 2),
                (Act::Open, 3),
                (Act::Release, 2),
                (Act::Grow, 1),
            ],
            Scenario::Passing => &[
                (Act::ScrubInPassing, 24),
                (Act::WriteMuch, 8),
                (Act::Append, 8),
                (Act::Overwrite, 16),
                (Act::Punch, 3),
                (Act::Remove, 2),
            ],
        });
        acts
    }

    /// Chooses the next step.
    pub fn step(self, scale: Scale, model: &Model, random: &dyn Random) -> Step {
        let acts = self.acts(scale);
        let total: u64 = acts.iter().map(|(_, weight)| weight).sum();
        for _ in 0..TRIES {
            let mut at = random.below(total);
            let act = acts.iter().find(|(_, weight)| {
                let found = at < *weight;
                at = at.saturating_sub(*weight);
                found
            });
            let choice = Choice { scenario: self, scale, model, random };
            if model.shape().files().next().is_none()
                && let Some(step) = choice.step(Act::MakeFile)
            {
                return step;
            }
            if let Some(step) = act.and_then(|(act, _)| choice.step(*act)) {
                return step;
            }
        }
        Step::SyncAll
    }

    /// How large a file may become, in sectors of data.
    fn file_sectors_max(self, scale: Scale) -> u64 {
        match self {
            Scenario::Full => scale.file_sectors_max().max(2000),
            _ => scale.file_sectors_max(),
        }
    }

    /// How many nodes there may be: more make comparing slow and find nothing more.
    fn nodes_max(self) -> usize {
        match self {
            Scenario::Names => 24,
            Scenario::Overwrites | Scenario::Appends => 4,
            _ => 10,
        }
    }
}

/// After so many acts that make no sense here, all is synced.
const TRIES: usize = 20;
const SECTOR: u64 = SECTOR_BYTES as u64;
const NAMES: u64 = 6;

/// The choice of one step.
struct Choice<'a> {
    scenario: Scenario,
    scale: Scale,
    model: &'a Model,
    random: &'a dyn Random,
}

impl Choice<'_> {
    fn step(&self, act: Act) -> Option<Step> {
        Some(match act {
            Act::MakeFile => self.make(Kind::File)?,
            Act::MakeOther => {
                let kinds = [Kind::Directory, Kind::Directory, Kind::Directory, Kind::Link, Kind::Pipe];
                self.make(kinds[self.below(5) as usize])?
            }
            Act::Link => {
                let (_, _, inode) = self.row()?;
                let is_directory = self.model.shape().nodes()[&inode].kind == Kind::Directory;
                let (directory, name) = self.free_name().filter(|_| !is_directory)?;
                Step::Change(ShapeChange::Link { inode, directory, name })
            }
            Act::Remove => {
                let (directory, name, inode) = self.row()?;
                self.model.shape().nodes()[&inode].rows.is_empty().then_some(())?;
                Step::Change(ShapeChange::Remove { directory, name })
            }
            Act::Rename => self.rename()?,
            Act::Exchange => self.exchange()?,
            Act::SetPermissions => {
                // Without set-gid, which directories hand down.
                let permissions = self.below(0o2000) as u16;
                Step::Change(ShapeChange::SetPermissions { inode: self.node()?, permissions })
            }
            Act::SetAttribute => {
                let (inode, name) = (self.node()?, self.name());
                let held = self.model.shape().nodes()[&inode].attributes.contains_key(&name);
                let value = (!held || self.below(2) == 0).then(|| self.bytes([10, 100, 3000][self.below(3) as usize]));
                Step::Change(ShapeChange::SetAttribute { inode, name, value })
            }
            Act::Write => self.write(self.file()?, 12, self.below(4) == 0),
            Act::WriteMuch => {
                let sectors = match self.scenario {
                    Scenario::Full => self.scale.write_sectors_max().max(400),
                    _ => self.scale.write_sectors_max(),
                };
                self.write(self.file()?, sectors, self.below(8) == 0)
            }
            Act::Append => {
                let inode = self.file()?;
                let bytes = [100, 3000, 5000, 3 * SECTOR][self.below(4) as usize];
                let offset = self.model.content(inode).bytes();
                (offset + bytes <= self.bytes_max()).then_some(())?;
                self.written(inode, offset, 1 + self.below(bytes), self.below(2) == 0)
            }
            Act::Overwrite => {
                let inode = self.file()?;
                let held = self.model.content(inode).bytes();
                (held > 0).then_some(())?;
                let offset = self.below(held);
                // Half of them whole sectors.
                let (offset, bytes) = match self.below(2) {
                    0 => (offset / SECTOR * SECTOR, (1 + self.below(3)) * SECTOR),
                    _ => (offset, 1 + self.below(6000)),
                };
                self.written(inode, offset, bytes.min(held - offset), self.below(3) > 0)
            }
            Act::Cut => {
                let inode = self.file()?;
                let bytes = self.below(self.model.content(inode).bytes().max(SECTOR) * 5 / 4 + 1);
                Step::Cut { inode, bytes: bytes.min(self.bytes_max()) }
            }
            Act::Punch => {
                let (inode, offset, bytes) = self.part()?;
                Step::Punch { inode, offset, bytes }
            }
            Act::Allocate => {
                let (inode, offset, bytes) = self.part()?;
                Step::Allocate { inode, offset, bytes, keep_size: self.below(2) == 0 }
            }
            Act::Read => {
                let (inode, offset, bytes) = self.part()?;
                Step::Read { inode, offset, bytes }
            }
            Act::Open => {
                let inode = self.node()?;
                (!self.model.open().contains(&inode) && inode != Inode::ROOT).then_some(())?;
                Step::Open { inode }
            }
            Act::Release => Step::Release { inode: pick(self.random, self.model.open().iter().copied())? },
            Act::Sync => {
                let inode = if self.below(4) > 0 { self.file()? } else { self.node()? };
                Step::Sync { inode }
            }
            Act::SyncAll => Step::SyncAll,
            Act::Tend => Step::Tend,
            Act::Scrub => Step::Scrub,
            Act::ScrubInPassing => Step::ScrubInPassing,
            Act::Reopen => Step::Reopen,
            Act::Grow => Step::Grow { sectors: 1 + self.below(100) },
        })
    }

    fn make(&self, kind: Kind) -> Option<Step> {
        let nodes_max = self.scenario.nodes_max().min(self.scale.nodes_max());
        (self.model.shape().nodes().len() < nodes_max).then_some(())?;
        let (directory, name) = self.free_name()?;
        let target = if kind == Kind::Link { self.bytes(20) } else { Vec::new() };
        let permissions = self.below(0o1000) as u16;
        Some(Step::Change(ShapeChange::Make { directory, name, inode: None, kind, permissions, target }))
    }

    fn rename(&self) -> Option<Step> {
        let (from, name, moved) = self.row()?;
        let (to, new_name) = (self.directory()?, self.name());
        let shape = self.model.shape();
        (!shape.is_within(to, moved)).then_some(())?;
        if let Some(&there) = shape.nodes()[&to].rows.get(&new_name) {
            let (moved_node, there_node) = (&shape.nodes()[&moved], &shape.nodes()[&there]);
            let sorts_agree = (moved_node.kind == Kind::Directory) == (there_node.kind == Kind::Directory);
            (sorts_agree && moved != there && there_node.rows.is_empty()).then_some(())?;
        }
        Some(Step::Change(ShapeChange::Rename { from: (from, name), to: (to, new_name) }))
    }

    fn exchange(&self) -> Option<Step> {
        let ((from, name, one), (to, other_name, two)) = (self.row()?, self.row()?);
        let shape = self.model.shape();
        (one != two && !shape.is_within(to, one) && !shape.is_within(from, two)).then_some(())?;
        Some(Step::Change(ShapeChange::Exchange { from: (from, name), to: (to, other_name) }))
    }

    fn write(&self, inode: Inode, sectors: u64, sync: bool) -> Step {
        let room = self.bytes_max();
        let offset = match self.below(4) {
            0 => 0,
            1 => self.below(room / SECTOR) * SECTOR,
            2 => self.model.content(inode).bytes() / SECTOR * SECTOR,
            _ => self.below(room),
        };
        let bytes = match self.below(3) {
            0 => 1 + self.below(2100),
            1 => (1 + self.below(sectors)) * SECTOR,
            _ => 1 + self.below(sectors * SECTOR),
        };
        self.written(inode, offset, bytes.min(room.saturating_sub(offset)), sync)
    }

    fn written(&self, inode: Inode, offset: u64, bytes: u64, sync: bool) -> Step {
        Step::Write { inode, offset, bytes: bytes as usize, seed: self.random.next_u64(), sync }
    }

    /// Part of a file, which may reach behind its end.
    fn part(&self) -> Option<(Inode, u64, u64)> {
        let inode = self.file()?;
        let held = self.model.content(inode).bytes() + 100;
        let offset = self.below(held);
        // A part that frees whole groups, and leaves some.
        let bytes = 1 + self.below(held.min(self.scale.file_sectors_max() / 2 * SECTOR));
        (offset + bytes <= self.bytes_max()).then_some((inode, offset, bytes))
    }

    /// A file that has a name, or is open.
    fn file(&self) -> Option<Inode> {
        pick(self.random, self.model.shape().files())
    }

    fn node(&self) -> Option<Inode> {
        pick(self.random, self.model.shape().nodes().keys().copied())
    }

    fn directory(&self) -> Option<Inode> {
        pick(self.random, self.model.shape().directories())
    }

    fn row(&self) -> Option<(Inode, Vec<u8>, Inode)> {
        pick(self.random, self.model.shape().rows()).map(|(directory, name, inode)| (directory, name.to_vec(), inode))
    }

    fn free_name(&self) -> Option<(Inode, Vec<u8>)> {
        let (directory, name) = (self.directory()?, self.name());
        let taken = self.model.shape().nodes()[&directory].rows.contains_key(&name);
        (!taken).then_some((directory, name))
    }

    fn name(&self) -> Vec<u8> {
        format!("name {}", self.below(NAMES)).into_bytes()
    }

    fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.random.fill(&mut bytes);
        // No zeros, so that they are a link's target too.
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes
    }

    fn bytes_max(&self) -> u64 {
        self.scenario.file_sectors_max(self.scale) * SECTOR
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }
}

/// One of some things, each as likely.
fn pick<T>(random: &dyn Random, from: impl Iterator<Item = T>) -> Option<T> {
    let mut all: Vec<T> = from.collect();
    (!all.is_empty()).then(|| all.swap_remove(random.below(all.len() as u64) as usize))
}
