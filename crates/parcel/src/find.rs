//! Finding the files of a parcel among others.
//!
//! Invariants:
//! 1. A file belongs to the parcel that its head says. Only a file without a head is known by its name, and then its
//!    sectors' checksums still say whether that is true.
//! 2. Whatever is odd is told: nothing that was named is passed over.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use claystone_env::{Directory, File};

use crate::Error;
use crate::chunk_file::{ChunkFile, path, read_head};
use crate::manifest::{FORMAT_VERSION, Head, Manifest, NoHead, ParcelId};
use crate::name::{SUFFIX, chunk_file, parcels_of};
use crate::parcel::Parcel;

/// Where to look: a directory, and a file in it if one is meant.
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
    head: Result<Head, NoHead>,
    is_named: bool,
}

impl Found {
    fn path(&self) -> String {
        path(&*self.directory, &self.name)
    }

    fn manifest(&self) -> Option<&Manifest> {
        self.head.as_ref().ok().map(|head| &head.manifest)
    }
}

/// Finds the one parcel that is meant by `places`.
///
/// # Errors
/// There is none, there are several, or its files contradict each other.
pub fn find(places: &[Place]) -> Result<Parcel, Error> {
    let (all, mut oddities) = look(places)?;
    let manifest = choose(&all, places)?;
    let code = manifest.spec.build();
    let code = code.map_err(|source| Error::BadCode { spec: manifest.spec.to_string(), source })?;
    let chunks = code.shape().chunks();
    let read_bytes = Arc::new(AtomicU64::new(0));

    let mut files: BTreeMap<u16, ChunkFile> = BTreeMap::new();
    let mut has_manifest_file = false;
    let mut take = |found: &Found, chunk: u16, damage: Option<&'static str>| -> Result<(), Error> {
        let place = (Arc::clone(&found.directory), found.name.clone(), Arc::clone(&found.file));
        let file = ChunkFile::new(place, &manifest, chunk, Arc::clone(&read_bytes));
        let mut file = file.map_err(Error::io(found.path(), "looking at its length"))?;
        file.head_damage = damage;
        match files.get(&chunk) {
            Some(other) => Err(Error::Duplicate { index: chunk, path: found.path(), other: other.path() }),
            None => {
                files.insert(chunk, file);
                Ok(())
            }
        }
    };
    for found in &all {
        match &found.head {
            Ok(head) if head.manifest == manifest => match head.chunk {
                Some(chunk) => take(found, chunk, None)?,
                None => has_manifest_file = true,
            },
            Ok(head) if head.manifest.id == manifest.id => {
                let mut others = all.iter().filter(|other| other.manifest() == Some(&manifest));
                let other = others.next().map(Found::path).unwrap_or_default();
                return Err(Error::Contradiction { path: found.path(), other });
            }
            _ => (),
        }
    }
    // What has the name of one of our chunks and no head of ours.
    for chunk in 0..chunks {
        let name = chunk_file(&manifest.name, chunk, chunks);
        for found in all.iter().filter(|found| found.name == name) {
            match &found.head {
                Ok(head) if head.manifest.id == manifest.id => (),
                Ok(head) => oddities.push(Oddity::Foreign {
                    path: found.path(),
                    holds: format!("a chunk of parcel {}", head.manifest.id),
                }),
                Err(NoHead::Newer(version)) => oddities.push(Oddity::Foreign {
                    path: found.path(),
                    holds: format!("a chunk of format version {version}"),
                }),
                Err(NoHead::Damaged(why)) => take(found, chunk, Some(why))?,
            }
        }
    }
    let directories = places.iter().map(|place| Arc::clone(&place.directory)).collect();
    Ok(Parcel { manifest, code, directories, files, has_manifest_file, oddities, read_bytes })
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
                    Ok(bytes) => Head::decode(&bytes),
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

/// The manifest of the parcel that is meant.
fn choose(all: &[Found], places: &[Place]) -> Result<Manifest, Error> {
    let mut meant: Option<(&Found, &Manifest)> = None;
    for found in all.iter().filter(|found| found.is_named) {
        match (&found.head, meant) {
            (Ok(head), None) => meant = Some((found, &head.manifest)),
            (Ok(head), Some((first, manifest))) if head.manifest.id != manifest.id => {
                return Err(Error::Foreign {
                    path: found.path(),
                    id: head.manifest.id,
                    other_path: first.path(),
                    other: manifest.id,
                });
            }
            (Err(NoHead::Newer(version)), _) => {
                return Err(Error::NewerFormat { path: found.path(), version: *version, known: FORMAT_VERSION });
            }
            _ => (),
        }
    }
    if let Some((_, manifest)) = meant {
        return Ok(manifest.clone());
    }
    let mut parcels: BTreeMap<ParcelId, &Found> = BTreeMap::new();
    let headless: Vec<&Found> = all.iter().filter(|found| found.is_named).collect();
    for found in all {
        let Some(manifest) = found.manifest() else { continue };
        // A named file without a head: a parcel that has a file of this name.
        let fits = |headless: &&Found| parcels_of(&headless.name).any(|name| name == manifest.name);
        if headless.iter().all(fits) {
            parcels.entry(manifest.id).or_insert(found);
        }
    }
    let mut found = parcels.into_values();
    match (found.next(), found.next(), headless.first()) {
        (Some(one), None, _) => Ok(one.manifest().expect("only those with a head are here").clone()),
        (Some(one), Some(two), _) => {
            let found = [one, two].into_iter().chain(found).map(Found::path).collect();
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
