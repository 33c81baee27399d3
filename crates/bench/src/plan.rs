//! What a cell measures, as plain data that each contender translates for itself.

use std::fmt;

use claystone_code::{CodeSpec, SpecError};

/// A cell to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The code.
    pub code: CodeSpec,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Bytes of a chunk in one codeword of ours; divides `chunk_bytes`.
    pub tile_bytes: usize,
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
    /// What groups of so many data chunks add to parity that is there. Counts data bytes.
    EncodeAdd {
        /// Chunks added in one call, where the contender can take more than one.
        group: usize,
    },
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
        let operation = Operation::Encode;
        Ok(Self { code: code.parse()?, chunk_bytes, tile_bytes: chunk_bytes, is_cold: false, operation })
    }

    /// Repair of `lost` data chunks, chunk 1 first.
    ///
    /// # Errors
    /// The name is none of a code.
    pub fn repair(code: &str, chunk_bytes: usize, lost: u16) -> Result<Self, SpecError> {
        Ok(Self::encode(code, chunk_bytes)?.doing(Operation::Repair { lost: (1..=lost).collect() }))
    }

    /// The same code at other work.
    pub fn doing(self, operation: Operation) -> Self {
        Self { operation, ..self }
    }

    /// The same work on more stripes than the caches hold.
    pub fn cold(self) -> Self {
        Self { is_cold: true, ..self }
    }

    /// The same work in tiles.
    pub fn in_tiles(self, tile_bytes: usize) -> Self {
        Self { tile_bytes, ..self }
    }

    /// Code and size: `rs:10+4 128KiB`.
    pub fn case(&self) -> String {
        let cold = if self.is_cold { " cold" } else { "" };
        let (code, chunk, tile) = (&self.code, Size(self.chunk_bytes), Size(self.tile_bytes));
        if self.tile_bytes == self.chunk_bytes {
            format!("{code} {chunk}{cold}")
        } else {
            format!("{code} {chunk} in {tile}{cold}")
        }
    }

    /// What is measured: the metric of the cell's row.
    pub fn metric(&self) -> String {
        match &self.operation {
            Operation::Encode => "encode_gb_per_s".to_owned(),
            Operation::EncodeAdd { group } => format!("encode_add_{group}_gb_per_s"),
            Operation::Repair { lost } => format!("repair_{}_gb_per_s", lost.len()),
            Operation::PlanRepair { lost } => format!("plan_{}_us", lost.len()),
        }
    }

    /// Case and metric: what a filter is held against.
    pub fn name(&self) -> String {
        format!("{} {}", self.case(), self.metric())
    }
}

/// Bytes in the largest binary unit that divides them.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => write!(f, "{}MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn a_cell_is_named_by_code_size_and_work() {
        let plan = Plan::encode("rs:10+4", 128 << 10).expect("a code");
        assert_eq!(plan.name(), "rs:10+4 128KiB encode_gb_per_s");
        let plan = Plan::repair("rs:17+3", 1 << 20, 2).expect("a code").cold();
        assert_eq!(plan.name(), "rs:17+3 1MiB cold repair_2_gb_per_s");
        let plan = Plan::encode("clay:16+4:19", 4 << 20).expect("a code").in_tiles(64 << 10);
        assert_eq!(plan.case(), "clay:16+4:19 4MiB in 64KiB");
    }
}
