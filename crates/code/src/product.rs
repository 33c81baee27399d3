//! Product codes: data in rows and columns, an XOR parity for each row and for each column, and one over the parities.
//! Source: [hacfs §3.2]
//!
//! A stripe of `pc:RxC` has C + 1 columns and R + 1 rows, each of which XORs to zero. Chunks: the R * C data row by row,
//! then the R row parities, the C column parities, the corner.
//!
//! Where we differ: the paper has the row parities change when stripes are merged and the column parities stay, which
//! with its own 2 x 5 would give `pc:2x15`. Its 1.4 times `pc:6x5` needs the opposite, so row parities stay here.
//!
//! Invariants:
//! 1. Any three losses are recovered, and of more all that hold no closed walk of rows and columns (four corners of a
//!    rectangle are the least).
//! 2. A single loss reads its row or its column, whichever is shorter.

use crate::{ChunkIndex, linear::Generator};

/// The code of `rows` rows and `columns` columns of data.
pub(crate) fn generator(rows: u8, columns: u8) -> Generator {
    let (rows, columns) = (u16::from(rows), u16::from(columns));
    let data = rows * columns;
    let line = |on: &dyn Fn(u16, u16) -> bool| -> Vec<u8> {
        (0..data).map(|at| u8::from(on(at / columns, at % columns))).collect()
    };
    let row_parity = (0..rows).map(|row| line(&|at, _| at == row));
    let column_parity = (0..columns).map(|column| line(&|_, at| at == column));
    let parity = row_parity.chain(column_parity).chain([vec![1; data.into()]]).collect();

    // The grid with its parity: row and column indices one past the data's are those of parity.
    let chunk = |row: u16, column: u16| {
        ChunkIndex(match (row < rows, column < columns) {
            (true, true) => row * columns + column,
            (true, false) => data + row,
            (false, true) => data + rows + column,
            (false, false) => data + rows + columns,
        })
    };
    let by_row = (0..=rows).map(|row| (0..=columns).map(|column| chunk(row, column)).collect());
    let by_column = (0..=columns).map(|column| (0..=rows).map(|row| chunk(row, column)).collect());
    Generator::new(data, parity, by_row.chain(by_column).collect())
}
