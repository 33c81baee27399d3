//! Runs drills by seed, for a time, or for ever: `cargo run --release -p claystone-drill -- --seeds 1000`.

use clap::Parser;

/// Runs simulated stores under faults. Prints a line a seed; a failing seed ends the run.
#[derive(Parser)]
struct Arguments {
    /// Replays this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
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
    for seed in seeds {
        let report = claystone_drill::run_seed(seed)?;
        println!("seed {seed}: {report:?}");
    }
    Ok(())
}
