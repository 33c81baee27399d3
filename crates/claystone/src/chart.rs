//! How all plots look: size, font, colours; and the plot of lines, which most are.

use anyhow::{Context, anyhow};
use plotters::prelude::*;

/// Lines in one plot.
#[derive(Debug)]
pub struct Lines<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Under the horizontal axis, which is logarithmic.
    pub x: &'a str,
    /// Beside the vertical axis, which begins at 0.
    pub y: &'a str,
    /// Each with what it is called, its points ascending in x.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Lines<'_> {
    /// The plot as SVG.
    ///
    /// # Errors
    /// There is nothing to draw.
    pub fn draw(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.render(&mut text).with_context(|| format!("drawing {:?}", self.title))?;
        Ok(text)
    }

    fn render(&self, text: &mut String) -> anyhow::Result<()> {
        let says = |error: DrawingAreaErrorKind<_>| anyhow!("{error:?}");
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let [least, most] = [f64::min, f64::max].map(|of| points().map(|(x, _)| *x).fold(f64::NAN, of));
        let highest = points().map(|(_, y)| *y).fold(f64::NAN, f64::max);
        if !(least > 0.0 && most > least && highest > 0.0) {
            return Err(anyhow!("there are no points to draw"));
        }
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(says)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .caption(self.title, (FONT, 18))
            .x_label_area_size(48)
            .y_label_area_size(60)
            .build_cartesian_2d((least..most).log_scale(), 0.0..highest * 1.05)
            .map_err(says)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(says)?;
        for ((name, points), color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            let color = *color;
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3))
                .map_err(says)?
                .label(name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
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
}

/// Width and height.
pub const SIZE: (u32, u32) = (960, 640);
/// Of all text.
pub const FONT: &str = "sans-serif";
/// Told apart by people who do not see all colours (Okabe and Ito).
pub const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn every_line_is_in_the_plot() {
        let line = |name: &str| (name.to_owned(), vec![(1.0, 2.0), (10.0, 3.0)]);
        let plot = Lines { title: "a title", x: "sectors", y: "seconds", lines: vec![line("one"), line("two")] };
        let svg = plot.draw().expect("drawn");
        for text in ["<svg", "a title", "sectors", "seconds", "one", "two"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(Lines { lines: Vec::new(), ..plot }.draw().is_err());
    }
}
