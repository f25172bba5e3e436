//! A file system that is made for the run, on a volume of its own, with a file for each object.

use std::path::Path;

use super::{
    candidate::{Candidate, Located, Manner, Write, Wrote},
    folder::Files,
    volume::{self, BTRFS, EXT4, Volume, XFS},
};
use crate::{
    Error, Result,
    age::{kind::Kind, load::Load, marks, spec::Case},
};

pub(super) struct Mounted {
    files: Files,
    volume: Volume,
}

impl Mounted {
    pub(super) fn new(case: &Case, within: &Path) -> Result<Self> {
        let kind = case.candidate;
        if !volume::can_mount() {
            let why = "making and mounting a file system needs root and loop devices: run as root, or age `folder`";
            return Err(Error::experiment(kind.name(), why));
        }
        let make = match kind {
            Kind::Ext4 => EXT4,
            Kind::Xfs => XFS,
            _ => BTRFS,
        };
        let volume = Volume::new(case.on, case.volume, within, make)?;
        Ok(Self { files: Files::new(&volume.mount())?, volume })
    }
}

impl Candidate for Mounted {
    fn write(&mut self, writes: &[Write<'_>], manner: &Manner) -> Result<Wrote> {
        self.files.write(writes, manner)
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.files.delete(object)
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        self.files.read(object, into)
    }

    fn settle(&mut self) -> Result<()> {
        self.files.settle()
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        let told = self.files.locate(load)?.told;
        Ok(Located { marks: Some(marks::scan(self.volume.bytes()?, load)?), told })
    }

    fn written(&mut self) -> Option<u64> {
        self.volume.written()
    }
}
