//! How much memory this process may have.
//!
//! Invariants:
//! 1. It is what the machine has, or less where a control group of this process, or one above it, is limited to less: a container, a service.

use std::fs::read_to_string;
use std::path::Path;

/// Bytes of memory of the machine, or of the tightest limit on this process.
pub fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let has = machine.totalram.saturating_mul(u64::from(machine.mem_unit));
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&groups, |group| read_to_string(Path::new("/sys/fs/cgroup").join(group).join("memory.max")).ok())
        .map_or(has, |limit| limit.min(has))
}

/// The tightest limit of the control groups of a process, by what `/proc/self/cgroup` says and what is in the file of a group's limit.
fn limit_of(groups: &str, limit: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Without a limit there is a word instead of a number, and none at the root.
    Path::new(group).ancestors().filter_map(|group| limit(group)?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_counts() {
        let limit = |group: &Path| match group.to_str()? {
            "system.slice/store.service" => Some("max\n".to_owned()),
            "system.slice" => Some("3000\n".to_owned()),
            "" => Some("5000\n".to_owned()),
            _ => None,
        };
        assert_eq!(limit_of("12:memory:/elsewhere\n0::/system.slice/store.service\n", limit), Some(3000));
        assert_eq!(limit_of("0::/\n", limit), Some(5000), "in a container the root may have one");
        assert_eq!(limit_of("0::/user.slice\n", |_| None), None);
        assert_eq!(limit_of("12:memory:/elsewhere\n", limit), None, "groups of before say nothing");
        assert_eq!(limit_of("", limit), None);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(memory_bytes() > 1 << 20);
    }
}
