//! The bytes that each spec stands for.
//!
//! Stored chunks outlive programs: if a hash here changes, stored data can no longer be read. The values were not taken
//! from this crate. An independent reference, written from the definitions (parity-check matrix, layered decoding with
//! the parity erased), gave them for the generator of `cauchy`; so this is a byte-exact comparison as well.
//! Those of `klauspost` came from the definition as well: the Vandermonde matrix by the inverse of its upper part;
//! `tests/klauspost/run` asks the real library. Those of `isal` came from the real ISA-L, and `tests/isal/run` asks it anew. All the
//! tables of `lrc` are pinned by one hash in its own tests.

use claystone_code::{ChunkIndex, CodeSpec, Tier, UpdatePlan};
use sha2::{Digest, Sha256};

/// Spec, bytes of a sub-chunk, SHA-256 over all parity tiles in chunk order, of the data of [`noise`] from seed 1.
const GOLDEN: [(&str, usize, &str); 57] = [
    ("replica:3", 1021, "d8b856fc065eeb38209f6b11b9b115a527b1fc653a7f8af57219bec5c91d564d"),
    ("rs:4+2", 1021, "332e0756411604f33b194980c02f8c3214c2a5415692ec32539a43d66677d832"),
    ("rs:6+3", 1021, "d9914819065fca3623a6b12844913ac0fd98f5b579afbecddf4d87c6baa6afdd"),
    ("rs:10+4", 1021, "e4de409304f15fd61c5bd1351b3bd338d57d76d7200a520dfd6c20886e08d3d6"),
    ("rs:16+4", 1021, "d6e735abeb1ae2eb7560ec94eb45a54d0deee7e90090fba84faab9a4b35a06f4"),
    ("rs:4+12", 1021, "a5e118462b2da1445028b23d38ce840b2f678b7c2406c7275767c4bf27a5fb1f"),
    ("rs:252+3", 1021, "0faaae2ff99b1555a627012a3775c46a18bcbe053eb2d6b0cfadb83259e0cbf0"),
    ("rs:251+4", 1021, "19bb5bc391f3748abc631a71db0304b9005e8f56ae5fdce2a056c5ba7e0fb96c"),
    ("rs:250+5", 1021, "c98d886b213c58d444529b5ae5a96fd69f881c1932aa9115cec12e04f631d5bf"),
    ("rs:246+9", 1021, "2b4ba53be5614d76831b5c3291b4d9eb3b6f978089ea172db079be0150868545"),
    ("rs:1019+4", 3, "cb7441417b02a89b0b4063cc46d2c4d47721857c019960977e637758981d9435"),
    ("rs:1016+7", 3, "8e9bc9c6b09b32e33ead74eaa5d209c78d1d248ce42d3a7c6994f04380cc9c65"),
    ("rs:1014+9", 3, "bc02c159d7460f3bd5aee7fd765347ec8c8477a39633f66ffa088c5c30b18cf6"),
    ("rs:1004+19", 3, "1374e1f21d23f30c1f5f52301125547d6ab2f3a3aa62752029c74574a8166942"),
    ("rs:300+19", 3, "1881e9f0f25435c3ef68770becfa5d1bee6e9ef74c5a66bb66f9ca563561127b"),
    ("rs:256+1", 3, "a3b91d2386254e8339e8ea3547db498c07655b7cb7662da47e5f1065808a1947"),
    ("isal:4+2", 1021, "1e8bbd745c5d0a97bbb6c6c47c7223622160def0ba4f2b2eeddea6c2aefe7599"),
    ("isal:10+4", 1021, "f2e36a761fe1760af8c568b669cfef431dea3e565c6f94bb2c7eb46e8902dc5e"),
    ("isal:17+3", 1021, "8f27b44d1654dd8cc586321506c2fb3bb8365f674192bd5be546a28aa0bdcc90"),
    ("isal:100+30", 1021, "2d614a6239bbb1e5ebc31732bb3ab59c8d4902eaf7701b10e588892e2db76e88"),
    ("isal:246+9", 1021, "61d3ed8f729c14f05fcd8f857bbf09529b27ea8bb6a6f20674ed296d7964560d"),
    ("klauspost:4+2", 1021, "e67cd6530d5a6dda7610b5b684b0a501790d6f9511cbb15448e5235916d8b351"),
    ("klauspost:10+4", 1021, "3d7724e61c495fc4e27b42d1af7f8f70778f856e02b97bf3347ab975f0a56558"),
    ("klauspost:17+3", 1021, "62a7e4d68da8a805f95916d3a74dbdcfa47d0d1d880521bccfe5950bc982b36d"),
    ("klauspost:100+30", 1021, "e3e652290248008e28dce8e14427c6650b35d2a87f241b9d8b347bf2269c03dc"),
    ("klauspost:246+9", 1021, "d06c44d42e9c5f6f875e219f6e3308d308611727d1f6b099343a99f6eece7879"),
    ("clay:4+2:5", 5, "1e653080db4aa589ab8ae4cfb441f1373901a6071625d8f751d5b7f81a4d3963"),
    ("clay:6+3:7", 5, "7a7387003fe45bdf512bfa4391652d6c9678c16d5334b76832a0b2dd29874512"),
    ("clay:6+3:8", 5, "f0f9dbe8e4952234a1ec24bcbac206946d20ac5a0fff6e66ad0cc134ba33946d"),
    ("clay:9+3:11", 5, "dedbf0cce6bc70cc1b72d855ab4fa10585499e0c5f9ebc633e6d4daf2c209aa6"),
    ("clay:10+4:11", 5, "550e6c2b0e5cbeb285ce82eeeae944916d2fd8d6634aa68e815ed75be788ff38"),
    ("clay:10+4:12", 5, "22e72476909818b74b2ea470579403bbd738725ffd4e9edcfc683abb1b004532"),
    ("clay:10+4:13", 5, "075dfd1fdb7acb34beb2e82242b54dde3706fd12aa15a88d1d82cf9a6ae0ce46"),
    ("clay:16+4:19", 5, "8eda77ce04824b11c078d8aa422bc8825266b68b3008cd90ed2f3dac0577b08f"),
    ("lrc:12+2+2", 1021, "d8fb5d670526f07c181f331e0bb7a958c8b573c6b961b52116da30a348d7810d"),
    ("lrc:12+6+2", 1021, "140813cd7c829e93abc16c82e544537ce7fcfd92feed51248031d13fc445da56"),
    ("lrc:10+5+1", 1021, "895f901e14edd5164047a632091a99ef81da164e70aa8af28a18a90d51ffb470"),
    ("lrc:20+4+2", 1021, "b8b7b64b61807cdd26dcb76ef67172f8bd8c2df35e5d176abcfe1c3cdb449897"),
    ("lrc:60+15+2", 1021, "675ac12eda77c5fbd003a8f5c974a15109d33212002448ebc0a7c9a18267d673"),
    ("lrc:60+20+2", 1021, "5c168d725b59ac46a2d33dc07db6e56162291ada1857af19b9c8dce28a618f6b"),
    ("lrc:12+3+3", 1021, "f134d74b497203e01a7c5320fe2b1797bc5b6ce223226ac574f56a09a3605521"),
    ("lrc:16+4+3", 1021, "c99095783dfbc57de11db88801252bda8510d32025e9e67c0b20e4262925e244"),
    ("lrc:10+2+4", 1021, "020e8703453a65520bf7f2033b267db0687824de6e55952d347570d1cd81c536"),
    ("lrc:20+1+3", 1021, "df69f432887c49dcd249c6864ed53738b9b4330e28461afde6919fc373556822"),
    ("pc:2x5", 1021, "6a5d7a116bba8096d0847e9e126c640f8a20420c537fb60bab81bf8d03189471"),
    ("pc:6x5", 1021, "50a44a03b663048de7a848453a7003cf1c8c6c0e738dd1854e4896dbe3145161"),
    ("rsm:6+3", 1021, "29595890f9b581295147f36c321421738b45cf737dcb86ffa4ba54d7319f96db"),
    ("rsm:12+3", 1021, "1ca272586d1690450bbf05b6db7d1c7610cecaa7e85be99450d1ee7f65b7160d"),
    ("rsm:10+4", 1021, "66f95ea0763d7b48aca82949064dad714a1eef17e388a4ccca30dc3eaab8491b"),
    ("rsm:20+4", 1021, "2b6cc11c7229ce4baf815a74aa384e08015d8a1a70bd918880ed9ac2481f0484"),
    ("mirror:4x2", 1021, "0c8d198f39b67ac151f3ae3c6b79d68d900cfeddb67dc293e2c3249132e9d884"),
    ("mirror:4x3", 1021, "72d7a7033ba180972dedc0953c72b4cd32ef09e7ce6951de5bfc1ed40ea112ab"),
    ("mirror:10x2", 1021, "8783da1e5f1fd1ef1700c57197302301d7a4aa19674f4acc9c16ec100c026fbe"),
    ("hybrid:rsm:6+3x2", 1021, "da0d76ff2582bf2d6af272ccac376ef46e89211514f9e093af4479ff1f03ee39"),
    ("hybrid:pc:2x5x2", 1021, "3dd7a613701d9ad103b07a627052923ad17bfde3761de6b8d277d60cac2bfbe6"),
    ("mixed:4+2x3:0+2", 1021, "3cb069b0668357056aca0b75ffc34b93c8f51158bdc37358209c0d6f19eb4097"),
    ("mixed:6+3x2:5", 1021, "19f540192a5c7a5fe37efaff2ea4ea26553b2c5e4d22f2fef7f164666fd6b3bd"),
];

#[test]
fn every_tier_encodes_the_pinned_bytes() {
    for (text, sub_bytes, hash) in GOLDEN {
        let spec: CodeSpec = text.parse().expect("a valid spec");
        for tier in Tier::available() {
            let code = spec.build_with_tier(*tier).expect("a valid spec");
            let shape = code.shape();
            let tile = shape.alpha as usize * sub_bytes;
            let mut state = 1;
            let data: Vec<Vec<u8>> = (0..shape.data).map(|_| noise(&mut state, tile)).collect();
            let mut parity = vec![vec![0xa5; tile]; shape.parity.into()];
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            assert_eq!(hex::encode(Sha256::digest(parity.concat())), hash, "{text} on {tier:?}");
        }
    }
}

#[test]
fn the_coefficients_are_pinned() {
    let code = "rs:4+3".parse::<CodeSpec>().expect("a valid spec").build().expect("a valid spec");
    let rows: Vec<UpdatePlan> = (0..4).map(|chunk| code.plan_update(ChunkIndex(chunk))).collect();
    let column = |coefs: [u16; 3]| UpdatePlan::Delta((4..).map(ChunkIndex).zip(coefs).collect());
    assert_eq!(rows, [[1, 1, 1], [1, 231, 253], [1, 253, 190], [1, 2, 44]].map(column));
}

/// Bytes of a 64-bit linear congruence (Knuth's constants), its top byte each time.
fn noise(state: &mut u64, bytes: usize) -> Vec<u8> {
    let step = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 56) as u8
    };
    std::iter::repeat_with(step).take(bytes).collect()
}
