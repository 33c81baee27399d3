//! Measures the cells whose name contains `--case`, and prints every contender's figure. `--quick` takes fewer samples.

use claystone_bench::cell::{Samples, measure};
use claystone_bench::cells::{cell, clay, codes};
use claystone_bench::gate::Gate;
use claystone_bench::{Effort, Peers};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut filter = String::new();
    let mut effort = Effort { passes: 1, ..Effort::FULL };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--case" => filter = arguments.next().ok_or("--case wants a text")?,
            "--quick" => effort = Effort::QUICK,
            other => return Err(format!("{other}: there are --case TEXT and --quick").into()),
        }
    }
    let peers = Peers::find().unwrap_or_else(|_| Peers::none());
    for absent in peers.absent() {
        println!("absent: {absent}");
    }
    let mut gate = Gate::warmed();
    for plan in codes().into_iter().chain(clay()).filter(|plan| plan.name().contains(&filter)) {
        let mut cell = cell(&plan, &peers);
        let mut samples = Samples::default();
        measure(&mut gate, &mut cell, effort, &mut samples)?;
        println!("{}", plan.name());
        let figures = samples.figures(cell.unit, effort);
        for figure in &figures {
            let unsettled = if figure.is_settled { "" } else { "  NOT SETTLED: too few quiet samples" };
            let (value, unit, ratio) = (figure.value, cell.unit.name(), figures[0].value / figure.value);
            let (name, quiet, of) = (&figure.name, figure.quiet, figure.samples);
            println!("    {value:8.2} {unit}  ours x {ratio:5.2}  {name} ({quiet} of {of} quiet){unsettled}");
        }
    }
    Ok(())
}
