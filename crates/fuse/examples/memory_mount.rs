//! Mounts a tree in memory, for tests of the mount without a disk: `cargo run --example memory_mount -- DIR [writeback]`.
//! Standard output says `ready`; when standard input ends, it unmounts.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use claystone_files::testing::MemoryTree;
use claystone_fuse::{Mount, MountOptions};
use claystone_host::HostClock;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: memory_mount DIR [writeback] [threads=N]")?);
    let mut options = MountOptions { source: "memory".to_owned(), ..MountOptions::default() };
    for argument in arguments {
        let argument = argument.to_string_lossy();
        match argument.strip_prefix("threads=") {
            Some(threads) => options.threads = threads.parse()?,
            None if argument == "writeback" => options.writeback = true,
            None => return Err(format!("there is no option {argument}").into()),
        }
    }
    // 16 GiB, which are taken as they are written.
    let tree = Arc::new(MemoryTree::new(Arc::new(HostClock::start()), 1 << 22));
    let mut mount = Mount::start(tree, &directory, &options)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount()?;
    Ok(())
}
