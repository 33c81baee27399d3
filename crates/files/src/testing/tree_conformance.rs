//! What every tree must do, checked through the trait alone.

mod attributes;
mod content;
mod names;

use std::sync::Arc;

use claystone_env::SECTOR_BYTES;

use crate::{Attributes, FileError, FileTree, Inode, Kind, NewAttributes, NewNode, RenameMode, Seek};

/// Runs every check, each on a new empty tree from `make`. Its clock shall go on between calls, as
/// [`SteppingClock`](super::SteppingClock) does, and it must hold at least 64 MiB.
///
/// # Panics
/// If the tree breaks the contract.
pub fn tree_conformance(mut make: impl FnMut() -> Arc<dyn FileTree>) {
    a_new_tree_is_an_empty_directory(&*make());
    names::what_is_made_is_found(&*make());
    names::names_are_checked(&*make());
    unknown_inodes_are_not_found(&*make());
    names::a_set_gid_directory_hands_its_group_down(&*make());
    names::names_count_links_and_directories(&*make());
    names::removal_knows_files_from_directories(&*make());
    names::a_rename_moves_and_replaces(&*make());
    names::a_rename_minds_kinds_and_content(&*make());
    names::no_directory_moves_below_itself(&*make());
    names::a_rename_can_keep_or_exchange(&*make());
    an_open_node_outlives_its_names(&*make());
    names::a_removed_directory_takes_no_rows(&*make());
    names::directories_are_read_in_order_and_by_parts(&*make());
    content::what_was_written_is_read(&*make());
    content::holes_read_as_zeros(&*make());
    content::cut_bytes_do_not_come_back(&*make());
    content::punched_bytes_are_zeros(&*make());
    content::allocated_bytes_are_zeros(&*make());
    content::seeks_find_data_and_holes(&*make());
    content::only_files_have_bytes(&*make());
    content::no_file_is_longer_than_offsets_reach(&*make());
    attributes::attributes_are_set_one_by_one(&*make());
    attributes::each_call_sets_its_times(&*make());
    attributes::reads_set_the_time_of_access(&*make());
    attributes::extended_attributes_are_kept(&*make());
    content::space_is_taken_and_given_back(&*make());
    synced_nodes_must_be_there(&*make());
    threads_do_not_disturb_each_other(make());
}

/// A node to make, of root's.
pub fn new_node(kind: Kind, permissions: u16) -> NewNode {
    NewNode { kind, permissions, owner: 0, owner_group: 0, device: 0, target: Vec::new() }
}

fn file(tree: &dyn FileTree, directory: Inode, name: &str) -> Inode {
    tree.make(directory, name.as_bytes(), &new_node(Kind::File, 0o644)).expect("a file is made").inode
}

fn directory(tree: &dyn FileTree, parent: Inode, name: &str) -> Inode {
    tree.make(parent, name.as_bytes(), &new_node(Kind::Directory, 0o755)).expect("a directory is made").inode
}

fn find(tree: &dyn FileTree, directory: Inode, name: &str) -> Result<Inode, FileError> {
    tree.lookup(directory, name.as_bytes()).map(|attributes| attributes.inode)
}

fn attributes(tree: &dyn FileTree, inode: Inode) -> Attributes {
    tree.attributes(inode).expect("the node is there")
}

fn content(tree: &dyn FileTree, inode: Inode) -> Vec<u8> {
    // Not zeros, so that what is not filled shows.
    let mut into = vec![0xa5; attributes(tree, inode).bytes as usize + 10];
    let count = tree.read(inode, 0, &mut into).expect("the file is read");
    assert_eq!(count, into.len() - 10);
    into.truncate(count);
    assert!(tree.read_bytes(inode, 0, count + 10).expect("the file is read") == into);
    into
}

fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    // 251 is prime, so no two sectors are alike for long.
    (0..bytes).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn write(tree: &dyn FileTree, inode: Inode, offset: u64, bytes: &[u8]) {
    tree.write(inode, offset, bytes).expect("the file is written");
}

fn cut(tree: &dyn FileTree, inode: Inode, bytes: u64) {
    let set = tree.set_attributes(inode, &NewAttributes { bytes: Some(bytes), ..NewAttributes::default() });
    assert_eq!(set.expect("the file is cut").bytes, bytes);
}

fn a_new_tree_is_an_empty_directory(tree: &dyn FileTree) {
    let root = attributes(tree, Inode::ROOT);
    assert_eq!((root.inode, root.kind, root.names), (Inode::ROOT, Kind::Directory, 2));
    assert_eq!(tree.read_directory(Inode::ROOT, None, 10), Ok(vec![]));
    assert_eq!(find(tree, Inode::ROOT, "."), Ok(Inode::ROOT));
    assert_eq!(find(tree, Inode::ROOT, ".."), Ok(Inode::ROOT));
    assert_eq!(find(tree, Inode::ROOT, "a"), Err(FileError::NotFound));
    let space = tree.space();
    assert!(space.free_sectors <= space.data_sectors);
}

fn unknown_inodes_are_not_found(tree: &dyn FileTree) {
    let known = file(tree, Inode::ROOT, "known");
    for unknown in [Inode(0), Inode(known.0 + 1000), Inode(u64::MAX)] {
        let no = FileError::NotFound;
        assert_eq!(tree.attributes(unknown), Err(no.clone()));
        assert_eq!(tree.set_attributes(unknown, &NewAttributes::default()), Err(no.clone()));
        assert_eq!(tree.lookup(unknown, b"a"), Err(no.clone()));
        assert_eq!(tree.make(unknown, b"a", &new_node(Kind::File, 0)), Err(no.clone()));
        assert_eq!(tree.link(unknown, Inode::ROOT, b"a"), Err(no.clone()));
        assert_eq!(tree.link(known, unknown, b"a"), Err(no.clone()));
        assert_eq!(tree.unlink(unknown, b"a"), Err(no.clone()));
        assert_eq!(tree.remove_directory(unknown, b"a"), Err(no.clone()));
        assert_eq!(tree.rename((unknown, b"a"), (Inode::ROOT, b"b"), RenameMode::Replace), Err(no.clone()));
        assert_eq!(tree.rename((Inode::ROOT, b"known"), (unknown, b"b"), RenameMode::Replace), Err(no.clone()));
        assert_eq!(tree.read_link(unknown), Err(no.clone()));
        assert_eq!(tree.read_directory(unknown, None, 1), Err(no.clone()));
        assert_eq!(tree.open(unknown), Err(no.clone()));
        tree.release(unknown);
        assert_eq!(tree.read(unknown, 0, &mut [0]), Err(no.clone()));
        assert_eq!(tree.read_bytes(unknown, 0, 1), Err(no.clone()));
        assert_eq!(tree.write(unknown, 0, &[0]), Err(no.clone()));
        assert_eq!(tree.allocate(unknown, 0, 1, false), Err(no.clone()));
        assert_eq!(tree.punch(unknown, 0, 1), Err(no.clone()));
        assert_eq!(tree.seek(unknown, 0, Seek::Data), Err(no.clone()));
        assert_eq!(tree.sync(unknown), Err(no.clone()));
        assert_eq!(tree.attribute(unknown, b"user.a"), Err(no.clone()));
        assert_eq!(tree.attribute_names(unknown), Err(no.clone()));
        assert_eq!(tree.set_attribute(unknown, b"user.a", b"", None), Err(no.clone()));
        assert_eq!(tree.remove_attribute(unknown, b"user.a"), Err(no));
    }
}

fn an_open_node_outlives_its_names(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    let bytes = pattern(1, 3 * SECTOR_BYTES + 5);
    write(tree, leaf, 0, &bytes);
    tree.open(leaf).expect("it is there");
    tree.open(leaf).expect("it is there");
    let before = attributes(tree, leaf).changed;
    tree.unlink(Inode::ROOT, b"leaf").expect("it has the name");
    let unlinked = attributes(tree, leaf);
    assert_eq!(unlinked.names, 0);
    assert!(unlinked.changed > before);
    assert_eq!(tree.link(leaf, Inode::ROOT, b"again"), Err(FileError::NotFound));
    tree.release(leaf);
    assert_eq!(content(tree, leaf), bytes);
    write(tree, leaf, 1, b"more");
    assert_eq!(tree.sync(leaf), Ok(()));
    assert_eq!(content(tree, leaf)[..5], [bytes[0], b'm', b'o', b'r', b'e']);
    tree.release(leaf);
    assert_eq!(tree.attributes(leaf), Err(FileError::NotFound));

    // The same when it is replaced; one that has a name again outlives its release.
    let [old, new] = ["old", "new"].map(|name| file(tree, Inode::ROOT, name));
    write(tree, old, 0, b"old");
    [old, new].into_iter().for_each(|inode| tree.open(inode).expect("it is there"));
    tree.rename((Inode::ROOT, b"new"), (Inode::ROOT, b"old"), RenameMode::Replace).expect("both are files");
    assert_eq!(content(tree, old), b"old");
    [old, new].into_iter().for_each(|inode| tree.release(inode));
    assert_eq!(tree.attributes(old), Err(FileError::NotFound));
    assert_eq!(find(tree, Inode::ROOT, "old"), Ok(new));
}

fn synced_nodes_must_be_there(tree: &dyn FileTree) {
    let folder = directory(tree, Inode::ROOT, "folder");
    let leaf = file(tree, folder, "leaf");
    assert_eq!((tree.sync(leaf), tree.sync(folder), tree.sync(Inode::ROOT)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(tree.sync_all(), Ok(()));
}

// A test may have threads; what it tests is that a tree takes them.
#[expect(clippy::disallowed_methods, reason = "calls from several threads are what is tested")]
fn threads_do_not_disturb_each_other(tree: Arc<dyn FileTree>) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let tree = &*tree;
            scope.spawn(move || {
                let own = directory(tree, Inode::ROOT, &format!("d{thread}"));
                for round in 0..20u8 {
                    let leaf = file(tree, own, &format!("f{round}"));
                    let bytes = pattern(thread.wrapping_mul(50) ^ round, 10_000 + usize::from(round));
                    write(tree, leaf, 0, &bytes);
                    // All threads fight for one name; who loses is told so.
                    let shared =
                        tree.rename((own, format!("f{round}").as_bytes()), (Inode::ROOT, b"x"), RenameMode::Keep);
                    assert_eq!(content(tree, leaf), bytes);
                    match shared {
                        Ok(()) => {
                            tree.rename((Inode::ROOT, b"x"), (own, b"back"), RenameMode::Replace).expect("it is ours")
                        }
                        Err(error) => assert_eq!(error, FileError::Exists),
                    }
                }
            });
        }
    });
    assert_eq!(attributes(&*tree, Inode::ROOT).names, 6);
    assert_eq!(find(&*tree, Inode::ROOT, "x"), Err(FileError::NotFound));
}
