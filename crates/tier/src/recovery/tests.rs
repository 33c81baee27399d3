//! Which records count, by what of headers and marks can be read.

use super::*;
use crate::record::List;
use crate::superblock::PairId;

const FLOOR: u64 = 1 << 40;

fn superblock() -> Superblock {
    let range = |first, sectors| SectorRange { first: Sector(first), sectors };
    Superblock {
        ssd_lost: false,
        at_rest: false,
        id: PairId([1; 16]),
        generation: 5,
        floor: FLOOR,
        epoch: 1,
        record_sectors_max: 8,
        unmarked_sectors_max: 32,
        sectors: [100, 1000],
        logs: [range(1, 98), range(1, 100)],
        home: range(101, 898),
        tails: [0, 0],
        index: None,
        profile: None,
        queue_max: None,
        ssd_label: String::new(),
    }
}

/// A record of sequence `FLOOR + number`, of one sector, written when `mark` was the last durable one.
fn data(number: u64, mark: u64) -> Header {
    Header {
        kind: Kind::Data,
        side: Side::Ssd,
        seq: FLOOR + number,
        place: 2 * number,
        generation: 5,
        mark: if mark == 0 { 0 } else { FLOOR + mark },
        extents: vec![SectorRange { first: Sector(number), sectors: 1 }],
        crcs: vec![number as u32],
        list: None,
        replaces: 0,
        group: Vec::new(),
    }
}

fn mark(number: u64, from: u64, listed: &[u64]) -> (Header, Mark) {
    let list = Some(List { from: FLOOR + from, bytes: 0, inline: Some(Vec::new()) });
    let header = Header { kind: Kind::Mark, extents: Vec::new(), crcs: Vec::new(), list, ..data(number, 0) };
    let entries = listed.iter().map(|number| Entry::of(&data(*number, 0))).collect();
    (header, Mark { from: FLOOR + from, entries })
}

/// Numbers of what is listed, unlisted and unpromised, and what the next mark covers from.
type Decision = (Vec<u64>, Vec<u64>, Vec<u64>, u64);

/// What is decided of these.
fn decided(headers: &[Header], marks: &[(Header, Mark)]) -> Result<Decision, Damage> {
    let headers = headers.iter().map(|header| (header.place, header.clone())).collect();
    let mut scan = Scan { headers, ..Scan::default() };
    scan.headers.extend(marks.iter().map(|(header, _)| (header.place, header.clone())));
    let marks = marks.iter().map(|(header, mark)| (header.seq, mark.clone())).collect();
    let recovered = recover(&superblock(), marks, &[scan, Scan::default()])?;
    let numbers = |entries: &[Entry]| entries.iter().map(|entry| entry.seq - FLOOR).collect();
    let Recovered { listed, unlisted, unpromised, from } = recovered;
    Ok((numbers(&listed), numbers(&unlisted), numbers(&unpromised), from - FLOOR))
}

#[test]
fn what_a_mark_covers_and_does_not_list_is_void() {
    let headers = [data(0, 0), data(1, 0), data(3, 2)];
    let found = decided(&headers, &[mark(2, 0, &[1])]).expect("whole");
    assert_eq!(found, (vec![1], vec![], vec![3], 3));
}

#[test]
fn behind_the_last_mark_what_can_be_read_counts() {
    let headers = [data(0, 0), data(1, 0), data(4, 0)];
    let found = decided(&headers, &[mark(2, 0, &[0])]).expect("whole");
    assert_eq!(found, (vec![0], vec![], vec![4], 3));
    assert_eq!(decided(&[data(0, 0)], &[]).expect("whole"), (vec![], vec![], vec![0], 0));
}

#[test]
fn a_header_that_is_lost_is_known_from_its_mark() {
    assert_eq!(decided(&[data(1, 0)], &[mark(2, 0, &[0, 1])]).expect("whole"), (vec![0, 1], vec![], vec![], 3));
}

#[test]
fn a_mark_that_is_lost_is_known_from_what_came_behind_it() {
    let all = [data(0, 0), data(1, 0), data(3, 2)];
    // By the next mark, and by a header.
    let next = mark(4, 3, &[3]);
    assert_eq!(decided(&all, std::slice::from_ref(&next)).expect("whole"), (vec![3], vec![0, 1], vec![], 5));
    assert_eq!(decided(&all, &[]).expect("whole"), (vec![], vec![0, 1], vec![3], 3));
    // A header is lost too: nobody knows of what.
    let damage = Damage::Missing { seq: FLOOR + 1 };
    assert_eq!(decided(&[data(0, 0), data(3, 2)], &[next]).expect_err("a record is missing"), damage);
    assert_eq!(decided(&[data(0, 0), data(3, 2)], &[]).expect_err("a record is missing"), damage);
}

#[test]
fn what_was_decided_at_an_opening_stays_so() {
    // Record 1 could not be read when the pair was opened, and can be now.
    let opened = Header { seq: 2 << 40, ..mark(9, 0, &[0]).0 };
    let (_, list) = mark(9, 0, &[0]);
    let found = decided(&[data(0, 0), data(1, 0)], &[(opened, list)]).expect("whole");
    assert_eq!((found.0, found.2), (vec![0], vec![]));
}

#[test]
fn what_an_opening_could_not_read_stays_void_when_it_and_its_mark_read_again() {
    // Mark 2 lists both records. It could not be read when the pair was opened, nor could record 0.
    let opened = Header { seq: 2 << 40, ..mark(9, 0, &[1]).0 };
    let (_, list) = mark(9, 0, &[1]);
    let headers = [data(0, 0), data(1, 0)];
    let found = decided(&headers, &[mark(2, 0, &[0, 1]), (opened.clone(), list.clone())]).expect("whole");
    assert_eq!((found.0, found.1, found.2), (vec![1], vec![], vec![]));
    // The same where what is read again is known from headers alone, of a mark that does not read.
    let headers = [data(0, 0), data(1, 0), data(3, 2)];
    let found = decided(&headers, &[mark(4, 3, &[3]), (opened, list)]).expect("whole");
    assert_eq!((found.0, found.1, found.2), (vec![1], vec![], vec![]));
}

#[test]
fn two_marks_that_are_lost_in_a_row_are_known() {
    let headers = [data(0, 0), data(2, 1), data(4, 3)];
    let found = decided(&headers, &[]).expect("whole");
    assert_eq!(found, (vec![], vec![0, 2], vec![4], 4));
}

#[test]
fn an_older_superblock_is_told() {
    let later = Header { generation: 6, ..data(0, 0) };
    assert_eq!(decided(&[later], &[]), Err(Damage::Superblock { found: 6, known: 5 }));
}
