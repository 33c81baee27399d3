//! Each problem that `check_names` knows is found, and nothing else is, in a catalog that was right but for it.

use super::*;
use crate::inode::NO_PARENT;
use crate::malformed::Malformed;

const ROOT: Inode = Inode::ROOT;
const DIRECTORY: Inode = Inode(2);
const FILE: Inode = Inode(3);
const INNER: Inode = Inode(4);

/// What is found after a change of `/directory/file` and `/directory/inner/`.
fn problems(change: impl FnOnce(&mut View<'_>)) -> Vec<NameProblem> {
    let mut names = Names::new();
    assert_eq!(names.make(Kind::Directory, ROOT, "directory"), DIRECTORY);
    assert_eq!(names.make(Kind::File, DIRECTORY, "file"), FILE);
    assert_eq!(names.make(Kind::Directory, DIRECTORY, "inner"), INNER);
    let mut view = names.view();
    change(&mut view);
    check_names(&view).expect("memory reads")
}

fn edited(inode: Inode, change: impl FnOnce(&mut InodeRecord)) -> Vec<NameProblem> {
    problems(|view| edit(view, inode, change).expect("it is there"))
}

fn with_name(directory: Inode, name: &str, inode: Inode, kind: Kind) -> Vec<NameProblem> {
    problems(|view| set_name(view, (directory, name.as_bytes()), NameRecord { inode, kind }))
}

#[test]
fn rows_that_make_no_sense() {
    let source = Malformed::TooShort { bytes: 1, bytes_min: 9 };
    let key = keys::name(DIRECTORY, b"x");
    let found = problems(|view| view.set(Table::Names, &key, vec![1]));
    assert_eq!(found, [NameProblem::Malformed { table: Table::Names, key, source }]);
    let found = problems(|view| view.set(Table::Orphans, &[1], vec![]));
    let source = Malformed::TooShort { bytes: 1, bytes_min: 8 };
    assert_eq!(found, [NameProblem::Malformed { table: Table::Orphans, key: vec![1], source }]);
}

#[test]
fn no_root_or_next_inode() {
    let found = problems(|view| view.delete(Table::Inodes, &keys::inode(ROOT)));
    assert_eq!(found[0], NameProblem::NoRoot);
    let found = problems(|view| view.delete(Table::State, keys::NEXT_INODE));
    assert_eq!(found, [NameProblem::NextInode { next: None, last: INNER }]);
    let found = problems(|view| view.set(Table::State, keys::NEXT_INODE, vec![4, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(found, [NameProblem::NextInode { next: Some(4), last: INNER }]);
}

#[test]
fn names_of_nothing_nowhere_or_of_another_kind() {
    let name = b"x".to_vec();
    let found = with_name(DIRECTORY, "x", Inode(99), Kind::File);
    assert_eq!(found, [NameProblem::NameOfNothing { directory: DIRECTORY, name: name.clone(), inode: Inode(99) }]);
    let found = with_name(FILE, "x", FILE, Kind::File);
    assert_eq!(
        found,
        [
            NameProblem::NameNowhere { directory: FILE, name },
            NameProblem::NamesDiffer { inode: FILE, stored: 1, found: 2 }
        ]
    );
    let found = with_name(DIRECTORY, "file", FILE, Kind::Pipe);
    let name = b"file".to_vec();
    let (told, kind) = (Kind::Pipe, Kind::File);
    assert_eq!(found, [NameProblem::KindDiffers { directory: DIRECTORY, name, inode: FILE, told, kind }]);
}

#[test]
fn counts_and_parents_that_differ() {
    assert_eq!(edited(FILE, |file| file.names = 2), [NameProblem::NamesDiffer { inode: FILE, stored: 2, found: 1 }]);
    assert_eq!(edited(ROOT, |root| root.names = 2), [NameProblem::NamesDiffer { inode: ROOT, stored: 2, found: 3 }]);
    let found = edited(INNER, |inner| inner.parent = ROOT);
    assert_eq!(found, [NameProblem::ParentDiffers { inode: INNER, stored: ROOT, found: vec![DIRECTORY] }]);
    let found = edited(FILE, |file| file.parent = DIRECTORY);
    assert_eq!(found, [NameProblem::ParentDiffers { inode: FILE, stored: DIRECTORY, found: vec![] }]);
    let found = with_name(INNER, "x", DIRECTORY, Kind::Directory);
    let parents = NameProblem::ParentDiffers { inode: DIRECTORY, stored: ROOT, found: vec![ROOT, INNER] };
    assert_eq!(found, [parents, NameProblem::NamesDiffer { inode: INNER, stored: 2, found: 3 }]);
}

#[test]
fn directories_that_lie_in_each_other() {
    let found = problems(|view| {
        view.delete(Table::Names, &keys::name(ROOT, b"directory"));
        set_name(view, (INNER, b"x"), NameRecord { inode: DIRECTORY, kind: Kind::Directory });
        edit(view, DIRECTORY, |directory| directory.parent = INNER).expect("it is there");
        edit(view, INNER, |inner| inner.names = 3).expect("it is there");
        edit(view, ROOT, |root| root.names = 2).expect("it is there");
    });
    assert_eq!(found, [NameProblem::Unreachable { inode: DIRECTORY }, NameProblem::Unreachable { inode: INNER }]);
}

#[test]
fn orphans_that_are_none_and_none_that_are() {
    let orphan = |inode| problems(|view| view.set(Table::Orphans, &keys::inode(inode), vec![]));
    assert_eq!(orphan(FILE), [NameProblem::WrongOrphan { inode: FILE }]);
    assert_eq!(orphan(Inode(99)), [NameProblem::WrongOrphan { inode: Inode(99) }]);
    let found = problems(|view| {
        view.delete(Table::Names, &keys::name(DIRECTORY, b"file"));
        edit(view, FILE, |file| file.names = 0).expect("it is there");
    });
    assert_eq!(found, [NameProblem::NoOrphan { inode: FILE }]);
    let found = problems(|view| {
        view.delete(Table::Names, &keys::name(DIRECTORY, b"inner"));
        view.set(Table::Orphans, &keys::inode(INNER), vec![]);
        edit(view, INNER, |inner| {
            inner.names = 0;
            inner.parent = NO_PARENT;
        })
        .expect("it is there");
        edit(view, DIRECTORY, |directory| directory.names = 2).expect("it is there");
    });
    assert_eq!(found, []);
}

#[test]
fn attributes_of_nothing() {
    let found = problems(|view| view.set(Table::Attributes, &keys::attribute(Inode(99), b"x"), vec![]));
    assert_eq!(found, [NameProblem::AttributeOfNothing { inode: Inode(99), name: b"x".to_vec() }]);
}
