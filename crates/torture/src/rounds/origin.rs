//! The origin of proxied rounds: threads, whose objects have versions, and which fail when they are told to.

use std::{
    io::{self, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{
            AtomicU8, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;

use super::{body, log::now, spells::Spells, web::Message};
use crate::dice::Dice;

/// How an origin fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Trouble {
    /// Not at all.
    None,
    /// Bodies come in pieces, with rests between: no failure.
    Slow,
    /// Nothing listens, and what was connected is closed.
    Refuse,
    /// Connections are reset, before the answer or in its body.
    Reset,
    /// Nothing comes, or nothing more.
    Hang,
    /// 500, with a body.
    Error,
    /// 503, without.
    Unavailable,
    /// Bodies end before their end.
    Cut,
}

impl Trouble {
    pub(super) const ALL: [Self; 8] =
        [Self::None, Self::Slow, Self::Refuse, Self::Reset, Self::Hang, Self::Error, Self::Unavailable, Self::Cut];

    /// Whether requests may fail for it.
    pub(super) fn fails(self) -> bool {
        !matches!(self, Self::None | Self::Slow)
    }
}

/// GETs of one object: how many began and ended, and when the last one did.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) begun: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) last: AtomicU64,
}

/// What an origin has, and how it is with it.
pub(super) struct Site {
    /// The versions of all objects.
    pub(super) versions: Vec<AtomicU32>,
    /// When each was given its newest.
    pub(super) changed: Vec<AtomicU64>,
    pub(super) traffic: Vec<Traffic>,
    /// Bytes of a version of a key.
    pub(super) len_of: fn(u32, u32) -> usize,
    /// Seconds for which a key is fresh.
    pub(super) life_of: fn(u32) -> u32,
    /// Whether a key is sent in chunks, without its length.
    pub(super) is_chunked: fn(u32) -> bool,
    /// Keys of which half of the answers fail, whatever the weather.
    pub(super) is_bad: fn(u32) -> bool,
    trouble: AtomicU8,
    pub(super) troubles: Spells,
    /// Answers that failed on purpose, by [`Trouble`].
    pub(super) failed: [AtomicU64; Trouble::ALL.len()],
}

impl Site {
    /// Version 1 of so many objects, for a year, that never fail.
    pub(super) fn new(keys: u32, len_of: fn(u32, u32) -> usize) -> Self {
        Self {
            versions: (0..keys).map(|_| AtomicU32::new(1)).collect(),
            changed: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            traffic: (0..keys).map(|_| Traffic::default()).collect(),
            len_of,
            life_of: |_| 31_536_000,
            is_chunked: |_| false,
            is_bad: |_| false,
            trouble: AtomicU8::new(0),
            troubles: Spells::default(),
            failed: Default::default(),
        }
    }

    /// Gives a key its next version. Says which.
    pub(super) fn change(&self, key: u32) -> u32 {
        // In this order: read the other way around, no version seems older than it is.
        self.changed[key as usize].store(now(), SeqCst);
        self.versions[key as usize].fetch_add(1, SeqCst) + 1
    }

    pub(super) fn version(&self, key: u32) -> u32 {
        self.versions[key as usize].load(SeqCst)
    }

    pub(super) fn trouble(&self) -> Trouble {
        Trouble::ALL[self.trouble.load(SeqCst) as usize % Trouble::ALL.len()]
    }

    fn set(&self, trouble: Trouble) {
        let before = self.trouble();
        if trouble.fails() && !before.fails() {
            self.troubles.begin();
        }
        self.trouble.store(trouble as u8, SeqCst);
        if before.fails() && !trouble.fails() {
            self.troubles.end();
        }
    }

    /// What is wrong with one answer.
    fn drawn(&self, key: u32, dice: &mut Dice) -> Trouble {
        let trouble = match self.trouble() {
            Trouble::None if (self.is_bad)(key) && dice.percent(50) => {
                dice.pick(&[Trouble::Reset, Trouble::Error, Trouble::Unavailable, Trouble::Cut])
            }
            trouble => trouble,
        };
        self.failed[trouble as usize].fetch_add(1, Relaxed);
        trouble
    }
}

/// An origin that listens.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    pub(super) site: Arc<Site>,
}

impl Origin {
    /// # Errors
    /// Those of the network.
    pub(super) fn start(site: Site) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, site) = (listener.local_addr()?, Arc::new(site));
        let shared = Arc::clone(&site);
        // Until the process ends: it waits for connections, and none is made.
        std::thread::spawn(move || listen(listener, address, &shared));
        Ok(Self { address, site })
    }

    /// From now on it fails like this.
    pub(super) fn fail(&self, trouble: Trouble) {
        self.site.set(trouble);
        if trouble == Trouble::Refuse {
            // It waits for a connection, and would take one more.
            drop(TcpStream::connect(self.address));
        }
    }
}

/// How often a thread looks whether the trouble is over.
const LOOK: Duration = Duration::from_millis(20);

fn listen(mut listener: TcpListener, address: SocketAddr, site: &Arc<Site>) {
    loop {
        while let Ok((stream, _)) = listener.accept() {
            if site.trouble() == Trouble::Refuse {
                break;
            }
            let site = Arc::clone(site);
            std::thread::spawn(move || serve(&stream, &site));
        }
        drop(listener);
        listener = loop {
            std::thread::sleep(LOOK);
            if site.trouble() != Trouble::Refuse
                && let Ok(listener) = TcpListener::bind(address)
            {
                break listener;
            }
        };
    }
}

/// Answers until the connection ends, however it does.
fn serve(stream: &TcpStream, site: &Site) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut from = BufReader::new(stream.try_clone()?);
    let mut dice = Dice::new(now(), 5);
    while let Some(request) = Message::head(&mut from)? {
        request.pour(&mut from, |_| Ok(true))?;
        let mut words = request.first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = path.trim_start_matches('/').parse::<u32>().ok();
        let Some(key) = key.filter(|key| (*key as usize) < site.versions.len()) else {
            let mut to = stream;
            to.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            continue;
        };
        let traffic = &site.traffic[key as usize];
        traffic.begun.fetch_add(1, SeqCst);
        let trouble = site.drawn(key, &mut dice);
        let mut answer = Answer { to: stream, site, trouble, dice: &mut dice };
        let goes_on = if method == "POST" { answer.change(key) } else { answer.get(method, key, &request) };
        traffic.last.store(now(), SeqCst);
        traffic.ended.fetch_add(1, SeqCst);
        if !goes_on? {
            break;
        }
    }
    Ok(())
}

struct Answer<'a> {
    to: &'a TcpStream,
    site: &'a Site,
    trouble: Trouble,
    dice: &'a mut Dice,
}

impl Answer<'_> {
    /// Whether the trouble left the request as it is. False if there is no more to come on this connection.
    fn before(&mut self) -> io::Result<Option<bool>> {
        let field = self.dice.pick(&["", "cache-control: no-store\r\n"]);
        match self.trouble {
            Trouble::Error => {
                let text = format!("HTTP/1.1 500 Internal Server Error\r\n{field}content-length: 5\r\n\r\nerror");
                self.to.write_all(text.as_bytes())?;
                Ok(Some(true))
            }
            Trouble::Unavailable => {
                let text = format!("HTTP/1.1 503 Service Unavailable\r\n{field}content-length: 0\r\n\r\n");
                self.to.write_all(text.as_bytes())?;
                Ok(Some(true))
            }
            Trouble::Refuse => Ok(Some(false)),
            Trouble::Reset if self.dice.percent(50) => self.reset().map(Some),
            Trouble::Hang if self.dice.percent(50) => Ok(Some(self.hang())),
            _ => Ok(None),
        }
    }

    /// Ends the connection by a reset.
    fn reset(&self) -> io::Result<bool> {
        set_socket_linger(self.to, Some(Duration::ZERO))?;
        Ok(false)
    }

    fn hang(&self) -> bool {
        while self.site.trouble() == Trouble::Hang {
            std::thread::sleep(LOOK);
        }
        false
    }

    fn change(&mut self, key: u32) -> io::Result<bool> {
        if let Some(goes_on) = self.before()? {
            return Ok(goes_on);
        }
        let version = self.site.change(key);
        self.to.write_all(format!("HTTP/1.1 204 No Content\r\nversion: {version}\r\n\r\n").as_bytes())?;
        Ok(true)
    }

    fn get(&mut self, method: &str, key: u32, request: &Message) -> io::Result<bool> {
        if let Some(goes_on) = self.before()? {
            return Ok(goes_on);
        }
        let version = self.site.version(key);
        let tag = format!("\"{key}-{version}\"");
        let common = format!("cache-control: max-age={}\r\netag: {tag}\r\n", (self.site.life_of)(key));
        if request.field("if-none-match") == tag {
            self.to.write_all(format!("HTTP/1.1 304 Not Modified\r\n{common}\r\n").as_bytes())?;
            return Ok(true);
        }
        let len = (self.site.len_of)(key, version);
        if method == "HEAD" {
            self.to.write_all(format!("HTTP/1.1 200 OK\r\n{common}content-length: {len}\r\n\r\n").as_bytes())?;
            return Ok(true);
        }
        let body = body::body(key, version, len);
        let holds = request.field("if-range").is_empty() || request.field("if-range") == tag;
        let range = range_of(request.field("range"), len).filter(|_| holds);
        let (from, to) = range.unwrap_or((0, len));
        let first = match range {
            Some(_) => format!("206 Partial Content\r\ncontent-range: bytes {from}-{}/{len}", to - 1),
            None => "200 OK".into(),
        };
        let is_chunked = (self.site.is_chunked)(key);
        let framing =
            if is_chunked { "transfer-encoding: chunked".into() } else { format!("content-length: {}", to - from) };
        self.to.write_all(format!("HTTP/1.1 {first}\r\n{common}{framing}\r\n\r\n").as_bytes())?;
        self.send(&body[from..to], is_chunked)
    }

    fn send(&mut self, body: &[u8], is_chunked: bool) -> io::Result<bool> {
        let whole = matches!(self.trouble, Trouble::None | Trouble::Slow);
        let end = if whole { body.len() } else { self.dice.below(body.len() as u64) as usize };
        let rests = self.dice.between(2, 12) as usize;
        let piece = if self.trouble == Trouble::Slow { body.len() / rests + 1 } else { 256 << 10 };
        for piece in body[..end].chunks(piece) {
            if is_chunked {
                self.to.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
                self.to.write_all(piece)?;
                self.to.write_all(b"\r\n")?;
            } else {
                self.to.write_all(piece)?;
            }
            if self.trouble == Trouble::Slow {
                std::thread::sleep(Duration::from_millis(self.dice.between(1, 90)));
            }
        }
        match self.trouble {
            Trouble::Reset => self.reset(),
            Trouble::Hang => Ok(self.hang()),
            Trouble::Cut => Ok(false),
            _ if is_chunked => self.to.write_all(b"0\r\n\r\n").map(|()| true),
            _ => Ok(true),
        }
    }
}

/// The bytes that `bytes=a-b` or `bytes=a-` asks for, if there are any.
fn range_of(field: &str, len: usize) -> Option<(usize, usize)> {
    let (from, to) = field.strip_prefix("bytes=")?.split_once('-')?;
    let from = from.parse().ok()?;
    let to = if to.is_empty() { len } else { to.parse::<usize>().ok()?.checked_add(1)?.min(len) };
    (from < to).then_some((from, to))
}
