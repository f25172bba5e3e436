//! `picaflor-rounds`: kills processes that use a store, and holds what is left to what was promised.
#![forbid(unsafe_code)]

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use picaflor_torture::rounds::{
    Break, Fault, Rounds, Setup, Soak, Wish, child, notice_break, run_proxied, run_series, run_soak,
};

const HELP: &str = "\
Kills processes that use a store, with SIGKILL, on real files, and holds what is left to what was promised.

A seed sets up one store: preset, mode, 1 to 4 places, durability, threads and tasks. A child of this program opens it,
puts, replaces, gets, deletes and flushes; it is killed while it opens, works, writes a checkpoint, reclaims or closes;
the next child opens the same files, now and then one that only reads and audits before it, and looks at every
key. Where stores may, some are given more bytes or fewer from life to life, or more at work.
Every body says whose it is, and what was acknowledged is in files that outlive the child.

usage: picaflor-rounds [options]

  --rounds N           kills (default 100)
  --from S             first seed (default 0)
  --seconds T          stop after this time, whatever is left
  --jobs N             stores at one time (default: as many as there are processors)
  --keep-going         do not stop at the first violation
  --folder DIR         where stores are made; that of a violation is kept (default: that for temporary files)

What seeds draw, unless it is said:
  --preset NAME        row of the engine's table, or all (default: all, in turn)
  --mode MODE          cache or store
  --places N           1 to 4 files
  --durability WHAT    none, every-put, MILLIS, or MILLIS,PUTS
  --delete-count N     deletes that may be volatile, and one
  --threads N, --tasks N
  --kills N            kills of one store (default 6)
  --work MILLIS        longest time that a child works (default 600)
  --grace MILLIS       how far beyond its bound something may be volatile and only be counted (default 250): a process
                       that gets no processor keeps no time

Other rounds:
  --proxy PATH         through this program's `serve`: stored, replaced, purged, invalidated by POST, killed, restarted
  --soak HOURS         one `serve` for so long (0.5 is half an hour), in place of kills: clients that read, ask for ranges,
                       purge, invalidate, leave and dawdle; an origin that fails in spells; a device that fails and comes
                       back; a line a minute. Every body must be right, and every failure the origin's
  --rate N             requests a second of a soak (default 150)
  --clients N, --keys N, --capacity MIB, --memory MIB
                       its clients (24), the origin's objects (6000), the store (256) and its memory (64)
  --memory-over MIB    how much more than is promised may be resident (0)
  --device-every MIN   minutes from one failure of its device to the next, 0 for none (default 20)
  --canary             break the children, or the clients of the proxy, on purpose; status 1 if every break is noticed
  --break NAME         one such break: forgotten-puts, forgotten-deletes, early-acks, old-answers, torn-answers,
                       short-answers, rolled-back, old-read-only, lost-answers, growing-memory
  -h, --help           this

Status: 0 if nothing was found, 1 for a violation, 2 for a mistake in the call or a failure of the system.

Examples:
  picaflor-rounds --rounds 500                                  # all presets, about ten minutes
  picaflor-rounds --preset squid --delete-count 1 --threads 4   # one corner
  picaflor-rounds --from 137 --rounds 6                         # the setup of one seed; kills fall elsewhere
  picaflor-rounds --proxy target/release/picaflor --rounds 40
  picaflor-rounds --proxy target/release/picaflor --soak 6 --durability every-put --folder /var/tmp";

struct Call {
    wish: Wish,
    rounds: u64,
    from: u64,
    seconds: Option<u64>,
    jobs: usize,
    keep_going: bool,
    canary: bool,
    proxy: Option<PathBuf>,
    soak: Option<Soak>,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq("child").is_some() {
        return be_child(args);
    }
    let done = match parse(args) {
        Ok(Some(call)) if call.soak.is_some() => soak(&call),
        Ok(Some(call)) if call.canary => canary(&call),
        Ok(Some(call)) => rounds(&call),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("picaflor-rounds: {mistake}; --help shows what there is");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("picaflor-rounds: a process or a file of the rounds failed: {error}");
        ExitCode::from(2)
    })
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Call>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let wish = Wish::default();
    let mut call = Call {
        wish,
        rounds: 100,
        from: 0,
        seconds: None,
        jobs,
        keep_going: false,
        canary: false,
        proxy: None,
        soak: None,
    };
    let (mut soak, mut soaks) = (Soak::default(), false);
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{arg} needs a number, not {value:?}"))
        };
        match arg.as_str() {
            "--rounds" => call.rounds = number()?,
            "--from" => call.from = number()?,
            "--seconds" => call.seconds = Some(number()?),
            "--jobs" => call.jobs = number()?.max(1) as usize,
            "--keep-going" => call.keep_going = true,
            "--canary" => call.canary = true,
            "--proxy" => call.proxy = Some(args.next().ok_or("--proxy needs the path of picaflor")?.into()),
            "-h" | "--help" => return Ok(None),
            _ if call.wish.take(&arg, &mut args)? => {}
            _ if soak.take(&arg, &mut args)? => soaks = true,
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    if soaks && call.proxy.is_none() {
        return Err("a soak needs --proxy PATH".into());
    }
    soak.keep_going = call.keep_going;
    call.soak = soaks.then_some(soak);
    Ok(Some(call))
}

/// `child look|live SEED LIFE` and a wish.
fn be_child(mut args: impl Iterator<Item = String>) -> ExitCode {
    let role = args.next().unwrap_or_default();
    let mut number = || args.next().and_then(|number| number.parse::<u64>().ok());
    let (Some(seed), Some(life)) = (number(), number()) else { return ExitCode::from(2) };
    let mut wish = Wish::default();
    while let Some(arg) = args.next() {
        if !wish.take(&arg, &mut args).unwrap_or(false) {
            return ExitCode::from(2);
        }
    }
    let setup = Setup::new(seed, &wish);
    match child(&wish.folder, &setup, &wish, life as u32, role == "look") {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(3)
        }
    }
}

/// What all jobs share.
#[derive(Default)]
struct Progress {
    next: AtomicU64,
    begun: AtomicU64,
    stop: AtomicBool,
    total: Mutex<Rounds>,
}

fn rounds(call: &Call) -> std::io::Result<ExitCode> {
    let began = Instant::now();
    let progress = Progress { next: AtomicU64::new(call.from), ..Progress::default() };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..call.jobs).map(|_| scope.spawn(|| work(call, &progress, began))).collect();
        let mut ends = jobs.into_iter().map(|job| job.join());
        ends.try_for_each(|end| end.unwrap_or_else(|_| Err(std::io::Error::other("a job panicked"))))
    })?;
    let total = progress.total.into_inner().unwrap_or_default();
    println!("{total}\n{:.1} s, {} violations", began.elapsed().as_secs_f64(), total.faults.len());
    Ok(ExitCode::from(u8::from(!total.faults.is_empty())))
}

fn work(call: &Call, progress: &Progress, began: Instant) -> std::io::Result<()> {
    let is_time_up = || call.seconds.is_some_and(|seconds| began.elapsed() > Duration::from_secs(seconds));
    while !progress.stop.load(Relaxed) && !is_time_up() {
        if progress.begun.fetch_add(u64::from(call.wish.kills), Relaxed) >= call.rounds {
            break;
        }
        let seed = progress.next.fetch_add(1, Relaxed);
        let came = match &call.proxy {
            Some(picaflor) => run_proxied(picaflor, seed, &call.wish)?,
            None => run_series(&Setup::new(seed, &call.wish), &call.wish)?,
        };
        for fault in &came.faults {
            println!("{fault}\n");
            progress.stop.store(!call.keep_going, Relaxed);
        }
        if let Ok(mut total) = progress.total.lock() {
            total.join(came);
        }
    }
    Ok(())
}

/// One proxy for hours; or, as a canary, for as long as it takes to notice each break.
fn soak(call: &Call) -> std::io::Result<ExitCode> {
    let (Some(picaflor), Some(soak)) = (&call.proxy, &call.soak) else { return Ok(ExitCode::from(2)) };
    if !call.canary {
        let came = run_soak(picaflor, call.from, &call.wish, soak)?;
        came.faults.iter().for_each(|fault| println!("{fault}\n"));
        println!("{came}");
        return Ok(ExitCode::from(u8::from(!came.faults.is_empty())));
    }
    let notice = |sabotage| {
        let came = run_soak(picaflor, call.from, &Wish { sabotage, ..call.wish.clone() }, soak)?;
        Ok(came.faults.into_iter().next())
    };
    breaks(&Break::SOAKED, notice)
}

/// Every break must be noticed; then the status is 1, as for any violation.
fn canary(call: &Call) -> std::io::Result<ExitCode> {
    let all = if call.proxy.is_some() { &Break::PROXIED[..] } else { &Break::ALL };
    let seeds = call.from..call.from + 12;
    breaks(all, |sabotage| notice_break(sabotage, &call.wish, seeds.clone(), call.proxy.as_deref()))
}

fn breaks(all: &[Break], notice: impl Fn(Break) -> std::io::Result<Option<Fault>>) -> std::io::Result<ExitCode> {
    let mut missed = 0;
    for sabotage in all {
        match notice(*sabotage)? {
            Some(fault) => {
                println!("{}: noticed\n{fault} (with the canary's break)\n", sabotage.name());
                fault.kept.iter().try_for_each(std::fs::remove_dir_all)?;
            }
            None => {
                println!("{}: NOT noticed\n", sabotage.name());
                missed += 1;
            }
        }
    }
    // Not 1: a caller that expects the canary to fail must see that it did not, in full.
    Ok(if missed == 0 { ExitCode::from(1) } else { ExitCode::from(3) })
}
