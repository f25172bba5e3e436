//! File systems modelled on a simulated disk, for layouts that keep a file per object or one large file.
//!
//! What is modelled is where blocks lie, what is in memory, and which of it is read and written when: the sequence of
//! disk operations of each call, on the disk's virtual time. Contents are kept beside the model and cost nothing.
//!
//! Two faces: [`FileSystem`] is a [`Folder`](picaflor_device::Folder); [`BigFile`], one preallocated file of it, is a
//! [`Device`](picaflor_device::Device). Calls block, and a call that waits moves the clock; several clients of an
//! executor have theirs beside one another with [`FileSystem::beside`].
//!
//! Not modelled: crashes (put the faulty device around a [`BigFile`] for that), indirect blocks of a [`BigFile`]
//! (they stay in memory), several calls of a [`BigFile`] at a time.

mod big_file;
mod core;
mod directory;
mod index;
mod layout;
mod pages;
mod profile;
mod steps;
mod system;
#[cfg(test)]
mod tests;

pub(crate) use self::profile::merge;
pub use self::{
    big_file::BigFile,
    pages::IoCounts,
    profile::{
        DaemonProfile, FsProfile, JournalProfile, LayoutProfile, MemoryProfile, Metadata, ProcessorProfile,
        RecordsProfile,
    },
    system::FileSystem,
};
