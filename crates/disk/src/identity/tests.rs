//! Tests of `identity`.

use proptest::prelude::*;

use super::*;

fn identity() -> Identity {
    Identity {
        disk: DiskId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        cluster: ClusterId(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20),
        node: NodeId("node-1".to_owned()),
        created: WallTime { unix_ms: 1_795_305_600_000 },
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// A change here is a new format version.
#[test]
fn the_golden_identity() {
    let bytes = identity().encode();
    assert_eq!(
        hex(&bytes[..72]),
        "434c41594449534b010006000335fae3100f0e0d0c0b0a090807060504030201\
         201f1e1d1c1b1a19181716151413121100748d00a20100000000000000000000\
         6e6f64652d310000"
    );
    let text = std::str::from_utf8(&bytes[256..]).expect("text").trim_end_matches('\0');
    assert_eq!(
        text,
        "\nThis directory is a disk of a Claystone cluster. Without this file it is refused.\n\
         disk 0102030405060708090a0b0c0d0e0f10\ncluster 1112131415161718191a1b1c1d1e1f20\n"
    );
    assert_eq!(Identity::decode(&bytes), Ok(identity()));
}

#[test]
fn a_cut_or_longer_identity_is_damaged() {
    let mut bytes = identity().encode().to_vec();
    for end in 0..bytes.len() {
        assert!(matches!(Identity::decode(&bytes[..end]), Err(IdentityError::Damaged(_))), "cut at {end}");
    }
    bytes.push(0);
    assert!(matches!(Identity::decode(&bytes), Err(IdentityError::Damaged(_))));
}

#[test]
fn a_flip_anywhere_is_never_another_identity() {
    let bytes = identity().encode();
    for bit in 0..IDENTITY_BYTES * 8 {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = Identity::decode(&bytes);
        // A flip in the version's bits may look newer; that is refused as well.
        let newer = (64..80).contains(&bit) && matches!(found, Err(IdentityError::Newer { .. }));
        assert!(newer || matches!(found, Err(IdentityError::Damaged(_))), "bit {bit}: {found:?}");
    }
}

#[test]
fn a_newer_version_is_named_whatever_follows() {
    let mut bytes = identity().encode();
    put(&mut bytes, 8, 7u16.to_le_bytes());
    assert_eq!(Identity::decode(&bytes), Err(IdentityError::Newer { found: 7 }));
    assert_eq!(Identity::decode(&bytes[..20]), Err(IdentityError::Newer { found: 7 }));
}

#[test]
fn a_long_node_name_is_cut_between_characters() {
    let long = Identity { node: NodeId("é".repeat(150)), ..identity() };
    let found = Identity::decode(&long.encode()).expect("an identity");
    assert_eq!(found.node.0, "é".repeat(96));
}

proptest! {
    #[test]
    fn identities_come_back(disk: u128, cluster: u128, node in ".{0,40}", unix_ms: u64) {
        let created = WallTime { unix_ms };
        let identity = Identity { disk: DiskId(disk), cluster: ClusterId(cluster), node: NodeId(node), created };
        prop_assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
        let _ = Identity::decode(&bytes);
    }
}
