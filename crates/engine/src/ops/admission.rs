//! What is put at all: limits, expiry, the admission filter, room in the index. Every refusal has a name.

use std::time::Duration;

use picaflor_format::frame::{KEY_MAX, META_MAX, Manifest};

use crate::{Error, Expiry, PutOptions, Refusal, Result, handle::Store};

impl Store {
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
        if self.recovered_volumes().iter().any(|volume| volume.scrubber.recovers_in_steps()) {
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
        if shared.index_is_above(8) && self.recovered_volumes().iter().any(|volume| volume.catalog.is_loaded()) {
            return Err(self.refuse(Refusal::IndexFull));
        }
        if self.recovered_volumes().iter().any(|volume| volume.room.checkpoints_are_above(8)) {
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
}
