//! Another code over data that stays where it is: new parity files, made from what the conversion plan reads.
//!
//! ```text
//! parcels --join--> joint --restore--> the same parcels, byte for byte
//! each: planned -> locked, found and planned again -> new files under `.part` -> synced -> read back -> renamed -> manifest -> old parity removed
//! ```
//!
//! Invariants:
//! 1. No file that is kept is written to. Old parity is removed only when the new one and its manifest are durable, so
//!    after a kill at any moment one of the two is whole. Converting again finishes what was begun.
//! 2. What is computed with and written is what [`ConversionPlan`] says. Beside it are read heads, checksums, the new
//!    files once more, and what stays, to see that they are right: a sector that only the old parity can mend must not
//!    be met when that is gone.
//!
//! Left out: codes with sub-chunks, and one parcel as several stripes: their data would have to move, which costs more
//! than encoding anew.

use std::sync::Arc;

use claystone_code::{CodeSpec, ConversionGoal, ConversionPlan, Converter, Making, plan_conversion};
use claystone_env::Directory;

use crate::Progress;
use crate::chunk_file::{ChunkFile, path};
use crate::error::Error;
use crate::identity::{Agreement, Identity};
use crate::joint::{Joint, MemberChunk};
use crate::manifest::{ParcelId, check_spec};
use crate::parcel::Parcel;
use crate::parts::{Parts, is_manifest, lock_all, write_manifest};
use crate::sector::SECTOR_BYTES;

/// Bytes of each chunk in memory at once.
const PIECE_BYTES: u64 = 256 << 10;

/// A conversion that leaves the data in place, ready to be done.
pub struct Conversion<'a> {
    parcels: &'a [Parcel],
    plan: ConversionPlan,
    /// Of a new joint.
    id: ParcelId,
    reads: Vec<&'a ChunkFile>,
    writes: Vec<Identity>,
    drops: Vec<&'a ChunkFile>,
    /// What there is afterwards: a joint, or its members on their own.
    results: Vec<Agreement>,
}

/// Why the data of some parcels cannot stay where it is, so that encoding anew is what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Parcels of several codes.
    Mixed,
    /// A merged parcel, whose data stays only on the way back to its members' code.
    Merged {
        /// That code.
        members: CodeSpec,
    },
    /// So many parcels make one of the new code, and other ones were given.
    Count {
        /// As many as it takes.
        parcels: u16,
    },
    /// Files would be cut: the least number of parcels that makes whole ones of the new code makes several of it.
    Split {
        /// Parcels of the old code.
        from: u16,
        /// As many of the new code.
        into: u16,
    },
    /// The new parity is of all data or the data is cut in another way: nothing would be saved.
    NoGain,
}

/// What a conversion did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Bytes of content that were read to compute with.
    pub read_bytes: u64,
    /// Bytes of content that were written.
    pub written_bytes: u64,
    /// Bytes that went into sums.
    pub combined_bytes: u64,
    /// Files that were written.
    pub written: Vec<String>,
    /// Files that were removed.
    pub removed: Vec<String>,
}

/// What went through memory.
#[derive(Default)]
struct Computed {
    written_bytes: u64,
    combined_bytes: u64,
    /// Of content that stays.
    checked_bytes: u64,
}

impl<'a> Conversion<'a> {
    /// Plans to put the data of `parcels`, in this order, under the code `to`: `None` if nothing is better than encoding
    /// anew. `id` must be random.
    ///
    /// # Errors
    /// A chunk file is missing or damaged in its head, several parcels do not belong under one code, or `to` is none or has a name
    /// that is too long.
    pub fn plan(parcels: &'a [Parcel], to: CodeSpec, id: ParcelId) -> Result<Option<Conversion<'a>>, Error> {
        check_spec(to)?;
        if let [Parcel { agreement: Agreement::Joint(joint), .. }] = parcels
            && joint.members[0].spec == to
        {
            return Self::plan_restore(parcels, joint);
        }
        Self::plan_join(parcels, to, id)
    }

    /// Why there is no such plan: for words, where [`Conversion::plan`] has given `None`.
    ///
    /// # Errors
    /// `to` is no code, or the parcels have it already.
    pub fn obstacle(parcels: &[Parcel], to: CodeSpec) -> Result<Obstacle, Error> {
        let merged = parcels.iter().find_map(|parcel| match &parcel.agreement {
            Agreement::Parcel(_) => None,
            Agreement::Joint(joint) => Some(Obstacle::Merged { members: joint.members[0].spec }),
        });
        if let Some(merged) = merged {
            return Ok(merged);
        }
        let Some(from) = parcels.first().map(Parcel::spec) else { return Ok(Obstacle::NoGain) };
        if parcels.iter().any(|parcel| parcel.spec() != from) {
            return Ok(Obstacle::Mixed);
        }
        let plan = plan_conversion(from, to, ConversionGoal::FewestReads)?;
        Ok(obstacle(&plan, parcels.len()).unwrap_or(Obstacle::NoGain))
    }

    fn plan_join(parcels: &'a [Parcel], to: CodeSpec, id: ParcelId) -> Result<Option<Conversion<'a>>, Error> {
        let manifests = parcels.iter().map(|parcel| match &parcel.agreement {
            Agreement::Parcel(manifest) => Some(manifest.clone()),
            Agreement::Joint(_) => None,
        });
        let Some(members) = manifests.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let Some(from) = members.first().map(|member| member.spec) else { return Ok(None) };
        let plan = plan_conversion(from, to, ConversionGoal::FewestReads)?;
        if obstacle(&plan, members.len()).is_some() {
            return Ok(None);
        }
        check_whole(parcels)?;
        let mut kept = vec![None; to.shape().parity.into()];
        for chunk in &plan.kept {
            if let Some(parity) = chunk.to.chunk.0.checked_sub(to.shape().data) {
                kept[usize::from(parity)] = Some(MemberChunk { member: chunk.from.stripe, chunk: chunk.from.chunk.0 });
            }
        }
        let joint = Joint { id, spec: to, members, kept };
        match joint.fault() {
            Some(_) if parcels.len() == 1 => return Ok(None),
            Some(reason) => return Err(Error::NotJoinable { from, to, reason }),
            None => check_names(&joint)?,
        }
        let file = |at: &claystone_code::StripeChunk| &parcels[usize::from(at.stripe)].files[&at.chunk.0];
        Ok(Some(Conversion {
            parcels,
            reads: plan.reads.iter().map(file).collect(),
            writes: plan.writes.iter().map(|at| joint.identity(at.chunk.0)).collect(),
            drops: plan.dropped().iter().map(file).collect(),
            results: vec![Agreement::Joint(joint)],
            plan,
            id,
        }))
    }

    fn plan_restore(parcels: &'a [Parcel], joint: &Joint) -> Result<Option<Conversion<'a>>, Error> {
        let to = joint.members[0].spec;
        let plan = plan_conversion(joint.spec, to, ConversionGoal::FewestReads)?;
        let is_plain = matches!(plan.making, Making::Sums(_));
        let sources: Vec<MemberChunk> = (0..joint.spec.shape().chunks()).filter_map(|at| joint.source(at)).collect();
        let stays = |kept: &claystone_code::Kept| {
            joint.source(kept.from.chunk.0) == Some(MemberChunk { member: kept.to.stripe, chunk: kept.to.chunk.0 })
        };
        let is_new =
            |at: &claystone_code::StripeChunk| !sources.contains(&MemberChunk { member: at.stripe, chunk: at.chunk.0 });
        if !is_plain || plan.sources != 1 || !plan.kept.iter().all(stays) || !plan.writes.iter().all(is_new) {
            return Ok(None);
        }
        check_names(joint)?;
        check_whole(parcels)?;
        let files = &parcels[0].files;
        Ok(Some(Conversion {
            parcels,
            reads: plan.reads.iter().map(|at| &files[&at.chunk.0]).collect(),
            writes: plan.writes.iter().map(|at| joint.members[usize::from(at.stripe)].identity(at.chunk.0)).collect(),
            drops: files.values().filter(|file| joint.source(file.chunk).is_none()).collect(),
            results: joint.members.iter().cloned().map(Agreement::Parcel).collect(),
            plan,
            id: joint.id,
        }))
    }

    /// What is read, kept and written, chunk by chunk.
    pub fn chunks(&self) -> &ConversionPlan {
        &self.plan
    }

    /// Bytes of the longest chunk: what is told as progress in all.
    pub fn chunk_bytes(&self) -> u64 {
        self.parcels.iter().map(|parcel| parcel.layout().chunk_bytes()).max().unwrap_or(0)
    }

    /// Chunk files that stay and are not read to compute with.
    fn stays(&self) -> impl Iterator<Item = &'a ChunkFile> {
        let is_among = |files: &[&ChunkFile], file| files.iter().any(|other| std::ptr::eq(*other, file));
        let all = self.parcels.iter().flat_map(Parcel::files);
        all.filter(move |file| !is_among(&self.reads, *file) && !is_among(&self.drops, *file))
    }

    /// Converts; new files are written into `into`.
    ///
    /// # Errors
    /// A sector that is needed or stays is damaged, another process writes there, something else has the name of a new
    /// file, a chunk file was lost or the parcel converted since this was planned, or a file's own. Then the old parity is still whole, unless it is the removing of it that failed.
    pub fn run(&self, into: &Arc<dyn Directory>, progress: Progress<'_>) -> Result<Converted, Error> {
        let _locks = lock_all(self.parcels.iter().flat_map(Parcel::directories).chain([into]))?;
        let parcels = self.parcels.iter().map(Parcel::found_again).collect::<Result<Vec<_>, _>>()?;
        let again = Conversion::plan(&parcels, self.plan.to, self.id)?;
        again.expect("the same parcels have the same plan").run_locked(into, progress)
    }

    /// Converts what was found while nobody else could write.
    fn run_locked(&self, into: &Arc<dyn Directory>, progress: Progress<'_>) -> Result<Converted, Error> {
        let mut parts = self.new_parts(into)?;
        let read_before: u64 = self.parcels.iter().map(Parcel::read_bytes).sum();
        let Computed { written_bytes, combined_bytes, checked_bytes } = self.compute(&parts, progress)?;
        let read_bytes = self.parcels.iter().map(Parcel::read_bytes).sum::<u64>() - read_before - checked_bytes;

        parts.sync(|at| self.writes[usize::from(at)].head.clone())?;
        parts.files().try_for_each(|file| {
            file.check_head(&self.writes[usize::from(file.chunk)].head)?;
            file.check_content()
        })?;
        parts.give_names()?;
        self.results.iter().try_for_each(|result| write_manifest(&**into, result))?;

        let drops = self.drops.iter().map(|file| (Arc::clone(&file.directory), file.name.clone()));
        let is_joint = |parcel: &&Parcel| matches!(parcel.agreement, Agreement::Joint(_));
        let manifests = self.parcels.iter().filter(is_joint).flat_map(|parcel| parcel.manifest_files.iter().cloned());
        // The manifest of a joint first, and durably: while it is there, the joint holds.
        let mut removed = remove(&manifests.collect::<Vec<_>>())?;
        removed.extend(remove(&drops.collect::<Vec<_>>())?);
        let written = self.writes.iter().map(|write| path(&**into, &write.name)).collect();
        Ok(Converted { read_bytes, written_bytes, combined_bytes, written, removed })
    }

    /// The new files, in the order of the writes. What a conversion that was not finished left under their names goes.
    fn new_parts(&self, into: &Arc<dyn Directory>) -> Result<Parts, Error> {
        let manifests: Vec<(String, Vec<u8>)> = self.results.iter().map(Agreement::manifest_file).collect();
        let manifest_names = manifests.iter().map(|(name, _)| name);
        let names: Vec<&String> = self.writes.iter().map(|write| &write.name).chain(manifest_names).collect();
        let is_ours = |name: &String| names.contains(&name);
        let left = self.parcels.iter().flat_map(|parcel| &parcel.superfluous);
        let left = left.filter(|(directory, name)| directory.label() == into.label() && is_ours(name)).cloned();
        let left: Vec<_> = left.collect();
        if !left.is_empty() {
            remove(&left)?;
        }
        let there = into.list("").map_err(Error::io(into.label(), "listing the directory"))?;
        for (name, manifest) in &manifests {
            if there.binary_search(name).is_ok() {
                let path = path(&**into, name);
                let file = into.open(name).map_err(Error::io(path.clone(), "opening it"))?;
                if !is_manifest(&*file, manifest) {
                    return Err(Error::Exists { path });
                }
            }
        }
        let mut parts = Parts::default();
        for (at, identity) in (0..).zip(&self.writes) {
            if there.binary_search(&identity.name).is_ok() {
                return Err(Error::Exists { path: path(&**into, &identity.name) });
            }
            parts.add(into, identity, at)?;
        }
        Ok(parts)
    }

    /// Computes and writes the new chunks, and reads what stays.
    fn compute(&self, parts: &Parts, progress: Progress<'_>) -> Result<Computed, Error> {
        let spec = self.plan.to;
        let converter = Converter::new(&self.plan);
        let converter = converter.map_err(|source| Error::BadCode { spec: spec.to_string(), source })?;
        let (length, sector) = (self.chunk_bytes(), SECTOR_BYTES as u64);
        let mut done = Computed::default();
        let mut staying = Vec::new();
        let mut fetched = vec![Vec::new(); self.reads.len()];
        let mut made = vec![Vec::new(); self.writes.len()];
        for at in (0..length).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(length - at);
            let sectors = at / sector..(at + bytes).div_ceil(sector);
            fetched.iter_mut().chain(&mut made).for_each(|buffer: &mut Vec<u8>| buffer.resize(bytes as usize, 0));
            for (file, buffer) in self.reads.iter().zip(&mut fetched) {
                file.read_whole(sectors.clone(), buffer)?;
            }
            staying.resize(bytes as usize, 0);
            for file in self.stays() {
                done.checked_bytes += file.read_whole(sectors.clone(), &mut staying)?;
            }
            let sources: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
            converter.apply(&sources, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            for (file, buffer) in parts.files().zip(&made) {
                done.written_bytes += file.write(sectors.start, buffer).map_err(Error::io(file.path(), "writing"))?;
            }
            done.combined_bytes += self.plan.bytes_combined(bytes);
            progress(bytes);
        }
        Ok(done)
    }
}

impl Parcel {
    /// Removes what a conversion that was not finished left: parity that was replaced already, or new parity that never
    /// became whole. Returns the names.
    ///
    /// # Errors
    /// A chunk file of the parcel is missing or damaged, or a file cannot be removed.
    pub fn remove_superfluous(&self) -> Result<Vec<String>, Error> {
        let _locks = lock_all(self.directories())?;
        let again = self.found_again()?;
        if !again.absent().is_empty() {
            let name = again.members()[0].name.clone();
            return Err(Error::NotWhole { name, absent: again.absent().len(), damaged: 0 });
        }
        for file in again.files() {
            if let Some(sector) = file.first_damaged() {
                return Err(Error::DamagedSource { path: file.path(), sector });
            }
        }
        // The names that stay may be younger than the last sync.
        for directory in again.directories() {
            directory.sync_dir("").map_err(Error::io(directory.label(), "syncing the directory"))?;
        }
        remove(&again.superfluous)
    }
}

/// What keeps a plan from being followed with so many parcels of one code.
fn obstacle(plan: &ConversionPlan, parcels: usize) -> Option<Obstacle> {
    let is_plain = matches!(plan.making, Making::Sums(_)) && plan.from.shape().alpha == 1;
    match (is_plain, plan.targets) {
        (false, _) => Some(Obstacle::NoGain),
        (true, 2..) => Some(Obstacle::Split { from: plan.sources, into: plan.targets }),
        (true, _) if usize::from(plan.sources) != parcels => Some(Obstacle::Count { parcels: plan.sources }),
        (true, _) => None,
    }
}

/// Lost chunks are no part of a plan: they are repaired before.
fn check_whole(parcels: &[Parcel]) -> Result<(), Error> {
    for parcel in parcels {
        let damaged = parcel.files().filter(|file| file.head_damage.is_some()).count();
        if !parcel.absent().is_empty() || damaged > 0 {
            let name = parcel.members()[0].name.clone();
            return Err(Error::NotWhole { name, absent: parcel.absent().len(), damaged });
        }
    }
    Ok(())
}

/// What would have one name is told before one is written over the other.
fn check_names(joint: &Joint) -> Result<(), Error> {
    joint.name_twice().map_or(Ok(()), |name| Err(Error::NameTwice { name }))
}

/// Removes files and makes that durable; returns their paths.
fn remove(files: &[(Arc<dyn Directory>, String)]) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    for (directory, name) in files {
        let whole = path(&**directory, name);
        match directory.remove(name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
            other => {
                other.map_err(Error::io(whole.clone(), "removing"))?;
                removed.push(whole);
            }
        }
    }
    for (directory, _) in files {
        directory.sync_dir("").map_err(Error::io(directory.label(), "syncing the directory"))?;
    }
    Ok(removed)
}
