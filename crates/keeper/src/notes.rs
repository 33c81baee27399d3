//! What is said of buckets whose policy is not kept now: those over their bound, and those of which what is new gets no copies.

use claystone_meta::{Fresh, HeatPolicy};

use crate::Keeper;
use crate::status::PolicyStatus;

impl Keeper {
    /// Of which buckets what is new gets the fast code at once, since too few disks have room for copies, as of the last look at
    /// them: a sentence each.
    pub fn without_copies(&self) -> Vec<String> {
        let roomy = self.inner.stripes.stores().roomy(0);
        let state = self.state();
        let of = |(bucket, policy): (&String, Option<HeatPolicy>)| without_copies(bucket, policy?, roomy);
        state.followed.iter().map(|(bucket, known)| (bucket, known.policy)).filter_map(of).collect()
    }
}

fn without_copies(bucket: &str, policy: HeatPolicy, roomy: usize) -> Option<String> {
    let HeatPolicy { fresh, fast, .. } = policy;
    let (Fresh { copies, parity }, needed) = (fresh?, usize::from(policy.roomy_for_copies()));
    let instead =
        if parity { format!("without {copies} copies beside it") } else { format!("instead of {copies} copies") };
    (roomy < needed).then(|| {
        format!(
            "new objects of bucket {bucket} get {fast} at once {instead}: {roomy} disks take writes and have more than a \
             tenth of their space free, and copies want {needed} of them, so that they can be encoded later; add disks, or delete objects"
        )
    })
}

/// Why a bucket is over its bound, if it is and nothing is planned for it. Of one that was not gone through yet nothing is said.
pub(crate) fn over_bound(of: &PolicyStatus) -> Option<String> {
    let PolicyStatus { bucket, percent, percent_max, whole, young_bytes, waiting_bytes, other_bytes, .. } = of;
    if !whole || *percent <= f64::from(*percent_max) || of.conversions_left > 0 {
        return None;
    }
    let parts = [
        (*young_bytes, "of what is new, and gets its code when it is not"),
        (*waiting_bytes, "of what waits for repair, another attempt, or the policy of another bucket"),
        (
            *other_bytes,
            "of other codes, as small objects have and what was written before the policy or on fewer disks",
        ),
    ];
    let parts = parts.iter().filter(|(bytes, _)| *bytes > 0);
    let parts: Vec<String> = parts.map(|(bytes, what)| format!("{} {what}", bytes_for_people(*bytes))).collect();
    let apart = if parts.is_empty() { String::new() } else { format!("of its chunks {}; ", parts.join(", ")) };
    Some(format!(
        "bucket {bucket} takes {percent:.1} % of its data, more than its bound of {percent_max} %, and no conversion is planned that \
         would change it: {apart}what is left finds nothing to be merged with (`claystone policy explain {bucket}`)"
    ))
}

fn bytes_for_people(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{:.1} KiB are", bytes as f64 / f64::from(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB are", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB are", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_gets_no_copies_where_room_is_short_and_that_is_said() {
        let policy = |text: &str| text.parse::<HeatPolicy>().expect("valid");
        let copies = policy("replica:3/rsm:6+3/rsm:12+3<=160%,0.25..1.00");
        assert_eq!(without_copies("b", copies, 9), None);
        let said = without_copies("b", copies, 8).expect("too few");
        assert!(said.starts_with("new objects of bucket b get rsm:6+3 at once instead of 3 copies: 8 disks"), "{said}");
        let hybrid = policy("hybrid:2/rsm:6+3/rsm:12+3<=160%,0.25..1.00");
        assert!(without_copies("b", hybrid, 9).is_some(), "the second copies have a disk at least");
        assert_eq!(without_copies("b", hybrid, 10), None);
        assert_eq!(without_copies("b", policy("rsm:6+3/rsm:12+3<=160%,0.25..1.00"), 0), None);
    }

    #[test]
    fn a_bucket_over_its_bound_is_said_with_what_is_not_its_to_change() {
        let within = PolicyStatus {
            bucket: "b".to_owned(),
            percent: 150.0,
            percent_max: 150,
            whole: true,
            ..PolicyStatus::default()
        };
        assert_eq!(over_bound(&within), None);
        let over = PolicyStatus { percent: 170.04, young_bytes: 3 << 20, other_bytes: 512, ..within };
        let said = over_bound(&over).expect("over it");
        let parts =
            "of its chunks 3.0 MiB are of what is new, and gets its code when it is not, 0.5 KiB are of other codes";
        assert!(said.starts_with("bucket b takes 170.0 % of its data, more than its bound of 150 %"), "{said}");
        assert!(said.contains(parts) && !said.contains("waits for repair"), "{said}");
        assert_eq!(over_bound(&PolicyStatus { whole: false, ..over.clone() }), None, "of a part of it");
        assert_eq!(over_bound(&PolicyStatus { conversions_left: 1, ..over }), None, "it is about to change");
    }
}
