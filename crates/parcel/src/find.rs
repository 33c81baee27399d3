//! Finding the files of a parcel among others.
//!
//! Invariants:
//! 1. A file belongs to the parcel that its head says. Only a file without a head is known by its name, and then a
//!    sector's checksum, or what is left of a head that was cut off, must say that it is true: else it is somebody else's.
//! 2. Whatever is odd is told: nothing that was named is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use claystone_env::{Directory, File};

use crate::Error;
use crate::chunk_file::{ChunkFile, path, read_head};
use crate::identity::{Agreement, AnyHead, Identity};
use crate::joint::Joint;
use crate::manifest::{FORMAT_VERSION, NoHead, ParcelId};
use crate::name::{SUFFIX, parcels_of};
use crate::parcel::Parcel;
use crate::parts::is_manifest;

/// Where to look: a directory, and a file in it if one is meant.
#[derive(Clone)]
pub struct Place {
    /// The directory.
    pub directory: Arc<dyn Directory>,
    /// The file that was named, if one was.
    pub file: Option<String>,
}

/// Something in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Oddity {
    /// A file with the name of a chunk file holds something else.
    Foreign {
        /// The file.
        path: String,
        /// What it holds.
        holds: String,
    },
    /// A chunk file goes on behind its content. Nothing reads that, and nothing takes it away.
    Longer {
        /// The file.
        path: String,
        /// Bytes of the file.
        bytes: u64,
        /// Bytes it should have.
        expected_bytes: u64,
    },
    /// A file could not be looked into.
    Unreadable {
        /// The file.
        path: String,
        /// The system's word.
        why: String,
    },
}

struct Found {
    directory: Arc<dyn Directory>,
    name: String,
    file: Arc<dyn File>,
    head: Result<AnyHead, NoHead>,
    is_named: bool,
}

impl Found {
    fn path(&self) -> String {
        path(&*self.directory, &self.name)
    }

    fn agreement(&self) -> Option<&Agreement> {
        self.head.as_ref().ok().map(|head| &head.agreement)
    }

    fn is_at(&self, path: &str) -> bool {
        self.path() == path
    }
}

/// Finds the one parcel that is meant by `places`.
///
/// # Errors
/// There is none, there are several, or its files contradict each other.
pub fn find(places: &[Place]) -> Result<Parcel, Error> {
    let (all, oddities) = look(places)?;
    let standing = standing(&all);
    let (agreement, named) = choose(&all, &standing, places)?;
    gather(&all, agreement, named, oddities, places)
}

/// Finds all parcels that are meant by `places`: those of the files that are named, or if none is, all of them.
/// Ordered as they were named, then by name.
///
/// # Errors
/// There is none, or the files of one contradict each other.
pub fn find_all(places: &[Place]) -> Result<Vec<Parcel>, Error> {
    let (all, oddities) = look(places)?;
    let standing = standing(&all);
    let named: Vec<&Found> = places
        .iter()
        .filter_map(|place| place.file.as_ref().map(|file| path(&*place.directory, file)))
        .filter_map(|path| all.iter().find(|found| found.is_at(&path)))
        .collect();
    let meant: Vec<&Found> = if named.is_empty() { all.iter().collect() } else { named };
    let mut agreements: Vec<Agreement> = Vec::new();
    for agreement in meant.iter().filter_map(|found| found.agreement()) {
        let whole = whole(agreement, &standing);
        if !agreements.iter().any(|other| other.id() == whole.id()) {
            agreements.push(whole);
        }
    }
    if agreements.len() <= 1 {
        return Ok(vec![find(places)?]);
    }
    if meant.len() == all.len() {
        agreements.sort_by_key(|agreement| (agreement.members()[0].name.clone(), agreement.id()));
    }
    let gather = |agreement| gather(&all, agreement, None, oddities.clone(), places);
    agreements.into_iter().map(gather).collect()
}

/// The joints that hold: those whose manifest's own file is there, which is written last and removed first; without it,
/// of a joint and its members on their own whichever lacks fewer chunk files, because in the middle of a conversion both
/// are there. No member is in two of them.
fn standing(all: &[Found]) -> Vec<Joint> {
    let there: BTreeSet<(ParcelId, u16)> = all
        .iter()
        .filter_map(|found| found.head.as_ref().ok())
        .filter_map(|head| head.chunk.map(|chunk| (head.agreement.id(), chunk)))
        .collect();
    let lacks = |agreement: &Agreement| {
        (0..agreement.spec().shape().chunks()).filter(|chunk| !there.contains(&agreement.key(*chunk))).count()
    };
    let has_manifest = |joint: &Agreement| {
        all.iter()
            .any(|found| found.agreement() == Some(joint) && found.head.as_ref().is_ok_and(|head| head.chunk.is_none()))
    };
    let mut joints: Vec<((bool, usize, ParcelId), Joint)> = Vec::new();
    for found in all {
        let Some(agreement @ Agreement::Joint(joint)) = found.agreement() else { continue };
        let alone: usize = joint.members.iter().map(|member| lacks(&Agreement::Parcel(member.clone()))).sum();
        let is_open = !has_manifest(agreement);
        if joints.iter().all(|((_, _, id), _)| *id != joint.id) && (!is_open || lacks(agreement) <= alone) {
            joints.push(((is_open, lacks(agreement), joint.id), joint.clone()));
        }
    }
    joints.sort_by_key(|(order, _)| *order);
    let mut taken: BTreeSet<ParcelId> = BTreeSet::new();
    let joints = joints.into_iter().map(|(_, joint)| joint);
    let mut free = |joint: &Joint| {
        let is_free = joint.members.iter().all(|member| !taken.contains(&member.id));
        taken.extend(joint.members.iter().filter(|_| is_free).map(|member| member.id));
        is_free
    };
    joints.filter(|joint| free(joint)).collect()
}

/// The joint that a parcel is in, or the parcel; for a joint that does not hold, its first member's.
fn whole(agreement: &Agreement, standing: &[Joint]) -> Agreement {
    let member = &agreement.members()[0];
    let joint = standing.iter().find(|joint| joint.members.iter().any(|one| one.id == member.id));
    joint.map_or_else(|| Agreement::Parcel(member.clone()), |joint| Agreement::Joint(joint.clone()))
}

/// The files of one parcel among all.
fn gather(
    all: &[Found],
    agreement: Agreement,
    named: Option<ParcelId>,
    mut oddities: Vec<Oddity>,
    places: &[Place],
) -> Result<Parcel, Error> {
    let spec = agreement.spec();
    let code = spec.build().map_err(|source| Error::BadCode { spec: spec.to_string(), source })?;
    let chunks = code.shape().chunks();
    let identities: Vec<Identity> = (0..chunks).map(|chunk| agreement.identity(chunk)).collect();
    let keys: BTreeMap<(ParcelId, u16), u16> = (0..chunks).map(|chunk| (agreement.key(chunk), chunk)).collect();
    let read_bytes = Arc::new(AtomicU64::new(0));

    let mut files: BTreeMap<u16, ChunkFile> = BTreeMap::new();
    let mut superfluous = Vec::new();
    let mut manifest_files = Vec::new();
    let as_chunk = |found: &Found, chunk: u16| -> Result<ChunkFile, Error> {
        let place = (Arc::clone(&found.directory), found.name.clone(), Arc::clone(&found.file));
        let file = ChunkFile::new(place, &identities[usize::from(chunk)], chunk, Arc::clone(&read_bytes));
        file.map_err(Error::io(found.path(), "looking at its length"))
    };
    // Whole heads: of this parcel or joint, of its members, of joints over them that do not hold.
    let members: Vec<Agreement> = agreement.members().iter().cloned().map(Agreement::Parcel).collect();
    let ours = || members.iter().chain([&agreement]);
    for found in all {
        let Ok(head) = &found.head else { continue };
        let is_ours = ours().any(|one| one.id() == head.agreement.id());
        if is_ours && !ours().any(|one| *one == head.agreement) {
            let mut others =
                all.iter().filter(|other| other.agreement().is_some_and(|one| ours().any(|own| own == one)));
            let other = others.next().map(Found::path).unwrap_or_default();
            return Err(Error::Contradiction { path: found.path(), other });
        }
        let is_over_ours = |joint: &Joint| joint.members.iter().any(|one| members.iter().any(|own| own.id() == one.id));
        let leaves = match (&head.agreement, head.chunk) {
            (other, Some(chunk)) if is_ours => match keys.get(&(other.id(), chunk)) {
                Some(chunk) => {
                    if let Some(twin) = files.insert(*chunk, as_chunk(found, *chunk)?) {
                        return Err(Error::Duplicate { index: *chunk, path: found.path(), other: twin.path() });
                    }
                    None
                }
                None => Some(format!("parity that the conversion to {spec} replaced")),
            },
            (other, None) if is_ours => {
                if *other == agreement {
                    manifest_files.push((Arc::clone(&found.directory), found.name.clone()));
                }
                None
            }
            (Agreement::Joint(joint), _) if is_over_ours(joint) => {
                Some(format!("a part of a conversion to {} that was not finished or is undone", joint.spec))
            }
            _ => None,
        };
        if let Some(holds) = leaves {
            superfluous.push((Arc::clone(&found.directory), found.name.clone()));
            oddities.push(Oddity::Foreign { path: found.path(), holds });
        }
    }
    let (manifest_name, manifest) = agreement.manifest_file();
    let is_headless = |found: &&Found| matches!(found.head, Err(NoHead::Damaged(_))) && found.name == manifest_name;
    let mut damaged_manifests = Vec::new();
    for found in all.iter().filter(is_headless) {
        if is_manifest(&*found.file, &manifest) {
            damaged_manifests.push(Arc::clone(&found.directory));
        } else {
            oddities
                .push(Oddity::Foreign { path: found.path(), holds: "no manifest, nor what is left of it".to_owned() });
        }
    }
    // What has the name of one of our chunks and no head of ours.
    for (chunk, identity) in (0..).zip(&identities) {
        let mut headless = Vec::new();
        for found in all.iter().filter(|found| found.name == identity.name) {
            match &found.head {
                Ok(head) if ours().any(|one| one.id() == head.agreement.id()) => (),
                Ok(head) => oddities.push(Oddity::Foreign {
                    path: found.path(),
                    holds: format!("a chunk of parcel {}", head.agreement.id()),
                }),
                Err(NoHead::Newer(version)) => oddities.push(Oddity::Foreign {
                    path: found.path(),
                    holds: format!("a chunk of format version {version}"),
                }),
                Err(NoHead::Damaged(why)) => {
                    let mut file = as_chunk(found, chunk)?;
                    file.head_damage = Some(why);
                    headless.push(file);
                }
            }
        }
        let (best, others) = best_headless(headless, files.contains_key(&chunk), identity);
        files.extend(best.map(|file| (chunk, file)));
        oddities.extend(others.into_iter().map(|(file, is_ours)| {
            let holds = match is_ours {
                true => format!("chunk {chunk}, which is there twice, under a damaged head"),
                false => format!("neither the head nor a sector of chunk {chunk}"),
            };
            Oddity::Foreign { path: file.path(), holds }
        }));
    }
    for file in files.values() {
        let expected_bytes = identities[usize::from(file.chunk)].layout.chunk_file_bytes();
        if file.bytes > expected_bytes {
            oddities.push(Oddity::Longer { path: file.path(), bytes: file.bytes, expected_bytes });
        }
    }
    let places = places.to_vec();
    let named = named.and_then(|id| agreement.members().iter().position(|member| member.id == id));
    Ok(Parcel {
        agreement,
        named,
        code,
        places,
        files,
        superfluous,
        manifest_files,
        damaged_manifests,
        oddities,
        read_bytes,
    })
}

/// Of files that have a chunk's name and no head, the one that is taken for the chunk: one that is of ours, of several the
/// one with the most good sectors, and none where a file with a head `is_there`. And the others, each with whether it is
/// of ours. Nobody else's file is taken, for a repair would write over it.
fn best_headless(
    headless: Vec<ChunkFile>,
    is_there: bool,
    identity: &Identity,
) -> (Option<ChunkFile>, Vec<(ChunkFile, bool)>) {
    let is_alone = headless.len() == 1;
    // One good sector says whose it is; to tell which is better takes all of them.
    let good = |file: &ChunkFile| file.good_sectors(if is_alone { 1 } else { u64::MAX });
    let is_ours = |file: &ChunkFile, good| good > 0 || file.is_beginning_of(&identity.head);
    let mut best: Option<(u64, ChunkFile)> = None;
    let mut others = Vec::new();
    for file in headless {
        let good = good(&file);
        if !is_ours(&file, good) {
            others.push((file, false));
        } else if is_there || best.as_ref().is_some_and(|(most, _)| *most >= good) {
            others.push((file, true));
        } else if let Some((_, worse)) = best.replace((good, file)) {
            others.push((worse, true));
        }
    }
    (best.map(|(_, file)| file), others)
}

impl Parcel {
    /// The same parcel as it lies there now. Whoever changes it does this once its directories are locked: what was found
    /// before may have been rebuilt, moved or converted meanwhile.
    ///
    /// # Errors
    /// As [`find`]'s, or the parcel is under another code or in another joint by now.
    pub(crate) fn found_again(&self) -> Result<Parcel, Error> {
        let (all, oddities) = look(&self.places)?;
        if whole(&self.agreement, &standing(&all)) != self.agreement {
            return Err(Error::Converted { name: self.members()[0].name.clone() });
        }
        let named = self.named.map(|at| self.members()[at].id);
        gather(&all, self.agreement.clone(), named, oddities, &self.places)
    }
}

/// Looks into every file that may be part of a parcel.
fn look(places: &[Place]) -> Result<(Vec<Found>, Vec<Oddity>), Error> {
    let (mut all, mut oddities) = (Vec::new(), Vec::new());
    let mut seen: Vec<(String, String)> = Vec::new();
    for place in places {
        let label = place.directory.label();
        let names = place.directory.list("").map_err(Error::io(label.clone(), "listing the directory"))?;
        for name in names {
            let is_named =
                places.iter().any(|place| place.directory.label() == label && place.file.as_ref() == Some(&name));
            let known = seen.iter().any(|(other, same)| *other == label && *same == name);
            if known || !(name.ends_with(SUFFIX) || is_named) {
                continue;
            }
            seen.push((label.clone(), name.clone()));
            let opened = place.directory.open(&name).and_then(|file| {
                let head = match read_head(&*file) {
                    Ok(bytes) => AnyHead::decode(&bytes),
                    Err(error) if is_our_own(&error) => return Err(error),
                    Err(_) => Err(NoHead::Damaged("it cannot be read")),
                };
                Ok((file, head))
            });
            let path = path(&*place.directory, &name);
            match opened {
                Ok((file, head)) => {
                    let directory = Arc::clone(&place.directory);
                    all.push(Found { directory, name, file, head, is_named });
                }
                Err(error) if is_named || is_our_own(&error) => return Err(Error::io(path, "opening it")(error)),
                Err(error) => oddities.push(Oddity::Unreadable { path, why: error.to_string() }),
            }
        }
        if let Some(file) = place.file.as_ref().filter(|file| !seen.contains(&(label.clone(), (*file).clone()))) {
            let path = path(&*place.directory, file);
            return Err(Error::io(path, "opening it")(io::ErrorKind::NotFound.into()));
        }
    }
    Ok((all, oddities))
}

/// Whether an error is of this process and says nothing about the file.
fn is_our_own(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}

/// What is meant, and the member of it that is named.
fn choose(all: &[Found], standing: &[Joint], places: &[Place]) -> Result<(Agreement, Option<ParcelId>), Error> {
    let mut meant: Option<(&Found, Agreement)> = None;
    let mut members: BTreeSet<ParcelId> = BTreeSet::new();
    for found in all.iter().filter(|found| found.is_named) {
        match (&found.head, &meant) {
            (Ok(head), _) => {
                let whole = whole(&head.agreement, standing);
                if let Some((first, other)) = &meant
                    && other.id() != whole.id()
                {
                    let (other_path, other) = (first.path(), other.id());
                    return Err(Error::Foreign { path: found.path(), id: whole.id(), other_path, other });
                }
                members.extend(match &head.agreement {
                    Agreement::Parcel(manifest) => Some(manifest.id),
                    Agreement::Joint(_) => None,
                });
                meant.get_or_insert((found, whole));
            }
            (Err(NoHead::Newer(version)), _) => {
                return Err(Error::NewerFormat { path: found.path(), version: *version, known: FORMAT_VERSION });
            }
            _ => (),
        }
    }
    if let Some((_, agreement)) = meant {
        let named = if members.len() == 1 { members.first().copied() } else { None };
        return Ok((agreement, named));
    }
    let mut parcels: BTreeMap<ParcelId, (&Found, Agreement)> = BTreeMap::new();
    let headless: Vec<&Found> = all.iter().filter(|found| found.is_named).collect();
    for found in all {
        let Some(agreement) = found.agreement() else { continue };
        let whole = whole(agreement, standing);
        // A named file without a head: a parcel that has a file of this name.
        let fits = |headless: &&Found| {
            let mut names = parcels_of(&headless.name);
            names.any(|name| agreement.names().iter().any(|own| own == name))
        };
        if headless.iter().all(fits) {
            parcels.entry(whole.id()).or_insert((found, whole));
        }
    }
    let mut found = parcels.into_values();
    match (found.next(), found.next(), headless.first()) {
        (Some((_, one)), None, _) => Ok((one, None)),
        (Some((one, _)), Some((two, _)), _) => {
            let found = [one, two].into_iter().chain(found.map(|(found, _)| found)).map(Found::path).collect();
            Err(Error::Several { found })
        }
        (None, _, Some(headless)) => {
            let reason = match headless.head {
                Err(NoHead::Damaged(reason)) => reason,
                _ => "no other file of its parcel is there",
            };
            Err(Error::NotAPart { path: headless.path(), reason })
        }
        (None, _, None) => {
            let newer = all.iter().find_map(|found| match found.head {
                Err(NoHead::Newer(version)) => Some((found.path(), version)),
                _ => None,
            });
            Err(match newer {
                Some((path, version)) => Error::NewerFormat { path, version, known: FORMAT_VERSION },
                None => {
                    let places: Vec<String> = places.iter().map(|place| place.directory.label()).collect();
                    Error::Nothing { places: places.join(", ") }
                }
            })
        }
    }
}
