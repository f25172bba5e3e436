//! `picaflor-torture`: runs seeds until one fails or all have passed.
#![forbid(unsafe_code)]

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use picaflor::Mode;
use picaflor_torture::{Plan, Sabotage, Tally, Trouble, Violation, caught, notice, operations, rss, shrink, trace};

const HELP: &str = "\
Runs a store on devices that crash, fail, lie and are damaged, and checks every answer.

usage: picaflor-torture [options]

  --seeds N        seeds to run (default 200)
  --from S         first seed (default 0)
  --seconds T      stop after this time, whatever is left
  --preset NAME    row of the engine's table, or `all` (default: picaflor)
  --mode MODE      cache or store (default: as the seed says)
  --trouble KIND   only seeds whose devices have it: crashes, failing, lying or damage; the others are passed over
  --plan N         edition of the plans: 2 (default), or 1, whose seeds have one device or two, nothing in flight, no
                   looks between lives and no failure that lasts; seeds found before edition 2 mean what they meant
  --jobs N         threads (default: as many as there are processors)
  --keep-going     do not stop at the first violation
  --trace          print every operation as it is run
  --deaf           no listener hears what leaves a cache, as in most programs; then what is missing says nothing, and
                   what is shown is judged
  --no-audit       do not judge what the audit (`Store::check`) says; for as long as a fault of it hides others
  --canary         break the store on purpose; status 1 if every break is noticed
  --rss            instead of seeds, fill stores in files of the folder for temporary ones, one after the other, and
                   hold what the kernel counts to the cap + 10% + 16 MiB; its canary holds memory beside the first
  -v, --verbose    the plan of each seed, and the shortest failing operations
  -h, --help       this

Status: 0 if nothing was found, 1 for a violation or an excuse that was needed too often, 2 for a mistake in the call.";

/// A seed that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// Runs in which a failing one is made shorter.
const TRIES: u32 = 400;

#[derive(Clone, Default)]
struct Call {
    seeds: u64,
    from: u64,
    seconds: Option<u64>,
    mode: Option<Mode>,
    /// Seeds of other troubles are passed over.
    trouble: Option<Trouble>,
    /// Plans of the first edition.
    first_edition: bool,
    presets: Vec<&'static str>,
    jobs: usize,
    keep_going: bool,
    canary: bool,
    no_audit: bool,
    deaf: bool,
    rss: bool,
    verbose: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Some(call)) if call.rss => resident(call.canary),
        Ok(Some(call)) if call.canary => canary(&call),
        Ok(Some(call)) => torture(&call),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("picaflor-torture: {mistake}; --help shows what there is");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Call>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut call = Call { seeds: 200, jobs, presets: presets("picaflor")?, ..Call::default() };
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{arg} needs a number, not {value:?}"))
        };
        match arg.as_str() {
            "--seeds" => call.seeds = number()?,
            "--from" => call.from = number()?,
            "--seconds" => call.seconds = Some(number()?),
            "--jobs" => call.jobs = number()?.max(1) as usize,
            "--mode" => {
                call.mode = match args.next().as_deref() {
                    Some("cache") => Some(Mode::Cache),
                    Some("store") => Some(Mode::Store),
                    _ => return Err("--mode needs cache or store".into()),
                }
            }
            "--trouble" => {
                call.trouble = match args.next().as_deref() {
                    Some("crashes") => Some(Trouble::Crashes),
                    Some("failing") => Some(Trouble::Failing),
                    Some("lying") => Some(Trouble::Lying),
                    Some("damage") => Some(Trouble::Damage),
                    _ => return Err("--trouble needs crashes, failing, lying or damage".into()),
                }
            }
            "--plan" => {
                call.first_edition = match number()? {
                    1 => true,
                    2 => false,
                    other => return Err(format!("--plan needs 1 or 2, not {other}")),
                }
            }
            "--preset" => call.presets = presets(&args.next().unwrap_or_default())?,
            "--keep-going" => call.keep_going = true,
            "--trace" => trace(true),
            "--canary" => call.canary = true,
            "--no-audit" => call.no_audit = true,
            "--deaf" => call.deaf = true,
            "--rss" => call.rss = true,
            "-v" | "--verbose" => call.verbose = true,
            "-h" | "--help" => return Ok(None),
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    Ok(Some(call))
}

/// The rows of this name.
fn presets(name: &str) -> Result<Vec<&'static str>, String> {
    let found: Vec<_> = picaflor_literature::presets().filter(|preset| *preset == name || name == "all").collect();
    if found.is_empty() {
        let all: Vec<_> = picaflor_literature::presets().collect();
        return Err(format!("--preset needs one of {}, or all", all.join(", ")));
    }
    Ok(found)
}

/// What all threads share.
struct Progress {
    next: AtomicU64,
    stop: AtomicBool,
    total: Mutex<Tally>,
    found: Mutex<Vec<Violation>>,
    /// What each thread is at, and since when.
    at: Vec<Mutex<Option<(u64, Instant)>>>,
}

fn torture(call: &Call) -> ExitCode {
    let began = Instant::now();
    let progress = Progress {
        next: AtomicU64::new(call.from),
        stop: AtomicBool::new(false),
        total: Mutex::default(),
        found: Mutex::default(),
        at: (0..call.jobs).map(|_| Mutex::new(None)).collect(),
    };
    let end = call.from.saturating_add(call.seeds);
    std::thread::scope(|scope| {
        for job in 0..call.jobs {
            let progress = &progress;
            scope.spawn(move || work(call, progress, job, end));
        }
        watch(call, &progress, began, end);
    });
    let mut found = progress.found.lock().map(|found| found.len()).unwrap_or(1);
    let ran = progress.next.load(Relaxed).min(end) - call.from;
    if let Ok(total) = progress.total.lock() {
        let (seconds, most) = (began.elapsed().as_secs_f64(), rss::most().unwrap_or(0) >> 20);
        let rate = total.crashes as f64 / seconds;
        println!("{ran} seeds in {seconds:.1} s, {rate:.0} crash points a second, RSS at most {most} MiB: {total}");
        for overused in total.excused.overused() {
            println!("\nVIOLATION over all these seeds: {overused}");
            found += 1;
        }
    }
    match found {
        0 => ExitCode::SUCCESS,
        found => {
            println!("{found} violations");
            ExitCode::from(1)
        }
    }
}

fn work(call: &Call, progress: &Progress, job: usize, end: u64) {
    loop {
        let seed = progress.next.fetch_add(1, Relaxed);
        if seed >= end || progress.stop.load(Relaxed) {
            progress.next.fetch_min(seed, Relaxed);
            break;
        }
        note(progress, job, Some((seed, Instant::now())));
        let preset = call.presets[(seed - call.from) as usize % call.presets.len()];
        let plan = Plan::new(seed, call.mode).with_preset(preset);
        let plan = if call.first_edition { plan } else { plan.extended() };
        let plan = Plan { audited: plan.audited && !call.no_audit, deaf: call.deaf, ..plan };
        if call.trouble.is_some_and(|trouble| trouble != plan.trouble) {
            continue;
        }
        if call.verbose {
            println!("seed {seed}: {}", plan.describe());
        }
        let ops = operations(&plan);
        match caught(&plan, &ops, Sabotage::None) {
            Ok(tally) => {
                if let Ok(mut total) = progress.total.lock() {
                    *total += &tally;
                }
            }
            Err(violation) => {
                if !call.keep_going {
                    progress.stop.store(true, Relaxed);
                }
                tell(call, &plan, &violation);
                if let Ok(mut found) = progress.found.lock() {
                    found.push(violation);
                }
            }
        }
    }
    note(progress, job, None);
}

fn note(progress: &Progress, job: usize, what: Option<(u64, Instant)>) {
    if let Ok(mut at) = progress.at[job].lock() {
        *at = what;
    }
}

fn tell(call: &Call, plan: &Plan, violation: &Violation) {
    let mode = match call.mode {
        None => "",
        Some(Mode::Cache) => " --mode cache",
        Some(Mode::Store) => " --mode store",
    };
    let edition = if call.first_edition { " --plan 1" } else { "" };
    let audit = if call.no_audit { " --no-audit" } else { "" };
    let deaf = if call.deaf { " --deaf" } else { "" };
    println!("\n{violation}{mode}{edition}{audit}{deaf} --preset {}", plan.preset);
    if call.verbose
        && let Some((kept, shortest)) = shrink(plan, &operations(plan), TRIES)
    {
        println!("\nThe shortest run that fails has {} operations:", kept.len());
        trace(true);
        let again = caught(plan, &kept, Sabotage::None);
        trace(false);
        println!("{}", again.err().unwrap_or(shortest));
    }
}

/// Prints progress, ends the run when its time is up, and does not wait for a seed that hangs.
fn watch(call: &Call, progress: &Progress, began: Instant, end: u64) {
    let mut printed = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let busy: Vec<(u64, Instant)> = progress.at.iter().filter_map(|at| at.lock().ok().and_then(|at| *at)).collect();
        if busy.is_empty() && (progress.next.load(Relaxed) >= end || progress.stop.load(Relaxed)) {
            return;
        }
        if call.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds)) {
            progress.stop.store(true, Relaxed);
        }
        for (seed, since) in &busy {
            if since.elapsed() > LONGEST && !call.verbose {
                let preset = call.presets[(seed - call.from) as usize % call.presets.len()];
                println!("\nVIOLATION in seed {seed}: it hangs");
                println!("  replay:   picaflor-torture --from {seed} --seeds 1 --preset {preset}");
                std::process::exit(1);
            }
        }
        if printed.elapsed() > Duration::from_secs(10)
            && let Ok(total) = progress.total.lock()
        {
            printed = Instant::now();
            println!("seed {}: {total}", progress.next.load(Relaxed));
        }
    }
}

/// Every break must be noticed; then the status is 1, as for any violation.
fn canary(call: &Call) -> ExitCode {
    let mut missed = 0;
    for (preset, sabotage) in call.presets.iter().flat_map(|preset| Sabotage::ALL.map(|sabotage| (*preset, sabotage))) {
        if !sabotage.fits(preset) {
            continue;
        }
        match notice(sabotage, call.from..call.from + call.seeds, preset) {
            Some(violation) => println!("{preset}, {sabotage:?}: noticed\n{violation} (with the canary's break)\n"),
            None => {
                println!("{preset}, {sabotage:?}: NOT noticed in {} seeds\n", call.seeds);
                missed += 1;
            }
        }
    }
    // Not 1: a caller that expects the canary to fail must see that it did not, in full.
    if missed == 0 { ExitCode::from(1) } else { ExitCode::from(3) }
}

/// Stores in files, the lightest first: what one leaves to the allocator is less than the next one takes. For the
/// canary only the first, beside memory that no store was given.
fn resident(canary: bool) -> ExitCode {
    let mut over = 0;
    let stray = vec![1_u8; if canary { 32 << 20 } else { 0 }];
    for strain in &rss::STRAINS[..if canary { 1 } else { rss::STRAINS.len() }] {
        let (resident, counted) = match rss::strained(strain) {
            Ok(both) => both,
            Err(why) => {
                eprintln!("picaflor-torture: {why}");
                return ExitCode::from(2);
            }
        };
        let most = rss::bound(strain.memory);
        let verdict = if resident > most { "VIOLATION" } else { "ok" };
        over += u32::from(resident > most);
        println!(
            "{verdict}: {} objects of {} bytes, memory {} MiB: resident {:.1} MiB, counted {:.1} MiB, {:.1} MiB are \
             the most",
            strain.objects,
            strain.len,
            strain.memory >> 20,
            resident as f64 / f64::from(1 << 20),
            counted as f64 / f64::from(1 << 20),
            most as f64 / f64::from(1 << 20),
        );
    }
    std::hint::black_box(&stray);
    if over == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
