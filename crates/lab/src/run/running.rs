//! A run under way: what is asked of the store, request by request.

use picaflor::{Error as StoreError, Miss, Object, PutOptions, Store};

use super::{
    bodies::Bodies,
    hints::Hints,
    medium::Medium,
    outcome::Outcome,
    reads::Reads,
    setup::{Setup, failed, name_of},
    stream::Stream,
};
use crate::{Error, Result, method::Operation, trace::Request};

pub(super) struct Running<'a> {
    pub(super) setup: &'a Setup,
    pub(super) store: &'a Store,
    pub(super) bodies: Bodies,
    pub(super) reads: Reads,
    pub(super) medium: &'a Medium,
    pub(super) outcome: Outcome,
}

/// Requests between two words of progress.
pub(super) const WORD: u64 = 4096;

impl Running<'_> {
    pub(super) fn requests(&self) -> Result<impl Iterator<Item = Request> + use<>> {
        let all = self.setup.workload.requests(self.setup.seed)?;
        Ok(all.take(usize::try_from(self.setup.gets).unwrap_or(usize::MAX)))
    }

    pub(super) fn method(&mut self, stream: &Stream, progress: &dyn Fn(u64)) -> Result<()> {
        let Stream { operations, counts } = stream;
        let mut told = 0;
        for (done, operation) in (1..).zip(operations) {
            match operation {
                Operation::Read(request) => self.read(request)?,
                Operation::Write(request) => self.write(request)?,
                Operation::Delete(key) => self.delete(*key)?,
            }
            let gets = counts.gets * done / operations.len() as u64;
            if gets >= told + WORD {
                progress(gets - told);
                told = gets;
            }
        }
        self.outcome.gets = counts.gets;
        self.outcome.hits = counts.memory_hits + counts.reads;
        Ok(())
    }

    pub(super) fn cache(&mut self, progress: &dyn Fn(u64)) -> Result<()> {
        for request in self.requests()? {
            self.outcome.gets += 1;
            // A version that changed is another object to a cache: the proxy above would have revalidated it away.
            let key = request.versioned_key().to_le_bytes();
            let found = self.store.get(&key).map_err(failed(self.setup))?;
            self.outcome.bytes[0] += u128::from(request.size);
            match self.whole(&request, found)? {
                Some(_) => {
                    self.outcome.hits += 1;
                    self.outcome.bytes[1] += u128::from(request.size);
                }
                None => self.put(&key, &request, 0)?,
            }
            self.store.step().map_err(failed(self.setup))?;
            if self.outcome.gets.is_multiple_of(WORD) {
                progress(WORD);
            }
        }
        self.outcome.reads = self.outcome.hits;
        Ok(())
    }

    fn read(&mut self, request: &Request) -> Result<()> {
        self.outcome.reads += 1;
        let key = request.key.to_le_bytes();
        if self.reads.lazy {
            let get = self.store.get_async(&key);
            self.reads.add(Box::pin(get), *request);
            let done = self.reads.poll().map_err(failed(self.setup))?;
            self.read_done(done)?;
        } else {
            let object = self.store.get(&key).map_err(failed(self.setup))?;
            self.read_done(vec![(*request, object)])?;
        }
        self.step()
    }

    fn read_done(&mut self, done: Vec<(Request, Option<Object>)>) -> Result<()> {
        for (request, object) in done {
            self.outcome.lost += u64::from(self.whole(&request, object)?.is_none());
        }
        Ok(())
    }

    /// Reads all of an object, if it was found. A store that returns other bytes than it was given has no speed worth
    /// measuring. But a cache may lose a piece of a large object, as it may lose any object: then it has none.
    pub(super) fn whole(&self, request: &Request, found: Option<Object>) -> Result<Option<Object>> {
        let Some(object) = found else { return Ok(None) };
        let why = || format!("the store returned wrong bytes for key {:x}", request.key);
        match Bodies::are_in(request, &object) {
            Ok(true) => Ok(Some(object)),
            Ok(false) => Err(Error::experiment(name_of(self.setup), why())),
            Err(StoreError::Damaged { why, .. }) if why == Miss::ChunkMissing.to_string() => Ok(None),
            Err(error) => Err(failed(self.setup)(error)),
        }
    }

    fn write(&mut self, request: &Request) -> Result<()> {
        self.put(&request.key.to_le_bytes(), request, 0)?;
        self.step()
    }

    /// `group` is told if groups are.
    pub(super) fn put(&mut self, key: &[u8], request: &Request, group: u32) -> Result<()> {
        let hints = self.setup.hints;
        let said = hints.says_page() && request.referer != 0;
        let neighbour = said.then(|| request.referer.to_le_bytes().to_vec().into());
        let server = if hints.says_server() { (request.server >> 32) as u32 } else { 0 };
        let group = if hints == Hints::Group { group } else { 0 };
        let with = PutOptions::new().server(server).group(group).maybe_neighbour(neighbour);
        let body = self.bodies.of(request);
        match self.store.put_with(key, body, &with) {
            Ok(()) => {
                self.outcome.writes += 1;
                self.outcome.stored_bytes += body.len() as u64;
                Ok(())
            }
            Err(StoreError::Refused(_) | StoreError::Full { .. }) => {
                self.outcome.refused += 1;
                Ok(())
            }
            Err(error) => Err(failed(self.setup)(error)),
        }
    }

    fn delete(&mut self, key: u64) -> Result<()> {
        self.outcome.deletes += 1;
        self.store.invalidate(&key.to_le_bytes()).map_err(failed(self.setup))?;
        self.step()
    }

    pub(super) fn step(&self) -> Result<()> {
        self.store.step().map(drop).map_err(failed(self.setup))
    }

    /// Waits for the reads that are still out.
    pub(super) fn drain(&mut self) -> Result<()> {
        while !self.reads.is_empty() {
            let done = self.reads.poll().map_err(failed(self.setup))?;
            let is_idle = done.is_empty();
            self.read_done(done)?;
            self.step()?;
            if is_idle {
                self.medium.pass_time();
            }
        }
        Ok(())
    }
}
