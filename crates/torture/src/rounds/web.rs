//! The web of proxied rounds: an origin on threads, whose objects have versions, and a client. HTTP/1.1 as far as these
//! two need it.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use super::body;
use crate::dice::Dice;

/// The host that clients name.
pub(super) const HOST: &str = "rounds.example";
/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request, or an answer.
pub(super) struct Message {
    pub(super) first: String,
    fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    /// `None` at the end of the connection.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut message = Self { first: line.trim_end().to_owned(), fields: Vec::new(), body: Vec::new() };
        loop {
            line.clear();
            if from.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            message.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let len = message.field("content-length").parse().unwrap_or(0);
        message.body = vec![0; len];
        from.read_exact(&mut message.body)?;
        Ok(Some(message))
    }

    fn field(&self, name: &str) -> &str {
        self.fields.iter().rfind(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    pub(super) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(super) fn is_hit(&self) -> bool {
        self.field("cache-status").contains("hit")
    }
}

/// The versions of all objects; whoever changes one goes by its key, and is alone with it.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    pub(super) versions: Arc<Vec<AtomicU32>>,
}

impl Origin {
    /// Version 1 of so many objects, for a year.
    ///
    /// # Errors
    /// Those of the network.
    pub(super) fn start(keys: u32) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let versions: Arc<Vec<AtomicU32>> = Arc::new((0..keys).map(|_| AtomicU32::new(1)).collect());
        let shared = Arc::clone(&versions);
        // Until the process ends: it waits for connections, and nobody makes any.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let versions = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &versions));
            }
        });
        Ok(Self { address, versions })
    }
}

/// Answers until the connection ends, however it does.
fn serve(stream: TcpStream, versions: &[AtomicU32]) -> io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut to = stream;
    while let Some(request) = Message::read(&mut from)? {
        let mut words = request.first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = path.trim_start_matches('/').parse::<usize>().ok();
        let Some((key, version)) = key.and_then(|key| Some((key, versions.get(key)?))) else {
            to.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        if method == "POST" {
            version.fetch_add(1, SeqCst);
            to.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
            continue;
        }
        let version = version.load(SeqCst);
        let body = body::body(key as u32, version, len_of(key as u32, version));
        let head = format!(
            "HTTP/1.1 200 OK\r\ncache-control: max-age=31536000\r\netag: \"{key}-{version}\"\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        to.write_all(&[head.as_bytes(), &body].concat())?;
    }
    Ok(())
}

/// Bytes of a version's body: some are longer than a cluster.
fn len_of(key: u32, version: u32) -> usize {
    let mut dice = Dice::new(key.into(), version.into());
    let most = if key % 8 == 3 { 600 << 10 } else { 40 << 10 };
    dice.scaled(body::SHORTEST as u64, most) as usize
}

/// One connection to the proxy.
pub(super) struct Client {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Client {
    /// # Errors
    /// Those of the network.
    pub(super) fn new(address: SocketAddr) -> io::Result<Self> {
        let to = TcpStream::connect(address)?;
        to.set_read_timeout(Some(PATIENCE))?;
        to.set_nodelay(true)?;
        Ok(Self { from: BufReader::new(to.try_clone()?), to })
    }

    /// Asks, and waits for the answer; `fields` are whole lines.
    ///
    /// # Errors
    /// Those of the network, and an answer that ends short.
    pub(super) fn ask(&mut self, method: &str, target: &str, fields: &str) -> io::Result<Message> {
        let request = format!("{method} {target} HTTP/1.1\r\nhost: {HOST}\r\n{fields}content-length: 0\r\n\r\n");
        self.to.write_all(request.as_bytes())?;
        Message::read(&mut self.from)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// One request on a connection of its own.
///
/// # Errors
/// As [`Client::ask`].
pub(super) fn ask_once(address: SocketAddr, method: &str, target: &str, fields: &str) -> io::Result<Message> {
    Client::new(address)?.ask(method, target, fields)
}
