//! `claystone code info`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use claystone_code::CodeSpec;

use crate::chart::Picture;
use crate::codes::figures::Figures;
use crate::codes::plot::{Family, draw};
use crate::output::{note, output};
use crate::table::Table;

/// Compare codes: space, tolerance, bytes read for repair, speed on this machine.
#[derive(Debug, clap::Args)]
pub struct Info {
    /// Codes [default: some of each family]
    #[arg(value_name = "CODE")]
    codes: Vec<CodeSpec>,
    /// Do not measure the speed of encoding
    #[arg(long)]
    no_speed: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Also draw overhead against repair, as SVG or PNG by the end of the name
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Info {
    /// Prints the table.
    ///
    /// # Errors
    /// A code cannot be built, or the plot cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        if cfg!(debug_assertions) && !self.no_speed {
            note(format_args!(
                "warning: this is a debug build; its speed says nothing (build with --release, or use --no-speed)"
            ));
        }
        let codes = if self.codes.is_empty() {
            DEFAULT.iter().map(|code| code.parse().expect("a test parses them")).collect()
        } else {
            self.codes
        };
        let all = codes.into_iter().map(|code| Figures::of(code, !self.no_speed));
        let all: Vec<Figures> = all.collect::<anyhow::Result<_>>()?;
        if let Some(path) = &self.plot {
            let picture = Picture::of(path)?.encode(draw(&families(&all))?)?;
            fs::write(path, picture).with_context(|| path.display().to_string())?;
        }
        if self.json {
            all.iter().try_for_each(crate::cli::print_json)?;
        } else {
            write!(output(), "{}", for_people(&all))?;
            writeln!(
                output(),
                "\nread: bytes read for each lost byte; writes: parity chunks written when a data chunk changes,"
            )?;
            let tier = all.first().filter(|code| code.encode_gb_s.is_some()).map(|code| format!(" with {}", code.tier));
            let tier = tier.unwrap_or_default();
            writeln!(
                output(),
                "* = by reading the row and encoding it again; speed: of one thread{tier}, 64 KiB chunks"
            )?;
        }
        Ok(())
    }
}

/// By the first part of the spec, in the order they come.
fn families(all: &[Figures]) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for figures in all {
        let name = figures.code.split(':').next().unwrap_or_default();
        match families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.codes.push(figures.clone()),
            None => families.push(Family { name: name.to_owned(), codes: vec![figures.clone()] }),
        }
    }
    families
}

fn for_people(all: &[Figures]) -> Table {
    let mut table =
        Table::new(&["code", "stored", "may lose", "read, 1 lost", "read, 2 lost", "writes", "sub-chunks", "speed"]);
    for figures in all {
        table.row([
            figures.code.clone(),
            format!("{:.3}x", figures.overhead),
            figures.tolerance.to_string(),
            format!("{:.2}", figures.repair_one),
            figures.repair_two.map_or("-".to_owned(), |read| format!("{read:.2}")),
            format!("{:.1}{}", figures.update_writes, if figures.update_by_delta { "" } else { "*" }),
            figures.sub_chunks.to_string(),
            figures.encode_gb_s.map_or("-".to_owned(), |speed| format!("{speed:.1} GB/s")),
        ]);
    }
    table
}

/// Some of each family, those that the documents speak of.
pub const DEFAULT: [&str; 25] = [
    "replica:2",
    "replica:3",
    "mirror:4x3",
    "mixed:4+2x3:0+1",
    "rs:4+2",
    "rs:6+3",
    "rs:10+4",
    "rs:12+4",
    "rs:16+4",
    "rs:20+4",
    "rs:252+3",
    "rs:1019+4",
    "lrc:12+2+2",
    "lrc:12+6+2",
    "pc:2x5",
    "pc:6x5",
    "rsm:10+4",
    "rsm:6+3",
    "hybrid:rsm:6+3x2",
    "clay:4+2:5",
    "clay:6+3:8",
    "clay:9+3:11",
    "clay:10+4:13",
    "clay:12+4:15",
    "clay:16+4:19",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_the_table_are_codes() {
        for code in DEFAULT {
            assert!(code.parse::<CodeSpec>().is_ok(), "{code}");
        }
    }
}
