//! The service through OpenDAL's own operator, and the README's program as a process of its own.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::sync::Arc;

use doors_kit::{Program, bad_places, noise};
use futures_util::TryStreamExt;
use opendal::{EntryMode, ErrorKind, Operator, OperatorRegistry};
use picaflor_opendal::{
    Picaflor, PicaflorConfig,
    picaflor::{
        Durability, Options, Store,
        device::{Device, MemoryDevice},
    },
    register_picaflor_service,
};
use picaflor_sim::{Fault, FaultyDevice, Rule};

#[test]
fn the_readme_shows_the_example() {
    let (readme, example) = (include_str!("../README.md"), include_str!("../examples/thumbnails.rs"));
    assert!(readme.contains(example), "the README has another text than examples/thumbnails.rs");
}

#[test]
fn after_kill_9_what_was_written_is_there_and_what_was_deleted_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("thumbnails.store");
    let sizes = [0, 1, 4096, 300_000, 3_000_001];
    let mut first = Program::start("thumbnails", [&store]);
    for size in sizes {
        assert_eq!(first.ask(&format!("make a/{size} {size}")), format!("made {size}"));
    }
    assert_eq!(first.ask("make a/gone 10"), "made 10");
    assert_eq!(first.ask("drop a/gone"), "dropped");
    drop(first);
    let mut second = Program::start("thumbnails", [&store]);
    for size in sizes {
        assert_eq!(second.ask(&format!("make a/{size} {size}")), format!("there {size}"));
    }
    assert_eq!(second.ask("list a/"), "a/0 a/1 a/300000 a/3000001 a/4096");
    assert_eq!(second.ask("make a/gone 10"), "made 10");
}

fn memory() -> Options {
    Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(16 << 20)
}

fn operator() -> Operator {
    Operator::new(Picaflor::new(memory())).unwrap()
}

async fn list(operator: &Operator, path: &str, recursive: bool) -> Vec<String> {
    let found = operator.list_with(path).recursive(recursive).await.unwrap();
    found.iter().map(|entry| entry.path().to_owned()).collect()
}

#[tokio::test]
async fn objects_of_every_size_whole_and_in_ranges() {
    let operator = operator();
    for len in [0, 1, 4096, 300_000, 3_000_001] {
        let (path, body) = (format!("a/{len}"), noise(len, 7));
        let written = operator.write(&path, body.clone()).await.unwrap();
        assert_eq!(written.content_length(), len as u64);
        let stat = operator.stat(&path).await.unwrap();
        assert_eq!((stat.mode(), stat.content_length()), (EntryMode::FILE, len as u64));
        assert!(stat.last_modified().is_some());
        assert!(operator.read(&path).await.unwrap().to_vec() == body, "{len}");
        for range in [0..len, len / 2..len, len / 3..len / 2] {
            let part = operator.read_with(&path).range(range.start as u64..range.end as u64).await.unwrap();
            assert!(part.to_vec() == body[range.clone()], "{len}: {range:?}");
        }
        let tail = operator.read_with(&path).range(len as u64 / 4..).await.unwrap();
        assert!(tail.to_vec() == body[len / 4..], "{len}");
    }
    // In chunks of OpenDAL's, several at a time.
    let body = operator.read_with("a/3000001").chunk(100_000).concurrent(4).await.unwrap();
    assert!(body.to_vec() == noise(3_000_001, 7));
    let error = operator.read_with("a/4096").range(5000..6000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RangeNotSatisfied);
}

#[tokio::test]
async fn a_writer_streams_and_is_nothing_until_it_is_closed() {
    let operator = operator();
    let body = noise(3_000_000, 1);
    let mut writer = operator.writer("large").await.unwrap();
    for piece in body.chunks(77_777) {
        writer.write(piece.to_vec()).await.unwrap();
    }
    assert_eq!(operator.stat("large").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(writer.close().await.unwrap().content_length(), 3_000_000);
    let pieces: Vec<_> =
        operator.reader("large").await.unwrap().into_bytes_stream(..).await.unwrap().try_collect().await.unwrap();
    assert!(pieces.len() > 1 && pieces.concat() == body);

    let mut aborted = operator.writer("large").await.unwrap();
    aborted.write(noise(500_000, 2)).await.unwrap();
    aborted.abort().await.unwrap();
    let mut dropped = operator.writer("large").await.unwrap();
    dropped.write(noise(500_000, 2)).await.unwrap();
    drop(dropped);
    assert!(operator.read("large").await.unwrap().to_vec() == body);
}

#[tokio::test]
async fn a_reader_reads_one_version() {
    let operator = operator();
    for len in [1000, 1_000_000] {
        let (before, after) = (noise(len, 1), noise(len, 2));
        operator.write("page", before.clone()).await.unwrap();
        let reader = operator.reader("page").await.unwrap();
        let middle = len as u64 / 2;
        let mut seen = reader.read(0..middle).await.unwrap().to_vec();
        operator.write("page", after.clone()).await.unwrap();
        seen.extend(reader.read(middle..len as u64).await.unwrap().to_vec());
        assert!(seen == before, "{len}");
        assert!(operator.read("page").await.unwrap().to_vec() == after, "{len}");
    }
}

#[tokio::test]
async fn what_a_writer_says_stat_says() {
    let operator = operator();
    operator
        .write_with("a.html", "<p>")
        .content_type("text/html")
        .content_encoding("identity")
        .content_disposition("inline")
        .cache_control("max-age=60")
        .user_metadata([("origin".to_owned(), "example.org".to_owned())])
        .await
        .unwrap();
    let said = operator.stat("a.html").await.unwrap();
    assert_eq!(said.content_type(), Some("text/html"));
    assert_eq!(said.content_encoding(), Some("identity"));
    assert_eq!(said.content_disposition(), Some("inline"));
    assert_eq!(said.cache_control(), Some("max-age=60"));
    assert_eq!(said.user_metadata().unwrap().get("origin"), Some("example.org"));
}

#[tokio::test]
async fn folders_and_prefixes_are_listed_and_deleted() {
    let store = Store::open(memory()).unwrap();
    let whole = Operator::new(Picaflor::on(store.clone())).unwrap();
    let below = Operator::new(Picaflor::on(store.clone()).root("/site/")).unwrap();
    for path in ["a/1", "a/b/2", "a/b/3", "c"] {
        below.write(path, path).await.unwrap();
    }
    whole.write("elsewhere", "").await.unwrap();
    // No text: another program's.
    store.put(b"site/\xff", b"").unwrap();
    assert_eq!(list(&below, "/", false).await, ["a/", "c"]);
    assert_eq!(list(&below, "a/", false).await, ["a/1", "a/b/"]);
    assert_eq!(list(&below, "a/", true).await, ["a/1", "a/b/2", "a/b/3"]);
    assert_eq!(list(&below, "a/b", true).await, ["a/b/2", "a/b/3"]);
    assert_eq!(list(&below, "none/", false).await, [""; 0]);
    assert_eq!(list(&whole, "/", true).await, ["elsewhere", "site/a/1", "site/a/b/2", "site/a/b/3", "site/c"]);
    let of_entry = below.list("c").await.unwrap();
    assert_eq!(of_entry[0].metadata().content_length(), 1);

    below.create_dir("empty/").await.unwrap();
    for folder in ["empty/", "a/", "a/b/"] {
        assert_eq!(below.stat(folder).await.unwrap().mode(), EntryMode::DIR, "{folder}");
    }
    assert_eq!(below.stat("b/").await.unwrap_err().kind(), ErrorKind::NotFound);

    below.delete("c").await.unwrap();
    below.delete("c").await.unwrap();
    assert_eq!(below.read("c").await.unwrap_err().kind(), ErrorKind::NotFound);
    below.delete_with("a/").recursive(true).await.unwrap();
    assert_eq!(list(&whole, "/", true).await, ["elsewhere", "site/empty/"]);
    // More than one call deletes together.
    for number in 0..1100 {
        below.write(&format!("many/{number}"), "x").await.unwrap();
    }
    below.delete_iter((0..1100).map(|number| format!("many/{number}"))).await.unwrap();
    assert_eq!(list(&below, "many/", true).await, [""; 0]);
}

#[tokio::test]
async fn it_is_made_of_names_and_of_a_uri() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("by-name.store").display().to_string();
    let settings = [("path", path.as_str()), ("capacity", "16777216"), ("durable_within", "0"), ("mode", "store")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let operator = Operator::from_iter::<Picaflor>(settings).unwrap();
    operator.write("a", "1").await.unwrap();
    assert_eq!((operator.info().scheme(), operator.info().name().as_str()), ("picaflor", path.as_str()));

    let registry = OperatorRegistry::get();
    register_picaflor_service(registry);
    let uri = format!("picaflor://{}?capacity=16777216&root=%2Fsite", folder.path().join("by-uri.store").display());
    let operator = Operator::from_uri(uri.as_str()).unwrap();
    operator.write("a", "1").await.unwrap();
    assert_eq!(operator.info().root(), "/site/");
    assert!(folder.path().join("by-uri.store").exists());

    for (name, value, words) in [("path", "", "path"), ("mode", "both", "`both`"), ("pace", "1", "deserialize")] {
        let settings = [("path".to_owned(), "x".to_owned()), (name.to_owned(), value.to_owned())];
        let error = Operator::from_iter::<Picaflor>(settings).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(Operator::from_config(PicaflorConfig::default()).err().unwrap().kind(), ErrorKind::ConfigInvalid);
}

#[tokio::test]
async fn bad_places_and_full_ones_have_our_words() {
    let folder = tempfile::tempdir().unwrap();
    for (options, words) in bad_places(folder.path()) {
        let error = Operator::new(Picaflor::new(options)).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
    }

    let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 << 20)), 1));
    let options = Options::on(Arc::clone(&device) as Arc<dyn Device>).memory(16 << 20);
    let operator = Operator::new(Picaflor::new(options.durability(Durability::EveryPut))).unwrap();
    operator.write("before", "1").await.unwrap();
    let too_large = operator.info().capability().write_total_max_size.unwrap() + 1;
    assert_eq!(operator.write("large", vec![0; too_large]).await.unwrap_err().kind(), ErrorKind::Unsupported);
    device.crash().unwrap();
    let error = operator.write("after", "1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
}

#[tokio::test]
async fn a_list_that_is_not_whole_says_so() {
    let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 << 20)), 1));
    let store = Store::open(Options::on(Arc::clone(&device) as Arc<dyn Device>).memory(16 << 20)).unwrap();
    let operator = Operator::new(Picaflor::on(store.clone())).unwrap();
    for number in 0..300 {
        operator.write(&format!("{number}"), noise(100_000, number)).await.unwrap();
    }
    store.flush_async().await.unwrap();
    assert_eq!(operator.list("/").await.unwrap().len(), 300);
    device.add(Rule::rate(Fault::ReadError, 1.0));
    assert!(operator.list("/").await.unwrap_err().to_string().contains("not whole"));
}
