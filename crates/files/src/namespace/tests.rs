//! Planners of names over a catalog in memory; whatever a plan does, the names are right after it.

mod cases;
mod random;
mod wrong;

use redb::backends::InMemoryBackend;

use super::*;
use crate::catalog::Catalog;
use crate::{NewNode, RenameMode};

/// A catalog with a root, and a clock that each plan moves by a second.
struct Names {
    catalog: Catalog,
    seconds: i64,
    open: Vec<Inode>,
}

impl Names {
    fn new() -> Names {
        let catalog = Catalog::open(InMemoryBackend::new(), 1 << 20).expect("memory opens");
        let mut names = Names { catalog, seconds: 0, open: Vec::new() };
        names.plan(|view, _, now| make_root(view, &node(Kind::Directory), now));
        names
    }

    /// Makes a plan and applies it, unless it fails; either way the names are right then.
    fn plan<T: Outcome>(&mut self, planner: impl FnOnce(&mut View<'_>, &dyn Fn(Inode) -> bool, Timestamp) -> T) -> T {
        self.seconds += 1;
        let mut view = View::new(&self.catalog);
        let outcome = planner(&mut view, &|inode| self.open.contains(&inode), at(self.seconds));
        if outcome.is_done() {
            let changes = view.into_changes();
            self.catalog.apply(changes);
        }
        let problems = check_names(&self.view()).expect("memory reads");
        assert!(problems.is_empty(), "{problems:?}");
        outcome
    }

    fn view(&self) -> View<'_> {
        View::new(&self.catalog)
    }

    fn make(&mut self, kind: Kind, directory: Inode, name: &str) -> Inode {
        let made = self.plan(|view, _, now| make(view, directory, name.as_bytes(), &node(kind), now));
        made.expect("the name is free").0
    }

    fn rename(&mut self, from: (Inode, &str), to: (Inode, &str), mode: RenameMode) -> Result<Option<Gone>, FileError> {
        self.plan(|view, open, now| rename(view, (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), mode, open, now))
    }

    fn unlink(&mut self, directory: Inode, name: &str) -> Result<Option<Gone>, FileError> {
        self.plan(|view, open, now| unlink(view, directory, name.as_bytes(), open, now))
    }

    fn remove_directory(&mut self, directory: Inode, name: &str) -> Result<Option<Gone>, FileError> {
        self.plan(|view, open, now| remove_directory(view, directory, name.as_bytes(), open, now))
    }

    fn find(&self, directory: Inode, name: &str) -> Result<Inode, FileError> {
        lookup(&self.view(), directory, name.as_bytes()).map(|(inode, _)| inode)
    }

    fn record(&self, inode: Inode) -> InodeRecord {
        self.view().inode(inode).expect("it is there")
    }
}

/// Whether a plan counts.
trait Outcome {
    fn is_done(&self) -> bool;
}

impl<T> Outcome for Result<T, FileError> {
    fn is_done(&self) -> bool {
        self.is_ok()
    }
}

impl Outcome for () {
    fn is_done(&self) -> bool {
        true
    }
}

fn node(kind: Kind) -> NewNode {
    let target = if kind == Kind::Link { b"target".to_vec() } else { Vec::new() };
    NewNode { kind, permissions: 0o755, owner: 10, owner_group: 20, device: 7, target }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}
