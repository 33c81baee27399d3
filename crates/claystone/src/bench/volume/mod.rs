//! Random writes to block volumes: delayed parity update beside what others do, on six disks; on this machine in directories
//! of one place, and emulated, on servers with solid-state drives behind a network.
//!
//! All devices of a set-up live in one process over the same disks, and take turns. Volumes are not merged during turns, but for
//! two. One is merged all the time without a rest ("merging"). The other is merged as a store merges volumes: turns begin where its log is
//! so full that merging is under way, and go on for three rounds of it at least. Who writes as fast as it goes ("sustained") pays for
//! room soon, who writes less than can be merged ("paced") does not.
//!
//! On this machine turns are short rounds, each of which begins when all that was written before is synced, and long logs are merged; of
//! the quiet rounds the median counts. In each round modes take turns in another order, because what the system still does of one mode's
//! writes, the next one meets. Rounds are many: a write one after another takes 30 us where its threads share a processor and 90
//! where each wakes another one of a virtual machine, in every mode, and which it is changes from round to round. In simulated time
//! every mode makes the same number of writes (those two perhaps more), and a seed repeats all figures; the program's own time is
//! not in them.
//!
//! A write is acknowledged as each way acknowledges it: in the memory of the system under as many disks as it wants, without
//! a sync. Protocols are left out.
//!
//! Source: [drc-dpu §2.4]: modes, sizes and the emulated servers.

mod emulated;
pub mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use claystone_bench::gate::median;
use claystone_env::{Env, Random};
use claystone_volume::comparators::UpdateMethod;
use claystone_volume::{Blocks, Durable, Volume};

use self::emulated::Bed;
use self::world::World;
use super::load::Sample;
use super::noise::{self, Counters, Noise};
use crate::chart::Lines;
use crate::components::volume_settings;
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases, by name; empty: all.
    pub cases: Vec<String>,
    /// The modes, by name, beside replicas; empty: all.
    pub modes: Vec<String>,
    /// Length of each device; rounded to whole stripes.
    pub device_bytes: u64,
    /// Whether goals are judged.
    pub judged: bool,
    /// On this machine, if at all.
    pub machine: Option<OnMachine>,
    /// In simulated time, if at all.
    pub emulated: Option<InSimulation>,
}

/// How to measure on this machine.
#[derive(Debug, Clone)]
pub struct OnMachine {
    /// How long each device is written to in a round.
    pub round: Duration,
    /// Rounds of each case that are to be kept.
    pub rounds: usize,
    /// Where the disks are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

/// How to measure in simulated time.
#[derive(Debug, Clone)]
pub struct InSimulation {
    /// Writes of each mode and case.
    pub writes: u64,
    /// What decides all chance.
    pub seed: u64,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Figures.
    pub rows: Vec<Row>,
    /// How long writes took, by case.
    pub curves: Vec<Curves>,
}

/// How long writes of one case took: what share of them took at most how long.
#[derive(Debug)]
pub struct Curves {
    /// The case and the set-up.
    pub name: String,
    /// Of each mode: milliseconds and percent, ascending.
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Curves {
    /// The plot as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn draw(&self) -> anyhow::Result<String> {
        let title = format!("Random writes, {}", self.name);
        let y = "percent of writes";
        Lines { title: &title, x: "response in milliseconds", y, lines: self.lines.clone() }.draw()
    }
}

/// Writes of one length, so many at once.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    bytes: u64,
    depth: usize,
}

const CASES: [Case; 4] = [
    Case { name: "8KiB QD1", bytes: 8192, depth: 1 },
    Case { name: "8KiB QD16", bytes: 8192, depth: 16 },
    Case { name: "2KiB QD1", bytes: 2048, depth: 1 },
    Case { name: "2KiB QD16", bytes: 2048, depth: 16 },
];

/// A way to write, and the devices it writes to.
#[derive(Clone)]
struct Mode {
    name: &'static str,
    /// Coded pages.
    coded: Arc<dyn Blocks>,
    /// Replicated pages, and the share of writes in percent that goes to coded ones.
    replicated: Option<(Arc<dyn Blocks>, u64)>,
    merging: Merging,
    /// Writes a second, of all writers together; `None`: each follows the one before.
    paced: Option<f64>,
}

/// What is merged while a mode is measured.
#[derive(Debug, Clone)]
enum Merging {
    Nothing,
    /// This, all the time.
    All(Volume),
    /// This, as a store merges it.
    AsShipped(Volume),
}

impl Merging {
    fn volume(&self) -> Option<&Volume> {
        match self {
            Merging::Nothing => None,
            Merging::All(volume) | Merging::AsShipped(volume) => Some(volume),
        }
    }
}

/// What a mode did in a turn.
#[derive(Debug, Clone, Default)]
struct Turn {
    sample: Sample,
    /// Pages that were merged meanwhile.
    merged_pages: u64,
    /// The share of the log's reserve that was used in the end, in percent.
    used_percent: u64,
}

/// When writing ends.
#[derive(Debug, Clone, Copy)]
enum Until {
    Time(Duration),
    Writes(u64),
}

/// Runs all cases.
///
/// # Errors
/// A disk or a device cannot be made; a write fails.
pub async fn run(plan: &Plan) -> anyhow::Result<Measured> {
    let cases = super::chosen(&CASES, |case| case.name.to_owned(), &plan.cases)?;
    let mut measured = Measured::default();
    if let Some(machine) = &plan.machine {
        measured.add(on_machine(plan, machine, &cases).await?);
    }
    if let Some(simulation) = plan.emulated.clone() {
        let plan = plan.clone();
        // A simulated world has a runtime of its own, which must not run inside of this one.
        let emulated = tokio::task::spawn_blocking(move || in_simulation(&plan, &simulation, &cases, &Bed::all()));
        measured.add(emulated.await??);
    }
    Ok(measured)
}

impl Measured {
    fn add(&mut self, more: Measured) {
        self.rows.extend(more.rows);
        self.curves.extend(more.curves);
    }
}

async fn on_machine(plan: &Plan, machine: &OnMachine, cases: &[Case]) -> anyhow::Result<Measured> {
    let place = super::scratch(machine.directory.as_deref())?;
    let world = World::machine(place.path()).await?;
    let modes = plan.chosen(modes(&world, plan.device_bytes).await?)?;
    let goals = Goals::built_in();
    let progress = Progress::new("measuring", (cases.len() * machine.rounds * modes.len()) as u64);
    let mut measured = Measured::default();
    for case in cases {
        progress.say(case.name);
        let mut rounds: Vec<(Vec<Turn>, Noise)> = Vec::new();
        for _ in 0..machine.rounds * TRIES_MAX {
            if rounds.iter().filter(|(_, noise)| noise.is_quiet()).count() >= machine.rounds {
                break;
            }
            let pressure = noise::pressure(QUIET_WINDOW).await;
            let before = Counters::now(&[]);
            let mut turns = vec![Turn::default(); modes.len()];
            for at in shuffled(&*world.env.random, modes.len()) {
                world.settle().await?;
                begin_merging(&world.env, &modes[at], *case).await?;
                turns[at] = turn(&world.env, &modes[at], *case, Until::Time(machine.round)).await?;
                end_merging(&modes[at]).await?;
                progress.step(1);
            }
            let foreign = Counters::now(&[]).foreign_since(before);
            rounds.push((turns, Noise { pressure, foreign }));
        }
        let is_any_quiet = rounds.iter().any(|(_, noise)| noise.is_quiet());
        rounds.retain(|(_, noise)| noise.is_quiet() || !is_any_quiet);
        let rounds: Vec<Vec<Turn>> = rounds.into_iter().map(|(turns, _)| turns).collect();
        plan.ensure_merged(&modes, &rounds)?;
        let figures = figures(case.name, &modes, &rounds);
        measured.rows.extend(figures.into_iter().map(|figure| plan.row(&goals, figure)));
        measured.curves.push(curves(case.name, &modes, &rounds));
    }
    progress.end();
    world.stop().await;
    Ok(measured)
}

fn in_simulation(plan: &Plan, simulation: &InSimulation, cases: &[Case], beds: &[Bed]) -> anyhow::Result<Measured> {
    let progress = Progress::new("emulating", (beds.len() * cases.len()) as u64);
    let mut measured = Measured::default();
    for bed in beds {
        let begun = async |world| on_bed(&world, bed, plan, simulation, cases, &progress).await;
        measured.add(claystone_sim::run(simulation.seed, begun)?);
    }
    progress.end();
    Ok(measured)
}

async fn on_bed(
    world: &claystone_sim::World,
    bed: &Bed,
    plan: &Plan,
    simulation: &InSimulation,
    cases: &[Case],
    progress: &Progress,
) -> anyhow::Result<Measured> {
    let world = World::emulated(world, bed, plan.device_bytes).await?;
    let wire = world.wire().context("an emulated world has a wire")?;
    let modes = plan.chosen(modes(&world, plan.device_bytes).await?)?;
    let goals = Goals::built_in();
    let mut measured = Measured::default();
    for case in cases {
        let name = format!("{} {}", case.name, bed.set_up());
        progress.say(&name);
        let (mut turns, mut done) = (Vec::new(), Vec::new());
        for mode in &modes {
            mode.coded.flush().await?;
            wire.settle().await;
            begin_merging(&world.env, mode, *case).await?;
            wire.take_done();
            turns.push(turn(&world.env, mode, *case, Until::Writes(simulation.writes)).await?);
            done.push(wire.take_done());
            end_merging(mode).await?;
        }
        let rounds = [turns];
        plan.ensure_merged(&modes, &rounds)?;
        let mut figures = figures(&name, &modes, &rounds);
        figures.extend(beside_dpu(&name, &modes, &rounds[0]));
        figures.extend(modes.iter().zip(&rounds[0]).zip(&done).flat_map(|((mode, turn), done)| {
            let case = format!("{} {name}", mode.name);
            done.figures(turn.sample.operations).map(|(metric, unit, value)| figure(&case, metric, unit, value, None))
        }));
        measured.rows.extend(figures.into_iter().map(|figure| plan.row(&goals, figure)));
        measured.curves.push(curves(&name, &modes, &rounds));
        progress.step(1);
    }
    world.stop().await;
    Ok(measured)
}

/// Every mode, on devices that are written all over.
async fn modes(world: &World, bytes: u64) -> anyhow::Result<Vec<Mode>> {
    let (code, replicas) = (world.code, world.replicas);
    let replica = world.in_place(UpdateMethod::Replicas, bytes, replicas).await?;
    let naive = world.in_place(UpdateMethod::Naive, bytes, code).await?;
    let alone = |name, coded| Mode { name, coded, replicated: None, merging: Merging::Nothing, paced: None };
    let partly = |name, coded, replicated| Mode { replicated: Some((replicated, 20)), ..alone(name, coded) };
    let coded: Arc<dyn Blocks> = Arc::new(world.volume("coded", bytes, code).await?);
    let replicated: Arc<dyn Blocks> = Arc::new(world.volume("replicated", bytes, replicas).await?);
    let merged = world.volume("merged", bytes, code).await?;
    let shipped = world.shipped_volume("shipped", bytes, code).await?;
    let merging = |name, volume: Volume, how: fn(Volume) -> Merging| Mode {
        merging: how(volume.clone()),
        ..alone(name, Arc::new(volume))
    };
    let paced = Mode { paced: Some(PACED_PER_S), ..merging("dpu 100 paced", shipped.clone(), Merging::AsShipped) };
    Ok(vec![
        alone("replica", replica.clone()),
        alone("naive", naive.clone()),
        alone("parity log", world.in_place(UpdateMethod::ParityLog, bytes, code).await?),
        alone("spw success", world.in_place(UpdateMethod::SpeculativeNext, bytes, code).await?),
        alone("spw failure", world.in_place(UpdateMethod::SpeculativeFirst, bytes, code).await?),
        partly(DRC, naive, replica),
        partly(DPU, coded.clone(), replicated),
        alone("dpu 100", coded),
        merging("dpu 100 merging", merged, Merging::All),
        merging("dpu 100 sustained", shipped, Merging::AsShipped),
        paced,
    ])
}

/// The numbers below `count`, in any order.
fn shuffled(random: &dyn Random, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.below(end as u64 + 1) as usize);
    }
    order
}

/// Fills the log of what is merged as a store merges it, by the same writes, until that is under way.
async fn begin_merging(env: &Env, mode: &Mode, case: Case) -> anyhow::Result<()> {
    let Merging::AsShipped(volume) = &mode.merging else { return Ok(()) };
    let (fill, filled) = (Case { depth: FILL_DEPTH, ..case }, Mode { paced: None, ..mode.clone() });
    let merges = volume.status().merges;
    while volume.status().used_percent < volume_settings(None).merge_from_percent + FILL_BEYOND_PERCENT {
        write_until(env, &filled, fill, Until::Writes(FILL_WRITES)).await?;
    }
    // A volume looks every second whether it is to be merged.
    while volume.status().merges == merges {
        env.clock.sleep(MERGE_PAUSE).await;
    }
    Ok(())
}

/// Merges the rest of it: whoever writes next is not to meet that.
async fn end_merging(mode: &Mode) -> anyhow::Result<()> {
    if let Merging::AsShipped(volume) = &mode.merging {
        volume.merge_all().await?;
    }
    Ok(())
}

/// Writes, and looks what was merged meanwhile. What is merged as a store merges it is written longer, for some rounds of that.
async fn turn(env: &Env, mode: &Mode, case: Case, until: Until) -> anyhow::Result<Turn> {
    let done = || mode.merging.volume().map_or((0, 0), |volume| (volume.status().merges, volume.status().merged.pages));
    let (merges, merged_pages) = done();
    let mut sample = write_until(env, mode, case, until).await?;
    if let Merging::AsShipped(_) = &mode.merging {
        for _ in 1..LONGER_MAX {
            if done().0 >= merges + ROUNDS_OF_MERGING {
                break;
            }
            sample.add(write_until(env, mode, case, until).await?);
        }
    }
    let used_percent = mode.merging.volume().map_or(0, |volume| volume.status().used_percent);
    Ok(Turn { sample, merged_pages: done().1 - merged_pages, used_percent })
}

/// Writes to random places.
async fn write_until(env: &Env, mode: &Mode, case: Case, until: Until) -> anyhow::Result<Sample> {
    let begin = env.clock.now();
    let left = Arc::new(AtomicU64::new(if let Until::Writes(writes) = until { writes } else { u64::MAX }));
    let round = if let Until::Time(round) = until { round } else { Duration::MAX };
    let is_over = Arc::new(AtomicBool::new(false));
    let merging = match &mode.merging {
        Merging::All(volume) => Some(tokio::spawn(merge_until(env.clone(), volume.clone(), is_over.clone()))),
        Merging::Nothing | Merging::AsShipped(_) => None,
    };
    let writers: Vec<_> = (0..case.depth)
        .map(|writer| {
            let every = mode.paced.map(|per_s| Duration::from_secs_f64(case.depth as f64 / per_s));
            let mut due = begin.after(every.unwrap_or_default().mul_f64(writer as f64 / case.depth as f64));
            let (clock, random, left) = (env.clock.clone(), env.random.clone(), left.clone());
            let (coded, replicated) = (mode.coded.clone(), mode.replicated.clone());
            tokio::spawn(async move {
                let content = Bytes::from(vec![random.next_u64() as u8; case.bytes as usize]);
                let mut latencies = Vec::new();
                let one_less = |left: u64| left.checked_sub(1);
                if every.is_some() {
                    clock.sleep(due.since(begin)).await;
                }
                while clock.now().since(begin) < round
                    && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
                {
                    let blocks = match &replicated {
                        Some((replicated, percent)) if random.below(100) >= *percent => replicated,
                        _ => &coded,
                    };
                    let at = random.below(blocks.bytes() / case.bytes) * case.bytes;
                    let one = clock.now();
                    blocks.write(at, content.clone(), Durable::WithFlush).await?;
                    latencies.push(clock.now().since(one));
                    if let Some(every) = every {
                        due = due.after(every);
                        clock.sleep(due.since(clock.now())).await;
                    }
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut sample = Sample::default();
    for writer in writers {
        let latencies = writer.await.map_err(|_| anyhow!("a writer panicked"))??;
        sample.operations += latencies.len() as u64;
        sample.latencies.extend(latencies);
    }
    sample.seconds = env.clock.now().since(begin).as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    if let Some(merging) = merging {
        merging.await.map_err(|_| anyhow!("merging panicked"))??;
    }
    Ok(sample)
}

/// Merges all that there is, again and again.
async fn merge_until(env: Env, volume: Volume, is_over: Arc<AtomicBool>) -> anyhow::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        if volume.merge_all().await?.pages == 0 {
            env.clock.sleep(MERGE_PAUSE).await;
        }
    }
    Ok(())
}

impl Plan {
    /// Those of the modes that are wanted, and the first, which is beside all of them.
    fn chosen(&self, modes: Vec<Mode>) -> anyhow::Result<Vec<Mode>> {
        let named = super::chosen(&modes, |mode| mode.name.to_owned(), &self.modes)?;
        let others = modes[1..].iter().filter(|mode| named.iter().any(|named| named.name == mode.name));
        Ok(modes[..1].iter().chain(others).cloned().collect())
    }

    fn row(&self, goals: &Goals, figure: Figure) -> Row {
        if self.judged { goals.row(figure) } else { goals.row_unjudged(figure) }
    }

    /// The figures of a mode whose volume is merged meanwhile say nothing where it was not.
    fn ensure_merged(&self, modes: &[Mode], rounds: &[Vec<Turn>]) -> anyhow::Result<()> {
        for (at, mode) in modes.iter().enumerate().filter(|(_, mode)| mode.merging.volume().is_some()) {
            let is_merged = rounds.iter().any(|turns| turns[at].merged_pages > 0);
            ensure!(is_merged || !self.judged, "nothing was merged while {:?} was written", mode.name);
        }
        Ok(())
    }
}

/// A figure's name and unit, and how it is got.
type Metric<'a> = (&'static str, &'static str, &'a dyn Fn(&Turn) -> f64);

/// What is measured of every mode, beside the first one: medians of rounds.
fn figures(case: &str, modes: &[Mode], rounds: &[Vec<Turn>]) -> Vec<Figure> {
    let of = |at: usize, figure: &dyn Fn(&Turn) -> f64| {
        median(rounds.iter().map(|turns| figure(&turns[at])).collect()).unwrap_or(0.0)
    };
    let beside_the_first: [Metric; 4] = [
        ("operations_per_s", "/s", &|turn| turn.sample.rate()),
        ("latency_p50_ms", "ms", &|turn| turn.sample.percentile_ms(0.5)),
        ("latency_p99_ms", "ms", &|turn| turn.sample.percentile_ms(0.99)),
        ("latency_p999_ms", "ms", &|turn| turn.sample.percentile_ms(0.999)),
    ];
    let of_merging: [Metric; 2] = [
        ("merged_pages_each", "pages", &|turn| turn.merged_pages as f64 / turn.sample.operations.max(1) as f64),
        ("reserve_used_percent", "%", &|turn| turn.used_percent as f64),
    ];
    let mut figures = Vec::new();
    for (at, mode) in modes.iter().enumerate() {
        let name = format!("{} {case}", mode.name);
        for (metric, unit, of_turn) in beside_the_first {
            let against = (at > 0).then(|| Against { name: modes[0].name.to_owned(), value: of(0, of_turn) });
            figures.push(figure(&name, metric, unit, of(at, of_turn), against));
        }
        if mode.merging.volume().is_some() {
            let rows = of_merging.map(|(metric, unit, of_turn)| figure(&name, metric, unit, of(at, of_turn), None));
            figures.extend(rows);
        }
    }
    figures
}

/// The paper's figure: the slowest one in a hundred, of updates in place beside delayed ones.
fn beside_dpu(case: &str, modes: &[Mode], turns: &[Turn]) -> Option<Figure> {
    let p99 = |name| {
        let at = modes.iter().position(|mode| mode.name == name)?;
        Some(turns[at].sample.percentile_ms(0.99))
    };
    let against = Some(Against { name: DPU.to_owned(), value: p99(DPU)? });
    Some(figure(&format!("{DRC} {case}"), "latency_p99_beside_dpu_ms", "ms", p99(DRC)?, against))
}

fn figure(case: &str, metric: &str, unit: &'static str, value: f64, against: Option<Against>) -> Figure {
    Figure { bench: "volume", case: case.to_owned(), metric: metric.to_owned(), value, unit, against }
}

fn curves(name: &str, modes: &[Mode], rounds: &[Vec<Turn>]) -> Curves {
    let line = |(at, mode): (usize, &Mode)| {
        let latencies = rounds.iter().flat_map(|turns| turns[at].sample.latencies.iter().copied()).collect();
        let sample = Sample { latencies, ..Sample::default() };
        let shares = (0..100).map(f64::from).chain([99.5, 99.9]);
        (mode.name.to_owned(), shares.map(|percent| (sample.percentile_ms(percent / 100.0), percent)).collect())
    };
    // What is merged meanwhile is in the rows only: there are no more colours.
    let drawn = modes.iter().enumerate().filter(|(_, mode)| mode.merging.volume().is_none());
    Curves { name: name.to_owned(), lines: drawn.map(line).collect() }
}

const DRC: &str = "drc 20";
const DPU: &str = "dpu 20";
const TRIES_MAX: usize = 3;
const QUIET_WINDOW: Duration = Duration::from_millis(200);
/// Between looks for something to merge.
const MERGE_PAUSE: Duration = Duration::from_millis(1);
/// A log is filled by so many writes at once, and looked at after so many.
const FILL_DEPTH: usize = 16;
const FILL_WRITES: u64 = 256;
/// And so full beyond where merging begins that it goes on for a while.
const FILL_BEYOND_PERCENT: u64 = 5;
const ROUNDS_OF_MERGING: u64 = 3;
/// A merge that rests between its rounds keeps up with so many writes of 8 KiB.
const PACED_PER_S: f64 = 1000.0;
/// So many times as long at most.
const LONGER_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Every figure by its case and metric, of few writes one after another.
    fn emulated(case: &str, beds: &[Bed], seed: u64) -> BTreeMap<(String, String), f64> {
        let simulation = InSimulation { writes: 200, seed };
        let plan = Plan {
            cases: Vec::new(),
            modes: Vec::new(),
            device_bytes: 4 << 20,
            judged: false,
            machine: None,
            emulated: Some(simulation.clone()),
        };
        let cases = super::super::chosen(&CASES, |case| case.name.to_owned(), &[case.to_owned()]).expect("a case");
        let measured = in_simulation(&plan, &simulation, &cases, beds).expect("no faults");
        assert_eq!(measured.curves.len(), beds.len());
        let svg = measured.curves[0].draw().expect("drawn");
        assert!(svg.contains("spw failure") && svg.contains("milliseconds"));
        let rows = measured.rows.iter().map(|row| serde_json::to_value(row).expect("json"));
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        rows.map(|row| ((text(&row["case"]), text(&row["metric"])), row["value"].as_f64().expect("a number"))).collect()
    }

    #[test]
    fn a_write_takes_as_many_calls_and_reads_as_its_mode_says() {
        let figures = emulated("8KiB QD1", &Bed::all(), 1);
        let of = |mode: &str, metric: &str, bed: &str| {
            figures[&(format!("{mode} 8KiB QD1 emulated{bed}"), metric.to_owned())]
        };
        let near = |is: f64, least: f64| (least..least * 1.1 + 0.01).contains(&is);
        for bed in ["", " through", " desktop", " memory"] {
            // Calls over the network; of them, reads, some of which find in memory what they want.
            for (mode, calls, reads) in [
                ("replica", 2.0, 0.0),
                ("naive", 4.0, 2.0),
                ("parity log", 3.0, 1.0),
                ("spw success", 2.0, 0.0),
                ("spw failure", 4.0, 1.0),
                ("dpu 20", 2.0, 0.0),
                ("dpu 100", 2.0, 0.0),
            ] {
                let is = of(mode, "store_calls_each", bed);
                assert!(near(is, calls), "{mode}{bed}: {is} calls");
                let is = of(mode, "drive_reads_each", bed);
                let least = if bed == " memory" { 0.0 } else { reads * 0.8 };
                assert!((least..=reads).contains(&is), "{mode}{bed}: {is} reads");
            }
            let is = of("drc 20", "store_calls_each", bed);
            assert!((2.2..2.6).contains(&is), "drc{bed}: {is} calls");
        }
        // What costs a read costs a wait for the drive's flash now and then.
        for mode in ["naive", "drc 20"] {
            assert!(of(mode, "latency_p99_ms", "") > of("dpu 100", "latency_p99_ms", "") * 2.0, "{mode}");
        }
    }

    #[test]
    fn a_seed_repeats_its_figures() {
        let run = |seed| emulated("2KiB QD16", &Bed::all()[..1], seed);
        let first = run(7);
        assert_eq!(first, run(7));
        assert!(first != run(8));
    }
}
