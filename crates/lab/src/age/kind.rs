//! The stores that can be aged, by name.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($variant:ident = $name:literal, $what:literal);+ $(;)?) => {
        /// A store that can be aged.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Kind {
            $(#[doc = $what] #[serde(rename = $name)] $variant),+
        }

        impl Kind {
            /// All, with what each is.
            pub const ALL: &[(Self, &'static str, &'static str)] = &[$((Self::$variant, $name, $what)),+];
        }
    };
}

kinds! {
    Folder = "folder", "a file for each object, in a folder of this machine's file system";
    Ext4 = "ext4", "the same on a new ext4, on a loop device; needs root";
    Xfs = "xfs", "the same on a new XFS; needs root and xfsprogs";
    Btrfs = "btrfs", "the same on a new Btrfs; needs root and btrfs-progs";
    ModelUfs = "model-ufs", "the same on a model of UFS, Solaris 2.6, on a simulated disk, in its time";
    ModelNtfs = "model-ntfs", "the same on a model of NTFS, Windows NT 4.0";
    Sqlite = "sqlite", "a row for each object in a SQLite database, replaced by a transaction";
    Lmdb = "lmdb", "an entry for each object in an LMDB database, replaced by a transaction";
    Postgres = "postgresql", "a row for each object in PostgreSQL, which is started for the run; needs postgresql";
    PostgresLarge = "postgresql-lo", "a large object of PostgreSQL for each, written by requests";
    RocksDb = "rocksdb", "an entry for each object in RocksDB, with blob files; needs gcc and librocksdb-dev";
    PicaflorCache = "picaflor-cache", "this engine as a cache: the oldest goes when there is no room";
    PicaflorStore = "picaflor-store", "this engine as a store: nothing is evicted, clusters are compacted";
    Pmflf = "pmflf-pfl", "hash table on blocks from free lists (Iyengar, Jin & Challenger 2003)";
    Oba = "oba", "the same, where a batch is placed together";
    Stream = "stream", "next fit on slots (Markatos et al. 1999)";
    Buddy = "buddy", "slots of powers of two (Markatos et al. 1999)";
}

impl Kind {
    /// Those that need no root and no server.
    #[must_use]
    pub const fn without_root() -> &'static [Self] {
        &[Self::Folder, Self::Sqlite, Self::PicaflorCache, Self::PicaflorStore, Self::Pmflf]
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Whether it is a file system that is made for the run.
    #[must_use]
    pub const fn needs_root(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Btrfs)
    }

    /// Bytes of the smallest volume that it can be made on, and on which anything is to be seen.
    #[must_use]
    pub const fn least_volume(self) -> u64 {
        match self {
            Self::Xfs => 300 << 20,
            Self::Btrfs => 128 << 20,
            _ => 16 << 20,
        }
    }

    /// Whether objects are files.
    #[must_use]
    pub const fn is_files(self) -> bool {
        matches!(self, Self::Folder | Self::Ext4 | Self::Xfs | Self::Btrfs | Self::ModelUfs | Self::ModelNtfs)
    }

    /// Whether it is a database.
    #[must_use]
    pub const fn is_database(self) -> bool {
        matches!(self, Self::Sqlite | Self::Lmdb | Self::Postgres | Self::PostgresLarge | Self::RocksDb)
    }

    /// Whether it is a model, whose disk is simulated.
    #[must_use]
    pub const fn is_modelled(self) -> bool {
        matches!(self, Self::ModelUfs | Self::ModelNtfs)
    }

    /// Whether it is given an object request by request. A database takes a value whole, but for large objects, and so
    /// does a model.
    #[must_use]
    pub const fn knows_requests(self) -> bool {
        !(self.is_database() || self.is_modelled()) || matches!(self, Self::PostgresLarge)
    }

    /// Whether its volume can be compressed memory: it has one, and compresses nothing by itself.
    #[must_use]
    pub const fn can_be_on_zram(self) -> bool {
        !matches!(self, Self::Folder | Self::ModelUfs | Self::ModelNtfs | Self::PostgresLarge)
    }

    /// Whether its room can be fragmented before it is filled. A folder has the room of a whole file system, and a
    /// cache evicts in its order whatever was deleted.
    #[must_use]
    pub const fn can_be_fragmented(self) -> bool {
        !matches!(self, Self::Folder | Self::PicaflorCache)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let names: Vec<_> = Self::ALL.iter().map(|row| row.1).collect();
        let found = Self::ALL.iter().find(|row| row.1 == text);
        found.map(|row| row.0).ok_or_else(|| format!("`{text}` is none of {}", names.join(", ")))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
