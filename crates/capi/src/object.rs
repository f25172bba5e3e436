//! Writing objects, and reading them: a handle pins the bytes of the version that was found.
//!
//! Hummingbird's `read_file` hands out a pointer and takes it back with `done_read_file`, Dámelo's `read` and `release`
//! do the same with a shared lock on a page. Here the handle is the pin. An object that is written or deleted while
//! it is being read is gone for later reads, and the reader keeps what it has.

use std::{
    ffi::{c_int, c_void},
    sync::OnceLock,
};

use bytes::Bytes;

use crate::{
    backend::Found,
    code::{Failure, guard, guard_value},
    options::{CWriteOptions, writing},
    raw::{self, Out},
    store::CStore,
};

/// What a `picaflor_object *` leads to.
pub struct CObject {
    object: Found,
    /// The body in one piece, once it was asked for.
    body: OnceLock<Bytes>,
}

impl CObject {
    fn body(&self) -> Result<&Bytes, Failure> {
        if let Some(body) = self.body.get() {
            return Ok(body);
        }
        // Of two threads that ask at once both read, and one copy stays.
        let bytes = self.object.body()?;
        Ok(self.body.get_or_init(|| bytes))
    }
}

/// Both kinds of write.
///
/// # Safety
/// As `picaflor.h` says of `picaflor_write`.
unsafe fn write(
    store: *const CStore,
    (key, key_len): (*const c_void, usize),
    (body, body_len): (*const c_void, usize),
    options: *const CWriteOptions,
    bypass_memory: bool,
) -> c_int {
    guard(|| {
        // SAFETY: a live handle, a key and a body with their lengths, and options, as the header says.
        let (store, key, body, mut options) = unsafe {
            (
                raw::handle("store", store)?,
                raw::bytes("key", key, key_len)?,
                raw::bytes("body", body, body_len)?,
                writing(options)?,
            )
        };
        options.bypass_memory = bypass_memory;
        store.backend.put(key, body, &options)
    })
}

/// Writes an object; an older one with this key is replaced.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_write(
    store: *const CStore,
    key: *const c_void,
    key_len: usize,
    body: *const c_void,
    body_len: usize,
    options: *const CWriteOptions,
) -> c_int {
    // SAFETY: the same parameters, with the same promises.
    unsafe { write(store, (key, key_len), (body, body_len), options, false) }
}

/// As [`picaflor_write`], and the object does not stay in memory.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_write_nomem(
    store: *const CStore,
    key: *const c_void,
    key_len: usize,
    body: *const c_void,
    body_len: usize,
    options: *const CWriteOptions,
) -> c_int {
    // SAFETY: the same parameters, with the same promises.
    unsafe { write(store, (key, key_len), (body, body_len), options, true) }
}

/// Finds an object and pins it.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_read(
    store: *const CStore,
    key: *const c_void,
    key_len: usize,
    object: *mut *mut CObject,
) -> c_int {
    guard(|| {
        // SAFETY: a place for the handle, a live store, and `key_len` bytes.
        let (mut out, store, key) =
            unsafe { (Out::new("object", object)?, raw::handle("store", store), raw::bytes("key", key, key_len)) };
        out.set(std::ptr::null_mut());
        let object = store?.backend.get(key?)?.ok_or_else(Failure::absent)?;
        out.set(Box::into_raw(Box::new(CObject { object, body: OnceLock::new() })));
        Ok(())
    })
}

/// Gives an object back.
///
/// # Safety
/// As `picaflor.h` says: once, and nothing of the object is used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_done_read(object: *mut CObject) {
    guard(|| {
        if !object.is_null() {
            // SAFETY: not null, so `picaflor_read` made it of a box, and by the header it is given back once.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    });
}

/// The body in one piece.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_body(object: *const CObject, body: *mut *const c_void, len: *mut usize) -> c_int {
    guard(|| {
        // SAFETY: a live handle, and places for both results.
        let (object, mut start, mut length) =
            unsafe { (raw::handle("object", object)?, Out::new("body", body)?, Out::new("len", len)?) };
        let body = object.body()?;
        start.set(body.as_ptr().cast());
        length.set(body.len());
        Ok(())
    })
}

/// Copies a part of the body.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_read_at(
    object: *const CObject,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    copied: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: a live handle, `len` bytes of room, and a place for the result.
        let (object, mut room, mut out) =
            unsafe { (raw::handle("object", object)?, raw::room("buffer", buffer, len)?, Out::new("copied", copied)?) };
        out.set(0);
        let whole = room.left();
        object.object.read_at(offset, whole as u64, |piece| {
            room.put(piece);
            // With an error after it, this is how far it came.
            out.set(whole - room.left());
        })
    })
}

/// The metadata.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_metadata(
    object: *const CObject,
    metadata: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: a live handle, and places for both results.
        let (object, mut start, mut length) =
            unsafe { (raw::handle("object", object)?, Out::new("metadata", metadata)?, Out::new("len", len)?) };
        let metadata = object.object.metadata();
        start.set(metadata.as_ptr().cast());
        length.set(metadata.len());
        Ok(())
    })
}

/// A number that an object has; 0 for a null handle.
///
/// # Safety
/// `object` is null or a live handle.
unsafe fn number<T: Default>(object: *const CObject, of: impl FnOnce(&Found) -> T) -> T {
    // SAFETY: as the caller says.
    guard_value(|| Ok(of(&unsafe { raw::handle("object", object)? }.object)))
}

/// Bytes of the body.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_length(object: *const CObject) -> u64 {
    // SAFETY: a live handle.
    unsafe { number(object, Found::len) }
}

/// The group; 0 is none.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_group(object: *const CObject) -> u32 {
    // SAFETY: a live handle.
    unsafe { number(object, Found::group) }
}

/// The version: grows with every write of the store.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_generation(object: *const CObject) -> u64 {
    // SAFETY: a live handle.
    unsafe { number(object, Found::generation) }
}

/// When it expires, in milliseconds since the Unix epoch; 0 is never.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_expires(object: *const CObject) -> u64 {
    // SAFETY: a live handle.
    unsafe { number(object, Found::expires) }
}
