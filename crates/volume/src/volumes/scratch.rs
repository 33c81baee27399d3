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

/// Scratch volumes by name; `None`: it is being made.
pub(super) type Scratches = std::sync::Mutex<BTreeMap<String, Option<Arc<Scratch>>>>;

/// A name that is taken until it is given back.
struct Taken<'a> {
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
        self.check_fits(&new)?;
        let taken = self.take_name(&new.name).await?;
        let geometry =
            Geometry { page_bytes: new.page_bytes, chunk_bytes: new.chunk_bytes, columns: code.shape().data };
        let stripes_count = new.bytes.div_ceil(geometry.stripe_bytes());
        let (stripes, log_bytes) = (self.stripes.clone(), self.settings.reserve_bytes);
        let device = InPlace::new(&self.env, stripes, code, method, geometry, stripes_count, log_bytes).await?;
        let scratch = Arc::new(Scratch {
            name: new.name.clone(),
            code,
            geometry,
            created: self.env.clock.wall(),
            device: Arc::new(device),
        });
        taken.keep(scratch.clone());
        Ok(scratch)
    }

    async fn take_name<'a>(&'a self, name: &'a str) -> Result<Taken<'a>, VolumeError> {
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
        if self.is_scratch(name) {
            return Err(VolumeError::IsScratch { name: name.to_owned() });
        }
        Ok(self.meta.volume(name).await?)
    }

    /// Whether a scratch volume has a name, or will have it.
    pub(super) fn is_scratch(&self, name: &str) -> bool {
        locked(&self.scratches).contains_key(name)
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
        for record in scratch.device.records() {
            // What a disk keeps is swept later.
            let _ = self.stripes.discard(record).await;
        }
        for member in self.stripes.stores().members() {
            self.forget_on(member.record.id, scratch.device.owner()).await;
        }
        Ok(())
    }
}

fn locked(scratches: &Scratches) -> MutexGuard<'_, BTreeMap<String, Option<Arc<Scratch>>>> {
    scratches.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 64 GiB.
const SCRATCH_BYTES_MAX: u64 = 64 << 30;
