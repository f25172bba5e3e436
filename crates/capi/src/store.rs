//! Opening, closing, and every call that hands out no object.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    time::Duration,
};

use picaflor::{Daemon, Priority};

use crate::{
    INTERFACE,
    backend::Backend,
    code::{Failure, guard, guard_value},
    options::{COptions, opening, unknown},
    raw::{self, Out},
};

/// What a `picaflor_store *` leads to.
pub struct CStore {
    pub(crate) backend: Backend,
    receipt: CString,
}

// Every C function is as safe as its caller keeps to the header: handles are alive, pointers lead to as many bytes as
// are said, results may be written. The blocks below rely on nothing else.

/// Opens a store.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_open(
    path: *const c_char,
    options: *const COptions,
    store: *mut *mut CStore,
) -> c_int {
    guard(|| {
        // SAFETY: a place for the handle, a text and options, as the header says.
        let (mut out, options) = unsafe { (Out::new("store", store)?, opening(path, options)) };
        out.set(std::ptr::null_mut());
        let (backend, receipt) = Backend::open(options?)?;
        let receipt = CString::new(receipt).unwrap_or_default();
        out.set(Box::into_raw(Box::new(CStore { backend, receipt })));
        Ok(())
    })
}

/// Makes everything durable, closes the store and frees the handle, whatever it returns.
///
/// # Safety
/// As `picaflor.h` says: no other call on this handle runs or comes later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_close(store: *mut CStore) -> c_int {
    guard(|| {
        if store.is_null() {
            return Ok(());
        }
        // SAFETY: not null, so `picaflor_open` made it of a box, and by the header it is given back once.
        let store = unsafe { Box::from_raw(store) };
        store.backend.close()
    })
}

/// Deletes an object.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_delete(store: *const CStore, key: *const c_void, key_len: usize) -> c_int {
    guard(|| {
        // SAFETY: a live handle, and `key_len` bytes.
        let (store, key) = unsafe { (raw::handle("store", store)?, raw::bytes("key", key, key_len)?) };
        if store.backend.delete(key)? { Ok(()) } else { Err(Failure::absent()) }
    })
}

/// Deletes an object without a look whether it is there, where the store is a cache.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_invalidate(store: *const CStore, key: *const c_void, key_len: usize) -> c_int {
    guard(|| {
        // SAFETY: a live handle, and `key_len` bytes.
        let (store, key) = unsafe { (raw::handle("store", store)?, raw::bytes("key", key, key_len)?) };
        store.backend.invalidate(key)
    })
}

/// Asks that two objects lie side by side.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_collocate(
    store: *const CStore,
    a: *const c_void,
    a_len: usize,
    b: *const c_void,
    b_len: usize,
) -> c_int {
    guard(|| {
        // SAFETY: a live handle, and two keys with their lengths.
        let (store, a, b) =
            unsafe { (raw::handle("store", store)?, raw::bytes("a", a, a_len)?, raw::bytes("b", b, b_len)?) };
        store.backend.collocate(a, b)
    })
}

/// Whether an object is there, and its group.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_lookup(
    store: *const CStore,
    key: *const c_void,
    key_len: usize,
    group: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: a live handle, and `key_len` bytes.
        let (store, key) = unsafe { (raw::handle("store", store)?, raw::bytes("key", key, key_len)?) };
        let found = store.backend.group_of(key)?.ok_or_else(Failure::absent)?;
        if !group.is_null() {
            // SAFETY: not null, so by the header a place for a number.
            unsafe { Out::new("group", group)? }.set(found);
        }
        Ok(())
    })
}

/// A call that is about a group.
///
/// # Safety
/// `store` is null or a live handle.
unsafe fn on_group(store: *const CStore, group: u32, set: impl FnOnce(&Backend) -> Result<(), Failure>) -> c_int {
    guard(|| {
        // SAFETY: as the caller says.
        let store = unsafe { raw::handle("store", store)? };
        if group == 0 {
            return Err(Failure::invalid("group 0 is no group; they are numbered from 1 on"));
        }
        set(&store.backend)
    })
}

/// Keeps a group's objects in memory longest.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_love(store: *const CStore, group: u32) -> c_int {
    // SAFETY: a live handle.
    unsafe { on_group(store, group, |backend| backend.set_priority(group, Priority::Loved)) }
}

/// Lets a group's objects leave memory first.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_hate(store: *const CStore, group: u32) -> c_int {
    // SAFETY: a live handle.
    unsafe { on_group(store, group, |backend| backend.set_priority(group, Priority::Hated)) }
}

/// Treats a group's objects as any.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_neither(store: *const CStore, group: u32) -> c_int {
    // SAFETY: a live handle.
    unsafe { on_group(store, group, |backend| backend.set_priority(group, Priority::Neither)) }
}

/// How long a group's writes may be volatile, in milliseconds; 0 turns syncs for their sake off.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_set_checkpoint(store: *const CStore, group: u32, milliseconds: u64) -> c_int {
    let interval = (milliseconds != 0).then(|| Duration::from_millis(milliseconds));
    // SAFETY: a live handle.
    unsafe { on_group(store, group, |backend| backend.set_checkpoint_interval(group, interval)) }
}

/// Divides the clusters that a group fills from now on into pages of so many bytes.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_set_page(store: *const CStore, group: u32, bytes: u32) -> c_int {
    // SAFETY: a live handle.
    unsafe { on_group(store, group, |backend| backend.set_page(group, bytes)) }
}

/// Runs a step of a daemon on this thread.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_run_daemon(store: *const CStore, daemon: u32, most: u64) -> c_int {
    guard(|| {
        // SAFETY: a live handle.
        let store = unsafe { raw::handle("store", store)? };
        let did = match daemon {
            0 => store.backend.step()?,
            1 => store.backend.run_daemon(Daemon::Pack)?,
            2 => store.backend.run_daemon(Daemon::PackFromHead)?,
            3 => store.backend.run_daemon(Daemon::FreeMemory(most))?,
            4 => store.backend.run_daemon(Daemon::FreeDisk)?,
            other => return Err(unknown("daemon", other)),
        };
        if did { Ok(()) } else { Err(Failure::absent()) }
    })
}

/// Returns when everything written and deleted before is durable.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_flush(store: *const CStore) -> c_int {
    guard(|| {
        // SAFETY: a live handle.
        let store = unsafe { raw::handle("store", store)? };
        store.backend.flush()
    })
}

/// Gives a store at work so many bytes in all.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_grow(store: *const CStore, capacity: u64) -> c_int {
    guard(|| {
        // SAFETY: a live handle.
        let store = unsafe { raw::handle("store", store)? };
        store.backend.grow(capacity)
    })
}

/// What opening kept and dropped, in words; null for a null handle.
///
/// # Safety
/// As `picaflor.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn picaflor_receipt(store: *const CStore) -> *const c_char {
    // SAFETY: a live handle.
    guard_value(|| Ok(Some(unsafe { raw::handle("store", store)? }.receipt.as_ptr()))).unwrap_or(std::ptr::null())
}

/// Version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn picaflor_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Number of the library's interface: at least the header's `PICAFLOR_INTERFACE`, or the library is too old for it.
#[unsafe(no_mangle)]
pub extern "C" fn picaflor_interface() -> u32 {
    INTERFACE
}
