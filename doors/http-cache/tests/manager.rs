//! The manager before a real nginx, by the example as a process of its own, and by itself.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::sync::Arc;

use doors_kit::{Origin, Program, noise};
use http_cache::{CacheManager, HttpResponse, HttpVersion};
use http_cache_semantics::CachePolicy;
use picaflor_http_cache::{
    PicaflorManager,
    picaflor::{
        Durability, Error, Options,
        device::{Device, MemoryDevice},
    },
};
use picaflor_sim::FaultyDevice;

#[test]
fn the_readme_shows_the_example() {
    let (readme, example) = (include_str!("../README.md"), include_str!("../examples/fetch.rs"));
    assert!(readme.contains(example), "the README has another text than examples/fetch.rs");
}

#[test]
fn after_kill_9_what_was_fetched_are_hits() {
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let store = folder.path().join("cache.store");
    let sizes = [0, 1, 4096, 300_000, 3_000_001];
    for len in sizes {
        origin.file(&format!("f{len}"), &noise(len, 1));
    }
    for round in 0..3 {
        let mut fetch = Program::start("fetch", [&store]);
        for len in sizes {
            let expected = if round == 0 { "MISS" } else { "HIT" };
            let said = fetch.ask(&format!("http://{}/f{len}", origin.address));
            assert_eq!(said, format!("Some(\"{expected}\") {len}"));
        }
    }
    for len in sizes {
        assert_eq!(origin.answers(&format!("f{len}"), 1), ["200"]);
    }
}

fn response(body: Vec<u8>) -> (HttpResponse, CachePolicy) {
    let url = "http://example.org/page".parse().unwrap();
    let headers = [("cache-control".to_owned(), "max-age=600".to_owned())].into();
    let response = HttpResponse { body, headers, status: 200, url, version: HttpVersion::Http11 };
    let request = http::Request::get("http://example.org/page").body(()).unwrap().into_parts().0;
    let policy = CachePolicy::new(&request, &response.parts().unwrap());
    (response, policy)
}

fn memory() -> Options {
    Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)
}

#[tokio::test]
async fn what_was_put_comes_back_until_it_is_deleted() {
    let manager = PicaflorManager::open(memory()).await.unwrap();
    for len in [0, 1000, 2_000_000] {
        let (given, policy) = response(noise(len, 2));
        let returned = manager.put("key".into(), given.clone(), policy.clone()).await.unwrap();
        assert!(returned.body == given.body);
        let (found, kept) = manager.get("key").await.unwrap().unwrap();
        assert!(found.body == given.body);
        assert_eq!((found.headers, found.status, found.url), (given.headers, given.status, given.url));
        assert_eq!(kept.is_storable(), policy.is_storable());
        assert!(kept.time_to_live(std::time::SystemTime::now()).as_secs() > 500);
        manager.delete("key").await.unwrap();
        assert!(manager.get("key").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_is_refused_is_returned_and_what_it_replaces_goes() {
    let manager = PicaflorManager::open(memory()).await.unwrap();
    let (small, policy) = response(noise(10, 1));
    manager.put("key".into(), small, policy).await.unwrap();
    let (large, policy) = response(vec![1; manager.store().object_max() as usize + 1]);
    let returned = manager.put("key".into(), large.clone(), policy).await.unwrap();
    assert!(returned.body == large.body);
    assert!(manager.get("key").await.unwrap().is_none());
}

#[tokio::test]
async fn a_failing_device_makes_misses() {
    let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 << 20)), 1));
    let options = Options::on(Arc::clone(&device) as Arc<dyn Device>).memory(16 << 20);
    let manager = PicaflorManager::open(options.durability(Durability::EveryPut)).await.unwrap();
    device.crash().unwrap();
    let (given, policy) = response(noise(300_000, 1));
    assert!(manager.put("key".into(), given.clone(), policy).await.unwrap().body == given.body);
    assert!(manager.get("other").await.unwrap().is_none());
}

#[tokio::test]
async fn a_foreign_file_and_a_missing_folder_have_our_words() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, vec![b'x'; 8 << 20]).unwrap();
    let error = PicaflorManager::open(Options::new(&foreign)).await.err().unwrap();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let error = PicaflorManager::open(Options::new(folder.path().join("none/store"))).await.err().unwrap();
    assert!(error.to_string().contains("none/store"), "{error}");
}
