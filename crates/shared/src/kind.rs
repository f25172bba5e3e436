//! What kind of error a server's store had, by a number that never changes.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// What kind of error the server's store had; the engine's errors and refusals by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)+
        }

        impl Kind {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name),+];

            /// The kind with this number; [`Kind::Other`] for one that came later.
            pub(crate) fn of(number: u8) -> Self {
                match number {
                    $($number => Self::$name,)+
                    _ => Self::Other,
                }
            }
        }
    };
}

kinds! {
    /// None of the others.
    Other = 0,
    /// A store has no room.
    Full = 1,
    /// Not admitted by the filter of the process that has the store.
    NotAdmitted = 2,
    /// Larger than a quarter of the device.
    TooLarge = 3,
    /// Past its expiry.
    Expired = 4,
    /// The device cannot keep up, and the client did not want to wait.
    Busy = 5,
    /// Room could not be made in time.
    NoCleanSpace = 6,
    /// The index has used its memory, or its checkpoints would no longer fit on the device.
    IndexFull = 7,
    /// Opened for reading only.
    ReadOnly = 8,
    /// The device failed.
    Io = 9,
    /// Bytes do not verify.
    Damaged = 10,
    /// A key or metadata outside the limits.
    Limit = 11,
    /// The store was closed.
    Closed = 12,
    /// The client sent what does not fit; the server ends the connection.
    BadFrame = 13,
    /// A crash came, and not all that is on the device was looked at since.
    Recovering = 14,
    /// An option that cannot work, and what would.
    Option = 15,
}

impl From<&picaflor::Error> for Kind {
    fn from(error: &picaflor::Error) -> Self {
        use picaflor::{Error, Refusal};
        match error {
            Error::Io { .. } => Self::Io,
            Error::Full { .. } => Self::Full,
            Error::Damaged { .. } => Self::Damaged,
            Error::Option { .. } => Self::Option,
            Error::Limit { .. } | Error::Length { .. } => Self::Limit,
            Error::Closed | Error::Daemon { .. } => Self::Closed,
            Error::Refused(why) => match why {
                Refusal::NotAdmitted => Self::NotAdmitted,
                Refusal::TooLarge => Self::TooLarge,
                Refusal::Expired => Self::Expired,
                Refusal::Busy => Self::Busy,
                Refusal::NoCleanSpace => Self::NoCleanSpace,
                Refusal::IndexFull => Self::IndexFull,
                Refusal::ReadOnly => Self::ReadOnly,
                Refusal::Recovering => Self::Recovering,
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_from_its_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(*kind as u8), *kind);
        }
        assert_eq!(Kind::of(200), Kind::Other);
    }

    #[test]
    fn every_refusal_has_a_kind() {
        for &why in picaflor::Refusal::ALL {
            assert_ne!(Kind::from(&picaflor::Error::Refused(why)), Kind::Other, "{why}");
        }
    }
}
