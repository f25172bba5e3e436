//! What a handle leads to: a store that this process has opened, or one that another process serves at a Unix socket
//! (`picaflor share`). Each verb is asked of either in the same words.
//!
//! Over a socket an object is copied when it is found, so that it stays as it was as long as it is held; what is for
//! the process that has the store (its daemons, its size) is refused by name.

use std::time::Duration;

use bytes::Bytes;
use picaflor::{Daemon, Object, Options, Place, Priority, PutOptions, Store};
use picaflor_shared::{Client, Error as ClientError, Head, Kind, is_socket};

use crate::code::{Code, Failure};

pub(crate) enum Backend {
    Opened(Store),
    Served { client: Client, is_read_only: bool },
}

/// An object that was found.
pub(crate) enum Found {
    Pinned(Object),
    Copied { head: Head, body: Bytes },
}

impl Backend {
    /// Opens the store of these options, or reaches it where its place is a socket: how it is kept is then the server's
    /// to say.
    pub(crate) fn open(options: Options) -> Result<(Self, String), Failure> {
        if let [Place::Path(socket)] = &options.places[..]
            && is_socket(socket)
        {
            let client = Client::connect(socket)?;
            let receipt = format!("served by another process at {}", socket.display());
            return Ok((Self::Served { client, is_read_only: options.read_only }, receipt));
        }
        let store = Store::open(options)?;
        let receipt = store.receipt().to_string();
        Ok((Self::Opened(store), receipt))
    }

    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => Ok(store.close()?),
            Self::Served { is_read_only: true, .. } => Ok(()),
            Self::Served { client, .. } => Ok(client.flush()?),
        }
    }

    /// The client of a store that is served, for what writes.
    fn writer(client: &Client, is_read_only: bool) -> Result<&Client, Failure> {
        if is_read_only {
            return Err(Failure { code: Code::ReadOnly, text: "opened for reading only".into() });
        }
        Ok(client)
    }

    pub(crate) fn put(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => Ok(store.put_with(key, body, options)?),
            Self::Served { client, is_read_only } => {
                Ok(Self::writer(client, *is_read_only)?.put_with(key, body, options)?)
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Found>, Failure> {
        match self {
            Self::Opened(store) => Ok(store.get(key)?.map(Found::Pinned)),
            Self::Served { client, .. } => {
                let Some(mut incoming) = client.get_stream(key, 0..u64::MAX)? else { return Ok(None) };
                let mut body = Vec::new();
                while let Some(piece) = incoming.next_piece()? {
                    body.extend_from_slice(piece);
                }
                Ok(Some(Found::Copied { head: incoming.head().clone(), body: body.into() }))
            }
        }
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool, Failure> {
        match self {
            Self::Opened(store) => Ok(store.delete(key)?),
            Self::Served { client, is_read_only } => Ok(Self::writer(client, *is_read_only)?.delete(key)?),
        }
    }

    pub(crate) fn invalidate(&self, key: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => Ok(store.invalidate(key)?),
            Self::Served { client, is_read_only } => Ok(Self::writer(client, *is_read_only)?.invalidate(key)?),
        }
    }

    pub(crate) fn collocate(&self, a: &[u8], b: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => store.collocate(a, b),
            Self::Served { client, .. } => client.collocate(a, b)?,
        }
        Ok(())
    }

    pub(crate) fn group_of(&self, key: &[u8]) -> Result<Option<u32>, Failure> {
        match self {
            Self::Opened(store) => Ok(store.group_of(key)?),
            Self::Served { client, .. } => Ok(client.group_of(key)?),
        }
    }

    pub(crate) fn set_priority(&self, group: u32, priority: Priority) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => store.group(group).set(priority),
            Self::Served { client, .. } => client.set_priority(group, priority)?,
        }
        Ok(())
    }

    pub(crate) fn set_checkpoint_interval(&self, group: u32, interval: Option<Duration>) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => store.group(group).set_checkpoint_interval(interval),
            Self::Served { client, .. } => client.set_checkpoint_interval(group, interval)?,
        }
        Ok(())
    }

    pub(crate) fn set_page(&self, group: u32, bytes: u32) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => Ok(store.group(group).set_page(bytes)?),
            Self::Served { client, .. } => Ok(client.set_page(group, bytes)?),
        }
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        match self {
            Self::Opened(store) => Ok(store.flush()?),
            Self::Served { client, .. } => Ok(client.flush()?),
        }
    }

    /// The store, for what only the process that has it may do.
    fn own(&self, what: &str) -> Result<&Store, Failure> {
        match self {
            Self::Opened(store) => Ok(store),
            Self::Served { .. } => {
                let text = format!("{what} is for the process that has the store, and this one reaches it by a socket");
                Err(Failure { code: Code::Option, text })
            }
        }
    }

    pub(crate) fn step(&self) -> Result<bool, Failure> {
        Ok(self.own("running daemons")?.step()?)
    }

    pub(crate) fn run_daemon(&self, daemon: Daemon) -> Result<bool, Failure> {
        Ok(self.own("running a daemon")?.run_daemon(daemon)?)
    }

    pub(crate) fn grow(&self, capacity: u64) -> Result<(), Failure> {
        Ok(self.own("growing")?.grow(capacity)?)
    }
}

impl Found {
    pub(crate) fn body(&self) -> Result<Bytes, Failure> {
        match self {
            Self::Pinned(object) => Ok(object.body()?),
            Self::Copied { body, .. } => Ok(body.clone()),
        }
    }

    /// Gives the bytes of the body from an offset on, at most so many, piece by piece.
    pub(crate) fn read_at(&self, offset: u64, len: u64, mut take: impl FnMut(&[u8])) -> Result<(), Failure> {
        let end = offset.saturating_add(len);
        match self {
            Self::Pinned(object) => {
                for piece in object.chunks(offset..end) {
                    take(&piece?);
                }
            }
            Self::Copied { body, .. } => {
                let cut = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(body.len());
                take(&body[cut(offset)..cut(end)]);
            }
        }
        Ok(())
    }

    pub(crate) fn metadata(&self) -> &[u8] {
        match self {
            Self::Pinned(object) => object.metadata(),
            Self::Copied { head, .. } => &head.metadata,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Pinned(object) => object.len(),
            Self::Copied { head, .. } => head.len,
        }
    }

    pub(crate) fn group(&self) -> u32 {
        match self {
            Self::Pinned(object) => object.group(),
            Self::Copied { head, .. } => head.group,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        match self {
            Self::Pinned(object) => object.generation(),
            Self::Copied { head, .. } => head.generation,
        }
    }

    /// Milliseconds since the Unix epoch; 0 is never.
    pub(crate) fn expires(&self) -> u64 {
        match self {
            Self::Pinned(object) => object.expires().unwrap_or(0),
            Self::Copied { head, .. } => head.expires,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Version(_) => Code::Version,
            ClientError::Store { kind, .. } => match kind {
                Kind::Full => Code::Full,
                Kind::TooLarge => Code::TooLarge,
                Kind::Expired => Code::Expired,
                Kind::Busy => Code::Busy,
                Kind::NoCleanSpace => Code::NoCleanSpace,
                Kind::IndexFull => Code::IndexFull,
                Kind::ReadOnly => Code::ReadOnly,
                Kind::Io => Code::Io,
                Kind::Damaged => Code::Damaged,
                Kind::Limit => Code::Limit,
                Kind::Option => Code::Option,
                Kind::Closed => Code::Closed,
                Kind::Recovering => Code::Recovering,
                _ => Code::Other,
            },
            _ => Code::Io,
        };
        Self { code, text: error.to_string() }
    }
}
