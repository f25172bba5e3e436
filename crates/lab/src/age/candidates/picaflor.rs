//! This engine, with any row of the table of presets that lies in one file. A safe write is a put that is durable when
//! it returns.
//!
//! The store has no threads of its own and takes a step after each operation, so where things lie is a function of the
//! case. It writes to a real file.

use std::path::{Path, PathBuf};

use picaflor::{Daemons, Durability, Error as StoreError, Mode, PutOptions, PutStream, Store};
use picaflor_device::Clock;

use super::candidate::{Candidate, Located, Manner, Told, Write, Wrote, force_and_forget};
use crate::{
    Error, Result,
    age::{
        extents::{self, Extent},
        kind::Kind,
        load::Load,
        marks,
        spec::{Case, Request},
    },
    run::Kept,
};

/// Steps of the daemons after an operation, at most.
const STEPS: usize = 64;

pub(super) struct Engine {
    name: &'static str,
    path: PathBuf,
    store: Store,
    _kept: Kept,
}

fn key(object: u32) -> [u8; 4] {
    object.to_be_bytes()
}

impl Engine {
    pub(super) fn new(case: &Case, folder: &Path) -> Result<Self> {
        let kept = Kept::made_in(folder)?;
        let path = kept.path().join("volume");
        let (preset, mode) = match case.candidate {
            Kind::PicaflorCache => ("picaflor", Mode::Cache),
            Kind::PicaflorStore => ("picaflor", Mode::Store),
            // These evict when there is no room; the volume is never that full.
            Kind::Stream | Kind::Buddy => (case.candidate.name(), Mode::Cache),
            other => (other.name(), Mode::Store),
        };
        let name = case.candidate.name();
        let failed = |source| Error::Store { name: name.into(), source };
        let options = picaflor_literature::preset(preset).map_err(failed)?;
        let options = options
            .place(path.as_path())
            .capacity(case.volume)
            // An object is in memory several times while it is put.
            .memory((64 << 20).max(case.object.to * 8 * case.writers as u64).max((case.volume / 64).min(1 << 30)))
            .mode(mode)
            .durability(Durability::EveryPut)
            .daemons(Daemons::Manual)
            .clock(Clock::virtual_at(1_700_000_000_000))
            .seed(case.seed);
        let store = Store::open(options).map_err(failed)?;
        Ok(Self { name, path, store, _kept: kept })
    }

    fn failed(&self) -> impl Fn(StoreError) -> Error + use<> {
        let name = self.name;
        move |source| Error::Store { name: name.into(), source }
    }

    fn try_write(&self, writes: &[Write<'_>], manner: &Manner) -> picaflor::Result<()> {
        let told = |write: &Write<'_>| manner.announce.then(|| write.len());
        if let ([write], Request::All) = (writes, manner.request) {
            return self.store.put(&key(write.version.object), write.body);
        }
        let mut open: Vec<(PutStream, _)> = Vec::with_capacity(writes.len());
        for write in writes {
            let stream = self.store.put_stream(&key(write.version.object), told(write), PutOptions::default())?;
            open.push((stream, write.requests(manner)));
        }
        let mut wrote = true;
        while std::mem::take(&mut wrote) {
            for (stream, requests) in &mut open {
                let Some(request) = requests.next() else { continue };
                stream.write(request)?;
                wrote = true;
            }
        }
        open.into_iter().try_for_each(|(stream, _)| stream.finish())
    }

    /// Where the store says that objects lie; none where it does not know.
    fn told(&self, load: &Load) -> Result<Option<Told>> {
        let mut all = Vec::new();
        for version in load.live() {
            let Some(found) = self.store.locate(&key(version.object)).map_err(self.failed())? else { continue };
            if found.iter().map(|extent| extent.len).sum::<u64>() != version.len {
                return Ok(None);
            }
            let parts = found.iter().map(|extent| Extent { offset: extent.offset, len: extent.len });
            all.push((version.object, extents::joined(parts)));
        }
        Ok(Some(all))
    }

    fn step(&self) -> Result<()> {
        for _ in 0..STEPS {
            if !self.store.step().map_err(self.failed())? {
                break;
            }
        }
        Ok(())
    }
}

impl Candidate for Engine {
    fn write(&mut self, writes: &[Write<'_>], manner: &Manner) -> Result<Wrote> {
        let wrote = match self.try_write(writes, manner) {
            Ok(()) => Wrote::Done,
            Err(error @ (StoreError::Full { .. } | StoreError::Refused(_))) => Wrote::Full(error.to_string()),
            Err(error) => return Err(self.failed()(error)),
        };
        self.step()?;
        Ok(wrote)
    }

    fn delete(&mut self, object: u32) -> Result<()> {
        self.store.invalidate(&key(object)).map_err(self.failed())?;
        self.step()
    }

    fn has(&mut self, object: u32) -> Result<bool> {
        self.store.contains(&key(object)).map_err(self.failed())
    }

    fn read(&mut self, object: u32, into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        let Some(found) = self.store.get(&key(object)).map_err(self.failed())? else { return Ok(false) };
        into.extend_from_slice(&found.body().map_err(self.failed())?);
        Ok(true)
    }

    fn settle(&mut self) -> Result<()> {
        self.store.flush().map_err(self.failed())?;
        force_and_forget(&self.path)
    }

    fn locate(&mut self, load: &Load) -> Result<Located> {
        Ok(Located { marks: Some(marks::scan(&self.path, load)?), told: self.told(load)? })
    }

    fn written(&mut self) -> Option<u64> {
        Some(self.store.stats().counts.device_written)
    }
}
