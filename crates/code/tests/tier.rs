//! A forced tier is what all codes are built with. Alone in its process, because the choice is made once.

use claystone_code::{CodeSpec, ForceError, Tier};

#[test]
fn the_forced_tier_is_the_one_that_codes_run_with() {
    let missing = if cfg!(target_arch = "x86_64") { Tier::Neon } else { Tier::Avx2 };
    let error = missing.force().expect_err("a tier of another architecture");
    assert_eq!(error, ForceError::Unavailable { tier: missing });
    let names: Vec<String> = Tier::available().iter().map(Tier::to_string).collect();
    assert_eq!(error.to_string(), format!("this machine has not got {missing}, it has {}", names.join(", ")));

    Tier::Scalar.force().expect("every machine has it");
    for text in [
        "replica:3",
        "rs:4+2",
        "rs:300+4",
        "isal:4+2",
        "klauspost:4+2",
        "clay:4+2:5",
        "lrc:4+2+2",
        "pc:2x5",
        "rsm:6+3",
        "mirror:4x3",
        "hybrid:rsm:6+3x2",
        "mixed:4+2x3:1",
    ] {
        let spec: CodeSpec = text.parse().expect("a valid spec");
        assert_eq!(spec.build().expect("a valid spec").tier(), Tier::Scalar, "{text}");
        for tier in Tier::available() {
            assert_eq!(spec.build_with_tier(*tier).expect("a valid spec").tier(), *tier, "{text}");
        }
    }

    Tier::Scalar.force().expect("it is in use");
    if Tier::best() != Tier::Scalar {
        let error = Tier::best().force().expect_err("scalar is in use");
        assert_eq!(error, ForceError::TooLate { tier: Tier::best(), chosen: Tier::Scalar });
        assert!(error.to_string().ends_with("codes are built with scalar already"), "{error}");
    }
}
