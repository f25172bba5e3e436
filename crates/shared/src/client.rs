//! The side that does not have the store: its verbs, from any thread.
//!
//! A call takes a connection that is idle, or opens one, and gives it back. If an idle one turns out to be dead, as all
//! are after the server was started again, the call is asked once more on a new one: every verb may be done twice. One
//! that only does not answer is not dead: what it was asked may still be done, after a second asking and what follows.

use std::{
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileTypeExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use picaflor::{Priority, PutOptions};

use crate::{
    connection::{Connection, unexpected},
    error::{Error, Result},
    wire::{Entry, Frame, Head, PutHead},
};

/// Whether there is a socket at this path: a store that is served, in place of its file.
pub fn is_socket(path: impl AsRef<Path>) -> bool {
    path.as_ref().metadata().is_ok_and(|found| found.file_type().is_socket())
}

/// Most connections that are kept for later.
const IDLE_MAX: usize = 16;

/// A store that another process has open. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    path: Arc<Path>,
    patience: Duration,
    idle: Mutex<Vec<Connection>>,
}

impl Client {
    /// Connects to the server at a socket; an answer may take 60 s.
    ///
    /// # Errors
    /// [`Error::NoServer`] if there is no server, [`Error::Declined`] if it does not let us in, [`Error::Version`] if
    /// it speaks another version.
    pub fn connect(socket: impl AsRef<Path>) -> Result<Self> {
        Self::connect_within(socket, Duration::from_secs(60))
    }

    /// As [`Client::connect`], with a time after which a server that sends nothing, or takes nothing, counts as lost.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_within(socket: impl AsRef<Path>, patience: Duration) -> Result<Self> {
        let path: Arc<Path> = socket.as_ref().into();
        let patience = patience.max(Duration::from_millis(1));
        let first = Connection::open(&path, patience)?;
        Ok(Self { inner: Arc::new(Inner { path, patience, idle: Mutex::new(vec![first]) }) })
    }

    /// Runs one exchange on a connection, and once more on a new one if an old one was dead.
    fn call<T>(&self, exchange: impl Fn(&mut Connection) -> Result<T>) -> Result<T> {
        self.with(exchange).map(|(answer, connection)| {
            self.give_back(connection);
            answer
        })
    }

    /// As [`Client::call`], keeping the connection for what follows.
    fn with<T>(&self, exchange: impl Fn(&mut Connection) -> Result<T>) -> Result<(T, Connection)> {
        let idle = self.inner.idle.lock().pop();
        let is_old = idle.is_some();
        let mut connection = idle.map_or_else(|| self.open(), Ok)?;
        match exchange(&mut connection) {
            Err(error) if is_old && Connection::is_dead(&error) => {
                // The others are from before, too.
                self.inner.idle.lock().clear();
                connection = self.open()?;
                let answer = exchange(&mut connection);
                self.judge(answer, connection)
            }
            answer => self.judge(answer, connection),
        }
    }

    fn judge<T>(&self, answer: Result<T>, connection: Connection) -> Result<(T, Connection)> {
        match answer {
            Ok(answer) => Ok((answer, connection)),
            Err(error) => {
                if Connection::survives(&error) {
                    self.give_back(connection);
                }
                Err(error)
            }
        }
    }

    fn open(&self) -> Result<Connection> {
        Connection::open(&self.inner.path, self.inner.patience)
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.inner.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn ask_done(&self, request: &Frame<'_>) -> Result<()> {
        self.call(|connection| {
            connection.add(request);
            connection.send()?;
            done(connection)
        })
    }

    fn ask_answer(&self, request: &Frame<'_>) -> Result<bool> {
        self.call(|connection| {
            connection.add(request);
            connection.send()?;
            match connection.receive()? {
                Frame::Answer(yes) => Ok(yes),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// The whole body of an object, in memory. [`Client::get_stream`] is for what is larger than that should be.
    ///
    /// # Errors
    /// [`Error::Store`] in the words of the store; [`Error::Lost`] if the server goes away in the middle.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.call(|connection| {
            let Some(head) = ask_object(connection, key, 0..u64::MAX)? else { return Ok(None) };
            // What a server says of a length is not believed before the bytes are there.
            let mut body = Vec::with_capacity(head.len.min(1 << 20) as usize);
            loop {
                match connection.receive()? {
                    Frame::Data(data) => body.extend_from_slice(data),
                    Frame::End if body.len() as u64 == head.len => return Ok(Some(body)),
                    other => return Err(unexpected(&other)),
                }
            }
        })
    }

    /// An object and the bytes of a range of its body, cut to the body's length, as they come.
    ///
    /// # Errors
    /// As [`Client::get`]; those in the middle of the body come with its bytes.
    pub fn get_stream(&self, key: &[u8], range: Range<u64>) -> Result<Option<Incoming>> {
        let (head, connection) = self.with(|connection| ask_object(connection, key, range.clone()))?;
        let Some(head) = head else {
            self.give_back(connection);
            return Ok(None);
        };
        let client = self.clone();
        Ok(Some(Incoming { head, client, connection: Some(connection), data: Vec::new(), at: 0 }))
    }

    /// Puts an object; an older one with this key is replaced. When this returns, every get of every process finds it;
    /// it is durable as the server's store says, or after [`Client::flush`].
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.put_with(key, body, &PutOptions::new())
    }

    /// As [`Client::put`], with metadata, an expiry, and what the object is to lie beside.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put_with(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<()> {
        self.call(|connection| {
            connection.add(&put_frame(key, Some(body.len() as u64), options));
            connection.add_body(body)?;
            connection.add(&Frame::End);
            connection.send()?;
            done(connection)
        })
    }

    /// Begins an object whose body comes in pieces; `len` is its length where that is known.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put_stream(&self, key: &[u8], len: Option<u64>, options: &PutOptions) -> Result<Outgoing> {
        // A body cannot be sent twice, so that the connection lives is made sure of first.
        let ((), mut connection) = self.with(|connection| {
            connection.add(&Frame::Ping);
            connection.send()?;
            done(connection)
        })?;
        connection.add(&put_frame(key, len, options));
        Ok(Outgoing { client: self.clone(), connection: Some(connection) })
    }

    /// Deletes an object. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.ask_answer(&Frame::Delete(key))
    }

    /// Whether a get would find the key now.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.ask_answer(&Frame::Contains(key))
    }

    /// Deletes an object without a look whether it is there, where the store is a cache (`Store::invalidate`).
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn invalidate(&self, key: &[u8]) -> Result<()> {
        self.ask_done(&Frame::Invalidate(key))
    }

    /// The group of an object that a get would find now; 0 is none.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn group_of(&self, key: &[u8]) -> Result<Option<u32>> {
        self.call(|connection| {
            connection.add(&Frame::GroupOf(key));
            connection.send()?;
            match connection.receive()? {
                Frame::Group(group) => Ok(Some(group)),
                Frame::Answer(false) => Ok(None),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Asks that two objects lie side by side on the device.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn collocate(&self, a: &[u8], b: &[u8]) -> Result<()> {
        self.ask_done(&Frame::Collocate(a, b))
    }

    /// Keeps a group's objects in memory longest; groups are numbered from 1 on.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn love(&self, group: u32) -> Result<()> {
        self.set_priority(group, Priority::Loved)
    }

    /// Lets a group's objects leave memory first.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn hate(&self, group: u32) -> Result<()> {
        self.set_priority(group, Priority::Hated)
    }

    /// How memory treats a group.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn set_priority(&self, group: u32, priority: Priority) -> Result<()> {
        self.ask_done(&Frame::Priority(group, priority))
    }

    /// How long a group's puts may stay volatile; `None` turns syncs for their sake off.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn set_checkpoint_interval(&self, group: u32, interval: Option<Duration>) -> Result<()> {
        let millis = interval.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1));
        self.ask_done(&Frame::Interval(group, millis))
    }

    /// Divides the clusters that a group fills from now on into pages of so many bytes, in a store of preset `damelo`.
    ///
    /// # Errors
    /// As [`Client::get`]; a size that no page has is the store's no.
    pub fn set_page(&self, group: u32, bytes: u32) -> Result<()> {
        self.ask_done(&Frame::Page(group, bytes))
    }

    /// Returns when everything put and deleted before, by any process, is durable.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn flush(&self) -> Result<()> {
        self.ask_done(&Frame::Flush)
    }

    /// All objects, in the order in which they lie on the device.
    ///
    /// # Errors
    /// As [`Client::get`]; those in the middle come in place of an entry, which is then the last.
    pub fn keys(&self) -> Result<Listing> {
        let ((), mut connection) = self.with(|connection| {
            connection.add(&Frame::Ping);
            connection.send()?;
            done(connection)
        })?;
        connection.add(&Frame::Keys);
        connection.send()?;
        Ok(Listing { client: self.clone(), connection: Some(connection) })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

fn put_frame<'a>(key: &'a [u8], len: Option<u64>, options: &'a PutOptions) -> Frame<'a> {
    Frame::Put(PutHead {
        key,
        len,
        group: options.group,
        server: options.server,
        expiry: options.expiry,
        bypass_memory: options.bypass_memory,
        no_wait: options.no_wait,
        metadata: &options.metadata,
        neighbour: options.neighbour.as_deref().unwrap_or_default(),
    })
}

fn done(connection: &mut Connection) -> Result<()> {
    match connection.receive()? {
        Frame::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn ask_object(connection: &mut Connection, key: &[u8], range: Range<u64>) -> Result<Option<Head>> {
    connection.add(&Frame::Get { key, from: range.start, to: range.end });
    connection.send()?;
    match connection.receive()? {
        Frame::Object(head) => Ok(Some(head)),
        Frame::Answer(false) => Ok(None),
        other => Err(unexpected(&other)),
    }
}

/// An object that is coming: a reader of its bytes. Dropped before its end, it costs its connection.
pub struct Incoming {
    head: Head,
    client: Client,
    /// Until the end.
    connection: Option<Connection>,
    data: Vec<u8>,
    at: usize,
}

impl Incoming {
    /// Length, metadata and the rest that is known of the object.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next bytes, as many as came together; `None` at the end.
    ///
    /// # Errors
    /// As [`Client::get`]; there is nothing more after one.
    pub fn next_piece(&mut self) -> Result<Option<&[u8]>> {
        let Some(mut connection) = self.connection.take() else { return Ok(None) };
        match connection.receive() {
            Ok(Frame::Data(data)) => {
                self.data.clear();
                self.data.extend_from_slice(data);
                self.connection = Some(connection);
                Ok(Some(&self.data))
            }
            Ok(Frame::End) => {
                self.client.give_back(connection);
                Ok(None)
            }
            Ok(other) => Err(unexpected(&other)),
            Err(error) => self.client.judge(Err(error), connection).map(|((), _)| None),
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.data.len() && !to.is_empty() {
            self.at = 0;
            if self.next_piece().map_err(io::Error::other)?.is_none() {
                self.data.clear();
                return Ok(0);
            }
        }
        let len = to.len().min(self.data.len() - self.at);
        to[..len].copy_from_slice(&self.data[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// An object being put. Dropped without [`Outgoing::finish`], it was never there.
pub struct Outgoing {
    client: Client,
    connection: Option<Connection>,
}

impl Outgoing {
    /// Adds to the body.
    ///
    /// # Errors
    /// As [`Client::get`]; the object cannot be finished after one. What the store says against the object comes with
    /// [`Outgoing::finish`].
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        let Some(connection) = &mut self.connection else {
            return Err(Error::Protocol("nothing can follow an error".into()));
        };
        let sent = connection.add_body(data);
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    /// Completes the object: from here on gets find it.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn finish(mut self) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::Protocol("nothing can follow an error".into()));
        };
        connection.add(&Frame::End);
        let ended = connection.send().and_then(|()| done(&mut connection));
        let ((), connection) = self.client.judge(ended, connection)?;
        self.client.give_back(connection);
        Ok(())
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Hanging up would do as well, but the connection is worth keeping.
        if let Some(mut connection) = self.connection.take() {
            connection.add(&Frame::Abandon);
            if connection.send().and_then(|()| done(&mut connection)).is_ok() {
                self.client.give_back(connection);
            }
        }
    }
}

/// The objects of a store, as they come.
pub struct Listing {
    client: Client,
    connection: Option<Connection>,
}

impl Iterator for Listing {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let mut connection = self.connection.take()?;
        match connection.receive() {
            Ok(Frame::Entry(entry)) => {
                self.connection = Some(connection);
                Some(Ok(entry))
            }
            Ok(Frame::End) => {
                self.client.give_back(connection);
                None
            }
            Ok(other) => Some(Err(unexpected(&other))),
            Err(error) => Some(self.client.judge(Err(error), connection).map(|(entry, _)| entry)),
        }
    }
}
