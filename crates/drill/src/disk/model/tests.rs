//! The model agrees with the reference tree, and refuses what no crash may leave.

use std::sync::Arc;

use claystone_env::SECTOR_BYTES;
use claystone_files::testing::{MemoryTree, SteppingClock, new_node};

use super::*;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// A tree and its model with one file "f".
fn with_file() -> (MemoryTree, Model, Inode) {
    let tree = MemoryTree::new(Arc::new(SteppingClock::default()), 1 << 20);
    let mut model = Model::new();
    let inode = tree.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o644)).expect("the name is free").inode;
    model.change(made(b"f", Some(inode)));
    (tree, model, inode)
}

fn made(name: &[u8], inode: Option<Inode>) -> ShapeChange {
    let (directory, name) = (Inode::ROOT, name.to_vec());
    ShapeChange::Make { directory, name, inode, kind: Kind::File, permissions: 0o644, target: Vec::new() }
}

fn write(tree: &MemoryTree, model: &mut Model, inode: Inode, offset: u64, bytes: &[u8]) {
    tree.write(inode, offset, bytes).expect("memory takes it");
    model.content_mut(inode).write(offset, bytes);
}

#[test]
fn unpromised_calls_happened_in_their_order_or_not() {
    let (tree, mut model, inode) = with_file();
    tree.unlink(Inode::ROOT, b"f").expect("it is there");
    let removed = ShapeChange::Remove { directory: Inode::ROOT, name: b"f".to_vec() };
    model.change(removed);
    assert_eq!(model.states(), 3);
    // The crash undid the removal, or came before both; but it cannot have kept only what came later.
    let (again, _, _) = with_file();
    model.recover(&again).expect("as before the removal");
    assert!(model.shape().has(inode));
    assert_eq!(model.states(), 1);
    let error = model.recover(&tree).expect_err("what was found once stays");
    assert!(error.to_string().contains("names are as after none of 1 calls"), "{error}");
}

#[test]
fn what_was_synced_is_promised_with_all_before_it() {
    let (_, mut model, inode) = with_file();
    model.synced(inode);
    let empty = MemoryTree::new(Arc::new(SteppingClock::default()), 1 << 20);
    assert!(model.recover(&empty).is_err());
    let (_, mut model, _) = with_file();
    model.synced(Inode::ROOT);
    assert!(model.recover(&empty).is_err());
    let (_, mut model, _) = with_file();
    assert!(model.recover(&empty).is_ok());
}

#[test]
fn a_node_that_a_failed_call_made_is_learned() {
    let (tree, _, inode) = with_file();
    let mut model = Model::new();
    model.change(made(b"f", None));
    model.recover(&tree).expect("the call happened");
    assert!(model.shape().has(inode));
    model.verify(&tree).expect("and it is empty");
}

#[test]
fn each_sector_is_one_of_its_versions() {
    let (tree, mut model, inode) = with_file();
    write(&tree, &mut model, inode, 0, &[1; 3 * SECTOR_BYTES]);
    model.synced(inode);
    write(&tree, &mut model, inode, SECTOR, &[2; 2 * SECTOR_BYTES]);
    model.verify(&tree).expect("it is as it was written");
    // One sector survived, the other did not.
    tree.write(inode, 2 * SECTOR, &[1; SECTOR_BYTES]).expect("memory takes it");
    assert!(model.verify(&tree).is_err());
    model.recover(&tree).expect("each sector by itself");
    model.verify(&tree).expect("what was found is there");
    // A torn sector is none.
    write(&tree, &mut model, inode, 0, &[3; SECTOR_BYTES]);
    tree.write(inode, 0, &[1; 512]).expect("memory takes it");
    let error = format!("{:#}", model.recover(&tree).expect_err("it is torn"));
    assert!(error.contains("sector 0 is none of its 2 versions: they differ at bytes [512, 0]"), "{error}");
}

#[test]
fn cut_bytes_are_zeros_and_sizes_are_those_that_were() {
    let (tree, mut model, inode) = with_file();
    write(&tree, &mut model, inode, 100, &[1; 2 * SECTOR_BYTES]);
    model.synced_all();
    let cut = |bytes| claystone_files::NewAttributes { bytes: Some(bytes), ..Default::default() };
    for bytes in [50, 3 * SECTOR, SECTOR + 7, 2 * SECTOR] {
        tree.set_attributes(inode, &cut(bytes)).expect("memory takes it");
        model.content_mut(inode).cut(bytes);
        model.verify(&tree).expect("zeros");
    }
    write(&tree, &mut model, inode, 0, &[2; 2 * SECTOR_BYTES]);
    tree.punch(inode, 10, SECTOR).expect("memory takes it");
    model.content_mut(inode).punch(10, SECTOR);
    tree.allocate(inode, 0, 5 * SECTOR, false).expect("memory takes it");
    model.content_mut(inode).grow(5 * SECTOR);
    model.verify(&tree).expect("zeros");
    tree.set_attributes(inode, &cut(SECTOR + 8)).expect("memory takes it");
    let error = format!("{:#}", model.recover(&tree).expect_err("it never was so long"));
    assert!(error.contains("it has 4104 bytes"), "{error}");
}

#[test]
fn an_open_file_without_a_name_is_verified_and_gone_after_a_crash() {
    let (tree, mut model, inode) = with_file();
    write(&tree, &mut model, inode, 0, b"open");
    tree.open(inode).expect("it is there");
    model.opened(inode);
    tree.unlink(Inode::ROOT, b"f").expect("it is there");
    model.change(ShapeChange::Remove { directory: Inode::ROOT, name: b"f".to_vec() });
    model.synced_all();
    model.verify(&tree).expect("it is still there");
    tree.write(inode, 0, b"oben").expect("memory takes it");
    assert!(model.verify(&tree).is_err());
    tree.release(inode);
    model.recover(&tree).expect("it has no name");
    model.verify(&tree).expect("nothing is open");
}
