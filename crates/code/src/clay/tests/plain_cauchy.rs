//! Golden hashes of Clay over the Cauchy matrix as it is, nothing scaled.
//!
//! The construction: GF(2^8) with 0x11d; coupling by gamma = 2; nodes in the order of data, zeros, parity; digits of planes
//! with that of section 0 first; in each plane of U, parity i is the sum over the nodes j that are no parity, zeros too, of
//! node j / (i + (m + j)), where + is the exclusive or. The data is that of `tests::stripe` from seed 1, two bytes a sub-chunk.
//!
//! `tests/clay_oracle.py plain K M D 2` prints them anew, and shares nothing with this crate; `tests/oracle.rs` compares.

/// Shapes k, m, d, and SHA-256 over their parity chunks in order.
pub(crate) const PLAIN_CAUCHY: [([u8; 3], &str); 9] = [
    ([4, 2, 5], "258e0f44af54739ae2a298763fa94314f770d0f074edb10e0def30f6c51a10f4"),
    ([3, 2, 4], "0332157853990afebc720599d6843b26ff2e37d208022067d7ebfba4dbacea52"),
    ([6, 3, 7], "00011f1190df4e975c76d49cac05a7c17e076c2d10d09255ba6222f1e3505d7f"),
    ([6, 3, 8], "591d042a711131384e169c0822d00e2dbb3a121ec75f6fbbaef691a91e4b3597"),
    ([9, 3, 11], "eb0d5b3608d18eb68172d3d69a8f18b9519b6f74e4815c6fef995491389496ae"),
    ([10, 4, 11], "1250d58e8e194c423cbf0632cdc70d9c537fb62f2bddaa364e238bf631ce7be9"),
    ([10, 4, 12], "a52b335ed7c78d6dd9b6dcd73603eeb69681f556ed54b4e65caef8eb58c737b7"),
    ([10, 4, 13], "fe4a6c43c9f9ff435d189f4863b9ec536184b05090b5d7189b009fdb95743eee"),
    ([16, 4, 19], "e304d0e7c063f4816ecc8693fbcdee1e8e2e47659f80f395929c3b8fda29c9cf"),
];
