//! What a file's bytes must do.

use claystone_env::SECTOR_BYTES;

use super::{attributes, content, cut, directory, file, new_node, pattern, write};
use crate::{FileError, FileTree, Inode, Kind, NewAttributes, NewNode, Seek};

// Both sides of a sector, of some sectors, of a tiny file as disks may know it, and of a group.
const LENGTHS: [usize; 9] = [1, 100, 2048, 2049, 4095, 4096, 4097, 40_000, 1_200_000];

pub(super) fn what_was_written_is_read(tree: &dyn FileTree) {
    for bytes in LENGTHS {
        let leaf = file(tree, Inode::ROOT, &format!("f{bytes}"));
        let mut expected = pattern(bytes as u8, bytes);
        write(tree, leaf, 0, &expected);
        assert_eq!(content(tree, leaf), expected);
        // In the middle, over the end, and behind it.
        for (at, count) in [(bytes / 3, bytes / 3), (bytes - bytes / 4, bytes / 2), (bytes + 5000, 10)] {
            let more = pattern(0x55, count);
            write(tree, leaf, at as u64, &more);
            if count > 0 {
                expected.resize(expected.len().max(at + count), 0);
                expected[at..at + count].copy_from_slice(&more);
            }
            assert_eq!(content(tree, leaf), expected, "{count} bytes at {at} of {bytes}");
        }
        tree.sync(leaf).expect("it can be synced");
        assert_eq!(content(tree, leaf), expected);
        let mut into = [0xa5; 7];
        assert_eq!(tree.read(leaf, expected.len() as u64 - 3, &mut into), Ok(3));
        assert_eq!(into[..3], expected[expected.len() - 3..]);
        assert_eq!(tree.read(leaf, expected.len() as u64, &mut into), Ok(0));
        assert_eq!(tree.read(leaf, u64::MAX, &mut into), Ok(0));
        assert_eq!(tree.read(leaf, 0, &mut []), Ok(0));
    }
    let leaf = file(tree, Inode::ROOT, "nothing");
    write(tree, leaf, 1000, &[]);
    assert_eq!(attributes(tree, leaf).bytes, 0);
}

pub(super) fn holes_read_as_zeros(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    write(tree, leaf, 3_000_000, b"end");
    let expected = [vec![0; 3_000_000], b"end".to_vec()].concat();
    assert_eq!(content(tree, leaf), expected);
    assert!(attributes(tree, leaf).sectors < 3_000_000 / SECTOR_BYTES as u64, "a hole takes no sectors");
    cut(tree, leaf, 5_000_000);
    assert_eq!(content(tree, leaf).len(), 5_000_000);
    // A terabyte of nothing.
    cut(tree, leaf, 1 << 40);
    let mut into = [0xa5; 100];
    assert_eq!(tree.read(leaf, (1 << 40) - 50, &mut into), Ok(50));
    assert_eq!(into[..50], [0; 50]);
}

pub(super) fn cut_bytes_do_not_come_back(tree: &dyn FileTree) {
    for bytes in LENGTHS {
        let leaf = file(tree, Inode::ROOT, &format!("f{bytes}"));
        for keep in [bytes / 2, bytes - 1, 0] {
            let whole = pattern(9, bytes);
            write(tree, leaf, 0, &whole);
            cut(tree, leaf, keep as u64);
            assert_eq!(content(tree, leaf), whole[..keep]);
            cut(tree, leaf, bytes as u64);
            assert_eq!(content(tree, leaf), [&whole[..keep], &vec![0; bytes - keep]].concat(), "{bytes} to {keep}");
            cut(tree, leaf, keep as u64);
            write(tree, leaf, bytes as u64, b"x");
            assert_eq!(content(tree, leaf), [&whole[..keep], &vec![0; bytes - keep], b"x"].concat());
            cut(tree, leaf, 0);
        }
    }
}

pub(super) fn punched_bytes_are_zeros(tree: &dyn FileTree) {
    let bytes = 300_000;
    for (from, count) in [(0, 1), (0, 4096), (1, 4096), (4000, 9000), (0, bytes), (8192, 81_920), (299_990, 10), (5, 0)]
    {
        let leaf = file(tree, Inode::ROOT, &format!("p{from}-{count}"));
        let mut expected = pattern(3, bytes);
        write(tree, leaf, 0, &expected);
        tree.punch(leaf, from as u64, count as u64).expect("files can be punched");
        expected[from..from + count].fill(0);
        assert_eq!(content(tree, leaf), expected, "{count} bytes at {from}");
    }
    let leaf = file(tree, Inode::ROOT, "leaf");
    write(tree, leaf, 0, &pattern(3, bytes));
    tree.punch(leaf, 200_000, 1 << 40).expect("files can be punched");
    assert_eq!(content(tree, leaf), [pattern(3, 200_000), vec![0; 100_000]].concat());
    tree.punch(leaf, 0, bytes as u64).expect("files can be punched");
    assert_eq!(attributes(tree, leaf).sectors, 0, "whole sectors are given back");
}

pub(super) fn allocated_bytes_are_zeros(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    tree.allocate(leaf, 10, 100_000, true).expect("there is space");
    assert_eq!(attributes(tree, leaf).bytes, 0);
    write(tree, leaf, 5000, b"data");
    let expected = [vec![0; 5000], b"data".to_vec()].concat();
    assert_eq!(content(tree, leaf), expected);
    tree.allocate(leaf, 0, 50_000, false).expect("there is space");
    assert_eq!(content(tree, leaf), [expected, vec![0; 50_000 - 5004]].concat());
    tree.allocate(leaf, 100, 100, false).expect("there is space");
    assert_eq!(attributes(tree, leaf).bytes, 50_000);
    let space = tree.space();
    let more = (space.data_sectors + 1) * SECTOR_BYTES as u64;
    assert_eq!(tree.allocate(leaf, 0, more, false), Err(FileError::NoSpace));
    assert_eq!((attributes(tree, leaf).bytes, tree.space()), (50_000, space));
}

pub(super) fn seeks_find_data_and_holes(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    let [first, last] = [1 << 20, 3 << 20];
    write(tree, leaf, first, b"first");
    write(tree, leaf, last, b"last");
    cut(tree, leaf, 4 << 20);
    tree.sync(leaf).expect("it can be synced");
    // A tree may count more bytes as data than were written, not fewer.
    for (offset, at) in [(0, first), (first, first), (first + 4, first + 4), (2 << 20, last), (last + 3, last + 3)] {
        let found = tree.seek(leaf, offset, Seek::Data).expect("there is data");
        assert!((offset..=at).contains(&found), "data at {at}, found {found} from {offset}");
    }
    for (offset, data_end) in [(0, 0), (first, first + 5), (last, last + 4)] {
        let found = tree.seek(leaf, offset, Seek::Hole).expect("there is a hole");
        assert!(found >= data_end && found <= 4 << 20, "a hole at {found} from {offset}");
    }
    // Between holes of a MiB each, one must be found.
    let hole = tree.seek(leaf, first, Seek::Hole).expect("there is a hole");
    assert!(hole < last, "the hole behind {first} was not found");
    assert!(tree.seek(leaf, hole, Seek::Data).expect("there is data") > hole);
    for what in [Seek::Data, Seek::Hole] {
        assert_eq!(tree.seek(leaf, 4 << 20, what), Err(FileError::NothingThere));
        assert_eq!(tree.seek(leaf, u64::MAX, what), Err(FileError::NothingThere));
    }
    let full = file(tree, Inode::ROOT, "full");
    write(tree, full, 0, &pattern(1, 5000));
    assert_eq!(tree.seek(full, 17, Seek::Data), Ok(17));
    assert_eq!(tree.seek(full, 17, Seek::Hole), Ok(5000));
}

pub(super) fn only_files_have_bytes(tree: &dyn FileTree) {
    let folder = directory(tree, Inode::ROOT, "folder");
    let pipe = tree.make(Inode::ROOT, b"pipe", &new_node(Kind::Pipe, 0o644)).expect("made").inode;
    let link = NewNode { target: b"folder".to_vec(), ..new_node(Kind::Link, 0o777) };
    let link = tree.make(Inode::ROOT, b"link", &link).expect("made").inode;
    for (inode, error) in [(folder, FileError::IsDirectory), (pipe, FileError::Invalid), (link, FileError::Invalid)] {
        let bytes = NewAttributes { bytes: Some(1), ..NewAttributes::default() };
        assert_eq!(tree.read(inode, 0, &mut [0]), Err(error.clone()));
        assert_eq!(tree.write(inode, 0, b"x"), Err(error.clone()));
        assert_eq!(tree.set_attributes(inode, &bytes), Err(error.clone()));
        assert_eq!(tree.punch(inode, 0, 1), Err(error.clone()));
        assert_eq!(tree.allocate(inode, 0, 1, false), Err(error.clone()));
        assert_eq!(tree.seek(inode, 0, Seek::Data), Err(error));
    }
    assert_eq!(tree.read_link(folder), Err(FileError::Invalid));
    assert_eq!(tree.read_directory(link, None, 1), Err(FileError::NotDirectory));
}

pub(super) fn no_file_is_longer_than_offsets_reach(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    let too_large =
        |result: Result<(), FileError>| assert!(matches!(result, Err(FileError::TooLarge { .. })), "{result:?}");
    too_large(tree.write(leaf, u64::MAX, b"xy"));
    too_large(tree.write(leaf, u64::MAX - 1, b"x"));
    too_large(tree.allocate(leaf, u64::MAX, 2, false));
    let bytes = NewAttributes { bytes: Some(u64::MAX), ..NewAttributes::default() };
    too_large(tree.set_attributes(leaf, &bytes).map(|_| ()));
    assert_eq!(attributes(tree, leaf).bytes, 0);
}

pub(super) fn space_is_taken_and_given_back(tree: &dyn FileTree) {
    let before = tree.space();
    let leaf = file(tree, Inode::ROOT, "leaf");
    assert_eq!(tree.space().inodes, before.inodes + 1);
    write(tree, leaf, 0, &pattern(1, 4 << 20));
    tree.sync_all().expect("it can be synced");
    let sectors = (4 << 20) / SECTOR_BYTES as u64;
    assert!(before.free_sectors - tree.space().free_sectors >= sectors);
    assert!(attributes(tree, leaf).sectors >= sectors);
    tree.unlink(Inode::ROOT, b"leaf").expect("it is there");
    tree.sync_all().expect("it can be synced");
    assert_eq!(tree.space(), before);
}
