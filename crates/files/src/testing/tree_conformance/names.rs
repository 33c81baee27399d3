//! What names, links and directories must do.

use super::{attributes, content, directory, file, find, new_node, write};
use crate::{FileError, FileTree, Inode, Kind, NewNode, RenameMode};

pub(super) fn what_is_made_is_found(tree: &dyn FileTree) {
    let kinds =
        [Kind::File, Kind::Directory, Kind::Link, Kind::BlockDevice, Kind::CharacterDevice, Kind::Pipe, Kind::Socket];
    for (at, kind) in (0..).zip(kinds) {
        let node = NewNode {
            kind,
            permissions: 0o4751,
            owner: 7,
            owner_group: 8,
            device: 0x1234,
            target: b"some/where".to_vec(),
        };
        let name = [b'a' + at];
        let made = tree.make(Inode::ROOT, &name, &node).expect("the name is free");
        let is_device = matches!(kind, Kind::BlockDevice | Kind::CharacterDevice);
        let is_link = kind == Kind::Link;
        assert_eq!((made.kind, made.permissions, made.owner, made.owner_group), (kind, 0o4751, 7, 8));
        assert_eq!(made.device, if is_device { 0x1234 } else { 0 });
        assert_eq!(made.bytes, if is_link { 10 } else { 0 });
        assert_eq!(made.names, if kind == Kind::Directory { 2 } else { 1 });
        assert_eq!(tree.lookup(Inode::ROOT, &name), Ok(made.clone()));
        assert_eq!(tree.attributes(made.inode), Ok(made.clone()));
        let target = if is_link { Ok(b"some/where".to_vec()) } else { Err(FileError::Invalid) };
        assert_eq!(tree.read_link(made.inode), target);
        assert_eq!(tree.make(Inode::ROOT, &name, &node), Err(FileError::Exists));
    }
    assert_eq!(tree.lookup(find(tree, Inode::ROOT, "a").expect("made"), b"x"), Err(FileError::NotDirectory));
}

pub(super) fn names_are_checked(tree: &dyn FileTree) {
    let longest = [b'n'; 255];
    let too_long = [b'n'; 256];
    let made = tree.make(Inode::ROOT, &longest, &new_node(Kind::File, 0o644)).expect("255 bytes are a name");
    assert_eq!(tree.lookup(Inode::ROOT, &longest), Ok(made.clone()));
    let refused = FileError::NameTooLong { bytes: 256 };
    assert_eq!(tree.lookup(Inode::ROOT, &too_long), Err(refused.clone()));
    assert_eq!(tree.make(Inode::ROOT, &too_long, &new_node(Kind::File, 0o644)), Err(refused.clone()));
    assert_eq!(tree.link(made.inode, Inode::ROOT, &too_long), Err(refused.clone()));
    let rename = tree.rename((Inode::ROOT, &longest), (Inode::ROOT, &too_long), RenameMode::Replace);
    assert_eq!(rename, Err(refused));
    // Any other byte is one.
    let odd: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let made = tree.make(Inode::ROOT, &odd, &new_node(Kind::File, 0o644)).expect("254 bytes are a name");
    assert_eq!(tree.lookup(Inode::ROOT, &odd), Ok(made));
}

pub(super) fn a_set_gid_directory_hands_its_group_down(tree: &dyn FileTree) {
    let shared = NewNode { owner_group: 50, ..new_node(Kind::Directory, 0o2775) };
    let shared = tree.make(Inode::ROOT, b"shared", &shared).expect("made").inode;
    let inner = tree.make(shared, b"inner", &new_node(Kind::Directory, 0o755)).expect("made");
    assert_eq!((inner.owner_group, inner.permissions), (50, 0o2755));
    let file = tree.make(shared, b"file", &new_node(Kind::File, 0o644)).expect("made");
    assert_eq!((file.owner_group, file.permissions), (50, 0o644));
}

pub(super) fn names_count_links_and_directories(tree: &dyn FileTree) {
    let one = directory(tree, Inode::ROOT, "one");
    let two = directory(tree, one, "two");
    let names = |inode| attributes(tree, inode).names;
    assert_eq!((names(Inode::ROOT), names(one), names(two)), (3, 3, 2));
    let leaf = file(tree, two, "leaf");
    assert_eq!((names(two), names(leaf)), (2, 1));
    assert_eq!(tree.link(leaf, one, b"again").map(|linked| (linked.inode, linked.names)), Ok((leaf, 2)));
    assert_eq!(tree.link(leaf, one, b"again"), Err(FileError::Exists));
    assert_eq!(tree.link(two, one, b"third"), Err(FileError::IsDirectory));
    assert_eq!(tree.link(leaf, leaf, b"x"), Err(FileError::NotDirectory));
    assert_eq!(find(tree, one, "again"), Ok(leaf));
    write(tree, leaf, 0, b"shared");
    assert_eq!(tree.unlink(two, b"leaf"), Ok(()));
    assert_eq!((names(leaf), content(tree, leaf)), (1, b"shared".to_vec()));
    assert_eq!(tree.rename((one, b"two"), (Inode::ROOT, b"two"), RenameMode::Replace), Ok(()));
    assert_eq!((names(Inode::ROOT), names(one), names(two)), (4, 2, 2));
    assert_eq!(find(tree, two, ".."), Ok(Inode::ROOT));
    assert_eq!(tree.remove_directory(Inode::ROOT, b"two"), Ok(()));
    assert_eq!(names(Inode::ROOT), 3);
}

pub(super) fn removal_knows_files_from_directories(tree: &dyn FileTree) {
    let full = directory(tree, Inode::ROOT, "full");
    let leaf = file(tree, full, "leaf");
    assert_eq!(tree.unlink(Inode::ROOT, b"full"), Err(FileError::IsDirectory));
    assert_eq!(tree.remove_directory(Inode::ROOT, b"full"), Err(FileError::NotEmpty));
    assert_eq!(tree.remove_directory(full, b"leaf"), Err(FileError::NotDirectory));
    assert_eq!(tree.unlink(full, b"none"), Err(FileError::NotFound));
    assert_eq!(tree.remove_directory(full, b"none"), Err(FileError::NotFound));
    assert_eq!(tree.unlink(leaf, b"none"), Err(FileError::NotDirectory));
    assert_eq!(tree.unlink(full, b"leaf"), Ok(()));
    assert_eq!(tree.attributes(leaf), Err(FileError::NotFound));
    assert_eq!(tree.remove_directory(Inode::ROOT, b"full"), Ok(()));
    assert_eq!(tree.attributes(full), Err(FileError::NotFound));
    assert_eq!(find(tree, Inode::ROOT, "full"), Err(FileError::NotFound));
}

pub(super) fn a_rename_moves_and_replaces(tree: &dyn FileTree) {
    let [a, b] = ["a", "b"].map(|name| directory(tree, Inode::ROOT, name));
    let [one, two] = [file(tree, a, "one"), file(tree, b, "two")];
    let replace = RenameMode::Replace;
    assert_eq!(tree.rename((a, b"none"), (b, b"x"), replace), Err(FileError::NotFound));
    assert_eq!(tree.rename((a, b"one"), (two, b"x"), replace), Err(FileError::NotDirectory));
    assert_eq!(tree.rename((a, b"one"), (b, b"moved"), replace), Ok(()));
    assert_eq!((find(tree, a, "one"), find(tree, b, "moved")), (Err(FileError::NotFound), Ok(one)));
    assert_eq!(tree.rename((b, b"moved"), (b, b"two"), replace), Ok(()));
    assert_eq!((find(tree, b, "moved"), find(tree, b, "two")), (Err(FileError::NotFound), Ok(one)));
    assert_eq!(tree.attributes(two), Err(FileError::NotFound));
    // Two names of one node: both stay.
    tree.link(one, a, b"also").expect("the name is free");
    assert_eq!(tree.rename((b, b"two"), (a, b"also"), replace), Ok(()));
    assert_eq!((find(tree, b, "two"), find(tree, a, "also")), (Ok(one), Ok(one)));
    assert_eq!(tree.rename((b, b"two"), (b, b"two"), replace), Ok(()));
    assert_eq!(attributes(tree, one).names, 2);
}

pub(super) fn a_rename_minds_kinds_and_content(tree: &dyn FileTree) {
    let [empty, full] = ["empty", "full"].map(|name| directory(tree, Inode::ROOT, name));
    let inner = file(tree, full, "inner");
    let plain = file(tree, Inode::ROOT, "plain");
    let root = Inode::ROOT;
    let rename = |from: &[u8], to: &[u8]| tree.rename((root, from), (root, to), RenameMode::Replace);
    assert_eq!(rename(b"full", b"plain"), Err(FileError::NotDirectory));
    assert_eq!(rename(b"plain", b"empty"), Err(FileError::IsDirectory));
    assert_eq!(rename(b"empty", b"full"), Err(FileError::NotEmpty));
    assert_eq!(rename(b"full", b"empty"), Ok(()));
    assert_eq!(find(tree, root, "empty"), Ok(full));
    assert_eq!(find(tree, full, "inner"), Ok(inner));
    assert_eq!(tree.attributes(empty), Err(FileError::NotFound));
    assert_eq!((attributes(tree, root).names, attributes(tree, plain).names), (3, 1));
}

pub(super) fn no_directory_moves_below_itself(tree: &dyn FileTree) {
    let top = directory(tree, Inode::ROOT, "top");
    let middle = directory(tree, top, "middle");
    let bottom = directory(tree, middle, "bottom");
    let root = Inode::ROOT;
    for mode in [RenameMode::Replace, RenameMode::Keep] {
        for (to, name) in [(top, "x"), (middle, "x"), (bottom, "x")] {
            assert_eq!(tree.rename((root, b"top"), (to, name.as_bytes()), mode), Err(FileError::Invalid));
        }
    }
    assert_eq!(tree.rename((middle, b"bottom"), (root, b"top"), RenameMode::Replace), Err(FileError::NotEmpty));
    let exchange = RenameMode::Exchange;
    assert_eq!(tree.rename((root, b"top"), (middle, b"bottom"), exchange), Err(FileError::Invalid));
    assert_eq!(tree.rename((middle, b"bottom"), (root, b"top"), exchange), Err(FileError::Invalid));
    assert_eq!(tree.rename((middle, b"bottom"), (root, b"free"), RenameMode::Replace), Ok(()));
    assert_eq!(find(tree, bottom, ".."), Ok(root));
}

pub(super) fn a_rename_can_keep_or_exchange(tree: &dyn FileTree) {
    let root = Inode::ROOT;
    let outer = directory(tree, root, "outer");
    let inner = directory(tree, outer, "inner");
    let leaf = file(tree, root, "leaf");
    assert_eq!(tree.rename((root, b"leaf"), (outer, b"inner"), RenameMode::Keep), Err(FileError::Exists));
    assert_eq!(tree.rename((root, b"leaf"), (root, b"leaf"), RenameMode::Keep), Err(FileError::Exists));
    assert_eq!(tree.rename((root, b"leaf"), (outer, b"free"), RenameMode::Exchange), Err(FileError::NotFound));
    assert_eq!(tree.rename((root, b"leaf"), (outer, b"inner"), RenameMode::Exchange), Ok(()));
    assert_eq!((find(tree, root, "leaf"), find(tree, outer, "inner")), (Ok(inner), Ok(leaf)));
    assert_eq!(find(tree, inner, ".."), Ok(root));
    assert_eq!((attributes(tree, root).names, attributes(tree, outer).names), (4, 2));
    assert_eq!(tree.rename((root, b"leaf"), (root, b"leaf"), RenameMode::Exchange), Ok(()));
    assert_eq!(find(tree, root, "leaf"), Ok(inner));
    assert_eq!(tree.rename((outer, b"inner"), (root, b"free"), RenameMode::Keep), Ok(()));
    assert_eq!((find(tree, root, "free"), find(tree, outer, "inner")), (Ok(leaf), Err(FileError::NotFound)));
}

pub(super) fn a_removed_directory_takes_no_rows(tree: &dyn FileTree) {
    let gone = directory(tree, Inode::ROOT, "gone");
    let leaf = file(tree, Inode::ROOT, "leaf");
    tree.open(gone).expect("it is there");
    tree.remove_directory(Inode::ROOT, b"gone").expect("it is empty");
    assert_eq!(attributes(tree, gone).names, 0);
    assert_eq!(tree.read_directory(gone, None, 10), Ok(vec![]));
    assert_eq!(tree.make(gone, b"a", &new_node(Kind::File, 0)), Err(FileError::NotFound));
    assert_eq!(tree.make(gone, b"a", &new_node(Kind::Directory, 0)), Err(FileError::NotFound));
    assert_eq!(tree.link(leaf, gone, b"a"), Err(FileError::NotFound));
    assert_eq!(tree.rename((Inode::ROOT, b"leaf"), (gone, b"a"), RenameMode::Replace), Err(FileError::NotFound));
    assert_eq!(find(tree, gone, "a"), Err(FileError::NotFound));
    tree.release(gone);
    assert_eq!(tree.attributes(gone), Err(FileError::NotFound));
}

pub(super) fn directories_are_read_in_order_and_by_parts(tree: &dyn FileTree) {
    let wide = directory(tree, Inode::ROOT, "wide");
    let mut names: Vec<String> = (0..300).map(|at| format!("n{}", at * 7919 % 300)).collect();
    names.iter().for_each(|name| _ = file(tree, wide, name));
    directory(tree, wide, "a directory");
    names.push("a directory".to_owned());
    names.sort();
    let mut seen = Vec::new();
    loop {
        let after = seen.last().map(|entry: &crate::DirectoryEntry| entry.name.clone());
        let part = tree.read_directory(wide, after.as_deref(), 64).expect("it is a directory");
        assert!(part.len() <= 64);
        if part.is_empty() {
            break;
        }
        seen.extend(part);
    }
    let seen_names: Vec<_> = seen.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    assert_eq!(seen_names, names);
    for entry in &seen {
        let found = tree.lookup(wide, &entry.name).expect("it was listed");
        assert_eq!((found.inode, found.kind), (entry.inode, entry.kind));
    }
    // The name to go on behind need not be there any more.
    tree.unlink(wide, b"n1").expect("it is there");
    let next = tree.read_directory(wide, Some(b"n1"), 1).expect("it is a directory");
    assert_eq!(next[0].name, b"n10");
    let leaf = find(tree, wide, "n2").expect("it is there");
    assert_eq!(tree.read_directory(leaf, None, 1), Err(FileError::NotDirectory));
}
