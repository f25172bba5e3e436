//! The sweeper: goes through all that is stored, takes out what notes select, and so ends the notes.
//!
//! 1. A pass ends the notes whose number is no larger than that of any fetch under way when it begins: what they select
//!    is stored by then, or never will be. The store's walk misses no object that is there from beginning to end.
//! 2. What a purge selects is deleted; what a soft one does is put again as stale since then. A large object cannot be
//!    put again in one piece: as long as one is there, soft notes are held, until room for others is short; then it
//!    goes.
//! 3. The notes do not count any more. They stay pinned until no crash can bring anything back: neither what was
//!    deleted, nor an older version, nor what was evicted meanwhile. So a crash at any time costs another pass.
//!
//! A pass rests ([`Duty`]), and the next one waits ten times as long as it took; not where room for notes is short.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use picaflor::{Expiry, Found, Object, PutOptions};

use super::{marks::Validity, selector, sequence::Purges};
use crate::{
    duty::Duty,
    head::{self, Head, Stored, decode},
    key,
    proxy::Proxy,
};

/// How often it is seen whether there is anything to do.
const TICK: Duration = Duration::from_millis(100);
/// The next pass waits so many times as long as the last one took.
const BETWEEN: u32 = 10;
/// How long nothing is tried after something failed.
const AGAIN: Duration = Duration::from_secs(10);
/// So long soft notes are held before it is tried again.
const HOLD: Duration = Duration::from_secs(3600);

/// What a pass came to.
#[derive(Default)]
struct Pass {
    /// Something could not be read, or taken out.
    failed: bool,
    /// Large objects that are stale by a note, and by nothing else.
    held: u64,
    /// They go too.
    hurry: bool,
}

/// Sweeps until dropped.
pub(crate) async fn run(proxy: Arc<Proxy>) {
    let purges = &proxy.purges;
    let (mut next, mut not_before) = (Instant::now(), Instant::now());
    let (mut held, mut held_until) = (0, Instant::now());
    // Of notes that have ended, those that are pinned.
    let mut names: Vec<u128> = Vec::new();
    loop {
        tokio::time::sleep(TICK).await;
        let (hurry, now) = (purges.is_pressed(), Instant::now());
        if now < not_before || now < next && !hurry {
            continue;
        }
        if now >= held_until || hurry {
            held = 0;
        }
        let limit = if purges.waits(u64::MAX, held) { purges.sweepable(hurry) } else { 0 };
        if purges.waits(limit, held) {
            let pass = pass(&proxy, hurry).await;
            next = Instant::now() + now.elapsed() * BETWEEN;
            purges.swept.passes.fetch_add(1, Relaxed);
            if pass.failed {
                not_before = Instant::now() + AGAIN;
                continue;
            }
            if pass.held > 0 {
                (held, held_until) = (limit, Instant::now() + HOLD);
            }
            names.extend(purges.end(limit, pass.held > 0));
        }
        if !names.is_empty() {
            match proxy.store.checkpoint_async().await {
                Ok(()) => purges.unpin(&std::mem::take(&mut names)),
                Err(_) => not_before = Instant::now() + AGAIN,
            }
        }
    }
}

/// Goes through all that is stored.
async fn pass(proxy: &Proxy, hurry: bool) -> Pass {
    let mut pass = Pass { hurry, ..Pass::default() };
    let Ok(mut walk) = proxy.store.walk() else { return Pass { failed: true, ..pass } };
    let mut duty = Duty::default();
    loop {
        let began = Instant::now();
        let Some(place) = walk.next_place_async().await else { break };
        let hurries = || proxy.purges.is_pressed();
        duty.rest(began.elapsed(), hurries).await;
        // A place has hundreds: at one go they would take a core from hits for longer than any hit takes.
        for found in &place {
            let began = Instant::now();
            visit(proxy, found, &mut pass).await;
            duty.rest(began.elapsed(), hurries).await;
        }
    }
    pass.failed |= walk.unreadable() > 0;
    pass
}

/// What becomes of a stored response.
enum Fate {
    Stays,
    Goes,
    /// With these metadata.
    IsStale(Vec<u8>),
}

/// Of a response with these metadata, under a key of this URL, that is put again, if it is, under this number.
fn fate(purges: &Purges, url_key: &[u8], metadata: &[u8], stored: &Stored, seq: u64) -> Fate {
    let Stored::Response(head) = stored else { return Fate::Stays };
    match purges.check(url_key, head.seq, Head::tags(metadata)) {
        Validity::Valid => Fate::Stays,
        Validity::Gone => Fate::Goes,
        Validity::StaleSince(at) => {
            let mut policy = head.policy;
            policy.end(at);
            // One that was stale before is what it was.
            if policy == head.policy { Fate::Stays } else { Fate::IsStale(head::ended(metadata, &policy, seq)) }
        }
    }
}

async fn visit(proxy: &Proxy, found: &Found, pass: &mut Pass) {
    let (purges, url_key) = (&proxy.purges, key::url_of(&found.key));
    if matches!(fate(purges, url_key, &found.metadata, &decode(&found.metadata), 0), Fate::Stays) {
        return;
    }
    // As a fetch: nothing is stored, nor taken out, in its place meanwhile, and a purge that comes now finds it.
    let begun = purges.begin(url_key);
    let _indexes = purges.index_of(url_key).lock().await;
    let object = match proxy.store.get_async(&found.key).await {
        Ok(Some(object)) => object,
        Ok(None) => return,
        Err(_) => return pass.failed = true,
    };
    // Judged by itself, not by what a later 304 left beside it: that may leave before it.
    let (goes, kind) = match fate(purges, url_key, object.metadata(), &object.decoded(decode), begun.seq) {
        Fate::Stays => return,
        Fate::Goes => (true, &purges.swept.deleted),
        Fate::IsStale(ref metadata) if begun.may_store() && put_stale(proxy, url_key, &object, metadata).await => {
            (false, &purges.swept.made_stale)
        }
        Fate::IsStale(_) if is_large(&object) && !pass.hurry => return pass.held += 1,
        Fate::IsStale(_) => (true, &purges.swept.deleted),
    };
    if goes && proxy.store.invalidate_async(&found.key).await.is_err() {
        return pass.failed = true;
    }
    kind.fetch_add(1, Relaxed);
}

/// Whether a body has no place in one piece, or these are the fields of one that has none.
fn is_large(object: &Object) -> bool {
    object.body_in_memory().is_none() || object.key().ends_with(key::NEWER)
}

/// Puts a response again with these metadata. False if that cannot be done.
async fn put_stale(proxy: &Proxy, url_key: &[u8], object: &Object, metadata: &[u8]) -> bool {
    let Some(body) = object.body_in_memory().filter(|_| !is_large(object)) else { return false };
    let host = selector::origin(url_key).rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let options = PutOptions::new()
        .metadata(metadata.to_vec())
        .expiry(object.expires().map_or(Expiry::Never, Expiry::At))
        .group(object.group())
        .server(key::server(host))
        .no_wait(true);
    proxy.store.begin_put(object.key(), &body, &options).await.is_ok()
}
