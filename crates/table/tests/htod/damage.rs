//! Index pages that rot, each of them, after a clean stop and after a crash: everything is found again or named as
//! lost, and nothing comes back that was removed.

use std::{collections::BTreeSet, sync::Arc};

use picaflor_device::{AlignedBuf, Device, MemoryDevice};
use picaflor_format::{
    BLOCK,
    htod::{SECTOR, SECTORS, check_sector},
};
use picaflor_sim::{Fault, FaultyDevice, On, Rule, kill};
use picaflor_table::{
    Error,
    blocks::BlockOptions,
    htod::{Durable, HashTables, Table},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{crash::Oracle, key, open, options, value};

const MIB: usize = 2;

type Image = Vec<u8>;

fn image_of(device: &Arc<dyn Device>) -> Image {
    let mut image = AlignedBuf::zeroed(device.capacity() as usize);
    device.read(0, &mut image).unwrap();
    image.to_vec()
}

fn device_of(image: &Image) -> Arc<dyn Device> {
    let device = Arc::new(MemoryDevice::with_block_size(image.len() as u64, 512));
    device.write(0, &AlignedBuf::copy_from(image)).unwrap();
    device
}

/// Where index pages begin: table and number of each.
fn pages(image: &Image) -> Vec<(usize, u32, u64)> {
    let mut found = Vec::new();
    for at in (0..=image.len() - BLOCK).step_by(SECTOR) {
        let word = |offset: usize| u32::from_le_bytes(image[at + offset..][..4].try_into().unwrap());
        let (table, number) = (word(8), word(12));
        let page = u64::from(number) / SECTORS as u64;
        let is_first = (number as usize).is_multiple_of(SECTORS);
        if is_first && check_sector(&image[at..at + BLOCK], table, page, 0).is_ok() {
            found.push((at, table, page));
        }
    }
    found
}

/// Ways in which a page rots: a bit of each part of a sector; all of the sector; all of the page.
fn rot(image: &Image, at: usize, sector: usize, way: usize) -> Image {
    let (mut image, from) = (image.clone(), at + sector * SECTOR);
    match way {
        0 => image[from + 1] ^= 4,
        1 => image[from + 5] ^= 1,
        2 => image[from + 13] ^= 2,
        3 => image[from + 16] ^= 1,
        4 => image[from + 40] ^= 0x80,
        5 => image[from..from + SECTOR].fill(0),
        _ => image[at..at + BLOCK].fill(0xa5),
    }
    image
}

const WAYS: usize = 7;

/// What gets say while pages are damaged: what the oracle allows, or that it is damaged. How often the latter.
fn glance(table: &Table, oracle: &Oracle) -> Result<u64, String> {
    let mut damaged = 0;
    for (number, states) in oracle.all() {
        match table.get(&key(number)) {
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => return Err(error.to_string()),
            Ok(got) if states.iter().any(|it| it.map(|version| value(number, version)) == got) => {}
            Ok(got) => return Err(format!("key {number}, allowed {states:?}, is there: {}", got.is_some())),
        }
    }
    Ok(damaged)
}

/// Puts, replaces and removes; keys on several pages.
fn filled(durable: Durable) -> (Arc<dyn Device>, HashTables, Oracle) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size((MIB as u64) << 20, 512));
    let (tables, _) = open(&device, durable);
    let (table, mut oracle) = (tables.table("t").unwrap(), Oracle::default());
    let mut set = |number: u64, version: Option<u64>| {
        match version {
            Some(version) => table.put(&key(number), &value(number, version)).unwrap(),
            None => assert!(table.remove(&key(number)).unwrap()),
        }
        oracle.done(number, version, true);
    };
    (0..500).for_each(|number| set(number, Some(0)));
    (0..500).step_by(3).for_each(|number| set(number, Some(1)));
    (0..500).step_by(5).for_each(|number| set(number, None));
    (0..500).step_by(45).for_each(|number| set(number, Some(2)));
    tables.commit().unwrap();
    (device, tables, oracle)
}

/// Opens what rotted, looks, has it mended and looks again. How many gets found it damaged at first, or what was wrong.
fn mend(image: &Image, oracle: &Oracle) -> Result<u64, String> {
    let device = device_of(image);
    let (tables, receipt) = open(&device, Durable::EachCall);
    let (table, mut oracle) = (tables.table("t").unwrap(), oracle.clone());
    let damaged = glance(&table, &oracle)?;
    let keys = table.len();
    let mended = tables.mend().map_err(|error| error.to_string())?;
    if (damaged > 0) != (mended.rebuilt > 0) && receipt.clean {
        return Err(format!("{damaged} gets failed, and {mended:?}"));
    }
    oracle.check(&table)?;
    if receipt.clean && table.len() != keys || table.len() != table.keys().count() as u64 {
        return Err(format!("{} keys are counted, {keys} were", table.len()));
    }
    // What was made anew is durable, and the rest of the work goes on.
    table.put(b"more", b"of it").unwrap();
    assert!(table.remove(b"more").unwrap());
    drop((table, tables));
    let (tables, _) = open(&device, Durable::EachCall);
    oracle.check(&tables.table("t").unwrap())?;
    let again = tables.mend().map_err(|error| error.to_string())?;
    if (again.rebuilt, again.freed) != (0, 0) {
        return Err(format!("something was left over: {again:?}"));
    }
    Ok(damaged)
}

#[test]
fn whatever_page_rots_after_a_clean_stop_all_is_found_again() {
    let (device, tables, oracle) = filled(Durable::EachCall);
    tables.close().unwrap();
    let image = image_of(&device);
    let all = pages(&image);
    assert!(all.len() > 5, "{all:?}");
    let mut damaged = 0;
    for &(at, table, page) in &all {
        for way in 0..WAYS {
            let sector = (page as usize + way) % SECTORS;
            let rotten = rot(&image, at, sector, way);
            let met = mend(&rotten, &oracle);
            damaged += met.unwrap_or_else(|what| panic!("table {table} page {page}, way {way}: {what}"));
        }
    }
    assert!(damaged > 500, "{damaged} gets met damage");
    // All of them at once.
    let rotten = all.iter().fold(image.clone(), |image, &(at, ..)| rot(&image, at, at / BLOCK % SECTORS, 4));
    mend(&rotten, &oracle).unwrap_or_else(|what| panic!("all pages: {what}"));
}

/// Where the headers stand of the areas that tables lie in: their headers' and extents' own.
fn areas(image: &Image) -> Vec<usize> {
    let is_area = |at: &usize| image[*at..].starts_with(b"PFbh") && image[at + 52] & 1 == 1;
    let is_table = |at: &usize| ["PFht", "PFhs"].iter().any(|magic| image[at + SECTOR..].starts_with(magic.as_bytes()));
    (0..image.len() - BLOCK).step_by(SECTOR).filter(is_area).filter(is_table).collect()
}

#[test]
fn headers_of_areas_that_rot_take_nothing_with_them() {
    for is_clean in [true, false] {
        let (device, tables, mut oracle) = filled(Durable::EachCall);
        if is_clean {
            tables.close().unwrap();
        } else {
            kill(tables);
        }
        let mut image = image_of(&device);
        let rotten = areas(&image);
        assert!(rotten.len() > 7, "{rotten:?}");
        rotten.into_iter().for_each(|at| image[at + 9] ^= 4);
        let device = device_of(&image);
        for round in 0..3 {
            let (tables, _) = open(&device, Durable::EachCall);
            let table = tables.table("t").unwrap();
            oracle.check(&table).unwrap();
            // What is written meanwhile is written to none of them.
            for number in 1000 * round..1000 * round + 300 {
                table.put(&key(number), &value(number, 7)).unwrap();
                oracle.done(number, Some(7), true);
            }
            assert_eq!(tables.mend().unwrap().rebuilt, 0);
            oracle.check(&table).unwrap();
            // As a crash leaves it.
            kill((tables, table));
        }
    }
}

#[test]
fn a_page_that_rots_while_the_table_is_in_use_is_made_anew_beside_it() {
    let (device, tables, mut oracle) = filled(Durable::AtCommit);
    let table = tables.table("t").unwrap();
    // More than the cache holds, so that pages are read again.
    for number in 10_000..12_500 {
        table.put(&key(number), b"filler").unwrap();
    }
    tables.commit().unwrap();
    let image = image_of(&device);
    let victims: Vec<_> = pages(&image).into_iter().filter(|&(_, table, page)| table != 0 && page < 6).collect();
    for &(at, ..) in &victims {
        device.write(at as u64, &AlignedBuf::copy_from(&rot(&image, at, 2, 4)[at..at + SECTOR * 3])).unwrap();
    }
    for number in 10_000..12_500 {
        drop(table.get(&key(number)));
    }
    assert!(glance(&table, &oracle).unwrap() > 0 && tables.has_damage());
    // Puts to a damaged page are refused, and leave nothing.
    let refused: Vec<u64> = (20_000..20_200).filter(|&number| table.put(&key(number), b"x").is_err()).collect();
    assert!(!refused.is_empty());
    let mended = tables.mend().unwrap();
    assert!(mended.rebuilt > 0 && !tables.has_damage(), "{mended:?}");
    assert_eq!(glance(&table, &oracle), Ok(0));
    for number in refused {
        assert_eq!(table.get(&key(number)).unwrap(), None);
        oracle.states(number);
    }
    assert_eq!((10_000..12_500).filter(|&number| table.get(&key(number)).unwrap().is_some()).count(), 2500);
    assert_eq!(table.len(), table.keys().count() as u64);
}

#[test]
fn of_many_keys_those_of_a_damaged_page_are_errors_and_the_others_are_answered() {
    let (device, tables, oracle) = filled(Durable::EachCall);
    tables.close().unwrap();
    let image = image_of(&device);
    let (at, ..) = pages(&image).into_iter().find(|&(_, table, page)| table != 0 && page == 2).unwrap();
    let device = device_of(&rot(&image, at, 3, 4));
    let (tables, _) = open(&device, Durable::EachCall);
    let table = tables.table("t").unwrap();
    let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let held = tables.stats().cached_pages;
    for _ in 0..3 {
        let many = table.get_many(&names).unwrap();
        let damaged = many.iter().filter(|answer| matches!(answer, Err(Error::Damaged { .. }))).count();
        assert!((5..60).contains(&damaged), "{damaged} of a hundred keys in one page of several");
        for (number, answer) in (0..).zip(many) {
            match (answer, table.get(&key(number))) {
                (Ok(many), Ok(one)) => assert_eq!(many, one, "key {number}"),
                (Err(many), Err(one)) => assert_eq!(many.to_string(), one.to_string()),
                (many, one) => panic!("key {number}: {many:?} with others, {one:?} alone"),
            }
        }
        assert!(tables.stats().cached_pages < held + table.pages() as usize, "the damaged one is not kept");
    }
    assert!(glance(&table, &oracle).unwrap() > 0);
    assert_eq!(tables.mend().unwrap().rebuilt, 1);
    assert_eq!(glance(&table, &oracle), Ok(0));
    for (number, answer) in (0..).zip(table.get_many(&names).unwrap()) {
        assert_eq!(answer.unwrap(), table.get(&key(number)).unwrap());
    }
}

/// One workload, as far as a crash at an operation lets it come; `None` if it came to its end.
fn crashed(seed: u64, point: u64, oracle: &mut Oracle, device: &FaultyDevice) -> bool {
    device.add(Rule::nth(Fault::Crash(On::Any), point));
    let mut random = SmallRng::seed_from_u64(seed);
    let done = || -> picaflor_table::Result<()> {
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        let (tables, _) = HashTables::open(shared, BlockOptions::default(), options(Durable::EachCall))?;
        let table = tables.table("t")?;
        for version in seed * 10_000.. {
            let number = random.random_range(0..300);
            if random.random_range(0..3) == 0 {
                oracle.states(number).push(None);
                table.remove(&key(number))?;
                oracle.done(number, None, true);
            } else {
                oracle.states(number).push(Some(version));
                table.put(&key(number), &value(number, version))?;
                oracle.done(number, Some(version), true);
            }
            if version % 10_000 == 1200 {
                break;
            }
        }
        Ok(())
    }();
    device.clear_rules();
    if device.is_crashed() {
        device.revive().unwrap();
        return true;
    }
    done.unwrap();
    false
}

/// Devices as a crash at each of these points left them, with what may be there, and words for it; without those whose
/// workload came to its end before.
fn crashes(seed: u64, points: impl Iterator<Item = u64>) -> impl Iterator<Item = (Arc<dyn Device>, Oracle, String)> {
    (seed..).zip(points).filter_map(|(seed, point)| {
        let medium = Arc::new(MemoryDevice::with_block_size((MIB as u64) << 20, 512));
        let (device, mut oracle) = (FaultyDevice::new(medium, seed), Oracle::default());
        let has_crashed = crashed(seed, point, &mut oracle, &device);
        has_crashed.then(|| (Arc::new(device) as _, oracle, format!("seed {seed}, crash at {point}")))
    })
}

/// `Err` is a wrong answer; `Ok` says how many gets met damage, and whether all was mended.
fn look_after_crash(image: &Image, oracle: &Oracle) -> Result<(u64, bool), String> {
    let device = device_of(image);
    let shared = Arc::clone(&device);
    let opened = HashTables::open(shared, BlockOptions::default(), options(Durable::EachCall));
    let tables = match opened.and_then(|(tables, _)| tables.table("t").map(|table| (tables, table))) {
        Ok(opened) => opened,
        Err(Error::Damaged { .. }) => return Ok((1, false)),
        Err(error) => return Err(error.to_string()),
    };
    let (tables, table) = tables;
    let mut oracle = oracle.clone();
    let damaged = glance(&table, &oracle)?;
    match tables.mend() {
        Ok(_) => oracle.check(&table).map(|()| (damaged, true)),
        Err(Error::Damaged { why, mend, .. }) => {
            assert!(mend.contains("deleted between two crashes"), "{why}: {mend}");
            assert!(glance(&table, &oracle)? == damaged && tables.wants_mending());
            Ok((damaged, false))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn whatever_page_rots_after_a_crash_all_is_found_again_and_nothing_that_was_removed() {
    let (mut damaged, mut points) = (0, 0);
    for (device, oracle, crash) in crashes(0, (900..4000).step_by(311)) {
        points += 1;
        let image = image_of(&device);
        for (at, table, page) in pages(&image) {
            for way in 3..WAYS {
                let rotten = rot(&image, at, (page as usize + way) % SECTORS, way);
                let at = format!("{crash}, table {table} page {page}, way {way}");
                let (met, mended) = look_after_crash(&rotten, &oracle).unwrap_or_else(|what| panic!("{at}: {what}"));
                assert!(mended, "{at}");
                damaged += met;
            }
        }
    }
    assert!(points > 5 && damaged > 500, "{points} {damaged}");
}

#[test]
fn after_a_second_crash_without_mending_a_page_is_left_alone_or_right() {
    let (mut refused, mut mended) = (0, 0);
    for seed in 100..106 {
        let medium = Arc::new(MemoryDevice::with_block_size((MIB as u64) << 20, 512));
        let device = FaultyDevice::new(medium, seed);
        let mut oracle = Oracle::default();
        assert!(crashed(seed, 1500 + seed % 7, &mut oracle, &device));
        assert!(crashed(seed + 1000, 300 + seed, &mut oracle, &device));
        let image = image_of(&(Arc::new(device) as Arc<dyn Device>));
        for (at, table, page) in pages(&image) {
            let rotten = rot(&image, at, page as usize % SECTORS, 4);
            let met = look_after_crash(&rotten, &oracle);
            let (_, is_mended) = met.unwrap_or_else(|what| panic!("seed {seed}, table {table} page {page}: {what}"));
            *(if is_mended { &mut mended } else { &mut refused }) += 1;
        }
    }
    assert!(refused > 6, "{refused} refused, {mended} mended");
}

/// Where the block begins that holds an entry of this key.
fn block_of(image: &Image, key: &[u8]) -> Option<usize> {
    let mut places = (0..image.len() - SECTOR).step_by(SECTOR);
    places.find(|&at| {
        image[at..].starts_with(b"PFbh") && image[at + 64..].starts_with(b"PFhe") && image[at + 84..].starts_with(key)
    })
}

#[test]
fn the_harness_catches_a_remove_that_leaves_its_block_allocated() {
    let (device, tables, mut oracle) = filled(Durable::EachCall);
    let table = tables.table("t").unwrap();
    let before = image_of(&device);
    let gone: BTreeSet<u64> = (0..500).filter(|&number| number % 5 != 0 && number % 7 == 0).collect();
    for &number in &gone {
        assert!(table.remove(&key(number)).unwrap());
        oracle.done(number, None, true);
    }
    kill(tables);
    let image = image_of(&device);
    let mut caught = 0;
    for &number in &gone {
        let Some(at) = block_of(&before, &key(number)) else { continue };
        let mut lying = image.clone();
        lying[at..at + SECTOR].copy_from_slice(&before[at..at + SECTOR]);
        let all = pages(&lying);
        assert!(look_after_crash(&lying, &oracle).is_ok(), "nobody asks for it while the pages are whole");
        for (at, ..) in all {
            caught += u64::from(look_after_crash(&rot(&lying, at, 0, 6), &oracle).is_err());
        }
    }
    assert!(caught as usize * 2 > gone.len(), "{caught} of {}", gone.len());
}

#[test]
fn what_was_shown_before_a_close_does_not_give_way_to_an_older_version_when_it_rots() {
    let (mut points, mut damaged) = (0, 0);
    for (device, mut oracle, crash) in crashes(200, (900..4000).step_by(250)) {
        points += 1;
        let (tables, _) = open(&device, Durable::EachCall);
        oracle.check(&tables.table("t").unwrap()).unwrap();
        tables.close().unwrap();
        let mut image = image_of(&device);
        // Not of all: each is looked for on the whole device.
        for (number, states) in oracle.all().take(80) {
            let Some(version) = states[0] else { continue };
            let body = value(number, version);
            let places: Vec<usize> =
                (0..image.len() - body.len()).filter(|at| image[*at..].starts_with(&body)).collect();
            places.iter().for_each(|at| image[*at] ^= 1);
        }
        let (tables, _) = open(&device_of(&image), Durable::EachCall);
        let table = tables.table("t").unwrap();
        for (number, states) in oracle.all() {
            match table.get(&key(number)) {
                // As long as nothing is mended, what is not there may never have come.
                Err(Error::Damaged { .. }) | Ok(None) => damaged += 1,
                got => assert!(
                    got.unwrap() == states[0].map(|version| value(number, version)),
                    "{crash}: key {number} is neither {states:?} nor damaged"
                ),
            }
        }
    }
    assert!(points > 5 && damaged > 200, "{points} {damaged}");
}
