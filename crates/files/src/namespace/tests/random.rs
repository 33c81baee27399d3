//! Random calls as plans and on the reference tree, most of them over the same few nodes and names: all is alike.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::testing::{MemoryTree, SteppingClock};
use crate::{FileTree, NewAttributes};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// More inodes than any case makes.
const INODES_MAX: u64 = 130;

#[derive(Debug, Clone)]
enum Step {
    Make(Kind, u64, &'static str),
    Link(u64, u64, &'static str),
    Unlink(u64, &'static str),
    RemoveDirectory(u64, &'static str),
    Rename((u64, &'static str), (u64, &'static str), RenameMode),
    SetPermissions(u64, u16),
    SetAttribute(u64, &'static str, Option<bool>),
    RemoveAttribute(u64, &'static str),
    Open(u64),
    Release(u64),
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    // Low inodes are the ones that are likely there: the more of them are directories, the more happens.
    let inode = || prop_oneof![2 => Just(1_u64), 5 => 1..12_u64, 1 => 0..40_u64];
    let name = || prop::sample::select(&NAMES[..]);
    let kind = prop::sample::select(&[Kind::Directory, Kind::Directory, Kind::Directory, Kind::File, Kind::Link][..]);
    let mode = prop::sample::select(&[RenameMode::Replace, RenameMode::Keep, RenameMode::Exchange][..]);
    prop_oneof![
        8 => (kind, inode(), name()).prop_map(|(kind, inode, name)| Step::Make(kind, inode, name)),
        2 => (inode(), inode(), name()).prop_map(|(of, inode, name)| Step::Link(of, inode, name)),
        3 => (inode(), name()).prop_map(|(inode, name)| Step::Unlink(inode, name)),
        3 => (inode(), name()).prop_map(|(inode, name)| Step::RemoveDirectory(inode, name)),
        12 => ((inode(), name()), (inode(), name()), mode).prop_map(|(from, to, mode)| Step::Rename(from, to, mode)),
        1 => (inode(), 0..0o10000_u16).prop_map(|(inode, permissions)| Step::SetPermissions(inode, permissions)),
        2 => (inode(), name(), any::<Option<bool>>()).prop_map(|(inode, name, there)| Step::SetAttribute(inode, name, there)),
        1 => (inode(), name()).prop_map(|(inode, name)| Step::RemoveAttribute(inode, name)),
        2 => inode().prop_map(Step::Open),
        1 => inode().prop_map(Step::Release),
        1 => Just(Step::Checkpoint),
    ]
}

/// The plans, and the reference beside them. Both give out the same inodes.
struct Pair {
    names: Names,
    tree: MemoryTree,
}

impl Pair {
    fn new() -> Pair {
        let tree = MemoryTree::new(Arc::new(SteppingClock::default()), 1 << 20);
        let owners = NewAttributes { owner: Some(10), owner_group: Some(20), ..NewAttributes::default() };
        tree.set_attributes(Inode::ROOT, &owners).expect("the root is there");
        Pair { names: Names::new(), tree }
    }

    /// What a step gives, of both. `Names::plan` checks the names after each.
    fn take(&mut self, step: Step) -> (Result<(), FileError>, Result<(), FileError>) {
        let Pair { names, tree } = self;
        match step {
            Step::Make(kind, inode, name) => {
                let (inode, name) = (Inode(inode), name.as_bytes());
                let made = names.plan(|view, _, now| make(view, inode, name, &node(kind), now));
                (made.map(drop), tree.make(inode, name, &node(kind)).map(drop))
            }
            Step::Link(of, inode, name) => {
                let (of, inode, name) = (Inode(of), Inode(inode), name.as_bytes());
                let linked = names.plan(|view, _, now| link(view, of, inode, name, now));
                (linked.map(drop), tree.link(of, inode, name).map(drop))
            }
            Step::Unlink(inode, name) => {
                (names.unlink(Inode(inode), name).map(drop), tree.unlink(Inode(inode), name.as_bytes()))
            }
            Step::RemoveDirectory(inode, name) => {
                let removed = names.remove_directory(Inode(inode), name);
                (removed.map(drop), tree.remove_directory(Inode(inode), name.as_bytes()))
            }
            Step::Rename(from, to, mode) => {
                let (from, to) = ((Inode(from.0), from.1), (Inode(to.0), to.1));
                let moved = names.rename(from, to, mode);
                (moved.map(drop), tree.rename((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), mode))
            }
            Step::SetPermissions(inode, permissions) => {
                let new = NewAttributes { permissions: Some(permissions), ..NewAttributes::default() };
                let set = names.plan(|view, _, now| set_attributes(view, Inode(inode), &new, now));
                (set.map(drop), tree.set_attributes(Inode(inode), &new).map(drop))
            }
            Step::SetAttribute(inode, name, there) => {
                let (inode, name) = (Inode(inode), name.as_bytes());
                let set = names.plan(|view, _, now| set_attribute(view, inode, name, name, there, now));
                (set, tree.set_attribute(inode, name, name, there))
            }
            Step::RemoveAttribute(inode, name) => {
                let (inode, name) = (Inode(inode), name.as_bytes());
                let removed = names.plan(|view, _, now| remove_attribute(view, inode, name, now));
                (removed, tree.remove_attribute(inode, name))
            }
            Step::Open(inode) => {
                let there = tree.open(Inode(inode));
                names.open.extend(there.is_ok().then_some(Inode(inode)));
                (there.clone(), there)
            }
            Step::Release(inode) => {
                if let Some(at) = names.open.iter().position(|open| open.0 == inode) {
                    names.open.remove(at);
                    tree.release(Inode(inode));
                    if !names.open.contains(&Inode(inode)) {
                        // It is an orphan or has a name.
                        let _ = names.plan(|view, _, _| forget_orphan(view, Inode(inode)));
                    }
                }
                (Ok(()), Ok(()))
            }
            Step::Checkpoint => {
                names.catalog.checkpoint(&[]).expect("memory takes writes");
                (Ok(()), Ok(()))
            }
        }
    }

    fn compare(&self) {
        let view = self.names.view();
        for inode in (0..INODES_MAX).map(Inode) {
            let planned = view.inode(inode).map(|record| record.attributes(inode, 0));
            let reference = self.tree.attributes(inode);
            let plain = |found: Result<crate::Attributes, FileError>| {
                let time = at(0);
                found.map(|found| crate::Attributes {
                    accessed: time,
                    modified: time,
                    changed: time,
                    made: time,
                    ..found
                })
            };
            assert_eq!(plain(planned), plain(reference));
            assert_eq!(read_link(&view, inode), self.tree.read_link(inode));
            assert_eq!(read_directory(&view, inode, None, 9), self.tree.read_directory(inode, None, 9));
            assert_eq!(attribute_names(&view, inode), self.tree.attribute_names(inode));
            assert_eq!(attribute(&view, inode, b"a"), self.tree.attribute(inode, b"a"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn plans_do_what_the_reference_does(steps in prop::collection::vec(step(), 1..INODES_MAX as usize - 5)) {
        let mut pair = Pair::new();
        for step in steps {
            let shown = format!("{step:?}");
            let (planned, reference) = pair.take(step);
            prop_assert_eq!(planned, reference, "{}", shown);
        }
        pair.compare();
    }
}
