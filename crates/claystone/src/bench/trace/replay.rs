//! A trace's requests carried out on a volume of this process, or on a scratch volume, at the trace's times or one behind the other.
//!
//! Invariants:
//! 1. The volume is written all over and merged before the first request, and all that waits is merged behind the last: each
//!    row that the trace writes is in at least one update of parity. So is a scratch volume, whose logs are replayed in the end.
//! 2. At the trace's times a request counts from when it was due, not from when it could begin.
//! 3. Requests under way are bounded.
//!
//! What lies behind the volume's length is wrapped around; so are times that step back.

use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_meta::Redundancy;
use claystone_model::trace::Request;
use claystone_model::{Bound, Folded, folded_updates};
use claystone_volume::comparators::UpdateMethod;
use claystone_volume::{Blocks, Durable, MergeReport, NewVolume, Scratch, Settings, Volume, VolumeStatus, Volumes};
use tokio::sync::Semaphore;

use super::{Choice, Input, costs_of};
use crate::bench::load::{self, Sample};
use crate::bench::noise::{Counters, Noise};
use crate::bench::scratch;
use crate::bench::volume::world::{Machine, stripes_on, written};
use crate::progress::Progress;
use crate::rows::{Against, Figure};
use crate::table::bytes;

/// When requests are carried out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// When those before them have ended.
    Max,
    /// At the trace's times, so many times as fast.
    Times(f64),
}

impl FromStr for Speed {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Speed> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let times = text.trim_end_matches('x').parse().ok().filter(|times| (1e-3..=1e9).contains(times));
        times.map(Speed::Times).ok_or_else(|| anyhow!("write max, or how many times as fast, such as 1x or 50x"))
    }
}

/// How to replay.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// When.
    pub speed: Speed,
    /// Requests at once at the greatest speed.
    pub depth: usize,
    /// Bytes of the log that may wait to be merged, or of a scratch volume's logs to be replayed.
    pub reserve_bytes: u64,
    /// The volume is no longer than this.
    pub device_bytes_max: u64,
}

/// What a replay measured.
#[derive(Debug)]
pub struct Replay {
    input: Input,
    case: String,
    reads: Sample,
    writes: Sample,
    upkeep: Upkeep,
    device_bytes: u64,
    reserve_bytes: u64,
    foreign: f64,
}

/// What was done for what the requests wrote.
#[derive(Debug)]
enum Upkeep {
    /// Of a volume.
    Merged {
        report: MergeReport,
        merges: u64,
        /// The same requests with the same reserve, counted, if each write updates parity.
        simulated: Option<Folded>,
        /// With two forms: data chunks that were mirrored and coded in the end.
        forms: Option<[u64; 2]>,
    },
    /// Of a scratch volume: how often its logs were replayed while requests waited.
    Replayed { replays: u64 },
}

/// What requests are carried out on.
#[derive(Debug)]
enum Device {
    Volume {
        volume: Volume,
        /// How it was before the first request.
        before: Box<VolumeStatus>,
    },
    Scratch(Arc<Scratch>),
}

impl Device {
    async fn new(volumes: &Volumes, new: NewVolume, scratch: Option<UpdateMethod>) -> anyhow::Result<Device> {
        if let Some(method) = scratch {
            return Ok(Device::Scratch(volumes.create_scratch(new, method).await?));
        }
        let volume = written(volumes, new).await?;
        let before = Box::new(volume.status());
        Ok(Device::Volume { volume, before })
    }

    fn blocks(&self) -> Arc<dyn Blocks> {
        match self {
            Device::Volume { volume, .. } => Arc::new(volume.clone()),
            Device::Scratch(scratch) => scratch.device.clone(),
        }
    }

    /// Brings all that waits into its place.
    async fn settle(self, redundancy: &Redundancy, simulated: Option<Folded>) -> anyhow::Result<Upkeep> {
        let (volume, before) = match self {
            Device::Volume { volume, before } => (volume, before),
            Device::Scratch(scratch) => {
                let replays = scratch.device.replays();
                scratch.device.replay().await?;
                return Ok(Upkeep::Replayed { replays });
            }
        };
        volume.merge_all().await?;
        let after = volume.status();
        ensure!(after.diff_pages == 0, "{} pages were not merged", after.diff_pages);
        Ok(Upkeep::Merged {
            report: since(after.merged, before.merged),
            merges: after.merges - before.merges,
            simulated,
            forms: redundancy.mirroring.map(|_| [after.mirrored.chunks, after.coded.chunks]),
        })
    }
}

/// Replays a trace.
///
/// # Errors
/// It cannot be read, or a request fails.
pub async fn run(choice: &Choice, pace: &Pace) -> anyhow::Result<Replay> {
    let shape = choice.shape(choice.page_bytes)?;
    let stripe_bytes = shape.stripe_bytes();
    let mut input = Input::read(choice, stripe_bytes)?;
    let device_bytes = input.device_bytes.min(pace.device_bytes_max / stripe_bytes * stripe_bytes);
    ensure!(device_bytes > 0, "a volume has at least one stripe of {}", bytes(stripe_bytes));
    wrap(&mut input.requests, device_bytes);
    let chunks = choice.redundancy.chunks_max();
    let settings = settings(pace.reserve_bytes, u64::from(chunks) * shape.chunk_bytes);
    let log_bytes = settings.segments_max() * settings.segment_bytes;
    let bound = Bound::Log {
        bytes: log_bytes,
        merge_from_percent: settings.merge_from_percent,
        segment_bytes: settings.segment_bytes,
        copies: choice.copies().into(),
    };
    let count = || folded_updates(&input.requests, device_bytes, shape, bound, &costs_of(device_bytes, shape));
    let simulated = choice.updated().filter(|_| choice.scratch.is_none()).map(|_| count());
    let place = scratch(choice.directory.as_deref())?;
    let Machine { env, meta, members, .. } = Machine::new(place.path(), choice.disks()).await?;
    let stripes = stripes_on(&env, &meta, members).await?;
    let volumes = Volumes::new(env, meta, stripes, settings);
    let new = NewVolume { page_bytes: choice.page_bytes, ..NewVolume::new("trace", device_bytes, choice.redundancy) };
    let device = Device::new(&volumes, new, choice.scratch).await?;
    let counters = Counters::now(&[]);
    let (reads, writes) = play(&device.blocks(), &input.requests, pace).await?;
    let foreign = Counters::now(&[]).foreign_since(counters);
    let upkeep = device.settle(&choice.redundancy, simulated).await?;
    volumes.stop().await;
    let page = bytes(choice.page_bytes.into());
    let speed = match pace.speed {
        Speed::Max => format!("depth {}", pace.depth),
        Speed::Times(times) => format!("{times}x"),
    };
    let method = choice.scratch.map(|method| format!("{method} ")).unwrap_or_default();
    Ok(Replay {
        input,
        case: format!("replay {} {method}{} {speed}", choice.redundancy, page.replace(".0 ", "")),
        reads,
        writes,
        upkeep,
        device_bytes,
        reserve_bytes: if choice.scratch.is_some() { pace.reserve_bytes } else { log_bytes },
        foreign,
    })
}

/// Segments are an eighth of the reserve, if stripes of `stripe_bytes` of chunks allow it.
fn settings(reserve_bytes: u64, stripe_bytes: u64) -> Settings {
    let least = 2 * stripe_bytes + (4 << 20);
    let default = Settings::default();
    let segment_bytes = (reserve_bytes / SEGMENTS).min(default.segment_bytes).max(least);
    Settings { reserve_bytes, segment_bytes, ..default }
}

fn wrap(requests: &mut [Request], device_bytes: u64) {
    for request in requests {
        request.bytes = request.bytes.min(u32::try_from(device_bytes).unwrap_or(u32::MAX));
        request.offset %= device_bytes;
        // What would cross the end lies before it.
        request.offset = request.offset.min(device_bytes - u64::from(request.bytes));
    }
}

/// Carries out requests. Returns those that read and those that wrote.
async fn play(blocks: &Arc<dyn Blocks>, requests: &[Request], pace: &Pace) -> anyhow::Result<(Sample, Sample)> {
    let longest = requests.iter().map(|request| request.bytes).max().unwrap_or(0);
    let content = load::content(longest as usize);
    let requests: Arc<[Request]> = requests.iter().copied().filter(|request| request.bytes > 0).collect();
    let progress = Progress::timed("replaying", requests.len() as u64);
    let begin = Instant::now();
    let latencies = match pace.speed {
        Speed::Max => at_depth(blocks, &requests, content, pace.depth, &progress).await?,
        Speed::Times(times) => at_times(blocks, &requests, content, times, &progress).await?,
    };
    let seconds = begin.elapsed().as_secs_f64();
    progress.end();
    let sample = |writes: bool| {
        let of = requests.iter().zip(&latencies).filter(|(request, _)| request.is_write == writes);
        let latencies: Vec<Duration> = of.map(|(_, latency)| *latency).collect();
        Sample { operations: latencies.len() as u64, seconds, latencies }
    };
    Ok((sample(false), sample(true)))
}

/// One behind the other, `depth` at once.
async fn at_depth(
    blocks: &Arc<dyn Blocks>,
    requests: &Arc<[Request]>,
    content: Bytes,
    depth: usize,
    progress: &Progress,
) -> anyhow::Result<Vec<Duration>> {
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..depth)
        .map(|_| {
            let (blocks, requests) = (blocks.clone(), requests.clone());
            let (next, content, progress) = (next.clone(), content.clone(), progress.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(request) = requests.get(at) else { return anyhow::Ok(latencies) };
                    let begin = Instant::now();
                    carry_out(&*blocks, request, &content).await?;
                    latencies.push((at, begin.elapsed()));
                    progress.step(1);
                }
            })
        })
        .collect();
    let mut all = vec![Duration::ZERO; requests.len()];
    for worker in workers {
        for (at, latency) in worker.await.map_err(|_| anyhow!("a worker panicked"))?? {
            all[at] = latency;
        }
    }
    Ok(all)
}

/// Each when it is due.
async fn at_times(
    blocks: &Arc<dyn Blocks>,
    requests: &Arc<[Request]>,
    content: Bytes,
    times: f64,
    progress: &Progress,
) -> anyhow::Result<Vec<Duration>> {
    let room = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let outcome: Arc<Mutex<anyhow::Result<Vec<Duration>>>> =
        Arc::new(Mutex::new(Ok(vec![Duration::ZERO; requests.len()])));
    let first_us = requests.first().map_or(0, |request| request.at_us);
    let begin = Instant::now();
    for (at, request) in requests.iter().copied().enumerate() {
        let due = begin + Duration::from_secs_f64(request.at_us.saturating_sub(first_us) as f64 / 1e6 / times);
        wait_until(due).await;
        let pass = room.clone().acquire_owned().await.context("nobody closes it")?;
        if outcome.lock().unwrap_or_else(PoisonError::into_inner).is_err() {
            break;
        }
        let (blocks, content) = (blocks.clone(), content.clone());
        let (outcome, progress) = (outcome.clone(), progress.clone());
        tokio::spawn(async move {
            let done = carry_out(&*blocks, &request, &content).await;
            let latency = due.elapsed();
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match (done, &mut *outcome) {
                (Ok(()), Ok(latencies)) => latencies[at] = latency,
                (Err(error), Ok(_)) => *outcome = Err(error),
                (_, Err(_)) => {}
            }
            drop(pass);
            progress.step(1);
        });
    }
    // All have ended when all room is there again.
    let _all = room.acquire_many(UNDER_WAY_MAX as u32).await.context("nobody closes it")?;
    std::mem::replace(&mut *outcome.lock().unwrap_or_else(PoisonError::into_inner), Ok(Vec::new()))
}

/// The clock of tasks ticks each millisecond; what is left of one is waited for awake.
async fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > TICK {
        tokio::time::sleep(left - TICK).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}

async fn carry_out(blocks: &dyn Blocks, request: &Request, content: &Bytes) -> anyhow::Result<()> {
    if request.is_write {
        blocks.write(request.offset, content.slice(..request.bytes as usize), Durable::WithFlush).await?;
    } else {
        let range = ByteRange { offset: request.offset, bytes: request.bytes.into() };
        let read: u64 = blocks.read(range).await?.iter().map(claystone_volume::Stretch::bytes).sum();
        ensure!(read == range.bytes, "{read} of {} bytes were read", range.bytes);
    }
    Ok(())
}

fn since(after: MergeReport, before: MergeReport) -> MergeReport {
    MergeReport {
        pages: after.pages - before.pages,
        stripes: after.stripes - before.stripes,
        parity_updates: after.parity_updates - before.parity_updates,
        sectors_read: after.sectors_read - before.sectors_read,
        sectors_written: after.sectors_written - before.sectors_written,
        ..after
    }
}

impl Replay {
    /// What was replayed, for people.
    pub fn for_people(&self) -> String {
        let wrapped = if self.device_bytes < self.input.device_bytes { ", wrapped around" } else { "" };
        let noise = Noise { pressure: 0.0, foreign: self.foreign };
        let noise = if noise.is_quiet() { "" } else { "; others used the processors meanwhile, so times say little" };
        format!(
            "{}The stripes touched lie side by side on a volume of {}{wrapped}; reserve {}{noise}\n",
            self.input.for_people(),
            bytes(self.device_bytes),
            bytes(self.reserve_bytes),
        )
    }

    /// The figures, each a row.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let mut figure = |metric: &str, value: f64, unit, against: Option<(&str, f64)>| {
            figures.push(Figure {
                bench: "trace",
                case: self.case.clone(),
                metric: metric.to_owned(),
                value,
                unit,
                against: against.map(|(name, value)| Against { name: name.to_owned(), value }),
            });
        };
        for (kind, sample) in [("read", &self.reads), ("write", &self.writes)] {
            if sample.operations == 0 {
                continue;
            }
            figure(&format!("{kind}s"), sample.operations as f64, "", None);
            figure(&format!("{kind}s_per_s"), sample.rate(), "/s", None);
            for (share, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p999")] {
                figure(&format!("{kind}_{name}_ms"), sample.percentile_ms(share), "ms", None);
            }
        }
        let (merged, merges, simulated, forms) = match &self.upkeep {
            Upkeep::Replayed { replays } => {
                figure("log_replays", *replays as f64, "", None);
                return figures;
            }
            Upkeep::Merged { report, merges, simulated, forms } => (report, merges, simulated, forms),
        };
        figure("merges", *merges as f64, "", None);
        figure("pages_merged", merged.pages as f64, "", None);
        if let Some(simulated) = simulated {
            let naive = simulated.row_writes as f64;
            figure("parity_updates", merged.parity_updates as f64, "", Some(("naive", naive)));
            figure("parity_updates_simulated", simulated.row_updates as f64, "", Some(("naive", naive)));
        }
        if let Some([mirrored, coded]) = forms {
            figure("chunks_mirrored", *mirrored as f64, "", None);
            figure("chunks_coded", *coded as f64, "", None);
        }
        figure("sectors_read", merged.sectors_read as f64, "sectors", None);
        figure("sectors_written", merged.sectors_written as f64, "sectors", None);
        figures
    }
}

const SEGMENTS: u64 = 8;
const UNDER_WAY_MAX: usize = 256;
const TICK: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read() {
        let speed = |text: &str| text.parse::<Speed>().ok();
        assert_eq!(
            (speed("max"), speed("1x"), speed("0.5")),
            (Some(Speed::Max), Some(Speed::Times(1.0)), Some(Speed::Times(0.5)))
        );
        for wrong in ["", "x", "-1x", "0", "fast", "NaN"] {
            assert_eq!(speed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn requests_beyond_the_device_are_wrapped_around() {
        let request = |offset, bytes| Request { at_us: 0, volume: 0, offset, bytes, is_write: true };
        let mut requests = [request(5, 3), request(107, 3), request(98, 5), request(250, 200)];
        wrap(&mut requests, 100);
        let placed = requests.map(|request| (request.offset, request.bytes));
        assert_eq!(placed, [(5, 3), (7, 3), (95, 5), (0, 100)]);
    }
}
