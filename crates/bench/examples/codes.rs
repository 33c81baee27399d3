//! Measures the cells whose name contains `--case`, and prints every contender's figure. `--quick` takes fewer samples.

use claystone_bench::cells::{cell, codes};
use claystone_bench::gate::Gate;
use claystone_bench::peers::Peers;
use claystone_bench::{Effort, measure};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut filter = String::new();
    let mut effort = Effort::FULL;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--case" => filter = arguments.next().ok_or("--case wants a text")?,
            "--quick" => effort = Effort::QUICK,
            other => return Err(format!("{other}: there are --case TEXT and --quick").into()),
        }
    }
    let peers = Peers::find().unwrap_or_else(|_| Peers::none());
    let mut gate = Gate::warmed();
    for plan in codes() {
        let name = format!("{} {}", plan.case(), plan.metric());
        if !name.contains(&filter) {
            continue;
        }
        let mut cell = cell(&plan, &peers);
        let figures = measure(&mut gate, &mut cell, effort)?;
        let (ours, others) = figures.split_first().ok_or("no contender")?;
        let best = others.iter().reduce(|a, b| if cell.unit.is_better(a.value, b.value) { a } else { b });
        let ratio = best.map_or(String::new(), |best| format!("  {:.2} x {}", ours.value / best.value, best.name));
        println!("{name}{ratio}");
        for figure in &figures {
            let unsettled = if figure.is_settled { "" } else { "  NOT SETTLED: too few quiet samples" };
            let (quiet, samples) = (figure.quiet, figure.samples);
            println!(
                "    {:8.2} {}  {} ({quiet} of {samples}){unsettled}",
                figure.value,
                cell.unit.name(),
                figure.name
            );
        }
    }
    Ok(())
}
