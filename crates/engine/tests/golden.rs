//! One whole store of each layout and format version, as a crash left it, beside a list of what is in it. A build
//! must open every version that it says it opens, and find exactly that.
//!
//! `PICAFLOR_GOLDEN=write` makes the images of the present version anew: a change of the format, and of the version.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use picaflor::{
    CheckpointInterval, Daemons, Durability, Expiry, Mode, Options, Priority, PutOptions, Store,
    device::{AlignedBuf, Clock, Device, MemoryDevice},
};
use picaflor_sim::kill;
use xxhash_rust::xxh3::xxh3_64;

const SIZE: u64 = 3 << 20;
const NOW: u64 = 1_700_000_000_000;

fn options(preset: &str, device: Arc<MemoryDevice>) -> Options {
    let options = Options::on(device).memory(4 << 20).mode(Mode::Store).durability(Durability::None);
    options.rows(picaflor_literature::ROWS).as_preset(preset).unwrap().with(|options| {
        options.cluster = 64 << 10;
        options.seed = Some(7);
        options.daemons = Daemons::Manual;
        options.clock = Clock::virtual_at(NOW);
    })
}

/// Something of everything that is written: whole and large objects, metadata, expiry, groups, copies, deletes and
/// replacements before and after a checkpoint, and a tail that was never sealed.
fn fill(store: &Store) -> picaflor::Result<()> {
    let key = |i: u32| format!("http://example.org/{i}").into_bytes();
    let body = |i: u32, len: u32| -> Vec<u8> { (0..len).map(|at| (at / 7 + i * 31) as u8).collect() };
    store.group(3).love();
    if store.group(3).page().is_some() {
        store.group(3).set_page(16 << 10)?;
        store.group(5).set_page(32 << 10)?;
    }
    store.group(4).set_checkpoint_interval(Some(Duration::from_secs(9)));
    for i in 0..60 {
        let options = PutOptions::new()
            .metadata(body(i, i % 5 * 10))
            .group(i % 6)
            .server(i % 4)
            .maybe_neighbour((i > 10).then(|| key(i - 10).into()))
            .expiry(if i % 9 == 0 { Expiry::At(NOW + 1_000_000) } else { Expiry::Default });
        store.put_with(&key(i), &body(i, i * 97 % 3000), &options)?;
    }
    store.put(b"large", &body(1, 200_000))?;
    (0..60).step_by(7).try_for_each(|i| store.delete(&key(i)).map(drop))?;
    store.flush()?;
    while store.step()? {}
    for i in (0..60).step_by(4) {
        store.put(&key(i), &body(i + 1, 500))?;
    }
    store.delete(&key(9))?;
    store.flush()
}

/// Every object, a line each.
fn list(store: &Store) -> String {
    let mut lines: Vec<String> = store
        .keys()
        .map(|entry| {
            let key = entry.key;
            let object = store.get(&key).unwrap().expect("a key that is listed is there");
            let (body, metadata) = (object.body().unwrap(), object.metadata());
            format!(
                "{} group {} expires {:?} metadata {:016x} body {} {:016x}\n",
                String::from_utf8_lossy(&key),
                object.group(),
                object.expires(),
                xxh3_64(metadata),
                body.len(),
                xxh3_64(&body)
            )
        })
        .collect();
    lines.sort();
    // What comes into memory while all are gone through may be named once more there.
    lines.dedup();
    lines.concat()
}

fn image_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = AlignedBuf::zeroed(SIZE as usize);
    device.read(0, &mut bytes).unwrap();
    bytes.to_vec()
}

fn opens(version: &str, preset: &str) {
    opens_image(version, preset, preset);
}

fn opens_image(version: &str, preset: &str, name: &str) {
    let path = |end: &str| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version).join(format!("{name}.{end}"))
    };
    if std::env::var("PICAFLOR_GOLDEN").is_ok_and(|what| what == "write") {
        let device = Arc::new(MemoryDevice::new(SIZE));
        let store = Store::open(options(preset, device.clone())).unwrap();
        fill(&store).unwrap();
        if name == "runs" {
            // Three clusters in two runs, and an end that is in its head.
            store.put(b"in runs", &[7; 196_000]).unwrap();
            store.flush().unwrap();
        }
        fs::write(path("list"), list(&store)).unwrap();
        // As `kill -9` leaves it.
        let mut gzip = GzEncoder::new(fs::File::create(path("store.gz")).unwrap(), Compression::best());
        gzip.write_all(&image_of(&device)).unwrap();
        gzip.finish().unwrap();
        kill(store);
    }
    let mut image = Vec::new();
    GzDecoder::new(fs::File::open(path("store.gz")).unwrap()).read_to_end(&mut image).unwrap();
    let device = Arc::new(MemoryDevice::new(SIZE));
    let mut bytes = AlignedBuf::zeroed(image.len());
    bytes.copy_from_slice(&image);
    device.write(0, &bytes).unwrap();
    let listed = fs::read_to_string(path("list")).unwrap();
    assert!(listed.lines().count() > 40, "the list is not empty");
    let store = Store::open(options(preset, device)).unwrap();
    assert_eq!(list(&store), listed);
    assert_eq!(store.group(3).priority(), Priority::Loved);
    let pages = [3, 4, 5].map(|group| store.group(group).page().unwrap_or(0) >> 10);
    assert_eq!(pages, if preset == "damelo" { [16, 64, 32] } else { [0; 3] });
    assert_eq!(store.group(4).checkpoint_interval(), CheckpointInterval::Every(Duration::from_secs(9)));
    assert!(!store.receipt().volumes[0].created && store.receipt().volumes[0].damage.is_empty());
}

#[test]
fn version_1_ring() {
    opens("v1", "picaflor");
}

#[test]
fn version_1_ring_with_runs() {
    opens_image("v1", "picaflor", "runs");
}

#[test]
fn version_1_clusters_that_are_divided() {
    opens("v1", "damelo");
}

#[test]
fn version_1_slots() {
    opens("v1", "buddy");
}

#[test]
fn version_1_next_fit() {
    opens("v1", "stream");
}

#[test]
fn version_1_blocks_found_by_their_headers() {
    opens("v1", "pmflf-ts");
}

#[test]
fn version_1_blocks_on_persistent_lists() {
    opens("v1", "pmflf-pl");
}

#[test]
fn version_1_blocks_on_persistent_free_lists() {
    opens("v1", "pmflf-pfl");
}
