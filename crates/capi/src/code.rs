//! From the engine's errors to numbers and texts, and the border that no panic crosses.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use picaflor::{Error, Refusal};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)+) => {
        /// What a call returns: 0, or what went wrong, less than 0. The numbers stay.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)+
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its name in the header.
            pub const fn name(self) -> &'static CStr {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

codes! {
    /// It was done.
    Ok = 0, c"PICAFLOR_OK";
    /// No object has this key, or none that may be returned.
    Absent = -1, c"PICAFLOR_ABSENT";
    /// A null pointer, or a value that the header does not have.
    Invalid = -2, c"PICAFLOR_INVALID";
    /// An option of opening that cannot work.
    Option = -3, c"PICAFLOR_OPTION";
    /// A key or metadata outside the limits of the format.
    Limit = -4, c"PICAFLOR_LIMIT";
    /// A store has no room.
    Full = -5, c"PICAFLOR_FULL";
    /// Larger than a quarter of the device.
    TooLarge = -6, c"PICAFLOR_TOO_LARGE";
    /// Past its expiry before it was written.
    Expired = -7, c"PICAFLOR_EXPIRED";
    /// The device cannot keep up, and the caller did not want to wait.
    Busy = -8, c"PICAFLOR_BUSY";
    /// No room could be made in time.
    NoCleanSpace = -9, c"PICAFLOR_NO_CLEAN_SPACE";
    /// The index has used its share of the memory.
    IndexFull = -10, c"PICAFLOR_INDEX_FULL";
    /// Opened for reading, or writing has stopped after a failure of the device.
    ReadOnly = -11, c"PICAFLOR_READ_ONLY";
    /// The device, the file system or the lock on the file said no.
    Io = -12, c"PICAFLOR_IO";
    /// Bytes do not verify.
    Damaged = -13, c"PICAFLOR_DAMAGED";
    /// Another version of the format.
    Version = -14, c"PICAFLOR_VERSION";
    /// The store was closed.
    Closed = -15, c"PICAFLOR_CLOSED";
    /// A fault of this library.
    Defect = -16, c"PICAFLOR_DEFECT";
    /// A reason that came after this header.
    Other = -17, c"PICAFLOR_OTHER";
    /// A crash came, and not all that is on the device was looked at since.
    Recovering = -18, c"PICAFLOR_RECOVERING";
}

/// Why a call did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self { code: Code::Invalid, text: text.into() }
    }

    pub(crate) fn absent() -> Self {
        Self { code: Code::Absent, text: "no object has this key".into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Io { .. } => Code::Io,
            Error::Full { .. } => Code::Full,
            Error::Damaged { .. } => Code::Damaged,
            Error::Version { .. } => Code::Version,
            Error::Option { .. } => Code::Option,
            Error::Limit { .. } | Error::Length { .. } => Code::Limit,
            Error::Closed | Error::Daemon { .. } => Code::Closed,
            Error::Refused(why) => match why {
                Refusal::TooLarge => Code::TooLarge,
                Refusal::Expired => Code::Expired,
                Refusal::Busy => Code::Busy,
                Refusal::NoCleanSpace => Code::NoCleanSpace,
                Refusal::IndexFull => Code::IndexFull,
                Refusal::ReadOnly => Code::ReadOnly,
                Refusal::Recovering => Code::Recovering,
                _ => Code::Other,
            },
            _ => Code::Other,
        };
        Self { code, text: error.to_string() }
    }
}

thread_local! {
    /// What the last failed call of this thread had to say.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call: what it returns becomes a code, its text is kept for the thread, a panic is a [`Code::Defect`].
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // The engine's locks are not poisoned by a panic; what is broken behind one is for the caller to give up.
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Code::Ok as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { code: Code::Defect, text: said(panic.as_ref()) },
    };
    let code = failure.code as c_int;
    let bytes: Vec<u8> = failure.text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    // Without zero bytes it cannot fail; in a thread that is ending it will not be read.
    let text = CString::new(bytes).unwrap_or_default();
    let _ = LAST.try_with(|last| last.replace(text));
    code
}

/// As [`guard`], for calls that return a value and have no code for what goes wrong.
pub(crate) fn guard_value<T: Default>(call: impl FnOnce() -> Result<T, Failure>) -> T {
    let mut value = T::default();
    guard(|| {
        value = call()?;
        Ok(())
    });
    value
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a fault of the library, close the store: {}", text.unwrap_or("without a word"))
}

/// The name of a code, such as `PICAFLOR_FULL`; `unknown` for a number that is none.
#[unsafe(no_mangle)]
pub extern "C" fn picaflor_error_name(code: c_int) -> *const c_char {
    let found = Code::ALL.iter().find(|known| **known as c_int == code);
    found.map_or(c"unknown", |code| code.name()).as_ptr()
}

/// What the last failed call of this thread had to say: the place, and the mend where there is one.
#[unsafe(no_mangle)]
pub extern "C" fn picaflor_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        LAST.with(|last| last.borrow().to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_becomes_a_code_and_does_not_cross() {
        assert_eq!(guard(|| panic!("at the {}", "border")), Code::Defect as c_int);
        assert!(text().contains("at the border"), "{}", text());
        assert_eq!(guard_value::<u64>(|| panic!("here")), 0);
        assert!(text().ends_with("here"), "{}", text());
    }

    #[test]
    fn a_text_is_the_threads_own_and_stays_until_the_next_failure() {
        assert_eq!(guard(|| Err(Failure::invalid("a\0b"))), Code::Invalid as c_int);
        assert_eq!(guard(|| Ok(())), Code::Ok as c_int);
        std::thread::spawn(|| assert_eq!(text(), "")).join().unwrap();
        assert_eq!(text(), "ab");
    }

    #[test]
    fn every_refusal_has_a_code_but_that_of_a_filter_which_c_cannot_set() {
        for &why in Refusal::ALL {
            let is_other = Failure::from(Error::Refused(why)).code == Code::Other;
            assert_eq!(is_other, why == Refusal::NotAdmitted, "{why}");
        }
    }

    #[test]
    fn codes_are_dense_and_named_once() {
        for (at, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as i32, -(at as i32), "{code:?}");
        }
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
