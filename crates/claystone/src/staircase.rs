//! A plot of how long sequential writes took, by what was written since the sync: the stages of a drive's write buffer.

use anyhow::{Context, anyhow};
use claystone_tier::{Run, Staircase};
use plotters::prelude::*;

use crate::chart::{COLORS, FONT, SIZE};
use crate::table::bytes;

/// Draws the first run of each length. The text is SVG.
///
/// # Errors
/// There is nothing to draw.
pub fn draw(staircase: &Staircase) -> anyhow::Result<String> {
    let mut runs: Vec<&Run> = Vec::new();
    for run in staircase.runs.iter().filter(|run| !run.took_ns.is_empty()) {
        if !runs.iter().any(|drawn| drawn.bytes == run.bytes) {
            runs.push(run);
        }
    }
    let mut text = String::new();
    render(&mut text, &staircase.device, &runs).context("drawing the plot")?;
    Ok(text)
}

fn render(text: &mut String, device: &str, runs: &[&Run]) -> anyhow::Result<()> {
    let says = |error: DrawingAreaErrorKind<_>| anyhow!("{error:?}");
    let times = || runs.iter().flat_map(|run| &run.took_ns).map(|took| *took.max(&1) as f64 / 1000.0);
    let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
    let widest = runs.iter().map(|run| mib(run, run.took_ns.len())).fold(0.0, f64::max);
    if widest <= 0.0 {
        return Err(anyhow!("there is no write to draw"));
    }
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(says)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(format!("Sequential writes to {device} after a sync"), (FONT, 18))
        .x_label_area_size(48)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..widest, (least * 0.8..most * 1.6).log_scale())
        .map_err(says)?;
    chart
        .configure_mesh()
        .x_desc("MiB written")
        .y_desc("microseconds of a write")
        .y_label_formatter(&|us| format!("{us:.0}"))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(WHITE)
        .draw()
        .map_err(says)?;
    for (run, color) in runs.iter().zip(COLORS.iter().cycle()) {
        let color = *color;
        chart
            .draw_series(LineSeries::new(outline(run, widest), color.stroke_width(1)))
            .map_err(says)?
            .label(format!("of {}", bytes(run.bytes)))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()
        .map_err(says)?;
    area.present().map_err(says)
}

/// As many points as can be seen: of the writes that fall together, the quickest and the slowest.
fn outline(run: &Run, widest: f64) -> Vec<(f64, f64)> {
    let together = (run.took_ns.len() as f64 * widest / mib(run, run.took_ns.len()) / PLACES).ceil().max(1.0) as usize;
    let points = run.took_ns.chunks(together).enumerate().flat_map(|(at, took)| {
        let x = mib(run, at * together);
        let (least, most) = (took.iter().min().copied(), took.iter().max().copied());
        [least, most].into_iter().flatten().map(move |took| (x, took.max(1) as f64 / 1000.0))
    });
    points.collect()
}

fn mib(run: &Run, writes: usize) -> f64 {
    (run.bytes * writes as u64) as f64 / f64::from(1 << 20)
}

/// Points side by side.
const PLACES: f64 = 800.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_in_the_plot_once() {
        let run = |bytes: u64| Run {
            bytes,
            took_ns: (0..5000).map(|at| if at % 100 == 0 { 9_000_000 } else { 35_000 }).collect(),
        };
        let staircase = Staircase { device: "a drive".to_owned(), runs: vec![run(4096), run(65536), run(4096)] };
        let svg = draw(&staircase).expect("drawn");
        for text in ["<svg", "a drive", "MiB written", "of 4.0 KiB", "of 64.0 KiB"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("of 4.0 KiB").count(), 1);
        // Spikes are kept, though thousands of writes are not.
        let points = outline(&run(4096), 20.0);
        assert!(points.len() < 5000 && points.iter().any(|(_, us)| *us == 9000.0), "{}", points.len());
        draw(&Staircase { runs: vec![], ..staircase }).expect_err("nothing to draw");
    }
}
