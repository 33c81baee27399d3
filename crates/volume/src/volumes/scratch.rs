//! Scratch volumes: written in place by another method than delayed parity, to be measured by any program, and gone with the process.
//!
//! ```text
//!   make: name taken -> stripes of zeros written, claimed -> served      delete, or the process ends: nothing names its stripes
//! ```
//!
//! Invariants:
//! 1. No record names one: what a crash leaves of it, stripes and logs, is swept at the next start, and no write hole is ever opened again.
//! 2. A volume and a scratch volume never have one name at once, as far as this process makes them.
//!
//! Why not a setting of volumes: docs/decisions/0015-parity-in-place-is-for-measuring-only.md.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, MutexGuard, PoisonError};

use claystone_code::CodeSpec;
use claystone_env::WallTime;
use claystone_meta::{MetaError, VolumeRecord};

use super::{NewVolume, Volumes, check};
use crate::comparators::{InPlace, UpdateMethod};
use crate::{Geometry, VolumeError};

/// A device by which other methods are measured.
#[derive(Debug)]
pub struct Scratch {
    /// Its name.
    pub name: String,
    /// What its stripes have.
    pub code: CodeSpec,
    /// Its lengths.
    pub geometry: Geometry,
    /// When it was made.
    pub created: WallTime,
    /// The device.
    pub device: Arc<InPlace>,
}

/// Scratch volumes by name; `None`: something of this name is being made.
pub(super) type Scratches = std::sync::Mutex<BTreeMap<String, Option<Arc<Scratch>>>>;

/// A name that is taken until it is given back.
pub(super) struct Taken<'a> {
    scratches: &'a Scratches,
    name: &'a str,
}

impl Taken<'_> {
    /// It has what it was taken for.
    fn keep(self, scratch: Arc<Scratch>) {
        locked(self.scratches).insert(self.name.to_owned(), Some(scratch));
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(entry) = locked(self.scratches).entry(self.name.to_owned())
            && entry.get().is_none()
        {
            entry.remove();
        }
    }
}

impl Volumes {
    /// Makes a scratch volume: all its stripes are written, zeros.
    ///
    /// # Errors
    /// As [`Volumes::create`]; `BadScratch` if the method is not one for its code, or all of it is too long to be written at once.
    pub async fn create_scratch(&self, new: NewVolume, method: UpdateMethod) -> Result<Arc<Scratch>, VolumeError> {
        check(&new)?;
        let code = new.redundancy.code;
        let copies = matches!(code, CodeSpec::Replicated { .. });
        let bad = |reason| Err(VolumeError::BadScratch { method, redundancy: new.redundancy, reason });
        match () {
            () if new.redundancy.mirroring.is_some() => return bad("a scratch volume has one code".to_owned()),
            () if !new.homes.is_empty() => return bad("a scratch volume has no homes".to_owned()),
            () if matches!(code, CodeSpec::Mirror { .. }) || copies != (method == UpdateMethod::Replicas) => {
                return bad("`replicas` goes with replica:N, and the others with codes that have parity".to_owned());
            }
            () if new.bytes > SCRATCH_BYTES_MAX => {
                return bad(format!(
                    "it is written all over when it is made, so it has {SCRATCH_BYTES_MAX} bytes at most"
                ));
            }
            () => {}
        }
        self.check_fits(&new, &self.settings)?;
        let taken_bytes = new.bytes.saturating_mul(code.shape().chunks().into()) / u64::from(code.shape().data);
        let free_bytes: u64 = self.stripes.stores().candidates().iter().map(|candidate| candidate.free_bytes).sum();
        if taken_bytes >= free_bytes {
            return bad(format!("it takes {taken_bytes} bytes of the disks, which have room for {free_bytes}"));
        }
        let volumes = self.clone();
        let work = async move {
            let taken = volumes.take_name(&new.name).await?;
            let geometry =
                Geometry { page_bytes: new.page_bytes, chunk_bytes: new.chunk_bytes, columns: code.shape().data };
            let (stripes, log_bytes) = (volumes.stripes.clone(), volumes.settings.reserve_bytes);
            let device = InPlace::new(&volumes.env, stripes, code, method, geometry, new.bytes, log_bytes).await?;
            let created = volumes.env.clock.wall();
            let scratch =
                Arc::new(Scratch { name: new.name.clone(), code, geometry, created, device: Arc::new(device) });
            taken.keep(scratch.clone());
            Ok(scratch)
        };
        self.in_task("make a scratch volume", work).await
    }

    /// Takes a name that no volume has.
    pub(super) async fn take_name<'a>(&'a self, name: &'a str) -> Result<Taken<'a>, VolumeError> {
        let exists = || VolumeError::Meta(MetaError::VolumeExists { name: name.to_owned() });
        match locked(&self.scratches).entry(name.to_owned()) {
            Entry::Occupied(_) => return Err(exists()),
            Entry::Vacant(entry) => drop(entry.insert(None)),
        }
        let taken = Taken { scratches: &self.scratches, name };
        match self.meta.volume(name).await {
            Ok(_) => Err(exists()),
            Err(MetaError::NoSuchVolume { .. }) => Ok(taken),
            Err(error) => Err(error.into()),
        }
    }

    /// The record of a volume, which a scratch volume has not.
    pub(super) async fn record(&self, name: &str) -> Result<VolumeRecord, VolumeError> {
        if self.scratch(name).is_some() {
            return Err(VolumeError::IsScratch { name: name.to_owned() });
        }
        Ok(self.meta.volume(name).await?)
    }

    /// The scratch volume of a name.
    pub fn scratch(&self, name: &str) -> Option<Arc<Scratch>> {
        locked(&self.scratches).get(name).cloned().flatten()
    }

    /// All of them, by name.
    pub fn scratches(&self) -> Vec<Arc<Scratch>> {
        locked(&self.scratches).values().flatten().cloned().collect()
    }

    /// Deletes a scratch volume that nobody uses, and all that it has.
    ///
    /// # Errors
    /// `InUse`, `Meta` (there is none).
    pub async fn delete_scratch(&self, name: &str) -> Result<(), VolumeError> {
        let removed = match locked(&self.scratches).entry(name.to_owned()) {
            Entry::Occupied(entry) => match entry.get() {
                // Whoever uses it has the device.
                Some(scratch) if Arc::strong_count(&scratch.device) == 1 && Arc::strong_count(scratch) == 1 => {
                    entry.remove()
                }
                _ => return Err(VolumeError::InUse { name: name.to_owned() }),
            },
            Entry::Vacant(_) => None,
        };
        let Some(scratch) = removed else {
            return Err(MetaError::NoSuchVolume { name: name.to_owned() }.into());
        };
        let volumes = self.clone();
        let work = async move {
            for record in scratch.device.records() {
                // What a disk keeps is swept later.
                volumes.stripes.discard(record).await;
            }
            for member in volumes.stripes.stores().members() {
                volumes.forget_on(member.record.id, scratch.device.owner()).await;
            }
            Ok(())
        };
        self.in_task("delete a scratch volume", work).await
    }
}

fn locked(scratches: &Scratches) -> MutexGuard<'_, BTreeMap<String, Option<Arc<Scratch>>>> {
    scratches.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 64 GiB.
const SCRATCH_BYTES_MAX: u64 = 64 << 30;
