//! Who is asked for what, when.

use std::{
    collections::BTreeMap,
    env, fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bench_common::{
    limit::{self, MemoryLimit},
    machine,
    report::Report,
};

use crate::{
    Arguments, client,
    load::{self, Question},
    origin::Origin,
    servers::{Running, SERVERS, Server, Setup},
};

const OURS: &str = "picaflor";

/// Memory of a server whose objects are to be in memory.
const LARGE_MEMORY: u64 = 512 << 20;
/// Memory of a server whose objects are to be on the device.
const SMALL_MEMORY: u64 = 32 << 20;
/// All memory of such a server, page cache included: program, tables and buffers are in it.
const SMALL_LIMIT: u64 = 192 << 20;

/// Before misses each server fetches more than its memory holds, in bodies of so many bytes: what is measured is a
/// server at work, and not how fast the kernel finds pages for one that has just begun.
const WARMING: u64 = 64 << 10;

/// Of so many answers one may come from the origin. A cache of ours that tells keys apart by 24 bits a segment gives up
/// one of two that look alike (docs/DECISIONS.md): of 60,000 objects about one pair, whose two take turns.
const ONE_MISS_IN: u64 = 10_000;

/// Something to ask for.
struct Work {
    key: &'static str,
    name: String,
    paths: Vec<String>,
    question: Question,
    from: From,
    /// Servers that do something else when asked so.
    without: &'static [&'static str],
}

/// Where the answers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Memory,
    Device,
    Origin,
}

/// What a browser sends that was told to load a page anew.
const BROWSER: &str = "Cache-Control: max-age=0\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux \
    x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,\
    application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, br\r\n\
    Accept-Language: en-US,en;q=0.9\r\nReferer: http://bench.example/\r\n";
/// A multiple of the length of the path and a space: the part begins as the whole does.
const PART: &str = "Range: bytes=500000-504095\r\n";

struct Bench<'a> {
    arguments: &'a Arguments,
    origin: Origin,
    report: Report,
    folder: PathBuf,
    picaflor: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // Servers get configurations with absolute paths and folders of their own.
    fs::create_dir_all(&arguments.folder)?;
    let folder = arguments.folder.canonicalize()?;
    let picaflor = env::current_dir()?.join(&arguments.picaflor);
    let report = Report {
        machine: machine::describe(&folder),
        notes: vec![
            format!("{} rounds of {} s, medians shown.", arguments.rounds, arguments.seconds),
            format!("Server on core {}, the load on core {}, with 64 connections where no other number is named.", arguments.core, arguments.load_core),
            "Before misses each server has fetched more than its memory holds.".into(),
            "Every body is compared once with the origin's before the load; under load less than one answer in 10,000 may come from there."
                .into(),
        ],
        samples: Vec::new(),
    };
    let mut bench = Bench { arguments, origin: Origin::start()?, report, folder, picaflor };
    let works: Vec<_> = works(arguments.tiny)
        .into_iter()
        .filter(|work| arguments.works.is_empty() || arguments.works.iter().any(|wanted| wanted == work.key))
        .collect();
    let mut servers: Vec<_> = SERVERS.iter().filter(|server| bench.takes_part(server)).collect();
    let mut failed = false;
    for round in 0..arguments.rounds {
        servers.rotate_left(usize::from(round > 0));
        for server in &servers {
            eprintln!("round {} of {}: {}", round + 1, arguments.rounds, server.name);
            if let Err(error) = bench.one_server(server, &works, round) {
                failed = true;
                bench.report.failed(server.name, round, &error);
            }
        }
        bench.report.write(&arguments.out, "proxy", OURS)?;
    }
    println!("{}", bench.report.markdown(OURS));
    // Not empty when it held something else before: then it stays.
    let _ = fs::remove_dir(&arguments.folder);
    ensure!(!failed, "not every server did all its work");
    Ok(())
}

/// The keys of all works.
pub(crate) const WORKS: [&str; 14] = [
    "hot",
    "uniform",
    "thousand",
    "thousands",
    "large",
    "huge",
    "condition",
    "range",
    "browser",
    "close",
    "pass",
    "miss",
    "miss-large",
    "disk",
];

fn works(tiny: bool) -> Vec<Work> {
    let (some, many) = if tiny { (100, 300) } else { (10_000, 60_000) };
    // More than any server fetches in the time: what is asked for again would be a hit.
    let once = 400_000;
    let paths = |size: usize, count: usize| (0..count).map(|number| format!("/{size}/{number:06}.jpg")).collect();
    let work =
        |key, name: String, paths, from| Work { key, name, paths, question: Question::PLAIN, from, without: &[] };
    let asked = |key, name: &str, size, fields, status, without| Work {
        question: Question { fields, status, ..Question::PLAIN },
        without,
        ..work(key, name.into(), paths(size, 1), From::Memory)
    };
    let asked_by = |key, connections| Work {
        question: Question { connections, ..Question::PLAIN },
        ..work(key, format!("4 KB, {some} objects uniform, {connections} connections"), paths(4096, some), From::Memory)
    };
    let new = |kind: &str, size: usize, count| (0..count).map(|n| format!("/{size}/{kind}/{n:06}.jpg")).collect();
    let mut closed = work("close", "4 KB, one object, a connection each".into(), paths(4096, 1), From::Memory);
    closed.question = Question { fields: "Connection: close\r\n", is_last: true, ..Question::PLAIN };
    vec![
        work("hot", "4 KB, one object, from memory".into(), paths(4096, 1), From::Memory),
        work("uniform", format!("4 KB, {some} objects uniform, from memory"), paths(4096, some), From::Memory),
        asked_by("thousand", if tiny { 100 } else { 1000 }),
        asked_by("thousands", if tiny { 200 } else { 8000 }),
        work("large", "64 KB, one object, from memory".into(), paths(65_536, 1), From::Memory),
        work("huge", "1 MB, one object, from memory".into(), paths(1 << 20, 1), From::Memory),
        asked("condition", "304 of 4 KB", 4096, "If-None-Match: \"1\"\r\n", "304", &[]),
        asked("range", "4 KB of 1 MB", 1_048_576, PART, "206", &["HAProxy"]),
        asked("browser", "4 KB, fields of a browser that loads anew", 4096, BROWSER, "200", &["HAProxy"]),
        closed,
        work("pass", "4 KB, not to be stored".into(), new("once", 4096, once), From::Origin),
        work("miss", "4 KB, new, to be stored".into(), new("new", 4096, once), From::Origin),
        work("miss-large", "64 KB, new, to be stored".into(), new("new", 65_536, once / 4), From::Origin),
        work("disk", format!("16 KB, {many} objects uniform, from the device"), paths(16_384, many), From::Device),
    ]
}

impl Bench<'_> {
    fn takes_part(&mut self, server: &Server) -> bool {
        let wanted = &self.arguments.servers;
        if !wanted.is_empty() && !wanted.iter().any(|name| server.name.to_lowercase().starts_with(&name.to_lowercase()))
        {
            return false;
        }
        let installed = if server.program.is_empty() { self.picaflor.is_file() } else { in_path(server.program) };
        if !installed {
            self.report.notes.push(format!("{} is not installed here.", server.name));
        }
        installed
    }

    /// One server: what is in memory with one start, what is on the device with another.
    fn one_server(&mut self, server: &Server, works: &[Work], round: usize) -> Result<()> {
        let (device, memory): (Vec<_>, Vec<_>) = {
            let theirs = works.iter().filter(|work| !work.without.iter().any(|name| server.name.starts_with(name)));
            theirs.partition(|work| work.from == From::Device)
        };
        if !memory.is_empty() {
            let setup = self.setup(LARGE_MEMORY, None)?;
            let running = (server.start)(&setup)?;
            let mut is_warm = self.arguments.tiny;
            for work in memory {
                if work.from == From::Memory {
                    self.fill(setup.listen, work)?;
                } else if !is_warm {
                    let count = LARGE_MEMORY / WARMING * 9 / 8;
                    let paths: Vec<_> = (0..count).map(|n| format!("/{WARMING}/warm/{n:06}.jpg")).collect();
                    client::fetch_all(setup.listen, &paths)?;
                    is_warm = true;
                }
                self.measure(server, &running, &setup, work, round).with_context(|| work.name.clone())?;
            }
        }
        if !device.is_empty() && server.on_device {
            let group = MemoryLimit::new(&format!("bench-proxy-{}", std::process::id()), SMALL_LIMIT);
            if let Err(error) = &group {
                self.note(format!(
                    "Servers could not be limited in memory ({error}): the page cache helps those that use it."
                ));
            }
            let setup = self.setup(SMALL_MEMORY, group.as_ref().ok().map(MemoryLimit::door))?;
            let running = (server.start)(&setup)?;
            for work in device {
                self.fill(setup.listen, work)?;
                if !limit::drop_page_cache() {
                    self.note("The page cache could not be dropped.".into());
                }
                self.measure(server, &running, &setup, work, round).with_context(|| work.name.clone())?;
            }
            // The group can only go when no process is in it.
            drop(running);
            drop(group);
        }
        clear(&self.folder.join("server"))
    }

    fn setup(&self, memory: u64, door: Option<PathBuf>) -> Result<Setup> {
        let folder = self.folder.join("server");
        clear(&folder)?;
        fs::create_dir_all(&folder)?;
        Ok(Setup {
            folder,
            listen: SocketAddr::from(([127, 0, 0, 1], free_port()?)),
            origin: self.origin.address,
            memory,
            // A reserved file takes its place even where next to nothing is kept.
            capacity: if self.arguments.tiny { 512 << 20 } else { 4 << 30 },
            core: self.arguments.core.clone(),
            door,
            picaflor: self.picaflor.clone(),
        })
    }

    /// Fetches everything until next to nothing comes from the origin any more.
    fn fill(&self, address: SocketAddr, work: &Work) -> Result<()> {
        let mut fetched = 0;
        for _ in 0..6 {
            let before = self.origin.asked();
            client::fetch_all(address, &work.paths)?;
            fetched = self.origin.asked() - before;
            if fetched <= work.paths.len() as u64 / ONE_MISS_IN {
                return Ok(());
            }
        }
        bail!("{}: still fetches {fetched} objects from the origin after six rounds", work.name)
    }

    fn measure(&mut self, server: &Server, running: &Running, setup: &Setup, work: &Work, round: usize) -> Result<()> {
        eprintln!("  {}", work.name);
        let (asked, cpu) = (self.origin.asked(), running.cpu());
        let time = Duration::from_secs(self.arguments.seconds);
        let paths = (&work.paths[..], work.from == From::Origin);
        let load = load::run(setup.listen, paths, work.question, time, self.arguments.load_core)?;
        let cpu = running.cpu() - cpu;
        let misses = self.origin.asked() - asked;
        if work.from == From::Origin {
            ensure!(misses >= load.requests as u64, "{misses} of {} answers were from the origin", load.requests);
        } else {
            ensure!(misses <= load.requests as u64 / ONE_MISS_IN, "{misses} of {} answers were no hits", load.requests);
        }
        if misses > 0 && work.from != From::Origin {
            self.note(format!("{}, {}: {misses} of {} answers were no hits.", server.name, work.name, load.requests));
        }
        let figures = BTreeMap::from([
            ("1 requests/s".into(), load.rate),
            ("2 CPU us/request".into(), cpu * 1e6 / load.requests),
            ("3 p99 ms".into(), load.p99),
        ]);
        self.report.add(&work.name, server.name, round, &figures);
        Ok(())
    }

    fn note(&mut self, note: String) {
        if !self.report.notes.contains(&note) {
            self.report.notes.push(note);
        }
    }
}

/// A port that is free, and the next one too: that one is for our admin listener.
fn free_port() -> Result<u16> {
    loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return Ok(port);
        }
    }
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|folder| folder.join(program).is_file())
}

fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context(folder.display().to_string()),
        _ => Ok(()),
    }
}
