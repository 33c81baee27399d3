//! What a cell measures, as plain data that each contender translates for itself.

use std::fmt;

use claystone_code::{CodeSpec, SpecError};

/// A cell to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The code.
    pub code: CodeSpec,
    /// Bytes of a chunk; for Clay of a tile.
    pub chunk_bytes: usize,
    /// So many stripes in turn that every run reads memory.
    pub is_cold: bool,
    /// What is done with it.
    pub operation: Operation,
}

/// The work of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// All parity from all data, over and over. Counts data bytes.
    Encode,
    /// The lost chunks, all data, from what the plan reads; planning is not counted. Counts the bytes of k chunks.
    Repair {
        /// Data chunks, ascending.
        lost: Vec<u16>,
    },
    /// From the list of lost chunks to a plan: what is done once per pattern. Counts microseconds.
    PlanRepair {
        /// Data chunks, ascending.
        lost: Vec<u16>,
    },
}

impl Plan {
    /// Encoding under the code of this name.
    ///
    /// # Errors
    /// The name is none of a code.
    pub fn encode(code: &str, chunk_bytes: usize) -> Result<Self, SpecError> {
        Ok(Self { code: code.parse()?, chunk_bytes, is_cold: false, operation: Operation::Encode })
    }

    /// Repair of the first `lost` data chunks but chunk 0.
    ///
    /// # Errors
    /// The name is none of a code.
    pub fn repair(code: &str, chunk_bytes: usize, lost: u16) -> Result<Self, SpecError> {
        let operation = Operation::Repair { lost: (1..=lost).collect() };
        Ok(Self { operation, ..Self::encode(code, chunk_bytes)? })
    }

    /// The same work on more stripes than the caches hold.
    pub fn cold(self) -> Self {
        Self { is_cold: true, ..self }
    }

    /// Code and size: `rs:10+4 128KiB`.
    pub fn case(&self) -> String {
        let cold = if self.is_cold { " cold" } else { "" };
        format!("{} {}{cold}", self.code, Size(self.chunk_bytes))
    }

    /// What is measured: the metric of the cell's row.
    pub fn metric(&self) -> String {
        match &self.operation {
            Operation::Encode => "encode_gb_per_s".to_owned(),
            Operation::Repair { lost } => format!("repair_{}_gb_per_s", lost.len()),
            Operation::PlanRepair { lost } => format!("plan_{}_us", lost.len()),
        }
    }
}

/// Bytes in the largest binary unit that divides them.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => write!(f, "{}MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn a_case_is_named_by_code_and_size() {
        let plan = Plan::encode("rs:10+4", 128 << 10).expect("a code");
        assert_eq!((plan.case(), plan.metric()), ("rs:10+4 128KiB".to_owned(), "encode_gb_per_s".to_owned()));
        let plan = Plan::repair("rs:17+3", 1 << 20, 2).expect("a code").cold();
        assert_eq!((plan.case(), plan.metric()), ("rs:17+3 1MiB cold".to_owned(), "repair_2_gb_per_s".to_owned()));
    }
}
