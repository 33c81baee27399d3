//! What POSIX says of each call, case by case.

use super::*;
use crate::inode::{NO_PARENT, TARGET_BYTES_MAX};
use crate::namespace::make::NAMES_MAX;
use crate::{DirectoryEntry, NewAttributes, Setting};

const ROOT: Inode = Inode::ROOT;

#[test]
fn made_nodes_are_found_and_listed_in_order() {
    let mut names = Names::new();
    let kinds =
        [Kind::Socket, Kind::Pipe, Kind::CharacterDevice, Kind::BlockDevice, Kind::Link, Kind::Directory, Kind::File];
    let made: Vec<Inode> =
        kinds.iter().enumerate().map(|(number, &kind)| names.make(kind, ROOT, &format!("n{}", 9 - number))).collect();
    assert_eq!(made, (2..9).map(Inode).collect::<Vec<_>>());
    let all = read_directory(&names.view(), ROOT, None, 100).expect("it reads");
    let expected: Vec<DirectoryEntry> = (0..7)
        .rev()
        .map(|n| DirectoryEntry { name: format!("n{}", 9 - n).into_bytes(), inode: made[n], kind: kinds[n] })
        .collect();
    assert_eq!(all, expected);
    let some = read_directory(&names.view(), ROOT, Some(b"n4x"), 2).expect("it reads");
    assert_eq!(some, expected[2..4]);
    assert_eq!(names.record(made[2]).device, 7);
    assert_eq!(names.record(made[6]).device, 0);
    assert_eq!(read_link(&names.view(), made[4]), Ok(b"target".to_vec()));
    assert_eq!(names.record(made[4]).bytes, 6);
    assert_eq!(read_link(&names.view(), made[6]), Err(FileError::Invalid));
    assert_eq!(names.record(ROOT).names, 3);
    assert_eq!(names.record(ROOT).modified, at(8));
    assert_eq!(names.record(made[5]).parent, ROOT);
}

#[test]
fn dots_are_the_directory_and_its_parent() {
    let mut names = Names::new();
    let a = names.make(Kind::Directory, ROOT, "a");
    assert_eq!(names.find(a, "."), Ok(a));
    assert_eq!(names.find(a, ".."), Ok(ROOT));
    assert_eq!(names.find(ROOT, ".."), Ok(ROOT));
    assert_eq!(names.unlink(a, "."), Err(FileError::Invalid));
    assert_eq!(names.remove_directory(a, "."), Err(FileError::Invalid));
    assert_eq!(names.remove_directory(a, ".."), Err(FileError::Invalid));
    assert_eq!(names.rename((ROOT, "a"), (ROOT, ".."), RenameMode::Replace), Err(FileError::Invalid));
    let made = names.plan(|view, _, now| make(view, a, b"..", &node(Kind::File), now));
    assert_eq!(made, Err(FileError::Invalid));
}

#[test]
fn names_and_places_that_cannot_be_are_refused() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "file");
    let mut try_make = |directory, name: &[u8], node: &NewNode| {
        names.plan(|view, _, now| make(view, directory, name, node, now)).expect_err("it is refused")
    };
    let new = node(Kind::File);
    assert_eq!(try_make(ROOT, b"file", &new), FileError::Exists);
    assert_eq!(try_make(file, b"a", &new), FileError::NotDirectory);
    assert_eq!(try_make(Inode(99), b"a", &new), FileError::NotFound);
    assert_eq!(try_make(ROOT, b"", &new), FileError::Invalid);
    assert_eq!(try_make(ROOT, b"a/b", &new), FileError::Invalid);
    assert_eq!(try_make(ROOT, b"a\0", &new), FileError::Invalid);
    assert_eq!(try_make(ROOT, &[b'x'; 256], &new), FileError::NameTooLong { bytes: 256 });
    for bytes in [0, TARGET_BYTES_MAX + 1] {
        assert_eq!(try_make(ROOT, b"a", &NewNode { target: vec![1; bytes], ..node(Kind::Link) }), FileError::Invalid);
    }
    names.make(Kind::File, ROOT, &"x".repeat(255));
    assert_eq!(names.find(ROOT, &"x".repeat(256)), Err(FileError::NameTooLong { bytes: 256 }));
    assert_eq!(names.find(ROOT, "none"), Err(FileError::NotFound));
    assert_eq!(names.find(file, "none"), Err(FileError::NotDirectory));
}

#[test]
fn a_directory_with_set_group_hands_its_group_down() {
    let mut names = Names::new();
    let a = names.make(Kind::Directory, ROOT, "a");
    let new = NewAttributes { permissions: Some(0o2770), owner_group: Some(99), ..NewAttributes::default() };
    names.plan(|view, _, now| set_attributes(view, a, &new, now)).expect("it is there");
    let file = names.make(Kind::File, a, "file");
    let b = names.make(Kind::Directory, a, "b");
    assert_eq!((names.record(file).owner_group, names.record(file).permissions), (99, 0o755));
    assert_eq!((names.record(b).owner_group, names.record(b).permissions), (99, 0o2755));
}

#[test]
fn links_count_and_the_last_name_takes_the_node_along() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "a");
    let linked = names.plan(|view, _, now| link(view, file, ROOT, b"b", now)).expect("it is free");
    assert_eq!((linked.names, linked.changed, linked.modified), (2, at(3), at(2)));
    let again = names.plan(|view, _, now| link(view, file, ROOT, b"b", now));
    assert_eq!(again, Err(FileError::Exists));
    let of_directory = names.plan(|view, _, now| link(view, ROOT, ROOT, b"c", now));
    assert_eq!(of_directory, Err(FileError::IsDirectory));
    assert_eq!(names.unlink(ROOT, "a"), Ok(None));
    assert_eq!(names.record(file).names, 1);
    names.plan(|view, _, now| set_attribute(view, file, b"user.x", b"1", None, now)).expect("it is there");
    assert_eq!(names.unlink(ROOT, "b"), Ok(Some(Gone { inode: file, kept: false })));
    assert_eq!(names.view().inode(file), Err(FileError::NotFound));
    assert_eq!(names.unlink(ROOT, "b"), Err(FileError::NotFound));
}

#[test]
fn a_node_has_no_more_names_than_it_can_count() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "a");
    let mut view = names.view();
    view.set_inode(file, &InodeRecord { names: NAMES_MAX, ..names.record(file) });
    assert_eq!(link(&mut view, file, ROOT, b"b", at(0)), Err(FileError::TooManyNames { names: NAMES_MAX }));
    let mut view = names.view();
    view.set_inode(ROOT, &InodeRecord { names: u32::MAX, ..names.record(ROOT) });
    let made = make(&mut view, ROOT, b"b", &node(Kind::Directory), at(0));
    assert_eq!(made.err(), Some(FileError::TooManyNames { names: u32::MAX }));
    assert!(make(&mut view, ROOT, b"b", &node(Kind::File), at(0)).is_ok());
}

#[test]
fn an_open_node_stays_until_it_is_forgotten() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "a");
    let directory = names.make(Kind::Directory, ROOT, "d");
    names.open = vec![file, directory];
    assert_eq!(names.unlink(ROOT, "a"), Ok(Some(Gone { inode: file, kept: true })));
    assert_eq!(names.remove_directory(ROOT, "d"), Ok(Some(Gone { inode: directory, kept: true })));
    assert_eq!((names.record(file).names, names.record(directory).names), (0, 0));
    assert_eq!(names.record(directory).parent, NO_PARENT);
    assert_eq!(names.record(ROOT).names, 2);
    assert_eq!(orphans(&names.view(), 9), Ok(vec![file, directory]));
    let made = names.plan(|view, _, now| make(view, directory, b"x", &node(Kind::File), now));
    assert_eq!(made, Err(FileError::NotFound));
    assert_eq!(names.rename((directory, "x"), (ROOT, "y"), RenameMode::Replace), Err(FileError::NotFound));
    assert_eq!(names.plan(|view, _, now| link(view, file, ROOT, b"x", now)), Err(FileError::NotFound));
    assert_eq!(names.find(directory, "."), Ok(directory));
    assert_eq!(names.find(directory, ".."), Err(FileError::NotFound));
    assert_eq!(read_directory(&names.view(), directory, None, 9), Ok(vec![]));
    for inode in [file, directory] {
        assert_eq!(names.plan(|view, _, _| forget_orphan(view, inode)), Ok(()));
        assert_eq!(names.plan(|view, _, _| forget_orphan(view, inode)), Err(FileError::NotFound));
    }
    assert_eq!(names.view().inode(file), Err(FileError::NotFound));
}

#[test]
fn only_empty_directories_are_removed_and_only_by_their_own_call() {
    let mut names = Names::new();
    let a = names.make(Kind::Directory, ROOT, "a");
    names.make(Kind::File, a, "file");
    assert_eq!(names.remove_directory(ROOT, "a"), Err(FileError::NotEmpty));
    assert_eq!(names.unlink(ROOT, "a"), Err(FileError::IsDirectory));
    assert_eq!(names.remove_directory(a, "file"), Err(FileError::NotDirectory));
    assert!(names.unlink(a, "file").is_ok());
    assert_eq!(names.remove_directory(ROOT, "a"), Ok(Some(Gone { inode: a, kept: false })));
    assert_eq!(names.record(ROOT).names, 2);
}

#[test]
fn a_moved_directory_counts_where_it_is() {
    let mut names = Names::new();
    let (a, b) = (names.make(Kind::Directory, ROOT, "a"), names.make(Kind::Directory, ROOT, "b"));
    let moved = names.make(Kind::Directory, a, "moved");
    assert_eq!(names.rename((a, "moved"), (b, "there"), RenameMode::Keep), Ok(None));
    assert_eq!((names.record(a).names, names.record(b).names, names.record(moved).parent), (2, 3, b));
    assert_eq!((names.record(a).modified, names.record(b).changed, names.record(moved).changed), (at(5), at(5), at(5)));
    assert_eq!(names.record(moved).modified, at(4));
    let empty = names.make(Kind::Directory, ROOT, "empty");
    let gone = names.rename((b, "there"), (ROOT, "empty"), RenameMode::Replace);
    assert_eq!(gone, Ok(Some(Gone { inode: empty, kept: false })));
    assert_eq!((names.record(b).names, names.record(ROOT).names), (2, 5));
}

#[test]
fn a_directory_never_comes_to_lie_in_itself() {
    let mut names = Names::new();
    let a = names.make(Kind::Directory, ROOT, "a");
    let b = names.make(Kind::Directory, a, "b");
    let c = names.make(Kind::Directory, b, "c");
    names.make(Kind::File, c, "file");
    for mode in [RenameMode::Replace, RenameMode::Keep] {
        for into in [a, b, c] {
            assert_eq!(names.rename((ROOT, "a"), (into, "new"), mode), Err(FileError::Invalid));
        }
    }
    assert_eq!(names.rename((ROOT, "a"), (c, "file"), RenameMode::Exchange), Err(FileError::Invalid));
    assert_eq!(names.rename((c, "file"), (ROOT, "a"), RenameMode::Exchange), Err(FileError::Invalid));
    assert_eq!(names.rename((b, "c"), (ROOT, "a"), RenameMode::Replace), Err(FileError::NotEmpty));
    assert_eq!(names.rename((b, "c"), (ROOT, "c"), RenameMode::Replace), Ok(None));
    assert_eq!(names.rename((ROOT, "a"), (c, "a"), RenameMode::Replace), Ok(None));
    assert_eq!(names.find(b, ".."), Ok(a));
    assert_eq!(names.find(a, ".."), Ok(c));
}

#[test]
fn what_has_the_new_name_decides() {
    let mut names = Names::new();
    let directory = names.make(Kind::Directory, ROOT, "directory");
    let full = names.make(Kind::Directory, ROOT, "full");
    let (file, other) = (names.make(Kind::File, full, "file"), names.make(Kind::Link, full, "other"));
    let mut rename = |from, to, mode| names.rename(from, to, mode);
    assert_eq!(rename((ROOT, "directory"), (full, "file"), RenameMode::Replace), Err(FileError::NotDirectory));
    assert_eq!(rename((full, "file"), (ROOT, "directory"), RenameMode::Replace), Err(FileError::IsDirectory));
    assert_eq!(rename((ROOT, "directory"), (ROOT, "full"), RenameMode::Replace), Err(FileError::NotEmpty));
    assert_eq!(rename((full, "file"), (full, "other"), RenameMode::Keep), Err(FileError::Exists));
    assert_eq!(rename((full, "file"), (full, "file"), RenameMode::Keep), Err(FileError::Exists));
    assert_eq!(rename((full, "file"), (full, "none"), RenameMode::Exchange), Err(FileError::NotFound));
    assert_eq!(rename((full, "none"), (full, "file"), RenameMode::Replace), Err(FileError::NotFound));
    let gone = rename((full, "file"), (full, "other"), RenameMode::Replace);
    assert_eq!(gone, Ok(Some(Gone { inode: other, kept: false })));
    assert_eq!(rename((full, "other"), (directory, "x"), RenameMode::Replace), Ok(None));
    assert_eq!(names.find(directory, "x"), Ok(file));
}

#[test]
fn two_names_of_one_node_stay_where_they_are() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "a");
    names.plan(|view, _, now| link(view, file, ROOT, b"b", now)).expect("it is free");
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let changed = names.record(file).changed;
        assert_eq!(names.rename((ROOT, "a"), (ROOT, "b"), mode), Ok(None));
        assert_eq!((names.find(ROOT, "a"), names.find(ROOT, "b")), (Ok(file), Ok(file)));
        assert_eq!(names.record(file).changed, changed);
    }
}

#[test]
fn a_replaced_node_with_another_name_or_open_stays() {
    let mut names = Names::new();
    let (a, b, c) =
        (names.make(Kind::File, ROOT, "a"), names.make(Kind::File, ROOT, "b"), names.make(Kind::File, ROOT, "c"));
    names.plan(|view, _, now| link(view, b, ROOT, b"b2", now)).expect("it is free");
    assert_eq!(names.rename((ROOT, "a"), (ROOT, "b"), RenameMode::Replace), Ok(None));
    assert_eq!((names.find(ROOT, "b"), names.record(b).names), (Ok(a), 1));
    names.open = vec![c];
    let gone = names.rename((ROOT, "b"), (ROOT, "c"), RenameMode::Replace);
    assert_eq!(gone, Ok(Some(Gone { inode: c, kept: true })));
}

#[test]
fn exchanged_nodes_change_places_with_their_counts() {
    let mut names = Names::new();
    let (a, b) = (names.make(Kind::Directory, ROOT, "a"), names.make(Kind::Directory, ROOT, "b"));
    let (file, inner) = (names.make(Kind::File, a, "x"), names.make(Kind::Directory, b, "y"));
    names.make(Kind::File, inner, "kept");
    assert_eq!(names.rename((a, "x"), (b, "y"), RenameMode::Exchange), Ok(None));
    assert_eq!((names.find(a, "x"), names.find(b, "y")), (Ok(inner), Ok(file)));
    assert_eq!((names.record(a).names, names.record(b).names, names.record(inner).parent), (3, 2, a));
    assert_eq!(names.rename((a, "x"), (ROOT, "b"), RenameMode::Exchange), Ok(None));
    assert_eq!((names.find(a, "x"), names.find(ROOT, "b")), (Ok(b), Ok(inner)));
}

#[test]
fn attributes_are_set_with_their_times() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "a");
    let mut set =
        |new: NewAttributes| names.plan(|view, _, now| set_attributes(view, file, &new, now)).expect("it is there");
    let nothing = set(NewAttributes::default());
    assert_eq!(nothing.changed, at(3));
    let cut = set(NewAttributes { bytes: Some(5000), ..NewAttributes::default() });
    assert_eq!((cut.bytes, cut.modified, cut.changed, cut.accessed), (5000, at(4), at(4), at(2)));
    let times = set(NewAttributes {
        accessed: Some(Setting::At(at(-5))),
        modified: Some(Setting::Now),
        made: Some(at(-9)),
        ..NewAttributes::default()
    });
    assert_eq!((times.accessed, times.modified, times.changed, times.made), (at(-5), at(5), at(5), at(-9)));
    let owners = set(NewAttributes {
        permissions: Some(0o4711),
        owner: Some(1),
        owner_group: Some(2),
        changed: Some(at(-7)),
        ..NewAttributes::default()
    });
    assert_eq!((owners.permissions, owners.owner, owners.owner_group, owners.changed), (0o4711, 1, 2, at(-7)));
    let cut = NewAttributes { bytes: Some(0), ..NewAttributes::default() };
    let pipe = names.make(Kind::Pipe, ROOT, "pipe");
    for (inode, error) in [(ROOT, FileError::IsDirectory), (pipe, FileError::Invalid), (Inode(99), FileError::NotFound)]
    {
        assert_eq!(names.plan(|view, _, now| set_attributes(view, inode, &cut, now)), Err(error));
    }
}

#[test]
fn extended_attributes_are_kept_by_name() {
    let mut names = Names::new();
    let file = names.make(Kind::File, ROOT, "a");
    let mut set = |name: &[u8], value: &[u8], there| {
        names.plan(|view, _, now| set_attribute(view, file, name, value, there, now))
    };
    assert_eq!(set(b"user.b", b"1", Some(true)), Err(FileError::NoAttribute));
    assert_eq!(set(b"user.b", b"1", Some(false)), Ok(()));
    assert_eq!(set(b"user.b", b"2", Some(false)), Err(FileError::Exists));
    assert_eq!(set(b"user.b", b"3", Some(true)), Ok(()));
    assert_eq!(set(b"user.a", &[7; 65_536], None), Ok(()));
    assert_eq!(set(b"user.c", &[7; 65_537], None), Err(FileError::AttributeTooLong { bytes: 65_537 }));
    assert_eq!(set(&[b'x'; 256], b"", None), Err(FileError::NameTooLong { bytes: 256 }));
    assert_eq!(attribute_names(&names.view(), file), Ok(vec![b"user.a".to_vec(), b"user.b".to_vec()]));
    assert_eq!(attribute(&names.view(), file, b"user.b"), Ok(b"3".to_vec()));
    assert_eq!(names.plan(|view, _, now| remove_attribute(view, file, b"user.b", now)), Ok(()));
    assert_eq!(names.record(file).changed, at(names.seconds));
    assert_eq!(names.plan(|view, _, now| remove_attribute(view, file, b"user.b", now)), Err(FileError::NoAttribute));
    assert_eq!(attribute(&names.view(), file, b"user.b"), Err(FileError::NoAttribute));
    assert_eq!(attribute(&names.view(), Inode(99), b"user.b"), Err(FileError::NotFound));
}
