//! Papers, scaled down until they take seconds: that they run, repeat themselves, and measure what they say.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{sync::Arc, time::Duration};

use picaflor_lab::{
    reproduce::{self, How},
    run::{
        micro::{self, Bench, On, Order},
        proxied::{self, Proxied},
        wg::{
            self, Load, Machine, Measured, System, Timing,
            polymix::{self, Answered, Polymix},
        },
    },
    synth::{ObjectKind, Polygraph},
};
use picaflor_sim::Profile;

fn machine(disk: &str, write_cache: bool) -> Machine {
    Machine { disk: disk.into(), write_cache, inodes_per_mib: 64.0, ..Machine::default() }
}

/// A two-hundredth of Table 3's first row, the first 4,000 events of it.
fn load(system: System) -> Load {
    Load {
        system,
        machine: machine("ultrastar18lzx", false),
        disk_mib: 4 << 10,
        memory_mib: (128, 128),
        largest: u64::MAX,
        disks: 1,
        threads: 1,
        timing: Timing::Throttle,
        every: 1000,
        parts: 200,
        events: 800_000,
        seed: 1,
    }
}

fn squid(like: &str) -> System {
    System::Squid { like: like.into(), changes: toml::Table::new() }
}

fn store(preset: &str) -> System {
    System::Store { preset: preset.into(), cluster: 65_536 }
}

fn run(load: &Load) -> Measured {
    wg::run(load, Arc::new(|_| {})).unwrap()
}

#[test]
fn a_part_of_a_disk_moves_its_arm_as_the_whole_does() {
    let whole = Profile::find("ultrastar18lzx").unwrap();
    let part = whole.clone().part(8);
    let (whole, part) = (whole.disk.unwrap(), part.disk.unwrap());
    assert_eq!((part.cylinders, part.blocks), (whole.cylinders / 8, whole.blocks.map(|blocks| blocks / 8)));
    for share in [0.01, 0.1, 0.5, 1.0] {
        let of = |cylinders: u32| (f64::from(cylinders) * share) as u32;
        let (whole, part) = (whole.seek.millis(of(whole.cylinders)), part.seek.millis(of(part.cylinders)));
        assert!((whole / part - 1.0).abs() < 0.05, "{share}: {whole} and {part} ms");
    }
    assert!(part.zones.windows(2).all(|two| two[0].first < two[1].first), "no zone is lost");
}

#[test]
fn synchronous_metadata_costs_what_the_paper_says() {
    let [sync, soft, later] = ["ufs", "ufs-soft-paper", "ufs-async"].map(|like| run(&load(squid(like))));
    for measured in [&sync, &soft, &later] {
        assert_eq!((measured.events, measured.refused), (4000, 0));
        assert_eq!(measured.hits, sync.hits, "who is there does not depend on the file system");
        assert_eq!(measured.hits + measured.writes, measured.events, "what is not there is written");
    }
    // Two synchronous writes a creation, of some milliseconds each.
    assert!(sync.write_ms > 8.0 && soft.write_ms > 8.0, "{} {}", sync.write_ms, soft.write_ms);
    assert!(later.write_ms < 3.0 && later.seconds < sync.seconds / 2.0, "{} {}", later.write_ms, later.seconds);
    assert!(sync.ios_per_event > 1.0, "{}", sync.ios_per_event);
    // One request is under way at a time: the run is its reads and its writes.
    let sum = (sync.hits as f64 * sync.read_ms + sync.writes as f64 * sync.write_ms) / 1e3;
    assert!((sum / sync.seconds - 1.0).abs() < 0.01, "{sum} of {} s", sync.seconds);
}

#[test]
fn a_store_of_clusters_asks_less_of_the_disk_and_repeats_itself() {
    let own = run(&load(store("picaflor")));
    let files = run(&load(squid("ufs-async")));
    assert_eq!(own.events, 4000);
    assert!(own.ios_per_event < files.ios_per_event / 2.0, "{} {}", own.ios_per_event, files.ios_per_event);
    assert!((own.hit_ratio - files.hit_ratio).abs() < 0.04, "{} {}", own.hit_ratio, files.hit_ratio);
    let again = run(&load(store("picaflor")));
    assert_eq!((again.ios, again.seconds.to_bits()), (own.ios, own.seconds.to_bits()));
}

#[test]
fn large_objects_are_left_out_where_they_are_to_be() {
    let all = run(&load(squid("ufs-async")));
    let small = run(&Load { largest: 64 << 10, ..load(squid("ufs-async")) });
    assert!(small.writes < all.writes && small.hits + small.writes < small.events);
}

#[test]
fn events_come_when_the_log_has_them() {
    for system in [squid("ufs-async"), store("picaflor")] {
        let timed = |timing| run(&Load { timing, events: 200_000, ..load(system.clone()) });
        let [throttle, real, fast] = [Timing::Throttle, Timing::Real, Timing::Fast(10.0)].map(timed);
        // A thousand events, one in 72 ms.
        assert!((60.0..90.0).contains(&real.seconds), "{} s", real.seconds);
        assert!(throttle.seconds < fast.seconds && fast.seconds < real.seconds / 3.0, "{} s", fast.seconds);
        assert_eq!((throttle.hits, real.hits), (fast.hits, fast.hits));
    }
}

#[test]
fn two_disks_share_the_work_of_four_threads() {
    for system in [squid("ufs"), store("picaflor")] {
        let one = run(&load(system.clone()));
        let two = run(&Load { disks: 2, threads: 4, ..load(system.clone()) });
        assert_eq!(two.events, one.events);
        assert!(two.seconds < one.seconds, "{system:?}: {} for {}", two.seconds, one.seconds);
        assert!(two.read_ms > 0.8 * one.read_ms, "who waits for others does not read faster: {}", two.read_ms);
    }
}

#[test]
fn every_row_of_the_tables_runs() {
    let quick = How { quick: true, ..How::default() };
    let text = reproduce::spec("hummingbird").unwrap().unwrap();
    let done = reproduce::reproduce("hummingbird", None, quick, &|_, _, _| {}).unwrap();
    assert_eq!(done.grids.iter().map(|grid| grid.rows.len()).collect::<Vec<_>>(), [16, 16, 11, 8, 8]);
    assert!(done.grids.iter().flat_map(reproduce::Grid::verdicts).all(|verdict| verdict.ours.is_some()));
    for id in ["H-3", "H-4", "H-5", "H-6", "H-7", "H-8", "H-9", "H-10"] {
        assert!(done.verdicts.iter().any(|verdict| verdict.id == id), "{id}");
    }
    let folder = tempfile::tempdir().unwrap();
    done.write(folder.path()).unwrap();
    assert!(done.markdown().contains("| ufs-soft | 8 GB | 512+512 |"));
    let wrong = reproduce::reproduce("hummingbird", Some(&text.replace("every =", "evry =")), quick, &|_, _, _| {});
    assert!(wrong.unwrap_err().to_string().contains("evry"));
}

#[test]
fn every_micro_benchmark_runs() {
    let quick = How { quick: true, ..How::default() };
    let done = reproduce::reproduce("damelo", None, quick, &|_, _, _| {}).unwrap();
    for number in 1..=12 {
        let id = format!("D-{number}");
        assert!(done.verdicts.iter().any(|verdict| verdict.id == id), "{id}");
    }
    assert!(done.html().matches("<svg").count() >= 15, "one drawing for each of the fifteen");
}

fn bench(on: On, order: Order) -> Bench {
    Bench {
        on,
        machine: machine("ultrastar9lzx", true),
        parts: 16,
        objects: 2000,
        largest: 16_384,
        groups: 16,
        threads: 16,
        order,
        seed: 1,
    }
}

#[test]
fn micro_benchmarks_read_what_they_created() {
    let machine = machine("ultrastar9lzx", true);
    let ext2 = |mib| Box::new(machine.file_system("ext2", &toml::Table::new(), mib, mib).unwrap().part(16));
    for order in Order::ALL {
        let processor = ext2(64).processor;
        let page = On::Store { preset: "picaflor".into(), page: 65_536, memory: 4 << 20, disk: 64 << 20, processor };
        let store = micro::run(&bench(page, order)).unwrap();
        let cold = micro::run(&bench(On::Files(ext2(64), true), order)).unwrap();
        let warm = micro::run(&bench(On::Files(ext2(1024), false), order)).unwrap();
        for stages in [&store, &cold, &warm] {
            assert_eq!(stages.lost, 0, "{order:?}");
            assert!(stages.create_ms > 0.0 && stages.read_ms > 0.0, "{order:?} {stages:?}");
        }
        assert!(cold.read_ms >= warm.read_ms && cold.read_ms > store.read_ms, "{order:?}: {cold:?} {store:?}");
    }
}

#[test]
fn four_threads_on_files_read_faster_than_one_and_repeat_themselves() {
    let ext2 = machine("ultrastar9lzx", true).file_system("ext2", &toml::Table::new(), 64, 64).unwrap().part(16);
    let by = |threads, seed| {
        let on = On::Files(Box::new(ext2.clone()), true);
        let stages = micro::run(&Bench { threads, seed, ..bench(on, Order::Random) }).unwrap();
        assert_eq!(stages.lost, 0);
        [stages.create_ms, stages.read_ms, stages.delete_ms].map(f64::to_bits)
    };
    let read_ms = |stages: [u64; 3]| f64::from_bits(stages[1]);
    let (one, four) = (by(1, 1), by(4, 1));
    assert!(read_ms(four) < 0.95 * read_ms(one), "{} {}", read_ms(four), read_ms(one));
    assert_eq!(by(4, 1), four);
    assert_ne!(by(4, 2), four);
}

#[test]
fn after_a_crash_gets_are_answered_at_once_and_puts_when_all_was_gone_over() {
    let load = Load { events: 3_000_000, disk_mib: 3 << 10, parts: 100, ..load(store("hummingbird")) };
    let crash = || wg::crash(&load, 20, Arc::new(|_| {})).unwrap();
    let ours = crash();
    // Who was deleted while it waited in memory is in no log.
    assert!((15..=20).contains(&ours.deletes) && ours.hot > 5, "{ours:?}");
    // Each hot cluster is a read of some milliseconds, in order of address.
    assert!(ours.seconds > 0.002 * ours.hot as f64 && ours.seconds < 2.0, "{ours:?}");
    assert!(ours.refused > 100 && ours.events > 200, "{ours:?}");
    assert!(ours.read_ms > ours.read_ms_otherwise, "a reader finds the disk busy: {ours:?}");
    let again = crash();
    assert_eq!((again.seconds.to_bits(), again.read_ms.to_bits()), (ours.seconds.to_bits(), ours.read_ms.to_bits()));
    let error = wg::crash(&Load { system: squid("ufs"), ..load.clone() }, 1, Arc::new(|_| {})).unwrap_err();
    assert!(error.to_string().contains("only stores"), "{error}");
}

#[test]
fn a_part_of_a_paper_runs_alone() {
    for (paper, id, rows) in [("damelo", "D-12", 4), ("hummingbird", "h-9", 3)] {
        let how = How { quick: true, only: Some(reproduce::part(paper, id).unwrap()), ..How::default() };
        let done = reproduce::reproduce(paper, None, how, &|_, _, _| {}).unwrap();
        assert_eq!((done.verdicts.len(), done.grids.len()), (rows, 0), "{paper}");
        assert!(done.verdicts.iter().all(|verdict| verdict.id.eq_ignore_ascii_case(id)), "{paper}");
        let without = done.verdicts.iter().filter(|verdict| verdict.ours.is_none());
        assert_eq!(without.count(), usize::from(paper == "damelo"), "Squid alone is not run");
    }
    let refused = |paper, id| reproduce::part(paper, id).unwrap_err().to_string();
    assert!(refused("damelo", "D-13").contains("D-12"), "it says what there is");
    assert!(refused("markatos", "M-1").contains("as a whole"));
}

fn polygraph(largest: u64) -> Polygraph {
    let kind = ObjectKind { share: 1.0, cacheable: 0.8, mean: 4000.0, deviation: 0.0, largest };
    Polygraph { revisits: 0.55, working_set: 0, kinds: vec![kind] }
}

#[test]
fn the_real_proxy_answers_what_its_origin_has_and_asks_it_once() {
    for preset in ["damelo", "squid", "picaflor"] {
        let test = Proxied { preset: preset.into(), ..proxy_test() };
        let all: Vec<_> = test.model.requests(1).take(2000).collect();
        let objects: std::collections::HashSet<u64> = all.iter().map(|request| request.key).collect();
        let cacheable = |key: &u64| test.model.object(*key).0;
        let again = all.len() - objects.len();
        let never = all.iter().filter(|request| !cacheable(&request.key)).count();
        let least = objects.iter().filter(|key| cacheable(key)).count() + never;
        let served = proxied::run(&test).unwrap();
        assert_eq!(served.requests, 2000, "{preset}");
        // Two clients may ask at one time for what may not be shared; what may be is fetched once.
        let asked = served.asked_origin as usize;
        assert!((least..least + 20).contains(&asked), "{preset}: {asked} of {least}, {again} again");
        assert!(served.hit_ratio > 0.3 && served.per_second > 0.0, "{preset}: {served:?}");
    }
    let wrong = Proxied { preset: "no such row".into(), ..proxy_test() };
    assert!(proxied::run(&wrong).unwrap_err().to_string().contains("no such row"));
}

fn proxy_test() -> Proxied {
    Proxied {
        preset: "picaflor".into(),
        memory: 32 << 20,
        capacity: 96 << 20,
        model: polygraph(13_312),
        connections: 4,
        time: Duration::from_secs(600),
        most: Some(2000),
        seed: 1,
        folder: None,
    }
}

fn polymix(rate: f64) -> Polymix {
    Polymix {
        rate,
        think_ms: (500.0, 100.0),
        request_ms: 1.0,
        seconds: (300.0, 300.0),
        disk_mib: 512,
        memory_mib: 4,
        processes: 64,
        requests: polygraph(0),
    }
}

#[test]
fn a_proxy_on_files_answers_hits_later_than_one_on_clusters() {
    let serve = |rate, system: &System| -> Answered {
        polymix::serve(&polymix(rate), &machine("ultrastar18lzx", false), system, 1, Arc::new(|_| {})).unwrap()
    };
    let [files, own] = [squid("ufs"), store("hummingbird")].map(|system| serve(8.0, &system));
    for answered in [&files, &own] {
        assert!((2200..2600).contains(&answered.requests), "{answered:?}");
        // 55% come again, and 80% of them may be cached; a few while the first is still being fetched.
        assert!((0.41..0.45).contains(&answered.hit_ratio), "{answered:?}");
        assert!(answered.miss_median_ms > 490.0 && answered.miss_ms < 700.0, "{answered:?}");
    }
    assert!(files.hit_ms > 3.0 * own.hit_ms && files.busy > own.busy, "{files:?} {own:?}");
    assert!(files.ios_per_request > 3.0 && own.ios_per_request < 1.0, "{files:?} {own:?}");
    let busy = serve(24.0, &squid("ufs"));
    assert!(busy.hit_ms > 1.5 * files.hit_ms, "who comes waits for those before: {busy:?}");
    let again = serve(8.0, &store("hummingbird"));
    assert_eq!((again.hit_ms.to_bits(), again.miss_ms.to_bits()), (own.hit_ms.to_bits(), own.miss_ms.to_bits()));
}
