//! The storage by itself, as Pingora calls it.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use picaflor_pingora::{
    Picaflor,
    picaflor::{
        Durability, Options, PutOptions, Store,
        device::{Device, MemoryDevice},
    },
};
use picaflor_sim::FaultyDevice;
use pingora_cache::{
    CacheKey, CacheMeta, PurgeType, Storage,
    eviction::{CacheEntryId, CacheEntryKey},
    key::HashBinary,
    storage::{HitHandler, MissFinishType, MissHandler, PurgeOutcome, PurgeTarget},
    trace::Span,
};
use pingora_http::ResponseHeader;

fn options() -> Options {
    Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)
}

fn key(name: &str) -> CacheKey {
    CacheKey::new(name, "")
}

fn meta(etag: &str) -> CacheMeta {
    let mut head = ResponseHeader::build(200, None).unwrap();
    head.insert_header("etag", etag).unwrap();
    let now = SystemTime::now();
    CacheMeta::new(now + Duration::from_secs(600), now, 0, 0, head)
}

fn body(len: usize) -> Bytes {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

async fn begin(storage: &'static Picaflor, key: &CacheKey, etag: &str) -> MissHandler {
    storage.get_miss_handler(key, &meta(etag), &Span::inactive().handle()).await.unwrap()
}

async fn fill(storage: &'static Picaflor, key: &CacheKey, etag: &str, body: &Bytes) -> usize {
    let mut writer = begin(storage, key, etag).await;
    for piece in body.chunks(30_000) {
        writer.write_body(body.slice_ref(piece), false).await.unwrap();
    }
    match writer.finish().await.unwrap() {
        MissFinishType::Created(size) => size,
        MissFinishType::Appended(..) => panic!("nothing is appended here"),
    }
}

async fn lookup(storage: &'static Picaflor, key: &CacheKey) -> Option<(CacheMeta, HitHandler)> {
    storage.lookup(key, &Span::inactive().handle()).await.unwrap()
}

async fn purge(storage: &'static Picaflor, key: &CacheKey, kind: PurgeType) -> PurgeOutcome {
    let key = key.to_compact();
    storage.purge(PurgeTarget::Active(&key), kind, &Span::inactive().handle()).await.unwrap()
}

async fn read(hit: &mut HitHandler) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(piece) = hit.read_body().await.unwrap() {
        assert!(!piece.is_empty());
        all.extend_from_slice(&piece);
    }
    all
}

fn etag(meta: &CacheMeta) -> &str {
    meta.headers().get("etag").unwrap().to_str().unwrap()
}

#[tokio::test]
async fn bodies_of_every_size_come_back_and_can_be_sought() {
    let storage = Picaflor::open(options()).unwrap();
    for len in [0, 1, 4096, 262_144, 3_000_001] {
        let (key, body) = (key(&len.to_string()), body(len));
        assert!(fill(storage, &key, "\"1\"", &body).await >= len);
        let (meta, mut hit) = lookup(storage, &key).await.unwrap();
        assert_eq!(etag(&meta), "\"1\"");
        assert_eq!(read(&mut hit).await, body);
        assert!(hit.can_seek() && hit.can_seek_multipart());
        if len > 1 {
            // One handle serves several ranges; one past the end is cut.
            for (start, end) in [(len / 2, Some(len / 2 + 1)), (0, Some(1)), (len - 1, None), (1, Some(len + 5))] {
                hit.seek(start, end).unwrap();
                assert_eq!(read(&mut hit).await, body[start..end.unwrap_or(len).min(len)]);
            }
        }
        assert!(hit.seek(len, None).unwrap_err().to_string().contains("seek to byte"));
    }
}

#[tokio::test]
async fn a_reader_follows_a_fill_and_seeks_in_it() {
    let storage = Picaflor::open(options()).unwrap();
    let (key, body) = (key("followed"), body(500_000));
    let mut writer = begin(storage, &key, "\"1\"").await;
    let tag = writer.streaming_write_tag().unwrap().to_vec();
    let own = storage.lookup_streaming_write(&key, Some(&tag), &Span::inactive().handle()).await.unwrap();
    let (mut own, mut other) = (own.unwrap().1, lookup(storage, &key).await.unwrap().1);
    let mut part = lookup(storage, &key).await.unwrap().1;
    part.seek(150_000, Some(150_002)).unwrap();
    assert!(!own.should_count_access());
    writer.write_body(body.slice(..100_000), false).await.unwrap();
    assert_eq!(own.read_body().await.unwrap().unwrap(), body[..100_000]);
    // A read that is given up has taken nothing.
    tokio::select! {
        biased;
        _ = own.read_body() => panic!("there is nothing to read yet"),
        () = std::future::ready(()) => {}
    }
    let reader = tokio::spawn(async move { (read(&mut part).await, read(&mut other).await) });
    writer.write_body(body.slice(100_000..), true).await.unwrap();
    writer.finish().await.ok().unwrap();
    assert_eq!(read(&mut own).await, body[100_000..]);
    let (part, other) = reader.await.unwrap();
    assert_eq!(part, body[150_000..150_002]);
    assert_eq!(other, body);
}

#[tokio::test]
async fn a_fill_that_breaks_off_was_never_there_and_its_readers_know() {
    let storage = Picaflor::open(options()).unwrap();
    let key = key("broken");
    fill(storage, &key, "\"old\"", &body(10)).await;
    let mut writer = begin(storage, &key, "\"new\"").await;
    let (meta, mut reader) = lookup(storage, &key).await.unwrap();
    assert_eq!(etag(&meta), "\"new\"");
    writer.write_body(body(1_000_000), false).await.unwrap();
    assert_eq!(reader.read_body().await.unwrap().unwrap().len(), 1_000_000);
    drop(writer);
    let error = reader.read_body().await.unwrap_err().to_string();
    assert!(error.contains("broken off"), "{error}");
    let (meta, mut hit) = lookup(storage, &key).await.unwrap();
    assert_eq!(etag(&meta), "\"old\"");
    assert_eq!(read(&mut hit).await, body(10));
}

#[tokio::test]
async fn who_falls_behind_what_memory_holds_reads_on_from_the_store() {
    let storage = Picaflor::with(Store::open(options()).unwrap(), 200_000);
    let (key, body) = (key("long"), body(2_000_000));
    let mut writer = begin(storage, &key, "\"1\"").await;
    let mut slow = lookup(storage, &key).await.unwrap().1;
    let mut quick = lookup(storage, &key).await.unwrap().1;
    let mut seen = Vec::new();
    for piece in body.chunks(50_000) {
        writer.write_body(body.slice_ref(piece), false).await.unwrap();
        seen.extend_from_slice(&quick.read_body().await.unwrap().unwrap());
    }
    let late = tokio::spawn(async move { read(&mut slow).await });
    writer.finish().await.ok().unwrap();
    assert_eq!(seen, body);
    assert_eq!(late.await.unwrap(), body);
    assert_eq!(read(&mut lookup(storage, &key).await.unwrap().1).await, body);
}

#[tokio::test]
async fn what_the_store_refuses_still_reaches_the_reader() {
    let storage = Picaflor::open(options().admission(|_, _| false)).unwrap();
    let (key, body) = (key("refused"), body(300_000));
    let mut writer = begin(storage, &key, "\"1\"").await;
    let mut reader = lookup(storage, &key).await.unwrap().1;
    writer.write_body(body.clone(), true).await.unwrap();
    assert!(matches!(writer.finish().await, Ok(MissFinishType::Created(0))));
    assert_eq!(read(&mut reader).await, body);
    assert!(lookup(storage, &key).await.is_none());
    assert_eq!(storage.store().stats().refusals.values().sum::<u64>(), 1);
}

#[tokio::test]
async fn a_purge_deletes_and_an_invalidation_keeps_a_fill_out() {
    let storage = Picaflor::open(options()).unwrap();
    let key = key("purged");
    assert_eq!(purge(storage, &key, PurgeType::Invalidation).await, PurgeOutcome::NotFound);
    for kind in [PurgeType::Invalidation, PurgeType::Eviction] {
        fill(storage, &key, "\"1\"", &body(10)).await;
        let mut held = lookup(storage, &key).await.unwrap().1;
        assert_eq!(purge(storage, &key, kind).await, PurgeOutcome::Purged(None));
        assert!(lookup(storage, &key).await.is_none());
        assert_eq!(read(&mut held).await, body(10));
    }
    for (kind, stays) in [(PurgeType::Invalidation, false), (PurgeType::Eviction, true)] {
        let mut writer = begin(storage, &key, "\"2\"").await;
        let mut reader = lookup(storage, &key).await.unwrap().1;
        writer.write_body(body(20), false).await.unwrap();
        purge(storage, &key, kind).await;
        assert_eq!(lookup(storage, &key).await.is_some(), stays);
        writer.finish().await.ok().unwrap();
        assert_eq!(read(&mut reader).await, body(20));
        assert_eq!(lookup(storage, &key).await.is_some(), stays);
    }
    // An exact entry is one without an identity; others are not ours.
    let other = CacheEntryKey::identified(key.to_compact(), CacheEntryId::new(7));
    let span = Span::inactive().handle();
    let outcome = storage.purge(PurgeTarget::Exact(&other), PurgeType::Eviction, &span).await.unwrap();
    assert_eq!(outcome, PurgeOutcome::NotFound);
    let ours = CacheEntryKey::from_entry_id(key.to_compact(), None);
    let outcome = storage.purge(PurgeTarget::Exact(&ours), PurgeType::Eviction, &span).await.unwrap();
    assert_eq!(outcome, PurgeOutcome::Purged(None));
}

#[tokio::test]
async fn expired_is_stale_at_once_and_fresh_again_by_a_304() {
    let storage = Picaflor::open(options()).unwrap();
    let span = Span::inactive().handle();
    for len in [1000, 300_000, 2_000_000] {
        let (key, body) = (key(&len.to_string()), body(len));
        let target = key.to_compact();
        assert_eq!(storage.expire(PurgeTarget::Active(&target), &span).await.unwrap(), PurgeOutcome::NotFound);
        fill(storage, &key, "\"1\"", &body).await;
        // With headers of its own and, of a large one, in a note: neither makes it fresh.
        for _ in 0..2 {
            let mut held = lookup(storage, &key).await.unwrap().1;
            assert_eq!(storage.expire(PurgeTarget::Active(&target), &span).await.unwrap(), PurgeOutcome::Expired);
            let (stale, mut hit) = lookup(storage, &key).await.unwrap();
            assert!(!stale.is_fresh(SystemTime::now() + Duration::from_millis(1)));
            assert_eq!(read(&mut hit).await, body);
            assert_eq!(read(&mut held).await, body);
            let until = SystemTime::now() + Duration::from_secs(6000);
            let newer = CacheMeta::new(until, stale.created(), 0, 0, meta("\"1\"").response_header_copy());
            assert!(storage.update_meta(&key, &newer, &span).await.unwrap());
            assert!(lookup(storage, &key).await.unwrap().0.is_fresh(SystemTime::now()));
        }
    }
}

#[tokio::test]
async fn newer_headers_of_the_same_body_and_only_of_it() {
    let storage = Picaflor::open(options()).unwrap();
    let span = Span::inactive().handle();
    for len in [1000, 2_000_000] {
        let (key, body) = (key(&len.to_string()), body(len));
        assert!(!storage.update_meta(&key, &meta("\"0\""), &span).await.unwrap());
        fill(storage, &key, "\"1\"", &body).await;
        let created = lookup(storage, &key).await.unwrap().0.created();
        let newer = |etag: &str| {
            let head = meta(etag).response_header_copy();
            CacheMeta::new(created + Duration::from_secs(6000), created, 0, 0, head)
        };
        for etag_now in ["\"2\"", "\"3\""] {
            assert!(storage.update_meta(&key, &newer(etag_now), &span).await.unwrap());
            let (meta, mut hit) = lookup(storage, &key).await.unwrap();
            assert_eq!(etag(&meta), etag_now);
            assert_eq!(meta.fresh_until(), created + Duration::from_secs(6000));
            assert_eq!(read(&mut hit).await, body);
        }
        // Fetched anew: what was said of the body before does not hold for it.
        fill(storage, &key, "\"4\"", &body).await;
        assert!(!storage.update_meta(&key, &newer("\"5\""), &span).await.unwrap());
        assert_eq!(etag(&lookup(storage, &key).await.unwrap().0), "\"4\"");
    }
}

#[tokio::test]
async fn variants_are_objects_of_their_own_and_hints_are_taken() {
    let storage = Picaflor::open(options()).unwrap();
    let (plain, mut variant) = (key("page"), key("page"));
    variant.set_variance_key(HashBinary::from([7; 16]));
    variant.extensions.insert(PutOptions::new().group(3).neighbour(storage.store_key(&plain)));
    fill(storage, &plain, "\"plain\"", &body(10)).await;
    fill(storage, &variant, "\"variant\"", &body(20)).await;
    assert_eq!(etag(&lookup(storage, &plain).await.unwrap().0), "\"plain\"");
    assert_eq!(etag(&lookup(storage, &variant).await.unwrap().0), "\"variant\"");
    assert_eq!(storage.store().group_of(&storage.store_key(&variant)).unwrap(), Some(3));
    purge(storage, &variant, PurgeType::Invalidation).await;
    assert!(lookup(storage, &variant).await.is_none() && lookup(storage, &plain).await.is_some());
}

#[tokio::test]
async fn a_place_that_cannot_be_opened_is_pingoras_error_in_our_words() {
    let folder = tempfile::tempdir().unwrap();
    for (options, words) in doors_kit::bad_places(folder.path()) {
        let error = Picaflor::open(options).err().unwrap();
        assert_eq!(error.etype(), &pingora_error::ErrorType::InternalError);
        let text = error.to_string();
        assert!(text.contains("picaflor") && text.contains(words), "{text}");
        println!("{text}");
    }
}

#[tokio::test]
async fn what_outgrows_the_store_passes_and_is_not_stored() {
    let storage = Picaflor::open(options()).unwrap();
    let (key, body) = (key("too large"), body(storage.max_file_size() + 1));
    let mut writer = begin(storage, &key, "\"1\"").await;
    let mut reader = lookup(storage, &key).await.unwrap().1;
    let mut seen = 0;
    for piece in body.chunks(1 << 20) {
        writer.write_body(body.slice_ref(piece), false).await.unwrap();
        seen += reader.read_body().await.unwrap().unwrap().len();
    }
    writer.finish().await.ok().unwrap();
    assert_eq!(seen, body.len());
    assert!(lookup(storage, &key).await.is_none());
}

/// The device fails, as a disk does that is full in spite of what was promised: answers go on.
#[tokio::test]
async fn where_the_device_takes_no_more_responses_pass() {
    let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 << 20)), 1));
    let options = Options::on(Arc::clone(&device) as Arc<dyn Device>).memory(16 << 20);
    let storage = Picaflor::open(options.durability(Durability::EveryPut)).unwrap();
    fill(storage, &key("before"), "\"1\"", &body(1000)).await;
    device.crash().unwrap();
    let (key, body) = (key("after"), body(300_000));
    let mut writer = begin(storage, &key, "\"1\"").await;
    let mut reader = lookup(storage, &key).await.unwrap().1;
    writer.write_body(body.clone(), true).await.unwrap();
    assert!(matches!(writer.finish().await, Ok(MissFinishType::Created(0))));
    assert_eq!(read(&mut reader).await, body);
    assert_eq!(storage.store().failures().len(), 1);
}
