//! Python's numbers and iterables as ours.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::ClaystoneError;

/// All that an iterable gives: a list, a tuple, a generator, a set.
pub struct Many<T>(pub Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Many<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Many<T>> {
        let items = object.try_iter()?.map(|item| item?.extract().map_err(Into::into));
        items.collect::<PyResult<_>>().map(Many)
    }
}

/// A number of so many bits. One that is below 0 or does not fit is a wrong argument as any other.
pub struct Number<T>(pub T);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Number<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Number<T>> {
        object.extract().map(Number).map_err(|error: PyErr| {
            match error.is_instance_of::<PyOverflowError>(object.py()) {
                true => ClaystoneError::new_err(format!(
                    "{} is not a number of {} bits",
                    object.as_any(),
                    8 * size_of::<T>()
                )),
                false => error,
            }
        })
    }
}

/// The numbers.
pub fn plain<T>(numbers: Many<Number<T>>) -> Vec<T> {
    numbers.0.into_iter().map(|number| number.0).collect()
}
