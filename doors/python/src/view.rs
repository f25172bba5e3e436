//! A body that Python reads where it lies: the one file with `unsafe`, for the buffer protocol is pointers.
//!
//! Invariants: the bytes never change, and live as long as the [`Body`] that has them; a view that the interpreter
//! fills holds a reference to its `Body`.
#![allow(unsafe_code)]

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::{exceptions::PyBufferError, ffi, prelude::*, types::PyMemoryView};

/// What a memoryview is made from.
#[pyclass(frozen)]
pub(crate) struct Body(Bytes);

/// A read-only view of these bytes, which it keeps.
pub(crate) fn memory(py: Python<'_>, bytes: Bytes) -> PyResult<Bound<'_, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, Body(bytes))?.as_any())
}

#[pymethods]
impl Body {
    /// # Safety
    /// The interpreter calls it, with a view for it to fill, or none.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let bytes = &slf.get().0;
        let (start, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is the interpreter's own. The bytes stay where they are as long as `slf` lives: a frozen class
        // gives out no `&mut`, and the call takes a reference to `slf` into the view. Read-only is 1, so a caller that
        // wants to write is refused.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
