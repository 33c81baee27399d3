//! Programs' calls on a mounted tree, and how mounts begin and end. Without /dev/fuse or root, nothing is tested.
#![expect(clippy::disallowed_methods, reason = "what programs do with a mount is what is tested")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use claystone_files::testing::{MemoryTree, new_node};
use claystone_files::{FileTree, Inode, Kind};
use claystone_fuse::{DESCRIPTION_ATTRIBUTE, Description, Mount, MountError, MountOptions};
use claystone_host::HostClock;
use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};

/// A mounted tree in memory, or nothing where nobody can mount.
fn mounted(options: &MountOptions) -> Option<(tempfile::TempDir, Mount, Arc<MemoryTree>)> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: mounting needs root and /dev/fuse");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory for tests");
    let tree = Arc::new(MemoryTree::new(Arc::new(HostClock::start()), 1 << 16));
    let mount = Mount::start(tree.clone(), directory.path(), options).expect("root mounts at an empty directory");
    Some((directory, mount, tree))
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&result.expect_err("it is refused")).expect("the kernel refused it")
}

#[test]
fn files_are_written_read_and_cut() {
    for writeback in [false, true] {
        let Some((directory, mut mount, tree)) = mounted(&MountOptions { writeback, ..MountOptions::default() }) else {
            return;
        };
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at % 251) as u8).collect();
        fs::write(&path, &bytes).expect("there is space");
        assert!(fs::read(&path).expect("it is there") == bytes);
        let mut file = OpenOptions::new().read(true).append(true).open(&path).expect("it is there");
        file.write_all(b"end").expect("there is space");
        file.seek(SeekFrom::Start(2_999_999)).expect("files have offsets");
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).expect("it is there");
        assert_eq!(rest, [&bytes[2_999_999..], b"end"].concat());
        file.set_len(10).expect("files can be cut");
        file.set_len(20).expect("files can grow");
        assert_eq!(fs::read(&path).expect("it is there"), [&bytes[..10], &[0; 10]].concat());
        file.sync_all().expect("it can be synced");
        assert_eq!(tree.lookup(Inode::ROOT, b"file").expect("made").bytes, 20);
        drop(file);
        mount.unmount().expect("nobody uses it");
        assert!(!path.exists(), "what was there before is back");
    }
}

#[test]
fn the_root_tells_what_is_mounted_and_no_list_shows_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let description = Description::new({
        let asked = asked.clone();
        move || format!("asked {}", asked.fetch_add(1, Ordering::Relaxed)).into_bytes()
    });
    let options = MountOptions { description: Some(description), ..MountOptions::default() };
    let Some((directory, _mount, _)) = mounted(&options) else { return };
    let attribute = |path: &Path| {
        let mut bytes = [0; 100];
        let told = rustix::fs::getxattr(path, DESCRIPTION_ATTRIBUTE, &mut bytes[..])?;
        Ok(String::from_utf8_lossy(&bytes[..told]).into_owned())
    };
    assert_eq!(attribute(directory.path()), Ok("asked 0".to_owned()));
    assert_eq!(attribute(directory.path()), Ok("asked 1".to_owned()), "anew each time");
    let mut names = [0; 100];
    assert_eq!(rustix::fs::listxattr(directory.path(), &mut names[..]), Ok(0));
    let file = directory.path().join("file");
    fs::write(&file, b"x").expect("there is space");
    assert_eq!(attribute(&file), Err(rustix::io::Errno::NODATA));
}

#[test]
fn holes_are_made_found_and_counted() {
    let Some((directory, _mount, _)) = mounted(&MountOptions::default()) else { return };
    let options = || OpenOptions::new().read(true).write(true).create(true).clone();
    let file = options().open(directory.path().join("file")).expect("made");
    file.write_all_at(&[7; 1 << 20], 0).expect("there is space");
    let change = |mode, offset, bytes| rustix::fs::fallocate(&file, mode, offset, bytes);
    change(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).expect("files can be punched");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(5000)), Ok(12_288));
    let mut read = [1; 3];
    file.read_exact_at(&mut read, 12_287).expect("it is there");
    assert_eq!(read, [0, 7, 7], "the kernel's pages know the hole");
    let metadata = file.metadata().expect("it is there");
    assert_eq!((metadata.blocks() * 512, metadata.len()), ((1 << 20) - 8192, 1 << 20));
    change(FallocateFlags::ZERO_RANGE, (1 << 20) - 10, 5000).expect("files can be zeroed");
    assert_eq!(file.metadata().expect("it is there").len(), (1 << 20) + 4990);
    change(FallocateFlags::KEEP_SIZE, 0, 4 << 20).expect("there is space");
    assert_eq!(file.metadata().expect("it is there").len(), (1 << 20) + 4990);
    assert_eq!(change(FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(rustix::io::Errno::OPNOTSUPP));
    let space = rustix::fs::statvfs(directory.path()).expect("it is mounted");
    assert_eq!((space.f_blocks, space.f_bsize, space.f_namemax), (1 << 16, 4096, 255));
    assert_eq!(space.f_blocks - space.f_bfree, 1024);
    assert_eq!(errno(file.write_all_at(&[1; 1 << 20], 1 << 62)), rustix::io::Errno::FBIG);
    assert_eq!(change(FallocateFlags::empty(), 0, 1 << 30), Err(rustix::io::Errno::NOSPC));
}

#[test]
fn what_there_is_no_space_to_zero_stays() {
    let Some((directory, _mount, _)) = mounted(&MountOptions::default()) else { return };
    let options = || OpenOptions::new().read(true).write(true).create(true).clone();
    let file = options().open(directory.path().join("file")).expect("made");
    file.write_all_at(&[7; 1 << 20], 0).expect("there is space");
    let zero = |bytes| rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, bytes);
    assert_eq!(zero(1 << 30), Err(rustix::io::Errno::NOSPC));
    let read = || fs::read(directory.path().join("file")).expect("it is there");
    assert!(read() == [7; 1 << 20]);
    zero(1 << 20).expect("it has its space");
    assert!(read() == [0; 1 << 20]);
}

#[test]
fn names_links_and_nodes_behave() {
    let Some((directory, mut mount, tree)) = mounted(&MountOptions::default()) else { return };
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("d")).expect("the name is free");
    fs::write(at("d/one"), b"one").expect("there is space");
    fs::hard_link(at("d/one"), at("two")).expect("the name is free");
    assert_eq!(fs::metadata(at("two")).expect("linked").nlink(), 2);
    symlink("d/one", at("link")).expect("the name is free");
    assert_eq!(fs::read_link(at("link")).expect("a link"), Path::new("d/one"));
    assert_eq!(fs::read(at("link")).expect("it leads there"), b"one");
    assert_eq!(fs::metadata(directory.path()).expect("mounted").nlink(), 3);
    fs::rename(at("d"), at("e")).expect("the name is free");
    assert!(!at("d").exists() && at("e/one").exists());
    assert_eq!(errno(fs::rename(at("e"), at("e/f"))), rustix::io::Errno::INVAL);
    fs::write(at("three"), b"three").expect("there is space");
    let cwd = rustix::fs::CWD;
    let rename = |flags| rustix::fs::renameat_with(cwd, at("two"), cwd, at("three"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).expect("both are there");
    assert_eq!(fs::read(at("two")).expect("exchanged"), b"three");
    // Gone, and still open.
    let mut open = File::open(at("two")).expect("it is there");
    fs::remove_file(at("two")).expect("it is there");
    assert_eq!(open.metadata().expect("it is open").nlink(), 0);
    let mut rest = String::new();
    open.read_to_string(&mut rest).expect("it is open");
    assert_eq!((rest.as_str(), tree.space().inodes), ("three", 5));
    assert!(matches!(mount.unmount(), Err(MountError::InUse { .. })));
    assert_eq!(fs::read(at("three")).expect("still served"), b"one");
    drop(open);
    mount.unmount().expect("nobody uses it");
    assert_eq!(tree.space().inodes, 4, "the kernel's last hold is gone with the mount");
}

#[test]
fn attributes_are_set_and_seen() {
    let Some((directory, _mount, _)) = mounted(&MountOptions::default()) else { return };
    let path = directory.path().join("file");
    fs::write(&path, b"x").expect("there is space");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("root may");
    std::os::unix::fs::chown(&path, Some(5), Some(6)).expect("root may");
    let metadata = fs::metadata(&path).expect("it is there");
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o755, 5, 6));
    let time = rustix::fs::Timespec { tv_sec: -2, tv_nsec: 250_000_000 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).expect("root may");
    let metadata = fs::metadata(&path).expect("it is there");
    assert_eq!((metadata.mtime(), metadata.mtime_nsec(), metadata.atime()), (-2, 250_000_000, -2));
    let get = |name: &str| {
        let mut value = vec![0; 100];
        rustix::fs::getxattr(&path, name, &mut value).map(|count| value[..count].to_vec())
    };
    rustix::fs::setxattr(&path, "user.a", b"1", XattrFlags::CREATE).expect("it is new");
    assert_eq!(rustix::fs::setxattr(&path, "user.a", b"2", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
    assert_eq!((get("user.a"), get("user.b")), (Ok(b"1".to_vec()), Err(rustix::io::Errno::NODATA)));
    let mut names = [0; 100];
    assert_eq!(rustix::fs::listxattr(&path, &mut names), Ok(7));
    assert_eq!(&names[..7], b"user.a\0");
    rustix::fs::removexattr(&path, "user.a").expect("it is there");
    assert_eq!(get("user.a"), Err(rustix::io::Errno::NODATA));
    // A list that lets user 5 do all, which nobody would check: it is refused.
    let entries = [(1u16, 6u16, u32::MAX), (2, 7, 5), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 4, u32::MAX)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    let set = rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty());
    assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
}

#[test]
fn large_directories_are_listed_whole() {
    let Some((directory, _mount, _)) = mounted(&MountOptions::default()) else { return };
    let names: Vec<String> = (0..3000).map(|number| format!("{number:040}")).collect();
    names.iter().for_each(|name| fs::write(directory.path().join(name), b"x").expect("there is space"));
    let list = || {
        let entries = fs::read_dir(directory.path()).expect("it is mounted");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("a row").file_name().into_string())
            .map(Result::unwrap_or_default)
            .collect();
        names.sort();
        names
    };
    assert_eq!(list(), names);
    // Removing while reading meets every name once.
    for entry in fs::read_dir(directory.path()).expect("it is mounted") {
        fs::remove_file(entry.expect("a row").path()).expect("it was listed");
    }
    assert!(list().is_empty());
}

/// What was read of a directory ahead is not what its names are now.
#[test]
fn a_list_brings_back_nothing_that_had_a_name_before() {
    let Some((directory, _mount, tree)) = mounted(&MountOptions::default()) else { return };
    let name = |number: u32| format!("{number:04}");
    for number in 0..500 {
        tree.make(Inode::ROOT, name(number).as_bytes(), &new_node(Kind::File, 0o600)).expect("the name is free");
    }
    let at = |name: &str| directory.path().join(name);
    let mut rows = fs::read_dir(directory.path()).expect("it is mounted");
    rows.next().expect("500 rows").expect("a row");
    fs::write(at("0499"), b"old").expect("there is space");
    fs::rename(at("0499"), at("elsewhere")).expect("the name is free");
    fs::write(at("0499"), b"new").expect("there is space");
    for (seen, _) in rows.enumerate() {
        // That names are looked up has the kernel ask for what is behind them.
        let _ = fs::metadata(at(&format!("0{:03}", 100 + seen % 398)));
    }
    assert_eq!(fs::read(at("0499")).expect("it is there"), b"new");
    assert_eq!(fs::read(at("elsewhere")).expect("it is there"), b"old");
}

/// What only the kernel has yet is found as data.
#[test]
fn what_is_held_back_is_no_hole() {
    let Some((directory, _mount, _)) = mounted(&MountOptions { writeback: true, ..MountOptions::default() }) else {
        return;
    };
    let file = File::create(directory.path().join("file")).expect("made");
    file.write_all_at(&[1; 4096], 1 << 20).expect("there is space");
    file.sync_all().expect("it can be synced");
    file.write_all_at(&[1; 4096], 8192).expect("there is space");
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).expect("there is data");
    assert!(data <= 8192, "{data}");
}

#[test]
fn synchronous_writes_reach_the_tree() {
    let Some((directory, _mount, tree)) = mounted(&MountOptions { writeback: true, ..MountOptions::default() }) else {
        return;
    };
    let path = directory.path().join("file");
    let bytes = || tree.lookup(Inode::ROOT, b"file").expect("made").bytes;
    let mut file = File::create(&path).expect("made");
    file.write_all(&[1; 100]).expect("there is space");
    assert_eq!(bytes(), 0, "the kernel holds it back");
    file.sync_data().expect("it can be synced");
    assert_eq!(bytes(), 100);
    let dsync = rustix::fs::OFlags::DSYNC.bits() as i32;
    let mut file = OpenOptions::new().append(true).custom_flags(dsync).open(&path).expect("made");
    file.write_all(&[1; 50]).expect("there is space");
    assert_eq!(bytes(), 150);
}

#[test]
fn wrong_directories_are_named() {
    let Some((directory, mut mount, tree)) = mounted(&MountOptions::default()) else { return };
    let start = |path: &Path| Mount::start(tree.clone(), path, &MountOptions::default()).map(|_| ());
    assert!(matches!(start(directory.path()), Err(MountError::Taken { .. })));
    assert!(matches!(start(Path::new("/nowhere/at/all")), Err(MountError::Missing { .. })));
    fs::write(directory.path().join("file"), b"").expect("there is space");
    assert!(matches!(start(&directory.path().join("file")), Err(MountError::NotDirectory { .. })));
    mount.unmount().expect("nobody uses it");
    mount.unmount().expect("an ended mount stays so");
}

#[test]
fn a_mount_ends_from_outside_by_dropping_and_read_only_takes_nothing() {
    let options = MountOptions { read_only: true, nosuid: true, nodev: true, noexec: true, ..MountOptions::default() };
    let Some((directory, mut mount, tree)) = mounted(&options) else { return };
    let path = directory.path().join("file");
    let how = || {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("Linux says what is mounted");
        let at = format!(" {} ", directory.path().display());
        mounts.lines().find(|line| line.contains(&at)).expect("it is mounted").to_owned()
    };
    assert!(how().contains(" fuse.claystone ro,nosuid,nodev,noexec,"), "{}", how());
    assert_eq!(errno(fs::write(&path, b"x")), rustix::io::Errno::ROFS);
    let ended = mount.ended().expect("the first call");
    rustix::mount::unmount(directory.path(), rustix::mount::UnmountFlags::empty()).expect("root may");
    futures::executor::block_on(ended);
    mount.unmount().expect("it has ended");
    drop(mount);
    let mount = Mount::start(tree.clone(), directory.path(), &MountOptions::default()).expect("it is free again");
    assert!(how().starts_with("claystone ") && how().contains(" fuse.claystone rw,relatime,"), "{}", how());
    fs::write(&path, b"x").expect("there is space");
    // In use while it is dropped: gone from the directory all the same, and nothing is lost.
    let mut open = OpenOptions::new().write(true).open(&path).expect("it is there");
    open.write_all(b"more").expect("there is space");
    drop(mount);
    assert!(!path.exists());
    open.write_all(b"!").expect("who has it open is served");
    drop(open);
    let mut content = [0; 9];
    let file = tree.lookup(Inode::ROOT, b"file").expect("made");
    assert_eq!(tree.read(file.inode, 0, &mut content), Ok(5));
    assert_eq!(&content[..5], b"more!");
}
