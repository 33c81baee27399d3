//! How a disk on a device keeps its files: the options that say how much parity, and the format that follows.

use anyhow::{Context, ensure};
use claystone_files::Format;
use claystone_model::{copies, parity_of_group};

/// See the module.
#[derive(Debug, clap::Args)]
pub struct Coding {
    /// The chance that a sector of this drive does not read at once
    #[arg(long, value_name = "P", default_value_t = 1e-3, value_parser = chance)]
    pub soft_failures: f64,
    /// The chance that you accept of more sectors of a group failing so than its parity mends
    #[arg(long, value_name = "P", default_value_t = 1e-6, value_parser = chance)]
    loss: f64,
    /// Sectors of a group, parity included: longer ones take less space for parity
    #[arg(long, value_name = "SECTORS", default_value_t = 255, value_parser = clap::value_parser!(u16).range(1..=1023))]
    group: u16,
    /// Parity sectors of a group, at most 64; 0 for none [default: the least for these chances]
    #[arg(long, value_name = "SECTORS", value_parser = clap::value_parser!(u16).range(0..=64))]
    parity: Option<u16>,
    /// Copies of what is not in groups [default: the least for these chances]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    copies: Option<u16>,
}

impl Coding {
    /// What the disk shall be, under this label.
    ///
    /// # Errors
    /// No such code, or no code for these chances; the label is too long.
    pub fn format(&self, label: &str) -> anyhow::Result<Format> {
        let parity = match self.parity {
            Some(parity) => parity,
            None => self.least_parity()?,
        };
        ensure!(parity < self.group, "--group {} leaves no data sector beside {parity} parity sectors", self.group);
        let data = self.group - parity;
        ensure!(data <= DATA_MAX, "--group {} with --parity {parity}: at most {DATA_MAX} data sectors", self.group);
        let copies = match self.copies {
            Some(copies) => copies,
            None => u16::try_from(copies(self.soft_failures, self.loss))
                .ok()
                .filter(|copies| *copies <= COPIES_MAX)
                .with_context(|| {
                    format!(
                        "no {COPIES_MAX} copies reach --loss {} at --soft-failures {}",
                        self.loss, self.soft_failures
                    )
                })?,
        };
        ensure!(label.len() <= LABEL_BYTES_MAX, "--label takes {LABEL_BYTES_MAX} bytes, this has {}", label.len());
        ensure!(!label.contains('\0'), "--label cannot have a zero byte");
        Ok(Format {
            data,
            parity,
            copies,
            soft_failures: self.soft_failures,
            loss_target: self.loss,
            label: label.to_owned(),
        })
    }

    fn least_parity(&self) -> anyhow::Result<u16> {
        let parity = parity_of_group(self.group.into(), self.soft_failures, self.loss);
        let parity = parity.and_then(|parity| u16::try_from(parity).ok()).filter(|parity| *parity <= PARITY_MAX);
        parity.with_context(|| {
            format!(
                "no {PARITY_MAX} parity sectors in a group of {} reach --loss {} at --soft-failures {}: choose a shorter \
                 --group or a higher --loss",
                self.group, self.loss, self.soft_failures
            )
        })
    }
}

/// A chance for which parity can be found.
fn chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..0.5).contains(&chance) => Ok(chance),
        _ => Err("a chance is a number from 0 to 0.5, such as 1e-3".to_owned()),
    }
}

const DATA_MAX: u16 = 1020;
const PARITY_MAX: u16 = 64;
const COPIES_MAX: u16 = 8;
const LABEL_BYTES_MAX: usize = 64;
