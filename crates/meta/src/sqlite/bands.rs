//! The bands of a stripe as their column has them: `6:393216,6:393000`, chunks and bytes of each; NULL for one band.

use claystone_code::Shape;

use super::fault::Fault;
use crate::Band;

/// The column of a stripe's bands.
pub(super) fn column(bands: &[Band]) -> Option<String> {
    let text = bands.iter().map(|band| format!("{}:{}", band.chunks, band.data_bytes));
    (!bands.is_empty()).then(|| text.collect::<Vec<_>>().join(","))
}

/// The bands of a stripe of this shape that holds `data_bytes`.
pub(super) fn from_column(text: Option<&str>, shape: Shape, data_bytes: u64) -> Result<Vec<Band>, Fault> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let bands = parse(text).filter(|bands| {
        let chunks: u64 = bands.iter().map(|band| u64::from(band.chunks)).sum();
        let bytes = bands.iter().try_fold(0u64, |sum, band| sum.checked_add(band.data_bytes));
        let whole = bands.iter().all(|band| band.chunks > 0 && band.data_bytes > 0);
        bands.len() > 1 && whole && chunks == u64::from(shape.data) && bytes == Some(data_bytes)
    });
    bands.ok_or_else(|| Fault::corrupt(format!("the bands {text:?}")))
}

/// Bytes of one band; `None` if there is none of this number.
pub(super) fn data_bytes(text: Option<&str>, stripe_bytes: i64, band: i64) -> Option<i64> {
    let Some(text) = text else { return (band == 0).then_some(stripe_bytes) };
    let bands = parse(text)?;
    i64::try_from(bands.get(usize::try_from(band).ok()?)?.data_bytes).ok()
}

fn parse(text: &str) -> Option<Vec<Band>> {
    let band = |text: &str| {
        let (chunks, bytes) = text.split_once(':')?;
        let band = Band { chunks: chunks.parse().ok()?, data_bytes: bytes.parse().ok()? };
        // One way of writing it.
        (format!("{}:{}", band.chunks, band.data_bytes) == text).then_some(band)
    };
    text.split(',').map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_holds_bands_and_nothing_else() {
        let shape = Shape { data: 12, parity: 3, alpha: 1 };
        let bands = vec![Band { chunks: 6, data_bytes: 393_216 }, Band { chunks: 6, data_bytes: 393_000 }];
        let text = column(&bands).expect("two bands");
        assert_eq!(text, "6:393216,6:393000");
        assert_eq!(from_column(Some(&text), shape, 786_216).ok(), Some(bands));
        assert_eq!((column(&[]), from_column(None, shape, 1).ok()), (None, Some(Vec::new())));
        for bad in ["", "12:786216", "6:393216,5:393000", "6:393216,6:393001", "6:0,6:786216", "0:1,12:786215", "06:1"]
        {
            assert!(from_column(Some(bad), shape, 786_216).is_err(), "{bad}");
        }
        let of = |band| data_bytes(Some(&text), 786_216, band);
        assert_eq!((of(0), of(1), of(2), of(-1)), (Some(393_216), Some(393_000), None, None));
        assert_eq!((data_bytes(None, 7, 0), data_bytes(None, 7, 1)), (Some(7), None));
    }
}
