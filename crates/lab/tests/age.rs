//! Aging, with real stores on small volumes: what is measured is right, the same each time, and leaves nothing behind.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{fs, path::Path};

use picaflor_lab::{
    age::{self, Aged, Case, Kind, Medium, Request, Spec, Start},
    reproduce::{How, reproduce},
};

/// Thirty-two objects on a small volume; more on one that has room for a group of a modelled file system's blocks.
fn small(kind: Kind) -> Spec {
    Spec {
        candidates: vec![kind],
        objects: vec!["256K".parse().unwrap()],
        volumes: vec![if kind.is_modelled() { 64 << 20 } else { 16 << 20 }],
        fills: vec![50.0],
        age: 2.0,
        every: 1.0,
        ..Spec::default()
    }
}

fn run(case: &Case, folder: &Path) -> Aged {
    age::run(case, folder, &["barracuda7200_8".to_owned()], &|_| {}).unwrap()
}

fn means(aged: &Aged) -> Vec<f64> {
    assert_eq!(aged.ended, None);
    aged.samples.iter().map(|sample| sample.fragments.as_ref().unwrap().mean).collect()
}

#[test]
fn every_store_that_needs_no_root_ages_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = Kind::ALL.iter().map(|row| row.0).filter(|kind| !kind.needs_root());
    for kind in kinds {
        // Between its compactions RocksDB has each object twice or three times.
        let fills = vec![if kind == Kind::RocksDb { 25.0 } else { 50.0 }];
        let case = Spec { fills, ..small(kind) }.cases().unwrap().remove(0);
        if let Err(why) = age::check(std::slice::from_ref(&case), folder.path(), &[]) {
            let package = if kind == Kind::RocksDb { "librocksdb-dev" } else { "postgresql" };
            assert!(kind.is_database() && why.to_string().contains(package), "{kind}: {why}");
            continue;
        }
        let aged = run(&case, folder.path());
        assert_eq!((&aged.ended, aged.samples.len()), (&None, 3), "{kind}");
        for (sample, age) in aged.samples.iter().zip([0.0, 1.0, 2.0]) {
            assert!((age..age + 0.1).contains(&sample.age), "{kind}: {} at {age}", sample.age);
            assert_eq!(sample.objects, case.objects());
            assert!(sample.unseen < 0.02, "{kind}: {} of the marks were not found", sample.unseen);
            let parts = sample.fragments.as_ref();
            // A folder for temporary files may be in memory, and then says nothing.
            assert!(parts.is_some() || kind == Kind::Folder, "{kind}");
            assert!(parts.is_none_or(|parts| (1.0..4.0).contains(&parts.mean)), "{kind}: {parts:?}");
            assert!(sample.map.cells > 0 && sample.write_mb_s > 0.0 && sample.read_mb_s > 0.0);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{kind}");
    }
}

#[test]
fn web_objects_age_too() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::PicaflorStore, Kind::Lmdb] {
        let spec = Spec { objects: vec!["web".parse().unwrap()], age: 1.0, ..small(kind) };
        let aged = run(&spec.cases().unwrap().remove(0), folder.path());
        let parts = means(&aged);
        assert!(parts.iter().all(|mean| (1.0..1.2).contains(mean)), "{kind}: {parts:?}");
        assert!(aged.samples[0].objects > 500, "{kind}: {}", aged.samples[0].objects);
    }
}

#[test]
fn a_fragmented_volume_parts_what_is_put_on_it_and_a_whole_one_not() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, at_least) in [(Kind::Sqlite, 8.0), (Kind::Lmdb, 1.0), (Kind::Pmflf, 1.0), (Kind::PicaflorStore, 1.0)] {
        let starts = vec![Start::Fresh, Start::Fragmented];
        let spec = Spec { starts, age: 1.0, ..small(kind) };
        let of: Vec<_> = spec.cases().unwrap().iter().map(|case| run(case, folder.path())).collect();
        let (fresh, fragmented) = (means(&of[0])[0], means(&of[1])[0]);
        assert!(fragmented >= fresh.max(at_least), "{kind}: {fragmented} after {fresh}");
        assert_eq!(of[0].samples[0].objects, of[1].samples[0].objects, "{kind}");
        assert_eq!(of[1].samples[1].unseen, 0.0, "{kind}");
    }
    let of = |kind, size: &str| Spec {
        starts: vec![Start::Fragmented],
        objects: vec![size.parse().unwrap()],
        ..small(kind)
    };
    let refused = |spec: Spec| spec.cases().unwrap_err().to_string();
    assert!(refused(of(Kind::Folder, "256K")).contains("no free room of its own"));
    assert!(refused(of(Kind::Sqlite, "web")).contains("any hole"));
}

#[test]
fn a_large_object_is_written_by_requests_and_a_row_is_not() {
    let spec = Spec { requests: vec![Request::Bytes(16 << 10), Request::All], ..small(Kind::PostgresLarge) };
    let cases = Spec { announces: vec![true, false], ..spec }.cases().unwrap();
    assert_eq!(cases.len(), 2, "nothing is announced to it");
    assert_eq!(cases[0].way(), "postgresql-lo by 16KiB");
    let folder = tempfile::tempdir().unwrap();
    if age::check(&cases, folder.path(), &[]).is_ok() {
        let of: Vec<_> = cases.iter().map(|case| run(case, folder.path())).collect();
        // The same rows of 2 KB, however they come.
        assert_eq!(means(&of[0])[0], means(&of[1])[0]);
    }
}

#[test]
fn marks_and_the_store_s_own_word_agree() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::PicaflorCache, Kind::PicaflorStore, Kind::Stream, Kind::Buddy] {
        let spec = Spec { objects: vec!["256K-1M".parse().unwrap()], volumes: vec![64 << 20], ..small(kind) };
        let aged = run(&spec.cases().unwrap().remove(0), folder.path());
        for (sample, marks) in aged.samples.iter().zip(means(&aged)) {
            let told = sample.told.unwrap();
            // What an object left behind when it was moved may lie in fewer parts, and an end in its head have no mark.
            let is_ours = matches!(kind, Kind::PicaflorCache | Kind::PicaflorStore);
            let alike = if is_ours { 0.97 } else { 1.0 - 1e-9 };
            assert!((alike..=1.0 + 1e-9).contains(&(marks / told)), "{kind}: {marks} by marks, {told} by the store");
        }
    }
}

#[test]
fn where_objects_lie_is_a_function_of_the_case() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::Sqlite, Kind::Lmdb, Kind::PicaflorStore, Kind::Pmflf, Kind::ModelUfs, Kind::ModelNtfs] {
        let case = small(kind).cases().unwrap().remove(0);
        let (one, two) = (run(&case, folder.path()), run(&case, folder.path()));
        assert_eq!(means(&one), means(&two));
        for (one, two) in one.samples.iter().zip(&two.samples) {
            assert_eq!((&one.map, &one.disks), (&two.map, &two.disks), "{kind}");
            let rates = |sample: &age::Sample| (sample.write_mb_s, sample.read_mb_s);
            assert!(!kind.is_modelled() || rates(one) == rates(two), "{kind}: its time is the disk's");
        }
    }
}

#[test]
fn writers_at_one_time_and_a_known_length_are_told_to_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { writers: 4, announces: vec![false, true], ..small(Kind::PicaflorStore) };
    let of: Vec<_> = spec.cases().unwrap().iter().map(|case| run(case, folder.path())).collect();
    assert_eq!(of.len(), 2);
    // Chunks of four objects come in turn, so no two of one object lie together.
    let alone = small(Kind::PicaflorStore).cases().unwrap().remove(0);
    let alone = means(&run(&alone, folder.path()))[0];
    assert!(of.iter().all(|aged| means(aged)[0] >= alone), "{:?} {alone}", of.iter().map(means).collect::<Vec<_>>());
}

#[test]
fn marks_and_the_file_system_s_own_word_agree() {
    let folder = tempfile::tempdir().unwrap();
    // Requests of several objects in turn, each forced: ext4 has no chance to lay them together.
    let spec = Spec {
        volumes: vec![64 << 20],
        requests: vec![Request::Bytes(16 << 10)],
        forces: vec![age::Force::Each],
        writers: 4,
        ..small(Kind::Ext4)
    };
    let case = spec.cases().unwrap().remove(0);
    let ran = age::run(&case, folder.path(), &[], &|_| {});
    if !age::can_mount() {
        let why = ran.unwrap_err().to_string();
        assert!(why.contains("root and loop devices"), "{why}");
    } else {
        let aged = ran.unwrap();
        let means = means(&aged);
        assert!(means.iter().any(|mean| *mean > 1.5), "nothing was parted, so nothing was compared: {means:?}");
        for (sample, marks) in aged.samples.iter().zip(means) {
            let told = sample.told.unwrap();
            assert!((marks / told - 1.0).abs() < 0.01, "{marks} by marks, {told} by FIEMAP");
            assert_eq!(sample.unseen, 0.0);
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(folder.path().to_str().unwrap()));
}

#[test]
fn objects_lie_on_compressed_memory_where_they_lie_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let on = |kind, on| Spec { volumes: vec![64 << 20], on, ..small(kind) }.cases().unwrap().remove(0);
    let zram = on(Kind::PicaflorStore, Medium::Zram);
    if let Err(why) = age::check(std::slice::from_ref(&zram), folder.path(), &[]) {
        return assert!(why.to_string().contains("needs root and the kernel's zram"), "{why}");
    }
    // What a run left that was killed: a device, and a folder with its number.
    let Ok(number) = fs::read_to_string("/sys/class/zram-control/hot_add") else {
        // Of a container.
        return assert!(age::run(&zram, folder.path(), &[], &|_| {}).is_err());
    };
    let left = folder.path().join(format!("picaflor-lab-age-{}-left", u32::MAX));
    fs::create_dir(&left).unwrap();
    fs::write(left.join("zram"), &number).unwrap();
    for kind in [Kind::PicaflorStore, Kind::Pmflf] {
        let (here, there) =
            (run(&on(kind, Medium::Folder), folder.path()), run(&on(kind, Medium::Zram), folder.path()));
        assert_eq!(means(&here), means(&there), "{kind}");
        assert!(!Path::new("/sys/block").join(format!("zram{}", number.trim())).exists());
    }
    let spec = Spec {
        forces: vec![age::Force::Each],
        writers: 4,
        requests: vec![Request::Bytes(16 << 10)],
        ..small(Kind::Ext4)
    };
    let case = Spec { volumes: vec![64 << 20], on: Medium::Zram, ..spec }.cases().unwrap().remove(0);
    let aged = run(&case, folder.path());
    assert!(means(&aged).iter().any(|mean| *mean > 1.5), "{:?}", means(&aged));
    for (sample, marks) in aged.samples.iter().zip(means(&aged)) {
        let told = sample.told.unwrap();
        assert!((marks / told - 1.0).abs() < 0.01 && sample.unseen == 0.0, "{marks} by marks, {told} by FIEMAP");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_store_without_room_ends_and_says_when() {
    let folder = tempfile::tempdir().unwrap();
    let of = |kind, fill| Spec { fills: vec![fill], ..small(kind) }.cases().unwrap().remove(0);
    let lmdb = run(&of(Kind::Lmdb, 98.0), folder.path());
    assert!(lmdb.ended.as_deref().is_some_and(|why| why.contains("full")), "{:?}", lmdb.ended);
    let aged = run(&of(Kind::PicaflorStore, 95.0), folder.path());
    assert!(aged.ended.as_deref().is_some_and(|why| why.contains("full")), "{:?}", aged.ended);
    age::write(&[aged], folder.path()).unwrap();
    assert!(fs::read_to_string(folder.path().join("report.html")).unwrap().contains("full while it was filled"));
}

#[test]
fn what_cannot_be_run_is_said_first() {
    let folder = tempfile::tempdir().unwrap();
    let cases = Spec { volumes: vec![1 << 50], ..small(Kind::Folder) }.cases().unwrap();
    let disks = ["nvme".to_owned()];
    assert!(age::check(&cases, folder.path(), &disks).unwrap_err().to_string().contains("are free"));
    let cases = small(Kind::Folder).cases().unwrap();
    let wrong = age::check(&cases, folder.path(), &["no-disk".to_owned()]).unwrap_err().to_string();
    assert!(wrong.contains("barracuda7200_8"), "{wrong}");
    assert!(age::check(&cases, Path::new("/no/such/folder"), &disks).is_err());
    for kind in [Kind::Folder, Kind::ModelNtfs, Kind::PostgresLarge] {
        let why = Spec { on: Medium::Zram, ..small(kind) }.cases().unwrap_err().to_string();
        assert!(why.contains("leave out --on zram"), "{why}");
    }
}

#[test]
fn the_paper_runs_quickly_and_every_number_is_there() {
    let done = reproduce("sears", None, How { quick: true, ..How::default() }, &|_, _, _| {}).unwrap();
    let of_rows = |id: &str, text: &str| done.all().find(|one| one.id == id && one.what.contains(text)).unwrap().ours;
    assert!(of_rows("S-6", "rows").unwrap() > 1.0 && of_rows("S-4", "1 MB").unwrap() < 1.0);
    let files = done.all().find(|one| one.id == "S-6" && one.what.contains("files")).unwrap();
    match age::can_mount() {
        true => assert!(files.ours.unwrap() >= 1.0),
        false => assert!(files.not_carried.unwrap().contains("root")),
    }
    let folder = tempfile::tempdir().unwrap();
    done.write(folder.path()).unwrap();
    assert!(fs::read_to_string(folder.path().join("report.html")).unwrap().contains("Figure 2"));
    assert!(fs::read_to_string(folder.path().join("aged.json")).unwrap().contains("files-1M") == age::can_mount());
}
