//! What a person should know of how a store is set up, since it is less safe than it looks.

use std::collections::BTreeSet;

use claystone_chunk::{Durability, NodeId};
use claystone_code::CodeSpec;

/// Of a store with its disks on these nodes, whose buckets have this code where they name none, and whose solid-state drives of several
/// disks are these, with how many disks each.
pub fn remarks(
    durability: Durability,
    code: CodeSpec,
    nodes: &BTreeSet<&NodeId>,
    shared: &[(String, usize)],
) -> Vec<String> {
    let mut remarks = Vec::new();
    // On one node as much is synced before an acknowledgement as survives its power cut.
    if durability == Durability::Buffered && nodes.len() > 1 {
        remarks.push(format!(
            "durability is \"replicated\", which counts on {} nodes to lose power apart, and all are disks of this machine: what was \
             acknowledged in the last moment is lost if its own power is cut; \"sync\" keeps it, and so does one name for all of them",
            nodes.len()
        ));
    }
    let tolerance = usize::from(code.tolerance());
    for (drive, disks) in shared.iter().filter(|(_, disks)| *disks > tolerance) {
        remarks.push(format!(
            "{disks} disks have the solid-state drive {drive} in common, and {code} survives the loss of {tolerance}: if it dies, data may \
             be lost; give some of them another one with `claystone disk replace-ssd`"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_copies_fail_together_is_told() {
        let code: CodeSpec = "rs:4+2".parse().expect("a code");
        let (one, other) = (NodeId("a".to_owned()), NodeId("b".to_owned()));
        let told = |durability, nodes: &[&NodeId], disks| {
            let nodes = nodes.iter().copied().collect();
            remarks(durability, code, &nodes, &[("nvme0n1".to_owned(), disks)])
        };
        assert!(told(Durability::Synced, &[&one], 2).is_empty());
        assert!(told(Durability::Synced, &[&one, &other], 2).is_empty());
        assert!(told(Durability::Buffered, &[&one], 2).is_empty());
        let replicated = told(Durability::Buffered, &[&one, &other], 2);
        assert!(replicated.len() == 1 && replicated[0].contains("counts on 2 nodes"), "{replicated:?}");
        let shared = told(Durability::Synced, &[&one, &other], 3);
        assert!(shared.len() == 1 && shared[0].starts_with("3 disks have the solid-state drive nvme0n1"), "{shared:?}");
    }
}
