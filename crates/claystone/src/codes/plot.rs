//! A plot of space against repair: what each family can do.

use std::ops::Range;

use anyhow::{Context, anyhow};
use plotters::prelude::*;

use super::figures::Figures;
use crate::chart::{COLORS, FONT, SIZE};

/// Codes of one family.
#[derive(Debug)]
pub struct Family {
    /// What it is called in the plot.
    pub name: String,
    /// The codes' figures.
    pub codes: Vec<Figures>,
}

/// Draws overhead (bytes stored for each byte) against repair (bytes read for each lost byte); marks are as large as
/// the tolerance. The text is SVG.
///
/// # Errors
/// There is nothing to draw.
pub fn draw(families: &[Family]) -> anyhow::Result<String> {
    let codes = || families.iter().flat_map(|family| &family.codes);
    let widest = codes().map(|figures| figures.overhead).fold(f64::NAN, f64::max);
    let highest = codes().map(|figures| figures.repair_one).fold(f64::NAN, f64::max);
    if !(widest.is_finite() && highest.is_finite()) {
        return Err(anyhow!("there is no code to draw"));
    }
    let mut text = String::new();
    render(&mut text, families, 1.0..widest * 1.05, 0.8..highest * 1.3).context("drawing the plot")?;
    Ok(text)
}

fn render(text: &mut String, families: &[Family], x: Range<f64>, y: Range<f64>) -> anyhow::Result<()> {
    let says = |error: DrawingAreaErrorKind<_>| anyhow!("{error:?}");
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(says)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption("Space against repair, one chunk lost", (FONT, 18))
        .x_label_area_size(48)
        .y_label_area_size(60)
        .build_cartesian_2d(x, y.log_scale())
        .map_err(says)?;
    chart
        .configure_mesh()
        .x_desc("bytes stored for each byte")
        .y_desc("bytes read for each lost byte")
        .x_label_formatter(&|x| format!("{x:.2}"))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .light_line_style(WHITE)
        .draw()
        .map_err(says)?;
    for (family, color) in families.iter().zip(COLORS.iter().cycle()) {
        let marks = family.codes.iter().map(|figures| {
            let size = 3 + i32::from(figures.tolerance.min(6));
            let label = Text::new(figures.code.clone(), (size + 2, -6), (FONT, 11));
            EmptyElement::at((figures.overhead, figures.repair_one))
                + Circle::new((0, 0), size, color.mix(0.7).filled())
                + label
        });
        let color = *color;
        chart
            .draw_series(marks)
            .map_err(says)?
            .label(family.name.clone())
            .legend(move |(x, y)| Circle::new((x + 8, y), 5, color.mix(0.7).filled()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_plot() {
        let specs = ["rs:4+2", "rs:10+4", "clay:4+2:5"];
        let codes: Vec<Figures> =
            specs.iter().map(|spec| Figures::of(spec.parse().expect("a spec"), false).expect("figures")).collect();
        let svg = draw(&[Family { name: "all of them".to_owned(), codes }]).expect("drawn");
        assert!(svg.starts_with("<svg"));
        for text in specs.iter().chain(&["all of them"]) {
            assert!(svg.contains(text), "{text}");
        }
        assert!(draw(&[]).is_err());
    }
}
