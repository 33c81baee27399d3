//! The world of one run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use claystone_env::{Clock, Random};

use crate::clock::SimClock;
use crate::device::{DriveModel, SimDevice};
use crate::disk::{DiskModel, SimDisk};
use crate::link::{LinkModel, SimLink};
use crate::process::Process;
use crate::random::SimRandom;
use crate::ssd::{SimSsd, SsdModel};
use crate::trace::{Trace, TraceSum};

/// Everything that one seed decides. Clones are the same world.
#[derive(Clone)]
pub struct World {
    seed: u64,
    random: Arc<SimRandom>,
    clock: SimClock,
    trace: Arc<Trace>,
    starts: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// Runs `scenario` in the world of `seed`, on this thread, and returns what it returned.
///
/// # Panics
/// If the scenario does, or within another runtime.
pub fn run<T, F: Future<Output = T>>(seed: u64, scenario: impl FnOnce(World) -> F) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    runtime.block_on(async { scenario(World::new(seed)).await })
}

impl World {
    fn new(seed: u64) -> World {
        let random = Arc::new(SimRandom::new(seed));
        // Some moment of 2026, so that nothing rests on a round number.
        let wall = 1_767_225_600_000 + random.fork("wall").below(31_000_000_000);
        World { seed, random, clock: SimClock::new(wall), trace: Arc::default(), starts: Arc::default() }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The root of all randomness; fork it by name.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// The true time.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    /// A process that starts now. One that starts again under the same name draws other random numbers.
    pub fn process(&self, name: &str) -> Process {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let start = starts.entry(name.to_owned()).or_default();
        *start += 1;
        let random = self.random.fork(&format!("process {name}")).fork(&start.to_string());
        Process::new(random, self.clock.for_process())
    }

    /// An empty disk.
    pub fn disk(&self, name: &str, model: DiskModel) -> SimDisk {
        let random = self.random.fork(&format!("disk {name}"));
        SimDisk::new(name, model, random, self.clock.clone(), self.trace.clone())
    }

    /// An emulated drive whose sectors hold zeros.
    ///
    /// # Panics
    /// If the model's numbers make no drive.
    pub fn device(&self, name: &str, model: impl Into<DriveModel>) -> SimDevice {
        let random = self.random.fork(&format!("device {name}"));
        SimDevice::new(name, model.into(), random, Some(self.clock.clone()), self.trace.clone())
    }

    /// A solid-state drive that has nothing to do yet.
    ///
    /// # Panics
    /// If it has no flash or no memory, or collects after one in 0 programs.
    pub fn ssd(&self, name: &str, model: SsdModel) -> SimSsd {
        let random = self.random.fork(&format!("ssd {name}"));
        SimSsd::new(name, model, random, self.clock.clone(), self.trace.clone())
    }

    /// A network card's one direction.
    pub fn link(&self, name: &str, model: LinkModel) -> SimLink {
        SimLink::new(model, self.random.fork(&format!("link {name}")), self.clock.clone())
    }

    /// Adds an event of the scenario's own to the trace.
    pub fn note(&self, what: &str, numbers: &[u64]) {
        self.trace.note(what, numbers, &[]);
    }

    /// What happened so far.
    pub fn trace(&self) -> TraceSum {
        self.trace.sum()
    }
}
