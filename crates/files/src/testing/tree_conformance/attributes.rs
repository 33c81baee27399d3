//! What attributes, extended ones and times must do.

use super::{attributes, cut, directory, file, find, new_node, pattern, write};
use crate::{Attributes, FileError, FileTree, Inode, Kind, NewAttributes, NewNode, RenameMode, Setting, Timestamp};

pub(super) fn attributes_are_set_one_by_one(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    let time = |seconds| Timestamp { seconds, nanoseconds: 123_456_789 };
    let nothing = NewAttributes::default;
    type Change = fn(&mut Attributes);
    let changes: [(NewAttributes, Change); 8] = [
        (NewAttributes { permissions: Some(0o4711), ..nothing() }, |a| a.permissions = 0o4711),
        (NewAttributes { owner: Some(u32::MAX - 1), ..nothing() }, |a| a.owner = u32::MAX - 1),
        (NewAttributes { owner_group: Some(77), ..nothing() }, |a| a.owner_group = 77),
        (NewAttributes { accessed: Some(Setting::At(time(5))), ..nothing() }, |a| a.accessed.seconds = 5),
        (NewAttributes { modified: Some(Setting::At(time(-9))), ..nothing() }, |a| a.modified.seconds = -9),
        (NewAttributes { made: Some(time(1 << 33)), ..nothing() }, |a| a.made.seconds = 1 << 33),
        (NewAttributes { changed: Some(time(3)), ..nothing() }, |a| a.changed.seconds = 3),
        (nothing(), |_| {}),
    ];
    let times = [Some(Setting::At(time(0))); 2];
    let plain = NewAttributes { accessed: times[0], modified: times[1], made: Some(time(0)), ..nothing() };
    let mut expected = tree.set_attributes(leaf, &plain).expect("it is there");
    for (new, change) in changes {
        let set = tree.set_attributes(leaf, &new).expect("it is there");
        change(&mut expected);
        if new.changed.is_some() {
            expected.changed.nanoseconds = 123_456_789;
        } else {
            assert!(set.changed > expected.changed, "changed is now");
            expected.changed = set.changed;
        }
        assert_eq!(set, expected, "{new:?}");
        assert_eq!(attributes(tree, leaf), expected);
    }
    let now = NewAttributes { accessed: Some(Setting::Now), modified: Some(Setting::Now), ..nothing() };
    let set = tree.set_attributes(leaf, &now).expect("it is there");
    assert!(set.accessed > expected.changed && set.modified > expected.changed);
}

/// Runs `call` and says which of `nodes` have later `modified` and `changed` times than before.
fn touched<const N: usize>(tree: &dyn FileTree, nodes: [Inode; N], call: impl FnOnce()) -> [(bool, bool); N] {
    let before = nodes.map(|inode| attributes(tree, inode));
    call();
    let mut at = 0;
    nodes.map(|inode| {
        let (old, new) = (&before[at], attributes(tree, inode));
        at += 1;
        assert!(new.modified >= old.modified && new.changed >= old.changed, "time went back");
        (new.modified > old.modified, new.changed > old.changed)
    })
}

pub(super) fn each_call_sets_its_times(tree: &dyn FileTree) {
    const BOTH: (bool, bool) = (true, true);
    const CHANGED: (bool, bool) = (false, true);
    const NONE: (bool, bool) = (false, false);
    let root = Inode::ROOT;
    let [a, b] = ["a", "b"].map(|name| directory(tree, root, name));
    let ok = |result: Result<(), FileError>| result.expect("the call is right");
    assert_eq!(touched(tree, [a, b, root], || _ = file(tree, a, "leaf")), [BOTH, NONE, NONE]);
    let leaf = find(tree, a, "leaf").expect("made");
    tree.open(leaf).expect("it is there");
    assert_eq!(touched(tree, [a, leaf], || write(tree, leaf, 0, b"bytes")), [NONE, BOTH]);
    assert_eq!(touched(tree, [leaf], || write(tree, leaf, 0, b"")), [NONE]);
    assert_eq!(touched(tree, [leaf], || cut(tree, leaf, 3)), [BOTH]);
    assert_eq!(touched(tree, [leaf], || cut(tree, leaf, 3)), [BOTH]);
    assert_eq!(touched(tree, [leaf], || ok(tree.punch(leaf, 0, 1))), [BOTH]);
    assert_eq!(touched(tree, [leaf], || ok(tree.allocate(leaf, 0, 100, false))), [BOTH]);
    let mode = NewAttributes { permissions: Some(0o600), ..NewAttributes::default() };
    assert_eq!(touched(tree, [a, leaf], || ok(tree.set_attributes(leaf, &mode).map(|_| ()))), [NONE, CHANGED]);
    assert_eq!(touched(tree, [a, leaf], || ok(tree.set_attribute(leaf, b"user.x", b"1", None))), [NONE, CHANGED]);
    assert_eq!(touched(tree, [a, leaf], || ok(tree.remove_attribute(leaf, b"user.x"))), [NONE, CHANGED]);
    assert_eq!(touched(tree, [a, b, leaf], || ok(tree.link(leaf, b, b"two").map(|_| ()))), [NONE, BOTH, CHANGED]);
    assert_eq!(touched(tree, [a, b, leaf], || ok(tree.unlink(b, b"two"))), [NONE, BOTH, CHANGED]);
    let replace = RenameMode::Replace;
    let rename = |from: (Inode, &[u8]), to: (Inode, &[u8]), mode| ok(tree.rename(from, to, mode));
    assert_eq!(touched(tree, [a, b, leaf], || rename((a, b"leaf"), (b, b"x"), replace)), [BOTH, BOTH, CHANGED]);
    let other = file(tree, a, "other");
    tree.open(other).expect("it is there");
    let exchange = RenameMode::Exchange;
    let exchanged = touched(tree, [a, b, leaf, other], || rename((a, b"other"), (b, b"x"), exchange));
    assert_eq!(exchanged, [BOTH, BOTH, CHANGED, CHANGED]);
    let replaced = touched(tree, [a, b, leaf, other], || rename((a, b"other"), (b, b"x"), replace));
    assert_eq!(replaced, [BOTH, BOTH, CHANGED, CHANGED]);
    directory(tree, a, "sub");
    assert_eq!(touched(tree, [a, root], || ok(tree.remove_directory(a, b"sub"))), [BOTH, NONE]);
    // What fails changes nothing.
    let failed = touched(tree, [a, b, leaf], || {
        assert!(tree.make(b, b"x", &new_node(Kind::File, 0)).is_err());
        assert!(tree.rename((a, b"none"), (b, b"x"), replace).is_err());
        assert!(tree.unlink(b, b"none").is_err());
    });
    assert_eq!(failed, [NONE; 3]);
}

pub(super) fn reads_set_the_time_of_access(tree: &dyn FileTree) {
    let folder = directory(tree, Inode::ROOT, "folder");
    let leaf = file(tree, folder, "leaf");
    let link = NewNode { target: b"leaf".to_vec(), ..new_node(Kind::Link, 0o777) };
    let link = tree.make(folder, b"link", &link).expect("made").inode;
    write(tree, leaf, 0, b"bytes");
    let read = |inode| match attributes(tree, inode).kind {
        Kind::Directory => _ = tree.read_directory(inode, None, 1).expect("a directory"),
        Kind::Link => _ = tree.read_link(inode).expect("a link"),
        _ => _ = tree.read(inode, 0, &mut [0; 5]).expect("a file"),
    };
    for inode in [folder, leaf, link] {
        let before = attributes(tree, inode);
        read(inode);
        let first = attributes(tree, inode);
        assert!(first.accessed > before.accessed, "{:?}", first.kind);
        assert_eq!((first.modified, first.changed), (before.modified, before.changed));
        read(inode);
        assert_eq!(attributes(tree, inode), first, "it was read since it was changed");
        let mode = NewAttributes { permissions: Some(0o700), ..NewAttributes::default() };
        tree.set_attributes(inode, &mode).expect("it is there");
        read(inode);
        assert!(attributes(tree, inode).accessed > first.accessed);
    }
}

pub(super) fn extended_attributes_are_kept(tree: &dyn FileTree) {
    let leaf = file(tree, Inode::ROOT, "leaf");
    for inode in [leaf, Inode::ROOT] {
        assert_eq!(tree.attribute(inode, b"user.a"), Err(FileError::NoAttribute));
        assert_eq!(tree.attribute_names(inode), Ok(vec![]));
        assert_eq!(tree.set_attribute(inode, b"user.a", b"1", Some(true)), Err(FileError::NoAttribute));
        assert_eq!(tree.set_attribute(inode, b"user.a", b"1", Some(false)), Ok(()));
        assert_eq!(tree.set_attribute(inode, b"user.a", b"2", Some(false)), Err(FileError::Exists));
        assert_eq!(tree.set_attribute(inode, b"user.a", b"3", Some(true)), Ok(()));
        let large = pattern(4, 65_536);
        assert_eq!(tree.set_attribute(inode, b"security.large", &large, None), Ok(()));
        assert_eq!(tree.set_attribute(inode, b"user.empty", b"", None), Ok(()));
        assert_eq!(tree.attribute(inode, b"user.a"), Ok(b"3".to_vec()));
        assert_eq!(tree.attribute(inode, b"security.large"), Ok(large));
        assert_eq!(tree.attribute(inode, b"user.empty"), Ok(vec![]));
        let names = [&b"security.large"[..], b"user.a", b"user.empty"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(tree.attribute_names(inode), Ok(names));
        let too_long = FileError::AttributeTooLong { bytes: 65_537 };
        assert_eq!(tree.set_attribute(inode, b"user.b", &[0; 65_537], None), Err(too_long));
        let name = [b'n'; 256];
        assert_eq!(tree.set_attribute(inode, &name, b"", None), Err(FileError::NameTooLong { bytes: 256 }));
        assert_eq!(tree.remove_attribute(inode, b"user.a"), Ok(()));
        assert_eq!(tree.remove_attribute(inode, b"user.a"), Err(FileError::NoAttribute));
        assert_eq!(tree.attribute(inode, b"user.a"), Err(FileError::NoAttribute));
    }
    // They go with their node.
    tree.unlink(Inode::ROOT, b"leaf").expect("it is there");
    let next = file(tree, Inode::ROOT, "leaf");
    assert_eq!(tree.attribute_names(next), Ok(vec![]));
}
