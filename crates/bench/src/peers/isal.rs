//! Intel ISA-L, loaded at run time.
//!
//! Invariants:
//! 1. Every pointer that goes out points at as many bytes as the call says: lengths come from the stripe's own buffers.
//! 2. A library that lacks one of the functions is no ISA-L and is refused when it is loaded.
#![allow(unsafe_code)] // Calls into a C library; every call says why its pointers hold.

use std::ffi::{CStr, c_char, c_int, c_uchar};
use std::fmt;
use std::hint::black_box;

use claystone_code::CodeSpec;
use libloading::Library;

use super::{ISAL, WITHOUT_GFNI};
use crate::arena::Stripe;
use crate::contender::{Contender, Role};
use crate::plan::{Operation, Plan};

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const *const u8, *const *mut u8);
type EncodeUpdate = unsafe extern "C" fn(c_int, c_int, c_int, c_int, *const c_uchar, *const u8, *const *mut u8);
type Cauchy = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);
type Invert = unsafe extern "C" fn(*mut c_uchar, *mut c_uchar, c_int) -> c_int;
type Version = unsafe extern "C" fn() -> *const c_char;

/// The library's functions.
pub(super) struct Isal {
    name: String,
    init_tables: InitTables,
    encode_data: EncodeData,
    encode_update: EncodeUpdate,
    cauchy: Cauchy,
    invert: Invert,
    /// Keeps the functions loaded.
    _library: Library,
}

impl fmt::Debug for Isal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isal").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Isal {
    /// Loads `CLAYSTONE_ISAL`, or the system's.
    pub(super) fn load() -> Result<Self, String> {
        let path = std::env::var("CLAYSTONE_ISAL").unwrap_or_else(|_| "libisal.so.2".to_owned());
        let error = |error: libloading::Error| error.to_string();
        // SAFETY: ISA-L's initialisers only choose functions by the processor. Whoever sets the variable to something
        // else runs that instead, as with any library path.
        let library = unsafe { Library::new(&path) }.map_err(error)?;
        // SAFETY: the types are those of ISA-L's erasure_code.h and gf_vect_mul.h since 2.0.
        unsafe {
            let version = library.get::<Version>("isal_get_version_str").ok().map(|version| {
                let text = CStr::from_ptr(version());
                text.to_string_lossy().trim_start_matches('v').to_owned()
            });
            let has_gfni = library.get::<EncodeData>("ec_encode_data_avx512_gfni").is_ok();
            let gfni = if has_gfni { "" } else { WITHOUT_GFNI };
            let version = version.or_else(loaded_file).unwrap_or_else(|| "of unknown version".to_owned());
            Ok(Self {
                name: format!("{ISAL} {version}{gfni}"),
                init_tables: *library.get("ec_init_tables").map_err(error)?,
                encode_data: *library.get("ec_encode_data").map_err(error)?,
                encode_update: *library.get("ec_encode_data_update").map_err(error)?,
                cauchy: *library.get("gf_gen_cauchy1_matrix").map_err(error)?,
                invert: *library.get("gf_invert_matrix").map_err(error)?,
                _library: library,
            })
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// ISA-L at what the plan says.
    pub(super) fn contender<'a>(&'a self, plan: &Plan, role: Role) -> Option<Contender<'a>> {
        let CodeSpec::ReedSolomon { .. } = plan.code else {
            return None;
        };
        let shape = plan.code.shape();
        let (k, m) = (usize::from(shape.data), usize::from(shape.parity));
        if k + m > CHUNKS_MAX {
            return None;
        }
        let generator = self.generator(k, m);
        let name = self.name.clone();
        Some(match plan.operation.clone() {
            Operation::Encode => {
                let tables = self.tables(k, &generator[k * k..]);
                Contender::local(name, role, move |stripe| self.combine(&tables, stripe))
            }
            Operation::EncodeAdd { .. } => {
                let tables = self.tables(k, &generator[k * k..]);
                Contender::local(name, role, move |stripe| self.update(&tables, stripe))
            }
            Operation::Repair { lost } => {
                let rows = self.decode_rows(&generator, k, &lost);
                let tables = self.tables(k, &rows);
                Contender::local(name, role, move |stripe| self.combine(&tables, stripe))
            }
            Operation::PlanRepair { lost } => Contender::local(name, role, move |_| {
                let rows = self.decode_rows(&generator, k, &lost);
                black_box(self.tables(k, &rows));
            }),
        })
    }

    /// The k + m rows of the systematic Cauchy generator.
    fn generator(&self, k: usize, m: usize) -> Vec<u8> {
        let mut matrix = vec![0; (k + m) * k];
        // SAFETY: the matrix has (k + m) * k bytes, as the function fills.
        unsafe { (self.cauchy)(matrix.as_mut_ptr(), int(k + m), int(k)) };
        matrix
    }

    /// The rows that make the lost data of the first k chunks that are left.
    fn decode_rows(&self, generator: &[u8], k: usize, lost: &[u16]) -> Vec<u8> {
        let is_left = |chunk: &usize| !lost.iter().any(|lost| usize::from(*lost) == *chunk);
        let left = (0..generator.len() / k).filter(is_left).take(k);
        let mut part: Vec<u8> = left.flat_map(|chunk| &generator[chunk * k..][..k]).copied().collect();
        let mut inverse = vec![0; k * k];
        // SAFETY: both matrices have k * k bytes.
        let failed = unsafe { (self.invert)(part.as_mut_ptr(), inverse.as_mut_ptr(), int(k)) };
        assert_eq!(failed, 0, "a Cauchy matrix has an inverse");
        lost.iter().flat_map(|chunk| &inverse[usize::from(*chunk) * k..][..k]).copied().collect()
    }

    /// The multiplication tables of some rows.
    fn tables(&self, k: usize, rows: &[u8]) -> Vec<u8> {
        let mut tables = vec![0; rows.len() * 32];
        // SAFETY: `rows` has k bytes a row, and the tables 32 bytes for each of them.
        unsafe { (self.init_tables)(int(k), int(rows.len() / k), rows.as_ptr(), tables.as_mut_ptr()) };
        tables
    }

    fn combine(&self, tables: &[u8], stripe: &mut Stripe<'_>) {
        let (sources, targets, bytes) = pointers(stripe);
        let (k, rows) = (stripe.sources.len(), stripe.targets.len());
        assert_eq!(tables.len(), 32 * k * rows);
        // SAFETY: all buffers have `bytes` bytes (checked by `pointers`), and the tables are for k sources and these rows.
        unsafe {
            (self.encode_data)(int(bytes), int(k), int(rows), tables.as_ptr(), sources.as_ptr(), targets.as_ptr());
        }
    }

    fn update(&self, tables: &[u8], stripe: &mut Stripe<'_>) {
        let (_, targets, bytes) = pointers(stripe);
        let (k, rows) = (stripe.sources.len(), stripe.targets.len());
        assert_eq!(tables.len(), 32 * k * rows);
        for (i, source) in stripe.sources.iter().enumerate() {
            // SAFETY: as in `combine`.
            unsafe {
                let (tables, source) = (tables.as_ptr(), source.as_ptr());
                (self.encode_update)(int(bytes), int(k), int(rows), int(i), tables, source, targets.as_ptr());
            }
        }
    }
}

/// The buffers' starts, and their one length.
fn pointers(stripe: &mut Stripe<'_>) -> ([*const u8; CHUNKS_MAX], [*mut u8; CHUNKS_MAX], usize) {
    let mut sources = [std::ptr::null(); CHUNKS_MAX];
    let mut targets = [std::ptr::null_mut(); CHUNKS_MAX];
    let bytes = stripe.targets[0].len();
    for (pointer, source) in sources.iter_mut().zip(&stripe.sources) {
        assert_eq!(source.len(), bytes);
        *pointer = source.as_ptr();
    }
    for (pointer, target) in targets.iter_mut().zip(&mut stripe.targets) {
        assert_eq!(target.len(), bytes);
        *pointer = target.as_mut_ptr();
    }
    (sources, targets, bytes)
}

fn int(count: usize) -> c_int {
    c_int::try_from(count).expect("buffers of less than 2 GiB")
}

/// The name of the library's file, for versions that do not say their own.
fn loaded_file() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let name = maps.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.starts_with("libisal"))?;
    Some(name.to_owned())
}

const CHUNKS_MAX: usize = 256;
