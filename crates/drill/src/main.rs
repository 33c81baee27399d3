//! Runs drills by seed, for a time, or for ever: `cargo run --release -p claystone-drill -- --seeds 1000`.

use clap::Parser;
use claystone_drill::disk::{Case, Fault, FaultCounts, SCENARIOS, Scale, Scenario, run_case};

/// Runs simulated stores under faults. Prints a line a seed; a failing seed ends the run.
#[derive(Parser)]
struct Arguments {
    /// Replays this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Drills disks by themselves: every scenario of each seed.
    #[arg(long)]
    disk: bool,
    /// Drills volumes.
    #[arg(long, conflicts_with = "disk")]
    volume: bool,
    /// Drills tiered devices.
    #[arg(long, conflicts_with_all = ["disk", "volume"])]
    tier: bool,
    /// Replays a drill of a disk.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "from", "disk"])]
    case: Option<Case>,
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from + arguments.seeds,
    };
    if let Some(case) = arguments.case {
        println!("{case}: {:?}", run_case(case)?);
        return Ok(());
    }
    for seed in seeds.clone().filter(|_| arguments.disk) {
        let mut faults = FaultCounts::default();
        for scenario in SCENARIOS {
            for fault in [Fault::Crashes, Fault::Storm, Fault::Hurts] {
                faults += run_case(Case { scale: Scale::Small, scenario, seed, fault })?.faults;
            }
        }
        let large = [Scale::Summed, Scale::Usual].into_iter().chain((seed % 4 == 0).then_some(Scale::Long));
        for (scale, fault) in large.flat_map(|scale| [(scale, Fault::Crashes), (scale, Fault::Hurts)]) {
            for scenario in [Scenario::Shapes, Scenario::Mixed] {
                faults += run_case(Case { scale, scenario, seed, fault })?.faults;
            }
        }
        println!("seed {seed}: {faults}");
    }
    for seed in seeds.clone().filter(|_| arguments.volume) {
        let report = claystone_drill::run_volume_seed(seed)?;
        println!("seed {seed}: {report:?}");
    }
    for seed in seeds.clone().filter(|_| arguments.tier) {
        println!("seed {seed}: {}", claystone_drill::tier::run_seed(seed)?);
        println!("seed {seed}: {}", claystone_drill::tier::run_files(seed)?);
        println!("seed {seed}: {}", claystone_drill::tier::run_deaths(seed)?);
        println!("seed {seed}: {}", claystone_drill::tier::run_store(seed)?);
    }
    for seed in seeds.filter(|_| !arguments.disk && !arguments.volume && !arguments.tier) {
        let report = claystone_drill::run_seed(seed)?;
        println!("seed {seed}: {report:?}");
    }
    Ok(())
}
