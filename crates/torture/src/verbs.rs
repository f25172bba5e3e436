//! The operations of a run: each calls the store, tells the oracle what happened, and judges the answer.

use std::{cell::Cell, time::Duration};

use bytes::Bytes;
use picaflor::{
    Durability, Error, Expiry, FetchError, Fetched, Priority, Put, PutOptions, Refusal, Reopening, Result, TryGet,
};

use crate::{
    dice::bytes_of,
    excuse::Excuse,
    operation::Draft,
    oracle::{Counts, Value, metadata_of},
    plan::Trouble,
    report::tracing,
    sabotage::Sabotage,
    state::{Outcome, Run, Stream},
    whims::Whims,
};

impl Run<'_> {
    fn put_options(&self, draft: &Draft) -> PutOptions {
        PutOptions::new()
            .metadata(metadata_of(draft.id, draft.len))
            .expiry(match draft.expires_in {
                None => Expiry::Default,
                Some(0) => Expiry::Never,
                Some(millis) => Expiry::After(Duration::from_millis(millis)),
            })
            .group(draft.group)
            .server(draft.server)
            .maybe_neighbour(draft.beside.map(|key| Bytes::copy_from_slice(&self.plan.keys[key])))
            .bypass_memory(draft.bypass)
            .no_wait(draft.no_wait)
    }

    fn value_of(&self, draft: &Draft) -> Value {
        let default = self.plan.default_ttl.map(|ttl| ttl.as_millis() as u64);
        let expires_in = draft.expires_in.map_or(default, |millis| Some(millis).filter(|millis| *millis > 0));
        let expires = expires_in.map_or(0, |millis| self.now() + millis);
        Value { id: draft.id, len: draft.len, planned: draft.len, expires, leeway: 0 }
    }

    pub(crate) fn put(&mut self, draft: Draft) -> Outcome {
        let value = self.value_of(&draft);
        let options = self.put_options(&draft);
        let Some(store) = &self.store else { return Ok(()) };
        if self.sabotage == Sabotage::ForgetReplacing && draft.id.is_multiple_of(5) {
            self.note_put(&draft, value, &Ok(()))?;
            return Ok(());
        }
        let result = store.put_with(&self.plan.keys[draft.key], &bytes_of(draft.id, draft.len), &options);
        self.note_put(&draft, value, &result)
    }

    /// Gives a store that lies in clusters all that there is for it.
    pub(crate) fn grow(&mut self) -> Outcome {
        let Some(store) = self.store.as_ref().filter(|_| self.plan.extended && self.plan.is_ring()) else {
            return Ok(());
        };
        let before = store.stats().capacity;
        let result = store.grow(Whims::most(self.plan));
        let grew = store.stats().capacity > before;
        self.tally.growths += u64::from(grew);
        // A superblock may say so though it failed.
        self.resized |= grew || result.is_err();
        result.or_else(|error| {
            self.errors += 1;
            self.must_be_excused(&error)
        })
    }

    /// Tells the oracle of a put that came to its end.
    fn note_put(&mut self, draft: &Draft, value: Value, result: &Result<()>) -> Outcome {
        self.note_departures();
        match result {
            Ok(()) => {
                let version = self.oracle.happened(draft.key, Some(value), true);
                self.promise_put(draft, version);
                Ok(())
            }
            Err(error) => {
                if self.put_was_declined(draft, error)? {
                    return Ok(());
                }
                self.oracle.happened(draft.key, Some(value), false);
                self.errors += 1;
                self.must_be_excused(error)
            }
        }
    }

    pub(crate) fn put_many(&mut self, drafts: &[Draft]) -> Outcome {
        let mut values: Vec<Value> = drafts.iter().map(|draft| self.value_of(draft)).collect();
        let began = self.now();
        let Some(store) = &self.store else { return Ok(()) };
        let owned: Vec<_> =
            drafts.iter().map(|draft| (bytes_of(draft.id, draft.len), self.put_options(draft))).collect();
        let put = |(draft, (body, options)): (&Draft, _)| Put::with(&self.plan.keys[draft.key], body, options);
        let puts: Vec<Put<'_>> =
            drafts.iter().zip(owned.iter().map(|(body, options)| (&body[..], options))).map(put).collect();
        let result = store.put_many(&puts);
        values.iter_mut().for_each(|value| value.leeway = self.now() - began);
        // Of one that was put by this call: before it was, or, to make room for what came after it, afterwards.
        let mut left = self.note_departures();
        left.retain(|key| drafts.iter().any(|draft| draft.key == *key));
        let Err(error) = result else {
            for (draft, value) in drafts.iter().zip(values) {
                let version = self.oracle.happened(draft.key, Some(value), true);
                self.promise_put(draft, version);
            }
            left.into_iter().for_each(|key| self.oracle.left(key));
            return Ok(());
        };
        // Whichever of them it was; the longest is the one that may be too large.
        let Some(longest) = drafts.iter().max_by_key(|draft| draft.len) else { return Ok(()) };
        let declined = self.put_was_declined(longest, &error)?;
        if matches!(error, Error::Refused(Refusal::TooLarge)) {
            return Ok(());
        }
        for (draft, value) in drafts.iter().zip(values) {
            self.oracle.happened(draft.key, Some(value), false);
        }
        left.into_iter().for_each(|key| self.oracle.left(key));
        if declined {
            return Ok(());
        }
        self.errors += 1;
        self.must_be_excused(&error)
    }

    pub(crate) fn delete_many(&mut self, first: usize, count: usize, stride: usize) -> Outcome {
        let Some(store) = &self.store else { return Ok(()) };
        let numbers: Vec<usize> = (0..count).map(|at| (first + at * stride) % self.plan.keys.len()).collect();
        let keys: Vec<&[u8]> = numbers.iter().map(|&number| &self.plan.keys[number][..]).collect();
        let result = store.delete_many(&keys);
        self.note_departures();
        match result {
            Ok(_) => {
                numbers.into_iter().for_each(|key| self.note_delete(key));
                Ok(())
            }
            Err(error) => {
                for key in numbers {
                    self.oracle.happened(key, None, false);
                }
                self.errors += 1;
                self.must_be_excused(&error)
            }
        }
    }

    /// Whether the put certainly did not happen, by its own word; and whether that word may be given here.
    fn put_was_declined(&mut self, draft: &Draft, error: &Error) -> Outcome<bool> {
        if tracing() {
            println!("       {error}");
        }
        let too_large = self.store.as_ref().is_some_and(|store| draft.len as u64 > store.object_max());
        let fine = match error {
            Error::Full { .. } => {
                self.tally.full += 1;
                !self.is_cache()
            }
            Error::Refused(why) => {
                self.tally.refused += 1;
                match why {
                    Refusal::TooLarge => too_large,
                    Refusal::Busy | Refusal::NoCleanSpace => draft.no_wait || !self.plan.is_honest(),
                    Refusal::IndexFull => false,
                    Refusal::Recovering => self.plan.reopening == Reopening::InSteps,
                    _ => !self.plan.is_honest(),
                }
            }
            _ => return Ok(false),
        };
        if fine && matches!(error, Error::Refused(Refusal::Busy | Refusal::NoCleanSpace)) {
            self.tally.excused.note(Excuse::Busy);
        }
        if fine { Ok(true) } else { Err(self.violation("the put is taken", error.to_string())) }
    }

    /// What durability the store has promised for this put.
    fn promise_put(&mut self, draft: &Draft, version: usize) {
        // A put has waited for the end of the opening.
        self.note_cold_start();
        let now = self.clock.now_nanos();
        let after = |time: Duration| Some(now.saturating_add(time.as_nanos() as u64));
        let at = draft.group as usize % self.groups.set.len();
        let own = if draft.group == 0 { None } else { self.groups.set[at] };
        let unknown = draft.group != 0 && self.groups.unknown[at];
        match (own, self.plan.durability) {
            (_, Durability::EveryPut) => self.oracle.durable(draft.key, version),
            _ if unknown => self.tally.excused.note(Excuse::UnknownBound),
            (Some(Some(millis)), _) => {
                self.oracle.promise(draft.key, version, after(Duration::from_millis(millis)), Counts::No);
            }
            (None, Durability::Bounded { time, puts }) => {
                self.oracle.promise(draft.key, version, after(time), Counts::Put);
                // Each volume counts its own, so of several the volatile ones need not be the newest.
                if self.plan.volumes == 1 {
                    self.oracle.at_most(Counts::Put, puts);
                }
            }
            (Some(None), _) | (None, _) => {}
        }
    }

    pub(crate) fn stream(&mut self, draft: Draft, piece: usize, announce: bool, finish: bool) -> Outcome {
        self.begin_stream(0, draft, announce)?;
        while self.streams[0].as_ref().is_some_and(|stream| stream.written < draft.len) {
            self.write(0, piece)?;
        }
        self.end(0, finish)
    }

    pub(crate) fn begin_stream(&mut self, slot: usize, draft: Draft, announce: bool) -> Outcome {
        // It may be finished long before its end.
        let value = Value { planned: 0, ..self.value_of(&draft) };
        let options = self.put_options(&draft).metadata(metadata_of(draft.id, 0));
        let Some(store) = &self.store else { return Ok(()) };
        let len = announce.then_some(draft.len as u64);
        match store.put_stream(&self.plan.keys[draft.key], len, options) {
            Ok(put) => self.streams[slot] = Some(Stream { put, draft, value, written: 0, announced: announce }),
            Err(error) => {
                self.streams[slot] = None;
                self.stream_failed(&draft, &error)?;
            }
        }
        Ok(())
    }

    /// A stream that failed before its end was never there.
    fn stream_failed(&mut self, draft: &Draft, error: &Error) -> Outcome {
        self.note_departures();
        if self.put_was_declined(draft, error)? {
            return Ok(());
        }
        self.errors += 1;
        self.must_be_excused(error)
    }

    pub(crate) fn write(&mut self, slot: usize, len: usize) -> Outcome {
        let Some(stream) = &mut self.streams[slot] else { return Ok(()) };
        let end = (stream.written + len).min(stream.draft.len);
        let body = bytes_of(stream.draft.id, end);
        let result = stream.put.write(&body[stream.written..]);
        stream.written = end;
        let draft = stream.draft;
        if let Err(error) = result {
            self.streams[slot] = None;
            self.stream_failed(&draft, &error)?;
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, slot: usize, finish: bool) -> Outcome {
        let Some(mut stream) = self.streams[slot].take() else { return Ok(()) };
        if !finish {
            drop(stream);
            self.note_departures();
            return Ok(());
        }
        stream.value.len = stream.written;
        let result = stream.put.finish();
        if stream.announced && stream.written != stream.draft.len {
            return match result {
                Err(Error::Length { .. }) => Ok(()),
                other => Err(self.violation("a body shorter than announced is refused", format!("{other:?}"))),
            };
        }
        let expired = stream.value.expires != 0 && stream.value.expires <= self.now();
        match result {
            Err(Error::Refused(Refusal::Expired)) if expired => Ok(()),
            result => self.note_put(&stream.draft, stream.value, &result),
        }
    }

    pub(crate) fn fetch(&mut self, draft: Draft) -> Outcome {
        let (value, began) = (self.value_of(&draft), self.now());
        let options = self.put_options(&draft);
        let Some(store) = self.store.clone() else { return Ok(()) };
        let puts = store.stats().counts.puts;
        let asked = Cell::new(false);
        let result = store.get_or_fetch(&self.plan.keys[draft.key], || {
            asked.set(true);
            Ok::<_, String>(Fetched::with(bytes_of(draft.id, draft.len), options))
        });
        let was_put = store.stats().counts.puts > puts;
        // It expires so long after the store had looked for it, and then asked.
        let value = Value { leeway: self.now().saturating_sub(began), ..value };
        if !asked.get() {
            return match result {
                Ok(object) => self.judge(draft.key, Ok(Some(object)), began),
                Err(FetchError::Store(error)) => self.judge(draft.key, Err(error), began),
                Err(error) => Err(self.violation("a fetch that nobody asked for", error.to_string())),
            };
        }
        self.judge(draft.key, Ok(None), began)?;
        self.note_departures();
        if was_put || !self.plan.is_honest() || self.has_crashed() {
            self.oracle.happened(draft.key, Some(value), was_put);
        }
        match result {
            Ok(object) if object.body().is_ok_and(|body| body == value.body()) => Ok(()),
            Ok(_) if was_put && draft.len > self.plan.cluster as usize / 2 => {
                self.tally.excused.note(Excuse::FetchedLarge);
                Ok(())
            }
            // It was put, and is gotten where it was not to stay in memory.
            Ok(object) if was_put && self.plan.trouble == Trouble::Lying => {
                self.judge(draft.key, Ok(Some(object)), began)
            }
            Ok(object) => Err(self.violation("what was fetched", format!("{object:?}"))),
            Err(FetchError::Store(error)) => self.must_be_excused(&error),
            Err(error) => Err(self.violation("what was fetched", error.to_string())),
        }
    }

    pub(crate) fn delete(&mut self, key: usize) -> Outcome {
        let Some(store) = &self.store else { return Ok(()) };
        if self.sabotage == Sabotage::ForgetDelete && self.tally.operations.is_multiple_of(4) {
            self.oracle.happened(key, None, true);
            return Ok(());
        }
        if self.sabotage == Sabotage::DeleteAnother && self.tally.operations.is_multiple_of(4) {
            let _ = store.delete(&self.plan.keys[(key + 1) % self.plan.keys.len()]);
        }
        let key_name = &self.plan.keys[key];
        let result = match self.tally.operations.is_multiple_of(2) {
            true => store.delete(key_name).map(drop),
            false => store.invalidate(key_name),
        };
        self.note_departures();
        match result {
            Ok(()) => {
                self.note_delete(key);
                Ok(())
            }
            Err(error) => {
                self.oracle.happened(key, None, false);
                self.errors += 1;
                self.must_be_excused(&error)
            }
        }
    }

    fn note_delete(&mut self, key: usize) {
        let version = self.oracle.happened(key, None, true);
        let within = self.plan.delete_time.as_nanos() as u64;
        let due = self.clock.now_nanos().saturating_add(within);
        self.oracle.promise(key, version, Some(due), Counts::Delete);
        // As for puts.
        if self.plan.volumes == 1 || self.plan.delete_count == 1 {
            self.oracle.at_most(Counts::Delete, self.plan.delete_count - 1);
        }
    }

    pub(crate) fn try_get(&mut self, key: usize) -> Outcome {
        let Some(store) = &self.store else { return Ok(()) };
        let began = self.now();
        match store.try_get(&self.plan.keys[key]) {
            TryGet::Hit(object) => self.judge(key, Ok(Some(object)), began),
            TryGet::Absent(_) => self.judge(key, Ok(None), began),
            TryGet::OnDevice => Ok(()),
        }
    }

    pub(crate) fn priority(&mut self, group: u32, priority: u8) -> Outcome {
        let priority = [Priority::Neither, Priority::Loved, Priority::Hated][usize::from(priority) % 3];
        if let Some(store) = &self.store {
            store.group(group).set(priority);
        }
        Ok(())
    }

    pub(crate) fn interval(&mut self, group: u32, millis: u64) -> Outcome {
        let bound = Some(millis).filter(|millis| *millis > 0);
        if let Some(store) = &self.store {
            store.group(group).set_checkpoint_interval(bound.map(Duration::from_millis));
            self.groups.change(group, bound);
        }
        Ok(())
    }

    pub(crate) fn page(&mut self, group: u32, bytes: u32) -> Outcome {
        if self.whims.preset != self.plan.preset {
            return Ok(());
        }
        match self.store.as_ref().map(|store| store.group(group).set_page(bytes)) {
            Some(Err(error)) => Err(self.violation(format!("pages of {bytes} bytes"), error.to_string())),
            _ => Ok(()),
        }
    }

    pub(crate) fn flush(&mut self) -> Outcome {
        let Some(store) = &self.store else { return Ok(()) };
        match store.flush() {
            Ok(()) => {
                self.oracle.all_durable();
                self.groups.flushed();
                Ok(())
            }
            Err(error) => {
                self.errors += 1;
                self.must_be_excused(&error)
            }
        }
    }

    pub(crate) fn step(&mut self, count: u32) -> Outcome {
        for _ in 0..count {
            let Some(store) = &self.store else { return Ok(()) };
            let now = self.clock.now_nanos();
            match store.step() {
                Ok(more) => {
                    self.note_departures();
                    self.oracle.daemons_ran(now);
                    if !more {
                        return Ok(());
                    }
                }
                Err(error) => {
                    self.errors += 1;
                    return self.must_be_excused(&error);
                }
            }
        }
        Ok(())
    }
}
