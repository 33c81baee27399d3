//! The emulated devices of the bench: what they are, what is measured of them before a run, and runs.

use std::time::Duration;

use anyhow::bail;
use claystone_env::EmulatedTime;
use claystone_sim::{BufferModel, HddModel, SimDevice, SsdModel, World, WriteOrder};
use claystone_tier::{Finding, Mode, Profile, ProfilePlan, WriteState, profile_device, queue_threshold};

use super::bed::{Bed, Way};
use super::product::Product;
use super::tally::{Advance, Outcome};
use super::workload::Request;

/// What devices are made of.
#[derive(Debug, Clone, Copy)]
pub struct Devices {
    /// The solid-state drive.
    pub ssd: SsdModel,
    /// Each hard disk.
    pub buffer: BufferModel,
}

/// Who writes to them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum How {
    /// A model of one way to write.
    Model(Way),
    /// The device that ships, as it is set to steer.
    Product(Mode),
}

/// What is known of the devices before a run, because it was measured.
#[derive(Debug, Clone)]
pub struct Known {
    /// Of the hard disks.
    pub profile: Profile,
    /// The queue of the solid-state drive that is not long yet.
    pub queue_max: usize,
}

impl Devices {
    /// Measures the devices as one would any others.
    ///
    /// # Errors
    /// The hard disk shows no stages.
    pub fn measure(&self, seed: u64) -> anyhow::Result<Known> {
        let profile = self.profile(seed)?;
        let by_queue = claystone_sim::run(seed, async |world| ssd_by_queue(&world, self.ssd).await);
        let queue_max = queue_threshold(&by_queue, profile.latency(WriteState::Mid, PROBE_BYTES));
        Ok(Known { profile, queue_max })
    }

    fn profile(&self, seed: u64) -> anyhow::Result<Profile> {
        let drive = SimDevice::alone("hdd", HddModel::buffered(PROFILED_SECTORS, self.buffer), seed);
        let plan = ProfilePlan::default();
        let staircase = profile_device(&*drive.attach(), &|| drive.done_at(), &plan, &mut |_| {})?;
        match staircase.finding() {
            Finding::Buffered(profile) => Ok(profile),
            Finding::Unpredictable(why) => bail!("an emulated hard disk cannot be told in advance: {why}"),
        }
    }

    /// Carries out all requests.
    ///
    /// # Errors
    /// An emulated drive failed, which none should.
    pub fn run(
        &self,
        how: How,
        known: &Known,
        requests: &[Request],
        seed: u64,
        advance: Advance,
    ) -> anyhow::Result<Outcome> {
        claystone_sim::run(seed, async |world| {
            let local = tokio::task::LocalSet::new();
            let run = async {
                match how {
                    How::Model(way) => Bed::new(&world, self, way, known, advance).carry_out(requests).await,
                    How::Product(mode) => Product::new(&world, self, mode, known, advance)?.carry_out(requests).await,
                }
            };
            local.run_until(run).await
        })
    }
}

/// How long a write of the solid-state drive takes that comes with 0, 1, 2 ... others before it: medians.
async fn ssd_by_queue(world: &World, model: SsdModel) -> Vec<Duration> {
    let (ssd, clock) = (world.ssd("ssd", model), world.clock());
    let mut took = vec![Vec::new(); QUEUE_MEASURED];
    for _ in 0..QUEUE_ROUNDS {
        let begun = clock.now();
        let writes = (0..QUEUE_MEASURED).map(|_| async {
            ssd.write(PROBE_BYTES, WriteOrder::Following).await;
            clock.now().since(begun)
        });
        let ends = futures::future::join_all(writes).await;
        took.iter_mut().zip(ends).for_each(|(took, end)| took.push(end));
        ssd.rest().await;
    }
    took.iter_mut().for_each(|took| took.sort_unstable());
    took.into_iter().map(|took| took[QUEUE_ROUNDS / 2]).collect()
}

/// What a hard disk and a solid-state drive are compared by.
const PROBE_BYTES: u64 = 16 << 10;
const QUEUE_MEASURED: usize = 48;
const QUEUE_ROUNDS: usize = 41;
/// Longer than a run of the profiler.
const PROFILED_SECTORS: u64 = 1 << 15;
