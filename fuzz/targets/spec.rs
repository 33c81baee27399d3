//! Texts as code specs: what parses is written the same again, is valid, and has a size.
#![no_main]

use claystone_code::CodeSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(spec) = text.parse::<CodeSpec>() {
        assert_eq!(spec.to_string(), text);
        assert_eq!(spec.validate(), Ok(()));
        let shape = spec.shape();
        assert!(shape.data > 0 && shape.alpha > 0);
        assert!(spec.tolerance() < shape.chunks());
    }
});
