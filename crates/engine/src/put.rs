//! Put: limits and admission → placement picks an open buffer → the object is framed into it → the index
//! says *buffered* → return, or wait for the group commit that durability asks for.
//!
//! A put of more than one cluster becomes a stream of chunks (`stream.rs`).

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use picaflor_format::frame::{self, Header, KEY_MAX, Kind, META_MAX, Manifest};

use crate::{
    Daemons, Durability, Error, Expiry, Mode, PutOptions, Refusal, Result,
    append::{Blocked, PATIENCE, Purpose},
    buffers::Draft,
    hash::KeyHash,
    many::Put,
    placement::Class,
    stats::add,
    store::Store,
    tabled::Tabled,
    volume::Volume,
};

/// A frame's fields that a put decides.
pub(crate) struct Parts<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) metadata: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) expires: u64,
    /// Where it must go: a large object's chunks stay together.
    pub(crate) volume: Option<&'a Arc<Volume>>,
    pub(crate) options: &'a PutOptions,
}

impl<'a> Parts<'a> {
    pub(crate) fn draft(&self, hash: KeyHash, (generation, server): (u64, u32), payload_crc: u32) -> Draft<'a> {
        let header = Header {
            mark: 0,
            generation,
            expires: self.expires,
            body_len: self.body.len() as u32,
            meta_len: self.metadata.len() as u32,
            key_len: self.key.len() as u16,
            kind: self.kind,
            group: self.options.group,
            server,
            payload_crc,
        };
        Draft { hash: hash.short(), header, key: self.key, metadata: self.metadata, body: self.body }
    }
}

/// What became of an object that was to be framed.
pub(crate) enum Framed {
    /// It is in this volume.
    In(Arc<Volume>),
    /// It is in a table, and durable.
    Durable,
    /// Nowhere: there is room for it in pieces of so many bytes of body only.
    Scattered(usize),
}

impl Store {
    /// Puts an object; an older one with this key is replaced. When this returns, the object is found by
    /// every get; it is durable as [`Durability`] says.
    ///
    /// # Errors
    /// [`Error::Refused`] if the put was declined, [`Error::Full`] if a store has no room,
    /// [`Error::Limit`] for a key or metadata of a forbidden length, [`Error::Io`] after a device failure.
    pub fn put(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<()> {
        wait(self.put_framed(key, body, options)?)
    }

    /// As [`Store::put`] for tasks: framing is done before the future is returned, and only the wait for durability, if
    /// it is asked for, is left to it. Framing waits for room where there is none, unless [`PutOptions::no_wait`] says
    /// otherwise, and a body larger than a cluster for each of its pieces: such a one is better given to a
    /// [`PutStream`](crate::PutStream), by [`write_async`](crate::PutStream::write_async).
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_async(
        &self,
        key: &[u8],
        body: &[u8],
        options: &PutOptions,
    ) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let framed = self.put_framed(key, body, options);
        async move {
            match framed? {
                Some((volume, number)) => volume.commit_async(number).await,
                None => Ok(()),
            }
        }
    }

    /// The put but for the wait: the commit that has to complete first, if any.
    fn put_framed(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<Awaited> {
        let expires = self.admit(key, Some(body.len() as u64), options)?;
        self.put_admitted(&Put { key, body, options }, expires)
    }

    /// The same of what is admitted.
    pub(crate) fn put_admitted(&self, &Put { key, body, options }: &Put<'_>, expires: u64) -> Result<Awaited> {
        if key.len() + options.metadata.len() + body.len() > self.payload_max() {
            let mut stream = self.admitted_stream(key, Some(body.len() as u64), options.clone(), expires)?;
            stream.write(body)?;
            return stream.finish().map(|()| None);
        }
        let hash = self.hasher().key(key);
        let parts = Parts { kind: Kind::Whole, key, metadata: &options.metadata, body, expires, volume: None, options };
        let volume = match self.frame_in(hash, &parts)? {
            Framed::In(volume) => Some(volume),
            Framed::Durable => None,
            Framed::Scattered(piece_max) => {
                return self.put_cut(key, body, options, expires, piece_max).map(|()| None);
            }
        };
        add(&self.shared().counters.puts, 1);
        Ok(volume.and_then(|volume| self.settle_put(volume, options.group)))
    }

    /// Limits, expiry and admission. Returns when the object expires.
    pub(crate) fn admit(&self, key: &[u8], len: Option<u64>, options: &PutOptions) -> Result<u64> {
        let shared = self.shared();
        // Before anything that may have to wait for the end of the opening.
        let now = shared.clock.now_millis();
        // Beside the key there is room for the manifest of a large object at least.
        let meta_max = META_MAX.min(self.payload_max().saturating_sub(key.len() + Manifest::LEN));
        for (what, given, least, max) in
            [("key", key.len(), 1, KEY_MAX), ("metadata", options.metadata.len(), 0, meta_max)]
        {
            if given < least || given > max {
                return Err(Error::Limit { what, len: given, max });
            }
        }
        if shared.options.read_only {
            return Err(self.refuse(Refusal::ReadOnly));
        }
        if self.volumes().iter().any(|volume| volume.recovers_in_steps()) {
            return Err(self.refuse(Refusal::Recovering));
        }
        let expires = self.expires(options, now);
        if options.expiry != Expiry::Never && expires != 0 && expires <= now || options.expiry == Expiry::At(0) {
            return Err(self.refuse(Refusal::Expired));
        }
        if len.is_some_and(|len| len > self.object_max()) {
            return Err(self.refuse(Refusal::TooLarge));
        }
        if shared.options.admission.as_ref().is_some_and(|admits| !admits(key, len)) {
            return Err(self.refuse(Refusal::NotAdmitted));
        }
        if shared.index_is_above(8) && self.volumes().iter().any(|volume| volume.index.is_loaded()) {
            return Err(self.refuse(Refusal::IndexFull));
        }
        if self.volumes().iter().any(|volume| volume.checkpoints_are_above(8)) {
            return Err(self.refuse(Refusal::IndexFull));
        }
        Ok(expires)
    }

    /// When it expires, in milliseconds since 1970; 0 is never.
    pub(crate) fn expires(&self, options: &PutOptions, now: u64) -> u64 {
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        match options.expiry {
            Expiry::Never => 0,
            Expiry::At(millis) => millis,
            Expiry::After(time) => after(time),
            Expiry::Default => self.shared().options.default_ttl.map_or(0, after),
        }
    }

    pub(crate) fn refuse(&self, why: Refusal) -> Error {
        self.shared().counters.refused(why);
        Error::Refused(why)
    }

    /// Frames one object, waiting for room as long as the caller lets it.
    pub(crate) fn frame_in(&self, hash: KeyHash, parts: &Parts<'_>) -> Result<Framed> {
        let shared = self.shared();
        if let Some(tabled) = self.tabled() {
            return self.put_in_table(tabled, hash, parts);
        }
        // On its way from memory while the checksum is made.
        self.volumes().iter().for_each(|volume| volume.index.expect(hash.short()));
        let payload_crc = frame::payload_crc(parts.key, parts.metadata, parts.body);
        let clock = &shared.clock;
        let mut waited_since = None;
        let (mut rounds, mut tries) = (0, 0);
        loop {
            let (volume, blocked) = {
                let _stripe = self.lock_key(hash);
                let (volume, class) = match parts.volume {
                    Some(given) => (Arc::clone(given), self.class(parts.kind, parts.options)),
                    None => self.route(hash, parts.key, parts.options)?,
                };
                let own = self.own(&volume, hash, parts.key, parts.kind)?;
                // What may fail comes before the object is framed: a put that failed leaves the version before.
                let rivals = match parts.kind {
                    Kind::Chunk => Vec::new(),
                    _ => self.rivals_of(&volume, hash, parts.key)?,
                };
                // Drawn under the key's lock, so that of two puts the later one has the larger generation.
                let generation = shared.next_generation();
                let beside = parts.options.neighbour.as_ref().map(|key| self.hasher().key(key).short());
                let (class, server) = Self::company(&volume, class, parts, (hash.short(), beside));
                let draft = parts.draft(hash, (generation, server), payload_crc);
                let old = own.as_ref().map(|own| own.word);
                match volume.append(&draft, class, beside, old, Purpose::Put)? {
                    Ok(()) => {
                        let bytes = draft.header.payload_len() as u64;
                        add(&shared.counters.put_bytes, bytes);
                        shared.budget.earn(bytes);
                        volume.placer.note_put(beside.is_some());
                        if let Some(beside) = beside {
                            volume.placer.hint(beside, hash.short());
                        }
                        rivals.into_iter().for_each(|(rival, own)| rival.drop_version(hash, &own, own.generation));
                        if let Some(manifest) = own.and_then(|own| own.manifest) {
                            self.drop_chunks(hash, manifest);
                        }
                        return Ok(Framed::In(volume));
                    }
                    // A buffer was retired, or a cluster read in, at this very moment.
                    Err(Blocked::Moved) => continue,
                    Err(blocked) => (volume, blocked),
                }
            };
            let blocked = match blocked {
                Blocked::Waiting => match volume.pack_cluster()? {
                    Ok(()) => continue,
                    Err(blocked) => blocked,
                },
                blocked => blocked,
            };
            if parts.options.no_wait {
                return Err(self.refuse(blocked.into()));
            }
            let whole = parts.kind == Kind::Whole && blocked == Blocked::Space;
            let payload = parts.key.len() + parts.metadata.len() + parts.body.len();
            if let Some(piece_max) = whole.then(|| volume.cut_for(payload, tries)).flatten() {
                return Ok(Framed::Scattered(piece_max));
            }
            tries += 1;
            let since = *waited_since.get_or_insert_with(|| clock.now_nanos());
            // Compacting each cluster twice without finding room is to find none.
            rounds += u64::from(blocked == Blocked::Space && shared.options.daemons == Daemons::Manual);
            let patient = u128::from(clock.now_nanos() - since) < PATIENCE.as_nanos()
                && rounds <= 2 * u64::from(volume.space.count());
            if !self.make_room(&volume, blocked)? || !patient {
                return Err(self.no_room(&volume, blocked, parts));
            }
        }
    }

    /// The same where a table takes it.
    fn put_in_table(&self, tabled: &Tabled, hash: KeyHash, parts: &Parts<'_>) -> Result<Framed> {
        let payload_crc = frame::payload_crc(parts.key, parts.metadata, parts.body);
        let _stripe = self.lock_key(hash);
        let draft = parts.draft(hash, (self.shared().next_generation(), parts.options.server), payload_crc);
        let former = tabled.put(&draft, !parts.options.bypass_memory)?;
        former.into_iter().for_each(|former| self.drop_former(tabled, hash, former));
        add(&self.shared().counters.put_bytes, draft.header.payload_len() as u64);
        Ok(Framed::Durable)
    }

    /// Does or awaits what a blocked put needs. False if there is nothing that would help.
    fn make_room(&self, volume: &Arc<Volume>, blocked: Blocked) -> Result<bool> {
        match (blocked, self.shared().options.daemons) {
            (Blocked::Moved | Blocked::Waiting, _) => Ok(true),
            (Blocked::Buffers, Daemons::Threads) => {
                volume.writer.wait_for_change(Duration::from_millis(20));
                Ok(true)
            }
            (Blocked::Buffers, Daemons::Manual) => {
                volume.write_queued(true);
                Ok(true)
            }
            (Blocked::Space, Daemons::Threads) if self.mode() == Mode::Cache => {
                volume.reclaimer.wake();
                volume.writer.wait_for_change(Duration::from_millis(5));
                Ok(true)
            }
            // A store compacts here, so that `Full` is said only when compaction would gain nothing.
            (Blocked::Space, _) => volume.make_space(),
        }
    }

    fn no_room(&self, volume: &Volume, blocked: Blocked, parts: &Parts<'_>) -> Error {
        if blocked == Blocked::Space && self.mode() == Mode::Store {
            let needed = (frame::HEADER + parts.key.len() + parts.metadata.len() + parts.body.len()) as u64;
            return Error::Full { needed, free: volume.free_bytes() };
        }
        self.refuse(blocked.into())
    }

    /// Which volume an object goes to, and among whom. An object that is there already stays on its
    /// volume; a group or a server lives on one.
    pub(crate) fn route(&self, hash: KeyHash, key: &[u8], options: &PutOptions) -> Result<(Arc<Volume>, Class)> {
        let volumes = self.volumes();
        let class = self.class(Kind::Whole, options);
        let home = if let [only] = volumes {
            only
        } else if let Some(home) = self.home_of(hash, key)? {
            home
        } else {
            // A cache does without a failed volume; a store puts nothing elsewhere that is on one.
            let healthy = |volume: &&Arc<Volume>| self.mode() == Mode::Store || volume.commits.failure().is_none();
            let has = |volume: &&Arc<Volume>| !volume.index.candidates(hash.short()).is_empty();
            let spread = match volumes[0].placer.class(Kind::Whole, options.group, options.server) {
                Class::Group(id) | Class::Server(id) => u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32,
                Class::Rest | Class::Large | Class::Bypass => hash.short() >> 20,
            };
            let at = |i: usize| &volumes[(spread as usize + i) % volumes.len()];
            let present = volumes.iter().filter(healthy).find(has);
            let fit = |volume: &&Arc<Volume>| volume.commits.failure().is_none();
            present.or_else(|| (0..volumes.len()).map(at).find(fit)).unwrap_or(&volumes[0])
        };
        Ok((Arc::clone(home), class))
    }

    fn class(&self, kind: Kind, options: &PutOptions) -> Class {
        let placer = &self.volumes()[0].placer;
        match options.bypass_memory && !placer.keeps_apart() {
            true => Class::Bypass,
            false => placer.class(kind, options.group, options.server),
        }
    }

    /// The class of an object, and the server in its header: who names none may have kin. Chunks fill clusters anyway.
    fn company(volume: &Volume, class: Class, parts: &Parts<'_>, (hash, beside): (u64, Option<u64>)) -> (Class, u32) {
        let server = parts.options.server;
        if class != Class::Rest || server != 0 || parts.kind == Kind::Chunk {
            return (class, server);
        }
        match volume.placer.kin(hash, beside) {
            0 => (class, server),
            kin => (Class::Server(kin), kin),
        }
    }

    /// Sees to it that a put becomes durable in its time. Returns what the caller has to wait for.
    pub(crate) fn settle_put(&self, volume: Arc<Volume>, group: u32) -> Awaited {
        let shared = self.shared();
        let within = match (shared.groups.interval(group), shared.options.durability) {
            (_, Durability::EveryPut) => {
                let number = volume.commits.next();
                return Some((volume, number));
            }
            (Some(interval), _) => interval,
            // What a volume in place tells its journal waits in memory.
            (None, Durability::None) if volume.has_much_to_tell() => {
                let number = volume.commits.next();
                return Some((volume, number));
            }
            (None, Durability::None) => None,
            (None, Durability::Bounded { time, puts }) => {
                if volume.writer.volatile_puts.fetch_add(1, Relaxed) + 1 >= puts {
                    let number = volume.commits.next();
                    return Some((volume, number));
                }
                Some(time)
            }
        };
        if let Some(within) = within {
            volume.due_within(within);
        }
        None
    }
}

/// A commit to wait for.
pub(crate) type Awaited = Option<(Arc<Volume>, u64)>;

/// Waits for it on this thread.
pub(crate) fn wait(awaited: Awaited) -> Result<()> {
    awaited.map_or(Ok(()), |(volume, number)| volume.wait_commit_in_time(number))
}
