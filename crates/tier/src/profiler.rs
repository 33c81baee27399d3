//! Measures a drive: after a sync, sequential writes of one length, until enough was written; then the next length.
//!
//! Source: [bcw §Buffer-Controlled Writes], profiling.

use claystone_env::{Device, DeviceError, Moment, SECTOR_BYTES, Sector, aligned_buffer};

use crate::staircase::{Run, Staircase};

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilePlan {
    /// Lengths of writes: whole sectors.
    pub lengths: Vec<u64>,
    /// How often each length is measured.
    pub rounds: usize,
    /// Bytes of each run.
    pub run_bytes: u64,
}

impl Default for ProfilePlan {
    /// 96 MiB a run are some ten stages of a buffer of 8 MiB; the longest writes fit into any buffer that is worth using.
    fn default() -> ProfilePlan {
        ProfilePlan { lengths: vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20], rounds: 3, run_bytes: 96 << 20 }
    }
}

impl ProfilePlan {
    /// All bytes that it writes.
    pub fn bytes(&self) -> u64 {
        self.lengths.iter().map(|bytes| self.run_bytes / bytes * bytes).sum::<u64>() * self.rounds as u64
    }
}

/// Writes all over a device, as the plan says, and returns what that took. `now` is the time after the last call; `wrote` hears of
/// the bytes of each run. Blocks for as long as it takes.
///
/// # Errors
/// The device fails.
///
/// # Panics
/// If a length is not whole sectors or longer than a run, or the device is smaller than a run.
pub fn profile_device(
    device: &dyn Device,
    now: &dyn Fn() -> Moment,
    plan: &ProfilePlan,
    wrote: &mut dyn FnMut(u64),
) -> Result<Staircase, DeviceError> {
    let sectors = device.geometry().sectors;
    let mut next = 0;
    let mut runs = Vec::new();
    for _ in 0..plan.rounds {
        for &bytes in &plan.lengths {
            let each = bytes / SECTOR_BYTES as u64;
            let writes = plan.run_bytes / bytes;
            assert!(bytes.is_multiple_of(SECTOR_BYTES as u64) && writes > 0, "runs of writes of {bytes} bytes");
            assert!(writes * each <= sectors, "a run of {} bytes on {sectors} sectors", plan.run_bytes);
            if next + writes * each > sectors {
                next = 0;
            }
            let content = content(bytes);
            device.sync()?;
            let mut took_ns = Vec::with_capacity(writes as usize);
            for _ in 0..writes {
                let begun = now();
                device.write(Sector(next), content.as_ref())?;
                took_ns.push(now().since(begun).as_nanos() as u64);
                next += each;
            }
            runs.push(Run { bytes, took_ns });
            wrote(writes * bytes);
        }
    }
    device.sync()?;
    Ok(Staircase { device: device.label(), runs })
}

/// Bytes that no device stores as less than they are, where a direct write wants them.
fn content(bytes: u64) -> impl AsRef<[u8]> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = aligned_buffer(bytes as usize);
    for _ in 0..bytes / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content
}

#[cfg(test)]
mod tests {
    use claystone_env::EmulatedTime;
    use claystone_sim::{BufferModel, DriveModel, HddModel, SimDevice, SsdModel};

    use super::*;
    use crate::{Finding, Irregularity, Profile, WriteState};

    const SECTORS: u64 = 1 << 15;

    fn finding(model: impl Into<DriveModel>, seed: u64) -> Finding {
        let drive = SimDevice::alone("d", model, seed);
        let mut written = 0;
        let plan = ProfilePlan { rounds: 2, ..ProfilePlan::default() };
        let staircase = profile_device(&*drive.attach(), &|| drive.done_at(), &plan, &mut |bytes| written += bytes);
        assert_eq!(written, plan.bytes());
        staircase.expect("no faults").finding()
    }

    fn profile(buffer: BufferModel, seed: u64) -> Profile {
        match finding(HddModel::buffered(SECTORS, buffer), seed) {
            Finding::Buffered(profile) => profile,
            Finding::Unpredictable(why) => panic!("{why}"),
        }
    }

    // Test of: [bcw §HDD Write Behaviors]
    #[test]
    fn buffers_are_found_as_they_are() {
        for (buffer, seed) in [
            (BufferModel::wd_10tb_like(), 1),
            (BufferModel::wd_10tb_like(), 2),
            (BufferModel::synthetic_small(), 3),
            (BufferModel::synthetic_large(), 4),
        ] {
            let profile = profile(buffer, seed);
            profile.check().expect("a profile that can be used");
            let near = |found: u64, is: u64| (0.85..1.1).contains(&(found as f64 / is as f64));
            assert!(near(profile.fast.mean, buffer.fast_bytes), "{:?} of {buffer:?}", profile.fast);
            assert!(near(profile.mid.mean, buffer.mid_bytes), "{:?} of {buffer:?}", profile.mid);
            // Never more than the drive may take: what it takes least, the longest write that did not fit left out.
            let least = |mean: u64| mean - mean * buffer.spread_percent / 100;
            assert!(profile.fast.limit() <= least(buffer.fast_bytes), "{:?} of {buffer:?}", profile.fast);
            assert!(profile.mid.limit() <= least(buffer.mid_bytes), "{:?} of {buffer:?}", profile.mid);
            for write in buffer.writes {
                for (state, is) in [(WriteState::Fast, write.fast), (WriteState::Mid, write.mid)] {
                    let found = profile.latency(state, write.bytes).as_secs_f64() / is.as_secs_f64();
                    assert!((0.98..1.02).contains(&found), "{state:?} {found} of {write:?}");
                }
                let slow = profile.latency(WriteState::Slow, write.bytes);
                assert!(slow * 10 > buffer.slow * 9 && slow < buffer.slow * 2, "{slow:?}");
            }
        }
    }

    #[test]
    fn flash_and_a_drive_without_stages_have_no_profile() {
        let ssd = SsdModel::nvme_desktop();
        for model in [ssd, SsdModel::sata_server(), SsdModel { stall_every_sectors: 0, ..ssd }] {
            let found = finding(DriveModel::Ssd { sectors: SECTORS, model }, 5);
            assert!(matches!(found, Finding::Unpredictable(_)), "{found:?}");
        }
        let plain = HddModel { cache_sectors: u64::MAX, ..HddModel::new(SECTORS) };
        assert_eq!(finding(plain, 6), Finding::Unpredictable(Irregularity::NoSlowWrites));
    }
}
