//! How all plots look: size, font, colours; as SVG or PNG; and the plot of lines, which most are.
//!
//! Invariants:
//! 1. A PNG is the same on every machine: its letters are those of the font in this program.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use plotters::prelude::*;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg;

/// What a plot is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picture {
    /// Lines and text.
    Svg,
    /// Pixels.
    Png,
}

impl Picture {
    /// Both.
    pub const ALL: [Picture; 2] = [Picture::Svg, Picture::Png];

    /// By the end of a file's name.
    ///
    /// # Errors
    /// It ends neither way.
    pub fn of(path: &Path) -> anyhow::Result<Picture> {
        let end = path.extension().unwrap_or_default();
        match Picture::ALL.into_iter().find(|picture| end.eq_ignore_ascii_case(picture.extension())) {
            Some(picture) => Ok(picture),
            None => bail!("{}: plots are written as .svg or .png", path.display()),
        }
    }

    /// What its files end with.
    pub fn extension(self) -> &'static str {
        match self {
            Picture::Svg => "svg",
            Picture::Png => "png",
        }
    }

    /// The bytes of a file with a plot that is given as SVG.
    ///
    /// # Errors
    /// It is no SVG.
    pub fn encode(self, svg: String) -> anyhow::Result<Vec<u8>> {
        match self {
            Picture::Svg => Ok(svg.into_bytes()),
            Picture::Png => png(&svg),
        }
    }
}

fn png(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut options = usvg::Options::default();
    let fonts = Arc::make_mut(&mut options.fontdb);
    fonts.load_font_data(SANS.to_vec());
    fonts.set_sans_serif_family(SANS_NAME);
    let tree = usvg::Tree::from_str(svg, &options)?;
    let (width, height) = (SIZE.0 * PIXELS, SIZE.1 * PIXELS);
    let mut pixels = Pixmap::new(width, height).context("a plot has pixels")?;
    resvg::render(&tree, Transform::from_scale(PIXELS as f32, PIXELS as f32), &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}

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
            .margin_right(LEGEND_WIDTH)
            .build_cartesian_2d((least..most).log_scale(), 0.0..highest * 1.05)
            .map_err(says)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_labels(X_LABELS)
            .x_label_formatter(&|x| x.to_string())
            .y_label_formatter(&|y| y.to_string())
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(says)?;
        // Beside the plot, so that it covers no line.
        let left = SIZE.0 as i32 - LEGEND_WIDTH as i32 + 14;
        for (number, ((name, points), color)) in (0..).zip(self.lines.iter().zip(COLORS.iter().cycle())) {
            let style = color.stroke_width(2);
            chart.draw_series(LineSeries::new(points.iter().copied(), style).point_size(3)).map_err(says)?;
            let y = 56 + 20 * number;
            area.draw(&PathElement::new([(left, y), (left + 18, y)], style)).map_err(says)?;
            area.draw(&Text::new(name.clone(), (left + 24, y - 6), (FONT, 13))).map_err(says)?;
        }
        area.present().map_err(says)
    }
}

/// Bars side by side in one plot, in groups.
#[derive(Debug)]
pub struct Bars<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Beside the vertical axis, which begins at 0.
    pub y: &'a str,
    /// What the bars of a group are, in their order.
    pub names: Vec<String>,
    /// Each with what it is called, and the height of each bar.
    pub groups: Vec<(String, Vec<f64>)>,
}

impl Bars<'_> {
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
        let highest = self.groups.iter().flat_map(|(_, heights)| heights).copied().fold(f64::NAN, f64::max);
        if highest.is_nan() || highest <= 0.0 {
            return Err(anyhow!("there are no bars to draw"));
        }
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(says)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .caption(self.title, (FONT, 18))
            .x_label_area_size(48)
            .y_label_area_size(60)
            .margin_right(LEGEND_WIDTH)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..highest * 1.1)
            .map_err(says)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(self.y)
            .y_label_formatter(&|y| y.to_string())
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(says)?;
        let width = 0.8 / self.names.len() as f64;
        for (group, (name, heights)) in self.groups.iter().enumerate() {
            let left = group as f64 + 0.1;
            for ((bar, height), color) in heights.iter().enumerate().zip(COLORS.iter().cycle()) {
                let from = left + bar as f64 * width;
                let bar = Rectangle::new([(from, 0.0), (from + width * 0.94, *height)], color.filled());
                chart.draw_series([bar]).map_err(says)?;
                let (x, y) = chart.backend_coord(&(from, *height));
                let (right, _) = chart.backend_coord(&(from + width, *height));
                if right - x >= NUMBER_WIDTH {
                    area.draw(&Text::new(format!("{height:.2}"), (x + 2, y - 14), (FONT, 12))).map_err(says)?;
                }
            }
            let (x, y) = chart.backend_coord(&(left, 0.0));
            area.draw(&Text::new(name.clone(), (x, y + 10), (FONT, 13))).map_err(says)?;
        }
        let left = SIZE.0 as i32 - LEGEND_WIDTH as i32 + 14;
        for (number, (name, color)) in (0..).zip(self.names.iter().zip(COLORS.iter().cycle())) {
            let y = 56 + 20 * number;
            area.draw(&Rectangle::new([(left, y - 6), (left + 18, y + 6)], color.filled())).map_err(says)?;
            area.draw(&Text::new(name.clone(), (left + 24, y - 6), (FONT, 13))).map_err(says)?;
        }
        area.present().map_err(says)
    }
}

/// Width and height.
pub const SIZE: (u32, u32) = (960, 640);
/// Of all text.
pub const FONT: &str = "sans-serif";
/// Letters of Latin-1 of DejaVu Sans; assets/README.md says where they are from.
const SANS: &[u8] = include_bytes!("../assets/sans.ttf");
const SANS_NAME: &str = "DejaVu Sans";
/// Of a PNG, for each unit of the plot.
const PIXELS: u32 = 2;
const LEGEND_WIDTH: u32 = 250;
/// Numbers are over bars that are as wide as one.
const NUMBER_WIDTH: i32 = 28;
const X_LABELS: usize = 6;
/// Told apart by people who do not see all colours (Okabe and Ito).
pub const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(lines: &[&str]) -> anyhow::Result<String> {
        let line = |name: &&str| ((*name).to_owned(), vec![(1.0, 2.0), (10.0, 3.0)]);
        Lines { title: "a title", x: "sectors", y: "seconds", lines: lines.iter().map(line).collect() }.draw()
    }

    #[test]
    fn every_line_is_in_the_plot() {
        let svg = plot(&["one", "two"]).expect("drawn");
        for text in ["<svg", "a title", "sectors", "seconds", "one", "two"] {
            assert!(svg.contains(text), "{text}");
        }
        plot(&[]).expect_err("nothing to draw");
    }

    #[test]
    fn every_bar_is_in_the_plot() {
        let bars = |groups| Bars { title: "a title", y: "per cent", names: vec!["one".into(), "two".into()], groups };
        let svg = bars(vec![("files".into(), vec![2.25, 1.5]), ("more".into(), vec![3.0, 0.0])]).draw().expect("drawn");
        for text in ["<svg", "a title", "per cent", "one", "two", "files", "more", "2.25", "1.50", "3.00"] {
            assert!(svg.contains(text), "{text}");
        }
        bars(vec![]).draw().expect_err("nothing to draw");
    }

    #[test]
    fn narrow_bars_have_no_numbers_over_each_other() {
        let group = |name: u32| (name.to_string(), vec![2.25; 7]);
        let names = (0..7).map(|name| format!("way {name}")).collect();
        let svg = Bars { title: "a title", y: "per cent", names, groups: (1..6).map(group).collect() }.draw();
        let svg = svg.expect("drawn");
        assert!(svg.contains("way 6") && !svg.contains("2.25"));
    }

    #[test]
    fn a_png_has_lines_and_letters() {
        let pixels = |svg: String| {
            let png = Picture::Png.encode(svg).expect("drawn");
            let pixels = Pixmap::decode_png(&png).expect("a PNG");
            assert_eq!((pixels.width(), pixels.height()), (SIZE.0 * PIXELS, SIZE.1 * PIXELS));
            pixels
        };
        let named = pixels(plot(&["one"]).expect("drawn"));
        let blue = COLORS[0];
        let is_blue = |red: u8, green: u8, of_blue: u8| (red, green, of_blue) == (blue.0, blue.1, blue.2);
        assert!(named.pixels().iter().any(|pixel| is_blue(pixel.red(), pixel.green(), pixel.blue())), "no line");
        // Above the plot there is nothing but the title.
        let above = &named.pixels()[..(SIZE.0 * PIXELS * 60) as usize];
        assert!(above.iter().filter(|pixel| pixel.red() < 64).count() > 100, "no letters");
        let other = plot(&["one"]).expect("drawn").replace("a title", "another title");
        assert!(pixels(other) != named);
    }

    #[test]
    fn a_name_tells_what_to_write() {
        assert_eq!(Picture::of(Path::new("a/b.svg")).expect("known"), Picture::Svg);
        assert_eq!(Picture::of(Path::new("b.PNG")).expect("known"), Picture::Png);
        for name in ["b.jpg", "png", "a.png/b"] {
            let error = Picture::of(Path::new(name)).expect_err("unknown").to_string();
            assert!(error.contains(".svg or .png"), "{error}");
        }
    }
}
