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
    // In pixels, where labels find room.
    let mut labels = Labels::default();
    for (number, family) in families.iter().enumerate() {
        let legend = (SIZE.0 as i32 - LEGEND_WIDTH, LEGEND_TOP + LEGEND_STEP * number as i32);
        area.draw(&mark(number, legend, 5)).map_err(says)?;
        area.draw(&Text::new(family.name.clone(), (legend.0 + 16, legend.1 - 6), (FONT, 13))).map_err(says)?;
        for figures in &family.codes {
            let (x, y) = chart.backend_coord(&(figures.overhead, figures.repair_one));
            let size = 3 + i32::from(figures.tolerance.min(6));
            area.draw(&mark(number, (x, y), size)).map_err(says)?;
            labels.add(&figures.code, (x + size + 2, y - 6));
        }
    }
    for (text, at) in labels.placed() {
        area.draw(&Text::new(text, at, (FONT, 11))).map_err(says)?;
    }
    area.present().map_err(says)
}

/// What stands for a code of a family: of those beyond the colours there are, a square.
fn mark<'a, B: DrawingBackend + 'a>(family: usize, (x, y): (i32, i32), size: i32) -> DynElement<'a, B, (i32, i32)> {
    let style = COLORS[family % COLORS.len()].mix(0.7).filled();
    if family < COLORS.len() {
        Circle::new((x, y), size, style).into_dyn()
    } else {
        Rectangle::new([(x - size, y - size), (x + size, y + size)], style).into_dyn()
    }
}

/// Labels, each beside its mark: where its left end and its top would be, in pixels.
#[derive(Debug, Default)]
struct Labels(Vec<(String, (i32, i32))>);

impl Labels {
    fn add(&mut self, text: &str, at: (i32, i32)) {
        self.0.push((text.to_owned(), at));
    }

    /// From the top down, each as far below its mark as it takes to be over no other.
    fn placed(mut self) -> Vec<(String, (i32, i32))> {
        self.0.sort_by_key(|(_, (x, y))| (*y, *x));
        let width = |text: &str| LETTER_WIDTH * text.len() as i32;
        let mut placed: Vec<(String, (i32, i32))> = Vec::new();
        for (text, (x, mut y)) in self.0 {
            let is_beside = |(other, (at, _)): &&(String, (i32, i32))| x < at + width(other) && *at < x + width(&text);
            while let Some((_, (_, above))) =
                placed.iter().filter(is_beside).find(|(_, (_, top))| (top - y).abs() < LINE_HEIGHT)
            {
                y = above + LINE_HEIGHT;
            }
            placed.push((text, (x, y)));
        }
        placed
    }
}

/// The legend stands in the upper right corner, where no code is.
const LEGEND_WIDTH: i32 = 110;
const LEGEND_TOP: i32 = 64;
const LEGEND_STEP: i32 = 18;
/// Pixels of a letter of a label, and of a line.
const LETTER_WIDTH: i32 = 5;
const LINE_HEIGHT: i32 = 11;

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

    #[test]
    fn labels_of_marks_that_touch_stand_below_each_other() {
        let mut labels = Labels::default();
        for (text, at) in [("c", (5, 105)), ("aaaa", (0, 100)), ("b", (1, 100)), ("far", (80, 101)), ("low", (0, 300))]
        {
            labels.add(text, at);
        }
        let placed = labels.placed();
        let placed: Vec<(&str, (i32, i32))> = placed.iter().map(|(text, at)| (text.as_str(), *at)).collect();
        let below = 100 + LINE_HEIGHT;
        let expected = [
            ("aaaa", (0, 100)),
            ("b", (1, below)),
            ("far", (80, 101)),
            ("c", (5, below + LINE_HEIGHT)),
            ("low", (0, 300)),
        ];
        assert_eq!(placed, expected);
    }

    #[test]
    fn families_beyond_the_colours_have_squares() {
        let figures = Figures::of("rs:4+2".parse().expect("a spec"), false).expect("figures");
        let family = |number: usize| Family { name: format!("family {number}"), codes: vec![figures.clone()] };
        let squares = |families: usize| {
            draw(&(0..families).map(family).collect::<Vec<_>>()).expect("drawn").matches("<rect").count()
        };
        assert_eq!(squares(COLORS.len() + 1), squares(COLORS.len()) + 2, "a mark and one in the legend");
    }
}
