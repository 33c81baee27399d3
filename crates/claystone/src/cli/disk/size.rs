//! A size as people write it: `10G`, `512MiB`, `4096`.

use std::str::FromStr;

/// Bytes. Units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// What is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a number of bytes, or one with K, M, G, T or P behind it, such as 10G")]
pub struct SizeError;

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let text = text.trim();
        let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let power = match unit.trim().to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
            "" => 0,
            "K" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            "P" => 5,
            _ => return Err(SizeError),
        };
        let number: u64 = number.parse().map_err(|_| SizeError)?;
        number.checked_mul(1 << (10 * power)).map(Size).ok_or(SizeError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let size = |text: &str| text.parse().map(|Size(bytes)| bytes);
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("10G"), Ok(10 << 30));
        assert_eq!(size(" 512 MiB "), Ok(512 << 20));
        assert_eq!(size("3tb"), Ok(3 << 40));
        assert_eq!(size("1k"), Ok(1024));
        for wrong in ["", "G", "-1", "1.5G", "10 X", "99999999P", "1G1"] {
            assert_eq!(size(wrong), Err(SizeError), "{wrong:?}");
        }
    }
}
