//! The codes for Python. `claystone/_claystone.pyi` is its documentation.
//!
//! Invariants:
//! 1. Every argument is checked by `claystone-guard`, buffers for overlap too; a wrong one raises `ClaystoneError`.
//! 2. Bytes are read and written where Python has them.
//! 3. `unsafe` is in `buffers` only.

mod arguments;
mod buffers;

use claystone_code::{ChunkRead, ConversionGoal, StripeChunk, UpdatePlan};
use claystone_guard::{Guard, Misuse, force_tier as force};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

use crate::arguments::{Many, Number, plain};
use crate::buffers::{Buffer, run};

create_exception!(_claystone, ClaystoneError, PyValueError);
create_exception!(_claystone, Unrecoverable, ClaystoneError);

#[pymodule]
mod _claystone {
    use super::*;
    #[pymodule_export]
    use super::{ClaystoneError, Code, Conversion, Plan, Read, Unrecoverable, force_tier};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

#[pyfunction]
fn force_tier(tier: &str) -> PyResult<()> {
    force(tier).map_err(refused)
}

fn refused(misuse: Misuse) -> PyErr {
    match misuse {
        Misuse::Unrecoverable(_) => Unrecoverable::new_err(misuse.to_string()),
        _ => ClaystoneError::new_err(misuse.to_string()),
    }
}

#[pyclass(frozen, module = "claystone")]
struct Code(Guard);

#[pyclass(frozen, module = "claystone")]
struct Plan(claystone_guard::Plan);

#[pyclass(frozen, module = "claystone")]
struct Read(ChunkRead);

#[pyclass(frozen, module = "claystone")]
struct Conversion(claystone_guard::Conversion);

#[pymethods]
impl Code {
    #[new]
    fn new(spec: &str) -> PyResult<Code> {
        Guard::new(spec).map(Code).map_err(refused)
    }

    fn __repr__(&self) -> String {
        format!("claystone.Code({:?})", self.spec())
    }

    #[getter]
    fn spec(&self) -> String {
        self.0.spec().to_string()
    }

    #[getter]
    fn data(&self) -> u16 {
        self.0.shape().data
    }

    #[getter]
    fn parity(&self) -> u16 {
        self.0.shape().parity
    }

    #[getter]
    fn chunks(&self) -> u16 {
        self.0.shape().chunks()
    }

    #[getter]
    fn alpha(&self) -> u32 {
        self.0.shape().alpha
    }

    #[getter]
    fn tolerance(&self) -> u16 {
        self.0.spec().tolerance()
    }

    #[getter]
    fn tier(&self) -> String {
        self.0.tier().to_string()
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        info.set_item("spec", self.spec())?;
        info.set_item("data", self.data())?;
        info.set_item("parity", self.parity())?;
        info.set_item("chunks", self.chunks())?;
        info.set_item("alpha", self.alpha())?;
        info.set_item("tolerance", self.tolerance())?;
        info.set_item("tier", self.tier())?;
        info.set_item("overhead", f64::from(self.chunks()) / f64::from(self.data()))?;
        Ok(info)
    }

    fn encode<'py>(&self, py: Python<'py>, data: Many<Buffer>) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        let tile = data.0.first().map_or(0, Buffer::length);
        let parity = zeros(py, self.parity().into(), tile)?;
        self.encode_into(py, data, buffers::of(&parity)?)?;
        Ok(parity)
    }

    fn encode_into(&self, py: Python<'_>, data: Many<Buffer>, parity: Many<Buffer>) -> PyResult<()> {
        run(py, &data.0, &parity.0, |data, parity| self.0.encode(data, parity))
    }

    fn encode_add(&self, py: Python<'_>, first: Number<u16>, data: Many<Buffer>, parity: Many<Buffer>) -> PyResult<()> {
        run(py, &data.0, &parity.0, |data, parity| self.0.encode_add(first.0, data, parity))
    }

    #[pyo3(
        signature = (want, *, lost = Many(Vec::new()), costs = None, sub_bytes = Number(4096), granule = Number(1)),
        text_signature = "($self, want, *, lost=(), costs=None, sub_bytes=4096, granule=1)"
    )]
    fn plan(
        &self,
        py: Python<'_>,
        want: Many<Number<u16>>,
        lost: Many<Number<u16>>,
        costs: Option<Many<Option<Number<u32>>>>,
        sub_bytes: Number<u32>,
        granule: Number<u32>,
    ) -> PyResult<Plan> {
        let given = costs.map(|costs| costs.0.into_iter().map(|cost| cost.map(|cost| cost.0)).collect());
        let mut costs: Vec<Option<u32>> = given.unwrap_or_else(|| vec![Some(1); self.chunks().into()]);
        let want = plain(want);
        for chunk in plain(lost) {
            // One that the code has not is told when it is wanted; lost, it means nothing.
            let cost = costs.get_mut(usize::from(chunk));
            *cost.ok_or_else(|| ClaystoneError::new_err(format!("there is no chunk {chunk} to lose")))? = None;
        }
        py.detach(|| self.0.plan_read(&want, &costs, sub_bytes.0, granule.0)).map(Plan).map_err(refused)
    }

    fn recover<'py>(
        &self,
        py: Python<'py>,
        plan: &Plan,
        fetched: Many<Buffer>,
    ) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        // Every read has the same sub-chunk length, so the first one tells the tile's.
        let first = plan.0.data().reads.first().map_or(1, ChunkRead::sub_chunks_total).max(1);
        let sub_bytes = fetched.0.first().map_or(0, Buffer::length) as u64 / first;
        let tile = sub_bytes * u64::from(self.alpha());
        let out = zeros(py, plan.0.data().want.len(), tile as usize)?;
        self.recover_into(py, plan, fetched, buffers::of(&out)?)?;
        Ok(out)
    }

    fn recover_into(&self, py: Python<'_>, plan: &Plan, fetched: Many<Buffer>, out: Many<Buffer>) -> PyResult<()> {
        run(py, &fetched.0, &out.0, |fetched, out| self.0.recover(&plan.0, fetched, out))
    }

    fn update(&self, chunk: Number<u16>) -> PyResult<Option<Vec<u16>>> {
        match self.0.plan_update(chunk.0).map_err(refused)? {
            UpdatePlan::Delta(parities) => Ok(Some(parities.iter().map(|(parity, _)| parity.0).collect())),
            UpdatePlan::Reencode => Ok(None),
        }
    }

    fn apply_delta(
        &self,
        py: Python<'_>,
        chunk: Number<u16>,
        parity_chunk: Number<u16>,
        delta: Buffer,
        parity: Buffer,
    ) -> PyResult<()> {
        run(py, &[delta], &[parity], |delta, parity| self.0.apply_delta(chunk.0, parity_chunk.0, delta[0], parity[0]))
    }

    fn locate(&self, py: Python<'_>, chunks: Many<Option<Buffer>>) -> PyResult<Vec<u16>> {
        let there: Vec<bool> = chunks.0.iter().map(Option::is_some).collect();
        let chunks: Vec<Buffer> = chunks.0.into_iter().flatten().collect();
        let mut wrong = Vec::new();
        run(py, &chunks, &[], |chunks, _| {
            let mut chunks = chunks.iter().copied();
            let chunks: Vec<Option<&[u8]>> =
                there.iter().map(|there| if *there { chunks.next() } else { None }).collect();
            wrong = self.0.locate(&chunks)?.iter().map(|chunk| chunk.0).collect();
            Ok(())
        })?;
        Ok(wrong)
    }
}

#[pymethods]
impl Conversion {
    #[new]
    #[pyo3(signature = (source, target, *, goal = "fewest-reads"))]
    fn new(source: &str, target: &str, goal: &str) -> PyResult<Conversion> {
        let goal = match goal {
            "fewest-reads" => ConversionGoal::FewestReads,
            "short-sums" => ConversionGoal::ShortSums,
            "data-only" => ConversionGoal::DataOnly,
            other => {
                let text =
                    format!("there is no goal {other:?}: there are \"fewest-reads\", \"short-sums\" and \"data-only\"");
                return Err(ClaystoneError::new_err(text));
            }
        };
        claystone_guard::Conversion::new(source, target, goal).map(Conversion).map_err(refused)
    }

    #[getter]
    fn sources(&self) -> u16 {
        self.0.plan().sources
    }

    #[getter]
    fn targets(&self) -> u16 {
        self.0.plan().targets
    }

    #[getter]
    fn kept(&self) -> Vec<((u16, u16), (u16, u16))> {
        self.0.plan().kept.iter().map(|kept| (named(kept.from), named(kept.to))).collect()
    }

    #[getter]
    fn reads(&self) -> Vec<(u16, u16)> {
        self.0.plan().reads.iter().copied().map(named).collect()
    }

    #[getter]
    fn writes(&self) -> Vec<(u16, u16)> {
        self.0.plan().writes.iter().copied().map(named).collect()
    }

    #[getter]
    fn combined(&self) -> u64 {
        self.0.plan().bytes_combined(1)
    }

    fn apply<'py>(&self, py: Python<'py>, fetched: Many<Buffer>) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        let tile = fetched.0.first().map_or(0, Buffer::length);
        let written = zeros(py, self.0.plan().writes.len(), tile)?;
        self.apply_into(py, fetched, buffers::of(&written)?)?;
        Ok(written)
    }

    fn apply_into(&self, py: Python<'_>, fetched: Many<Buffer>, written: Many<Buffer>) -> PyResult<()> {
        run(py, &fetched.0, &written.0, |fetched, written| self.0.apply(fetched, written))
    }
}

fn named(chunk: StripeChunk) -> (u16, u16) {
    (chunk.stripe, chunk.chunk.0)
}

#[pymethods]
impl Plan {
    #[getter]
    fn want(&self) -> Vec<u16> {
        self.0.data().want.iter().map(|chunk| chunk.0).collect()
    }

    #[getter]
    fn reads(&self) -> Vec<Read> {
        self.0.data().reads.iter().cloned().map(Read).collect()
    }

    #[getter]
    fn alpha(&self) -> u32 {
        self.0.data().alpha
    }

    #[pyo3(signature = (sub_bytes, granule = Number(1)), text_signature = "($self, sub_bytes, granule=1)")]
    fn bytes_read(&self, sub_bytes: Number<u32>, granule: Number<u32>) -> PyResult<u64> {
        self.0.bytes_read(sub_bytes.0, granule.0).map_err(refused)
    }
}

#[pymethods]
impl Read {
    #[getter]
    fn chunk(&self) -> u16 {
        self.0.chunk.0
    }

    #[getter]
    fn ranges(&self) -> Vec<(u32, u32)> {
        self.0.sub_chunks.iter().map(|range| (range.start, range.end)).collect()
    }

    fn cut<'py>(&self, py: Python<'py>, tile: Buffer, sub_bytes: Number<u32>) -> PyResult<Bound<'py, PyByteArray>> {
        let Number(sub_bytes) = sub_bytes;
        let end = self.0.sub_chunks.last().map_or(0, |range| range.end) as usize * sub_bytes as usize;
        if tile.length() < end {
            let text = format!("the tile has {} bytes, the last range ends at {end}", tile.length());
            return Err(ClaystoneError::new_err(text));
        }
        let bytes = self.0.sub_chunks_total() as usize * sub_bytes as usize;
        PyByteArray::new_with(py, bytes, |into| {
            tile.read(py, |tile| self.0.cut_into(tile, sub_bytes, into));
            Ok(())
        })
    }
}

fn zeros(py: Python<'_>, count: usize, length: usize) -> PyResult<Vec<Bound<'_, PyByteArray>>> {
    (0..count).map(|_| PyByteArray::new_with(py, length, |_| Ok(()))).collect()
}
