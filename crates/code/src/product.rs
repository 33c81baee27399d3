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

/// The chunk at a place of the grid with its parity: row and column indices one past the data's are those of parity.
fn chunk(row: u16, column: u16, [rows, columns]: [u16; 2]) -> ChunkIndex {
    ChunkIndex(match (row < rows, column < columns) {
        (true, true) => row * columns + column,
        (true, false) => rows * columns + row,
        (false, true) => rows * columns + rows + column,
        (false, false) => rows * columns + rows + columns,
    })
}

/// [`CodeSpec::tolerance_left`](crate::CodeSpec::tolerance_left).
///
/// A lost chunk joins its row and its column. Data is lost just where a walk along such joints closes, and the shortest
/// closed walk has four. What is left is one less than the chunks that are missing to one.
pub(crate) fn tolerance_left(rows: u8, columns: u8, is_lost: &[bool]) -> i32 {
    let size = [rows.into(), columns.into()];
    let [rows, columns] = size.map(usize::from);
    let cells = (0..=rows).flat_map(|row| (0..=columns).map(move |column| (row, column)));
    let index = |at: usize| u16::try_from(at).expect("a code has fewer chunks");
    let lost: Vec<(usize, usize)> =
        cells.filter(|(row, column)| is_lost[chunk(index(*row), index(*column), size).at()]).collect();

    // Rows and columns that a walk reaches from each other have one name.
    let mut reach: Vec<usize> = (0..rows + columns + 2).collect();
    let mut losses = vec![0; rows + columns + 2];
    let mut closed = 0;
    for (row, column) in &lost {
        let column = rows + 1 + column;
        let [one, other] = [reach[*row], reach[column]];
        closed += i32::from(one == other);
        reach.iter_mut().filter(|name| **name == other).for_each(|name| *name = one);
        losses[*row] += 1;
        losses[column] += 1;
    }
    // A loss beside others in its row and in its column: three sides of a rectangle.
    let is_middle = |(row, column): &(usize, usize)| losses[*row] > 1 && losses[rows + 1 + column] > 1;
    match (closed, lost.len()) {
        (1.., _) => -closed,
        (_, 0) => 3,
        (_, 1) => 2,
        _ => i32::from(!lost.iter().any(is_middle)),
    }
}

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

    let chunk = |row, column| chunk(row, column, [rows, columns]);
    let by_row = (0..=rows).map(|row| (0..=columns).map(|column| chunk(row, column)).collect());
    let by_column = (0..=columns).map(|column| (0..=rows).map(|row| chunk(row, column)).collect());
    Generator::new(data, parity, by_row.chain(by_column).collect())
}
