//! From C's pointers to slices, references and values, each checked as far as a pointer can be: null and length. That
//! a pointer that is not null leads where the header says is the caller's part, and the only thing relied on here.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::code::Failure;

/// Most bytes that an object in memory has.
const LONGEST: usize = isize::MAX as usize;

fn null(what: &str) -> Failure {
    Failure::invalid(format!("{what} is a null pointer"))
}

/// The bytes at a pointer; null is allowed where there are none.
///
/// # Safety
/// `pointer` is null or leads to `len` bytes that do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(what: &str, pointer: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        (_, 1..=LONGEST) => {
            // SAFETY: not null, of a length that an object can have, and readable as the caller says; bytes are
            // aligned anywhere.
            Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
        }
        _ => Err(Failure::invalid(format!("{what} of {len} bytes"))),
    }
}

/// Room for bytes at a pointer; null is allowed where there is none.
///
/// # Safety
/// `pointer` is null or leads to `len` bytes that no other thread reads or writes during `'a`, with any values.
pub(crate) unsafe fn room<'a>(what: &str, pointer: *mut c_void, len: usize) -> Result<Room<'a>, Failure> {
    if pointer.is_null() && len > 0 {
        return Err(null(what));
    }
    Ok(Room { next: pointer.cast(), left: len.min(LONGEST), of: std::marker::PhantomData })
}

/// Bytes of the caller's that are written, never read: they need not have a value yet.
pub(crate) struct Room<'a> {
    next: *mut u8,
    left: usize,
    of: std::marker::PhantomData<&'a mut u8>,
}

impl Room<'_> {
    /// Bytes that still fit.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Copies as much as fits.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.left);
        if len == 0 {
            return;
        }
        // SAFETY: `room` was given `left` bytes from `next` on, which are the caller's to let us write and, being its
        // own, do not overlap what the engine holds; after the copy both move by as much.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.next, len);
            self.next = self.next.add(len);
        }
        self.left -= len;
    }
}

/// What a handle leads to.
///
/// # Safety
/// `pointer` is null or a `T` that lives during `'a` and is not changed but through its own locks.
pub(crate) unsafe fn handle<'a, T>(what: &str, pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// A text that ends with a zero byte; `None` for null.
///
/// # Safety
/// `pointer` is null or leads to bytes that end with a zero and that do not change during `'a`.
pub(crate) unsafe fn text<'a>(what: &str, pointer: *const c_char) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and ended by a zero as the caller says.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// A path: bytes that end with a zero.
///
/// # Safety
/// `pointer` is null or leads to bytes that end with a zero and that do not change during `'a`.
pub(crate) unsafe fn path<'a>(what: &str, pointer: *const c_char) -> Result<&'a Path, Failure> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and ended by a zero as the caller says.
    let path = unsafe { CStr::from_ptr(pointer) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Where a result goes.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checked before the work is done, so that no result is lost.
    ///
    /// # Safety
    /// `pointer` is null or may be written as a `T` as long as this value lives.
    pub(crate) unsafe fn new(what: &str, pointer: *mut T) -> Result<Self, Failure> {
        if pointer.is_null() { Err(null(what)) } else { Ok(Self(pointer)) }
    }

    pub(crate) fn set(&mut self, value: T) {
        // SAFETY: not null, and writable as `new` was told. What was there is the caller's and is not dropped.
        unsafe { self.0.write(value) }
    }
}

/// A struct of options: its first field is `size_t size`, the bytes of it that the caller knows.
///
/// # Safety
/// Every pattern of bits is a value of the type, all zeros its defaults, and its first field is a `usize`.
pub(crate) unsafe trait Growing: Copy {
    /// The defaults.
    const ZERO: Self;
}

/// The caller's options. A caller that knows fewer fields leaves the others at their defaults; one that knows more,
/// from a newer header, may only leave those at their defaults.
///
/// # Safety
/// `pointer` is null or leads to as many bytes as its first field says.
pub(crate) unsafe fn options<T: Growing>(what: &str, pointer: *const T) -> Result<T, Failure> {
    let mut known = T::ZERO;
    if pointer.is_null() {
        return Ok(known);
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!("{what} is not aligned")));
    }
    // SAFETY: not null, aligned, and `Growing` says that a usize comes first.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        let mend = "set it to sizeof, as the INIT macro does";
        return Err(Failure::invalid(format!("{what}.size is {size}; {mend}")));
    }
    // SAFETY: the caller has `size` bytes there, and `known` has room for as many as it is long; any bits are a value.
    unsafe {
        let both = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut known).cast::<u8>(), both);
    }
    if size > size_of::<T>() {
        // SAFETY: the caller has `size` bytes there, so the rest begins at the end of what is known.
        let rest = unsafe { bytes(what, pointer.add(1).cast(), size - size_of::<T>())? };
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Failure::invalid(format!(
                "{what} sets a field that this library, older than its header, lacks"
            )));
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CWriteOptions;

    #[repr(C)]
    struct Newer {
        known: CWriteOptions,
        later: u64,
    }

    fn read(options: *const CWriteOptions) -> Result<CWriteOptions, Failure> {
        // SAFETY: each test passes structs as long as they say.
        unsafe { super::options("options", options) }
    }

    #[test]
    fn an_older_caller_gets_defaults_for_what_it_does_not_know() {
        let mut given = CWriteOptions { group: 7, ..CWriteOptions::ZERO };
        given.size = std::mem::offset_of!(CWriteOptions, group) + 4;
        given.server = 9;
        let read = read(&raw const given).unwrap();
        assert_eq!((read.group, read.server), (7, 0));
    }

    #[test]
    fn a_newer_caller_is_served_if_it_asks_for_nothing_new() {
        let mut given = Newer { known: CWriteOptions { group: 7, ..CWriteOptions::ZERO }, later: 0 };
        given.known.size = size_of::<Newer>();
        assert_eq!(read((&raw const given).cast()).unwrap().group, 7);
        given.later = 1 << 60;
        assert!(read((&raw const given).cast()).unwrap_err().text.contains("older than its header"));
    }

    #[test]
    fn a_size_that_nobody_set_is_refused() {
        for size in [0, 7, 5000] {
            let given = CWriteOptions { size, ..CWriteOptions::ZERO };
            assert!(read(&raw const given).is_err(), "{size}");
        }
        assert_eq!(read(std::ptr::null()).unwrap().group, 0);
    }

    #[test]
    fn null_is_refused_where_there_should_be_bytes() {
        // SAFETY: null, and a length that is refused before it is looked at.
        unsafe {
            assert!(bytes("body", std::ptr::null(), 0).unwrap().is_empty());
            assert!(bytes("body", std::ptr::null(), 1).is_err());
            assert!(bytes("body", std::ptr::dangling(), usize::MAX).is_err());
            assert!(room("buffer", std::ptr::null_mut(), 1).is_err());
            assert!(Out::<u32>::new("group", std::ptr::null_mut()).is_err());
        }
    }
}
