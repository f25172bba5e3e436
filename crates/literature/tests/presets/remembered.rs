//! A store remembers the preset that it was opened with, and its files are its owner's alone.

use std::{os::unix::fs::PermissionsExt, path::Path};

use picaflor::{Error, Inspection, Mode, Options, Store, inspect};
use picaflor_format::{BLOCK, superblock::Superblock};

use crate::common::{MIB, body, key, read};

fn sized(options: Options) -> Options {
    options.capacity(32 * MIB).memory(16 * MIB)
}

fn remembered(path: &Path) -> &'static str {
    match inspect(path).unwrap() {
        Inspection::Store(about) => about.preset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_opening_without_a_preset_takes_the_one_that_the_store_has() {
    let folder = tempfile::tempdir().unwrap();
    for preset in picaflor_literature::presets() {
        let path = folder.path().join(preset);
        let store = Store::open(sized(picaflor_literature::preset(preset).unwrap().place(&path))).unwrap();
        store.put(&key(1), &body(1, 2000)).unwrap();
        store.close().unwrap();
        assert_eq!(remembered(&path), preset);
        for read_only in [true, false] {
            let store =
                Store::open(sized(picaflor_literature::options(&path)).with(|options| options.read_only = read_only));
            let store = store.unwrap_or_else(|error| panic!("{preset}, read only {read_only}: {error}"));
            assert_eq!(read(&store, &key(1)).unwrap(), body(1, 2000), "{preset}");
            store.close().unwrap();
        }
        // Opened for writing as what it is not, it would remember that.
        assert_eq!(remembered(&path), preset);
    }
}

#[test]
fn a_preset_that_cannot_work_is_refused_by_name_and_one_that_can_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let make = |preset: &str| {
        let path = folder.path().join(preset);
        Store::open(sized(picaflor_literature::preset(preset).unwrap().place(&path))).unwrap().close().unwrap();
        path
    };
    for (made, asked) in
        [("damelo", "buddy"), ("hummingbird", "simple"), ("squid", "picaflor"), ("squid", "simple"), ("oba", "damelo")]
    {
        let path = make(made);
        let error =
            Store::open(sized(picaflor_literature::preset(asked).unwrap().place(&path)).mode(Mode::Store)).unwrap_err();
        let Error::Option { name: "preset", why } = &error else { panic!("{made} as {asked}: {error}") };
        for word in [&format!("made with preset {made}"), asked, "open it without a preset"] {
            assert!(why.contains(word), "{made} as {asked}: {why}");
        }
        assert_eq!(remembered(&path), made);
    }
    let path = make("stream");
    Store::open(sized(picaflor_literature::preset("lazy-reads").unwrap().place(&path))).unwrap().close().unwrap();
    assert_eq!(remembered(&path), "lazy-reads");
}

#[test]
fn a_store_that_does_not_say_is_of_the_first_that_leaves_such_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for (made, first) in [("damelo", "picaflor"), ("lazy-reads-loc", "stream"), ("oba", "pmflf-pfl")] {
        let path = folder.path().join(made);
        Store::open(sized(picaflor_literature::preset(made).unwrap().place(&path))).unwrap().close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        for block in bytes.chunks_exact_mut(BLOCK).take(2) {
            if let Ok(known) = Superblock::decode(block) {
                Superblock { preset: 0, ..known }.encode(block);
            }
        }
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(remembered(&path), first);
        Store::open(sized(picaflor_literature::options(&path))).unwrap().close().unwrap();
        assert_eq!(remembered(&path), first);
    }
}

#[test]
fn files_are_their_owners_alone_or_as_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let all = |path: &Path| {
        let mut found = vec![mode(path)];
        if path.is_dir() {
            found.extend(std::fs::read_dir(path).unwrap().map(|entry| mode(&entry.unwrap().path())));
        }
        found.sort_unstable();
        found.dedup();
        found
    };
    let store = |preset: &str, path: &Path, bits: Option<u32>| {
        let options = sized(picaflor_literature::preset(preset).unwrap().place(path));
        let store = Store::open(options.with(|options| options.file_mode = bits.unwrap_or(options.file_mode))).unwrap();
        store.put(&key(1), &body(1, 2000)).unwrap();
        store.close().unwrap();
    };
    let (file, files) = (folder.path().join("file"), folder.path().join("files"));
    store("picaflor", &file, None);
    store("simple", &files, None);
    assert_eq!((all(&file), all(&files)), (vec![0o600], vec![0o600, 0o700]));
    // The canary: what others may read is noticed.
    let open = std::fs::File::create(folder.path().join("open")).unwrap();
    open.set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_ne!(all(&folder.path().join("open")), [0o600]);
    // What is there keeps its own.
    store("picaflor", &file, Some(0o700));
    assert_eq!(all(&file), [0o600]);
    let (file, files) = (folder.path().join("file-700"), folder.path().join("files-700"));
    store("picaflor", &file, Some(0o700));
    store("simple", &files, Some(0o700));
    assert_eq!((all(&file), all(&files)), (vec![0o700], vec![0o700]));
    for bits in [0o400, 0o1600, 0] {
        let options = sized(Options::new(folder.path().join("none"))).with(|options| options.file_mode = bits);
        let error = Store::open(options).unwrap_err();
        assert!(matches!(error, Error::Option { name: "file_mode", .. }), "{bits:o}: {error}");
    }
}

#[test]
fn slots_have_the_threshold_that_they_were_made_with() {
    let folder = tempfile::tempdir().unwrap();
    for preset in picaflor_literature::presets() {
        let path = folder.path().join(preset);
        let options = sized(picaflor_literature::preset(preset).unwrap().place(&path)).with(|o| o.threshold = 5);
        let has_classes = ["buddy", "buddy-scan"].contains(&preset);
        if options.wants_folder() {
            continue;
        }
        Store::open(options).unwrap().close().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let blocks = [0, BLOCK].map(|at| Superblock::decode(&bytes[at..]).ok());
        let newest = blocks.into_iter().flatten().max_by_key(|block| block.seq).unwrap();
        assert_eq!(newest.threshold, if has_classes { 5 } else { 0 }, "{preset}");
    }
}
