//! What the tests share: a proxy in a folder of its own, an origin on a raw socket, a client on a raw socket.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use picaflor_proxy::{Low, Server};
use tempfile::TempDir;

/// A request as the origin sees it, or a response as the client does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// The first line.
    pub(crate) first: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    pub(crate) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// Path of a request.
    pub(crate) fn path(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or("")
    }

    pub(crate) fn method(&self) -> &str {
        self.first.split(' ').next().unwrap_or("")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The last `Cache-Status`, which is the proxy's.
    pub(crate) fn cache(&self) -> &str {
        self.fields.iter().rfind(|(name, _)| name == "cache-status").map_or("", |(_, value)| value)
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.cache().starts_with("picaflor; hit")
    }

    pub(crate) fn read_head(from: &mut impl BufRead) -> Option<Self> {
        let mut message = Self::default();
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|n| *n > 0)?;
        message.first = line.trim_end().to_owned();
        loop {
            line.clear();
            from.read_line(&mut line).ok().filter(|n| *n > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { return Some(message) };
            message.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

type Handler = dyn Fn(&Message, &mut TcpStream) -> bool + Send + Sync;

/// A server that does what the test says: `handler` writes raw bytes and says whether the connection goes on.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) fn start(handler: impl Fn(&Message, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (handler, count): (Arc<Handler>, _) = (Arc::new(handler), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, count) = (handler.clone(), count.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(mut request) = Message::read_head(&mut reader) {
                        let len = request.field("content-length").parse().unwrap_or(0);
                        request.body = vec![0; len];
                        if reader.read_exact(&mut request.body).is_err() {
                            return;
                        }
                        count.fetch_add(1, SeqCst);
                        if !handler(&request, &mut stream) {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    /// Answers every request alike: 200 with these fields and this body.
    pub(crate) fn constant(fields: &'static str, body: &'static str) -> Self {
        Self::start(move |_, stream| ok(stream, fields, body.as_bytes()))
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.load(SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Writes a 200; `fields` are whole lines.
pub(crate) fn ok(stream: &mut TcpStream, fields: &str, body: &[u8]) -> bool {
    answer(stream, "200 OK", fields, body)
}

/// Writes a response with a length.
pub(crate) fn answer(stream: &mut TcpStream, status: &str, fields: &str, body: &[u8]) -> bool {
    let fields: String = fields.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    let head = format!("HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).is_ok()
}

/// A proxy in a folder of its own.
pub(crate) struct Proxy {
    server: Option<Server>,
    pub(crate) address: SocketAddr,
    /// The first of those by TLS.
    pub(crate) by_tls: Option<SocketAddr>,
    pub(crate) admin: SocketAddr,
    pub(crate) token: String,
    pub(crate) folder: TempDir,
}

impl Proxy {
    /// With `config`, a file's text, and small sizes.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_at("127.0.0.1:0", config)
    }

    /// The same, listening elsewhere.
    pub(crate) fn start_at(listen: &str, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut low = Low::parse("test.toml", config).unwrap();
        low.listen = Some(vec![listen.parse().unwrap()]);
        low.admin.listen = Some(([127, 0, 0, 1], 0).into());
        low.workers = low.workers.or(Some(2));
        low.store.path = Some(folder.path().join("store"));
        low.store.capacity = low.store.capacity.or("512MiB".parse().ok());
        low.store.memory = low.store.memory.or("64MiB".parse().ok());
        let server = Server::start(low.resolve().unwrap()).unwrap();
        let token = std::fs::read_to_string(server.token_file().unwrap()).unwrap().trim().to_owned();
        let (address, admin) = (server.addresses()[0], server.admin_address());
        let by_tls = server.tls_addresses().first().copied();
        Self { server: Some(server), address, by_tls, admin, token, folder }
    }

    /// In front of one origin.
    pub(crate) fn before(origin: &str, config: &str) -> Self {
        Self::start(&format!("{config}\n[[origin]]\nurl = \"{origin}\"\n"))
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// One GET on a connection of its own; what it brought is in the store, if that is where it goes, when this
    /// returns.
    pub(crate) fn get(&self, path: &str) -> Message {
        self.get_with(path, &[])
    }

    pub(crate) fn get_with(&self, path: &str, fields: &[&str]) -> Message {
        let reply = self.client().send("GET", path, fields, b"");
        self.settle();
        reply
    }

    /// Waits until no fetch is under way: a response is stored a moment after its last byte, and who asks before that
    /// shares the fetch.
    pub(crate) fn settle(&self) {
        eventually("no fetch is under way", || {
            let stats = self.stats();
            stats["proxy"]["fills"] == stats["proxy"]["fills_ended"]
        });
    }

    /// Clients that asked for `/`, each with a field of its own, and are all in the hands of the one worker when the
    /// door opens, behind which the origin has what they wait for. The worker takes what has come in turns, and the
    /// answer to the miss that comes last takes several.
    pub(crate) fn held_at(&self, door: &Door, fields: impl IntoIterator<Item = String>) -> Vec<Client> {
        let ask = |field: String| {
            let mut client = self.client();
            client.write("GET", "/", &[&field], b"");
            client
        };
        let clients = fields.into_iter().map(ask).collect();
        self.client().get("/asked-last");
        door.open();
        clients
    }

    /// A request to the admin listener, with the token.
    pub(crate) fn admin(&self, method: &str, target: &str) -> Message {
        let field = format!("authorization: Bearer {}", self.token);
        Client::new(self.admin).send(method, target, &[&field], b"")
    }

    pub(crate) fn purge(&self, url: &str) -> Message {
        self.admin("POST", &format!("/purge?url={url}"))
    }

    /// Whether the fast path answers.
    pub(crate) fn fast(&self, path: &str) -> bool {
        let count = || self.stats()["proxy"]["requests"]["hit-fast"].as_u64();
        let before = count();
        self.get(path);
        count() > before
    }

    /// `/stats`.
    pub(crate) fn stats(&self) -> serde_json::Value {
        serde_json::from_slice(&self.admin("GET", "/stats").body).unwrap()
    }

    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.server.take().unwrap().stop()
    }
}

/// A keep-alive connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
    pub(crate) host: String,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader, host: "test.example".into() }
    }

    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn send(&mut self, method: &str, target: &str, fields: &[&str], body: &[u8]) -> Message {
        self.write(method, target, fields, body);
        self.read(method).expect("a response")
    }

    pub(crate) fn write(&mut self, method: &str, target: &str, fields: &[&str], body: &[u8]) {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for field in fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        if !body.is_empty() || method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let _ = self.stream.write_all(&[head.as_bytes(), body].concat());
    }

    /// The head alone.
    pub(crate) fn read_head(&mut self) -> Option<Message> {
        Message::read_head(&mut self.reader)
    }

    /// So many bytes of a body.
    pub(crate) fn read_bytes(&mut self, n: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; n];
        self.reader.read_exact(&mut bytes).map(|()| bytes)
    }

    /// A whole response, `None` when it breaks off.
    pub(crate) fn read(&mut self, method: &str) -> Option<Message> {
        let mut message = self.read_head()?;
        if method == "HEAD" || matches!(message.status(), 204 | 304) {
            return Some(message);
        }
        if message.field("transfer-encoding") == "chunked" {
            loop {
                let mut line = String::new();
                self.reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
                let len = usize::from_str_radix(line.trim(), 16).ok()?;
                let mut chunk = vec![0; len + 2];
                self.reader.read_exact(&mut chunk).ok()?;
                if len == 0 {
                    return Some(message);
                }
                message.body.extend_from_slice(&chunk[..len]);
            }
        }
        if let Ok(len) = message.field("content-length").parse() {
            message.body = vec![0; len];
            self.reader.read_exact(&mut message.body).ok()?;
        } else {
            self.reader.read_to_end(&mut message.body).ok()?;
        }
        Some(message)
    }
}

/// Tries until it is so; for what happens behind a response.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// A door that the test opens: what an origin waits at until the test has seen what it is to see.
#[derive(Clone, Default)]
pub(crate) struct Door(Arc<(Mutex<bool>, Condvar)>);

impl Door {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open.
    pub(crate) fn pass(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Fields of a response that is stale when it comes, and fresh for an hour once a 304 without an age confirms it: no
/// test waits for that to happen, and none is too slow for it.
pub(crate) const STALE: &str = "cache-control: max-age=3600\nage: 3601\netag: \"v\"";

/// More bytes than the two sockets of a connection on this machine ever hold.
pub(crate) fn more_than_sockets_hold() -> usize {
    let most = |which: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}")).unwrap_or_default();
        text.split_whitespace().last().and_then(|max| max.parse().ok()).unwrap_or(16 << 20)
    };
    most("rmem") + most("wmem") + (8 << 20)
}

pub(crate) fn sleep(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}
