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
    #[arg(long, value_name = "P", default_value_t = 1e-6, value_parser = chance_above_0)]
    loss: f64,
    /// Sectors of a group, parity included, of which at most 1020 are data: longer ones take less space for parity
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
        ensure!(
            data <= DATA_MAX,
            "--group {} with --parity {parity} has {data} data sectors, at most {DATA_MAX} can be: give --parity {} or --group {}",
            self.group,
            self.group - DATA_MAX,
            DATA_MAX + parity
        );
        let copies = match self.copies {
            Some(copies) => copies,
            None => u16::try_from(copies(self.soft_failures, self.loss))
                .ok()
                .filter(|copies| *copies <= COPIES_MAX)
                .with_context(|| {
                    format!(
                        "no {COPIES_MAX} copies reach --loss {} at --soft-failures {}: choose a higher --loss or give --copies",
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

    /// The least parity for these chances that leaves no more data sectors than a group can have.
    fn least_parity(&self) -> anyhow::Result<u16> {
        let parity = parity_of_group(self.group.into(), self.soft_failures, self.loss);
        let parity = parity.and_then(|parity| u16::try_from(parity).ok()).filter(|parity| *parity <= PARITY_MAX);
        let parity = parity.with_context(|| {
            format!(
                "no {PARITY_MAX} parity sectors in a group of {} reach --loss {} at --soft-failures {}: choose a shorter --group \
                 or a higher --loss, or give --parity",
                self.group, self.loss, self.soft_failures
            )
        })?;
        Ok(parity.max(self.group.saturating_sub(DATA_MAX)))
    }
}

/// A chance for which parity can be found.
fn chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..0.5).contains(&chance) => Ok(chance),
        _ => Err("a chance is a number from 0 to 0.5, such as 1e-3".to_owned()),
    }
}

/// For what is divided by.
fn chance_above_0(text: &str) -> Result<f64, String> {
    match chance(text)? {
        0.0 => Err("no parity makes the loss of a group impossible: a chance above 0, such as 1e-6".to_owned()),
        chance => Ok(chance),
    }
}

const DATA_MAX: u16 = 1020;
const PARITY_MAX: u16 = 64;
const COPIES_MAX: u16 = 8;
const LABEL_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use claystone_env::Device;
    use claystone_env::testing::MemoryDevice;
    use claystone_files::{Disk, Format};
    use claystone_host::{HostClock, HostRandom};

    use super::Coding;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        coding: Coding,
    }

    fn coded(options: &str) -> anyhow::Result<Format> {
        Command::try_parse_from(std::iter::once("disk").chain(options.split_whitespace()))?.coding.format("")
    }

    #[test]
    fn every_group_that_is_offered_makes_a_disk_at_every_chance() {
        for soft in ["0", "1e-9", "1e-5", "1e-4", "5e-4", "1e-3", "5e-3"] {
            for group in [64, 255, 1019, 1020, 1021, 1022, 1023] {
                let options = format!("--group {group} --soft-failures {soft}");
                let format = coded(&options).unwrap_or_else(|error| panic!("{options}: {error}"));
                assert_eq!(format.data + format.parity, group, "{options}");
                let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
                let (clock, random) = (HostClock::start(), HostRandom::from_system().expect("the system's"));
                Disk::format(&device, &format, &clock, &random).unwrap_or_else(|error| panic!("{options}: {error}"));
            }
        }
        let shape = |options: &str| coded(options).map(|format| (format.data, format.parity)).ok();
        assert_eq!(shape("--group 1023 --soft-failures 1e-5"), Some((1020, 3)), "2 would do");
        assert_eq!(shape("--group 1023 --soft-failures 1e-4"), Some((1019, 4)));
    }

    #[test]
    fn what_cannot_be_says_what_can() {
        let refused = |options: &str| coded(options).expect_err(options).to_string();
        let told =
            "--group 1023 with --parity 2 has 1021 data sectors, at most 1020 can be: give --parity 3 or --group 1022";
        assert_eq!(refused("--group 1023 --parity 2"), told);
        assert!(refused("--group 5 --parity 5").contains("leaves no data sector"));
        assert!(
            refused("--soft-failures 0.2 --group 64").contains("or give --copies"),
            "{}",
            refused("--soft-failures 0.2 --group 64")
        );
        assert!(refused("--soft-failures 0.2").contains("or give --parity"));
        assert!(refused("--loss 0").contains("above 0"));
    }
}
