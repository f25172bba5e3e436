//! Many puts or deletes in one call.
//!
//! Steps where objects are entries of tables: all are admitted → what is larger than one entry is put by itself → the
//! locks of all other keys → their entries and slots → one commit → pieces of what was replaced are dropped. Elsewhere:
//! one after the other, and then, on one volume, the wait for the commits that durability asks for, which one commit
//! serves; deletes by so many at a time, whose objects are read together.

use std::collections::HashMap;

use picaflor_common::KeyHash;

use crate::{
    Error, Put, Refusal, Result,
    base::layout::Layout,
    base::stats::add,
    handle::Store,
    ops::awaited::{Awaited, wait},
    ops::insert::Parts,
};

/// Deletes that are read, and committed, together.
const TOGETHER: usize = 64;

impl Store {
    /// Puts objects, in their order: of several with one key the last stays. When this returns, all are as durable as
    /// if each had been put by [`Store::put`]; where that is at once, those on one device share one commit,
    /// but for objects larger than the store writes in one piece. After a crash before that, each of them is there
    /// wholly, or its key is as it was. The preset `oba` lays them together, by optimized batch allocation (Iyengar et
    /// al. 2003, section 2.5).
    ///
    /// # Errors
    /// As [`Store::put`]. If a limit, admission or an expiry is why, nothing was put; else any of them may have been.
    pub fn put_many(&self, puts: &[Put<'_>]) -> Result<()> {
        let admit = |put: &Put<'_>| self.admit(put.key, Some(put.body.len() as u64), put.options);
        let expiries = puts.iter().map(admit).collect::<Result<Vec<u64>>>()?;
        let mut admitted = puts.iter().zip(expiries);
        if let Some(layout) = self.layout() {
            return self.put_many_in_layout(&**layout, admitted);
        }
        // By device: its last commit covers those before it.
        let mut last: Vec<Awaited> = vec![None; self.recovered_volumes().len()];
        let outcome = admitted.try_for_each(|(put, expires)| {
            if let Some((volume, number)) = self.put_admitted(put, expires)? {
                let home = volume.medium.number;
                last[home] = Some((volume, number));
            }
            Ok(())
        });
        last.into_iter().fold(outcome, |outcome, last| outcome.and(wait(last)))
    }

    /// As [`Store::put_many`], for any executor, in the blocking pool, with copies of keys and bodies. Nothing happens
    /// before the future is polled; after that all of it is done, whatever becomes of the future.
    ///
    /// # Errors
    /// As [`Store::put_many`].
    pub async fn put_many_async(&self, puts: &[Put<'_>]) -> Result<()> {
        let own = |put: &Put<'_>| (put.key.to_vec(), put.body.to_vec(), put.options.clone());
        let owned: Vec<_> = puts.iter().map(own).collect();
        self.spawn_blocking(move |store| {
            let puts = owned.iter().map(|(key, body, options)| Put { key, body, options });
            store.put_many(&puts.collect::<Vec<_>>())
        })
        .await
    }

    fn put_many_in_layout<'a>(
        &self,
        layout: &dyn Layout,
        admitted: impl Iterator<Item = (&'a Put<'a>, u64)>,
    ) -> Result<()> {
        let payload = |put: &Put<'_>| put.key.len() + put.options.metadata.len() + put.body.len();
        // The last of each key, in the order of their first ones.
        let mut numbers = HashMap::new();
        let mut last: Vec<(&Put<'_>, u64)> = Vec::new();
        let mut count = 0;
        for (put, expires) in admitted {
            count += 1;
            let number = *numbers.entry(put.key).or_insert(last.len());
            match last.get_mut(number) {
                Some(earlier) => *earlier = (put, expires),
                None => last.push((put, expires)),
            }
        }
        let (large, small): (Vec<_>, Vec<_>) = last.into_iter().partition(|(put, _)| payload(put) > self.payload_max());
        for (put, expires) in &large {
            self.put_admitted(put, *expires)?;
        }
        let hashes: Vec<KeyHash> = small.iter().map(|(put, _)| self.hasher().key(put.key)).collect();
        let _stripes = self.shared().lock_keys(hashes.iter().map(|hash| hash.short()));
        let drafts: Vec<_> = small
            .iter()
            .zip(&hashes)
            .map(|(&(&Put { key, body, options }, expires), &hash)| {
                let parts = Parts::whole(key, body, expires, options);
                let version = (self.shared().next_generation(), options.server);
                (parts.draft(hash, version, parts.payload_crc()), !options.bypass_memory)
            })
            .collect();
        layout.insert_batch(&drafts, &mut |number, former| self.drop_former(layout, hashes[number], former))?;
        let counters = &self.shared().counters;
        // Those that were put by themselves are counted.
        add(&counters.puts, count - large.len() as u64);
        add(&counters.put_bytes, drafts.iter().map(|(draft, _)| draft.header.payload_len() as u64).sum());
        Ok(())
    }

    /// Deletes objects, and says of each key whether it was there; what has to be read of them is read by many reads at
    /// once. Durable as [`Store::delete`] would have it; where that is at once, they share one commit, or each 64 of
    /// them do. After a crash before that, each of them is there or not.
    ///
    /// # Errors
    /// As [`Store::delete`]; then any of them may be deleted.
    pub fn delete_many(&self, keys: &[&[u8]]) -> Result<Vec<bool>> {
        let hashed = keys.iter().map(|&key| Ok((self.hash_to_delete(key)?, key))).collect::<Result<Vec<_>>>()?;
        let Some(layout) = self.layout() else { return self.delete_together(&hashed, TOGETHER) };
        if self.shared().options.read_only {
            return Err(Error::Refused(Refusal::ReadOnly));
        }
        let _stripes = self.shared().lock_keys(hashed.iter().map(|(hash, _)| hash.short()));
        let mut were_there = vec![false; keys.len()];
        layout.remove_batch(&hashed, &mut |number, former| {
            were_there[number] = true;
            self.drop_former(&**layout, hashed[number].0, former);
        })?;
        add(&self.shared().counters.deletes, keys.len() as u64);
        Ok(were_there)
    }

    /// As [`Store::delete_many`], for any executor, in the blocking pool. Nothing happens before the future is polled;
    /// after that all of it is done, whatever becomes of the future.
    ///
    /// # Errors
    /// As [`Store::delete_many`].
    pub async fn delete_many_async(&self, keys: &[&[u8]]) -> Result<Vec<bool>> {
        let owned: Vec<Box<[u8]>> = keys.iter().map(|&key| Box::from(key)).collect();
        let delete = move |store: &Self| store.delete_many(&owned.iter().map(|key| &key[..]).collect::<Vec<_>>());
        self.spawn_blocking(delete).await
    }
}
