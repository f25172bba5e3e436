//! Put, find and take: between an object's parts and an entry of a table.
//!
//! An entry's value is the object's frame as it would lie in a cluster, without padding, with a mark of 0: what ties it
//! to its key is the table. Puts and takes are called with the key's lock held.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use picaflor_common::KeyHash;
use picaflor_format::frame::{HEADER, Header, Kind};
use picaflor_table::htod::{Table, runs};

use picaflor::{
    Error, Result,
    layout::{Draft, Former, Frame},
};

use super::{TableLayout, error::of_table};

/// Copies of an object in memory while it is put: its frame, its entry, what the device is given; and while one of them
/// grows, what it was.
const COPIES: u64 = 4;

/// The version that a frame is of, when it is not there any more.
fn former_of(frame: &[u8]) -> Former {
    let header = Header::verify(frame).ok();
    Former { bytes: frame.len() as u64, manifest: header.and_then(|header| header.manifest(frame)) }
}

impl TableLayout {
    fn table(&self, is_chunk: bool) -> &Table {
        if is_chunk { &self.chunks } else { &self.objects }
    }

    fn stamp(&self, hash: u64) -> &AtomicU64 {
        &self.stamps[hash as usize % self.stamps.len()]
    }

    /// Changes keys: no get is answered from memory meanwhile, and nothing older stays there afterwards.
    fn change<T>(&self, hashes: &[u64], change: impl FnOnce() -> T) -> T {
        for &hash in hashes {
            self.stamp(hash).fetch_add(1, Release);
            self.env.forget_object(hash);
        }
        let changed = change();
        for &hash in hashes {
            self.stamp(hash).fetch_add(1, Release);
        }
        self.account();
        changed
    }

    /// Puts an object, durably. With `stays` it may stay in memory. Returns what it replaced.
    ///
    /// # Errors
    /// [`Error::Full`], and then the key is as it was; [`Error::Io`], and then which of the two it is is not known.
    pub(super) fn insert_one(&self, draft: &Draft<'_>, stays: bool) -> Result<Option<Former>> {
        let len = HEADER + draft.header.payload_len();
        let room = self.put_room.take(COPIES * (len + draft.key.len()) as u64, &*self.env);
        let mut frame = vec![0; len];
        let header = draft.lay(0, &mut frame);
        let table = self.table(header.kind == Kind::Chunk);
        let replaced = self.change(&[draft.hash], || table.replace(draft.key, &frame).map_err(of_table));
        drop(room);
        let former = replaced.inspect_err(|error| self.note_failed(error))?.map(|old| former_of(&old));
        if stays {
            self.env.cache_object(&Arc::new(Frame::new(draft.hash, header, frame.into())));
        }
        Ok(former)
    }

    /// Deletes an object, durably.
    ///
    /// # Errors
    /// As [`TableLayout::insert_one`].
    pub(super) fn remove_one(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Former>> {
        let taken = self.change(&[hash.short()], || self.objects.take(key).map_err(of_table));
        let taken = taken.inspect_err(|error| self.note_failed(error))?;
        Ok(taken.map(|old| former_of(&old)))
    }

    /// Puts objects, each unlike the others in its key, that may stay in memory where that is said; all of them durable
    /// with one commit. `replaced` hears, once that is complete, of each that took the place of another.
    ///
    /// # Errors
    /// As [`TableLayout::insert_one`], of each key.
    pub(super) fn insert_many(
        &self,
        drafts: &[(Draft<'_>, bool)],
        replaced: &mut dyn FnMut(usize, Former),
    ) -> Result<()> {
        let mut formers = Vec::new();
        let mut begin = 0;
        // What of a batch is in memory twice.
        let len = |(draft, _): &(Draft<'_>, bool)| HEADER + draft.header.payload_len();
        let outcome = runs(drafts, self.payload_max, len).try_for_each(|part| {
            let number = begin;
            begin += part.len();
            self.put_part(part, |at, former| formers.push((number + at, former)))
        });
        self.settle_many(outcome, formers, replaced)
    }

    fn put_part(&self, part: &[(Draft<'_>, bool)], mut replaced: impl FnMut(usize, Former)) -> Result<()> {
        let len = |(draft, _): &(Draft<'_>, bool)| HEADER + draft.header.payload_len();
        let bytes = COPIES * part.iter().map(|it| (len(it) + it.0.key.len()) as u64).sum::<u64>();
        let room = self.put_room.take(bytes, &*self.env);
        let mut frames = Vec::with_capacity(part.len());
        for (draft, _) in part {
            let mut frame = vec![0; HEADER + draft.header.payload_len()];
            frames.push((draft.lay(0, &mut frame), frame));
        }
        let entries: Vec<(&[u8], &[u8])> =
            part.iter().zip(&frames).map(|((draft, _), (_, frame))| (draft.key, &frame[..])).collect();
        let hashes: Vec<u64> = part.iter().map(|(draft, _)| draft.hash).collect();
        let outcome: Result<()> = self.change(&hashes, || {
            let see = |at, former: Option<Vec<u8>>| former.iter().for_each(|it| replaced(at, former_of(it)));
            self.objects.replace_later(&entries, see).map_err(of_table)
        });
        drop(room);
        outcome?;
        for ((draft, stays), (header, frame)) in part.iter().zip(frames) {
            if *stays {
                self.env.cache_object(&Arc::new(Frame::new(draft.hash, header, frame.into())));
            }
        }
        Ok(())
    }

    /// Deletes objects, all of them durably with one commit. `taken` hears, once that is complete, of each that was
    /// there.
    ///
    /// # Errors
    /// As [`TableLayout::insert_one`], of each key.
    pub(super) fn remove_many(&self, keys: &[(KeyHash, &[u8])], taken: &mut dyn FnMut(usize, Former)) -> Result<()> {
        let mut formers = Vec::new();
        let hashes: Vec<u64> = keys.iter().map(|(hash, _)| hash.short()).collect();
        let names: Vec<&[u8]> = keys.iter().map(|(_, key)| *key).collect();
        let outcome = self.change(&hashes, || {
            let see = |at, former: Option<Vec<u8>>| {
                formers.extend(former.map(|it| (at, former_of(&it))));
            };
            self.objects.take_later(&names, see).map_err(of_table)
        });
        self.settle_many(outcome, formers, taken)
    }

    /// The one commit. What was done before a failure is made durable too: its chunks may go only then.
    fn settle_many(
        &self,
        outcome: Result<()>,
        formers: Vec<(usize, Former)>,
        see: &mut dyn FnMut(usize, Former),
    ) -> Result<()> {
        if let Err(error) = self.tables.commit() {
            self.may_have_orphans.store(true, Relaxed);
            return Err(of_table(error));
        }
        formers.into_iter().for_each(|(at, former)| see(at, former));
        outcome
    }

    /// The version that a key has.
    ///
    /// # Errors
    /// As [`TableLayout::read`].
    pub(super) fn generation_of(&self, key: &[u8]) -> Result<Option<u64>> {
        let Some(value) = self.objects.get(key).map_err(of_table)? else { return Ok(None) };
        self.verified(&value, key, false).map(|header| Some(header.generation))
    }

    /// Reads an object, or a chunk of one, and lets it stay in memory.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if what lies there is not whole.
    pub(super) fn read(&self, hash: KeyHash, key: &[u8], is_chunk: bool) -> Result<Option<Arc<Frame>>> {
        let hash = hash.short();
        let stamp = self.stamp(hash).load(Acquire);
        self.env.note_read();
        let Some(value) = self.table(is_chunk).get(key).map_err(of_table)? else { return Ok(None) };
        let header = self.verified(&value, key, is_chunk)?;
        self.env.count_read();
        let frame = Arc::new(Frame::new(hash, header, value.into()));
        if let Some(_stripe) = self.env.try_lock_key(hash)
            && self.stamp(hash).load(Acquire) == stamp
        {
            self.env.cache_object(&frame);
        }
        Ok(Some(frame))
    }

    /// The header of a value, if that is the whole frame of this key and nothing else.
    pub(super) fn verified(&self, value: &[u8], key: &[u8], is_chunk: bool) -> Result<Header> {
        let damaged = |why: String| Error::Damaged {
            place: format!("{}: object {:?}", self.place, String::from_utf8_lossy(key)),
            why,
            mend: "put it again, or delete it".into(),
        };
        let header = Header::verify(value).map_err(|why| damaged(why.to_string()))?;
        let fits = header.key(value) == key && (header.kind == Kind::Chunk) == is_chunk;
        if fits && value.len() == HEADER + header.payload_len() {
            Ok(header)
        } else {
            Err(damaged("it is another object's frame".into()))
        }
    }
}
