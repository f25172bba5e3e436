//! What tests and measurements of several doors need: a real nginx as origin; examples that are spoken to and killed;
//! tails and memory.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use picaflor::Options;
use tempfile::TempDir;

/// Waits for an event that must come; a minute is for machines that are busy.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "it did not come: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes that do not repeat, the same for the same seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as u8
    };
    (0..len).map(|_| step(&mut state)).collect()
}

/// nginx with a folder of files that are fresh for ten minutes; a request with `X-Slow` gets 500 KB a second.
pub struct Origin {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    folder: TempDir,
}

impl Origin {
    /// Starts it on a port of its own.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Held, but not listened at, until nginx has it too: no other process gets the port in between.
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.set_reuse_port(true).unwrap();
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = held.local_addr().unwrap().as_socket().unwrap();
        let place = folder.path().display();
        std::fs::create_dir(folder.path().join("www")).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
            .collect();
        let text = format!(
            "daemon off; pid {place}/pid; error_log {place}/error.log; worker_processes 1;\n\
             events {{}}\nhttp {{ access_log {place}/access.log; {temporary}\n\
             map $http_x_slow $pace {{ default 0; 1 500k; }}\n\
             server {{ listen {address} reuseport; root {place}/www; limit_rate $pace;\n\
             add_header Cache-Control max-age=600; }} }}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        let child = Command::new("nginx")
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        eventually("nginx listens", || TcpStream::connect(address).ok());
        Self { child, address, folder }
    }

    /// Makes a file, or changes it.
    pub fn file(&self, name: &str, body: &[u8]) {
        std::fs::write(self.folder.path().join("www").join(name), body).unwrap();
        // The worker may be another user.
        Command::new("chmod").args(["-R", "a+rX"]).arg(self.folder.path()).status().unwrap();
    }

    /// The statuses that it answered for this path, once there are so many; nginx writes its log behind its answers.
    pub fn answers(&self, path: &str, times: usize) -> Vec<String> {
        let seen = || {
            let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
            let of_path = log.lines().filter(|line| line.contains(&format!(" /{path} HTTP")));
            of_path.filter_map(|line| Some(line.split('"').nth(2)?.split_whitespace().next()?.into())).collect()
        };
        eventually("the request is in the log", || Some(seen()).filter(|seen: &Vec<_>| seen.len() >= times));
        seen()
    }

    /// Kills what serves; the master starts another.
    pub fn kill_worker(&self) {
        let master = self.child.id();
        let children = format!("/proc/{master}/task/{master}/children");
        let workers = std::fs::read_to_string(children).unwrap();
        Command::new("kill").arg("-9").args(workers.split_whitespace()).status().unwrap();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // TERM to the master, which ends its worker.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// The program of an example of the crate under test, which `cargo test` has built.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

/// An example of the package under test as a process of its own, which is spoken to by lines. It ends as by `kill -9`.
pub struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the example of this name.
    pub fn start<A: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = Command::new(example(name));
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    /// Says a line, and returns the next that it says.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").unwrap();
        self.line()
    }

    /// The next line that it says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Places in a folder at which no store can be opened, and a word of what is said of each.
pub fn bad_places(folder: &Path) -> [(Options, &'static str); 3] {
    let foreign = folder.join("foreign");
    std::fs::write(&foreign, vec![b'x'; 8 << 20]).unwrap();
    let full = Options::new(folder.join("full")).capacity(1 << 44);
    let missing = Options::new(folder.join("none/cache.store"));
    [(Options::new(&foreign), "damaged"), (full, "full"), (missing, "none/cache.store")]
}

/// Puts a door beside the usual alternative, for the table of its README: puts, hits and memory of a process that then
/// ends by `kill -9`, and what is there for the next.
pub mod beside {
    use std::{
        error::Error,
        future::Future,
        path::PathBuf,
        process::Command,
        time::{Duration, Instant},
    };

    const HITS: usize = 200_000;
    /// Objects written just before the process kills itself.
    const LATE: usize = 1000;

    /// What is measured. Objects have numbers.
    pub trait Door {
        /// Takes an object in.
        fn put(&self, number: usize, body: Vec<u8>) -> impl Future<Output = Result<(), Box<dyn Error>>>;

        /// The length of what is there, read to its end.
        fn get(&self, number: usize) -> impl Future<Output = Result<Option<usize>, Box<dyn Error>>>;
    }

    /// Arguments of such a program: `NAME FOLDER [OBJECTS BYTES] [after]`.
    pub struct Arguments {
        /// Which door.
        pub name: String,
        /// Where it keeps what it keeps.
        pub folder: PathBuf,
        objects: usize,
        bytes: usize,
        after: bool,
    }

    impl Arguments {
        /// Of this process, or how it is called, with the doors that it knows.
        pub fn read(names: &str) -> Result<Self, String> {
            let mut words: Vec<_> = std::env::args().skip(1).collect();
            let after = words.pop_if(|word| word == "after").is_some();
            let usage = || format!("usage: PROGRAM {names} FOLDER [OBJECTS BYTES] [after]");
            let [name, folder, rest @ ..] = words.as_slice() else { return Err(usage()) };
            if !names.split('|').any(|known| known == name) {
                return Err(usage());
            }
            let number = |at: usize, or| rest.get(at).map_or(Ok(or), |word| word.parse().map_err(|_| usage()));
            Ok(Self {
                name: name.clone(),
                folder: folder.into(),
                objects: number(0, 100_000)?,
                bytes: number(1, 4096)?,
                after,
            })
        }
    }

    /// Measures a door, or says what an earlier run left. Does not return but for `after`.
    pub async fn run(door: &impl Door, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
        let &Arguments { objects, bytes, after, .. } = arguments;
        if after {
            let mut there = [0; 2];
            for number in 0..objects + LATE {
                there[usize::from(number >= objects)] += usize::from(door.get(number).await?.is_some());
            }
            println!("after kill -9: {} of {objects}, and {} of the last {LATE}", there[0], there[1]);
            return Ok(());
        }
        let body = |number: usize| (0..bytes).map(|at| (at * 31 + number) as u8).collect();
        let (before, begin) = (resident(), Instant::now());
        for number in 0..objects {
            door.put(number, body(number)).await?;
        }
        println!("puts: {:.1} us each", begin.elapsed().as_secs_f64() * 1e6 / objects as f64);
        println!("memory: {} bytes an object", resident().saturating_sub(before) / objects as u64);
        let (mut times, mut misses) = (Vec::with_capacity(HITS), 0);
        for number in random(HITS, objects) {
            let begin = Instant::now();
            match door.get(number).await? {
                Some(len) => assert_eq!(len, bytes, "a body is short"),
                None => misses += 1,
            }
            times.push(begin.elapsed());
        }
        print_tails("hits", times);
        println!("misses: {misses}");
        for number in objects..objects + LATE {
            door.put(number, body(number)).await?;
        }
        die()
    }

    /// Resident bytes of this process.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
    }

    /// Numbers below `below` that have no order, the same each time.
    fn random(count: usize, below: usize) -> impl Iterator<Item = usize> {
        let mut state = 1_u64;
        (0..count).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        })
    }

    /// Prints p50, p99 and p99.9.
    fn print_tails(what: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        let at = |part: f64| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e6;
        println!("{what}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us", at(0.5), at(0.99), at(0.999));
    }

    /// Ends as by `kill -9`.
    fn die() -> ! {
        let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        std::process::abort()
    }
}
