//! What these tests share: an origin on a raw socket, the real binary, requests, and bodies.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// A field of an answer after which the origin hangs up.
const LAST: &[u8] = b"connection: close\r\n";

/// A server that answers a request's head with what the test says, byte for byte; with nothing, it hangs up.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    begun: Arc<AtomicUsize>,
    gone: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Origin {
    pub(crate) fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, gone, answer) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default(), Arc::new(answer));
        let (seen, ends) = (heads.clone(), gone.clone());
        let begun = Arc::<AtomicUsize>::default();
        let begins = begun.clone();
        let listening = std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if ends.load(SeqCst) {
                    return;
                }
                let (answer, seen, ends, begins) = (answer.clone(), seen.clone(), ends.clone(), begins.clone());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let mut head = String::new();
                    while let Some(Ok(line)) = lines.next() {
                        if !line.is_empty() {
                            head.push_str(&line.to_ascii_lowercase());
                            head.push('\n');
                            continue;
                        }
                        begins.fetch_add(1, SeqCst);
                        let reply = if ends.load(SeqCst) { Vec::new() } else { answer(&head) };
                        seen.lock().unwrap().push(std::mem::take(&mut head));
                        let is_last = reply.is_empty() || reply.windows(LAST.len()).take(1000).any(|at| at == LAST);
                        if stream.write_all(&reply).is_err() || is_last {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, heads, begun, gone, listening: Some(listening) }
    }

    /// The heads of all requests so far, in small letters.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Requests so far, those that wait for their answer included.
    pub(crate) fn heads_begun(&self) -> usize {
        self.begun.load(SeqCst)
    }

    /// From now on no server listens there.
    pub(crate) fn end(&mut self) {
        self.gone.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        self.listening.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// A 200 with these fields, whole lines, and this body.
pub(crate) fn ok(fields: &str, body: &[u8]) -> Vec<u8> {
    reply("200 OK", fields, body)
}

pub(crate) fn reply(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let fields: String = fields.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    let head = format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The value of a field in a head that an [`Origin`] saw; empty where it is not there.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value).next().unwrap_or_default()
}

/// Bytes that do not repeat.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| step()).collect()
}

pub(crate) const TOKEN: &str = "0123456789abcdef";

/// What every request is for, whatever port the process got: a restart finds what was stored.
pub(crate) const HOST: &str = "test.example";

/// Lines of standard error, as they come.
#[derive(Default)]
struct Said {
    lines: Mutex<(Vec<String>, bool)>,
    more: Condvar,
}

/// A running `picaflor serve`, killed at the end.
pub(crate) struct Serve {
    child: Child,
    pub(crate) listen: String,
    pub(crate) admin: String,
    said: Arc<Said>,
}

impl Serve {
    /// In this folder, before this origin, with more arguments.
    pub(crate) fn start(folder: &Path, origin: SocketAddr, more: &[&str]) -> Self {
        Self::start_after("", folder, origin, more)
    }

    /// The same in a shell that did something first.
    pub(crate) fn start_after(first: &str, folder: &Path, origin: SocketAddr, more: &[&str]) -> Self {
        Self::run(command(first, folder, origin, &[&["--workers", "1"], more].concat()))
    }

    /// Of a [`command`].
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let said = Arc::<Said>::default();
        let (errors, hears) = (BufReader::new(child.stderr.take().unwrap()), said.clone());
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                hears.lines.lock().unwrap().0.push(line);
                hears.more.notify_all();
            }
            hears.lines.lock().unwrap().1 = true;
            hears.more.notify_all();
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut listen, mut admin) = (String::new(), String::new());
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("listen   ") {
                listen = address.to_owned();
            }
            if let Some(address) = line.strip_prefix("admin    ") {
                admin = address.to_owned();
            }
            if line.contains("Cache-Status") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        let serve = Self { child, listen, admin, said };
        assert!(!serve.admin.is_empty(), "it does not start: {:?}", serve.said.lines.lock().unwrap());
        serve
    }

    /// Waits for a line on standard error with these words; `None` if it ends without.
    pub(crate) fn told(&self, words: &str) -> Option<String> {
        let mut lines = self.said.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.0.iter().find(|line| line.contains(words)) {
                return Some(line.clone());
            }
            if lines.1 {
                return None;
            }
            lines = self.said.more.wait(lines).unwrap();
        }
    }

    /// Whether such a line has come.
    pub(crate) fn has_told(&self, words: &str) -> bool {
        self.said.lines.lock().unwrap().0.iter().any(|line| line.contains(words))
    }

    /// One request on a connection of its own: head, and body as text.
    pub(crate) fn ask(&self, method: &str, path: &str, fields: &str) -> (String, String) {
        ask(&self.listen, method, path, fields)
    }

    pub(crate) fn get(&self, path: &str) -> (String, String) {
        self.ask("GET", path, "")
    }

    /// Asks until it is a hit: a response is stored a moment after its last byte.
    pub(crate) fn get_until_hit(&self, path: &str, fields: &str) {
        let is_hit_now = || {
            let is_hit = is_hit(&self.ask("GET", path, fields).0);
            self.settle();
            is_hit
        };
        assert!((0..5).any(|_| is_hit_now()), "{path} is never a hit");
    }

    /// The head of the answer to a request to the admin listener.
    pub(crate) fn admin(&self, method: &str, target: &str) -> (String, String) {
        ask(&self.admin, method, target, &format!("Authorization: Bearer {TOKEN}\r\nContent-Length: 0\r\n"))
    }

    /// The head of the answer to a purge.
    pub(crate) fn purge(&self, path: &str) -> String {
        self.admin("POST", &format!("/purge?url=http://{HOST}{path}")).0
    }

    /// Waits until no fetch is under way: what came is in the store.
    pub(crate) fn settle(&self) {
        let number = |stats: &serde_json::Value, name: &str| stats["proxy"][name].as_u64().unwrap();
        for _ in 0..3000 {
            let stats: serde_json::Value = serde_json::from_str(&self.admin("GET", "/stats").1).unwrap();
            if number(&stats, "fills") == number(&stats, "fills_ended") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("a fetch does not end");
    }

    /// What curl makes of a URL, its body in `output.stdout`.
    pub(crate) fn curl(&self, path: &str, more: &[&str]) -> Output {
        let url = format!("http://{}{path}", self.listen);
        let host = format!("Host: {HOST}");
        Command::new("curl").args(["-s", "-S", "-H", &host]).args(more).arg(url).output().expect("curl is installed")
    }

    /// What is mapped into its memory, as the kernel lists it.
    pub(crate) fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: it stops as it should.
    pub(crate) fn stop(mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

/// A shell that does something first and then is `picaflor serve`, with these arguments and what every test wants.
pub(crate) fn command(first: &str, folder: &Path, origin: SocketAddr, more: &[&str]) -> Command {
    let text = format!(
        "{first} exec {} serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --origin http://{origin} --token {TOKEN} \
         --memory 64MiB {}",
        env!("CARGO_BIN_EXE_picaflor"),
        more.join(" ")
    );
    let mut command = Command::new("sh");
    command.current_dir(folder).args(["-c", &text]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for it.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn is_hit(head: &str) -> bool {
    head.contains("cache-status: picaflor; hit")
}

/// One request on a connection of its own: head, and body as text.
pub(crate) fn ask(address: &str, method: &str, path: &str, fields: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{fields}Connection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let all = String::from_utf8_lossy(&all);
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    (head.to_owned(), body.to_owned())
}
