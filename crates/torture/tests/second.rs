//! The second edition of plans: a fixed set of seeds, and those that once found something, each with its row.
//!
//! What is ignored fails on the engine of the day on which it was found; whoever mends that takes the word away.

use picaflor::{Mode, Options};
use picaflor_torture::{Plan, Sabotage, Tally, caught, operations};

fn tortured(plans: impl Iterator<Item = Plan>) -> Tally {
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    for plan in plans {
        match caught(&plan, &operations(&plan), Sabotage::None) {
            Ok(tally) => total += &tally,
            Err(violation) => {
                // Not by the panic, for torture keeps those to itself.
                eprintln!("{violation} --preset {}", plan.preset);
                failed.push((plan.seed, plan.preset));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    let overused = total.excused.overused();
    assert!(overused.is_empty(), "{overused:?}");
    total
}

fn found(seeds: &[(u64, &'static str)]) {
    tortured(seeds.iter().map(|(seed, preset)| Plan::new(*seed, None).with_preset(preset).extended()));
}

/// Seeds of the fixed sets that are ignored tests of their own as long as they fail.
const UNMENDED: [(u64, &str); 5] = [(82, DEFAULT), (92, DEFAULT), (146, DEFAULT), (2, "hummingbird"), (11, "buddy")];
const DEFAULT: &str = "picaflor";

#[test]
fn no_seed_of_the_second_edition_is_violated() {
    let plans = |rest: u64| (0..150).filter(move |seed| seed % 2 == rest && !UNMENDED.contains(&(*seed, DEFAULT)));
    let tortured = move |rest| tortured(plans(rest).map(|seed| Plan::new(seed, None).extended()));
    let total = std::thread::scope(|scope| {
        let odd = scope.spawn(move || tortured(1));
        let mut total = tortured(0);
        match odd.join() {
            Ok(odd) => total += &odd,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        total
    });
    println!("{total}");
    assert!(total.crashes > 600 && total.crashes_of_several > 250 && total.due > 30_000, "tried hard: {total}");
    assert!(total.looks > 700 && total.planted > 10 && total.asked_wrongly > 20, "{total}");
}

#[test]
fn no_seed_of_any_preset_is_violated() {
    for preset in Options::presets().skip(1) {
        let seeds = (0..12).filter(|seed| !UNMENDED.contains(&(*seed, preset)));
        let total = tortured(seeds.map(|seed| Plan::new(seed, None).with_preset(preset).extended()));
        eprintln!("{preset}: {total}");
        assert!(total.looks > 40 && total.due > 800, "{preset} must have tried hard: {total}");
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in 300..312 {
        let plan = Plan::new(seed, None).extended();
        let run = || caught(&plan, &operations(&plan), Sabotage::None).map_err(|violation| violation.to_string());
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
#[ignore = "a device that works writes over its own journal while another one fails, and the store never opens again"]
fn a_journal_that_cannot_be_relieved_is_not_written_over() {
    found(&[
        (82, DEFAULT),
        (92, DEFAULT),
        (146, DEFAULT),
        (197, "buddy"),
        (1243, "damelo"),
        (1745, "hummingbird"),
        (169, "lazy-reads"),
        (23, "stream"),
        (312, "stream-pack"),
    ]);
}

#[test]
#[ignore = "a store of several devices that is opened read-only after a crash shows replaced versions"]
fn what_is_opened_read_only_shows_no_replaced_version() {
    found(&[
        // A store.
        (10_681, DEFAULT),
        // Caches.
        (10_740, DEFAULT),
        (10_846, DEFAULT),
        (10_945, DEFAULT),
        (2123, "damelo"),
        // The opening for writing that followed showed the newer one.
        (11_263, DEFAULT),
        (11_401, DEFAULT),
    ]);
}

#[test]
#[ignore = "a cache of several devices, one of which failed, shows what was replaced or deleted after the next crash"]
fn a_cache_with_a_device_that_failed_shows_no_replaced_version() {
    found(&[
        (10_788, DEFAULT),
        (10_877, DEFAULT),
        (11_126, DEFAULT),
        (1467, "damelo"),
        (1233, "hummingbird"),
        (441, "lazy-reads"),
    ]);
}

#[test]
#[ignore = "the same, by a plan of the first edition: a sync error, then a power failure at the superblock that follows"]
fn a_cache_of_two_devices_shows_no_replaced_version() {
    tortured(std::iter::once(Plan::new(225_753_455_312_465, Some(Mode::Cache))));
}

#[test]
#[ignore = "a file that a crash within an opening tore is believed"]
fn a_torn_file_is_not_believed() {
    let plan = |preset| Plan::new(225_753_378_306_603, None).with_preset(preset);
    tortured(["simple", "squid", "multiple-dirs"].into_iter().map(plan));
}

#[test]
#[ignore = "a durable large object is removed by an opening with less memory than before"]
fn an_opening_with_less_memory_removes_nothing() {
    found(&[(1382, "buddy-scan")]);
}

#[test]
#[ignore = "the audit calls damage what a crash left over: entries that lead to nothing, and hide nothing"]
fn the_audit_of_an_honest_store_finds_no_damage() {
    found(&[
        (10_037, DEFAULT),
        (10_087, DEFAULT),
        (10_222, DEFAULT),
        // A store, every put durable.
        (11_328, DEFAULT),
        (2, "hummingbird"),
        (11, "buddy"),
        (149, "buddy"),
        (357, "buddy"),
        (487, "stream"),
        (1943, "stream"),
        (248, "stream-pack"),
        (968, "stream-pack"),
    ]);
}

#[test]
#[ignore = "the audit says that all is well: the opening took a damaged object for overwritten, a page wants mending"]
fn the_audit_names_the_damage_of_an_object() {
    found(&[
        // Closed cleanly, caches and a store: one entry of the checkpoint is dropped as overwritten.
        (10_273, DEFAULT),
        (10_544, DEFAULT),
        (10_932, DEFAULT),
        // A page of a table.
        (636, "pmflf-ts"),
        (1885, "pmflf-pl"),
        (862, "pmflf-pfl"),
        (1119, "oba"),
    ]);
}

#[test]
#[ignore = "the audit after gets reports what they brought into memory as lost"]
fn the_audit_is_not_misled_by_gets() {
    found(&[(500_574, "damelo")]);
}
