//! Proofs of maximal recoverability, by going through all patterns.

use sha2::{Digest, Sha256};

use super::{
    generator, global_rows,
    tables::{TABLES, Table},
};
use crate::{
    ChunkIndex,
    linear::{Generator, Span},
};

/// Whether every largest pattern that any code of this shape recovers is recovered: one chunk of each group (which one
/// is the group's "first", the least erased one) and `global` more anywhere.
///
/// Global parities that are lost leave rows out. What is left must make the differences within groups independent:
/// with the local parity as the point 0, the points of a group that are lost beside the first.
fn is_maximally_recoverable(data: u8, local: u8, rows: &[Vec<u8>]) -> bool {
    let group = usize::from(data / local);
    let point = |at: usize, place: usize, kept: &[usize]| -> Vec<u8> {
        // Place 0 is the local parity.
        kept.iter().map(|row| place.checked_sub(1).map_or(0, |place| rows[*row][at * group + place])).collect()
    };
    (1u32..1 << rows.len()).all(|pattern| {
        let kept: Vec<usize> = (0..rows.len()).filter(|row| pattern >> row & 1 == 1).collect();
        let groups: Vec<Vec<Vec<u8>>> =
            (0..local.into()).map(|at| (0..=group).map(|place| point(at, place, &kept)).collect()).collect();
        all_independent(&groups, kept.len(), &Span::new(kept.len()))
    })
}

/// Whether each way to take `left` differences out of groups is independent of what `span` has, and in itself.
fn all_independent(groups: &[Vec<Vec<u8>>], left: usize, span: &Span) -> bool {
    let Some((group, rest)) = groups.split_first() else {
        return true;
    };
    // No difference from this group, or some with each of its points as the first.
    left == 0
        || all_independent(rest, left, span)
            && (0..group.len()).all(|first| {
                let differences: Vec<Vec<u8>> = group[first + 1..]
                    .iter()
                    .map(|point| point.iter().zip(&group[first]).map(|(a, b)| a ^ b).collect())
                    .collect();
                all_subsets(&differences, rest, left, span)
            })
}

/// As [`all_independent`], with one or more of `differences`.
fn all_subsets(differences: &[Vec<u8>], rest: &[Vec<Vec<u8>>], left: usize, span: &Span) -> bool {
    (0..differences.len()).all(|at| {
        let mut span = span.clone();
        span.insert(&differences[at])
            && (left == 1
                || all_independent(rest, left - 1, &span) && all_subsets(&differences[at + 1..], rest, left - 1, &span))
    })
}

#[test]
fn every_table_is_maximally_recoverable() {
    for table in TABLES {
        for local in table.locals {
            let global = table.rows.len() as u8;
            let rows = global_rows(table.data, *local, global).expect("a table");
            assert!(rows.iter().all(|row| row[0] == 1), "the first column is all ones");
            assert!(is_maximally_recoverable(table.data, *local, &rows), "lrc:{}+{local}+{global}", table.data);
        }
    }
}

#[test]
fn every_small_code_is_maximally_recoverable() {
    let mut proved = 0;
    for global in 1..=4 {
        for data in 1..=24 {
            for local in (1..=data).filter(|local| data % local == 0) {
                let Some(rows) = global_rows(data, local, global) else { continue };
                // One group and many globals is Reed-Solomon, whose proof is its matrix: small sizes will do.
                if local == 1 && global > 2 && data > 10 {
                    continue;
                }
                assert!(is_maximally_recoverable(data, local, &rows), "lrc:{data}+{local}+{global}");
                proved += 1;
            }
        }
    }
    assert_eq!(proved, 231);
}

#[test]
fn the_widest_codes_of_each_closed_form_are_maximally_recoverable() {
    for (data, local, global) in [(254, 1, 1), (208, 26, 1), (225, 15, 2), (221, 17, 2), (165, 55, 2), (168, 56, 2)] {
        let rows = global_rows(data, local, global).expect("a closed form");
        assert!(is_maximally_recoverable(data, local, &rows), "lrc:{data}+{local}+{global}");
    }
}

#[test]
fn a_wrong_coefficient_is_noticed() {
    let mut rows = global_rows(12, 2, 2).expect("a closed form");
    assert!(is_maximally_recoverable(12, 2, &rows));
    rows[1][7] = rows[1][6];
    rows[0][7] = rows[0][6];
    assert!(!is_maximally_recoverable(12, 2, &rows));
}

/// The definition itself, chunk by chunk, and without the algebra above: a pattern is recovered just if, with the least
/// erased chunk of each group given back, as many are left as there are global parities, or fewer.
#[test]
fn exactly_the_patterns_that_counting_allows_are_recovered() {
    for (data, local, global) in [(12, 2, 2), (12, 3, 2), (6, 3, 2), (6, 2, 3), (8, 2, 1), (9, 3, 2), (6, 2, 4)] {
        check_all_patterns(data, local, global, |_| true);
    }
    // A million patterns: all of up to nine erasures would do, since counting never allows more; every 7th here.
    let all = std::env::var_os("CLAYSTONE_EXHAUSTIVE").is_some();
    check_all_patterns(12, 6, 2, |pattern| all || pattern % 7 == 0);
}

fn check_all_patterns(data: u8, local: u8, global: u8, selected: impl Fn(u32) -> bool) {
    let code = generator(data, local, global).expect("a proved code");
    let group = data / local;
    for lost in (0u32..1 << code.chunks()).filter(|lost| selected(*lost)) {
        let in_group = |at: u8| {
            let members = (at * group..(at + 1) * group).chain([data + at]);
            members.filter(|chunk| lost >> chunk & 1 == 1).count()
        };
        let beyond: usize = (0..local).map(|at| in_group(at).saturating_sub(1)).sum();
        let globals = (lost >> (data + local)).count_ones() as usize;
        assert_eq!(is_recovered(&code, lost), beyond + globals <= global.into(), "{data}+{local}+{global}: {lost:b}");
    }
}

/// Whether the chunks that are left determine all.
fn is_recovered(code: &Generator, lost: u32) -> bool {
    let mut span = Span::new(code.data().into());
    let left = (0..code.chunks()).filter(|chunk| lost >> chunk & 1 == 0).map(ChunkIndex);
    // Parity first would be slow: unit vectors keep the others short.
    left.for_each(|chunk| {
        span.insert(&code.vector(chunk));
    });
    span.rank() == code.data().into()
}

/// Stored parity was made with these numbers: by table, how many there are of what, then all of them.
#[test]
fn the_tables_are_pinned() {
    let mut all = Vec::new();
    for Table { data, locals, rows } in TABLES {
        all.extend([*data, locals.len() as u8, rows.len() as u8]);
        all.extend([locals].into_iter().chain(*rows).flat_map(|numbers| numbers.iter()));
    }
    let hash = hex::encode(Sha256::digest(all));
    assert_eq!(hash, "ae4bd2d7d3a3e679d7b63e225e70c4579642147d719927fa67f60a9482f0d990");
}
