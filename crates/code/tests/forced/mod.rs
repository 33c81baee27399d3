//! The tier that a run of the tests asks for.

use std::sync::Arc;

use claystone_code::{CodeSpec, ErasureCode, Tier};

/// A code on the tier that `CLAYSTONE_CODE_TIER` names, else on the fastest.
pub fn build(spec: CodeSpec) -> Arc<dyn ErasureCode> {
    if let Some(name) = std::env::var_os("CLAYSTONE_CODE_TIER") {
        name.to_str().expect("a tier").parse::<Tier>().expect("a tier").force().expect("a tier of this machine");
    }
    spec.build().expect("a valid spec")
}
